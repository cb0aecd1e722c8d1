//! `audit.otlp` in the configuration file: the export of evidence to OpenTelemetry.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use credence_runtime::outbound::is_local;
use credence_runtime::settings::{SettingsError, present};

/// What becomes of evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSettings {
    /// The OpenTelemetry collector that every record of the ledger is sent to as a log record.
    #[serde(deserialize_with = "present")]
    pub otlp: Option<OtlpSettings>,
}

/// An OpenTelemetry collector, or another receiver of OTLP logs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpSettings {
    /// URL of the collector. `http` adds `/v1/logs` if there is no path.
    #[schemars(extend("pattern" = "^https?://."))]
    pub endpoint: String,
    /// OTLP over gRPC or HTTP.
    #[serde(default)]
    #[schemars(extend("default" = "grpc"))]
    pub protocol: OtlpProtocol,
    /// Request headers (gRPC: metadata).
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>", extend("default" = {}))]
    pub headers: OtlpHeaders,
    /// PEM file: CAs of its server. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// The protocol of a collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// OTLP/gRPC.
    #[default]
    Grpc,
    /// OTLP/HTTP with protobuf bodies.
    Http,
}

/// Header fields. Their values are secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct OtlpHeaders(pub BTreeMap<String, String>);

// === impl AuditSettings ===

impl AuditSettings {
    /// # Errors
    /// The first invalid member.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.otlp.as_ref().map_or(Ok(()), OtlpSettings::check)
    }
}

// === impl OtlpHeaders ===

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

// === impl OtlpSettings ===

impl OtlpSettings {
    fn check(&self) -> Result<(), SettingsError> {
        let uri: Option<http::Uri> = self.endpoint.parse().ok();
        let scheme = uri.as_ref().and_then(|uri| uri.scheme_str());
        if !matches!(scheme, Some("http" | "https")) || uri.as_ref().and_then(|uri| uri.host()).is_none() {
            return Err(SettingsError::at(
                "audit.otlp.endpoint",
                "write an http:// or https:// URL, such as http://collector:4317",
            ));
        }
        if scheme == Some("http") && !self.headers.0.is_empty() && !is_local(&self.endpoint) {
            return Err(SettingsError::at(
                "audit.otlp.headers",
                "over http:// they can be read in transit; write an https:// endpoint (http is for this machine: \
                 127.0.0.1, [::1], localhost)",
            ));
        }
        if scheme == Some("http") && self.ca.is_some() {
            return Err(SettingsError::at(
                "audit.otlp.ca",
                "an http:// endpoint has no certificate to verify; write https://, or leave ca out",
            ));
        }
        for (name, value) in &self.headers.0 {
            let is_name = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_');
            let is_value = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let is_ours = name.starts_with("grpc-") || name.ends_with("-bin") || OURS.contains(&name.as_str());
            if !is_name || !is_value || is_ours || value.len() > MAX_HEADER_BYTES || self.headers.0.len() > MAX_HEADERS
            {
                return Err(SettingsError::at(
                    format!("audit.otlp.headers.{name}"),
                    format!(
                        "write a lower-case name that is not one of the protocol's own, and visible ASCII of at most \
                         {MAX_HEADER_BYTES} bytes; at most {MAX_HEADERS} of them"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Reserved for the protocol.
const OURS: [&str; 6] = [
    "content-type",
    "content-length",
    "host",
    "te",
    "user-agent",
    "connection",
];
const MAX_HEADER_BYTES: usize = 4 << 10;
const MAX_HEADERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<(), String> {
        let settings: OtlpSettings = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_is_enough_and_errors_are_named() {
        check(r#"{"endpoint": "http://collector:4317"}"#).unwrap();
        check(r#"{"endpoint": "http://127.0.0.1:4318/x", "protocol": "http", "headers": {"api-key": "k"}}"#).unwrap();
        for (json, expected) in [
            (r#"{"endpoint": "collector:4317"}"#, "audit.otlp.endpoint"),
            (
                r#"{"endpoint": "http://c", "headers": {"api-key": "k"}}"#,
                "audit.otlp.headers",
            ),
            (r#"{"endpoint": "http://c", "ca": "ca.pem"}"#, "audit.otlp.ca"),
            (
                r#"{"endpoint": "https://c", "headers": {"Api": "k"}}"#,
                "audit.otlp.headers.Api",
            ),
            (
                r#"{"endpoint": "https://c", "headers": {"te": "k"}}"#,
                "audit.otlp.headers.te",
            ),
            (
                r#"{"endpoint": "https://c", "headers": {"a": "\n"}}"#,
                "audit.otlp.headers.a",
            ),
            (r#"{"endpoint": "https://c", "protocol": "udp"}"#, "unknown variant"),
        ] {
            let refused = check(json).unwrap_err();
            assert!(refused.contains(expected), "{json}: {refused}");
        }
    }

    #[test]
    fn no_header_is_printed() {
        let headers = OtlpHeaders([("api-key".to_owned(), "secret".to_owned())].into());
        assert_eq!(format!("{headers:?}"), r#"{"api-key"}"#);
    }
}
