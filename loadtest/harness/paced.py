"""Load by e2e/src/bin/paced-load.rs: at a rate, free of coordinated omission, or as fast as it is answered."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .case import Case
from .measure import LOAD_CORE

HOST = "payments.example"


class Paced:
    def __init__(self, program: Path, scratch: Path):
        self._program = program
        self._scratch = scratch

    def requests(self, case: Case, count: int) -> Path:
        """A file of requests: the same one again and again where they are all alike, or so many different ones."""
        file = self._scratch / f"requests-{case.name}"
        changing = case.make(count) if case.make else [()]
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
        """What the program's last line says. Whatever is not answered with 200 ends the run."""
        settings = [file, order, rate, seconds, connections, *ports]
        command = ["taskset", "-c", cores, self._program, *map(str, settings)]
        outcome = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if outcome.returncode != 0:
            raise SystemExit(f"error: the load for {file.name} ended with {outcome.returncode} (its message is above)")
        return json.loads(outcome.stdout)


def request(case: Case, changing: dict[str, str]) -> bytes:
    headers = {"host": HOST} | case.headers | changing
    lines = [f"{case.method} {case.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def write(file: Path, requests: Iterable[bytes]) -> None:
    with file.open("wb") as out:
        out.writelines(requests)
