"""The tables and pictures of docs/performance.md, from the results."""

from . import picture

Results = dict[str, dict]

# The case, its name, its work, and what it lacks.
PEERS = {
    "bare": ("no filter", "Envoy answers by itself"),
    "carried": ("no filter, request of *hot*", "the same; Envoy reads a request with a delegation of 700 bytes"),
    "noop": ("Wasm filter that does nothing", "calls into the VM; decides nothing"),
    "jwt_cached": (
        "jwt_authn, cached",
        "a JWT that is known: issuer, audience, expiry. No tool, arguments, revocation, record",
    ),
    "jwt_cold": ("jwt_authn", "the same, and one Ed25519 signature"),
    "hot": (
        "**Credence, hot (L1)**",
        "another request each time, with a delegation in this worker's cache: rule, tool, arguments, expiry, revocation, "
        "identity headers, evidence",
    ),
    "repeat": (
        "**Credence, repeat**",
        "the same request again, byte for byte: the decision cache answers before the rules are searched",
    ),
    "shared": ("**Credence, shared (L2)**", "the same, which another worker has verified: parsed again"),
    "cold": (
        "**Credence, cold**",
        "a new token under a known parent: one Ed25519 signature, and all of the above",
    ),
    "proof": (
        "**Credence, with proof**",
        "a cached delegation and a new proof: one Ed25519 signature, used once, and all of the above",
    ),
    "shadow": ("**Credence, shadow**", "as hot, but the request passes unchanged"),
    "mixed": ("**Credence, mixed**", "of ten requests nine hot, one cold"),
    "ext_authz": ("ext_authz, allowed at once", "one gRPC call to a process beside Envoy, which decides nothing"),
    "ext_authz_opa_cached": (
        "ext_authz, OPA, cached",
        "the same; OPA's engine looks at route, scope, and a JWT that is known",
    ),
    "ext_authz_opa": (
        "ext_authz, OPA",
        "the same, and one Ed25519 signature. No hand-overs, arguments, revocation, record",
    ),
}

# The cases of tables that follow from the first one, or add little to it.
SOME = ("bare", "jwt_cold", "hot", "cold", "proof", "mixed", "ext_authz_opa")
REQUESTS_PER_SECOND = 100_000
# The rate of a busy worker that could take more.
PLANNED_RATE = 10_000
RATES = ("1000", "3000", "10000", "20000", "saturated")
RATE_CASES = {"bare": "no filter", "hot": "hot", "mixed": "mixed"}
RULES = (1, 10, 100, 1000, 10_000)
DEPTHS = (1, 2, 4, 8)
TOKENS = (1, 100, 10_000, 100_000, 1_000_000)
REVOCATIONS = (0, 1000, 100_000, 1_000_000)


# === Tables ===


def runs(results: Results) -> str:
    rows = [
        [
            f"`make bench BENCH={name}`",
            document["date"],
            f"`{document['commit']}`",
            f"[{name}.json](../loadtest/results/{name}.json)",
        ]
        for name, document in results.items()
    ]
    facts = results["peers"]["facts"]
    # Their versions also name the build.
    envoy, wrk = facts["envoy"].split("/")[1], facts["wrk"].split("-")[0].removeprefix("debian/")
    beneath = f"{facts['machine']}. Envoy {envoy}, wrk {wrk}, OPA {facts['opa']}."
    return table(["benchmark", "date", "commit", "result"], rows) + "\n\n" + beneath


def cost_of_peers(results: Results) -> str:
    figures, ratios = results["peers"]["figures"], results["peers"]["ratios"]
    rows = []
    for name, (called, does) in PEERS.items():
        is_bare = name == "bare"
        rows.append(
            [
                called,
                does,
                f"{figures[f'{name}_us']:.1f}" + (" (whole)" if is_bare else ""),
                f"{figures[f'{name}_everything_us']:.1f}",
                "1" if is_bare else f"{ratios[f'{name}_everything_by_bare']:.2f}",
                f"{figures[f'{name}_rps']:,}",
            ]
        )
    return table(
        [
            "case",
            "what it does",
            "adds to Envoy's CPU, µs",
            "adds to everything's CPU, µs",
            "everything, × no filter",
            "requests/s",
        ],
        rows,
    )


def latency_of_peers(results: Results) -> str:
    figures = results["peers"]["figures"]
    rows = [
        [
            called,
            *(f"{figures[f'{name}_{percentile}_ms']:.2f}" for percentile in ("p50", "p99", "p99_9")),
            at_rate(name, figures),
            memory(name, figures),
        ]
        for name, (called, _) in PEERS.items()
        if name in SOME
    ]
    return table(["case", "p50, ms", "p99, ms", "p99.9, ms", "adds to Envoy's CPU, µs [95 % interval]", "memory, MiB"], rows)


def at_rate(name: str, figures: dict) -> str:
    if name == "bare":
        return f"{figures['bare_rate_us']:.1f} (whole)"
    low, high = (figures[f"{name}_rate_added_{end}_us"] for end in ("low", "high"))
    return f"{figures[f'{name}_rate_added_us']:.1f} [{low:.1f} to {high:.1f}]"


def memory(name: str, figures: dict) -> str:
    mib = figures[f"{name}_memory_mib"]
    return f"{mib:.0f} (whole)" if name == "bare" else f"{max(mib, 0):+.0f}".replace("+0", "0")


def two_workers(results: Results) -> str:
    figures = results["scaling"]["figures"]
    called = {
        "alone": "one worker, the other core idle but for the load",
        "pair": "two processes of one worker each",
        "two": "one process of two workers",
    }
    rows = [
        [
            what,
            *(f"{figures[f'workers_{name}_{part}']:.2f}" for part in ("bare_us", "noop_us", "calls_us", "hot_us")),
            f"{figures[f'workers_{name}_hot_rps']:,.0f}",
        ]
        for name, what in called.items()
    ]
    heads = ["", "no filter, µs", "a filter that does nothing adds", "host calls alone add", "hot adds", "hot, requests/s"]
    return table(heads, rows)


def rates(results: Results) -> str:
    figures = results["scaling"]["figures"]
    rows = [
        [called, *(f"{figures[f'rates_{name}_{rate}_whole_us']:.1f}" for rate in RATES)]
        for name, called in RATE_CASES.items()
    ]
    return table(["CPU of a request, µs, at", *(f"{int(rate):,}/s" for rate in RATES[:-1]), "as many as it can"], rows)


def capacity(results: Results) -> str:
    figures = results["peers"]["figures"]
    rows = []
    for name, (called, _) in PEERS.items():
        if name not in SOME:
            continue
        envoy, everything = whole(figures, name, "us"), whole(figures, name, "everything_us")
        rows.append([called, f"{envoy:.1f}", f"{cores(envoy):.1f}", f"{everything:.1f}", f"{cores(everything):.1f}"])
    heads = ["case", "Envoy, µs a request", "cores for 100,000/s", "everything, µs a request", "cores for 100,000/s"]
    return table(heads, rows)


def checks(results: Results) -> str:
    """The model's predictions beside other measurements."""
    peers, scaling = results["peers"]["figures"], results["scaling"]["figures"]
    hot, cold = whole(peers, "hot", "us"), whole(peers, "cold", "us")
    new = results["peers"]["method"]["new_of_ten"] / 10
    two = scaling["workers_two_bare_us"] + scaling["workers_two_hot_us"]
    alone = scaling["workers_alone_bare_us"] + scaling["workers_alone_hot_us"]
    rates_hot, saturated = scaling["rates_hot_10000_whole_us"], scaling["rates_hot_saturated_whole_us"]
    rows = [
        check(
            "the mixed case, from its parts (peers)",
            (1 - new) * hot + new * cold,
            whole(peers, "mixed", "us"),
            "µs",
        ),
        check("requests/s of one worker, hot (peers)", 1e6 / hot, peers["hot_rps"], "/s"),
        check("CPU of a request with two busy workers (scaling)", alone, two, "µs"),
        check(
            f"cores that {PLANNED_RATE:,} requests/s take, hot (scaling)",
            PLANNED_RATE * saturated / 1e6,
            PLANNED_RATE * rates_hot / 1e6,
            "",
        ),
    ]
    return table(["what", "predicted", "measured", "measured / predicted"], rows)


def check(what: str, predicted: float, measured: float, unit: str) -> list[str]:
    shown = (f"{value:,.0f}{unit}" if value > 1000 else f"{value:.2f} {unit}".strip() for value in (predicted, measured))
    return [what, *shown, f"{measured / predicted:.2f}"]


def planned(results: Results) -> str:
    """The cores for 100,000 requests/s with workers that could take more, from the measured point instead of the
    model."""
    figures = results["scaling"]["figures"]
    workers = REQUESTS_PER_SECOND / PLANNED_RATE
    rows = []
    for name, called in RATE_CASES.items():
        us = figures[f"rates_{name}_{PLANNED_RATE}_whole_us"]
        rows.append([called, f"{us:.1f}", f"{PLANNED_RATE * us / 1e4:.0f} %", f"{workers:.0f}", f"{cores(us):.1f}"])
    return table(["", f"CPU of a request at {PLANNED_RATE:,}/s, µs", "a worker is busy", "workers", "cores used"], rows)


def whole(figures: dict, name: str, kind: str) -> float:
    """The filter's cost together with Envoy's own."""
    return figures[f"bare_{kind}"] + (0 if name == "bare" else figures[f"{name}_{kind}"])


def cores(microseconds: float) -> float:
    return REQUESTS_PER_SECOND * microseconds / 1e6


def table(heads: list[str], rows: list[list[str]]) -> str:
    # The first column has names. The second has names too, if it has sentences.
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


TABLES = {
    "runs": runs,
    "cost of peers": cost_of_peers,
    "latency of peers": latency_of_peers,
    "two workers": two_workers,
    "rates": rates,
    "capacity": capacity,
    "checks": checks,
    "planned": planned,
}

# === Pictures ===


def pictures(results: Results) -> dict[str, str]:
    """By file name."""
    peers, scaling = results["peers"]["figures"], results["scaling"]["figures"]
    names = {name: called.strip("*") for name, (called, _) in PEERS.items()}
    costs = [
        (called, [whole(peers, name, "us"), max(whole(peers, name, "everything_us") - whole(peers, name, "us"), 0)])
        for name, called in names.items()
    ]
    percentiles = ["p50", "p99", "p99.9"]
    latencies = [
        (called, [peers[f"{name}_{percentile.replace('.', '_')}_ms"] for percentile in percentiles])
        for name, called in names.items()
    ]
    rate = results["peers"]["method"]["rate"]

    def swept(prefix: str, points: tuple[int, ...]) -> list[float]:
        return [scaling[f"{prefix}_{point}_us"] for point in points]

    def short(points: tuple[int, ...]) -> list[str]:
        return [f"{point:,}" for point in points]

    return {
        "peers.svg": picture.bars("CPU of a request, µs", ["Envoy", "control plane or authorizer"], costs),
        "latency.svg": picture.dots(f"Latency at {rate:,} requests/s", percentiles, latencies),
        "rates.svg": picture.lines(
            "CPU of a request in Envoy, µs",
            "requests a second",
            [f"{int(rate):,}" for rate in RATES[:-1]] + ["all it can"],
            {called: [scaling[f"rates_{name}_{rate}_whole_us"] for rate in RATES] for name, called in RATE_CASES.items()},
        ),
        "rules.svg": picture.lines(
            "What the filter adds, hot, µs", "rules", short(RULES), {"hot": swept("rules_rules", RULES)}
        ),
        "depth.svg": picture.lines(
            "What the filter adds, µs",
            "tokens in the chain",
            short(DEPTHS),
            {"known": swept("depth_known", DEPTHS), "verified with each request": swept("depth_verified", DEPTHS)},
        ),
        "tokens.svg": picture.lines(
            "What the filter adds, µs",
            "tokens in use, of which a worker remembers 100,000",
            short(TOKENS),
            {"any of them": swept("tokens_tokens", TOKENS)},
        ),
        "revocations.svg": picture.lines(
            "What the filter adds, µs",
            "principals in the revocation log",
            short(REVOCATIONS),
            {
                "known": swept("revocations_known", REVOCATIONS),
                "verified with each request": swept("revocations_verified", REVOCATIONS),
            },
        ),
    }
