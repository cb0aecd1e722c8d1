//! What an operator can graph and alert on about TLS and the configuration that is reloaded with it.

use credence_runtime::metrics::{Counters, Gauges, Group};
use prometheus_client::registry::{Registry, Unit};

/// Low cardinality: no label ever holds something a client chose.
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
            certificate_expires: group.add_in(
                Unit::Seconds,
                "certificate_expires",
                "When the port's certificate ends, as seconds since the Unix epoch",
            ),
            files_current: group.add(
                "files_current",
                "1 if what the port's files hold is in force, 0 if it cannot be used and what they held before is",
            ),
            reloads: group.add("reloads", "Changes of the port's files, by outcome"),
            handshake_failures: group.add(
                "handshake_failures",
                "Connections that ended before they could be used, by reason",
            ),
            withdrawn: group.add(
                "withdrawn_connections",
                "Connections ended because the client's certificate no longer counted",
            ),
            configuration_reloads: Group::new(registry, "configuration")
                .add("reloads", "Times the configuration file was read again, by outcome"),
        }
    }
}
