//! What an allowed request looks like to the service: the changes that make it so.

use crate::config::{Policy, Requirement};
use crate::decision::{Allowance, Decision};
use crate::engine::Verdict;
use crate::request::{Header, Request};

/// One change to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// All header fields of this name go.
    Remove(&'a [u8]),
    /// This header gets this value, in place of all fields of its name.
    Set(&'a str, &'a str),
    /// The host's filter state has this value by this name.
    FilterState(&'a str, &'a str),
}

/// Makes every change that a decision by this configuration asks for, in order; none if the request is denied.
///
/// # Errors
/// The first of `change`.
pub fn make<E>(
    policy: &Policy,
    verdict: &Verdict<'_>,
    request: &Request<'_>,
    mut change: impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let Decision::Allow(allowance) = &verdict.decision else {
        return Ok(());
    };
    // Where nothing is asked for least of all: what is open to all must not turn into what is not.
    for name in &request.overrides {
        change(Change::Remove(name))?;
    }
    if policy.host_counts {
        for name in &request.host_overrides {
            change(Change::Remove(name))?;
        }
    }
    let Some(rule) = verdict.rule else {
        return Ok(());
    };
    if request.proof != Header::Absent {
        // No service gets to spend it.
        change(Change::Remove(policy.headers.proof.as_bytes()))?;
    }
    let forwards = |requirement: &Requirement| requirement.forward;
    if !rule.requirement.as_ref().is_some_and(forwards) && request.delegation != Header::Absent {
        change(Change::Remove(policy.headers.delegation.as_bytes()))?;
    }
    let Allowance::Delegated(grant) = allowance else {
        return Ok(());
    };
    for (name, value) in grant.identity.headers() {
        change(Change::Set(name, value))?;
    }
    for (part, value) in &grant.identity.parts {
        if policy.filter_state.contains(part) {
            change(Change::FilterState(part.filter_state(), value))?;
        }
    }
    Ok(())
}
