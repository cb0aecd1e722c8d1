//! The metrics of identity providers.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// No label holds a value that a client chose, so there are few series.
#[derive(Debug)]
pub struct Metrics {
    pub scim_users: Gauges<1>,
    pub scim_changes: Counters<2>,
    pub security_events: Counters<2>,
    pub security_event_ids: Gauge,
    pub jwks_reads: Counters<2>,
}

// === impl Metrics ===

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::without_prefix(registry);
        Self {
            scim_users: group.add("scim_users", "Users, by realm"),
            scim_changes: group.add("scim_changes", "Changed users, by realm, change"),
            security_events: group.add("security_events", "Tokens, by transmitter, outcome"),
            security_event_ids: group.add("security_event_ids", "Tokens remembered"),
            jwks_reads: group.add("jwks_reads", "Key downloads, by transmitter, outcome"),
        }
    }
}
