//! The configuration file of `credence serve --config`: all settings without a command-line option.
//!
//! docs/reference/configuration.md describes every member with its default and its limits.

mod access;
mod holders;
mod limits;
mod trust;

use credence_delegation::Remark;
use credence_delegation::TrustAnchors;
use credence_evidence::{AuditSettings, LedgerSettings};
use credence_issuer_keys::IssuerKeysSettings;
use credence_provisioning::{ScimSettings, TransmitterSettings};
use credence_runtime::settings::SettingsError;
use credence_server::TlsSettings;
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::access::{AccessSettings, CertificateSettings, CertificateSubject, GrpcAccess, Role, TokenSettings};
pub use self::limits::{RateSettings, StatusSettings};
pub use self::trust::TrustAnchorSettings;

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// TLS, for each port.
    pub tls: TlsSettings,
    /// Who may do what.
    pub access: AccessSettings,
    /// Identity providers that provision their users here.
    pub scim: Vec<ScimSettings>,
    /// Identity providers that push security events.
    pub security_events: Vec<TransmitterSettings>,
    /// Issuers whose keys the control plane fetches for filters.
    pub issuer_keys: Vec<IssuerKeysSettings>,
    /// Names of this control plane in signed statements.
    #[schemars(inner(length(min = 1)))]
    pub audience: Vec<String>,
    /// Issuers whose signed statements count, and whose delegations can be checked as chains.
    pub trust_anchors: Vec<TrustAnchorSettings>,
    /// Rates and shares of clients.
    pub limits: RateSettings,
    /// Answers to status checks.
    pub status: StatusSettings,
    /// What others may see of the ledger, and who vouches for it.
    pub ledger: LedgerSettings,
    /// What becomes of evidence besides being kept.
    pub audit: AuditSettings,
}

/// The schema of the file.
#[must_use]
pub fn settings_schema() -> String {
    credence_runtime::settings_schema::settings_schema::<Settings>(
        "Configuration of Credence's control plane",
        "The file that credence serve --config reads. docs/reference/configuration.md explains every member.",
    )
}

// === impl Settings ===

impl Settings {
    /// The trust anchors of `trust_anchors`.
    ///
    /// # Errors
    /// The first invalid anchor.
    pub fn anchors(&self) -> Result<TrustAnchors, SettingsError> {
        trust::anchors(&self.trust_anchors)
    }

    /// Warnings: valid settings that may not be intended.
    #[must_use]
    pub fn notes(&self) -> Vec<Remark> {
        let mut notes = trust::notes(&self.trust_anchors);
        notes.extend(self.access.notes());
        notes
    }

    /// Checks everything that the types do not rule out.
    ///
    /// # Errors
    /// The first invalid member.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.access.check()?;
        credence_provisioning::check(&self.scim, &self.security_events)?;
        credence_issuer_keys::check(&self.issuer_keys)?;
        for (index, anchor) in self.trust_anchors.iter().enumerate() {
            let is_fetched = self.issuer_keys.iter().any(|fetched| fetched.issuer == anchor.issuer);
            if anchor.keys.is_some() && !is_fetched {
                return Err(SettingsError::at(
                    format!("trust_anchors[{index}].keys"),
                    format!("no entry of issuer_keys has the issuer {:?}; add one", anchor.issuer),
                ));
            }
        }
        holders::check(&self.scim, &self.security_events, &self.access)?;
        self.limits.check()?;
        self.status.check()?;
        self.ledger.check()?;
        self.audit.check()?;
        self.anchors()?;
        if self.audience.iter().any(String::is_empty) {
            return Err(SettingsError::at("audience", "a name must not be empty"));
        }
        if !self.access.certificates.is_empty() && !self.tls.asks_for_certificates() {
            return Err(SettingsError::at(
                "access.certificates",
                "no port asks for client certificates; set client_ca in tls.http or tls.grpc",
            ));
        }
        if self.grpc_access() == GrpcAccess::Required && !self.lets_filters_in() {
            return Err(SettingsError::at(
                "access",
                "no filter could follow revocations: the gRPC port requires credentials, because of client_ca in \
                 tls.grpc or access.certificates, but no credential with the role filter and without issuers can be \
                 used there. Add such an entry to access.certificates, with client_ca in tls.grpc, or to \
                 access.tokens; or set access.grpc: open, if only the mesh can reach the port",
            ));
        }
        Ok(())
    }

    /// The value of `access.grpc`. By default, credentials are required if certificates are configured or the gRPC port
    /// requests them.
    pub fn grpc_access(&self) -> GrpcAccess {
        let configured = !self.access.certificates.is_empty() || self.tls.grpc_asks_for_certificates();
        self.access.grpc.unwrap_or(match configured {
            true => GrpcAccess::Required,
            false => GrpcAccess::Open,
        })
    }

    fn lets_filters_in(&self) -> bool {
        // A credential that is bound to issuers may report, but not follow: a filter follows the whole log.
        let good = |roles: &[Role], issuers: &Option<Vec<String>>| {
            issuers.is_none() && roles.iter().any(|role| matches!(role, Role::Filter | Role::Admin))
        };
        let certificates = &self.access.certificates;
        self.access
            .tokens
            .iter()
            .any(|token| good(&token.roles, &token.issuers))
            || self.tls.grpc_asks_for_certificates()
                && certificates.iter().any(|entry| good(&entry.roles, &entry.issuers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Settings, String> {
        let settings: Settings = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    fn token(rest: &str) -> String {
        let digest = "0f".repeat(32);
        format!(r#"{{"access": {{"tokens": [{{"name": "t", "sha256": "{digest}", "roles": ["watcher"]{rest}}}]}}}}"#)
    }

    #[test]
    fn every_setting_is_optional() {
        let said = read("{}").unwrap();
        assert_eq!(format!("{said:?}"), format!("{:?}", Settings::default()));
    }

    #[test]
    fn a_token_is_read() {
        let settings = read(&token(
            r#", "issuers": ["https://id"], "expires": "2027-01-01T00:00:00Z""#,
        ))
        .unwrap();
        let expected = TokenSettings {
            name: "t".to_owned(),
            sha256: [15; 32],
            roles: vec![Role::Watcher],
            issuers: Some(vec!["https://id".to_owned()]),
            expires: Some(1_798_761_600),
        };
        assert_eq!(settings.access.tokens, [expected]);
    }

    #[test]
    fn a_filters_credential_that_is_bound_to_issuers_is_noted() {
        let bound = token(r#", "issuers": ["https://id"]"#);
        assert!(read(&bound).unwrap().notes().is_empty(), "a watcher follows over HTTP");
        let notes = read(&bound.replace("watcher", "filter")).unwrap().notes();
        assert_eq!(notes[0].path, "access.tokens[0].issuers");
    }

    #[test]
    fn errors_are_named() {
        let certificate = |subject: &str| {
            format!(
                r#"{{"tls": {{"grpc": {{"certificate": "c", "key": "k", "client_ca": "a"}}}},
                    "access": {{"certificates": [{{"name": "c", {subject}, "roles": ["filter"]}}]}}}}"#
            )
        };
        read(&certificate(r#""uri": "spiffe://mesh/*""#)).unwrap();
        for (json, expected) in [
            (token(r#", "expires": "soon""#), "RFC 3339"),
            (token(r#", "issuers": []"#), "access.tokens[0].issuers"),
            (token(r#", "role": "x""#), "unknown field"),
            (token("").replace("0f0f", "0g0f"), "64 hexadecimal digits"),
            (token("").replace(r#"["watcher"]"#, "[]"), "access.tokens[0].roles"),
            (token("").replace("watcher", "owner"), "unknown variant"),
            (token("").replace(r#""t""#, r#""""#), "access.tokens[0].name"),
            (certificate(r#""uri": "*""#), "access.certificates[0]"),
            (certificate(r#""uri": "spiffe:///*""#), "access.certificates[0]"),
            (certificate(r#""dns": "*.example""#), "access.certificates[0]"),
            (
                certificate(r#""dns": "a""#).replace(r#", "client_ca": "a""#, ""),
                "set client_ca",
            ),
        ] {
            let refused = read(&json).unwrap_err();
            assert!(refused.contains(expected), "{json}: {refused}");
        }
    }

    #[test]
    fn two_credentials_never_share_a_name_or_a_token() {
        let one = r#"{"name": "t", "sha256": "X", "roles": ["watcher"]}"#.replace('X', &"0f".repeat(32));
        let two = |name: &str, digit: &str| {
            let other = one.replace(r#""t""#, name).replace("0f", digit);
            read(&format!(r#"{{"access": {{"tokens": [{one}, {other}]}}}}"#))
        };
        two(r#""u""#, "1f").unwrap();
        assert!(two(r#""t""#, "1f").unwrap_err().contains("named"));
        assert!(two(r#""u""#, "0f").unwrap_err().contains("same sha256"));
    }
}
