"""1 to 1,000,000 tokens in use at the same time, each equally often, in random order.

A worker caches up to 100,000 of them here; beyond that, tokens are verified again. Memory is the growth of Envoy's process
once it has seen all tokens that it can cache.
"""

import subprocess
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path

from harness import credence, paced
from harness.case import Case
from harness.envoy import Envoy
from harness.load import LOAD_CORE
from harness.measure import added, interleaved, median_of
from harness.process import resident_mib

from .sweep import CONNECTIONS, LONG_SECONDS, Setting, Sweep

COUNTS = (1, 100, 10_000, 100_000, 1_000_000)
REMEMBERED = 100_000
LIMITS = {"cache_entries": REMEMBERED, "cache_bytes": 208 << 20}


def run(setting: Setting, scratch: Path) -> Sweep:
    with ExitStack() as stack:
        plane = stack.enter_context(credence.ControlPlane(setting.tool, scratch))
        issuer_key, agent_key = scratch / "issuer.jwk", scratch / "agent.jwk"
        issuer = setting.tool.keygen(issuer_key)
        setting.tool.keygen(agent_key)
        one = setting.tool.mint(issuer_key, agent_key)
        bare = Case("bare", filters=[])
        cases = {count: credence.case_of(f"tokens_{count}", issuer, plane, setting.module, LIMITS, one) for count in COUNTS}
        files = request_files(setting, issuer_key, agent_key, cases[COUNTS[0]], scratch)
        envoy = stack.enter_context(Envoy(setting.envoy, [bare, *cases.values()], scratch))
        for case in (bare, *cases.values()):
            envoy.check(case)

        load = paced.Paced(setting.paced, scratch)
        growth = {}
        for count, case in cases.items():
            before = resident_mib(envoy.pid)
            # Of a million: as many as the cache holds, and some that replace others.
            warm_up = files[min(count, REMEMBERED)]
            load.run(warm_up, [envoy.port(case)], seconds=60, order="once", connections=CONNECTIONS)
            growth[f"tokens_{count}_growth_mib"] = round(resident_mib(envoy.pid) - before, 1)

        settings = {"seconds": LONG_SECONDS, "order": "random", "connections": CONNECTIONS}
        take = {"bare": partial(paced.paced_sample, load, [envoy], bare, load.requests(bare, 1), **settings)}
        for count, case in cases.items():
            take[case.name] = partial(paced.paced_sample, load, [envoy], case, files[count], **settings)
        samples = interleaved(take, range(setting.long_rounds))

    base = samples["bare"]
    bare_us = median_of(base, "cpu_us")
    added_us = {case.name: added(samples[case.name], base, "cpu_us") for case in cases.values()}
    return Sweep(
        figures={"bare_us": round(bare_us, 2)}
        | {f"{name}_us": round(value, 2) for name, value in added_us.items()}
        | growth,
        ratios={f"{name}_by_bare": round(1 + value / bare_us, 3) for name, value in added_us.items()},
        samples={name: [asdict(sample) for sample in of_one] for name, of_one in samples.items()},
    )


def request_files(setting: Setting, issuer_key: Path, agent_key: Path, case: Case, scratch: Path) -> dict[int, Path]:
    """By the number of different tokens. Each file begins with the tokens of the previous one."""
    print("==> Minting a million tokens", flush=True)
    command = ["taskset", "-c", LOAD_CORE, setting.mint, issuer_key, agent_key, str(max(COUNTS))]
    files = {count: scratch / f"requests-{count}" for count in COUNTS}
    # The placeholder in a request is replaced by the token.
    before, after = paced.request(case, {"delegation": "TOKEN"}).split(b"TOKEN")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as minting, ExitStack() as stack:
        written = 0
        opened = {count: stack.enter_context(file.open("wb")) for count, file in files.items()}
        while lines := list(islice(minting.stdout, 10_000)):
            for count, file in opened.items():
                file.writelines(before + line.rstrip() + after for line in lines[: max(0, count - written)])
            written += len(lines)
    if written != max(COUNTS):
        raise SystemExit(f"error: {setting.mint} minted {written} tokens only (its message is above)")
    return files
