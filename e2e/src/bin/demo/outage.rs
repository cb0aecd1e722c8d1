//! The control plane is down: filters soon deny all delegations, and no revocation is lost when it comes back.

use std::io::Write;
use std::time::Instant;

use credence_e2e::{Failure, Stack};

use crate::decisions::book;
use crate::evidence::Expectations;
use crate::revocations::Revoked;
use crate::screen::{Outcome, Screen};

/// Kills the control plane, and starts it again.
pub(crate) fn show(
    mut stack: Stack,
    revoked: &Revoked,
    screen: &mut Screen<impl Write>,
    expected: &mut Expectations,
) -> Result<Stack, Failure> {
    screen.heading("The control plane crashes (kill -9)")?;
    stack.control_plane.kill()?;
    let begin = Instant::now();
    stack.wait_until_stale()?;
    let after = begin.elapsed().as_secs_f32();
    let kept = book().delegation(&revoked.sibling_kept);
    screen.case("without it", &stack.send(&kept)?, &Outcome::denied("stale", 503))?;
    expected.aggregate("stale");
    screen.check(
        after < MAX_STALENESS + 1.0,
        format_args!("trusted for {after:.1} s more; max_staleness is 2 s here"),
    )?;

    stack.control_plane.restart()?;
    let begin = Instant::now();
    stack.wait_until_synced()?;
    let after = begin.elapsed().as_secs_f32();
    screen.case(
        "after its restart, carol-two",
        &stack.send(&kept)?,
        &Outcome::delegated(),
    )?;
    expected.decision("carol-two", "delegated");
    screen.check(
        true,
        format_args!("all workers were connected again {after:.1} s after it was ready"),
    )?;
    for (name, id, chain, reason) in [
        (
            "after its restart, carol-one",
            "carol-one",
            &revoked.sibling_revoked,
            "revoked_delegation",
        ),
        (
            "after its restart, bob",
            "bob-root",
            &revoked.of_principal,
            "revoked_principal",
        ),
    ] {
        screen.case(
            name,
            &stack.send(&book().delegation(chain))?,
            &Outcome::denied(reason, 401),
        )?;
        expected.decision(id, reason);
    }
    Ok(stack)
}

/// In seconds, as `StackOptions::quick` sets it.
const MAX_STALENESS: f32 = 2.0;
