//! `credence proxy --check`, the rules for agents, and their schemas agree with each other and with the page.

#![allow(clippy::disallowed_types)] // schemas and examples of our own

use std::path::{Path, PathBuf};

use crate::common::Workbench;
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

#[test]
fn the_committed_schemas_are_the_ones_that_are_printed() {
    for (option, committed) in [("--proxy", PROXY), ("--for-agents", AGENT_RULES)] {
        let text = std::fs::read_to_string(repository().join(committed)).unwrap_or_default();
        assert!(
            text == printed(option),
            "{committed} is out of date; refresh it: cargo run -p credence -- config schema {option} > {committed}"
        );
    }
}

#[test]
fn every_documented_example_is_valid_and_has_no_errors() {
    let (schemas, index) = compiled("--proxy");
    let text = std::fs::read_to_string(repository().join("docs/start/proxy.md")).unwrap();
    let fences = text
        .split("```yaml\n")
        .skip(1)
        .map(|block| block.split_once("```").unwrap().0);
    let inline = text
        .split("<<'YAML'\n")
        .skip(1)
        .map(|block| block.split_once("YAML\n").unwrap().0);
    let mut seen = 0;
    for block in fences.chain(inline).filter(|block| block.contains("clients:")) {
        let example: Value = serde_saphyr::from_str(block).unwrap();
        if let Err(error) = schemas.validate(&example, index) {
            panic!("{error}\n{block}");
        }
        let bench = Workbench::new();
        let ran = bench.run(&["proxy", "--check", "--config", bench.file("proxy.yaml", block)]);
        assert_eq!(ran.succeeded(), "proxy.yaml: no errors");
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn errors_have_their_line_place_and_cure() {
    for (old, new, expected) in [
        (
            "file: chain",
            "fil: chain",
            "proxy.yaml:4: at credentials[0].fil: unknown field `fil`",
        ),
        (
            ", file: chain",
            "",
            "at credentials[0]: say where the delegation comes from",
        ),
        (
            "key: {file: key}, ",
            "",
            "at credentials[0].key: a delegation in a file names a key that exists",
        ),
        (
            "127.0.0.1:7080",
            "0.0.0.0:7080",
            "can be reached from other machines; listen on 127.0.0.1",
        ),
        ("127.0.0.1:7080", "localhost:7080", "write `127.0.0.1:7080` or `unix:"),
        (
            "https://a.example\n",
            "https://a.example/api\n",
            "`https://a.example/api` is not an origin",
        ),
        (
            "https://a.example\n",
            "http://a.example\n",
            "rules are not fetched in the clear from another machine",
        ),
        (
            "service: https://a",
            "service: https://b",
            "at clients[0].service: https://b.example is not in `services`",
        ),
        (
            "tools: {}",
            "tools: {read: {id: {constraint_type: none}}}",
            "at clients[0].tools: ",
        ),
        (
            "- name: agent
  listen: 127.0.0.1:7080
  service: https://a.example
  tools: {}
",
            "  []\n",
            "at clients: 0 is not 1 to 256 entries",
        ),
        ("requests: 1", "requests: 0", "at limits.requests: 0 is not 1 to 4,096"),
    ] {
        assert!(MINIMAL.contains(old), "{old}");
        let text = MINIMAL.replacen(old, new, 1);
        let bench = Workbench::new();
        let ran = bench.run(&["proxy", "--check", "--config", bench.file("proxy.yaml", &text)]);
        assert!(ran.code != 0 && ran.stderr.contains(expected), "{new}: {}", ran.stderr);
    }
}

#[test]
fn rules_for_agents_have_what_agents_need_and_nothing_else() {
    let (schemas, index) = compiled("--for-agents");
    for file in ["envoy-config/envoy.yaml", "envoy-config/mcp/envoy.yaml"] {
        let bench = Workbench::new();
        let path = repository().join(file).display().to_string();
        let ran = bench.run(&["config", "describe", "--for-agents", &path]);
        let text = ran.succeeded();
        let rules: Value = serde_json::from_str(&text).unwrap();
        if let Err(error) = schemas.validate(&rules, index) {
            panic!("{file}: {error}");
        }
        for secret in ["log_id", "trust_anchors", "control_plane", "clusters", "on_stale"] {
            assert!(!text.contains(secret), "{file}: {secret}");
        }
        assert_eq!(rules["issuers"], serde_json::json!(["https://id.example.com"]));
    }
}

fn compiled(option: &str) -> (Schemas, SchemaIndex) {
    let mut compiler = Compiler::new();
    let schema: Value = serde_json::from_str(&printed(option)).unwrap();
    compiler.add_resource("schema.json", schema).unwrap();
    let mut schemas = Schemas::new();
    // Compiling also validates the schema itself.
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    (schemas, index)
}

fn printed(option: &str) -> String {
    let ran = Workbench::new().run(&["config", "schema", option]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const PROXY: &str = "docs/proxy.schema.json";
const AGENT_RULES: &str = "docs/agent-rules.schema.json";

const MINIMAL: &str = "\
services:
- url: https://a.example
credentials:
- {name: main, key: {file: key}, file: chain}
clients:
- name: agent
  listen: 127.0.0.1:7080
  service: https://a.example
  tools: {}
limits: {requests: 1}
";
