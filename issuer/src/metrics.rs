//! Metrics. No label holds a value that a client chose.

use credence_runtime::metrics::{Counters, Group};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) responses: Counters<2>,
    pub(crate) rate_limited: Counter,
    pub(crate) sign_ins: Counters<1>,
    pub(crate) grants: Counters<1>,
    pub(crate) tokens: Counters<1>,
    pub(crate) events_refused: Counter,
    pub(crate) events_waiting: Gauge,
    pub(crate) revocations_waiting: Gauge,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "issuer");
        Self {
            responses: group.add("responses", "Answers of the issuer, by route, status"),
            rate_limited: group.add("rate_limited", "Requests beyond `limits.requests_per_second`"),
            sign_ins: group.add("sign_ins", "Sign-ins at the identity provider, by outcome"),
            grants: group.add("grants", "Decisions about grants, by the reason in their events"),
            tokens: group.add("tokens", "Tokens given out, by type"),
            events_refused: group.add(
                "events_refused",
                "Events that the ledger refuses, which are only in the log",
            ),
            events_waiting: group.add("events_waiting", "Events that the ledger does not have yet"),
            revocations_waiting: group.add(
                "revocations_waiting",
                "Ended grants with tokens that are not revoked yet",
            ),
        }
    }
}
