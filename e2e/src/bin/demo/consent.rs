//! A person consents on the issuer's page, allows less than was asked for, and takes it back: all by plain forms.

use std::io::Write;
use std::time::Instant;

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::issuer::Issuer;
use credence_e2e::{Failure, Stack, waiting};

use crate::decisions::charge;
use crate::evidence::Expectations;
use crate::screen::{Outcome, Screen, milliseconds};

/// Shows a grant, its use, and its withdrawal.
pub(crate) fn show(
    stack: &Stack,
    issuer: &Issuer,
    screen: &mut Screen<impl Write>,
    expected: &mut Expectations,
) -> Result<(), Failure> {
    screen.heading("Ada lets a planner act for her")?;
    issuer.wait_until_trusted(stack)?;
    let mut planner = AgentProxy::prepare(stack)?;
    let settings = planner.settings_with_issuer(stack, &issuer.url(), "")?;
    planner.serve(&settings)?;
    let mut ada = issuer.browser("ada");
    let page = ada.open(&planner.consent_page(&charge("25"))?)?;
    let words = page
        .lines()
        .into_iter()
        .filter(|line| SHOWN.iter().any(|part| line.contains(part)));
    screen.check(
        page.html.contains("Let <em>Planner</em> act for you?"),
        format_args!("she reads: {}", words.collect::<Vec<_>>().join(" / ")),
    )?;

    stack.wait_until_proofs_count()?;
    let choice = [("t0", "on"), ("t0a1max", "50"), ("decision", "allow")];
    let back = ada.submit(&page.form("/consent")?, &choice)?;
    expected.decision("", "granted");
    screen.check(
        back.html == "The agent can work for you now. You can close this page.",
        format_args!("she allows 50 at most, and the agent's proxy says: {}", back.html),
    )?;
    // The page answers as soon as the proxy has the delegation, which it then takes up.
    let charged = waiting::until("the proxy to use the delegation", || {
        let reply = planner.send(charge("25"))?;
        Ok((reply.reason().as_deref() != Some("no_delegation")).then_some(reply))
    })?;
    screen.case("charge of 25, through the proxy", &charged, &Outcome::delegated())?;
    let beyond = Outcome::denied("argument_not_allowed", 403);
    screen.case(
        "charge of 80: not sent by the proxy",
        &planner.send(charge("80"))?,
        &beyond,
    )?;
    let received = charged.received();
    let id = received
        .as_ref()
        .and_then(|received| received.header("x-delegation-id"));
    let id = id
        .ok_or_else(|| Failure::new("the service saw no delegation"))?
        .to_owned();
    expected.decision(&id, "delegated");

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
        &planner.send(charge("25"))?,
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
