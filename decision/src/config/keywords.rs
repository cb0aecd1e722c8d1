//! Keywords of the JSON Schema that the types in `file` carry: what `compile` enforces beyond names and types.

use std::time::Duration;

use credence_delegation::Algorithm;
use schemars::{Schema, json_schema};

pub(super) use super::duration;
pub(super) use super::ranges::*;

/// Text without white space and control characters.
pub(super) const VISIBLE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]+$";

/// A method in capital letters.
pub(super) const METHOD: &str = "^[A-Z0-9!#$%&'*+.^_`|~-]+$";

/// A header's name in lower case (RFC 9110, section 5.6.2).
pub(super) const HEADER_NAME: &str = "^[a-z0-9!#$%&'*+.^_`|~-]+$";

/// A header that is removed from every request.
pub(super) const OUR_HEADER: &str = "^x[-_]delegation[-_]";

/// A place in a JSON body (RFC 6901, section 3).
pub(super) const POINTER: &str = "^(/([^~/]|~[01])*)*$";

/// A duration; its range is in its description, since a pattern could not say it.
pub(super) const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";

/// A duration in whole seconds, as it is written.
pub(super) fn seconds(seconds: u64) -> String {
    duration::display(Duration::from_secs(seconds))
}

/// The names of the signature algorithms.
pub(super) fn algorithms() -> [&'static str; Algorithm::ALL.len()] {
    Algorithm::ALL.map(Algorithm::name)
}

/// A header's name.
pub(super) fn header() -> Schema {
    json_schema!({"pattern": HEADER_NAME, "not": {"pattern": OUR_HEADER}})
}

pub(super) fn public_key(schema: &mut Schema) {
    add(
        schema,
        json_schema!({
            "type": "object",
            "required": ["kty", "crv", "x"],
            "properties": {
                "kty": {"enum": ["OKP", "EC"]},
                "crv": {"enum": ["Ed25519", "P-256", "secp256k1"]},
                "x": {"type": "string"},
                "y": {"type": "string"},
                "d": false,
            },
        }),
    );
}

pub(super) fn public_keys(schema: &mut Schema) {
    add(
        schema,
        json_schema!({
            "type": "object",
            "required": ["keys"],
            "properties": {"keys": {"type": "array", "items": {"type": "object", "required": ["kty"]}}},
        }),
    );
}

pub(super) fn one_source_of_keys(schema: &mut Schema) {
    add(
        schema,
        json_schema!({
            "if": {"properties": {"issuer": {"pattern": "^did:key:"}}},
            "then": {"properties": {"jwks": false}},
            "else": {"oneOf": [{"required": ["jwk"]}, {"required": ["jwks"]}]},
        }),
    );
}

pub(super) fn one_source(schema: &mut Schema) {
    let named = ["path", "query", "header", "body"].map(|source| json_schema!({"required": [source]}));
    let flag = |source: &str| json_schema!({"required": [source], "properties": {source: {"const": true}}});
    let sources: Vec<_> = named.into_iter().chain(["host", "method"].map(flag)).collect();
    add(schema, json_schema!({"oneOf": sources}));
}

pub(super) fn add(schema: &mut Schema, mut keywords: Schema) {
    schema.ensure_object().append(keywords.ensure_object());
}
