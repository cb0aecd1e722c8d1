//! The draft's published vectors, checked with `credence verify --jsonl`.
//!
//! They are not part of this repository. If the file is missing, the test says so and passes.

#[path = "../../../delegation/tests/conformance/report.rs"]
#[allow(dead_code)] // one table for all vectors; not every suite needs all of it
mod report;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::Workbench;
use credence_delegation::json::{Json, Object};
use report::Suite;

/// The environment variable that names the vectors' file.
const VARIABLE: &str = "CREDENCE_AAT_VECTORS";

const NAME: &str = "AAT vectors, verdict and failing step";

#[test]
fn every_published_vector_has_its_expected_decision_and_step() {
    let suite = match published() {
        Ok(text) => verify(&text),
        Err(reason) => Suite::skipped(NAME, reason),
    };
    // Not captured by the test runner, unlike `print!`: the count must show in a passing run, and a test that did
    // nothing must not look like one that passed.
    let said = format!("\n{}{}\n", report::heading(), suite.lines());
    std::io::stderr().write_all(said.as_bytes()).unwrap();
    assert!(!suite.failed(), "{}", suite.lines());
}

#[test]
fn a_file_without_vectors_does_not_pass() {
    let suite = verify(r#"{"trust_anchors":[],"params":{"audience":""},"vectors":[]}"#);
    assert!(suite.failed());
    assert!(suite.lines().contains("FAILED: it has no cases"), "{}", suite.lines());
    assert!(!Suite::skipped(NAME, "they are not there").failed());
}

fn verify(text: &str) -> Suite {
    let file = Json::parse(text.as_bytes()).unwrap();
    let file = file.as_object().unwrap();
    let anchors = &written(file.member("trust_anchors").unwrap());
    let audience = string(file.member("params").unwrap().as_object().unwrap(), "audience");

    let vectors = file.member("vectors").unwrap().as_array().unwrap();
    let vectors: Vec<&Object<'_>> = vectors.iter().map(|vector| vector.as_object().unwrap()).collect();
    let lines: String = vectors.iter().map(|vector| line(vector, anchors, audience)).collect();
    let ran = Workbench::new().run_with_input(&["verify", "--jsonl"], &lines);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));

    let answers: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(answers.len(), vectors.len());
    let mut suite = Suite::new(NAME);
    for (vector, answer) in vectors.iter().zip(answers) {
        let answer = Json::parse(answer.as_bytes()).unwrap();
        let answer = answer.as_object().unwrap();
        let expected = vector.member("expected").unwrap().as_object().unwrap();
        let id = string(vector, "id");
        assert_eq!(string(answer, "id"), id);
        let verdict = if string(expected, "verdict") == "PERMIT" {
            "allow"
        } else {
            "deny"
        };
        let step = answer.member("step").and_then(Json::as_str);
        // "3n/4o" stands for either.
        let accepted = expected.member("step").and_then(Json::as_str);
        let agreed = accepted.filter(|accepted| accepted.split('/').any(|either| Some(either) == step));
        suite.case(
            format!("{id}: {answer:?}"),
            (verdict, accepted),
            (string(answer, "decision"), agreed.or(step)),
        );
    }
    suite
}

/// The file's text, or why there is none.
fn published() -> Result<String, String> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/aat-jws-vectors.json");
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let path = named.clone().unwrap_or(default);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        // If the variable names a file, the file must exist.
        Err(error) if named.is_some() => panic!("{VARIABLE} names {}: {error}", path.display()),
        Err(_) => Err(format!(
            "the published vectors are not there; name their file in {VARIABLE}"
        )),
    }
}

fn line(vector: &Object<'_>, anchors: &str, audience: &str) -> String {
    let chain: Vec<_> = vector
        .member("chain_compact")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(Json::as_str)
        .collect();
    let chain: Vec<_> = chain
        .into_iter()
        .map(|token| format!("\"{}\"", token.unwrap()))
        .collect();
    format!(
        "{{\"id\":\"{}\",\"anchors\":{anchors},\"chain\":[{}],\"proof\":\"{}\",\"tool\":\"{}\",\"args\":{},\"now\":{},\
         \"audience\":[\"{audience}\"],\"policy\":{}}}\n",
        string(vector, "id"),
        chain.join(","),
        string(vector, "pop_compact"),
        string(vector, "tool"),
        written(vector.member("args").unwrap()),
        vector.member("now").unwrap().as_integer().unwrap(),
        written(vector.member("policy").unwrap()),
    )
}

/// JSON with its numbers as written.
fn written(json: &Json<'_>) -> String {
    match json {
        Json::Number(number) => number.text().to_owned(),
        Json::Array(elements) => format!("[{}]", elements.iter().map(written).collect::<Vec<_>>().join(",")),
        Json::Object(object) => {
            let members = object
                .iter()
                .map(|(name, value)| format!("{:?}:{}", name, written(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => credence_delegation::canonicalize(other).unwrap(),
    }
}

fn string<'a>(object: &'a Object<'_>, name: &str) -> &'a str {
    object.member(name).unwrap().as_str().unwrap()
}
