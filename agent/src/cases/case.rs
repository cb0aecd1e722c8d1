//! One line of `credence verify --jsonl`: a named case as a JSON object.
//!
//! Unknown members beside the case, such as a title or a note, are ignored. Unknown members that could change the
//! answer are refused: a misspelt policy that was meant to deny must not allow.

use credence_delegation::json::{Json, JsonError, Object};
use credence_delegation::{Algorithm, Algorithms, Arguments, HttpUri, JwkSet, PublicKey, TrustAnchors, UnixTime};

use super::anchor::{self, AccessTokenAnchor};
use super::anchor::{DID_KEY, IssuerKeys};
use super::id::CaseId;
use super::question::{Policy, Question, RequiredProof};

/// A case with a name.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) id: CaseId,
    pub(super) question: Question,
    /// Which anchors, or keys of them, are not used, and why, for people.
    pub(super) skipped_anchors: Vec<String>,
}

/// Why a line is denied without a decision.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CaseError {
    #[error("longer than {MAX_LINE_BYTES} bytes; split the case or shorten it")]
    TooLong,
    #[error("{0}; write one JSON object on each line")]
    Json(#[from] JsonError),
    #[error("{place} must be {expected}")]
    Member { place: String, expected: &'static str },
    /// A case, but with an unknown policy.
    #[error("policy{0}")]
    Policy(String),
}

impl Case {
    /// Reads one line without its end.
    pub(super) fn parse(line: &[u8]) -> Result<Self, CaseError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(CaseError::TooLong);
        }
        let json = Json::parse(line)?;
        let case = object(&json, "a case")?;
        let policy = match given(case, "policy") {
            None => &Object::default(),
            Some(policy) => object(policy, "policy")?,
        };
        let algorithms = algorithms(policy)?;
        let (anchors, skipped_anchors) = anchors(required(case, "anchors")?, &algorithms)?;
        Ok(Self {
            id: CaseId::from_json(required(case, "id")?)
                .ok_or_else(|| wrong("id", "a string, a number, true, false or null"))?,
            question: Question {
                anchors,
                holder_algorithms: algorithms,
                chain: chain(required(case, "chain")?)?,
                proof: match given(case, "proof") {
                    None => None,
                    Some(proof) => Some(text(proof, "proof")?.to_owned()),
                },
                tool: text(required(case, "tool")?, "tool")?.to_owned(),
                arguments: match given(case, "args") {
                    None => Ok(Arguments::new()),
                    Some(arguments) => Arguments::from_json(object(arguments, "args")?),
                },
                now: time(required(case, "now")?).ok_or_else(|| wrong("now", "whole seconds since the Unix epoch"))?,
                audience: match required(case, "audience")? {
                    Json::String(one) => vec![one.clone().into_owned()],
                    several => texts(several).ok_or_else(|| wrong("audience", "an array of strings"))?,
                },
                // Last, so that an invalid line is reported as such even if its policy is unknown.
                policy: read_policy(policy, case)?,
            },
            skipped_anchors,
        })
    }
}

/// The usable anchors, and why the others are not. An unusable anchor does not refuse the case: its issuer is just not
/// trusted.
fn anchors(json: &Json<'_>, algorithms: &Algorithms) -> Result<(TrustAnchors, Vec<String>), CaseError> {
    let list = json
        .as_array()
        .ok_or_else(|| wrong("anchors", "an array of {\"iss\",\"jwk\"} objects"))?;
    let mut anchors = Vec::with_capacity(list.len());
    let mut skipped = Vec::new();
    for (index, json) in list.iter().enumerate() {
        let place = format!("anchors[{index}]");
        let anchor = object(json, &place)?;
        let issuer = anchor
            .member("iss")
            .ok_or_else(|| wrong(format!("{place}.iss"), "a string"))?;
        let issuer = text(issuer, &format!("{place}.iss"))?;
        let (jwk, jwks) = (given(anchor, "jwk"), given(anchor, "jwks"));
        if jwk.or(jwks).is_none() && !issuer.starts_with(DID_KEY) {
            return Err(wrong(
                format!("{place}.jwk"),
                "a public JWK, or \"jwks\" in its place, a JWK set",
            ));
        }
        // An unknown member may limit what the anchor is trusted for.
        if let Some((name, _)) = anchor.iter().find(|(name, _)| !ANCHOR_MEMBERS.contains(name)) {
            let known = ANCHOR_MEMBERS.join(", ");
            skipped.push(format!(
                "{place} is not trusted: it has an unknown member \"{name}\"; it can have {known}"
            ));
            continue;
        }
        if let Some(access_tokens) = given(anchor, "access_tokens") {
            let entry = AccessTokenAnchor {
                issuer,
                jwk,
                jwks,
                access_tokens,
            };
            match entry.read(algorithms) {
                Ok((usable, notes)) => {
                    anchors.extend(usable);
                    skipped.extend(notes.iter().map(|note| format!("{place}: {note}")));
                }
                Err(error) => skipped.push(format!("{place} is not trusted: {error}")),
            }
            continue;
        }
        let usable =
            issuer_keys(jwk, jwks, &place, &mut skipped).and_then(|keys| anchor::anchors(issuer, keys, algorithms));
        match usable {
            Ok(usable) => anchors.extend(usable),
            Err(error) => skipped.push(format!("{place} is not trusted: {error}")),
        }
    }
    Ok((TrustAnchors::new(anchors), skipped))
}

/// The keys beside an issuer's name. `skipped` receives the keys of a set that cannot verify signatures.
fn issuer_keys(
    jwk: Option<&Json<'_>>,
    jwks: Option<&Json<'_>>,
    place: &str,
    skipped: &mut Vec<String>,
) -> Result<Option<IssuerKeys>, String> {
    match (jwk, jwks) {
        (None, None) => Ok(None),
        (Some(jwk), None) => PublicKey::from_jwk(jwk)
            .map(|key| Some(IssuerKeys::One(Box::new(key))))
            .map_err(|error| error.to_string()),
        (None, Some(jwks)) => {
            let set = JwkSet::from_json(jwks).map_err(|error| error.to_string())?;
            skipped.extend(
                set.skipped()
                    .iter()
                    .map(|key| format!("{place}.jwks.keys[{}] is not used: {}", key.index, key.why)),
            );
            Ok(Some(IssuerKeys::Set(set.keys().to_vec())))
        }
        (Some(_), Some(_)) => Err("it has both \"jwk\" and \"jwks\"; write one of them".to_owned()),
    }
}

fn read_policy(policy: &Object<'_>, case: &Object<'_>) -> Result<Policy, CaseError> {
    let flag = |name: &str| match given(policy, name) {
        None => Ok(false),
        Some(flag) => flag
            .as_bool()
            .ok_or_else(|| wrong(format!("policy.{name}"), "true or false")),
    };
    let read = Policy {
        proof: match given(policy, "proof") {
            None => RequiredProof::Pop,
            Some(proof) => match text(proof, "policy.proof")? {
                "none" => RequiredProof::None,
                "pop" | "required" => RequiredProof::Pop,
                "dpop" => dpop(case)?,
                found => {
                    return Err(CaseError::Policy(format!(
                        ".proof is \"{found}\", which is unknown; it may be \"none\", \"pop\" or \"required\", or \
                         \"dpop\" for access tokens"
                    )));
                }
            },
        },
        require_proof_audience: flag("require_pop_aud")?,
        require_chain_audience: flag("require_chain_aud")?,
        nonce: match given(policy, "nonce") {
            None => None,
            Some(nonce) => Some(text(nonce, "policy.nonce")?.to_owned()),
        },
    };
    match policy.iter().find(|(name, _)| !POLICY_MEMBERS.contains(name)) {
        None => Ok(read),
        Some((name, _)) => Err(CaseError::Policy(format!(
            " has an unknown member \"{name}\"; it may have {}",
            POLICY_MEMBERS.join(", ")
        ))),
    }
}

/// The request that a DPoP proof must be for.
fn dpop(case: &Object<'_>) -> Result<RequiredProof, CaseError> {
    let member = |name| text(required(case, name)?, name);
    Ok(RequiredProof::Dpop {
        method: member("method")?.to_owned(),
        uri: HttpUri::parse(member("uri")?).ok_or_else(|| wrong("uri", "an absolute http or https URI"))?,
    })
}

/// The named algorithms that exist here. An unknown one verifies nothing anyway.
fn algorithms(policy: &Object<'_>) -> Result<Algorithms, CaseError> {
    let Some(list) = given(policy, "algs") else {
        return Ok(Algorithms::default());
    };
    let names = texts(list).ok_or_else(|| wrong("policy.algs", "an array of strings, such as [\"Ed25519\"]"))?;
    Ok(Algorithms::new(
        names.iter().filter_map(|name| Algorithm::from_name(name)),
    ))
}

/// The tokens, root first: an array, or one string joined by `~` as in the `delegation` header.
fn chain(json: &Json<'_>) -> Result<Vec<String>, CaseError> {
    match json {
        Json::String(joined) => Ok(joined.split('~').map(str::to_owned).collect()),
        tokens => {
            texts(tokens).ok_or_else(|| wrong("chain", "an array of strings, or one string of tokens joined by `~`"))
        }
    }
}

/// Whole seconds in any notation: 1704067500, 1704067500.0 or 1.7040675e9.
fn time(json: &Json<'_>) -> Option<UnixTime> {
    let Json::Number(number) = json else { return None };
    if let Some(seconds) = number.integer() {
        return Some(UnixTime(seconds));
    }
    // A double must be exact.
    let seconds = number.admissible()?.value();
    (seconds.fract() == 0.0 && seconds.abs() <= MAX_EXACT_INTEGER).then_some(UnixTime(seconds as i64))
}

/// A member that is present and not `null`.
fn given<'a, 'j>(object: &'a Object<'j>, name: &str) -> Option<&'a Json<'j>> {
    object.member(name).filter(|json| **json != Json::Null)
}

fn required<'a, 'j>(case: &'a Object<'j>, name: &str) -> Result<&'a Json<'j>, CaseError> {
    case.member(name).ok_or_else(|| wrong(name, "there"))
}

fn object<'a, 'j>(json: &'a Json<'j>, place: &str) -> Result<&'a Object<'j>, CaseError> {
    json.as_object().ok_or_else(|| wrong(place, "an object"))
}

fn text<'a>(json: &'a Json<'_>, place: &str) -> Result<&'a str, CaseError> {
    json.as_str().ok_or_else(|| wrong(place, "a string"))
}

fn texts(json: &Json<'_>) -> Option<Vec<String>> {
    json.as_array()?
        .iter()
        .map(|one| one.as_str().map(str::to_owned))
        .collect()
}

fn wrong(place: impl Into<String>, expected: &'static str) -> CaseError {
    CaseError::Member {
        place: place.into(),
        expected,
    }
}

/// Bytes of one line without its end. Far more than the limits on a chain, so that an oversized chain is denied by
/// those.
pub const MAX_LINE_BYTES: usize = 16 << 20;

const ANCHOR_MEMBERS: [&str; 4] = ["iss", "jwk", "jwks", "access_tokens"];
const POLICY_MEMBERS: [&str; 5] = ["require_pop_aud", "require_chain_aud", "nonce", "algs", "proof"];

/// 2^53: up to here every whole number is a double.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
