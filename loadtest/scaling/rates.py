"""The CPU time of a request by how many come in a second: a worker that is not busy is woken for each."""

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harness import credence
from harness.case import Case
from harness.envoy import Envoy
from harness.measure import CONNECTIONS, calmest, interleaved, median_of, quartile_of
from harness.paced import Paced, paced_sample

from .sweep import Setting, Sweep

RATES = (1000, 3000, 10_000, 20_000)
# As fast as it is answered.
SATURATED = 0
PACED_CONNECTIONS = 64
CASES = ("hot", "mixed")


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        plane = stack.enter_context(credence.ControlPlane(setting.tool, scratch))
        cases = [Case("bare", filters=[]), *credence.cases(setting.tool, plane, setting.module, scratch, CASES)]
        envoy = stack.enter_context(Envoy(setting.envoy, cases, scratch))
        for case in cases:
            envoy.check(case)
        paced = Paced(setting.paced, scratch)
        take = {
            f"{case.name}_{rate or 'saturated'}": partial(take_one, setting, paced, envoy, case, rate)
            for case in cases
            for rate in (*RATES, SATURATED)
        }
        samples = interleaved(take, setting.rounds)
    return Sweep(
        # Whole, not what is added: what a request costs is to be seen.
        figures={f"{name}_whole_us": round(quartile_of(calmest(of_one), "cpu_us"), 2) for name, of_one in samples.items()}
        | {
            f"{case.name}_saturated_rps": round(median_of(calmest(samples[f"{case.name}_saturated"]), "rps"))
            for case in cases
        },
        ratios={},
        samples={name: [asdict(sample) for sample in of_one] for name, of_one in samples.items()},
    )


def take_one(setting: Setting, paced: Paced, envoy: Envoy, case: Case, rate: int) -> object:
    file = paced.requests(case, (rate or case.most_per_second) * setting.seconds)
    connections = PACED_CONNECTIONS if rate else CONNECTIONS
    return paced_sample(paced, [envoy], case, file, rate=rate, seconds=setting.seconds, connections=connections)
