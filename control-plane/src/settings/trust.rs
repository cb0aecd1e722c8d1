//! `trust_anchors` of the configuration file: the filter's field of this name, entry for entry.

use credence_delegation::TrustAnchors;
use credence_delegation::trust::{self, Entry, Remark, Trust};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{SettingsError, present};

/// Who may sign revocation statements, and whose delegations can be asked about as chains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(transform = super::schema::one_source_of_keys)]
#[serde(deny_unknown_fields)]
pub struct TrustAnchorSettings {
    /// A URI, compared exactly with `iss`.
    #[schemars(extend("pattern" = super::schema::ABSOLUTE_URI, "maxLength" = 1024))]
    pub issuer: String,
    /// One public key of the issuer; left out for a did:key.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<super::schema::Jwk>")]
    pub jwk: Option<JsonText>,
    /// Several, among which `kid` selects.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<super::schema::JwkSet>")]
    pub jwks: Option<JsonText>,
    /// What signatures may name in `alg`; Ed25519 alone if absent.
    #[serde(default, deserialize_with = "present")]
    #[schemars(transform = super::schema::algorithms)]
    pub algorithms: Option<Vec<String>>,
    /// Whether the issuer speaks for several people, so that `sub` names the principal.
    #[serde(default)]
    pub asserts_subjects: bool,
}

/// JSON that is read later, by the protocol's own parser.
#[derive(Debug, Clone)]
pub struct JsonText(Box<RawValue>);

/// The anchors that the entries come to.
pub(crate) fn anchors(entries: &[TrustAnchorSettings]) -> Result<TrustAnchors, SettingsError> {
    let trust = trust(entries);
    match trust.problems.into_iter().next() {
        Some(problem) => Err(SettingsError::at(problem.path, problem.message)),
        None => Ok(trust.anchors),
    }
}

/// What there is to know about entries that are no mistakes.
pub(crate) fn notes(entries: &[TrustAnchorSettings]) -> Vec<Remark> {
    trust(entries).notes
}

fn trust(entries: &[TrustAnchorSettings]) -> Trust {
    let entries = entries.iter().map(|entry| Entry {
        issuer: entry.issuer.clone(),
        jwk: entry.jwk.clone().map(|text| text.0),
        jwks: entry.jwks.clone().map(|text| text.0),
        algorithms: entry.algorithms.clone(),
        asserts_subjects: entry.asserts_subjects,
    });
    trust::trust(entries.collect())
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for JsonText {}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self)
    }
}
