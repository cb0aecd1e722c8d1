//! The metrics of fetched keys. The issuers are configured, so there are few series.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::registry::Registry;

/// The metrics of fetched keys.
#[derive(Debug)]
pub struct Metrics {
    /// Fetches, by issuer and outcome.
    pub fetches: Counters<2>,
    /// Keys, by issuer.
    pub keys: Gauges<1>,
    /// Unix seconds, by issuer.
    pub trusted_until: Gauges<1>,
}

// === impl Metrics ===

impl Metrics {
    /// Adds them to the registry.
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::without_prefix(registry);
        Self {
            fetches: group.add("issuer_key_fetches", "Fetches of issuers' keys, by issuer, outcome"),
            keys: group.add("issuer_keys", "Keys that filters trust, by issuer"),
            trusted_until: group.add(
                "issuer_keys_trusted_until_seconds",
                "When trust in an issuer's keys ends without another fetch, Unix time, by issuer",
            ),
        }
    }
}
