//! The metrics of TLS, and of configuration reloads.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::registry::{Registry, Unit};

/// No label holds a value that a client chose, so there are few series.
#[derive(Debug, Clone)]
pub(crate) struct TlsMetrics {
    pub(crate) certificate_expires: Gauges<1>,
    pub(crate) files_current: Gauges<1>,
    pub(crate) reloads: Counters<2>,
    pub(crate) handshake_failures: Counters<2>,
    pub(crate) withdrawn: Counters<1>,
    pub(crate) configuration_reloads: Counters<1>,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "tls");
        Self {
            certificate_expires: group.add_in(Unit::Seconds, "certificate_expires", "Unix time of expiry, by port"),
            files_current: group.add("files_current", "0 if changed files are invalid, by port"),
            reloads: group.add("reloads", "Changed files, by port, outcome"),
            handshake_failures: group.add("handshake_failures", "Failed handshakes, by port, reason"),
            withdrawn: group.add(
                "withdrawn_connections",
                "Connections with an ended certificate, by port",
            ),
            configuration_reloads: Group::new(registry, "configuration").add("reloads", "Reloads, by outcome"),
        }
    }
}
