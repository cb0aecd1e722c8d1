//! Events, and their consequences.

use credence_delegation::json::Object;

use super::refusal::Refusal;

/// The consequence of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Consequence {
    /// Only an answer.
    Acknowledge,
    /// Removes the disables of this transmitter. Earlier grants stay revoked.
    Enable,
    /// Revokes everything granted so far.
    Raise,
    /// Also revokes everything granted later, until the principal is enabled.
    Disable,
}

/// An event of a known type.
#[derive(Debug)]
pub(crate) struct Event<'a, 'b> {
    pub(crate) consequence: Consequence,
    pub(crate) payload: &'a Object<'b>,
}

/// The events of known types. Others are ignored (RFC 8417 section 2.2).
pub(crate) fn known<'a, 'b>(claims: &'a Object<'b>) -> Result<Vec<Event<'a, 'b>>, Refusal> {
    let events = claims
        .object("events")
        .filter(|events| !events.is_empty())
        .ok_or_else(|| Refusal::invalid_request("events must be an object with at least one event"))?;
    let mut known = Vec::new();
    for (uri, payload) in events.iter() {
        let payload = payload
            .as_object()
            .ok_or_else(|| Refusal::invalid_request(format!("in events, {uri:?} is not an object")))?;
        if let Some(consequence) = consequence_of(uri) {
            known.push(Event { consequence, payload });
        }
    }
    if known.len() > MAX_EVENTS {
        return Err(Refusal::invalid_request(format!(
            "a token has at most {MAX_EVENTS} events"
        )));
    }
    Ok(known)
}

fn consequence_of(uri: &str) -> Option<Consequence> {
    let event = uri.strip_prefix("https://schemas.openid.net/secevent/")?;
    Some(match event {
        "caep/event-type/session-revoked"
        | "caep/event-type/credential-change"
        | "risc/event-type/sessions-revoked"
        | "risc/event-type/credential-compromise" => Consequence::Raise,
        "risc/event-type/account-disabled" | "risc/event-type/account-purged" => Consequence::Disable,
        "risc/event-type/account-enabled" => Consequence::Enable,
        "ssf/event-type/verification"
        | "ssf/event-type/stream-updated"
        | "sse/event-type/verification"
        | "caep/event-type/verification"
        | "risc/event-type/verification" => Consequence::Acknowledge,
        _ => return None,
    })
}

const MAX_EVENTS: usize = 16;
