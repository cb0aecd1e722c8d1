"""One worker, and two.

This measures what two workers of one process cost each other (a shared lock, memory that both write to). They are compared
with two processes of one worker each, which share only the machine: on the same cores, under the same load from the same
program, which runs on the same two cores. A comparison with one worker beside an idle core would charge the filter for
what the cores share (caches, and on many virtual machines the arithmetic unit of one core). That is measured too.

  alone   one process with one worker on core 0, the only one under load
  pair    two such processes, on core 0 and on core 1, both under load
  two     one process with two workers, one on each core

In each, as fast as the requests are answered, so that both workers are always busy: bare; noop, an empty Wasm filter;
calls, which gets hot's request and only makes as many host calls, to show what Envoy's own Wasm host shares between
workers; and hot. This sweep has more rounds than the others, since it compares differences of differences.
"""

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harness import credence
from harness.case import Case
from harness.envoy import Envoy, wasm_filter
from harness.measure import added, interleaved, median_of
from harness.paced import Paced, paced_sample

from .sweep import CONNECTIONS, Setting, Sweep

CORES = "0,1"
ROUNDS_FACTOR = 3


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        plane = stack.enter_context(credence.ControlPlane(setting.tool, scratch, CORES))
        [hot] = credence.cases(setting.tool, plane, setting.module, scratch, ("hot",))
        calls = [wasm_filter("calls", setting.calls)]
        cases = [
            Case("bare", filters=[]),
            Case("noop", filters=[wasm_filter("noop", setting.noop)]),
            Case("calls", filters=calls, path=hot.path, headers=hot.headers),
            hot,
        ]
        started = {}
        for name, cores in (("first", "0"), ("second", "1"), ("both", CORES)):
            folder = scratch / name
            folder.mkdir()
            started[name] = stack.enter_context(Envoy(setting.envoy, cases, folder, cores))
            started[name].pin_workers()
            for case in cases:
                started[name].check(case)
        arrangements = {
            "alone": [started["first"]],
            "pair": [started["first"], started["second"]],
            "two": [started["both"]],
        }
        paced = Paced(setting.paced, scratch)
        take = {}
        for name, envoys in arrangements.items():
            workers = 1 if name == "alone" else 2
            for case in cases:
                load = {"seconds": setting.seconds, "connections": CONNECTIONS * workers, "cores": CORES}
                take[f"{name}_{case.name}"] = partial(paced_sample, paced, envoys, case, paced.requests(case, 1), **load)
        for warm_up in take.values():
            warm_up()
        samples = interleaved(take, range(setting.rounds * ROUNDS_FACTOR))
    return sweep(samples)


def sweep(samples: dict) -> Sweep:
    def more(case: str, base: str, name: str) -> float:
        return added(samples[f"{name}_{case}"], samples[f"{name}_{base}"], "cpu_us")

    report = {}
    for name in ("alone", "pair", "two"):
        report[f"{name}_bare_us"] = median_of(samples[f"{name}_bare"], "cpu_us")
        report[f"{name}_noop_us"] = more("noop", "bare", name)
        report[f"{name}_calls_us"] = more("calls", "bare", name)
        report[f"{name}_hot_us"] = more("hot", "bare", name)
        report[f"{name}_hot_rps"] = median_of(samples[f"{name}_hot"], "rps")
    whole = {name: median_of(samples[f"{name}_hot"], "cpu_us") for name in ("pair", "two")}
    ratios = {
        "two_by_pair": report["two_hot_us"] / report["pair_hot_us"],
        # The filter's own part of it, without the Wasm host's.
        "beyond_noop_two_by_pair": more("hot", "noop", "two") / more("hot", "noop", "pair"),
        "two_by_alone": report["two_hot_us"] / report["alone_hot_us"],
        # The part that the machine's cores share.
        "pair_by_alone": report["pair_hot_us"] / report["alone_hot_us"],
        # Of the whole cost.
        "bare_two_by_pair": report["two_bare_us"] / report["pair_bare_us"],
        "hot_two_by_pair": whole["two"] / whole["pair"],
    }
    return Sweep(
        figures={name: round(value, 2) for name, value in report.items()},
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
        samples={name: [asdict(sample) for sample in of_one] for name, of_one in samples.items()},
    )
