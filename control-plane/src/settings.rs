//! The configuration file of `credence serve --config`: everything that is no plain command line option.
//!
//! docs/control-plane.md describes every member with its default and its limits.

mod ledger;
mod limits;
mod otlp;
pub(crate) mod schema;
mod trust;

use std::path::PathBuf;

use credence_delegation::TrustAnchors;
use credence_delegation::trust::Remark;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use self::ledger::{LedgerSettings, TileAccess, WitnessSettings};
pub use self::limits::{RateSettings, StatusSettings};
pub use self::otlp::{AuditSettings, OtlpHeaders, OtlpProtocol, OtlpSettings};
pub use self::schema::settings_schema;
pub(crate) use self::trust::anchors;
pub use self::trust::{JsonText, TrustAnchorSettings};
use crate::identity_settings::{self, ScimSettings, TransmitterSettings};

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
    /// The names under which revocation statements address this control plane, such as `https://revocation.example`.
    #[schemars(inner(length(min = 1)))]
    pub audience: Vec<String>,
    /// Whose revocation statements count, and about whose delegations can be asked as chains.
    pub trust_anchors: Vec<TrustAnchorSettings>,
    /// How often who may ask.
    pub limits: RateSettings,
    /// Answers to status checks.
    pub status: StatusSettings,
    /// What others may see of the ledger, and who vouches for it.
    pub ledger: LedgerSettings,
    /// What becomes of evidence besides being kept.
    pub audit: AuditSettings,
}

/// How the two ports are protected; a port without TLS speaks plain text.
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

/// One port's certificate and, for mutual TLS, whose clients it believes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortTls {
    /// PEM: the port's certificate, then the intermediate ones.
    pub certificate: PathBuf,
    /// PEM: its private key (PKCS #8, SEC 1 or PKCS #1).
    pub key: PathBuf,
    /// PEM: the authorities whose client certificates count. Absent: clients are not asked for one.
    #[serde(default, deserialize_with = "present")]
    pub client_ca: Option<PathBuf>,
}

/// The credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSettings {
    /// Bearer tokens (RFC 6750), by their digests.
    pub tokens: Vec<TokenSettings>,
    /// Client certificates; the first that matches counts.
    pub certificates: Vec<CertificateSettings>,
    /// Who may follow and report on the gRPC port. Where it is absent: `required` as soon as `certificates` is not empty or
    /// `tls.grpc` has a `client_ca`, otherwise `open`.
    #[serde(deserialize_with = "present")]
    pub grpc: Option<GrpcAccess>,
}

/// Who may follow revocations and report decisions on the gRPC port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrpcAccess {
    /// Whoever reaches the port, with a certificate of `client_ca` if that is configured: let only the mesh reach it.
    Open,
    /// Whoever shows a credential with a role that may.
    Required,
}

/// A bearer token. `credence token` makes one, and this with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// Stands in logs and in histories: 1 to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = schema::NO_CONTROLS))]
    pub name: String,
    /// The SHA-256 of the token, 64 hexadecimal digits.
    #[serde(deserialize_with = "digest")]
    #[schemars(with = "String", extend("pattern" = "^[0-9a-fA-F]{64}$"))]
    pub sha256: [u8; 32],
    /// What it is good for.
    #[schemars(extend("minItems" = 1))]
    pub roles: Vec<Role>,
    /// The root issuers it is good for; every one if absent.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("minItems" = 1))]
    pub issuers: Option<Vec<String>>,
    /// From then on it is worth nothing, in seconds since the Unix epoch; never if absent.
    #[serde(default, deserialize_with = "instant")]
    #[schemars(description = "From then on it is worth nothing (RFC 3339); never if absent.")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = schema::RFC_3339))]
    pub expires: Option<i64>,
}

/// A client certificate, by what it says its holder is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateSettings {
    /// Stands in logs and in histories: 1 to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = schema::NO_CONTROLS))]
    pub name: String,
    /// The subject alternative name it must carry.
    #[serde(flatten)]
    pub subject: CertificateSubject,
    /// What it is good for.
    #[schemars(extend("minItems" = 1))]
    pub roles: Vec<Role>,
    /// The root issuers it is good for; every one if absent.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("minItems" = 1))]
    pub issuers: Option<Vec<String>>,
}

/// What every credential has.
pub(crate) struct Credential<'a> {
    /// Where it stands, such as `access.tokens[0]`.
    place: String,
    pub(crate) name: &'a str,
    pub(crate) roles: &'a [Role],
    issuers: Option<&'a Vec<String>>,
}

/// A subject alternative name (RFC 5280 section 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateSubject {
    /// A URI such as `spiffe://cluster.local/ns/shop/sa/gateway`; with `/*` at its end, whatever lies below.
    Uri(#[schemars(extend("pattern" = schema::SUBJECT_URI))] String),
    /// A host name.
    Dns(#[schemars(extend("pattern" = schema::SUBJECT_NAME))] String),
}

/// What a credential is good for; docs/control-plane.md has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Revoking, disabling, enabling; looking principals up; watching.
    Revoker,
    /// Following revocations, and asking whether a delegation is void.
    Watcher,
    /// Reading evidence; looking principals up.
    Auditor,
    /// What Envoy does on the gRPC port: following revocations and reporting decisions.
    Filter,
    /// Reporting decisions over HTTP.
    Reporter,
    /// SCIM.
    Provisioner,
    /// Pushing security event tokens.
    Transmitter,
}

/// Settings that no control plane can be started with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {place}: {problem}")]
pub struct SettingsError {
    /// The member, such as `access.tokens[1].roles`.
    pub place: String,
    /// What is wrong with it, and the cure.
    pub problem: String,
}

// === impl Settings ===

impl Settings {
    /// Whom `trust_anchors` trusts.
    ///
    /// # Errors
    /// The first anchor that is wrong.
    pub fn anchors(&self) -> Result<TrustAnchors, SettingsError> {
        anchors(&self.trust_anchors)
    }

    /// What is no mistake, but may not be what was meant.
    #[must_use]
    pub fn notes(&self) -> Vec<Remark> {
        let mut notes = trust::notes(&self.trust_anchors);
        notes.extend(self.access.notes());
        notes
    }

    /// Checks what the types alone do not rule out.
    ///
    /// # Errors
    /// The first member that is wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.access.check()?;
        identity_settings::check(&self.scim, &self.security_events, &self.access)?;
        self.limits.check()?;
        self.status.check()?;
        self.ledger.check()?;
        self.audit.otlp.as_ref().map_or(Ok(()), OtlpSettings::check)?;
        anchors(&self.trust_anchors)?;
        if self.audience.iter().any(String::is_empty) {
            return Err(SettingsError::at("audience", "a name is not empty"));
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
                "no filter could follow revocations: the gRPC port asks for credentials, as client_ca in tls.grpc and \
                 access.certificates have it do, and none with the role filter and without issuers can be shown there. \
                 Add such an entry to access.certificates, with client_ca in tls.grpc, or to access.tokens; or say access.grpc: \
                 open, if only the mesh can reach the port",
            ));
        }
        Ok(())
    }

    /// What `access.grpc` says; where it says nothing, credentials are required as soon as certificates are configured
    /// or the gRPC port asks for them.
    pub fn grpc_access(&self) -> GrpcAccess {
        let configured = !self.access.certificates.is_empty() || self.tls.grpc_asks_for_certificates();
        self.access.grpc.unwrap_or(match configured {
            true => GrpcAccess::Required,
            false => GrpcAccess::Open,
        })
    }

    fn lets_filters_in(&self) -> bool {
        // One that is bound to issuers may report, but not follow: a filter follows the whole log.
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

// === impl TlsSettings ===

impl TlsSettings {
    fn grpc_asks_for_certificates(&self) -> bool {
        self.grpc.as_ref().is_some_and(|port| port.client_ca.is_some())
    }

    fn asks_for_certificates(&self) -> bool {
        [&self.http, &self.grpc]
            .into_iter()
            .flatten()
            .any(|port| port.client_ca.is_some())
    }
}

// === impl AccessSettings ===

impl AccessSettings {
    /// All of them, tokens first.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = Credential<'_>> {
        let tokens = self.tokens.iter().enumerate().map(|(index, token)| Credential {
            place: format!("access.tokens[{index}]"),
            name: &token.name,
            roles: &token.roles,
            issuers: token.issuers.as_ref(),
        });
        let certificates = self.certificates.iter().enumerate().map(|(index, entry)| Credential {
            place: format!("access.certificates[{index}]"),
            name: &entry.name,
            roles: &entry.roles,
            issuers: entry.issuers.as_ref(),
        });
        tokens.chain(certificates)
    }

    /// Credentials for filters that no filter can follow with.
    fn notes(&self) -> Vec<Remark> {
        self.credentials()
            .filter(|credential| credential.roles.contains(&Role::Filter) && credential.issuers.is_some())
            .map(|credential| Remark {
                path: format!("{}.issuers", credential.place),
                message:
                    "a filter follows the whole log, which a credential that is bound to issuers may not: on the gRPC \
                          port this one can only report. Leave issuers out for filters"
                        .to_owned(),
            })
            .collect()
    }

    fn check(&self) -> Result<(), SettingsError> {
        let mut names = Vec::new();
        for credential in self.credentials() {
            let Credential {
                place,
                name,
                roles,
                issuers,
            } = credential;
            if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
                return Err(SettingsError::at(
                    format!("{place}.name"),
                    "write 1 to 64 bytes without control characters",
                ));
            }
            if names.contains(&name) {
                return Err(SettingsError::at(
                    format!("{place}.name"),
                    format!("another credential is named {name:?} already; histories could not tell them apart"),
                ));
            }
            names.push(name);
            if roles.is_empty() {
                return Err(SettingsError::at(
                    format!("{place}.roles"),
                    format!(
                        "a credential without a role is good for nothing; there are {}",
                        Role::names()
                    ),
                ));
            }
            if issuers.is_some_and(Vec::is_empty) {
                return Err(SettingsError::at(
                    format!("{place}.issuers"),
                    "name at least one issuer, or leave it out for all of them",
                ));
            }
        }
        let mut digests: Vec<_> = self.tokens.iter().map(|token| token.sha256).collect();
        digests.sort_unstable();
        if digests.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(SettingsError::at(
                "access.tokens",
                "two entries have the same sha256; give each holder a token of his own",
            ));
        }
        if let Some(index) = self.certificates.iter().position(|entry| !entry.subject.is_plausible()) {
            return Err(SettingsError::at(
                format!("access.certificates[{index}]"),
                "write a uri such as spiffe://cluster.local/ns/shop/sa/gateway, with /* at its end (and a * nowhere \
                 else) for whatever lies below, or a dns name without a *",
            ));
        }
        Ok(())
    }
}

// === impl CertificateSubject ===

impl CertificateSubject {
    fn is_plausible(&self) -> bool {
        match self {
            Self::Uri(pattern) => {
                let prefix = pattern.strip_suffix("/*").unwrap_or(pattern);
                // The authority itself is never left open.
                let authority = prefix.split_once("://").map(|(_, rest)| rest);
                authority.is_some_and(|rest| !rest.is_empty()) && !prefix.contains('*')
            }
            Self::Dns(name) => !name.is_empty() && !name.contains('*'),
        }
    }
}

// === impl Role ===

impl Role {
    pub(crate) const ALL: [Self; 8] = [
        Self::Admin,
        Self::Revoker,
        Self::Watcher,
        Self::Auditor,
        Self::Filter,
        Self::Reporter,
        Self::Provisioner,
        Self::Transmitter,
    ];

    /// As it stands in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Revoker => "revoker",
            Self::Watcher => "watcher",
            Self::Auditor => "auditor",
            Self::Filter => "filter",
            Self::Reporter => "reporter",
            Self::Provisioner => "provisioner",
            Self::Transmitter => "transmitter",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.name() == name)
            .ok_or_else(|| format!("there are {}", Self::names()))
    }
}

// === impl SettingsError ===

impl SettingsError {
    pub(crate) fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut digest = [0; 32];
    let well_formed = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = text
            .get(2 * at..2 * at + 2)
            .filter(|_| well_formed)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or_else(|| D::Error::custom("a sha256 is 64 hexadecimal digits; `credence token` prints it"))?;
    }
    Ok(digest)
}

/// For a member that may be left out but is not null where it is there: a template that was meant to fill in `client_ca:`
/// and did not must not mean that nobody is asked.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    OffsetDateTime::parse(&text, &Rfc3339)
        .map(|instant| Some(instant.unix_timestamp()))
        .map_err(|_| D::Error::custom("write a time as RFC 3339 does, such as 2027-01-01T00:00:00Z"))
}

const MAX_NAME_BYTES: usize = 64;

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
    fn nothing_has_to_be_said() {
        assert_eq!(read("{}").unwrap(), Settings::default());
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
    fn what_is_wrong_is_named() {
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
