//! Tokens and proofs between Credence and the JOSE libraries of other languages, in both directions.
//!
//! The other side is in interop/, whose README has the table of each library's features. A language whose toolchain is
//! missing is skipped, and standard error says so.

// Both sides print JSON for any reader.
#![allow(clippy::disallowed_types)]

mod libraries;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::Workbench;
use libraries::{LIBRARIES, each_library_and_algorithm, repository};
use serde_json::{Value, json};

const ISSUER: &str = "https://id.example.com";
const SERVICE: &str = "https://payments.example";
const TOOL: &str = "payments.charge";

/// As the programs of docs/start/agents.md grant it, and as the rule asks.
fn up_to(amount: u32) -> Value {
    json!({
        "account": {"constraint_type": "exact", "value": "a1"},
        "amount": {"constraint_type": "range", "max": amount},
    })
}

#[test]
fn the_page_for_agents_shows_the_tested_programs_in_under_15_lines_each() {
    let page = std::fs::read_to_string(repository().join("docs/start/agents.md")).unwrap();
    let (_, section) = page.split_once("\n## Mint with a JOSE library\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let shown: Vec<_> = section
        .split("\n```")
        .filter_map(|block| block.split_once('\n'))
        .filter(|(language, _)| ["python", "js", "go"].contains(language))
        .map(|(_, block)| format!("{block}\n"))
        .collect();
    assert_eq!(shown.len(), LIBRARIES.len());
    for (library, block) in LIBRARIES.iter().zip(shown) {
        let file = library.language.sources().join(library.snippet);
        let program = std::fs::read_to_string(&file).unwrap();
        // The page shows Go programs without the lines before the first declaration.
        let preamble = program.strip_suffix(&block).unwrap_or_else(|| {
            panic!("docs/start/agents.md does not show {}:\n{block}", file.display());
        });
        let is_preamble = |line: &str| {
            let line = line.trim();
            line.is_empty()
                || line.starts_with("package ")
                || line.starts_with('"')
                || ["import (", ")"].contains(&line)
        };
        assert!(preamble.lines().all(is_preamble), "{preamble}");
        assert!(block.lines().count() < 15, "{block}");
    }
}

#[test]
fn tokens_of_the_pages_programs_can_be_derived_proven_and_used() {
    for library in LIBRARIES {
        let bench = Workbench::new();
        bench.keys(&["issuer", "planner", "worker"]);
        let Some(root) = library.run_snippet(&bench) else {
            continue;
        };

        let narrower = format!("{TOOL}={}", up_to(20));
        let derive = [
            "derive",
            "--key",
            "planner.jwk",
            "--holder",
            "worker.pub",
            "--tool",
            &narrower,
        ];
        let chain = bench.run(&[&derive[..], &["--parent", &root]].concat()).succeeded();
        let arguments = ["--arg", "account=a1", "--arg-json", "amount=15"];
        let prove = [
            "prove",
            "--chain",
            &chain,
            "--key",
            "worker.jwk",
            "--tool",
            TOOL,
            "--audience",
            SERVICE,
        ];
        let proof = bench.run(&[&prove[..], &arguments].concat()).succeeded();
        let anchor = format!("{ISSUER}=issuer.pub");
        let verify = |algorithm| {
            let asked = [
                "verify",
                "--chain",
                &chain,
                "--proof",
                &proof,
                "--tool",
                TOOL,
                "--audience",
                SERVICE,
            ];
            let trusted = ["--anchor", &anchor, "--algorithm", algorithm, "--json"];
            bench.run(&[&asked[..], &arguments, &trusted].concat())
        };
        let allowed = verify(library.snippet_algorithm);
        assert_eq!(allowed.code, 0, "{}: {allowed:?}", library.name);
        let denied = verify(other_than(library.snippet_algorithm));
        assert!(denied.stdout.contains(ALGORITHM_DENIED), "{}: {denied:?}", library.name);
    }
}

#[test]
fn a_root_that_a_library_mints_is_accepted_where_its_algorithm_is_named_and_only_there() {
    each_library_and_algorithm(|peer, algorithm| {
        let (issuer, holder) = (peer.key(algorithm), peer.key(algorithm));
        let root = peer.mint(algorithm, &issuer, &holder);
        let asked = Case {
            issuer: &issuer,
            chain: &root,
            proof: None,
            algorithms: &[algorithm],
        };
        asked.is_allowed();
        for algorithms in [&[other_than(algorithm)][..], &[]] {
            Case { algorithms, ..asked }.is_denied(ALGORITHM_DENIED);
        }
    });
}

#[test]
fn a_librarys_tokens_and_proofs_under_a_root_of_credence_are_accepted() {
    each_library_and_algorithm(|peer, algorithm| {
        let bench = Workbench::new();
        bench.keys(&["issuer"]);
        let issuer: Value = serde_json::from_slice(&std::fs::read(bench.path("issuer.jwk")).unwrap()).unwrap();
        let (planner, worker) = (peer.key(algorithm), peer.key(algorithm));
        let root = credence_root(&bench, &planner);

        let derived = peer.derive(algorithm, &planner, &root, &worker);
        let chain = format!("{root}~{derived}");
        let proof = peer.prove(algorithm, &worker, &derived);
        let asked = Case {
            issuer: &issuer,
            chain: &chain,
            proof: Some(&proof),
            algorithms: &["Ed25519", algorithm],
        };
        asked.is_allowed();
        // Signed by another key than the holder's; and for another token.
        let stolen = peer.prove(algorithm, &planner, &derived);
        Case {
            proof: Some(&stolen),
            ..asked
        }
        .is_denied(r#""step":"7b""#);
        let of_the_parent = peer.prove(algorithm, &worker, &root);
        Case {
            proof: Some(&of_the_parent),
            ..asked
        }
        .is_denied(r#""step":"7c""#);
    });
}

#[test]
fn credences_tokens_and_proofs_verify_in_each_library() {
    each_library_and_algorithm(|peer, algorithm| {
        // No library must read an algorithm that Credence never writes.
        if algorithm == "EdDSA" {
            return;
        }
        let bench = Workbench::new();
        for name in ["issuer", "planner", "worker"] {
            let key = peer.key(algorithm);
            bench.file(&format!("{name}.jwk"), &key.to_string());
        }
        let key = |name: &str| -> Value {
            serde_json::from_slice(&std::fs::read(bench.path(&format!("{name}.jwk"))).unwrap()).unwrap()
        };
        let root = credence_root(&bench, &key("planner"));
        let narrower = format!("{TOOL}={}", up_to(20));
        let derive = [
            "derive",
            "--key",
            "planner.jwk",
            "--holder",
            "worker.jwk",
            "--tool",
            &narrower,
        ];
        let chain = bench.run(&[&derive[..], &["--parent", &root]].concat()).succeeded();
        let (_, derived) = chain.split_once('~').unwrap();
        let prove = [
            "prove",
            "--chain",
            &chain,
            "--key",
            "worker.jwk",
            "--tool",
            TOOL,
            "--arg-json",
            "amount=15",
        ];
        let proof = bench.run(&prove).succeeded();

        let claims = peer.verify(algorithm, &key("issuer"), "aat+jwt", &root).unwrap();
        assert_eq!(claims["iss"], ISSUER);
        assert_eq!(claims["authorization_details"][0]["tools"][TOOL], up_to(100));
        let claims = peer.verify(algorithm, &key("planner"), "aat+jwt", derived).unwrap();
        assert_eq!(claims["authorization_details"][0]["tools"][TOOL], up_to(20));
        let claims = peer.verify(algorithm, &key("worker"), "aat-pop+jwt", &proof).unwrap();
        assert_eq!(claims["hta"], json!({"amount": 15}));

        // A library's acceptance shows something only if it also rejects.
        for (signer, typ, token) in [
            ("worker", "aat+jwt", root.as_str()),
            ("issuer", "aat-pop+jwt", &root),
            ("issuer", "aat+jwt", &peer.tamper(&root)),
            ("worker", "aat-pop+jwt", &swap_signatures(&proof, &root)),
        ] {
            let answer = peer.verify(algorithm, &key(signer), typ, token);
            assert!(answer.is_err(), "{} {algorithm}: {answer:?}", peer.library.name);
        }
    });
}

#[test]
fn tokens_that_a_library_has_changed_are_denied() {
    each_library_and_algorithm(|peer, algorithm| {
        let (issuer, planner, worker) = (peer.key(algorithm), peer.key(algorithm), peer.key(algorithm));
        let root = peer.mint(algorithm, &issuer, &planner);
        let derived = peer.derive(algorithm, &planner, &root, &worker);
        let proof = peer.prove(algorithm, &worker, &derived);
        let asked = Case {
            issuer: &issuer,
            chain: &format!("{root}~{derived}"),
            proof: Some(&proof),
            algorithms: &[algorithm],
        };
        asked.is_allowed();
        let (altered_root, altered_derived) = (peer.tamper(&root), peer.tamper(&derived));
        let chain = &format!("{altered_root}~{derived}");
        Case { chain, ..asked }.is_denied(r#""step":"3b""#);
        let chain = &format!("{root}~{altered_derived}");
        Case { chain, ..asked }.is_denied(r#""step":"4b""#);
        let altered_proof = swap_signatures(&proof, &derived);
        Case {
            proof: Some(&altered_proof),
            ..asked
        }
        .is_denied(r#""step":"7b""#);
    });
}

/// The part of `credence verify`'s answer that names an algorithm that is not allowed.
const ALGORITHM_DENIED: &str = r#""step":"3a""#;

fn other_than(algorithm: &str) -> &'static str {
    if algorithm == "Ed25519" { "EdDSA" } else { "Ed25519" }
}

/// The first token's header and payload under the other's signature.
fn swap_signatures(token: &str, other: &str) -> String {
    let (signing_input, _) = token.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    format!("{signing_input}.{signature}")
}

/// A root token that Credence mints with `issuer.jwk`.
fn credence_root(bench: &Workbench, holder: &Value) -> String {
    let (tool, holder) = (format!("{TOOL}={}", up_to(100)), public(holder).to_string());
    let mint = [
        "mint",
        "--key",
        "issuer.jwk",
        "--issuer",
        ISSUER,
        "--holder",
        &holder,
        "--tool",
        &tool,
    ];
    bench.run(&[&mint[..], &["--max-depth", "1"]].concat()).succeeded()
}

fn public(jwk: &Value) -> Value {
    let mut public = jwk.clone();
    public.as_object_mut().unwrap().remove("d");
    public
}

/// A question to `credence verify --jsonl`: may account a1 be charged 15?
#[derive(Clone, Copy)]
struct Case<'a> {
    issuer: &'a Value,
    chain: &'a str,
    /// `None`: no proof is checked.
    proof: Option<&'a str>,
    algorithms: &'a [&'a str],
}

impl Case<'_> {
    #[track_caller]
    fn is_allowed(&self) {
        let answer = self.answer();
        assert!(
            answer.contains(r#""decision":"allow""#),
            "{:?}: {answer}",
            self.algorithms
        );
    }

    #[track_caller]
    fn is_denied(&self, said: &str) {
        let answer = self.answer();
        assert!(
            answer.contains(r#""decision":"deny""#),
            "{:?}: {answer}",
            self.algorithms
        );
        assert!(answer.contains(said), "{said} is not in {answer}");
    }

    fn answer(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let case = json!({
            "id": 1,
            "anchors": [{"iss": ISSUER, "jwk": public(self.issuer)}],
            "chain": self.chain,
            "proof": self.proof,
            "tool": TOOL,
            "args": {"account": "a1", "amount": 15},
            "now": now,
            "audience": [SERVICE],
            "policy": {"algs": self.algorithms, "proof": if self.proof.is_some() { "pop" } else { "none" }},
        });
        Workbench::new()
            .run_with_input(&["verify", "--jsonl"], &case.to_string())
            .succeeded()
    }
}
