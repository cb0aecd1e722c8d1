//! A person from the claims of a verified ID token.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::inspect::printable;
use credence_delegation::json::{Json, Object};
use openidconnect::core::{CoreIdToken, CoreIdTokenClaims};

use super::error::{SignInError, shown};

/// What the sign-in must be like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demanded {
    /// How long ago the person may have signed in, in seconds.
    pub(crate) max_age: Option<u32>,
    /// Accepted `acr`. Empty: any.
    pub(crate) acr: Vec<String>,
}

/// The claims with a person's subject, groups and name.
#[derive(Debug)]
pub(super) struct ClaimNames {
    pub(super) subject: String,
    pub(super) groups: String,
    pub(super) name: String,
}

/// A person who has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// The subject of their principal.
    pub(crate) subject: String,
    pub(crate) name: Option<String>,
    pub(crate) groups: BTreeSet<String>,
    /// When the person signed in, if the provider says so.
    pub(crate) auth_time: Option<u64>,
    pub(crate) acr: Option<String>,
}

/// Whether an ID token was just issued: it comes from the provider itself.
pub(super) fn check_issued(issued_at: i64, now: i64) -> Result<(), String> {
    match now - MAX_ID_TOKEN_AGE <= issued_at && issued_at <= now + SKEW {
        true => Ok(()),
        false => Err(format!("iat is {issued_at}, and the time is {now}; check the clocks")),
    }
}

/// Whether the sign-in is as it was demanded (OpenID Connect Core 1.0, section 3.1.3.7, steps 12 and 13).
pub(super) fn check_demanded(claims: &CoreIdTokenClaims, demanded: &Demanded, now: i64) -> Result<(), SignInError> {
    let auth_time = claims.auth_time().map(|time| time.timestamp());
    if auth_time.is_none() && demanded.max_age.is_some() {
        return Err(SignInError::NoAuthTime);
    }
    if let Some(auth_time) = auth_time {
        // A time in the future would stay recent for longer.
        if auth_time < 0 || auth_time > now + SKEW {
            return Err(claim("auth_time", "is not a time in the past; check the clocks"));
        }
        let age = now - auth_time;
        if let Some(limit) = demanded.max_age.filter(|limit| age > i64::from(*limit) + SKEW) {
            return Err(SignInError::NotRecent { age, limit });
        }
    }
    let acr = claims.auth_context_ref().map(|acr| acr.as_str());
    let is_demanded = |acr: &str| demanded.acr.iter().any(|demanded| demanded == acr);
    match demanded.acr.is_empty() || acr.is_some_and(is_demanded) {
        true => Ok(()),
        false => Err(SignInError::Acr {
            found: shown(acr.unwrap_or("(none)")),
            demanded: demanded.acr.join(", "),
        }),
    }
}

/// Reads the claims.
pub(super) fn read(claims: &CoreIdTokenClaims, token: &CoreIdToken, names: &ClaimNames) -> Result<Person, SignInError> {
    let text = token.to_string();
    let payload = text
        .split('.')
        .nth(1)
        .and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    let payload = payload.unwrap_or_default();
    // The library takes the last of two claims with one name; this parser takes none.
    let json = Json::parse(&payload).map_err(|error| SignInError::IdToken(shown(&error.to_string())))?;
    let not_an_object = || SignInError::IdToken("its payload is not a JSON object".to_owned());
    let payload = json.as_object().ok_or_else(not_an_object)?;
    let subject = payload.text(&names.subject).unwrap_or_default();
    if subject.is_empty() || subject.len() > MAX_SUBJECT_BYTES || subject.chars().any(char::is_control) {
        return Err(claim(
            &names.subject,
            "is missing or empty, longer than 255 bytes or has control characters",
        ));
    }
    let name = payload.text(&names.name);
    if name.is_some_and(|name| name.len() > MAX_NAME_BYTES) {
        return Err(claim(&names.name, "is longer than 256 bytes"));
    }
    Ok(Person {
        subject: subject.to_owned(),
        name: name.map(printable),
        groups: groups(payload, &names.groups)?,
        auth_time: claims.auth_time().map(|time| time.timestamp().unsigned_abs()),
        acr: claims.auth_context_ref().map(|acr| acr.to_string()),
    })
}

/// The person's groups, all or none: part of them could match a rule that was not meant for this person.
fn groups(payload: &Object<'_>, name: &str) -> Result<BTreeSet<String>, SignInError> {
    let wrong = |problem| Err(claim(name, problem));
    let groups = match payload.member(name) {
        None if are_left_out(payload, name) => return Err(SignInError::GroupsLeftOut(name.to_owned())),
        None => return Ok(BTreeSet::new()),
        Some(Json::Array(groups)) => groups.as_slice(),
        Some(group) => std::slice::from_ref(group),
    };
    if groups.len() > MAX_GROUPS {
        return wrong("has more than 256 groups; let the provider list fewer");
    }
    let names: Option<BTreeSet<String>> = groups.iter().map(|group| group.as_str().map(str::to_owned)).collect();
    match names {
        None => wrong("is neither a list of names nor one name"),
        Some(names) if names.iter().any(|name| name.len() > MAX_GROUP_BYTES) => {
            wrong("has a group with a name of more than 256 bytes")
        }
        Some(names) => Ok(names),
    }
}

/// Whether the provider has the groups elsewhere (OpenID Connect Core 1.0, section 5.6.2). Microsoft Entra ID does so
/// for people in more than 200 groups.
fn are_left_out(payload: &Object<'_>, name: &str) -> bool {
    let is_elsewhere = payload
        .object("_claim_names")
        .is_some_and(|names| names.member(name).is_some());
    let has_groups = payload
        .member("hasgroups")
        .is_some_and(|has| has.as_bool() != Some(false));
    is_elsewhere || (name == "groups" && has_groups)
}

fn claim(name: &str, problem: &'static str) -> SignInError {
    SignInError::Claim {
        claim: name.to_owned(),
        problem,
    }
}

const MAX_SUBJECT_BYTES: usize = 255;
const MAX_NAME_BYTES: usize = 256;
const MAX_GROUPS: usize = 256;
const MAX_GROUP_BYTES: usize = 256;
/// How far the provider's clock may be off, in seconds.
const SKEW: i64 = 30;
/// How long ago an ID token may have been issued, in seconds: a code may live for ten minutes.
const MAX_ID_TOKEN_AGE: i64 = 600 + SKEW;
