//! The configuration file's JSON Schema (draft 2020-12), for editors and for whoever generates configurations.
//!
//! Members, types and descriptions come from the types that read the file, limits from the attributes beside them. The
//! schema is never stricter than [`Settings::check`]: where a limit is in bytes or spans several members it says less, and
//! `credence config check --control-plane` says the rest.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::Settings;

/// The schema as JSON text.
#[must_use]
pub fn settings_schema() -> String {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(refuse_null))
        .with_transform(RecursiveTransform(forget_widths));
    let mut schema = settings.into_generator().into_root_schema_for::<Settings>();
    schema.insert("title".to_owned(), json!("Configuration of Credence's control plane"));
    schema.insert(
        "description".to_owned(),
        json!("The file that credence serve --config reads. docs/control-plane.md explains every member."),
    );
    // A schema always serialises: its members have texts as names.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A public JWK (RFC 7517) of an algorithm that the protocol knows.
pub(super) struct Jwk;

/// A JWK set.
pub(super) struct JwkSet;

impl JsonSchema for Jwk {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Jwk".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
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
        })
    }
}

impl JsonSchema for JwkSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JwkSet".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": ["keys"],
            "properties": {"keys": {"type": "array", "items": {"type": "object", "required": ["kty"]}}},
        })
    }
}

/// An anchor has its keys in one place, or in its name.
pub(super) fn one_source_of_keys(anchor: &mut Schema) {
    anchor.insert(
        "if".to_owned(),
        json!({"properties": {"issuer": {"pattern": "^did:key:"}}}),
    );
    anchor.insert("then".to_owned(), json!({"properties": {"jwks": false}}));
    let sources = json!({"oneOf": [{"required": ["jwk"]}, {"required": ["jwks"]}]});
    anchor.insert("else".to_owned(), sources);
}

/// A transmitter has its keys in a file or at a URL.
pub(crate) fn one_place_of_keys(jwks: &mut Schema) {
    let places = json!([
        {"required": ["file"], "properties": {"ca": false}},
        {"required": ["url"]},
    ]);
    jwks.insert("oneOf".to_owned(), places);
}

/// What the protocol's signatures may name in `alg`.
pub(super) fn algorithms(algorithms: &mut Schema) {
    let names = credence_delegation::Algorithm::ALL.map(credence_delegation::Algorithm::name);
    for (keyword, value) in [
        ("items", json!({"enum": names})),
        ("minItems", json!(1)),
        ("uniqueItems", json!(true)),
        ("default", json!(["Ed25519"])),
    ] {
        algorithms.insert(keyword.to_owned(), value);
    }
}

/// `uint32` and the like are no formats that validators know, and strict ones refuse them. The range says it all.
fn forget_widths(schema: &mut Schema) {
    if schema.get("type").is_some_and(|kind| kind == "integer") {
        schema.remove("format");
    }
}

/// A member that may be left out is never null, which schemars takes an `Option` to mean.
fn refuse_null(schema: &mut Schema) {
    if schema.get("default").is_some_and(|default| default.is_null()) {
        schema.remove("default");
    }
    if let Some(kinds) = schema.get_mut("type").and_then(|kinds| kinds.as_array_mut()) {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let Some(alternatives) = schema.get_mut("anyOf").and_then(|any| any.as_array_mut()) else {
        return;
    };
    alternatives.retain(|alternative| alternative.get("type") != Some(&json!("null")));
    if let [only] = &mut alternatives[..] {
        let only = only.take();
        schema.remove("anyOf");
        for (keyword, value) in only.as_object().cloned().unwrap_or_default() {
            // What is said of the member counts more than what is said of its type.
            schema.ensure_object().entry(keyword).or_insert(value);
        }
    }
}

/// Text without control characters.
pub(crate) const NO_CONTROLS: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";

pub(super) const RFC_3339: &str = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$";

/// A URI, or a pattern of them: a scheme, an authority that is never left open, and a `*` nowhere but behind a final `/`.
pub(super) const SUBJECT_URI: &str = r"^[^*]*://[^*]+(/\*)?$";

/// A host name that is no pattern.
pub(super) const SUBJECT_NAME: &str = r"^[^*]+$";

pub(super) const ABSOLUTE_URI: &str = r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$";
