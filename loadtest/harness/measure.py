"""CPU time per request, case by case, in interleaved rounds.

A shared machine can be slower by half for seconds or minutes, and not by the same factor for all work. So turns are short
and many: within a round, all cases meet nearly the same machine. The figures are medians over the rounds, of a case's cost
and of its difference to the base in the same round.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TypeVar

from .case import Case
from .envoy import Envoy
from .load import Load, Sample

# The load restarts after this many rounds: requests that are sent once must be in memory until then.
ROUNDS_OF_A_START = 20

Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Figure:
    """The result of one case over all rounds."""

    # Median, least and most CPU time of the Envoy process per request.
    cpu_us: float
    least_us: float
    most_us: float
    # The median over the rounds of (this case - the base) in the same round, so that drift over the run cancels out.
    added_us: float
    # Like cpu_us and added_us, with the processes beside Envoy.
    everything_us: float
    everything_added_us: float
    # Median requests per second on one core.
    rps: float


def measure(envoy: Envoy, cases: list[Case], rounds: int, seconds: float) -> dict[str, Figure]:
    """The first case is the base of comparison for the others."""
    return figures(measure_samples(envoy, cases, rounds, seconds))


def measure_samples(
    envoy: Envoy, cases: list[Case], rounds: int, seconds: float, beside: Sequence[int] = ()
) -> dict[str, list[Sample]]:
    """Each case's result in each round, including the CPU time of the processes `beside` Envoy."""
    samples: dict[str, list[Sample]] = {case.name: [] for case in cases}
    for first in range(0, rounds, ROUNDS_OF_A_START):
        numbers = range(first, min(first + ROUNDS_OF_A_START, rounds))
        with ExitStack() as stack:
            take = {}
            for case in cases:
                load = stack.enter_context(Load(envoy, case, len(numbers), seconds, beside))
                take[case.name] = load.turn
            for name, taken in interleaved(take, numbers).items():
                samples[name] += taken
    return samples


def interleaved(take: dict[str, Callable[[], Taken]], rounds: range) -> dict[str, list[Taken]]:
    """Takes each sample once in each round."""
    taken: dict[str, list[Taken]] = {name: [] for name in take}
    names = list(take)
    for number in rounds:
        print(f"==> Round {number + 1}", file=sys.stderr, flush=True)
        # Each round starts with another case, so that no case always follows the same one's warm caches.
        first = number % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(take[name]())
    return taken


def figures(samples: dict[str, list[Sample]]) -> dict[str, Figure]:
    """The first case is the base of comparison for the others."""
    base = next(iter(samples.values()))
    return {
        name: Figure(
            cpu_us=median_of(of_case, "cpu_us"),
            least_us=min(sample.cpu_us for sample in of_case),
            most_us=max(sample.cpu_us for sample in of_case),
            added_us=added(of_case, base, "cpu_us"),
            everything_us=median_of(of_case, "everything_us"),
            everything_added_us=added(of_case, base, "everything_us"),
            rps=median_of(of_case, "rps"),
        )
        for name, of_case in samples.items()
    }


def median_of(samples: list[Taken], member: str) -> float:
    return median(getattr(sample, member) for sample in samples)


def added(samples: list[Taken], base: list[Taken], member: str) -> float:
    """The median difference to the sample of the same round."""
    return median(differences(samples, base, member))


def differences(samples: list[Taken], base: list[Taken], member: str) -> list[float]:
    """The difference to the sample of the same round, round by round."""
    return [getattr(own, member) - getattr(other, member) for own, other in zip(samples, base, strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """An interval that contains the median with at least 95 % confidence, for any distribution: the binomial interval
    of order statistics. For fewer than six values it is the least and the most, which is less certain."""
    values, number = sorted(values), len(values)

    def chance_outside(rank: int) -> float:
        return 2 * sum(comb(number, below) for below in range(rank)) / 2**number

    rank = max((rank for rank in range(1, number // 2 + 1) if chance_outside(rank) <= 0.05), default=1)
    return values[rank - 1], values[-rank]


def print_table(figures: dict[str, Figure]) -> None:
    print(f"{'case':<20}{'CPU µs/request':>16}{'least':>9}{'most':>9}{'adds µs':>10}{'requests/s':>12}")
    for name, figure in figures.items():
        print(
            f"{name:<20}{figure.cpu_us:>16.2f}{figure.least_us:>9.2f}{figure.most_us:>9.2f}"
            f"{figure.added_us:>10.2f}{figure.rps:>12.0f}"
        )
