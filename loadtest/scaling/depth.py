"""Chains of 1 to 8 tokens: cached, and verified with each request with known keys."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from harness import credence
from harness.case import Case

from .sweep import Setting, Sweep, added

TOKENS = (1, 2, 4, 8)


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        plane = stack.enter_context(credence.ControlPlane(setting.tool, scratch))
        issuer_key = scratch / "issuer.jwk"
        issuer = setting.tool.keygen(issuer_key)
        chains = chains_of(setting.tool, issuer_key, scratch)

        def cases(name: str, limits: dict) -> list[Case]:
            # All requests go to the first one's listener; only the requests differ.
            first = credence.case_of(f"{name}_{TOKENS[0]}", issuer, plane, setting.module, limits, chains[TOKENS[0]])
            others = [
                Case(
                    f"{name}_{tokens}",
                    [],
                    path=first.path,
                    headers={"delegation": chains[tokens]},
                    status_without_headers=401,
                    at=first.name,
                )
                for tokens in TOKENS[1:]
            ]
            return [first, *others]

        all_cases = [
            Case("bare", filters=[]),
            *cases("known", {}),
            *cases("verified", {"cache_entries": 0, "shared_cache_entries": 0}),
        ]
        return added(setting, all_cases, scratch)


def chains_of(tool: credence.Tool, issuer_key: Path, scratch: Path) -> dict[int, str]:
    """Chains by their number of tokens; each is a prefix of the next."""
    holders = [scratch / f"holder-{number}.jwk" for number in range(max(TOKENS))]
    for holder in holders:
        tool.keygen(holder)
    deepest = max(TOKENS) - 1
    chains = {1: tool.mint(issuer_key, holders[0], depth=deepest)}
    for tokens, (parent, holder) in enumerate(pairwise(holders), start=2):
        [chains[tokens]] = tool.derive(chains[tokens - 1], parent, holder, count=1, depth=deepest)
    return chains
