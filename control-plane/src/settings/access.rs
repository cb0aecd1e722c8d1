//! `access` in the configuration file: the credentials, and the roles of each.

use credence_delegation::Remark;
use credence_runtime::settings::{NO_CONTROLS, SettingsError, present};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use strum::VariantArray as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSettings {
    /// Bearer tokens (RFC 6750), by their digests.
    pub tokens: Vec<TokenSettings>,
    /// Client certificates; the first that matches counts.
    pub certificates: Vec<CertificateSettings>,
    /// Who may use the gRPC port. Default: `required` with `certificates` or `tls.grpc.client_ca`, else `open`.
    #[serde(deserialize_with = "present")]
    pub grpc: Option<GrpcAccess>,
}

/// The clients that may follow revocations and report decisions on the gRPC port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrpcAccess {
    /// All clients that reach the port, with a certificate of `client_ca` if that is set. Let only the mesh reach it.
    Open,
    /// Clients with a credential whose role permits it.
    Required,
}

/// A bearer token. `credence token` makes one, and this with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// Name in logs and histories, up to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = NO_CONTROLS))]
    pub name: String,
    /// SHA-256 of the token, in hexadecimal.
    #[serde(deserialize_with = "digest")]
    #[schemars(with = "String", extend("pattern" = "^[0-9a-fA-F]{64}$"))]
    pub sha256: [u8; 32],
    /// What it may do.
    #[schemars(extend("minItems" = 1))]
    pub roles: Vec<Role>,
    /// Issuers to which it is limited. Default: all.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("minItems" = 1))]
    pub issuers: Option<Vec<String>>,
    /// From then on it is worth nothing, in seconds since the Unix epoch; never if absent.
    #[serde(default, deserialize_with = "instant")]
    #[schemars(description = "Expiry (RFC 3339). Default: never.")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = RFC_3339))]
    pub expires: Option<i64>,
}

/// A client certificate, by what it says its holder is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateSettings {
    /// Name in logs and histories, up to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = NO_CONTROLS))]
    pub name: String,
    /// The subject alternative name it must carry.
    #[serde(flatten)]
    pub subject: CertificateSubject,
    /// What it may do.
    #[schemars(extend("minItems" = 1))]
    pub roles: Vec<Role>,
    /// Issuers to which it is limited. Default: all.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("minItems" = 1))]
    pub issuers: Option<Vec<String>>,
}

/// The part that every credential has.
pub(crate) struct Credential<'a> {
    /// Its place, such as `access.tokens[0]`.
    place: String,
    pub(crate) name: &'a str,
    pub(crate) roles: &'a [Role],
    issuers: Option<&'a Vec<String>>,
}

/// A subject alternative name (RFC 5280 section 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateSubject {
    /// URI in the certificate. A final `/*` matches everything below.
    Uri(#[schemars(extend("pattern" = SUBJECT_URI))] String),
    /// Host name in the certificate.
    Dns(#[schemars(extend("pattern" = SUBJECT_NAME))] String),
}

/// A role of a credential; docs/operate/control-plane.md has the permissions of each.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Deserialize,
    JsonSchema,
    Serialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = no_such_role)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Revoking, disabling, enabling; looking principals up; watching.
    Revoker,
    /// Following revocations and checking delegations.
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

// === impl AccessSettings ===

impl AccessSettings {
    /// All credentials, tokens first.
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

    /// Remarks on credentials for filters that cannot follow the log.
    pub(super) fn notes(&self) -> Vec<Remark> {
        self.credentials()
            .filter(|credential| credential.roles.contains(&Role::Filter) && credential.issuers.is_some())
            .map(|credential| Remark {
                path: format!("{}.issuers", credential.place),
                message:
                    "a filter follows the whole log, and a credential that is bound to issuers may not: on the gRPC \
                          port it can only report. Leave issuers out for filters"
                        .to_owned(),
            })
            .collect()
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let mut names = Vec::new();
        for credential in self.credentials() {
            let Credential {
                place,
                name,
                roles,
                issuers,
            } = credential;
            check_name(&place, name)?;
            if names.contains(&name) {
                return Err(SettingsError::at(
                    format!("{place}.name"),
                    format!("another credential is already named {name:?}; histories could not distinguish them"),
                ));
            }
            names.push(name);
            if roles.is_empty() {
                return Err(SettingsError::at(
                    format!("{place}.roles"),
                    format!("a credential needs a role; the roles are {}", Role::names()),
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
                "two entries have the same sha256; give each holder its own token",
            ));
        }
        if let Some(index) = self.certificates.iter().position(|entry| !entry.subject.is_plausible()) {
            return Err(SettingsError::at(
                format!("access.certificates[{index}]"),
                "write a uri such as spiffe://cluster.local/ns/shop/sa/gateway, with /* at its end (and a * nowhere \
                 else) for everything below it, or a dns name without a *",
            ));
        }
        Ok(())
    }
}

/// Names appear in logs and in histories.
pub(super) fn check_name(place: &str, name: &str) -> Result<(), SettingsError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(SettingsError::at(
            format!("{place}.name"),
            "write 1 to 64 bytes without control characters",
        ));
    }
    Ok(())
}

// === impl CertificateSubject ===

impl CertificateSubject {
    fn is_plausible(&self) -> bool {
        match self {
            Self::Uri(pattern) => {
                let prefix = pattern.strip_suffix("/*").unwrap_or(pattern);
                // The authority must not contain a wildcard.
                let authority = prefix.split_once("://").map(|(_, rest)| rest);
                authority.is_some_and(|rest| !rest.is_empty()) && !prefix.contains('*')
            }
            Self::Dns(name) => !name.is_empty() && !name.contains('*'),
        }
    }
}

// === impl Role ===

impl Role {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn names() -> String {
        Vec::from_iter(Self::VARIANTS.iter().map(|role| role.name())).join(", ")
    }
}

fn no_such_role(_: &str) -> String {
    format!("there are {}", Role::names())
}

fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut digest = [0; 32];
    match base16ct::mixed::decode(&text, &mut digest) {
        Ok(bytes) if bytes.len() == 32 => Ok(digest),
        _ => Err(D::Error::custom(
            "a sha256 is 64 hexadecimal digits; `credence token` prints it",
        )),
    }
}

fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    OffsetDateTime::parse(&text, &Rfc3339)
        .map(|instant| Some(instant.unix_timestamp()))
        .map_err(|_| D::Error::custom("write a time as RFC 3339 does, such as 2027-01-01T00:00:00Z"))
}

const MAX_NAME_BYTES: usize = 64;

const RFC_3339: &str = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$";

/// A URI or a pattern: a scheme, an authority without wildcards, and a `*` only after a final `/`.
const SUBJECT_URI: &str = r"^[^*]*://[^*]+(/\*)?$";

/// A host name without wildcards.
const SUBJECT_NAME: &str = r"^[^*]+$";
