//! What is allowed and what is denied, one request each.

use std::io::Write;

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::forge::{self, Claims, Forger};
use credence_e2e::grants::READ;
use credence_e2e::{AUDIENCE, Client, Failure, ISSUER, Request, Stack};

use crate::evidence::Expectations;
use crate::screen::{Outcome, Screen};

const READ_BOOK: &str = r#"catalog.read={"item":{"constraint_type":"exact","value":"book"}}"#;
const READ_ANYTHING: &str = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
const CHARGE_UP_TO_100: &str = "payments.charge={\"account\":{\"constraint_type\":\"exact\",\"value\":\"acme\"},\
                                \"amount\":{\"constraint_type\":\"range\",\"min\":0,\"max\":100}}";

/// Shows each case.
pub(crate) fn show(stack: &Stack, screen: &mut Screen<impl Write>, expected: &mut Expectations) -> Result<(), Failure> {
    show_allowed(stack, screen, expected)?;
    show_denied(stack, screen, expected)
}

fn show_allowed(stack: &Stack, screen: &mut Screen<impl Write>, expected: &mut Expectations) -> Result<(), Failure> {
    screen.heading("Alice delegates to an agent")?;
    let root = stack.mint("alice", &["--id", "alice-root", "--tool", READ, "--max-depth", "2"])?;
    // One connection is one worker, and each worker has its own cache.
    let mut client = Client::connect(stack.envoy.ingress())?;
    for name in ["root delegation", "the same again, from the cache"] {
        let reply = client.send(&book().delegation(&root))?;
        screen.case(name, &reply, &Outcome::delegated())?;
        expected.decision("alice-root", "delegated");
    }

    let helper = stack.credence.keygen("helper")?;
    let chain = stack.derive(&root, &helper, &["--id", "helper-leaf", "--tool", READ_BOOK])?;
    let reply = stack.send(&book().delegation(&chain))?;
    screen.case("handed on to a helper: two hops", &reply, &Outcome::delegated())?;
    expected.decision("helper-leaf", "delegated");

    stack.wait_until_proofs_count()?;
    let chain = stack.mint("alice", &["--id", "alice-charge", "--tool", CHARGE_UP_TO_100])?;
    let client = format!(r#"listen: "127.0.0.1:0", service: "{}""#, stack.origin());
    let proxy = AgentProxy::start(stack, &chain, &client)?;
    let reply = proxy.send(charge("25"))?;
    screen.case(
        "charge of 25, proven by the agent's proxy",
        &reply,
        &Outcome::delegated(),
    )?;
    expected.decision("alice-charge", "delegated");
    let proof = stack.prove_charge(&chain, &stack.agent, "acme", "25")?;
    let request = charge("25").delegation(&chain).proof(&proof);
    screen.case(
        "charge of 25, with the agent's own proof",
        &stack.send(&request)?,
        &Outcome::delegated(),
    )?;
    expected.decision("alice-charge", "delegated");
    screen.case(
        "the same proof again",
        &stack.send(&request)?,
        &Outcome::denied("proof_replayed", 401),
    )?;
    expected.decision("alice-charge", "proof_replayed");

    let proof = stack.prove_charge(&chain, &stack.agent, "acme", "500")?;
    let reply = stack.send(&charge("500").delegation(&chain).proof(&proof))?;
    screen.case(
        "charge of 500, where 100 is the most",
        &reply,
        &Outcome::denied("argument_not_allowed", 403),
    )?;
    expected.decision("alice-charge", "argument_not_allowed");
    Ok(())
}

fn show_denied(stack: &Stack, screen: &mut Screen<impl Write>, expected: &mut Expectations) -> Result<(), Failure> {
    screen.heading("Invalid delegations are denied")?;
    screen.case(
        "no delegation",
        &stack.send(&book())?,
        &Outcome::denied("delegation_missing", 401),
    )?;
    expected.aggregate("delegation_missing");

    let agent = Forger::from_file(&stack.agent.file)?;
    let stranger = Forger::from_seed([7; 32]);
    let forged = stranger.token(&Claims::root(ISSUER, "alice", &agent, READ_ANYTHING)?)?;
    let reply = stack.send(&book().delegation(forged))?;
    screen.case(
        "signed by a stranger",
        &reply,
        &Outcome::denied("delegation_invalid", 401),
    )?;
    expected.aggregate("signature_invalid");

    let two_hours_ago = (forge::now() - 7_200).to_string();
    let expired = stack.mint("alice", &["--issued-at", &two_hours_ago, "--ttl", "1h", "--tool", READ])?;
    screen.case(
        "expired",
        &stack.send(&book().delegation(expired))?,
        &Outcome::denied("expired", 401),
    )?;
    expected.aggregate("expired");

    let elsewhere = Claims {
        jti: "elsewhere".to_owned(),
        aud: Some("https://elsewhere.example".to_owned()),
        ..Claims::root(ISSUER, "alice", &agent, READ_ANYTHING)?
    };
    let elsewhere = Forger::from_file(&stack.issuer.file)?.token(&elsewhere)?;
    let reply = stack.send(&book().delegation(elsewhere))?;
    screen.case(
        "meant for another service",
        &reply,
        &Outcome::denied("audience_mismatch", 401),
    )?;
    expected.decision("elsewhere", "audience_mismatch");

    let charges_only = stack.mint("alice", &["--id", "charges-only", "--tool", CHARGE_UP_TO_100])?;
    let reply = stack.send(&book().delegation(charges_only))?;
    screen.case("tool not granted", &reply, &Outcome::denied("tool_not_granted", 403))?;
    expected.decision("charges-only", "tool_not_granted");

    let wide = widened(stack)?;
    let reply = stack.send(&book().delegation(wide))?;
    screen.case(
        "a derived token that widens its parent",
        &reply,
        &Outcome::denied("attenuation_violated", 401),
    )?;
    expected.aggregate("attenuation_violated");

    let reply = stack.send(&Request::get("/healthz").header("x-delegation-subject", "alice"))?;
    screen.case("forged identity header on a public path", &reply, &Outcome::public())?;
    let arrived = reply.received().map(|received| received.identity_headers().len());
    screen.check(arrived == Some(0), format_args!("{AUDIENCE} never saw that header"))
}

/// A chain whose leaf, signed by the rightful holder, grants more than its parent. `credence derive` refuses to make
/// one.
fn widened(stack: &Stack) -> Result<String, Failure> {
    let agent = Forger::from_file(&stack.agent.file)?;
    let narrow = r#"{"catalog.read":{"item":{"constraint_type":"exact","value":"pen"}}}"#;
    let root_claims = Claims::root(ISSUER, "alice", &agent, narrow)?;
    let root = Forger::from_file(&stack.issuer.file)?.token(&root_claims)?;
    let leaf = agent.token(&Claims::derived((&root, &root_claims), &agent, &agent, READ_ANYTHING)?)?;
    Ok(format!("{root}~{leaf}"))
}

/// A request for an item of the catalogue.
pub(crate) fn book() -> Request {
    Request::get("/v1/catalog/book")
}

/// A charge of the account acme.
pub(crate) fn charge(amount: &str) -> Request {
    Request::post(&format!("/v1/accounts/acme/charges?amount={amount}"))
}
