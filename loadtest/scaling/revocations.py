"""0 to 1,000,000 principals in the revocation log, with the request's principal among them.

known: a cached delegation; verified: one that is verified, and looked up, with each request. The stand-in for the control
plane keeps no evidence, so none is recorded.
"""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

from harness import credence
from harness.case import Case
from harness.load import LOAD_CORE

from .sweep import Setting, Sweep, added, growth_mib

COUNTS = (0, 1000, 100_000, 1_000_000)


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        logs = stack.enter_context(Logs(setting.logs))
        issuer_key, agent_key = scratch / "issuer.jwk", scratch / "agent.jwk"
        issuer = setting.tool.keygen(issuer_key)
        setting.tool.keygen(agent_key)

        def case(kind: str, count: int, limits: dict) -> Case:
            # In the stand-in's log, all principals are in epoch 1.
            principal = {"subject": "user-0", "epoch": 1} if count else {"subject": "user-0", "epoch": 0}
            delegation = setting.tool.mint(issuer_key, agent_key, **principal)
            log = credence.Followed(logs.log_id, logs.ports[count])
            return credence.case_of(f"{kind}_{count}", issuer, log, setting.module, limits, delegation, {"record": "none"})

        known = [case("known", count, {}) for count in COUNTS]
        verified = [case("verified", count, {"cache_entries": 0, "shared_cache_entries": 0}) for count in COUNTS]
        growth = growth_mib(setting, known, scratch)
        sweep = added(setting, [Case("bare", filters=[]), *known, *verified], scratch)
    return Sweep(
        figures=sweep.figures | {f"{name}_growth_mib": mib for name, mib in growth.items()},
        ratios=sweep.ratios,
        samples=sweep.samples,
    )


class Logs:
    """The logs, served from `with` to its end."""

    def __init__(self, program: Path):
        self._command = ["taskset", "-c", LOAD_CORE, program, *map(str, COUNTS)]

    def __enter__(self) -> "Logs":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        announced = json.loads(self._process.stdout.readline() or "{}")
        if not announced:
            raise SystemExit("error: the stand-in for the control plane did not start (its message is above)")
        self.log_id = announced["log_id"]
        self.ports = dict(zip(COUNTS, announced["ports"], strict=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
