"""Load by wrk in turns, as fast as it is answered."""

import math
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .case import Case
from .envoy import Envoy
from .process import cpu_seconds

LOAD_CORE = "1"
CONNECTIONS = 32
WARM_UP_SECONDS = 0.5
# For work after a turn: answers in flight, and evidence, which filters send every 50 ms.
SETTLE_SECONDS = 0.1
LIMIT_SECONDS = 30
# wrk runs until it is killed.
FOREVER = "24h"
# Requests that expire are made for this many turns at a time.
TURNS_OF_PERISHABLES = 4
REQUESTS_SCRIPT = Path(__file__).parent / "requests.lua"
BODY_SCRIPT = Path(__file__).parent / "body.lua"


@dataclass(frozen=True)
class Sample:
    """The result of one case in one turn."""

    # CPU time per request: of the Envoy process, and with the processes beside it that work for it.
    cpu_us: float
    everything_us: float
    rps: float


class Load:
    """wrk for one case, from `with` to its end.

    wrk is stopped (SIGSTOP) except in its turns. So a turn starts at once, on open connections, and many cases can follow
    each other within seconds, on much the same machine. wrk is restarted when its requests are used up or have expired.
    """

    def __init__(self, envoy: Envoy, case: Case, turns: int, seconds: float, beside: Sequence[int] = ()):
        """Turns of this many seconds each. `beside` has the processes that also work for the case."""
        self._envoy = envoy
        self._case = case
        self._turns = turns if math.isinf(case.good_for_seconds) else min(turns, TURNS_OF_PERISHABLES)
        self._seconds = seconds
        self._beside = beside
        self._running = ExitStack()

    def __enter__(self) -> "Load":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def turn(self) -> Sample:
        """One turn. Any answer but success ends the run, since its cost is not the case's."""
        if self._turns_left == 0 or time.monotonic() > self._good_until:
            self._running.close()
            self._start()
        self._turns_left -= 1
        pids = (self._envoy.pid, *self._beside)
        answers_before = self._envoy.answers(self._case)
        cpu_before = [cpu_seconds(pid) for pid in pids]
        begin = time.monotonic()
        self._process.send_signal(signal.SIGCONT)
        time.sleep(self._seconds)
        self._process.send_signal(signal.SIGSTOP)
        took = time.monotonic() - begin
        time.sleep(SETTLE_SECONDS)
        used = [cpu_seconds(pid) - before for pid, before in zip(pids, cpu_before, strict=True)]
        answers = self._envoy.answers(self._case) - answers_before
        if self._process.poll() is not None or answers.all == 0 or answers.successes != answers.all:
            raise self._failure(f"{answers.successes} successes of {answers.all} requests")
        return Sample(
            cpu_us=used[0] / answers.all * 1e6,
            everything_us=sum(used) / answers.all * 1e6,
            rps=answers.all / took,
        )

    def _start(self) -> None:
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="credence-bench-")))
            self._good_until = time.monotonic() + self._case.good_for_seconds
            self._turns_left = self._turns
            self._output = scratch / "output"
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(self._command(scratch), stdout=output, stderr=subprocess.STDOUT)
            stack.callback(self._stop)
            self._warm_up()
            self._running = stack.pop_all()

    def _command(self, scratch: Path) -> list[str]:
        """Requests that differ are made before the measurement."""
        case = self._case
        headers = [part for name, value in case.headers.items() for part in ("-H", f"{name}: {value}")]
        # Killed with this program, in any case: no other program would continue or end it.
        command = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", LOAD_CORE]
        command += ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{FOREVER}", *headers]
        if case.body:
            body = scratch / "body"
            body.write_text(case.body, encoding="utf-8")
            return [*command, "-s", str(BODY_SCRIPT), self._envoy.url(case), "--", case.method, str(body)]
        if case.make is None:
            return [*command, self._envoy.url(case)]
        requests = scratch / "requests"
        lines = ("\t".join(values) + "\n" for values in case.make(self._requests()))
        requests.write_text("".join(lines), encoding="ascii")
        return [*command, "-s", str(REQUESTS_SCRIPT), self._envoy.url(case), "--", str(requests), "again" if case.distinct else "once", *case.changing]

    def _requests(self) -> int:
        return self._case.distinct or int(self._case.most_per_second * (self._turns * self._seconds + WARM_UP_SECONDS))

    def _warm_up(self) -> None:
        """Waits until wrk, which first reads its requests, has sent some for a while."""
        deadline = time.monotonic() + LIMIT_SECONDS
        before = self._envoy.answers(self._case)
        while self._envoy.answers(self._case).all == before.all:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self._failure("no answer to wrk")
            time.sleep(0.02)
        time.sleep(WARM_UP_SECONDS)
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(SETTLE_SECONDS)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _failure(self, what: str) -> SystemExit:
        said = self._output.read_text(errors="replace").strip()
        return SystemExit(f"error: case {self._case.name}: {what}; wrk says: {said or 'nothing'}")
