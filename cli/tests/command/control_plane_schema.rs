//! `credence config schema --control-plane` and `config check --control-plane` agree with the start's checks and with
//! the reference.

#![allow(clippy::disallowed_types)] // schemas and examples of our own

use std::path::{Path, PathBuf};

use crate::common::Workbench;
use boon::{Compiler, SchemaIndex, Schemas};
use credence_control_plane::Settings;
use serde_json::{Value, json};

#[test]
fn the_committed_schema_is_the_one_that_is_printed() {
    let committed = std::fs::read_to_string(repository().join(COMMITTED)).unwrap_or_default();
    assert!(
        committed == printed(),
        "{COMMITTED} is out of date; refresh it: cargo run -p credence -- config schema --control-plane > {COMMITTED}"
    );
}

#[test]
fn every_documented_example_is_valid_and_loads() {
    let schema = Schema::printed();
    let mut seen = 0;
    for (page, before) in EXAMPLES {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        let (_, text) = text.split_once(before).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split_once("```").unwrap().0;
            let example: Value = serde_saphyr::from_str(block).unwrap();
            if let Err(error) = schema.validate(&example) {
                panic!("{page}: {error}");
            }
            let bench = Workbench::new();
            let ran = bench.run(&["config", "check", "--control-plane", bench.file("example.yaml", block)]);
            assert_eq!(ran.succeeded(), "example.yaml: loads");
            seen += 1;
        }
    }
    assert!(seen >= EXAMPLES.len(), "{seen}");
}

#[test]
fn what_loads_is_valid() {
    let schema = Schema::printed();
    for (pointer, value) in [
        ("/access/tokens/0/sha256", json!("AB".repeat(32))),
        ("/access/tokens/0/expires", json!("2027-01-01T00:00:00.5+02:00")),
        ("/access/tokens/0/name", json!("größer")),
        (
            "/access/certificates/0",
            json!({"name": "c", "dns": "envoy.example", "roles": ["filter"]}),
        ),
        ("/access/grpc", json!("open")),
        ("/audience", json!([])),
        ("/trust_anchors/0", json!({"issuer": DID_KEY})),
        ("/trust_anchors/0/algorithms", json!(["ES256", "EdDSA"])),
        (
            "/limits",
            json!({"counted_apart": 1_048_576, "burst": 4_294_967_295_u32}),
        ),
        ("/status", json!({"max_age": 0, "max_iat_skew": 300})),
        (
            "/security_events/0/jwks",
            json!({"url": "https://okta/keys", "ca": "ca.crt"}),
        ),
        ("/security_events/0/jwks", json!({"url": "http://127.0.0.1:9/keys"})),
        ("/scim/0/subject", json!("emails.primary")),
    ] {
        let changed = with(pointer, value);
        let loaded = load(&changed);
        assert!(loaded.is_ok(), "{pointer}: {loaded:?}");
        let valid = schema.validate(&changed);
        assert!(valid.is_ok(), "{pointer}: {valid:?}");
    }
}

#[test]
fn errors_are_refused_by_a_start_and_by_the_schema() {
    let schema = Schema::printed();
    for (pointer, value) in [
        // Names.
        ("/colour", json!("red")),
        ("/tls/https", json!({})),
        ("/tls/http/ca", json!("ca.crt")),
        ("/access/users", json!([])),
        ("/access/tokens/0/role", json!("admin")),
        ("/access/certificates/0/common_name", json!("envoy")),
        ("/scim/0/token", json!("t")),
        ("/security_events/0/key", json!("k")),
        ("/limits", json!({"requests": 1})),
        ("/status", json!({"age": 1})),
        ("/trust_anchors/0/key", json!({})),
        // A blank value must not mean "all" or "none".
        ("/tls/http", json!(null)),
        ("/tls/http/client_ca", json!(null)),
        ("/access/tokens/0/issuers", json!(null)),
        ("/access/tokens/0/expires", json!(null)),
        ("/access/grpc", json!(null)),
        ("/scim", json!(null)),
        ("/security_events/0/jwks/file", json!(null)),
        // Types and enumerations.
        ("/tls/http/key", json!(5)),
        ("/access/tokens/0/roles", json!("admin")),
        ("/access/tokens/0/roles", json!(["root"])),
        ("/access/tokens/0/expires", json!(1_800_000_000)),
        ("/access/grpc", json!("closed")),
        ("/scim/0/subject", json!("mail")),
        ("/security_events/0/subject", json!("phone")),
        ("/security_events/0/algorithms", json!(["HS256"])),
        ("/trust_anchors/0/asserts_subjects", json!("yes")),
        ("/trust_anchors/0/algorithms", json!(["HS256"])),
        ("/limits", json!({"burst": "many"})),
        ("/limits", json!({"burst": 1.5})),
        // Limits and patterns.
        ("/access/tokens/0/name", json!("")),
        ("/access/tokens/0/name", json!("n".repeat(65))),
        ("/access/tokens/0/name", json!("a\nb")),
        ("/access/tokens/0/sha256", json!("0f")),
        ("/access/tokens/0/roles", json!([])),
        ("/access/tokens/0/issuers", json!([])),
        ("/access/tokens/0/expires", json!("tomorrow")),
        ("/access/certificates/0/uri", json!("spiffe://*/ns")),
        ("/access/certificates/0/uri", json!("spiffe:///*")),
        ("/access/certificates/0/uri", json!("envoy")),
        ("/access/certificates/0/dns", json!("envoy")),
        (
            "/access/certificates/0",
            json!({"name": "c", "dns": "*.example", "roles": ["filter"]}),
        ),
        ("/audience/0", json!("")),
        ("/scim/0/credentials", json!([])),
        ("/scim/0/issuer", json!("")),
        ("/security_events/0/audience", json!("")),
        ("/security_events/0/algorithms", json!([])),
        ("/security_events/0/jwks", json!({})),
        ("/security_events/0/jwks", json!({"file": "f", "ca": "c"})),
        ("/security_events/0/jwks", json!({"file": "f", "url": "https://u"})),
        ("/security_events/0/jwks", json!({"url": "ftp://okta/keys"})),
        ("/trust_anchors/0", json!({"issuer": "https://id.example.com"})),
        ("/trust_anchors/0/issuer", json!("id")),
        ("/trust_anchors/0/jwk/d", json!("secret")),
        ("/trust_anchors/0/algorithms", json!([])),
    ] {
        let changed = with(pointer, value.clone());
        assert!(load(&changed).is_err(), "a start should refuse {pointer}: {value}");
        assert!(
            schema.validate(&changed).is_err(),
            "the schema should refuse {pointer}: {value}"
        );
    }
    for pointer in [
        "/tls/http/certificate",
        "/tls/http/key",
        "/access/tokens/0/name",
        "/access/tokens/0/sha256",
        "/access/tokens/0/roles",
        "/access/certificates/0/uri",
        "/access/certificates/0/roles",
        "/scim/0/name",
        "/scim/0/credentials",
        "/scim/0/issuer",
        "/security_events/0/issuer",
        "/security_events/0/audience",
        "/security_events/0/jwks",
        "/security_events/0/principal_issuer",
        "/trust_anchors/0/issuer",
        "/trust_anchors/0/jwk",
    ] {
        let changed = without(pointer);
        assert!(load(&changed).is_err(), "a start should miss {pointer}");
        assert!(schema.validate(&changed).is_err(), "the schema should miss {pointer}");
    }
}

#[test]
fn numbers_have_the_limits_of_a_start() {
    let schema = Schema::printed();
    let mut seen = 0;
    for (place, member) in schema.places() {
        if member["type"] != "integer" {
            continue;
        }
        let (least, most) = (member["minimum"].as_i64().unwrap(), member["maximum"].as_i64().unwrap());
        for value in [least - 1, least, most, most + 1] {
            let changed = with(
                &format!("/{}", place.replace("[].", "/0/").replace('.', "/")),
                json!(value),
            );
            let loads = load(&changed).is_ok();
            assert_eq!(loads, (least..=most).contains(&value), "{place}: {value}");
            assert_eq!(schema.validate(&changed).is_ok(), loads, "{place}: {value}");
        }
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn a_check_says_what_a_start_would_say() {
    let bench = Workbench::new();
    let wrong = [
        ("unknown.yaml", "tls:\n  https: {}\n", "unknown.yaml:2: at tls.https"),
        (
            "blank.yaml",
            "tls:\n  http:\n    certificate: a\n    key: b\n    client_ca:\n",
            "blank.yaml:5: at tls.http.client_ca",
        ),
        (
            "roleless.yaml",
            "access:\n  grpc: required\n",
            "roleless.yaml:1: at access: no filter could follow",
        ),
        ("two.yaml", "tls: {}\n---\ntls: {}\n", "two.yaml: it has several"),
    ];
    for (name, text, expected) in wrong {
        let file = bench.file(name, text);
        let checked = bench.run(&["config", "check", "--control-plane", file]);
        assert_eq!(checked.code, 2, "{}", checked.stderr);
        assert!(checked.stderr.contains(expected), "{}", checked.stderr);
        let started = bench.run(&["serve", "--data", "data", "--init", "--fresh", "--config", file]);
        assert_eq!((started.code, &started.stderr), (2, &checked.stderr));
    }
    let fine = bench.file("fine.yaml", "status: {max_age: 0}\n");
    let both = bench.run(&["config", "check", "--control-plane", "unknown.yaml", fine, "blank.yaml"]);
    assert_eq!((both.code, both.stdout.trim()), (2, "fine.yaml: loads"));
    assert_eq!(both.stderr.lines().count(), 2, "{}", both.stderr);
}

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
        compiler.add_resource("settings.json", text.clone()).unwrap();
        let mut schemas = Schemas::new();
        // Compiling also validates the schema itself.
        let index = compiler.compile("settings.json", &mut schemas).unwrap();
        Self { text, schemas, index }
    }

    fn validate(&self, instance: &Value) -> Result<(), String> {
        self.schemas
            .validate(instance, self.index)
            .map_err(|error| error.to_string())
    }

    /// Every member, with its name in the reference. RFCs describe keys.
    fn places(&self) -> Vec<(String, Value)> {
        fn collect(schema: &Value, path: &str, places: &mut Vec<(String, Value)>) {
            for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                let place = format!("{path}{name}");
                let is_group = member["properties"].is_object() || member["items"]["properties"].is_object();
                if !is_group || ["jwk", "jwks"].contains(&name.as_str()) {
                    places.push((place, member.clone()));
                } else {
                    collect(member, &format!("{place}."), places);
                    collect(&member["items"], &format!("{place}[]."), places);
                }
            }
            for alternative in schema["oneOf"].as_array().into_iter().flatten() {
                collect(alternative, path, places);
            }
        }
        let mut places = Vec::new();
        collect(&self.text, "", &mut places);
        places
    }
}

fn printed() -> String {
    let ran = Workbench::new().run(&["config", "schema", "--control-plane"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

fn load(settings: &Value) -> Result<(), String> {
    let settings: Settings = serde_json::from_str(&settings.to_string()).map_err(|error| error.to_string())?;
    settings.check().map_err(|error| error.to_string())
}

/// The complete configuration with one value set. Missing groups are added.
fn with(pointer: &str, value: Value) -> Value {
    let mut changed = complete();
    let mut place = &mut changed;
    for step in pointer.split('/').skip(1) {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
    changed
}

fn without(pointer: &str) -> Value {
    let mut changed = complete();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    parent.remove(name).unwrap();
    changed
}

fn complete() -> Value {
    let port = json!({"certificate": "tls.crt", "key": "tls.key", "client_ca": "ca.crt"});
    let token =
        |name: &str, digit: &str, role: &str| json!({"name": name, "sha256": digit.repeat(64), "roles": [role]});
    json!({
        "tls": {"http": port, "grpc": port},
        "access": {
            "tokens": [
                token("oncall", "1", "revoker"),
                token("entra", "2", "provisioner"),
                token("okta", "3", "transmitter"),
                token("envoy", "4", "filter"),
            ],
            "certificates": [{"name": "gateways", "uri": "spiffe://mesh/ns/*", "roles": ["filter"]}],
        },
        "scim": [{"name": "staff", "credentials": ["entra"], "issuer": "https://id.example.com"}],
        "security_events": [{
            "name": "okta",
            "credentials": ["okta"],
            "issuer": "https://okta.example.com",
            "audience": "https://credence.example.com",
            "jwks": {"file": "keys.json"},
            "principal_issuer": "https://id.example.com",
        }],
        "issuer_keys": [{"issuer": "https://idp.example.com", "refresh_s": 1, "max_key_age_s": 2_592_000}],
        "audience": ["https://revocation.example.com"],
        "trust_anchors": [{
            "issuer": "https://id.example.com",
            "jwk": {"kty": "OKP", "crv": "Ed25519", "x": "7GJBdyhdiFuT4Q8CbAa5sR1ARWxY0Dtu8OQ6E9AODWg"},
        }],
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages with examples, and the text before each example.
const EXAMPLES: &[(&str, &str)] = &[
    ("docs/reference/configuration.md", "\n## Control plane\n"),
    ("docs/reference/api.md", ""),
    ("docs/reference/evidence.md", ""),
    ("docs/operate/control-plane.md", ""),
    ("docs/operate/identity-providers.md", ""),
];

const COMMITTED: &str = "docs/control-plane.schema.json";

const DID_KEY: &str = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
