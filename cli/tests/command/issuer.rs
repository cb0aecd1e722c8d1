//! `credence issuer check` and `credence config schema --issuer` agree with each other and with the pages.

#![allow(clippy::disallowed_types)] // schemas and examples of our own

use std::path::{Path, PathBuf};

use crate::common::Workbench;
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

#[test]
fn the_committed_schema_is_the_one_that_is_printed() {
    let committed = std::fs::read_to_string(repository().join(COMMITTED)).unwrap_or_default();
    assert!(
        committed == printed(),
        "{COMMITTED} is out of date; refresh it: cargo run -p credence -- config schema --issuer > {COMMITTED}"
    );
    assert!(!committed.contains("uint"), "a format that strict validators refuse");
}

#[test]
fn every_documented_example_is_valid_and_has_no_errors() {
    let (schemas, index) = compiled();
    for page in PAGES {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        let blocks = text.split("```yaml\n").skip(1);
        let blocks: Vec<&str> = blocks.map(|block| block.split_once("```").unwrap().0).collect();
        let whole = blocks.iter().filter(|block| block.contains("keys_passphrase_file:"));
        let mut seen = 0;
        for block in whole {
            let example: Value = serde_saphyr::from_str(block).unwrap();
            if let Err(error) = schemas.validate(&example, index) {
                panic!("{page}: {error}");
            }
            let bench = Workbench::new();
            let ran = bench.run(&["issuer", "check", bench.file("issuer.yaml", block)]);
            assert_eq!(ran.succeeded(), "issuer.yaml: no errors", "{page}");
            seen += 1;
        }
        assert!(seen > 0, "{page} has no whole example");
    }
}

/// An error has its line, its place and a cure; the schema refuses what no check of several members is needed for.
#[test]
fn errors_have_their_line_place_and_cure() {
    let (schemas, index) = compiled();
    let valid = MINIMAL;
    schemas
        .validate(&serde_saphyr::from_str(valid).unwrap(), index)
        .unwrap();
    for (old, new, expected) in [
        (
            "name: read",
            "nam: read",
            "issuer.yaml:12: at policy[0].nam: unknown field `nam`",
        ),
        (
            "[https://orders.example]",
            "[]",
            "issuer.yaml:13: at policy[0].audience: write at least one name",
        ),
        (
            "depth: 1",
            "depth: 9",
            "issuer.yaml:14: at policy[0].depth: 9 is not possible; write 0 to 8",
        ),
        (
            "depth: 1",
            "token_lifetime_s: 5",
            "issuer.yaml:14: at policy[0].token_lifetime_s: 5 is not possible",
        ),
        (
            "name: Planner",
            "name: ''",
            "issuer.yaml:9: at clients[0].name: write 1 to",
        ),
    ] {
        assert!(valid.contains(old), "{old}");
        let text = valid.replace(old, new);
        let bench = Workbench::new();
        let ran = bench.run(&["issuer", "check", bench.file("issuer.yaml", &text)]);
        assert!(ran.code != 0 && ran.stderr.contains(expected), "{new}: {}", ran.stderr);
        let changed = serde_saphyr::from_str(&text).unwrap();
        assert!(schemas.validate(&changed, index).is_err(), "{new}");
    }
}

fn compiled() -> (Schemas, SchemaIndex) {
    let mut compiler = Compiler::new();
    let schema: Value = serde_json::from_str(&printed()).unwrap();
    compiler.add_resource("issuer.json", schema).unwrap();
    let mut schemas = Schemas::new();
    // Compiling also validates the schema itself.
    let index = compiler.compile("issuer.json", &mut schemas).unwrap();
    (schemas, index)
}

fn printed() -> String {
    let ran = Workbench::new().run(&["config", "schema", "--issuer"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const COMMITTED: &str = "docs/issuer.schema.json";

/// The pages with whole configurations.
const PAGES: &[&str] = &["docs/start/issuer.md", "docs/operate/issuer.md"];

const MINIMAL: &str = "\
url: https://issuer.example
identity_provider:
  issuer: https://login.example
  client_id: credence
control_plane: {url: https://credence.example:7070, token_file: token}
keys_passphrase_file: passphrase
clients:
- id: planner
  name: Planner
policy:
- tools: {orders.read: {}}
  name: read
  audience: [https://orders.example]
  depth: 1
";
