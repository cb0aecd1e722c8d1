//! A revocation takes effect at once, in every worker.

use std::io::Write;
use std::time::Instant;

use credence_e2e::grants::READ;
use credence_e2e::{Failure, ISSUER, Stack};

use crate::decisions::book;
use crate::evidence::Expectations;
use crate::screen::{Outcome, Screen, milliseconds};

/// Delegations, by what was revoked of them.
#[derive(Debug)]
pub(crate) struct Revoked {
    /// Of a principal who was revoked altogether.
    pub(crate) of_principal: String,
    /// The revoked one of two delegations of a principal.
    pub(crate) sibling_revoked: String,
    /// The other one, which stays valid.
    pub(crate) sibling_kept: String,
}

/// Shows the revocation of a principal and of one delegation.
pub(crate) fn show(
    stack: &Stack,
    screen: &mut Screen<impl Write>,
    expected: &mut Expectations,
) -> Result<Revoked, Failure> {
    screen.heading("Bob revokes all delegations")?;
    let of_principal = stack.mint("bob", &["--id", "bob-root", "--tool", READ])?;
    let mut workers = stack.envoy.connection_to_every_worker()?;
    for (worker, client) in workers.iter_mut().enumerate() {
        let reply = client.send(&book().delegation(&of_principal))?;
        screen.case(&format!("before, worker {worker}"), &reply, &Outcome::delegated())?;
        expected.decision("bob-root", "delegated");
    }
    let began = Instant::now();
    let said = stack.revoke(&["principal", "--issuer", ISSUER, "--subject", "bob"])?;
    let took = milliseconds(began.elapsed());
    screen.check(
        said.contains("applied by all"),
        format_args!("`credence revoke principal` returned after {took}: every filter has applied it"),
    )?;
    for (worker, client) in workers.iter_mut().enumerate() {
        let reply = client.send(&book().delegation(&of_principal))?;
        screen.case(
            &format!("after, worker {worker}"),
            &reply,
            &Outcome::denied("revoked_principal", 401),
        )?;
        expected.decision("bob-root", "revoked_principal");
    }

    screen.heading("Carol revokes one of two delegations")?;
    let root = stack.mint("carol", &["--id", "carol-root", "--tool", READ, "--max-depth", "1"])?;
    let sibling = |id| stack.derive(&root, &stack.agent, &["--id", id, "--same-tools"]);
    let (sibling_revoked, sibling_kept) = (sibling("carol-one")?, sibling("carol-two")?);
    let [client, ..] = workers.as_mut_slice() else {
        return Err(Failure::new("Envoy has no worker"));
    };
    for (id, chain) in [("carol-one", &sibling_revoked), ("carol-two", &sibling_kept)] {
        screen.case(
            &format!("before, {id}"),
            &client.send(&book().delegation(chain))?,
            &Outcome::delegated(),
        )?;
        expected.decision(id, "delegated");
    }
    stack.revoke(&["delegation", "--chain", &sibling_revoked])?;
    let reply = client.send(&book().delegation(&sibling_revoked))?;
    screen.case("after, carol-one", &reply, &Outcome::denied("revoked_delegation", 401))?;
    expected.decision("carol-one", "revoked_delegation");
    let reply = client.send(&book().delegation(&sibling_kept))?;
    screen.case("after, carol-two", &reply, &Outcome::delegated())?;
    expected.decision("carol-two", "delegated");
    Ok(Revoked {
        of_principal,
        sibling_revoked,
        sibling_kept,
    })
}
