//! The parts of the configuration file about identity providers: `scim` and `security_events`.
//!
//! docs/operate/identity-providers.md describes every member with its default and its limits.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::json;

use credence_runtime::outbound::is_safe;
use credence_runtime::settings::{NO_CONTROLS, SettingsError, present};

/// A realm: the users that one identity provider keeps here by SCIM (RFC 7644).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScimSettings {
    /// Name in logs, histories and storage, up to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = NO_CONTROLS))]
    pub name: String,
    /// `provisioner` credentials for this realm only.
    #[schemars(extend("minItems" = 1))]
    pub credentials: Vec<String>,
    /// Root issuer of the principals.
    #[schemars(length(min = 1, max = MAX_ISSUER_BYTES))]
    pub issuer: String,
    /// User attribute that is the principal's `sub`.
    #[serde(default)]
    #[schemars(extend("default" = "userName"))]
    pub subject: ScimSubject,
}

/// User attribute that is the principal's `sub`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ScimSubject {
    /// `userName`, as it is spelled.
    #[default]
    #[serde(rename = "userName")]
    UserName,
    /// `externalId`.
    #[serde(rename = "externalId")]
    ExternalId,
    /// The id that the user has here.
    #[serde(rename = "id")]
    Id,
    /// The e-mail address that is marked as primary, or the only one.
    #[serde(rename = "emails.primary")]
    PrimaryEmail,
}

/// A transmitter: it pushes security event tokens (RFC 8417) as RFC 8935 says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransmitterSettings {
    /// Name in logs and histories, up to 64 bytes.
    #[schemars(extend("minLength" = 1, "maxLength" = 64, "pattern" = NO_CONTROLS))]
    pub name: String,
    /// `transmitter` credentials for this transmitter only.
    #[schemars(extend("minItems" = 1))]
    pub credentials: Vec<String>,
    /// Expected `iss`.
    #[schemars(length(min = 1, max = MAX_ISSUER_BYTES))]
    pub issuer: String,
    /// Expected `aud`.
    #[schemars(length(min = 1))]
    pub audience: String,
    /// Where its keys are.
    #[schemars(with = "JwksFields", transform = one_place_of_keys)]
    pub jwks: JwksSettings,
    /// Accepted algorithms.
    #[serde(default = "EventAlgorithm::all")]
    #[schemars(extend("minItems" = 1, "default" = ["RS256", "ES256", "EdDSA"]))]
    pub algorithms: Vec<EventAlgorithm>,
    /// Root issuer of the principals.
    #[schemars(length(min = 1, max = MAX_ISSUER_BYTES))]
    pub principal_issuer: String,
    /// Subject identifier that names the principal.
    #[serde(default)]
    #[schemars(extend("default" = "iss_sub"))]
    pub subject: EventSubject,
    /// Maximum age, in seconds.
    #[serde(default = "day")]
    #[schemars(range(min = 60, max = 604_800))]
    pub max_age_s: u32,
}

/// A JWK set (RFC 7517): in exactly one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSettings {
    /// File, reloaded when it changes.
    File(PathBuf),
    /// A document that is fetched, and fetched again.
    Url {
        /// URL. `http` only on this machine.
        url: String,
        /// PEM file: CAs of its server. Default: the system's.
        ca: Option<PathBuf>,
    },
}

/// A signature algorithm (RFC 7518 section 3.1; RFC 8037 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum EventAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256; keys of 2,048 to 8,192 bits.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA with P-256 and SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519, also where the token calls it that.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// A format of subject identifiers (RFC 9493 section 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventSubject {
    /// `iss` must be the transmitter's issuer or the principals'; `sub` is the principal's.
    #[default]
    IssSub,
    /// `email` is the principal's `sub`.
    Email,
    /// `id` is.
    Opaque,
    /// What follows `acct:` in `uri` is.
    Account,
}

/// Checks both parts, except the credentials that they name.
///
/// # Errors
/// The first invalid member.
pub fn check(scim: &[ScimSettings], events: &[TransmitterSettings]) -> Result<(), SettingsError> {
    for (index, realm) in scim.iter().enumerate() {
        let place = format!("scim[{index}]");
        check_issuer(&format!("{place}.issuer"), &realm.issuer)?;
        if scim.iter().take(index).any(|other| other.issuer == realm.issuer) {
            return Err(SettingsError::at(
                format!("{place}.issuer"),
                "another realm has that issuer already: what one disables the other could enable. Give the realm the \
                 credentials of both",
            ));
        }
    }
    for (index, transmitter) in events.iter().enumerate() {
        let place = format!("security_events[{index}]");
        check_issuer(&format!("{place}.issuer"), &transmitter.issuer)?;
        check_issuer(&format!("{place}.principal_issuer"), &transmitter.principal_issuer)?;
        if transmitter.audience.is_empty() {
            return Err(SettingsError::at(
                format!("{place}.audience"),
                "write the transmitter's name for this receiver; without it, a token for another receiver would be \
                 accepted",
            ));
        }
        if transmitter.algorithms.is_empty() {
            return Err(SettingsError::at(
                format!("{place}.algorithms"),
                "allow at least one of RS256, ES256 and EdDSA, or leave it out for all of them",
            ));
        }
        if !(60..=604_800).contains(&transmitter.max_age_s) {
            return Err(SettingsError::at(
                format!("{place}.max_age_s"),
                "write 60 to 604800 seconds (a week)",
            ));
        }
        if let JwksSettings::Url { url, .. } = &transmitter.jwks
            && !is_safe(url)
        {
            return Err(SettingsError::at(
                format!("{place}.jwks.url"),
                "write an https URL; http is for this machine only (127.0.0.1, [::1], localhost): an attacker who \
                 changes the keys in transit could revoke any principal",
            ));
        }
    }
    Ok(())
}

fn check_issuer(place: &str, issuer: &str) -> Result<(), SettingsError> {
    match issuer.is_empty() || issuer.len() > MAX_ISSUER_BYTES {
        true => Err(SettingsError::at(place, "write the issuer's URI, as in iss")),
        false => Ok(()),
    }
}

// === impl ScimSubject ===

impl ScimSubject {
    /// The value in the configuration file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UserName => "userName",
            Self::ExternalId => "externalId",
            Self::Id => "id",
            Self::PrimaryEmail => "a primary value of emails",
        }
    }
}

// === impl TransmitterSettings ===

impl TransmitterSettings {
    /// Whether any other of them reports about principals of the same issuer.
    pub(crate) fn shares_principals_with_any(&self, all: &[Self]) -> bool {
        all.iter()
            .any(|other| other.name != self.name && other.principal_issuer == self.principal_issuer)
    }
}

// === impl EventAlgorithm ===

impl EventAlgorithm {
    fn all() -> Vec<Self> {
        vec![Self::Rs256, Self::Es256, Self::EdDsa]
    }
}

// === impl JwksSettings ===

impl<'de> Deserialize<'de> for JwksSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = JwksFields::deserialize(deserializer)?;
        match (fields.file, fields.url, fields.ca) {
            (Some(file), None, None) => Ok(Self::File(file)),
            (None, Some(url), ca) => Ok(Self::Url { url, ca }),
            _ => Err(D::Error::custom("write either file, or url and perhaps ca")),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JwksFields {
    /// File, reloaded when it changes.
    #[serde(default, deserialize_with = "present")]
    file: Option<PathBuf>,
    /// URL. `http` only on this machine.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("pattern" = "^https?://."))]
    url: Option<String>,
    /// PEM file: CAs of its server. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    ca: Option<PathBuf>,
}

/// A transmitter's keys come from a file or a URL.
fn one_place_of_keys(jwks: &mut Schema) {
    let places = json!([
        {"required": ["file"], "properties": {"ca": false}},
        {"required": ["url"]},
    ]);
    jwks.insert("oneOf".to_owned(), places);
}

/// An outage of a night must lose no events, because transmitters keep trying.
fn day() -> u32 {
    24 * 60 * 60
}

const MAX_ISSUER_BYTES: usize = 2048;
