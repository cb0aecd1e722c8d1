//! A person consents on the issuer's page, allows less than was asked for, and takes it back: all by plain forms.

use std::io::Write;
use std::time::Instant;

use credence_e2e::forge::Forger;
use credence_e2e::issuer::Issuer;
use credence_e2e::{Failure, Reply, Stack};

use crate::decisions::charge;
use crate::evidence::Expectations;
use crate::screen::{Outcome, Screen, milliseconds};

/// What the planner asks for.
const CHARGE_UP_TO_100: &str = r#"{"payments.charge":{"account":{"constraint_type":"exact","value":"acme"},
    "amount":{"constraint_type":"range","min":0,"max":100}}}"#;

/// Shows a grant, its use, and its withdrawal.
pub(crate) fn show(
    stack: &Stack,
    issuer: &Issuer,
    screen: &mut Screen<impl Write>,
    expected: &mut Expectations,
) -> Result<(), Failure> {
    screen.heading("Ada lets a planner act for her")?;
    issuer.wait_until_trusted(stack)?;
    let mut planner = issuer.client(Forger::from_file(&stack.agent.file)?)?;
    let mut ada = issuer.browser("ada");
    let asked = planner.ask(CHARGE_UP_TO_100, 0)?;
    let page = ada.open(&asked.page)?;
    let words = page
        .lines()
        .into_iter()
        .filter(|line| SHOWN.iter().any(|part| line.contains(part)));
    screen.check(
        page.html.contains("Let <em>Planner</em> act for you?"),
        format_args!("she reads: {}", words.collect::<Vec<_>>().join(" / ")),
    )?;

    let choice = [("t0", "on"), ("t0a1max", "50"), ("decision", "allow")];
    let back = ada.submit(&page.form("/consent")?, &choice)?;
    let code = back
        .returned("code")
        .ok_or_else(|| Failure::new(format!("no code: {}", back.html)))?;
    let tokens = planner.redeem(&asked, &code)?;
    let tokens = tokens.map_err(|refused| Failure::new(format!("no token: {refused}")))?;
    let id = tokens.id()?;
    expected.decision("", "granted");
    screen.check(
        true,
        "she allows 50 at most, and the planner redeems the code for a delegation",
    )?;

    stack.wait_until_proofs_count()?;
    let charged = |amount: &str| -> Result<Reply, Failure> {
        let proof = stack.prove_charge(&tokens.access_token, &stack.agent, "acme", amount)?;
        stack.send(&charge(amount).delegation(&tokens.access_token).proof(proof))
    };
    screen.case("charge of 25", &charged("25")?, &Outcome::delegated())?;
    expected.decision(&id, "delegated");
    let beyond = Outcome::denied("argument_not_allowed", 403);
    screen.case("charge of 80, which was asked for", &charged("80")?, &beyond)?;
    expected.decision(&id, "argument_not_allowed");

    let listed = issuer.grants(&mut ada)?;
    let form = listed.into_iter().find_map(|grant| grant.withdraw);
    let form = form.ok_or_else(|| Failure::new("the page lists no grant"))?;
    let began = Instant::now();
    let page = ada.submit(&form, &[])?;
    let took = milliseconds(began.elapsed());
    let notice = page.lines().into_iter().find(|line| line.starts_with("Taken back."));
    screen.check(
        notice.as_deref() == Some("Taken back. No service accepts it any more."),
        format_args!(
            "she takes it back; after {took} the page says: {}",
            notice.unwrap_or_default()
        ),
    )?;
    expected.decision(&id, "withdrawn_by_person");
    screen.case(
        "charge of 25 again",
        &charged("25")?,
        &Outcome::denied("revoked_delegation", 401),
    )?;
    expected.decision(&id, "revoked_delegation");
    Ok(())
}

/// Parts of the lines of the page that are printed.
const SHOWN: [&str; 4] = [
    "act for you?",
    "charge an account",
    "the account is",
    "the amount in euros",
];
