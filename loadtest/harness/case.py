"""A case to measure: a listener with its filters, and the request to it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    name: str
    # Envoy's HTTP filters before the router, in its configuration's form.
    filters: list[dict]
    method: str = "GET"
    path: str = "/"
    # The same in every request; not with `make`.
    body: str = ""
    # The headers of every request.
    headers: dict[str, str] = field(default_factory=dict)
    # The headers that differ from request to request, `:path` among them, and the function that makes this many values
    # of each.
    changing: tuple[str, ...] = ()
    make: Callable[[int], list[tuple[str, ...]]] | None = None
    # This many different requests are sent in turn, again and again. If not set, none is sent twice.
    distinct: int | None = None
    # How long these values are valid, if not during the whole measurement.
    good_for_seconds: float = math.inf
    # The most of these that a core can answer per second: few if each costs a signature.
    most_per_second: int = 20_000
    # The status without those headers: shows that the filter decides the request.
    status_without_headers: int = 200
    # Clusters that the filters call.
    clusters: list[dict] = field(default_factory=list)
    # Another case whose listener this one's requests go to. This one then has no filters of its own.
    at: str | None = None
    # The listener's limits for a request, if higher than Envoy's defaults: headers in KiB, number of headers, bytes of
    # a body.
    headers_kib: int = 60
    headers_count: int = 100
    body_bytes: int = 1 << 20
