//! The token itself: a JWS (RFC 7515) whose claims are RFC 8417's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::{Json, Object};

use super::keys::KeySet;
use super::refusal::Refusal;
use crate::settings::{EventAlgorithm, TransmitterSettings};

/// A token split into its parts, with a parsed header. Nothing is verified.
#[derive(Debug)]
pub(crate) struct Unverified<'a> {
    /// The signed bytes.
    signing_input: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
    algorithm: EventAlgorithm,
    key_id: Option<String>,
}

/// The verified claims about the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) id: String,
    /// Seconds since the Unix epoch.
    pub(crate) issued_at: i64,
}

/// No key of the transmitter made the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotVerified {
    /// No key fits; a newer key set may have it.
    NoSuchKey,
    WrongSignature,
}

// === impl Unverified ===

impl<'a> Unverified<'a> {
    /// Reads only the header, which chooses a key and an algorithm among the configured ones.
    pub(crate) fn parse(text: &'a str, allowed: &[EventAlgorithm]) -> Result<Self, Refusal> {
        let malformed = |what: &str| Refusal::invalid_request(format!("not a security event token: {what}"));
        let mut parts = text.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("a JWS is three parts joined by dots (RFC 7515 section 7.1)"));
        };
        let signing_input = text.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        let decode = |part: &str, what: &str| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|_| malformed(&format!("its {what} is not base64url")))
        };
        let signature = decode(signature, "signature")?;
        let header = decode(header, "header")?;
        let header = Json::parse(&header).map_err(|error| malformed(&format!("its header: {error}")))?;
        let header = header
            .as_object()
            .ok_or_else(|| malformed("its header is not an object"))?;
        if header.member("crit").is_some() {
            return Err(malformed("its header has crit, and no extension is known here"));
        }
        let typ = header.text("typ").unwrap_or_default();
        let essence = match typ.split_once('/') {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("application") => rest,
            _ => typ,
        };
        if !essence.eq_ignore_ascii_case("secevent+jwt") {
            return Err(malformed(&format!(
                "its typ is {typ:?}; it must be secevent+jwt (RFC 8417 section 2.3)"
            )));
        }
        let algorithm = match header.text("alg") {
            Some("RS256") => Some(EventAlgorithm::Rs256),
            Some("ES256") => Some(EventAlgorithm::Es256),
            Some("EdDSA" | "Ed25519") => Some(EventAlgorithm::EdDsa),
            _ => None,
        };
        let algorithm = algorithm
            .filter(|algorithm| allowed.contains(algorithm))
            .ok_or_else(|| {
                Refusal::new(
                    "authentication_failed",
                    "its alg is not one of those configured for this transmitter",
                )
            })?;
        let key_id = match header.member("kid") {
            None => None,
            Some(Json::String(key_id)) => Some(key_id.clone().into_owned()),
            Some(_) => return Err(malformed("its kid is not a string")),
        };
        Ok(Self {
            signing_input,
            payload,
            signature,
            algorithm,
            key_id,
        })
    }

    /// The claims, if one of the keys has signed them.
    pub(crate) fn verify(&self, keys: &KeySet) -> Result<Vec<u8>, NotVerified> {
        let mut candidates = keys.candidates(self.algorithm, self.key_id.as_deref()).peekable();
        if candidates.peek().is_none() {
            return Err(NotVerified::NoSuchKey);
        }
        candidates
            .any(|key| key.verifies(self.signing_input.as_bytes(), &self.signature))
            .then(|| URL_SAFE_NO_PAD.decode(self.payload).ok())
            .flatten()
            .ok_or(NotVerified::WrongSignature)
    }
}

/// Checks all claims but the events. `now` is in seconds since the Unix epoch.
pub(crate) fn check(claims: &Object<'_>, transmitter: &TransmitterSettings, now: i64) -> Result<About, Refusal> {
    let issuer = text(claims, "iss")?;
    if issuer != transmitter.issuer {
        return Err(Refusal::new(
            "invalid_issuer",
            format!("iss is {issuer:?}; this transmitter's is {:?}", transmitter.issuer),
        ));
    }
    if !is_for(claims, &transmitter.audience) {
        return Err(Refusal::new(
            "invalid_audience",
            format!(
                "aud does not contain {:?}, the configured audience of this receiver",
                transmitter.audience
            ),
        ));
    }
    let id = text(claims, "jti")?;
    if id.len() > MAX_ID_BYTES {
        return Err(Refusal::invalid_request(format!(
            "jti has more than {MAX_ID_BYTES} bytes"
        )));
    }
    let issued_at = seconds(claims, "iat")?
        .ok_or_else(|| Refusal::invalid_request("iat is missing; it is when the token was made"))?;
    if issued_at > now.saturating_add(SKEW) {
        return Err(Refusal::invalid_request(format!(
            "iat lies {} seconds in the future; compare the clocks",
            issued_at.saturating_sub(now)
        )));
    }
    let oldest = now
        .saturating_sub(i64::from(transmitter.max_age_s))
        .saturating_sub(SKEW);
    if issued_at < oldest {
        return Err(Refusal::invalid_request(format!(
            "the token is {} seconds old; {} are allowed (security_events: max_age_s)",
            now.saturating_sub(issued_at),
            transmitter.max_age_s
        )));
    }
    if seconds(claims, "exp")?.is_some_and(|expires| expires <= now.saturating_sub(SKEW)) {
        return Err(Refusal::invalid_request("the token has expired"));
    }
    if seconds(claims, "nbf")?.is_some_and(|begins| begins > now.saturating_add(SKEW)) {
        return Err(Refusal::invalid_request("nbf lies in the future"));
    }
    Ok(About {
        id: id.to_owned(),
        issued_at,
    })
}

fn text<'a>(claims: &'a Object<'_>, name: &str) -> Result<&'a str, Refusal> {
    claims
        .text(name)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Refusal::invalid_request(format!("{name} is missing, or not a string, or empty")))
}

fn seconds(claims: &Object<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    claims
        .member(name)
        .map(|json| {
            json.as_integer()
                .ok_or_else(|| Refusal::invalid_request(format!("{name} must be whole seconds since the Unix epoch")))
        })
        .transpose()
}

fn is_for(claims: &Object<'_>, audience: &str) -> bool {
    match claims.member("aud") {
        Some(Json::String(one)) => one == audience,
        Some(Json::Array(several)) => {
            several.iter().all(|one| one.as_str().is_some()) && several.iter().any(|one| one.as_str() == Some(audience))
        }
        _ => false,
    }
}

/// How long after `iat` the token can be accepted. After that nothing about it must be remembered.
pub(crate) fn worthless_after(issued_at: i64, transmitter: &TransmitterSettings) -> i64 {
    issued_at
        .saturating_add(i64::from(transmitter.max_age_s))
        .saturating_add(2 * SKEW)
}

/// The allowed difference of clocks, in seconds.
const SKEW: i64 = 60;
const MAX_ID_BYTES: usize = 256;
