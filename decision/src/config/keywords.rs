//! Keywords of the JSON Schema for the types in `file`: the checks of `compile` beyond names and types.

use std::time::Duration;

use credence_delegation::Algorithm;
use schemars::{Schema, SchemaGenerator, json_schema};

pub(super) use super::duration;
pub(super) use super::ranges::*;
use crate::mcp::Version;

/// Text without white space and control characters.
pub(super) const VISIBLE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]+$";

/// A header's name in lower case (RFC 9110, section 5.6.2).
pub(super) const HEADER_NAME: &str = "^[a-z0-9!#$%&'*+.^_`|~-]+$";

/// A header that is removed from every request.
pub(super) const OUR_HEADER: &str = "^x[-_]delegation[-_]";

/// A place in a JSON body (RFC 6901, section 3).
pub(super) const POINTER: &str = "^(/([^~/]|~[01])*)*$";

/// An origin (RFC 6454).
pub(super) const ORIGIN: &str = r"^https?://[^/?#@\s]+$";

/// A duration. Its range is in its description, since a pattern cannot express it.
pub(super) const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";

/// A duration in whole seconds, as it is written.
pub(super) fn seconds(seconds: u64) -> String {
    duration::display(Duration::from_secs(seconds))
}

/// The names of the signature algorithms.
pub(super) fn algorithms() -> [&'static str; Algorithm::ALL.len()] {
    Algorithm::ALL.map(Algorithm::name)
}

/// The names of the signature algorithms of issuers.
pub(super) fn issuer_algorithms() -> [&'static str; Algorithm::OF_ISSUERS.len()] {
    Algorithm::OF_ISSUERS.map(Algorithm::name)
}

/// A header's name.
pub(super) fn header() -> Schema {
    json_schema!({"pattern": HEADER_NAME, "not": {"pattern": OUR_HEADER}})
}

/// A method in capital letters.
pub(super) fn method() -> Schema {
    json_schema!({"type": "string", "pattern": "^[A-Z0-9!#$%&'*+.^_`|~-]+$", "not": {"const": "CONNECT"}})
}

/// The name of an argument.
pub(super) fn argument_name() -> Schema {
    json_schema!({"minLength": 1, "maxLength": 128, "not": {"const": "*"}})
}

/// What the requests of a rule call.
pub(super) fn one_call() -> [Schema; 2] {
    ["tool", "mcp"].map(|call| json_schema!({"required": [call]}))
}

/// The versions of MCP.
pub(super) fn versions() -> [&'static str; Version::ALL.len()] {
    Version::ALL.map(Version::name)
}

/// A method of MCP that is not `tools/call`.
pub(super) fn method_of_mcp() -> Schema {
    json_schema!({"minLength": 1, "maxLength": 128, "not": {"const": "tools/call"}})
}

/// A rule without requirements.
pub(super) fn is_public() -> Schema {
    json_schema!({"required": ["public"], "properties": {"public": {"const": true}}})
}

/// The members of a public key.
pub(super) fn key_members() -> Schema {
    json_schema!({
        "kty": {"enum": ["OKP", "EC", "RSA"]},
        "crv": {"enum": ["Ed25519", "P-256", "secp256k1"]},
        "x": {"type": "string"},
        "y": {"type": "string"},
        "d": false,
    })
}

/// What an issuer's access tokens grant; `delegation::access_token_settings` reads it.
pub(super) fn access_tokens(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "What its JWT access tokens grant.",
        "additionalProperties": false,
        "properties": {
            "typ": {
                "description": "Media type. `JWT` accepts tokens without one, too.",
                "enum": ["at+jwt", "JWT"],
                "default": "at+jwt",
            },
            "scope_claim": {
                "description": "Claim with the scopes.",
                "enum": ["scope", "scp", "roles"],
                "default": "scope",
            },
            "scopes": {
                "description": "Tools of each scope, as in a delegation.",
                "type": "object",
                "maxProperties": 256,
            },
            "authorization_details": {
                "type": "object",
                "maxProperties": 32,
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["tools"],
                    "properties": {
                        "tools": {
                            "description": "Tools, with `from` and `number_from` for the entry's values.",
                            "type": "object",
                        },
                        "requires": {
                            "description": "Constraints on members, by JSON pointer.",
                            "type": "object",
                            "maxProperties": 32,
                        },
                        "ignore": {
                            "description": "Pointers to members that limit nothing.",
                            "type": "array",
                            "items": {"type": "string", "pattern": "^/"},
                        },
                    },
                },
            },
            "delegation_depth": {
                "description": "How often the holder of `cnf.jwk` may hand it on.",
                "type": "integer",
                "minimum": 0,
                "maximum": 8,
                "default": 0,
            },
        },
    })
}

/// An anchor has its keys, or has them fetched.
pub(super) fn one_source_of_keys() -> [Schema; 3] {
    ["jwk", "jwks", "keys"].map(|source| json_schema!({"required": [source]}))
}

/// A key has the members of a curve or those of RSA.
pub(super) fn key_shapes() -> [Schema; 2] {
    [
        json_schema!({"required": ["crv", "x"]}),
        json_schema!({"required": ["n", "e"]}),
    ]
}

/// The keys of a set.
pub(super) fn keys() -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "required": ["kty"]}})
}

/// An argument has exactly one source.
pub(super) fn one_source() -> Vec<Schema> {
    let named = ["path", "query", "header", "body"].map(|source| json_schema!({"required": [source]}));
    let flags =
        ["host", "method"].map(|source| json_schema!({"required": [source], "properties": {source: {"const": true}}}));
    named.into_iter().chain(flags).collect()
}
