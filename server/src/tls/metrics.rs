//! The metrics of TLS.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::registry::{Registry, Unit};

/// No label holds a value that a client chose, so there are few series.
#[derive(Debug, Clone)]
pub struct TlsMetrics {
    /// Unix seconds, by port.
    pub certificate_expires: Gauges<1>,
    /// 0 if changed files are invalid, by port.
    pub files_current: Gauges<1>,
    /// Changed files, by port and outcome.
    pub reloads: Counters<2>,
    /// Failed handshakes, by port and reason.
    pub handshake_failures: Counters<2>,
    /// Connections with an ended certificate, by port.
    pub withdrawn: Counters<1>,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    /// Adds them to the registry.
    pub fn new(registry: &mut Registry) -> Self {
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
        }
    }
}
