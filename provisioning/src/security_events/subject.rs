//! The user that an event is about: `sub_id` (RFC 9493 section 4.1), the `subject` in the event itself (drafts of CAEP
//! and RISC), or `iss` and `sub` of the token.

use credence_delegation::json::{Json, Object};

use super::refusal::Refusal;
use crate::settings::{EventSubject, TransmitterSettings};
use credence_revocation::PrincipalName;

/// The principal. All given identifiers must name the same one.
pub(crate) fn principal(
    claims: &Object<'_>,
    event: &Object<'_>,
    transmitter: &TransmitterSettings,
) -> Result<PrincipalName, Refusal> {
    let named = [
        ("sub_id", claims.member("sub_id")),
        ("subject", event.member("subject")),
    ];
    let mut found: Option<String> = None;
    for (place, identifier) in named {
        let Some(identifier) = identifier else { continue };
        let identifier = identifier
            .as_object()
            .ok_or_else(|| Refusal::invalid_request(format!("{place} is not an object (RFC 9493)")))?;
        let name = user(identifier, place, transmitter)?;
        match &found {
            Some(other) if *other != name => {
                return Err(Refusal::invalid_request(
                    "sub_id and the event's subject name different users",
                ));
            }
            _ => found = Some(name),
        }
    }
    let name = match (found, claims.member("sub")) {
        (Some(name), _) => name,
        (None, Some(Json::String(sub))) if transmitter.subject == EventSubject::IssSub => sub.clone().into_owned(),
        _ => {
            return Err(Refusal::invalid_request(format!(
                "the event has no subject: sub_id, or subject in the event, must be a subject identifier \
                 {}",
                wanted(transmitter.subject)
            )));
        }
    };
    PrincipalName::parse(transmitter.principal_issuer.clone(), Some(name))
        .map_err(|error| Refusal::invalid_request(format!("the subject is not a valid principal: {error}")))
}

/// The user of a simple identifier, or of a complex one (OpenID Shared Signals Framework section 3.2).
fn user(identifier: &Object<'_>, place: &str, transmitter: &TransmitterSettings) -> Result<String, Refusal> {
    let format = format(identifier);
    if format == Some("complex") || (format.is_none() && identifier.member("user").is_some()) {
        let user = identifier.object("user").ok_or_else(|| {
            Refusal::invalid_request(format!(
                "{place} names no user; other subjects (a session, a device, a tenant) are not supported"
            ))
        })?;
        return simple(user, &format!("{place}.user"), transmitter);
    }
    simple(identifier, place, transmitter)
}

fn simple(identifier: &Object<'_>, place: &str, transmitter: &TransmitterSettings) -> Result<String, Refusal> {
    let format =
        format(identifier).ok_or_else(|| Refusal::invalid_request(format!("{place} has no format (RFC 9493)")))?;
    if format == "aliases" {
        let identifiers = identifier.array("identifiers").unwrap_or_default();
        let suitable = identifiers.iter().filter_map(Json::as_object).find(|identifier| {
            self::format(identifier).is_some_and(|format| formats(transmitter.subject).contains(&format))
        });
        return match suitable {
            Some(identifier) => simple(identifier, place, transmitter),
            None => Err(unsuitable(place, format, transmitter.subject)),
        };
    }
    if !formats(transmitter.subject).contains(&format) {
        return Err(unsuitable(place, format, transmitter.subject));
    }
    let text = |name: &str| {
        identifier
            .text(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| Refusal::invalid_request(format!("{place} lacks {name} (RFC 9493 section 3.2)")))
    };
    match transmitter.subject {
        EventSubject::IssSub => {
            let issuer = text("iss")?;
            if issuer != transmitter.issuer && issuer != transmitter.principal_issuer {
                return Err(Refusal::invalid_request(format!(
                    "{place} is about a user of {issuer:?}, but this transmitter may not report about that issuer's \
                     users"
                )));
            }
            text("sub")
        }
        EventSubject::Email => text("email"),
        EventSubject::Opaque => text("id"),
        EventSubject::Account => text("uri")?
            .strip_prefix("acct:")
            .filter(|name| !name.is_empty())
            .ok_or_else(|| Refusal::invalid_request(format!("{place}.uri is not an acct: URI (RFC 7565)"))),
    }
    .map(str::to_owned)
}

/// RISC first used `subject_type`, with hyphens.
fn format<'a>(identifier: &'a Object<'_>) -> Option<&'a str> {
    let format = identifier
        .member("format")
        .or_else(|| identifier.member("subject_type"));
    format.and_then(Json::as_str)
}

/// The names of the formats that identify principals; the first is RFC 9493's name.
fn formats(subject: EventSubject) -> &'static [&'static str] {
    match subject {
        EventSubject::IssSub => &["iss_sub", "iss-sub"],
        EventSubject::Email => &["email"],
        EventSubject::Opaque => &["opaque"],
        EventSubject::Account => &["account"],
    }
}

fn wanted(subject: EventSubject) -> String {
    format!("of the format {}", formats(subject).first().unwrap_or(&""))
}

fn unsuitable(place: &str, found: &str, subject: EventSubject) -> Refusal {
    Refusal::invalid_request(format!(
        "{place} has the format {found:?}; this transmitter's principals are named by one {} (security_events: \
         subject)",
        wanted(subject)
    ))
}
