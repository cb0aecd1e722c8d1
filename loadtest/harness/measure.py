"""CPU time per request, case by case, in interleaved rounds."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

from . import calm
from .case import Case
from .envoy import Envoy

LOAD_CORE = "1"
CONNECTIONS = 32
WARM_UP_SECONDS = 1
REQUESTS_SCRIPT = Path(__file__).parent / "requests.lua"

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Sample:
    """What one case did in one round."""

    # CPU time of the Envoy process per request, and of it with those beside it that work for it.
    cpu_us: float
    everything_us: float
    rps: float
    # How slow the machine was: the slower of two fixed computations before and after.
    probe_ms: float = 0.0


@dataclass(frozen=True)
class Figure:
    """What one case did over all rounds."""

    # Median, least and most CPU time of the Envoy process per request.
    cpu_us: float
    least_us: float
    most_us: float
    # Median over the rounds of (this case - the base) of the same round: what drifts over the run cancels out.
    added_us: float
    # As cpu_us and added_us, with the processes beside Envoy.
    everything_us: float
    everything_added_us: float
    # Median requests per second on one core.
    rps: float


def measure(envoy: Envoy, cases: list[Case], rounds: int, seconds: int) -> dict[str, Figure]:
    """The first case is the base that the others are compared with."""
    return figures(measure_samples(envoy, cases, rounds, seconds))


def measure_samples(
    envoy: Envoy, cases: list[Case], rounds: int, seconds: int, beside: Sequence[int] = ()
) -> dict[str, list[Sample]]:
    """What each case did in each round, the CPU time of the processes `beside` Envoy included."""
    for case in cases:
        sample(envoy, case, WARM_UP_SECONDS)
    take = {case.name: partial(sample, envoy, case, seconds, beside) for case in cases}
    return interleaved(take, rounds)


def interleaved(take: dict[str, Callable[[], Taken]], rounds: int) -> dict[str, list[Taken]]:
    """Everything is taken once in each round."""
    taken: dict[str, list[Taken]] = {name: [] for name in take}
    names = list(take)
    for round_number in range(rounds):
        print(f"==> Round {round_number + 1} of {rounds}", file=sys.stderr, flush=True)
        # Each round starts with another case, so that none always follows the same neighbour's warm caches.
        first = round_number % len(names)
        for name in names[first:] + names[:first]:
            before = calm.wait()
            sample = take[name]()
            taken[name].append(replace(sample, probe_ms=round(max(before, calm.probe()), 3)))
    return taken


def sample(envoy: Envoy, case: Case, seconds: int, beside: Sequence[int] = ()) -> Sample:
    with tempfile.TemporaryDirectory(prefix="credence-bench-") as scratch:
        command = wrk(envoy, case, seconds, Path(scratch))
        before = [cpu_seconds(pid) for pid in (envoy.pid, *beside)]
        requests, rps = run(case, command)
        used = [cpu_seconds(pid) - then for pid, then in zip((envoy.pid, *beside), before, strict=True)]
        return Sample(cpu_us=used[0] / requests * 1e6, everything_us=sum(used) / requests * 1e6, rps=rps)


def figures(samples: dict[str, list[Sample]]) -> dict[str, Figure]:
    """The first case is the base that the others are compared with."""
    base = next(iter(samples.values()))
    return {name: figure(of_case, base) for name, of_case in samples.items()}


def calm_figures(samples: dict[str, list[Sample]]) -> dict[str, Figure]:
    """The same of the samples that were taken while the machine was calmest."""
    calm_samples = {name: calmest(of_case) for name, of_case in samples.items()}
    base = next(iter(calm_samples.values()))
    base_us, base_everything_us = quartile_of(base, "cpu_us"), quartile_of(base, "everything_us")
    report = {}
    for name, of_case in calm_samples.items():
        cpu_us, everything_us = quartile_of(of_case, "cpu_us"), quartile_of(of_case, "everything_us")
        report[name] = Figure(
            cpu_us=cpu_us,
            least_us=min(sample.cpu_us for sample in of_case),
            most_us=max(sample.cpu_us for sample in of_case),
            added_us=cpu_us - base_us,
            everything_us=everything_us,
            everything_added_us=everything_us - base_everything_us,
            rps=median_of(of_case, "rps"),
        )
    return report


def calmest(samples: list[Taken]) -> list[Taken]:
    """Half of them, by what the machine was like and not by what was measured."""
    return sorted(samples, key=lambda sample: sample.probe_ms)[: max(3, len(samples) // 2)]


def median_of(samples: list[Taken], member: str) -> float:
    return median(getattr(sample, member) for sample in samples)


def quartile_of(samples: list[Taken], member: str) -> float:
    """The lower one: whatever else the machine did meanwhile has only added to a time."""
    values = [getattr(sample, member) for sample in samples]
    return quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]


def figure(samples: list[Sample], base: list[Sample]) -> Figure:
    times = [sample.cpu_us for sample in samples]
    return Figure(
        cpu_us=median(times),
        least_us=min(times),
        most_us=max(times),
        added_us=median(own.cpu_us - other.cpu_us for own, other in zip(samples, base, strict=True)),
        everything_us=median(sample.everything_us for sample in samples),
        everything_added_us=median(
            own.everything_us - other.everything_us for own, other in zip(samples, base, strict=True)
        ),
        rps=median(sample.rps for sample in samples),
    )


def wrk(envoy: Envoy, case: Case, seconds: int, scratch: Path) -> list[str]:
    """The command that loads the case. What its requests do not share is made before anything is measured."""
    headers = [part for name, value in case.headers.items() for part in ("-H", f"{name}: {value}")]
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *headers]
    if case.make is None:
        return [*command, envoy.url(case)]
    requests = scratch / "requests"
    lines = ("\t".join(values) + "\n" for values in case.make(case.most_per_second * seconds))
    requests.write_text("".join(lines), encoding="ascii")
    return [*command, "-s", str(REQUESTS_SCRIPT), envoy.url(case), "--", str(requests), *case.changing]


def run(case: Case, command: list[str]) -> tuple[int, float]:
    """Requests answered, and requests per second. Anything but a 2xx ends the run: its cost is not the case's."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if any(sign in output for sign in ("Non-2xx or 3xx responses", "Socket errors", "no requests are left")):
        raise SystemExit(f"error: case {case.name} did not answer every request with success:\n{output}")
    requests = int(found(r"(\d+) requests in", output))
    if requests == 0:
        raise SystemExit(f"error: case {case.name} answered no request:\n{output}")
    return requests, float(found(r"Requests/sec:\s+([\d.]+)", output))


def found(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    if match is None:
        raise SystemExit(f"error: wrk's output lacks {pattern!r}:\n{output}")
    return match[1]


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond; /proc/PID/stat counts in ticks of 10 ms."""
    tasks = f"/proc/{pid}/task"
    nanoseconds = 0
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/schedstat", encoding="ascii") as schedstat:
            nanoseconds += int(schedstat.read().split()[0])
    return nanoseconds / 1e9


def print_table(figures: dict[str, Figure]) -> None:
    print(f"{'case':<12}{'CPU µs/request':>16}{'least':>9}{'most':>9}{'adds µs':>10}{'requests/s':>12}")
    for name, figure in figures.items():
        print(
            f"{name:<12}{figure.cpu_us:>16.2f}{figure.least_us:>9.2f}{figure.most_us:>9.2f}"
            f"{figure.added_us:>10.2f}{figure.rps:>12.0f}"
        )
