"""1 to 10,000 rules: the request matches the last but one."""

from contextlib import ExitStack
from pathlib import Path

from harness import credence
from harness.case import Case

from .sweep import Setting, Sweep, added, growth_mib

COUNTS = (1, 10, 100, 1000, 10_000)


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        plane = stack.enter_context(credence.ControlPlane(setting.tool, scratch))
        cases = credence.cases_with_rules(setting.tool, plane, setting.module, scratch, COUNTS)
        growth = growth_mib(setting, cases, scratch)
        sweep = added(setting, [Case("bare", filters=[]), *cases], scratch)
    return Sweep(
        figures=sweep.figures | {f"{name}_growth_mib": mib for name, mib in growth.items()},
        ratios=sweep.ratios,
        samples=sweep.samples,
    )
