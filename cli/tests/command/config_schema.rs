//! `credence config schema` agrees with the filter, the reference and the ready-to-use files.

#![allow(clippy::disallowed_types)] // schemas and examples of our own

use std::path::{Path, PathBuf};

use crate::common::Workbench;
use boon::{Compiler, SchemaIndex, Schemas};
use credence_decision::config::Policy;
use serde_json::{Value, json};

#[test]
fn the_committed_schema_is_the_one_that_is_printed() {
    let committed = std::fs::read_to_string(repository().join(COMMITTED)).unwrap_or_default();
    assert!(
        committed == printed(),
        "{COMMITTED} is out of date; refresh it: cargo run -p credence -- config schema > {COMMITTED}"
    );
}

#[test]
fn every_example_and_ready_to_use_file_is_valid() {
    let schema = Schema::printed();
    let examples = examples();
    assert!(examples.len() >= 5, "{}", examples.len());
    for (name, example) in examples {
        if let Err(error) = schema.validate(&example) {
            panic!("{name}: {error}");
        }
        Policy::parse(example.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_configuration_that_the_filter_loads_is_valid() {
    let schema = Schema::printed();
    for (pointer, value) in [
        ("/limits", json!({"delegation_depth": 2.0, "cache_bytes": 1e6})),
        ("/trust_anchors/0", json!({"issuer": DID_KEY})),
        ("/trust_anchors/0/algorithms", json!(["Ed25519", "EdDSA"])),
        ("/trust_anchors/0/jwk/kid", json!("a")),
        ("/audience", json!(["urn:example:ä"])),
        ("/max_token_lifetime", json!("366d")),
        ("/headers", json!({"delegation": "authority"})),
        ("/rules/0/match/hosts", json!(["*.example", "::1", "a_b.example"])),
        ("/rules/0/match/methods", json!(["PROPFIND", "M-SEARCH"])),
        (
            "/rules/0/args/größe",
            json!({"header": "x-size", "type": "integer", "optional": true}),
        ),
        ("/rules/0/args/service", json!({"host": true})),
        ("/rules/0/args/verb", json!({"method": true, "host": false})),
        (
            "/rules/0/args/lines",
            json!({"body": "/order/lines/a~1b", "type": "json"}),
        ),
        (
            "/rules/0/match/headers",
            json!({"x-version": {"prefix": "2."}, "x-test": {"absent": true}}),
        ),
        (
            "/rules/0/match/query",
            json!({"amount": {"present": true}, "kind": {"exact": ""}}),
        ),
        ("/rules/0/public", json!(false)),
        ("/rules/1/upgrade", json!(true)),
        ("/rules/0/clusters", json!(["outbound|9000||a.example", "b"])),
        ("/hosts", json!({"allow": ["port", "trailing_dot"]})),
        (
            "/paths",
            json!({"allow": ["letter_case", "trailing_slash", "format_suffix"]}),
        ),
    ] {
        let changed = with(pointer, value);
        let loaded = Policy::parse(changed.to_string().as_bytes());
        assert!(loaded.is_ok(), "{pointer}: {}", loaded.unwrap_err());
        assert!(
            schema.validate(&changed).is_ok(),
            "{pointer} should be valid: {changed}"
        );
    }
}

#[test]
fn errors_are_refused_by_the_filter_and_by_the_schema() {
    let schema = Schema::printed();
    let errors = [
        // Names.
        ("/colour", json!("red")),
        ("/trust_anchors/0/key", json!({})),
        ("/control_plane/address", json!("a")),
        ("/rules/0/tools", json!("a")),
        ("/rules/0/match/method", json!(["GET"])),
        ("/rules/0/args/amount/default", json!(5)),
        ("/headers", json!({"authorization": "a"})),
        ("/limits", json!({"tokens": 5})),
        ("/audit", json!({"ring": 5})),
        // Types.
        ("/audience", json!("https://payments.example")),
        ("/audience/0", json!(5)),
        ("/trust_anchors/0/asserts_subjects", json!("yes")),
        ("/rules", json!({})),
        ("/rules/0/tool", json!(null)),
        ("/rules/0/match/hosts", json!(null)),
        ("/rules/0/args/amount", json!("amount")),
        ("/limits", json!({"cache_bytes": "1MB"})),
        ("/limits", json!({"cache_bytes": 0.5})),
        ("/limits", json!({"cache_bytes": -1})),
        ("/pop_window", json!(30)),
        // Enumerations.
        ("/default", json!("maybe")),
        ("/rules/0/proof", json!("bearer")),
        ("/rules/0/args/amount/type", json!("float")),
        ("/audit", json!({"on_overflow": "drop"})),
        ("/holder_algorithms", json!(["RS256"])),
        // Limits and patterns.
        ("/audience", json!([])),
        ("/audience", json!(["a", "a"])),
        ("/audience", json!(["a b"])),
        ("/trust_anchors", json!([])),
        ("/trust_anchors/0/issuer", json!("id")),
        ("/trust_anchors/0/algorithms", json!([])),
        ("/trust_anchors/0/jwk", json!({"kty": "OKP"})),
        ("/trust_anchors/0/jwk/d", json!("secret")),
        ("/trust_anchors/0/jwks", json!({"keys": []})),
        ("/trust_anchors/0", json!({"issuer": "https://id.example.com"})),
        ("/trust_anchors/0", json!({"issuer": DID_KEY, "jwks": {"keys": []}})),
        ("/control_plane/cluster", json!("")),
        ("/control_plane/log_id", json!("ABC")),
        ("/control_plane/max_staleness", json!("5")),
        ("/headers", json!({"proof": "Proof"})),
        ("/headers", json!({"proof": "x_delegation_proof"})),
        ("/rules", json!([])),
        ("/rules/0/name", json!("a b")),
        ("/rules/0/match/path", json!("v1")),
        ("/rules/0/clusters", json!([])),
        ("/rules/0/clusters", json!(["a b"])),
        ("/hosts", json!({"allow": ["any"]})),
        ("/hosts", json!({"allow": ["port", "port"]})),
        ("/rules/0/match/methods", json!([])),
        ("/rules/0/match/methods", json!(["get"])),
        ("/rules/0/match/methods", json!(["CONNECT"])),
        ("/rules/0/match/hosts", json!(["Payments.example"])),
        ("/rules/0/args/amount", json!({"type": "number"})),
        ("/rules/0/args/amount", json!({"query": "amount", "header": "x-amount"})),
        ("/rules/0/args/amount", json!({"query": ""})),
        ("/rules/0/args/amount", json!({"header": "X-Amount"})),
        ("/rules/0/args/*", json!({"query": "any"})),
        ("/rules/0/args/amount", json!({"body": "amount"})),
        ("/rules/0/args/amount", json!({"host": false})),
        ("/rules/0/match/headers", json!({"X-Version": {"exact": "2"}})),
        ("/rules/0/match/headers", json!({"x-version": {}})),
        (
            "/rules/0/match/headers",
            json!({"x-version": {"exact": "2", "prefix": "2"}}),
        ),
        ("/rules/0/match/headers", json!({"x-version": {"present": false}})),
        ("/rules/0/match/headers", json!({"x-version": {"suffix": ""}})),
        ("/rules/0/match/query", json!({"kind": {"prefix": "a"}})),
        ("/rules/0/match/query", json!({"": {"absent": true}})),
        ("/rules/0/ignore_members", json!(["note"])),
        ("/rules/0/ignore_query", json!(["a", "a"])),
        ("/rules/0/public", json!(true)),
        ("/rules/1/tool", json!("a")),
        ("/rules/1/proof", json!("none")),
    ];
    for (pointer, value) in errors {
        let changed = with(pointer, value.clone());
        assert!(
            Policy::parse(changed.to_string().as_bytes()).is_err(),
            "the filter should refuse {pointer}: {value}"
        );
        assert!(
            schema.validate(&changed).is_err(),
            "the schema should refuse {pointer}: {value}"
        );
    }
    for pointer in [
        "/audience",
        "/trust_anchors",
        "/trust_anchors/0/issuer",
        "/control_plane",
        "/control_plane/cluster",
        "/control_plane/log_id",
        "/rules",
        "/rules/0/name",
        "/rules/0/match",
        "/rules/0/match/path",
        "/rules/0/tool",
    ] {
        let changed = without(pointer);
        assert!(Policy::parse(changed.to_string().as_bytes()).is_err(), "{pointer}");
        assert!(schema.validate(&changed).is_err(), "the schema should miss {pointer}");
    }
}

#[test]
fn numbers_have_the_filters_limits() {
    let schema = Schema::printed();
    let mut seen = 0;
    for group in ["limits", "audit"] {
        let fields = schema.text["properties"][group]["properties"].as_object().unwrap();
        for (name, field) in fields.iter().filter(|(_, field)| field["type"] == "integer") {
            let least = field["minimum"].as_i64().unwrap();
            let most = field["maximum"]
                .as_i64()
                .unwrap_or_else(|| panic!("{group}.{name} has no maximum"));
            for value in [least - 1, least, most, most + 1] {
                let changed = with(&format!("/{group}"), json!({name: value}));
                let loads = Policy::parse(changed.to_string().as_bytes()).is_ok();
                assert_eq!(
                    schema.validate(&changed).is_ok(),
                    loads,
                    "{group}.{name}: {value}, which {} load",
                    if loads { "does" } else { "does not" }
                );
            }
            seen += 1;
        }
    }
    assert!(seen >= 7, "{seen} numbers");
}

#[test]
fn lists_have_the_filters_limits() {
    let schema = Schema::printed();
    let rule =
        |number: usize| json!({"name": format!("r{number}"), "match": {"path": format!("/{number}")}, "public": true});
    let cases: [(&str, &str, Element); 6] = [
        ("audience", "/audience", |number| json!(format!("a{number}"))),
        ("rules", "/rules", rule),
        ("rules[].audience", "/rules/0/audience", |number| {
            json!(format!("a{number}"))
        }),
        ("rules[].match.hosts", "/rules/0/match/hosts", |number| {
            json!(format!("h{number}"))
        }),
        ("rules[].match.methods", "/rules/0/match/methods", |number| {
            json!(format!("M{number}"))
        }),
        ("rules[].ignore_query", "/rules/0/ignore_query", |number| {
            json!(format!("q{number}"))
        }),
    ];
    let places = schema.places();
    for (place, pointer, item) in cases {
        let found = places.iter().find(|(found, _)| found == place);
        let most = found
            .and_then(|(_, field)| field["maxItems"].as_u64())
            .unwrap_or_else(|| panic!("{place} has no maxItems"));
        let most = usize::try_from(most).unwrap();
        for length in [most, most + 1] {
            let list: Vec<_> = (0..length).map(item).collect();
            let changed = with(pointer, json!(list));
            let loaded = Policy::parse(changed.to_string().as_bytes());
            assert_eq!(
                (loaded.is_ok(), schema.validate(&changed).is_ok()),
                (length <= most, length <= most),
                "{place} with {length} elements (filter, schema): {:?}",
                loaded.err()
            );
        }
    }
}

/// An element of a list, by its number.
type Element = fn(usize) -> Value;

/// The printed schema, and a validator of it.
struct Schema {
    text: Value,
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn printed() -> Self {
        let text: Value = serde_json::from_str(&printed()).unwrap();
        assert_eq!(text["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let mut compiler = Compiler::new();
        compiler.add_resource("plugin.json", text.clone()).unwrap();
        let mut schemas = Schemas::new();
        // Compiling also validates the schema itself.
        let index = compiler.compile("plugin.json", &mut schemas).unwrap();
        Self { text, schemas, index }
    }

    fn validate(&self, instance: &Value) -> Result<(), String> {
        self.schemas
            .validate(instance, self.index)
            .map_err(|error| error.to_string())
    }

    /// Every field, with its name in the reference. RFCs describe keys.
    fn places(&self) -> Vec<(String, Value)> {
        fn collect(schema: &Value, path: &str, places: &mut Vec<(String, Value)>) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let place = format!("{path}{name}");
                places.push((place.clone(), field.clone()));
                if !["jwk", "jwks"].contains(&name.as_str()) {
                    collect(field, &format!("{place}."), places);
                    collect(&field["items"], &format!("{place}[]."), places);
                    collect(&field["additionalProperties"], &format!("{place}.*."), places);
                }
            }
        }
        let mut places = Vec::new();
        collect(&self.text, "", &mut places);
        places
    }
}

fn printed() -> String {
    let ran = Workbench::new().run(&["config", "schema"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

/// Every plugin configuration in the pages and in the ready-to-use files, read with another YAML parser.
fn examples() -> Vec<(String, Value)> {
    let guide = std::fs::read_to_string(repository().join("docs/reference/configuration.md")).unwrap();
    let (of_the_filter, _) = guide.split_once("\n## Control plane\n").unwrap();
    let blocks = of_the_filter
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0);
    let blocks: Vec<Value> = blocks.map(|block| serde_saphyr::from_str(block).unwrap()).collect();
    let mut examples = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        // An example of a part stands for the complete configuration with that part.
        let mut example = blocks[0].clone();
        example
            .as_object_mut()
            .unwrap()
            .extend(block.as_object().unwrap().clone());
        examples.push((
            format!("example {} of docs/reference/configuration.md", number + 1),
            example,
        ));
    }
    for folder in ["envoy-config", "envoy-config/istio"] {
        for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
            if is_yaml && !path.ends_with("kustomization.yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let before = examples.len();
                for document in text.split("\n---\n") {
                    collect_plugins(&serde_saphyr::from_str(document).unwrap(), &path, &mut examples);
                }
                assert!(examples.len() > before, "{} has no plugin", path.display());
            }
        }
    }
    examples
}

fn collect_plugins(value: &Value, path: &Path, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) if members.contains_key("trust_anchors") => {
            found.push((path.display().to_string(), value.clone()));
        }
        Value::Object(members) => members.values().for_each(|value| collect_plugins(value, path, found)),
        Value::Array(elements) => elements.iter().for_each(|value| collect_plugins(value, path, found)),
        _ => {}
    }
}

/// The complete configuration with one value set. If its place is missing, only the last step may be.
fn with(pointer: &str, value: Value) -> Value {
    let mut changed = complete();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match changed.pointer_mut(parent).unwrap() {
        Value::Object(members) => {
            members.insert(name.to_owned(), value);
        }
        Value::Array(elements) => elements[name.parse::<usize>().unwrap()] = value,
        _ => panic!("{pointer}"),
    }
    changed
}

fn without(pointer: &str) -> Value {
    let mut changed = complete();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    changed
        .pointer_mut(parent)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove(name)
        .unwrap();
    changed
}

fn complete() -> Value {
    json!({
        "audience": ["https://payments.example"],
        "trust_anchors": [{
            "issuer": "https://id.example.com",
            "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg"},
        }],
        "control_plane": {"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"},
        "rules": [
            {
                "name": "charge",
                "match": {"methods": ["POST"], "path": "/v1/accounts/{account}/charges"},
                "tool": "payments.charge",
                "args": {"account": {"path": "account"}, "amount": {"query": "amount", "type": "number"}},
            },
            {"name": "health", "match": {"path": "/healthz"}, "public": true},
        ],
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const COMMITTED: &str = "docs/credence-plugin.schema.json";

const DID_KEY: &str = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
