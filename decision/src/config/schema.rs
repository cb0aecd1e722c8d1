//! The configuration's JSON Schema (draft 2020-12), for editors and for whoever generates configurations.
//!
//! Fields, types and descriptions come from the types in `file`. What those types cannot say, the limits that
//! `compile` enforces, stands here by place. The schema is never stricter than the filter: where a limit is in bytes,
//! or spans several fields, it says less, and `credence config check` says the rest.

use std::borrow::Cow;
use std::time::Duration;

use credence_delegation::Algorithm;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::{duration as durations, file, ranges};

/// The schema as JSON text.
pub fn json_schema() -> String {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(refuse_null));
    let mut schema = settings.into_generator().into_root_schema_for::<file::File>();
    for (place, keywords) in limits() {
        if let Some(target) = schema
            .pointer_mut(&pointer(place))
            .and_then(|value| <&mut Schema>::try_from(value).ok())
        {
            add(target, keywords);
        }
    }
    // A schema always serialises: its members have texts as names.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// What `compile` asks beyond types, by place as docs/configuration.md writes it; the empty place is the whole file.
fn limits() -> Vec<(&'static str, Schema)> {
    [whole_file(), trust_and_control_plane(), rules(), matches()].concat()
}

/// The file itself, and what stands in it by itself.
fn whole_file() -> Vec<(&'static str, Schema)> {
    vec![
        (
            "",
            json_schema!({
                "title": "Configuration of Credence's filter",
                "description": "What Envoy hands to the plugin. docs/configuration.md explains every field.",
            }),
        ),
        ("audience", audience()),
        ("audience[]", visible()),
        ("default", json_schema!({"default": "deny"})),
        ("audit.arguments", json_schema!({"default": "hash"})),
        ("audit.on_overflow", json_schema!({"default": "shed"})),
        ("audit.record", json_schema!({"default": "all"})),
        ("audit.response_status", json_schema!({"default": false})),
        ("identity.headers", json_schema!({"default": "separate"})),
        ("identity.filter_state", json_schema!({"uniqueItems": true})),
        ("mode", json_schema!({"default": "enforce"})),
        ("headers.delegation", header()),
        ("headers.delegation", json_schema!({"default": "delegation"})),
        ("headers.proof", header()),
        ("headers.proof", json_schema!({"default": "delegation-proof"})),
        ("paths.allow", json_schema!({"uniqueItems": true})),
        ("hosts.allow", json_schema!({"uniqueItems": true})),
        ("pop_window", seconds(ranges::DEFAULT_PROOF_WINDOW)),
        ("pop_clock_skew", duration(None)),
        ("max_iat_skew", seconds(ranges::DEFAULT_IAT_SKEW)),
        ("max_token_lifetime", seconds(ranges::DEFAULT_TOKEN_LIFETIME)),
    ]
}

/// Whom to believe.
fn trust_and_control_plane() -> Vec<(&'static str, Schema)> {
    let algorithms = json_schema!({
        "items": {"enum": Algorithm::ALL.map(Algorithm::name)},
        "minItems": 1,
        "uniqueItems": true,
        "default": ["Ed25519"],
    });
    vec![
        ("trust_anchors", json_schema!({"minItems": 1, "maxItems": 256})),
        ("trust_anchors[]", one_source_of_keys()),
        (
            "trust_anchors[].issuer",
            json_schema!({"pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$", "maxLength": 1024}),
        ),
        (
            "trust_anchors[].jwk",
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
        ),
        (
            "trust_anchors[].jwks",
            json_schema!({
                "type": "object",
                "required": ["keys"],
                "properties": {"keys": {"type": "array", "items": {"type": "object", "required": ["kty"]}}},
            }),
        ),
        ("trust_anchors[].algorithms", algorithms.clone()),
        ("holder_algorithms", algorithms),
        ("control_plane.cluster", visible()),
        ("control_plane.log_id", json_schema!({"pattern": "^[0-9a-f]{32}$"})),
        ("control_plane.max_staleness", duration(Some(ranges::DEFAULT_STALENESS))),
        ("control_plane.ping_interval", duration(None)),
        (
            "control_plane.wait_for_snapshot",
            duration(Some(ranges::MAX_SNAPSHOT_WAIT)),
        ),
    ]
}

/// What a rule asks.
fn rules() -> Vec<(&'static str, Schema)> {
    vec![
        ("rules", json_schema!({"minItems": 1, "maxItems": ranges::MAX_RULES})),
        ("rules[]", public_or_with_a_tool()),
        ("rules[].name", json_schema!({"pattern": "^[A-Za-z0-9_.-]{1,128}$"})),
        ("rules[].tool", visible()),
        (
            "rules[].args",
            json_schema!({
                "maxProperties": 64,
                "propertyNames": {"minLength": 1, "maxLength": 128, "not": {"const": "*"}},
            }),
        ),
        ("rules[].args.*", one_source_of_an_argument()),
        ("rules[].args.*.query", member_name()),
        ("rules[].args.*.header", header()),
        ("rules[].args.*.body", body_pointer()),
        ("rules[].args.*.type", json_schema!({"default": "string"})),
        (
            "rules[].ignore_query",
            json_schema!({"maxItems": 64, "uniqueItems": true}),
        ),
        ("rules[].ignore_query[]", member_name()),
        ("rules[].ignore_body", json_schema!({"default": false})),
        (
            "rules[].ignore_members",
            json_schema!({"maxItems": 64, "uniqueItems": true}),
        ),
        ("rules[].ignore_members[]", body_pointer()),
        ("rules[].audience", audience()),
        ("rules[].audience[]", visible()),
        ("rules[].proof", json_schema!({"default": "pop"})),
        ("rules[].nonce", json_schema!({"default": false})),
        ("rules[].peer_validated", json_schema!({"default": false})),
        ("rules[].on_stale.allow_cached_for", duration(None)),
        ("rules[].forward", json_schema!({"default": false})),
        ("rules[].clusters", json_schema!({"minItems": 1, "maxItems": 16})),
        ("rules[].clusters[]", visible()),
    ]
}

/// Which requests a rule is for.
fn matches() -> Vec<(&'static str, Schema)> {
    vec![
        ("rules[].match.hosts", json_schema!({"minItems": 1, "maxItems": 64})),
        ("rules[].match.hosts[]", json_schema!({"pattern": r"^[^A-Z/\s]+$"})),
        ("rules[].match.methods", json_schema!({"minItems": 1, "maxItems": 16})),
        (
            "rules[].match.methods[]",
            json_schema!({"pattern": "^[A-Z0-9!#$%&'*+.^_`|~-]+$", "not": {"const": "CONNECT"}}),
        ),
        ("rules[].match.path", json_schema!({"pattern": "^/", "maxLength": 1024})),
        (
            "rules[].match.headers",
            json_schema!({"maxProperties": 16, "propertyNames": header()}),
        ),
        ("rules[].match.headers.*", one_test()),
        ("rules[].match.headers.*.prefix", json_schema!({"minLength": 1})),
        ("rules[].match.headers.*.suffix", json_schema!({"minLength": 1})),
        ("rules[].match.headers.*.present", json_schema!({"const": true})),
        ("rules[].match.headers.*.absent", json_schema!({"const": true})),
        (
            "rules[].match.query",
            json_schema!({"maxProperties": 16, "propertyNames": member_name()}),
        ),
        ("rules[].match.query.*", one_test()),
        ("rules[].match.query.*.present", json_schema!({"const": true})),
        ("rules[].match.query.*.absent", json_schema!({"const": true})),
    ]
}

/// Sizes of a service.
fn audience() -> Schema {
    json_schema!({"minItems": 1, "maxItems": ranges::MAX_AUDIENCE, "uniqueItems": true})
}

/// Text without white space and control characters.
fn visible() -> Schema {
    json_schema!({"pattern": VISIBLE, "maxLength": 1024})
}

/// A header's name.
fn header() -> Schema {
    json_schema!({"pattern": HEADER_NAME, "not": {"pattern": "^x[-_]delegation[-_]"}})
}

/// A duration; its range is in its description, since a pattern could not say it.
fn duration(default: Option<Duration>) -> Schema {
    let mut keywords = json_schema!({"pattern": "^[0-9]+(ms|s|m|h|d)$"});
    if let Some(default) = default {
        keywords.insert("default".to_owned(), json!(durations::display(default)));
    }
    keywords
}

/// A duration in whole seconds.
fn seconds(default: u64) -> Schema {
    duration(Some(Duration::from_secs(default)))
}

/// The name of a query member.
fn member_name() -> Schema {
    json_schema!({"minLength": 1, "maxLength": 128})
}

/// One condition asks one thing.
fn one_test() -> Schema {
    json_schema!({"minProperties": 1, "maxProperties": 1})
}

/// A place in a JSON body (RFC 6901, section 3).
fn body_pointer() -> Schema {
    json_schema!({"pattern": "^(/([^~/]|~[01])*)*$"})
}

fn one_source_of_keys() -> Schema {
    json_schema!({
        "if": {"properties": {"issuer": {"pattern": "^did:key:"}}},
        "then": {"properties": {"jwks": false}},
        "else": {"oneOf": [{"required": ["jwk"]}, {"required": ["jwks"]}]},
    })
}

fn public_or_with_a_tool() -> Schema {
    let absent: serde_json::Map<_, _> = NOT_FOR_PUBLIC
        .iter()
        .map(|field| ((*field).to_owned(), json!(false)))
        .collect();
    json_schema!({
        "if": {"required": ["public"], "properties": {"public": {"const": true}}},
        "then": {"properties": absent},
        "else": {"required": ["tool"]},
    })
}

fn one_source_of_an_argument() -> Schema {
    let named = ["path", "query", "header", "body"].map(|source| json!({"required": [source]}));
    let flags = ["host", "method"].map(|source| json!({"required": [source], "properties": {source: {"const": true}}}));
    json_schema!({"oneOf": named.into_iter().chain(flags).collect::<Vec<_>>()})
}

impl<const LEAST: usize, const MOST: usize, const DEFAULT: usize> JsonSchema for file::Count<LEAST, MOST, DEFAULT> {
    fn schema_name() -> Cow<'static, str> {
        format!("Count{LEAST}To{MOST}Or{DEFAULT}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": LEAST, "maximum": MOST, "default": DEFAULT})
    }
}

impl<T: JsonSchema> JsonSchema for file::Members<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("MembersOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<T>()})
    }
}

/// An optional field may be left out, but is never `null`, which schemars allows it to be.
fn refuse_null(schema: &mut Schema) {
    let null = json!("null");
    if let Some(types) = schema.get_mut("type").and_then(|types| types.as_array_mut()) {
        types.retain(|kind| *kind != null);
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let alternatives = schema.get("anyOf").and_then(|any| any.as_array());
    let others: Vec<_> = alternatives
        .into_iter()
        .flatten()
        .filter(|other| other.get("type") != Some(&null))
        .cloned()
        .collect();
    if let [only] = &others[..]
        && let Ok(mut only) = Schema::try_from(only.clone())
    {
        schema.remove("anyOf");
        // The field's description says more than its type's.
        for (keyword, value) in std::mem::take(only.ensure_object()) {
            schema.ensure_object().entry(keyword).or_insert(value);
        }
    }
    if schema.get("default").is_some_and(|default| default.is_null()) {
        schema.remove("default");
    }
}

fn add(schema: &mut Schema, mut keywords: Schema) {
    schema.ensure_object().append(keywords.ensure_object());
}

/// Where the schema describes a place: `rules[].args.*.path` is
/// `/properties/rules/items/properties/args/additionalProperties/properties/path`.
fn pointer(place: &str) -> String {
    let step = |segment: &str| match segment.trim_end_matches("[]") {
        "" => String::new(),
        "*" => "/additionalProperties".to_owned(),
        name => format!("/properties/{name}{}", "/items".repeat(segment.matches("[]").count())),
    };
    place.split('.').map(step).collect()
}

/// Text without white space and control characters.
const VISIBLE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]+$";

/// A header's name in lower case (RFC 9110, section 5.6.2).
const HEADER_NAME: &str = "^[a-z0-9!#$%&'*+.^_`|~-]+$";

/// What a public rule may not have: it reads no delegation.
const NOT_FOR_PUBLIC: [&str; 12] = [
    "tool",
    "args",
    "ignore_query",
    "ignore_body",
    "ignore_members",
    "audience",
    "proof",
    "forward",
    "mode",
    "on_stale",
    "nonce",
    "peer_validated",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_place_in_the_schema() {
        let schema = SchemaSettings::draft2020_12()
            .with(|settings| settings.inline_subschemas = true)
            .into_generator()
            .into_root_schema_for::<file::File>();
        for (place, _) in limits() {
            assert!(schema.pointer(&pointer(place)).is_some(), "there is no field {place}");
        }
    }
}
