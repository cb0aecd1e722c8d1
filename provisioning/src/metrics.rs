//! What an operator can graph and alert on about identity providers.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Low cardinality: no label ever holds something a client chose.
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
            scim_users: group.add("scim_users", "Users, by SCIM realm"),
            scim_changes: group.add("scim_changes", "Users created, updated and deleted by SCIM, by realm"),
            security_events: group.add(
                "security_events",
                "Security event tokens received, by transmitter and outcome",
            ),
            security_event_ids: group.add("security_event_ids", "Security event tokens that are remembered"),
            jwks_reads: group.add(
                "jwks_reads",
                "Attempts to read the keys of a transmitter of security events, by outcome",
            ),
        }
    }
}
