"""The CPU time of a request at several request rates: each request wakes a worker that is not busy."""

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harness import credence
from harness.case import Case
from harness.envoy import Envoy
from harness.load import CONNECTIONS
from harness.measure import interleaved, median_of
from harness.paced import Paced, paced_sample

from .sweep import LONG_SECONDS, Setting, Sweep

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
            f"{case.name}_{rate or 'saturated'}": partial(take_one, paced, envoy, case, rate)
            for case in cases
            for rate in (*RATES, SATURATED)
        }
        samples = interleaved(take, range(setting.long_rounds))
    return Sweep(
        # The whole cost, not the added one, since the page shows the cost of a request.
        figures={f"{name}_whole_us": round(median_of(of_one, "cpu_us"), 2) for name, of_one in samples.items()}
        | {
            f"{case.name}_saturated_rps": round(median_of(samples[f"{case.name}_saturated"], "rps"))
            for case in cases
        },
        ratios={},
        samples={name: [asdict(sample) for sample in of_one] for name, of_one in samples.items()},
    )


def take_one(paced: Paced, envoy: Envoy, case: Case, rate: int) -> object:
    file = paced.requests(case, (rate or case.most_per_second) * LONG_SECONDS)
    connections = PACED_CONNECTIONS if rate else CONNECTIONS
    return paced_sample(paced, [envoy], case, file, rate=rate, seconds=LONG_SECONDS, connections=connections)
