"""The common parts of the sweeps."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.case import Case
from harness.credence import Tool
from harness.envoy import Envoy
from harness.measure import figures, measure_samples

# For load as fast as it is answered; for each worker.
CONNECTIONS = 16
# Of a turn with many different requests, or with few a second.
LONG_SECONDS = 1


@dataclass(frozen=True)
class Setting:
    envoy: str
    tool: Tool
    module: Path
    noop: Path
    calls: Path
    mint: Path
    paced: Path
    logs: Path
    rounds: int
    seconds: float

    @property
    def long_rounds(self) -> int:
        """For sweeps with turns of `LONG_SECONDS`."""
        return max(1, self.rounds // 4)


@dataclass(frozen=True)
class Sweep:
    """By point: figures, of which `*_us` is what the filter adds in microseconds; ratios; and the raw samples."""

    figures: dict[str, float]
    ratios: dict[str, float]
    samples: dict[str, object]


def added(setting: Setting, cases: list[Case], scratch: Path) -> Sweep:
    """What each case adds to the first, bare one; and the ratio of its whole cost to bare Envoy's."""
    with Envoy(setting.envoy, cases, scratch) as envoy:
        for case in cases:
            envoy.check(case)
        return of_samples(measure_samples(envoy, cases, setting.rounds, setting.seconds))


def of_samples(samples: dict) -> Sweep:
    base, *others = figures(samples).items()
    bare = base[1].cpu_us
    return Sweep(
        figures={"bare_us": round(bare, 2)} | {f"{name}_us": round(figure.added_us, 2) for name, figure in others},
        ratios={f"{name}_by_bare": round(1 + figure.added_us / bare, 3) for name, figure in others},
        samples={name: [asdict(sample) for sample in of_case] for name, of_case in samples.items()},
    )


def growth_mib(setting: Setting, cases: list[Case], scratch: Path) -> dict[str, float]:
    """The memory of an Envoy with only this case, beyond one with the first case."""
    memory = {}
    for case in cases:
        with Envoy(setting.envoy, [case], Path(tempfile.mkdtemp(dir=scratch))) as envoy:
            envoy.check(case)
            memory[case.name] = envoy.settled_memory_mib()
    return {name: round(taken - memory[cases[0].name], 1) for name, taken in memory.items()}
