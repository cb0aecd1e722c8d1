"""One thing to measure: a listener with its filters, and the request that is sent to it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    name: str
    # Envoy's HTTP filters before the router, as its configuration spells them.
    filters: list[dict]
    method: str = "GET"
    path: str = "/"
    # What every request carries.
    headers: dict[str, str] = field(default_factory=dict)
    # What no two requests share: makes so many times the values of these headers, `:path` among them.
    changing: tuple[str, ...] = ()
    make: Callable[[int], list[tuple[str, ...]]] | None = None
    # So many different requests are sent in turn, again and again; without, none is sent twice.
    distinct: int | None = None
    # How long those are good for, if not for as long as anybody measures.
    good_for_seconds: float = math.inf
    # Of those, more than one core answers: where each costs a signature, that is not much.
    most_per_second: int = 20_000
    # The answer to the same request without those headers: shows that the filter is really in the way.
    status_without_headers: int = 200
    # Clusters that the filters call.
    clusters: list[dict] = field(default_factory=list)
    # Another case whose listener this one's requests go to, instead of one with its own filters.
    at: str | None = None
    # How much its listener lets a request carry, beyond Envoy's defaults: KiB of headers and their number, bytes of a body.
    headers_kib: int = 60
    headers_count: int = 100
    body_bytes: int = 1 << 20
