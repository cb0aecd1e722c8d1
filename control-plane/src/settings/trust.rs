//! `trust_anchors` in the configuration file. The entries are those of the filter's field with this name.

use std::cell::RefCell;

use credence_delegation::trust::{self, Entry};
use credence_delegation::{Findings, Location, Remark, TrustAnchors};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use credence_runtime::settings::{SettingsError, present};

/// An issuer whose signed statements count, and whose delegations can be checked as chains.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(transform = one_source_of_keys)]
#[serde(deny_unknown_fields)]
pub struct TrustAnchorSettings {
    /// The `iss`, compared exactly.
    #[schemars(extend("pattern" = ABSOLUTE_URI, "maxLength" = 1024))]
    pub issuer: String,
    /// One public key. None for a did:key.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "jwk")]
    pub jwk: Option<Box<RawValue>>,
    /// Several public keys; `kid` selects one.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "jwk_set")]
    pub jwks: Option<Box<RawValue>>,
    /// Instead: the keys that the control plane fetches.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("const" = "control_plane"))]
    pub keys: Option<String>,
    /// Accepted `alg`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(transform = algorithms)]
    pub algorithms: Option<Vec<String>>,
    /// Whether `sub` names the principal.
    #[serde(default)]
    pub asserts_subjects: bool,
    /// What its JWT access tokens grant.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("type" = "object"))]
    pub access_tokens: Option<Box<RawValue>>,
    /// Whether it signs delegations. Default: without `access_tokens`.
    #[serde(default)]
    pub delegations: Option<bool>,
    /// Another issuer with the same principals by `sub`.
    #[serde(default, deserialize_with = "present")]
    pub same_principals_as: Option<String>,
}

/// The anchors of the entries.
pub(crate) fn anchors(entries: &[TrustAnchorSettings]) -> Result<TrustAnchors, SettingsError> {
    let (anchors, found) = trust(entries);
    match found.problems.into_iter().next() {
        Some(problem) => Err(SettingsError::at(problem.path, problem.message)),
        None => Ok(anchors),
    }
}

/// Remarks on valid entries.
pub(crate) fn notes(entries: &[TrustAnchorSettings]) -> Vec<Remark> {
    trust(entries).1.notes
}

fn trust(entries: &[TrustAnchorSettings]) -> (TrustAnchors, Findings) {
    let entries = entries.iter().map(|entry| Entry {
        issuer: entry.issuer.clone(),
        jwk: entry.jwk.clone(),
        jwks: entry.jwks.clone(),
        keys: entry.keys.clone(),
        same_principals_as: entry.same_principals_as.clone(),
        algorithms: entry.algorithms.clone(),
        asserts_subjects: entry.asserts_subjects,
        access_tokens: entry.access_tokens.clone(),
        delegations: entry.delegations,
    });
    let findings = RefCell::default();
    let anchors = trust::trust(&Location::root(&findings).field("trust_anchors"), entries.collect());
    (anchors, findings.into_inner())
}

/// A public JWK (RFC 7517) of an algorithm that the protocol knows.
fn jwk(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["kty"],
        "anyOf": [{"required": ["crv", "x"]}, {"required": ["n", "e"]}],
        "properties": {
            "kty": {"enum": ["OKP", "EC", "RSA"]},
            "crv": {"enum": ["Ed25519", "P-256", "secp256k1"]},
            "x": {"type": "string"},
            "y": {"type": "string"},
            "d": false,
        },
    })
}

/// A JWK set.
fn jwk_set(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["keys"],
        "properties": {"keys": {"type": "array", "items": {"type": "object", "required": ["kty"]}}},
    })
}

/// An anchor's keys are in one member, or in its name.
fn one_source_of_keys(anchor: &mut Schema) {
    anchor.insert(
        "if".to_owned(),
        json!({"properties": {"issuer": {"pattern": "^did:key:"}}}),
    );
    anchor.insert("then".to_owned(), json!({"properties": {"jwks": false}}));
    let sources = json!({"oneOf": [{"required": ["jwk"]}, {"required": ["jwks"]}, {"required": ["keys"]}]});
    anchor.insert("else".to_owned(), sources);
}

/// The algorithms of the protocol's signatures.
fn algorithms(algorithms: &mut Schema) {
    let names = credence_delegation::Algorithm::OF_ISSUERS.map(credence_delegation::Algorithm::name);
    for (keyword, value) in [
        ("items", json!({"enum": names})),
        ("minItems", json!(1)),
        ("uniqueItems", json!(true)),
        ("default", json!(["Ed25519"])),
    ] {
        algorithms.insert(keyword.to_owned(), value);
    }
}

const ABSOLUTE_URI: &str = r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$";
