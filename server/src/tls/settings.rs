//! `tls` in the configuration file.

use std::path::PathBuf;

use credence_runtime::settings::present;
use schemars::JsonSchema;
use serde::Deserialize;

/// TLS of the two ports. A port without TLS is plaintext.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// The HTTP API's.
    #[serde(deserialize_with = "present")]
    pub http: Option<PortTls>,
    /// The filters'.
    #[serde(deserialize_with = "present")]
    pub grpc: Option<PortTls>,
}

/// One port's certificate and, for mutual TLS, the authorities for client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortTls {
    /// PEM file: certificate, then intermediates.
    pub certificate: PathBuf,
    /// PEM file: private key.
    pub key: PathBuf,
    /// PEM file: CAs of client certificates. Default: none are requested.
    #[serde(default, deserialize_with = "present")]
    pub client_ca: Option<PathBuf>,
}

// === impl TlsSettings ===

impl TlsSettings {
    /// Whether the gRPC port requires client certificates.
    #[must_use]
    pub fn grpc_asks_for_certificates(&self) -> bool {
        self.grpc.as_ref().is_some_and(|port| port.client_ca.is_some())
    }

    /// Whether any port asks for client certificates.
    #[must_use]
    pub fn asks_for_certificates(&self) -> bool {
        [&self.http, &self.grpc]
            .into_iter()
            .flatten()
            .any(|port| port.client_ca.is_some())
    }
}
