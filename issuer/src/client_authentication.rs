//! Which client calls: by its assertion (RFC 7523), its certificate (RFC 8705), or, if it is public, by its name alone.

use std::sync::Arc;

use credence_delegation::json::Json;
use credence_delegation::{Algorithms, DpopContext, DpopProof, HttpUri, JwkSet, Limits, UnixTime, jws};
use credence_server::Peer;

use crate::app::App;
use crate::clients::{Authentication, Client, ClientError};
use crate::error::{Code, OauthError};
use crate::parameters::Parameters;

/// Finds and authenticates the client of a request to this endpoint.
pub(crate) async fn authenticate(
    app: &App,
    peer: &Peer,
    parameters: &Parameters,
    now: u64,
) -> Result<Arc<Client>, OauthError> {
    let assertion = parameters.one("client_assertion");
    if parameters.one("client_secret").is_some() {
        return Err(refused(
            "clients have no secrets here; use private_key_jwt, mutual TLS, or no authentication",
        ));
    }
    let named = match (parameters.one("client_id"), assertion) {
        (Some(id), _) => id.to_owned(),
        (None, Some(assertion)) => subject_of(assertion).ok_or_else(|| refused("the assertion names no client"))?,
        (None, None) => return Err(refused("client_id is missing")),
    };
    let client = app
        .clients
        .find(&named, peer.address.ip())
        .await
        .map_err(|error| match error {
            ClientError::Busy => Code::TemporarilyUnavailable.with(error.to_string()),
            ClientError::Fetch(error) => {
                tracing::info!(%error, "a client's document cannot be read");
                refused("the client's document cannot be read")
            }
            error => refused(error.to_string()),
        })?;
    match (&client.authentication, assertion) {
        (Authentication::None, None) => {}
        (Authentication::None, Some(_)) => return Err(refused("the client is public; send no assertion")),
        (Authentication::Certificate(name), None) => {
            let certificate = peer.certificate();
            let has_name = |name: &str| {
                certificate.is_some_and(|found| found.dns.iter().any(|dns| dns.eq_ignore_ascii_case(name)))
            };
            if !has_name(name) {
                return Err(refused(
                    "the client authenticates with a certificate, and this is not the one",
                ));
            }
        }
        (Authentication::PrivateKeyJwt(keys), Some(assertion)) => {
            if parameters.one("client_assertion_type") != Some(JWT_BEARER) {
                return Err(refused("client_assertion_type is not that of RFC 7523"));
            }
            check_assertion(app, peer, &client, keys, assertion, now)?;
        }
        (Authentication::PrivateKeyJwt(_) | Authentication::Certificate(_), _) => {
            return Err(refused("the client has to authenticate as it is registered"));
        }
    }
    Ok(client)
}

/// The claims of RFC 7523, section 3.
fn check_assertion(
    app: &App,
    peer: &Peer,
    client: &Client,
    keys: &JwkSet,
    assertion: &str,
    now: u64,
) -> Result<(), OauthError> {
    if assertion.len() > MAX_ASSERTION_BYTES {
        return Err(refused("the assertion is too long"));
    }
    let payload = keys
        .keys()
        .iter()
        .find_map(|identified| jws::verify(assertion, None, &identified.key, &Algorithms::all()).ok());
    let payload = payload.ok_or_else(|| refused("no key of the client has signed the assertion"))?;
    let json = Json::parse(&payload).map_err(|_| refused("the assertion is no JSON"))?;
    let claims = json
        .as_object()
        .ok_or_else(|| refused("the assertion is no JSON object"))?;
    if claims.text("iss") != Some(&client.id) || claims.text("sub") != Some(&client.id) {
        return Err(refused("iss and sub of the assertion must be the client_id"));
    }
    // Only this issuer: an assertion for another server must not count here (RFC 9700, section 4.4, and RFC 7523bis).
    let is_ours =
        |audience: &str| audience == app.url || audience == app.endpoint("/token") || audience == app.endpoint("/par");
    let is_for_us = match claims.member("aud") {
        Some(Json::String(audience)) => is_ours(audience),
        Some(Json::Array(audiences)) => matches!(audiences.as_slice(), [one] if one.as_str().is_some_and(is_ours)),
        _ => false,
    };
    if !is_for_us {
        return Err(refused("aud of the assertion must be this issuer, and nothing else"));
    }
    let time = |name: &str| claims.integer(name).and_then(|time| u64::try_from(time).ok());
    let expires_at = time("exp").ok_or_else(|| refused("the assertion has no exp"))?;
    if expires_at <= now || !is_recent(time("iat"), expires_at, now) {
        return Err(refused(
            "exp of the assertion is past, or iat is more than five minutes ago; without iat, exp is more than five minutes \
             ahead",
        ));
    }
    if ["iat", "nbf"]
        .into_iter()
        .any(|name| time(name).is_some_and(|time| time > now.saturating_add(SKEW_SECONDS)))
    {
        return Err(refused("iat or nbf of the assertion is in the future"));
    }
    let id = claims.text("jti").ok_or_else(|| refused("the assertion has no jti"))?;
    let made_at = time("iat").unwrap_or(expires_at.saturating_sub(MAX_ASSERTION_SECONDS));
    use_once(app, peer, &format!("assertion {} {id}", client.id), made_at)
}

/// Whether an assertion that has not expired was just made. It must not count for longer than its id is remembered, and
/// some libraries make it valid for an hour.
fn is_recent(issued_at: Option<u64>, expires_at: u64, now: u64) -> bool {
    match issued_at {
        Some(issued_at) => now <= issued_at.saturating_add(MAX_ASSERTION_SECONDS),
        None => expires_at <= now.saturating_add(MAX_ASSERTION_SECONDS),
    }
}

/// The thumbprint of the key that a DPoP proof for this endpoint shows.
pub(crate) fn proved_key(
    app: &App,
    peer: &Peer,
    proof: Option<&str>,
    endpoint: &str,
    now: u64,
) -> Result<Option<String>, OauthError> {
    let Some(proof) = proof else { return Ok(None) };
    let wrong = |error: &dyn std::fmt::Display| Code::InvalidDpopProof.with(error.to_string());
    let (limits, algorithms) = (Limits::default(), Algorithms::all());
    let parsed = DpopProof::parse(proof, &algorithms, &limits, None).map_err(|denial| wrong(&denial))?;
    let uris: Vec<HttpUri> = HttpUri::parse(&app.endpoint(endpoint)).into_iter().collect();
    let context = DpopContext {
        method: "POST",
        uris: &uris,
        access_token: None,
        limits: &limits,
        now: UnixTime(i64::try_from(now).unwrap_or(i64::MAX)),
        hot_keys: None,
    };
    let verified = parsed.verify(&context).map_err(|denial| wrong(&denial))?;
    let thumbprint = parsed.key().thumbprint().to_string();
    let made_at = verified.issued_at().0.unsigned_abs();
    use_once(app, peer, &format!("proof {thumbprint} {}", verified.id()), made_at)
        .map_err(|error| Code::InvalidDpopProof.with(error.description))?;
    Ok(Some(thumbprint))
}

/// Used ids are lost at a restart, so what was made before it may be a replay.
fn use_once(app: &App, peer: &Peer, id: &str, made_at: u64) -> Result<(), OauthError> {
    if made_at < app.started_at {
        return Err(refused("this was made before the issuer started; make another one"));
    }
    match app.used_ids.keep_as(id, crate::app::network(peer), ()) {
        true => Ok(()),
        false => Err(refused("this was used before; make another one")),
    }
}

/// The client that an assertion names, before it is verified.
fn subject_of(assertion: &str) -> Option<String> {
    use base64::Engine as _;
    let payload = assertion.split('.').nth(1)?;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    let json = Json::parse(&payload).ok()?;
    json.as_object()?.text("sub").map(str::to_owned)
}

fn refused(description: impl Into<String>) -> OauthError {
    Code::InvalidClient.with(description)
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const MAX_ASSERTION_BYTES: usize = 8 << 10;
const MAX_ASSERTION_SECONDS: u64 = 330;
const SKEW_SECONDS: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_counts_for_five_minutes_after_it_was_made() {
        const NOW: u64 = 10_000;
        for (issued_at, expires_at, expected) in [
            (Some(NOW), NOW + 60, true),
            (Some(NOW), NOW + 3_600, true),
            (Some(NOW - 300), NOW + 3_300, true),
            // Its id may be forgotten by now, however soon it expires.
            (Some(NOW - 600), NOW + 10, false),
            (None, NOW + 300, true),
            (None, NOW + 3_600, false),
        ] {
            assert_eq!(
                is_recent(issued_at, expires_at, NOW),
                expected,
                "{issued_at:?} {expires_at}"
            );
        }
    }
}
