"""CPU time of one request that may be denied, may have any content, and differs each time.

wrk counts only successful requests, and its arguments end at 128 KiB. So Python makes the bytes of each request and sends
them over a few connections, one at a time on each. Envoy's CPU time does not depend on the rate. Its own work meanwhile
(ticks, pings) is measured in each round and subtracted.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from .case import Case
from .envoy import Envoy
from .load import LOAD_CORE, SETTLE_SECONDS
from .process import cpu_seconds

CONNECTIONS = 16
LIMIT_SECONDS = 60
IDLE_SECONDS = 1


@dataclass(frozen=True)
class Cost:
    """A request, and who can send it."""

    case: Case
    # The bytes of the n-th request.
    request: Callable[[int], bytes]
    status: int
    # Whether the issuer's signature verifies. Then the principal is known, and a revocation stops it.
    authenticated: bool
    # What is at its maximum.
    about: str
    body_bytes: int = 0
    # Whether several things are at their maximum at the same time.
    combined: bool = False


@dataclass(frozen=True)
class Sample:
    cpu_us: float
    requests: int


class Client:
    """Sends the requests of one case in turns."""

    def __init__(self, envoy: Envoy, cost: Cost):
        self._envoy, self._cost, self._sent = envoy, cost, 0
        self._connections = [Connection(envoy.port(cost.case)) for _ in range(CONNECTIONS)]
        self._wait_until_ready()

    def turn(self, seconds: float, idle: float) -> Sample:
        """`idle` is the CPU time that Envoy takes by itself, in seconds per second."""
        before, begin = cpu_seconds(self._envoy.pid), time.monotonic()
        requests = 0
        while time.monotonic() < begin + seconds:
            requests += self._round()
        time.sleep(SETTLE_SECONDS)
        took = time.monotonic() - begin
        used = cpu_seconds(self._envoy.pid) - before - idle * took
        return Sample(cpu_us=used / requests * 1e6, requests=requests)

    def _round(self) -> int:
        for connection in self._connections:
            connection.send(self._cost.request(self._sent))
            self._sent += 1
        for connection in self._connections:
            status, body = connection.answer()
            if status != self._cost.status:
                raise SystemExit(
                    f"error: {self._cost.case.name}: answered {status}, expected {self._cost.status}: {body[:500]!r}"
                )
        return len(self._connections)

    def _wait_until_ready(self) -> None:
        """503 means "not yet" while a filter waits for its control plane."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            connection = self._connections[0]
            connection.send(self._cost.request(self._sent))
            self._sent += 1
            status, body = connection.answer()
            if status == self._cost.status or time.monotonic() > deadline:
                break
            if status != 503:
                raise SystemExit(
                    f"error: {self._cost.case.name}: answered {status}, expected {self._cost.status}: {body[:500]!r}"
                )
            time.sleep(0.1)
        self._round()


class Connection:
    def __init__(self, port: int):
        self._port = port
        self._open()

    def send(self, request: bytes) -> None:
        if self._is_closed:
            self._open()
        self._socket.sendall(request)

    def answer(self) -> tuple[int, bytes]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._received()
        head, body = received.split(b"\r\n\r\n", 1)
        fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        length = int(fields.get(b"content-length", b"0"))
        while len(body) < length:
            body += self._received()
        self._is_closed = fields.get(b"connection") == b"close"
        if self._is_closed:
            self._socket.close()
        return int(head.split(b" ", 2)[1]), body

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), LIMIT_SECONDS)
        self._is_closed = False

    def _received(self) -> bytes:
        part = self._socket.recv(65_536)
        if not part:
            raise SystemExit("error: Envoy closed a connection instead of answering")
        return part


def measure(envoy: Envoy, costs: list[Cost], rounds: int, seconds: float) -> dict[str, float]:
    """The median CPU time of each, in microseconds, over interleaved rounds."""
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    clients = {cost.case.name: Client(envoy, cost) for cost in costs}
    samples: dict[str, list[Sample]] = {name: [] for name in clients}
    names = list(clients)
    for number in range(rounds):
        idle = idle_share(envoy)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(clients[name].turn(seconds, idle))
    return {name: median(sample.cpu_us for sample in of_one) for name, of_one in samples.items()}


def idle_share(envoy: Envoy) -> float:
    before, begin = cpu_seconds(envoy.pid), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(envoy.pid) - before) / (time.monotonic() - begin)


def request(method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: payments.example"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def counted(template: bytes) -> Callable[[int], bytes]:
    """The same request with another number at the placeholder each time."""
    before, after = template.split(PLACEHOLDER.encode())
    width = len(PLACEHOLDER)
    return lambda number: before + b"%0*d" % (width, number) + after


# These are base64url characters, so that the first half of a forged signature can contain them.
PLACEHOLDER = "_NUMBER_"
