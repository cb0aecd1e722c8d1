//! A user's path: make keys, mint, derive, prove, inspect, decide.

use std::os::unix::fs::PermissionsExt;

use crate::common::Workbench;

const ISSUER: &str = "https://id.example.com";
const SERVICE: &str = "https://payments.example";
const CHARGE: &str =
    r#"payments.charge={"account":{"constraint_type":"wildcard"},"amount":{"constraint_type":"range","max":100}}"#;
const CHARGE_LESS: &str = r#"payments.charge={"account":{"constraint_type":"exact","value":"a-1"},"amount":{"constraint_type":"range","max":20}}"#;

/// Keys of an issuer, an agent and its helper; a root token for the agent, and a derived one for the helper.
struct Delegated {
    bench: Workbench,
    root: String,
    chain: String,
}

impl Delegated {
    fn new() -> Self {
        let bench = Workbench::new();
        bench.keys(&["issuer", "agent", "helper"]);
        let root = bench
            .run(&[
                "mint",
                "--key",
                "issuer.jwk",
                "--issuer",
                ISSUER,
                "--subject",
                "alice",
                "--epoch",
                "0",
                "--agent-name",
                "assistant",
                "--holder",
                "agent.pub",
                "--tool",
                CHARGE,
                "--tool",
                "catalog.read",
                "--audience",
                SERVICE,
                "--max-depth",
                "2",
            ])
            .succeeded();
        let chain = bench
            .run(&[
                "derive",
                "--parent",
                &root,
                "--key",
                "agent.jwk",
                "--holder",
                "helper.pub",
                "--tool",
                CHARGE_LESS,
            ])
            .succeeded();
        Self { bench, root, chain }
    }

    fn prove(&self, more: &[&str]) -> String {
        let start = [
            "prove",
            "--chain",
            &self.chain,
            "--key",
            "helper.jwk",
            "--tool",
            "payments.charge",
        ];
        self.bench.run(&[&start, more].concat()).succeeded()
    }

    fn verify(&self, chain: &str, more: &[&str]) -> crate::common::Ran {
        let anchor = format!("{ISSUER}=issuer.pub");
        let start = ["verify", "--chain", chain, "--anchor", &anchor, "--audience", SERVICE];
        self.bench.run(&[&start, more].concat())
    }
}

const PAY_15: [&str; 4] = ["--arg", "account=a-1", "--arg-json", "amount=15"];
const PAY_50: [&str; 4] = ["--arg", "account=a-1", "--arg-json", "amount=50"];

#[test]
fn a_delegation_that_is_minted_derived_and_proven_is_allowed() {
    let delegated = Delegated::new();
    let proof = delegated.prove(&[&PAY_15[..], &["--audience", SERVICE]].concat());
    let asked = [&["--tool", "payments.charge", "--proof", &proof][..], &PAY_15].concat();
    let answer = delegated.verify(&delegated.chain, &asked);
    assert_eq!(
        (answer.code, answer.stdout.as_str()),
        (0, "decision: allow\n"),
        "{answer:?}"
    );
}

#[test]
fn many_chains_and_many_proofs_are_made_at_once_and_differ() {
    let delegated = Delegated::new();
    let proofs = delegated.prove(&[&PAY_15[..], &["--audience", SERVICE, "--count", "3"]].concat());
    let chains = delegated
        .bench
        .run(&[
            "derive",
            "--parent",
            &delegated.root,
            "--key",
            "agent.jwk",
            "--holder",
            "helper.pub",
            "--same-tools",
            "--count",
            "3",
        ])
        .succeeded();
    for (many, separator) in [(&proofs, '.'), (&chains, '~')] {
        let lines: std::collections::BTreeSet<&str> = many.lines().collect();
        assert!(
            lines.len() == 3 && lines.iter().all(|line| line.contains(separator)),
            "{many}"
        );
    }
    for proof in proofs.lines() {
        let asked = [&["--tool", "payments.charge", "--proof", proof][..], &PAY_15].concat();
        assert_eq!(delegated.verify(&delegated.chain, &asked).code, 0);
    }
    let asked = [&["--tool", "payments.charge", "--no-proof"][..], &PAY_15].concat();
    for chain in chains.lines() {
        assert_eq!(delegated.verify(chain, &asked).code, 0);
    }
}

#[test]
fn a_denial_names_the_step_and_the_reason_and_exits_with_1() {
    let delegated = Delegated::new();
    let asked = [&["--tool", "payments.charge", "--no-proof"][..], &PAY_50].concat();
    let answer = delegated.verify(&delegated.chain, &asked);
    assert_eq!(answer.code, 1);
    assert!(answer.stdout.starts_with("decision: deny\nstep: 6b\n"), "{answer:?}");
    assert!(
        answer.stdout.contains("reason: argument \"amount\" is out of bounds"),
        "{answer:?}"
    );

    let answer = delegated.verify(&delegated.root, &[&["--json"][..], &asked].concat());
    assert_eq!(
        (answer.code, answer.stdout.trim()),
        (0, r#"{"decision":"allow","step":null,"reason":null}"#)
    );
}

#[test]
fn without_a_proof_nothing_is_allowed_unless_none_is_required() {
    let delegated = Delegated::new();
    let asked = [&["--json", "--tool", "payments.charge"][..], &PAY_15].concat();
    let answer = delegated.verify(&delegated.chain, &asked);
    assert_eq!(answer.code, 1);
    assert!(answer.stdout.contains(r#""step":"7a""#), "{answer:?}");
    assert_eq!(
        delegated
            .verify(&delegated.chain, &[&asked[..], &["--no-proof"]].concat())
            .code,
        0
    );
}

#[test]
fn a_proof_must_say_which_service_it_is_for() {
    let delegated = Delegated::new();
    let proof = delegated.prove(&PAY_15);
    let asked = [&["--json", "--tool", "payments.charge", "--proof", &proof][..], &PAY_15].concat();
    let answer = delegated.verify(&delegated.chain, &asked);
    assert!(
        answer.code == 1 && answer.stdout.contains(r#""step":"7d""#),
        "{answer:?}"
    );
    let relaxed = [&asked[..], &["--optional-proof-audience"]].concat();
    assert_eq!(delegated.verify(&delegated.chain, &relaxed).code, 0);
}

#[test]
fn the_chain_is_given_as_text_as_a_file_or_on_standard_input() {
    let delegated = Delegated::new();
    let chain = format!("{}\n", delegated.chain);
    delegated.bench.file("chain", &chain);
    for (argument, input) in [(delegated.chain.as_str(), ""), ("@chain", ""), ("-", &chain)] {
        let shown = delegated
            .bench
            .run_with_input(&["inspect", argument], input)
            .succeeded();
        assert!(shown.contains("token 2 of 2 (derived)"), "{shown}");
    }
}

#[test]
fn inspect_describes_the_chain_and_says_that_it_is_not_verified() {
    let delegated = Delegated::new();
    let shown = delegated.bench.run(&["inspect", &delegated.chain]).succeeded();
    assert!(shown.starts_with("NOT VERIFIED"), "{shown}");
    for words in [
        "issued by    https://id.example.com",
        "on behalf of alice",
        "in epoch     0",
        "agent name   assistant",
        "depth        1 of at most 1",
        "audience     https://payments.example",
        "catalog.read with any arguments",
        "account is exactly \"a-1\"",
        "amount is a number, at most 20",
    ] {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    let json = delegated
        .bench
        .run(&["inspect", "--json", &delegated.chain])
        .succeeded();
    assert!(
        json.starts_with(r#"{"verified":false,"tokens":[{"header":{"alg":"Ed25519","typ":"aat+jwt"}"#),
        "{json}"
    );
}

#[test]
fn same_tools_grants_all_of_the_parents_tools() {
    let delegated = Delegated::new();
    let chain = delegated
        .bench
        .run(&[
            "derive",
            "--parent",
            &delegated.root,
            "--key",
            "agent.jwk",
            "--holder",
            "helper.pub",
            "--same-tools",
        ])
        .succeeded();
    let asked = [&["--tool", "payments.charge", "--no-proof"][..], &PAY_50].concat();
    assert_eq!(delegated.verify(&chain, &asked).code, 0);
}

#[test]
fn a_derived_token_ends_with_its_parent_unless_told_to_end_before() {
    let delegated = Delegated::new();
    let bench = &delegated.bench;
    let parent = bench.mint_root(&["--tool", "t", "--ttl", "5m", "--max-depth", "1"]);
    let derive = [
        "derive",
        "--parent",
        &parent,
        "--key",
        "agent.jwk",
        "--holder",
        "helper.pub",
        "--tool",
        "t",
    ];
    bench.run(&derive).succeeded();
    bench.run(&[&derive[..], &["--ttl", "1m"]].concat()).succeeded();
    bench
        .run(&[&derive[..], &["--ttl", "1h"]].concat())
        .failed(1, &["step 4h", "give a shorter --ttl"]);
}

#[test]
fn a_private_key_file_belongs_to_its_owner_and_is_never_overwritten() {
    let bench = Workbench::new();
    bench.keys(&["agent"]);
    let mode = std::fs::metadata(bench.path("agent.jwk")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(bench.path("agent.jwk")).unwrap();
    bench
        .run(&["keygen", "--out", "agent.jwk"])
        .failed(1, &["agent.jwk exists already", "choose another name"]);
    assert_eq!(std::fs::read(bench.path("agent.jwk")).unwrap(), before);
}

#[test]
fn a_private_key_file_serves_as_its_public_half() {
    let bench = Workbench::new();
    bench.keys(&["issuer", "agent"]);
    let jwk = std::fs::read_to_string(bench.path("agent.pub")).unwrap();
    for holder in ["agent.jwk", "agent.pub", jwk.trim()] {
        bench
            .run(&[
                "mint",
                "--key",
                "issuer.jwk",
                "--issuer",
                ISSUER,
                "--holder",
                holder,
                "--tool",
                "t",
            ])
            .succeeded();
    }
}
