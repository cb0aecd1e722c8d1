//! Metrics. No label has a value that a client chose.

use credence_runtime::metrics::{Counters, Group};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: Counters<2>,
    pub(crate) refusals: Counters<2>,
    pub(crate) retries: Counters<1>,
    pub(crate) connections_refused: Counters<1>,
    pub(crate) connections: Gauge,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "proxy");
        Self {
            requests: group.add("requests", "Answers of services, by client, status"),
            refusals: group.add("refusals", "Requests that were not sent, by client, reason"),
            retries: group.add("retries", "Requests that were sent again with a nonce, by client"),
            connections_refused: group.add("connections_refused", "Connections that were closed at once, by reason"),
            connections: group.add("connections", "Connections of clients"),
        }
    }
}
