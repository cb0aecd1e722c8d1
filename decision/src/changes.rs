//! The changes that turn an allowed request into the one that the service receives.

use crate::config::{Policy, Requirement};
use crate::decision::{Allowance, Decision};
use crate::engine::Verdict;
use crate::mcp::session::SESSION_HEADERS;
use crate::request::{Header, Request};

/// One change to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Removes all header fields of this name.
    Remove(&'a [u8]),
    /// Sets this header, which replaces all fields of its name.
    Set(&'a str, &'a str),
    /// Replaces the body.
    Body(&'a str),
    /// Sets this name in the host's filter state to this value.
    FilterState(&'a str, &'a str),
}

/// Makes every change of a decision by this configuration, in order. None if the request is denied.
///
/// # Errors
/// The first error of `change`.
pub fn make<E>(
    policy: &Policy,
    verdict: &Verdict<'_>,
    request: &Request<'_>,
    mut change: impl FnMut(Change<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let Decision::Allow(allowance) = &verdict.decision else {
        return Ok(());
    };
    // Also on public routes: an override header must not turn a public request into one that needs a delegation.
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
        // The service must not be able to use the proof.
        change(Change::Remove(policy.headers.proof.as_bytes()))?;
    }
    let forwards = |requirement: &Requirement| requirement.forward;
    if !rule.requirement.as_ref().is_some_and(forwards) && request.delegation != Header::Absent {
        change(Change::Remove(policy.headers.delegation.as_bytes()))?;
    }
    if let Some(requirement) = rule.requirement.as_ref().filter(|read| read.authorization.is_some()) {
        if request.header("dpop") != Header::Absent {
            change(Change::Remove(b"dpop"))?;
        }
        if !requirement.forward && request.authorization != Header::Absent {
            change(Change::Remove(b"authorization"))?;
        }
    }
    if let Some(endpoint) = rule.requirement.as_ref().and_then(Requirement::mcp) {
        let session = verdict.findings.mcp.as_ref().and_then(|mcp| mcp.session.as_ref());
        let ids = session.map_or([None, None], |session| session.ids.each_ref().map(Option::as_deref));
        for ((header, _), id) in SESSION_HEADERS.into_iter().zip(ids) {
            match id {
                Some(id) => change(Change::Set(header, id))?,
                // A server of several versions must not take the request for one of a session.
                None => {
                    let named = request.headers_beginning(header);
                    for (name, _) in named.filter(|(name, _)| name.len() == header.len()) {
                        change(Change::Remove(name))?;
                    }
                }
            }
        }
        if let Some(body) = verdict.findings.mcp.as_ref().and_then(|mcp| mcp.body.as_deref()) {
            if request.header("content-length") != Header::Absent {
                change(Change::Set("content-length", &body.len().to_string()))?;
            }
            if request.header("content-digest") != Header::Absent {
                change(Change::Remove(b"content-digest"))?;
            }
            change(Change::Body(body))?;
        }
        if endpoint.rewrites_answers() && request.header("accept-encoding") != Header::Absent {
            // What is compressed cannot be read.
            change(Change::Remove(b"accept-encoding"))?;
        }
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
