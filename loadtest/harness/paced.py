"""Load by e2e/examples/paced-load.rs: at a rate, without coordinated omission, or as fast as it is answered."""

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .case import Case
from .envoy import Envoy
from .load import LOAD_CORE, SETTLE_SECONDS
from .process import cpu_seconds

HOST = "payments.example"


class Paced:
    def __init__(self, program: Path, scratch: Path):
        self._program = program
        self._scratch = scratch

    def requests(self, case: Case, count: int) -> Path:
        """A file of requests: one that is repeated if all are alike, or this many different ones."""
        file = self._scratch / f"requests-{case.name}"
        changing = case.make(case.distinct or count) if case.make else [()]
        write(file, (request(case, dict(zip(case.changing, values, strict=True))) for values in changing))
        return file

    def run(
        self,
        file: Path,
        ports: list[int],
        *,
        seconds: float,
        rate: float = 0,
        order: str = "in-turn",
        connections: int,
        cores: str = LOAD_CORE,
    ) -> dict[str, float]:
        """The last line of the program's output. Any answer but 200 ends the run."""
        settings = [file, order, rate, seconds, connections, *ports]
        command = ["taskset", "-c", cores, self._program, *map(str, settings)]
        outcome = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if outcome.returncode != 0:
            raise SystemExit(f"error: the load for {file.name} ended with {outcome.returncode} (its message is above)")
        return json.loads(outcome.stdout)


def request(case: Case, changing: dict[str, str]) -> bytes:
    headers = {"host": HOST} | case.headers | changing
    path = headers.pop(":path", case.path)
    lines = [f"{case.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def write(file: Path, requests: Iterable[bytes]) -> None:
    with file.open("wb") as out:
        out.writelines(requests)


@dataclass(frozen=True)
class PacedSample:
    """The result of the Envoys in one turn."""

    # CPU time per request: of the Envoys, and with the processes beside them that work for them.
    cpu_us: float
    everything_us: float
    rps: float
    p50_ms: float
    p99_ms: float
    p99_9_ms: float


def paced_sample(
    paced: Paced, envoys: Sequence[Envoy], case: Case, file: Path, beside: Sequence[int] = (), **load: object
) -> PacedSample:
    """Each of the Envoys gets the same share of the load."""
    own = [envoy.pid for envoy in envoys]
    before = {pid: cpu_seconds(pid) for pid in (*own, *beside)}
    taken = paced.run(file, [envoy.port(case) for envoy in envoys], **load)
    time.sleep(SETTLE_SECONDS)
    used = {pid: cpu_seconds(pid) - then for pid, then in before.items()}
    return PacedSample(
        cpu_us=sum(used[pid] for pid in own) / taken["requests"] * 1e6,
        everything_us=sum(used.values()) / taken["requests"] * 1e6,
        rps=taken["rps"],
        p50_ms=taken["p50_ms"],
        p99_ms=taken["p99_ms"],
        p99_9_ms=taken["p99_9_ms"],
    )
