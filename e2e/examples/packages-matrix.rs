//! The command line tool, the Python package and the TypeScript package, each with each other and with the filter.
//!
//!     packages-matrix PYTHON-PEER NODE-PEER    two commands, as one argument each
//!
//! A peer reads one request in JSON from each line, and answers with one line. One of the three derives a delegation, one
//! proves a call under it, and one verifies both: a call that is granted, and one that is not. The filter in the real Envoy
//! verifies them, too. Then each package sends a request itself. The last line of the output is one JSON object.

#![allow(clippy::print_stdout, reason = "a program")]
#![allow(clippy::disallowed_types, reason = "requests and cases of our own")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use credence_e2e::grants::CHARGE;
use credence_e2e::{AUDIENCE, Failure, ISSUER, Request, Stack, StackOptions};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{from_str, json};

/// What is derived: 20 at most.
const TOOLS: &str = r#"{"payments.charge":{"account":{"constraint_type":"exact","value":"acme"},"amount":{"constraint_type":"range","max":20}}}"#;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<u32, Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut packages = Vec::new();
    for name in ["python", "typescript"] {
        let command = arguments
            .next()
            .ok_or_else(|| Failure::new("usage: packages-matrix PYTHON-PEER NODE-PEER"))?;
        packages.push(Peer::start(name, &command)?);
    }
    let stack = Stack::start(&StackOptions::quick())?;
    stack.wait_until_proofs_count()?;
    let helper = stack.credence.keygen("helper")?;
    let keys = Keys {
        agent: read(stack.agent.path())?,
        helper: read(helper.path())?,
        helper_public: helper.jwk.clone(),
    };
    let root = stack.mint("ada", &["--tool", CHARGE, "--max-depth", "2"])?;
    let mut matrix = Matrix::default();
    for (deriver, deriver_name) in NAMES.iter().enumerate() {
        let chain = match deriver {
            0 => stack.derive(&root, &helper, &["--tools", &written(&stack, TOOLS)?])?,
            of_package => packages[of_package - 1].derive(&root, &keys)?,
        };
        for (prover, prover_name) in NAMES.iter().enumerate() {
            for (amount, is_granted) in [("5", true), ("25", false)] {
                let mut prove = || match prover {
                    0 => stack.prove_charge(&chain, &helper, "acme", amount),
                    of_package => packages[of_package - 1].prove(&chain, &keys, amount),
                };
                // The filter accepts each proof once.
                let (proof, for_filter) = (prove()?, prove()?);
                let case = case(&stack, &chain, &proof, amount);
                let cell = |verifier: &str| {
                    format!("{deriver_name} derives, {prover_name} proves, {verifier} verifies {amount}")
                };
                let verified = verified_by_cli(&stack, &case)?;
                matrix.note(&cell("credence"), verified == expected(is_granted), &verified);
                for package in &mut packages {
                    let name = package.name;
                    let verified = package.verify(&case)?;
                    matrix.note(&cell(name), verified == expected(is_granted), &verified);
                }
                let request = Request::post(&format!("/v1/accounts/acme/charges?amount={amount}"));
                let reply = stack.send(&request.delegation(&chain).proof(&for_filter))?;
                let is_right = (reply.status == 200) == is_granted;
                matrix.note(
                    &cell("the filter"),
                    is_right,
                    &format!("{} {:?}", reply.status, reply.reason()),
                );
            }
        }
    }
    let rules = written(&stack, &stack.agent_rules()?)?;
    for package in &mut packages {
        for (amount, is_granted) in [("5", true), ("25", false)] {
            let url = format!("{}/v1/accounts/acme/charges?amount={amount}", stack.origin());
            let chain = stack.derive(&root, &helper, &["--tools", &written(&stack, TOOLS)?])?;
            let answer = package.request(&url, &chain, &keys, &rules)?;
            let expected = if is_granted { "200" } else { "argument_not_allowed" };
            matrix.note(
                &format!("{} sends {amount} to the filter", package.name),
                answer == expected,
                &answer,
            );
        }
    }
    println!("{}", json!({"matrix_cells": matrix.cells, "failed": matrix.failed}));
    Ok(matrix.failed)
}

const NAMES: [&str; 3] = ["credence", "python", "typescript"];

/// Private and public JWKs.
struct Keys {
    agent: String,
    helper: String,
    helper_public: String,
}

#[derive(Default)]
struct Matrix {
    cells: u32,
    failed: u32,
}

impl Matrix {
    fn note(&mut self, cell: &str, is_right: bool, found: &str) {
        self.cells += 1;
        if !is_right {
            self.failed += 1;
            println!("FAILED  {cell}: {found}");
        }
    }
}

/// A package, as a program that answers line by line.
struct Peer {
    name: &'static str,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    ok: Option<Box<RawValue>>,
    denied: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Verified {
    decision: String,
    step: Option<String>,
}

impl Peer {
    fn start(name: &'static str, command: &str) -> Result<Self, Failure> {
        let mut words = command.split(' ');
        let mut child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::of(format_args!("starting {command}")))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(requests), Some(answers)) = (requests, answers) else {
            return Err(Failure::new("a peer has no pipes"));
        };
        Ok(Self {
            name,
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    fn ask(&mut self, request: &serde_json::Value) -> Result<Answer, Failure> {
        writeln!(self.requests, "{request}").map_err(Failure::of(self.name))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(Failure::of(self.name))?;
        let answer: Answer = from_str(&line).map_err(Failure::of(format_args!("{}: {line}", self.name)))?;
        match &answer.error {
            Some(error) => Err(Failure::new(format!("{}: {error}: {request}", self.name))),
            None => Ok(answer),
        }
    }

    fn text(&mut self, request: &serde_json::Value) -> Result<String, Failure> {
        let answer = self.ask(request)?.ok;
        let text = answer.and_then(|ok| from_str(ok.get()).ok());
        text.ok_or_else(|| Failure::new(format!("{} gives no text", self.name)))
    }

    fn derive(&mut self, parent: &str, keys: &Keys) -> Result<String, Failure> {
        self.text(&json!({
            "do": "derive", "chain": parent, "key": raw(&keys.agent)?, "holder": raw(&keys.helper_public)?,
            "tools": raw(TOOLS)?, "audience": [], "lifetime": 600, "max_depth": 1,
        }))
    }

    fn prove(&mut self, chain: &str, keys: &Keys, amount: &str) -> Result<String, Failure> {
        self.text(&json!({
            "do": "prove", "chain": chain, "key": raw(&keys.helper)?, "tool": "payments.charge",
            "arguments": {"account": "acme", "amount": raw(amount)?}, "audience": AUDIENCE, "nonce": null,
        }))
    }

    fn verify(&mut self, case: &serde_json::Value) -> Result<String, Failure> {
        let answer = self.ask(&json!({"do": "verify", "case": case}))?.ok;
        let verified = answer.and_then(|ok| from_str(ok.get()).ok());
        verified
            .map(shown)
            .ok_or_else(|| Failure::new(format!("{} decides nothing", self.name)))
    }

    /// The status, or the reason for which it is not sent.
    fn request(&mut self, url: &str, chain: &str, keys: &Keys, rules: &str) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Replied {
            status: u16,
        }
        let answer = self.ask(&json!({
            "do": "request", "url": url, "method": "POST", "headers": [], "body": null, "chain": chain,
            "key": raw(&keys.helper)?, "rules": rules, "audience": [AUDIENCE],
        }))?;
        let status = answer.ok.and_then(|ok| from_str::<Replied>(ok.get()).ok());
        let status = status.map(|replied| replied.status.to_string());
        status
            .or(answer.denied)
            .ok_or_else(|| Failure::new(format!("{} sends nothing", self.name)))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn expected(is_granted: bool) -> String {
    if is_granted { "allow" } else { "deny 6b" }.to_owned()
}

fn shown(Verified { decision, step }: Verified) -> String {
    step.map_or(decision.clone(), |step| format!("{decision} {step}"))
}

fn case(stack: &Stack, chain: &str, proof: &str, amount: &str) -> serde_json::Value {
    let now = credence_e2e::forge::now();
    let anchor = json!({"kty": "OKP", "crv": "Ed25519", "x": stack.issuer.x});
    json!({
        "id": "cell", "anchors": [{"iss": ISSUER, "jwk": anchor}], "chain": chain.split('~').collect::<Vec<_>>(),
        "proof": proof, "tool": "payments.charge",
        "args": {"account": "acme", "amount": amount.parse::<u32>().unwrap_or_default()}, "now": now,
        "audience": [AUDIENCE], "policy": {},
    })
}

fn verified_by_cli(stack: &Stack, case: &serde_json::Value) -> Result<String, Failure> {
    let mut child = Command::new(stack.credence.program())
        .args(["verify", "--jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::of("starting credence"))?;
    if let Some(mut input) = child.stdin.take() {
        writeln!(input, "{case}").map_err(Failure::of("asking credence"))?;
    }
    let output = child.wait_with_output().map_err(Failure::of("asking credence"))?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    from_str(&line).map(shown).map_err(Failure::of(line))
}

fn raw(json: &str) -> Result<serde_json::Value, Failure> {
    from_str(json).map_err(Failure::of("reading JSON"))
}

fn read(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(Failure::of(file.to_owned()))
}

/// A new file with this text.
fn written(stack: &Stack, text: &str) -> Result<String, Failure> {
    let file = stack.folder().join(format!("matrix-{}.json", text.len()));
    std::fs::write(&file, text).map_err(Failure::of("writing a file"))?;
    Ok(file.display().to_string())
}
