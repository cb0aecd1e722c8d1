"""The instructions of an Envoy for a request, counted by Valgrind.

Unlike CPU time, the same case again has the same count within a percent, on a busy machine too. The kernel's
instructions are not counted, and one may take longer than another: use it to find what changed, not how long it takes.
"""

import http.client
import itertools
import re
import subprocess
import time
from pathlib import Path

from .case import Case
from .envoy import Envoy

# Before the count: caches fill.
WARM_UP = 500
# Envoy's own timers and the filter's ticks, which are not a request's.
IDLE_SECONDS = 4
ANSWER_LIMIT_SECONDS = 60


def per_request(binary: str, case: Case, requests: int, scratch: Path) -> int:
    """What one request adds to an idle Envoy."""
    counter = Counter(scratch)
    with Envoy(binary, [case], scratch, under=counter.command()) as envoy:
        envoy.check(case)
        client = Client(envoy, case, WARM_UP + requests)
        counter.start(envoy.pid)
        client.send(WARM_UP)
        counter.take()
        idle = counter.timed(lambda: time.sleep(IDLE_SECONDS))
        busy = counter.timed(lambda: client.send(requests))
    return round((busy.instructions - idle.rate * busy.seconds) / requests)


class Timed:
    """A count of instructions, and the time that it took."""

    def __init__(self, instructions: int, seconds: float):
        self.instructions = instructions
        self.seconds = seconds
        self.rate = instructions / seconds


class Counter:
    """Valgrind's callgrind around one process."""

    def __init__(self, scratch: Path):
        self._counts = scratch / "counts"
        self._log = scratch / "valgrind.log"
        self._taken = 0

    def command(self) -> list[str | Path]:
        """Runs the program whose command follows. It counts nothing before `start`."""
        # V8 writes code, so code that has been translated must be compared each time.
        return ["valgrind", "--tool=callgrind", "--smc-check=all-non-file", "--instr-atstart=no"] + [
            f"--callgrind-out-file={self._counts}",
            f"--log-file={self._log}",
        ]

    def start(self, pid: int) -> None:
        self._pid = pid
        self._control("--instr=on")

    def timed(self, work) -> Timed:
        begin = time.monotonic()
        work()
        return Timed(self.take(), time.monotonic() - begin)

    def take(self) -> int:
        """The count since it was last taken."""
        self._control("--dump")
        self._taken += 1
        file = Path(f"{self._counts}.{self._taken}")
        deadline = time.monotonic() + ANSWER_LIMIT_SECONDS
        while time.monotonic() < deadline:
            # The last line of a complete file.
            if file.exists() and (totals := re.search(r"^totals: (\d+)$", file.read_text(), re.MULTILINE)):
                return int(totals[1])
            time.sleep(0.05)
        raise SystemExit(f"error: valgrind wrote no count:\n{self._log.read_text(errors='replace')}")

    def _control(self, command: str) -> None:
        outcome = subprocess.run(["callgrind_control", command, str(self._pid)], check=False, capture_output=True, text=True)
        if outcome.returncode != 0:
            raise SystemExit(f"error: callgrind_control {command} failed:\n{outcome.stdout}{outcome.stderr}")


class Client:
    """One connection to a case's listener, and different requests for it if the case has them."""

    def __init__(self, envoy: Envoy, case: Case, requests: int):
        self._case = case
        self._connection = http.client.HTTPConnection("127.0.0.1", envoy.port(case), timeout=ANSWER_LIMIT_SECONDS)
        made = case.make(case.distinct or requests) if case.make else [()]
        self._changing = itertools.cycle(made)

    def send(self, requests: int) -> None:
        """Any answer but success ends the run, since its cost is not the case's."""
        for _ in range(requests):
            changing = dict(zip(self._case.changing, next(self._changing), strict=True))
            path = changing.pop(":path", self._case.path)
            body = self._case.body.encode() or None
            self._connection.request(self._case.method, path, body=body, headers=self._case.headers | changing)
            response = self._connection.getresponse()
            response.read()
            if response.status != 200:
                raise SystemExit(f"error: case {self._case.name} answered {response.status}")
