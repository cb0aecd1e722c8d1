//! What an operator can graph and alert on about TLS and the configuration that is reloaded with it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Cheap to clone; all clones are the same metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsMetrics {
    pub(crate) certificate_expires: Family<PortLabel, Gauge>,
    pub(crate) files_current: Family<PortLabel, Gauge>,
    pub(crate) reloads: Family<Reload, Counter>,
    pub(crate) handshake_failures: Family<HandshakeFailure, Counter>,
    pub(crate) withdrawn: Family<PortLabel, Counter>,
    pub(crate) configuration_reloads: Family<Attempt, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PortLabel {
    pub(crate) port: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reload {
    pub(crate) port: &'static str,
    /// `success` or `failure`.
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HandshakeFailure {
    pub(crate) port: &'static str,
    pub(crate) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Attempt {
    /// `success` or `failure`.
    pub(crate) outcome: &'static str,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let tls = registry.sub_registry_with_prefix("tls");
        tls.register_with_unit(
            "certificate_expires",
            "When the port's certificate ends, as seconds since the Unix epoch",
            Unit::Seconds,
            self.certificate_expires.clone(),
        );
        tls.register(
            "files_current",
            "1 if what the port's files hold is in force, 0 if it can not be used and what they held before is",
            self.files_current.clone(),
        );
        tls.register(
            "reloads",
            "Changes of the port's files, by outcome",
            self.reloads.clone(),
        );
        tls.register(
            "handshake_failures",
            "Connections that ended before they could be used, by reason",
            self.handshake_failures.clone(),
        );
        tls.register(
            "withdrawn_connections",
            "Connections ended because the client's certificate no longer counted",
            self.withdrawn.clone(),
        );
        let configuration = registry.sub_registry_with_prefix("configuration");
        configuration.register(
            "reloads",
            "Times the configuration file was read again, by outcome",
            self.configuration_reloads.clone(),
        );
    }
}

#[cfg(test)]
impl TlsMetrics {
    /// So that each of them is shown.
    pub(crate) fn count_one_of_each(&self) {
        let (port, outcome, reason) = ("grpc", "success", "closed");
        self.certificate_expires.get_or_create(&PortLabel { port }).inc();
        self.files_current.get_or_create(&PortLabel { port }).inc();
        self.reloads.get_or_create(&Reload { port, outcome }).inc();
        self.handshake_failures
            .get_or_create(&HandshakeFailure { port, reason })
            .inc();
        self.withdrawn.get_or_create(&PortLabel { port }).inc();
        self.configuration_reloads.get_or_create(&Attempt { outcome }).inc();
    }
}
