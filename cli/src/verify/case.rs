//! One line of `credence verify --jsonl`: a named question as a JSON object.
//!
//! Whatever is not known is refused: a policy that was meant to deny and is spelt wrongly must not allow.

use credence_delegation::json::{Json, JsonError, Object};
use credence_delegation::{Algorithm, Algorithms, Arguments, PublicKey, TrustAnchor, TrustAnchors, UnixTime};

use super::question::{Policy, ProofPolicy, Question};

/// A question with a name.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) question: Question,
}

/// Why a line is not a case.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CaseError {
    #[error("{0}; write one JSON object a line")]
    Json(#[from] JsonError),
    #[error("{place} must be {expected}")]
    Member { place: String, expected: &'static str },
    #[error("{place} has an unknown member \"{name}\"; it may have {known}")]
    UnknownMember { place: String, name: String, known: String },
    #[error("{place}: {problem}")]
    Key { place: String, problem: String },
}

impl Case {
    pub(super) fn parse(line: &[u8]) -> Result<Self, CaseError> {
        let json = Json::parse(line)?;
        let case = object(&json, "a case")?;
        known_members(case, "a case", &MEMBERS)?;
        let policy = match case.member("policy") {
            None => None,
            Some(policy) => Some(object(policy, "policy")?),
        };
        let algorithms = policy.map(algorithms).transpose()?.unwrap_or_default();
        let arguments = object(required(case, "args")?, "args")?;
        Ok(Self {
            id: text(required(case, "id")?, "id")?.to_owned(),
            question: Question {
                anchors: anchors(required(case, "anchors")?, &algorithms)?,
                holder_algorithms: algorithms,
                chain: texts(required(case, "chain")?, "chain")?,
                proof: match case.member("proof") {
                    None | Some(Json::Null) => None,
                    Some(proof) => Some(text(proof, "proof")?.to_owned()),
                },
                tool: text(required(case, "tool")?, "tool")?.to_owned(),
                arguments: Arguments::from_json(arguments),
                now: required(case, "now")?
                    .as_integer()
                    .map(UnixTime)
                    .ok_or_else(|| wrong("now", "whole seconds since the Unix epoch"))?,
                audience: match required(case, "audience")? {
                    Json::String(one) => vec![one.clone().into_owned()],
                    several => texts(several, "audience")?,
                },
                policy: policy.map(read_policy).transpose()?.unwrap_or(DEFAULT_POLICY),
            },
        })
    }
}

fn anchors(json: &Json<'_>, algorithms: &Algorithms) -> Result<TrustAnchors, CaseError> {
    let list = json
        .as_array()
        .ok_or_else(|| wrong("anchors", "an array of {\"iss\",\"jwk\"} objects"))?;
    let mut anchors = Vec::with_capacity(list.len());
    for (index, json) in list.iter().enumerate() {
        let place = format!("anchors[{index}]");
        let anchor = object(json, &place)?;
        known_members(anchor, &place, &["iss", "jwk"])?;
        let member = |name: &str, expected| {
            anchor.member(name).ok_or_else(|| CaseError::Member {
                place: format!("{place}.{name}"),
                expected,
            })
        };
        let key = PublicKey::from_jwk(member("jwk", "a public JWK")?).map_err(|error| CaseError::Key {
            place: format!("{place}.jwk"),
            problem: error.to_string(),
        })?;
        anchors.push(TrustAnchor {
            issuer: text(member("iss", "a string")?, &format!("{place}.iss"))?.to_owned(),
            key,
            algorithms: algorithms.clone(),
            asserts_subjects: false,
        });
    }
    Ok(TrustAnchors::new(anchors))
}

fn read_policy(policy: &Object<'_>) -> Result<Policy, CaseError> {
    known_members(policy, "policy", &POLICY_MEMBERS)?;
    let flag = |name: &str| match policy.member(name) {
        None => Ok(false),
        Some(flag) => flag
            .as_bool()
            .ok_or_else(|| wrong(format!("policy.{name}"), "true or false")),
    };
    Ok(Policy {
        proof: match policy.member("proof").map(Json::as_str) {
            None => ProofPolicy::Required,
            Some(Some("none")) => ProofPolicy::Ignored,
            Some(_) => return Err(wrong("policy.proof", "\"none\", or left out where a proof is required")),
        },
        require_proof_audience: flag("require_pop_aud")?,
        require_chain_audience: flag("require_chain_aud")?,
        nonce: match policy.member("nonce") {
            None => None,
            Some(nonce) => Some(text(nonce, "policy.nonce")?.to_owned()),
        },
    })
}

fn algorithms(policy: &Object<'_>) -> Result<Algorithms, CaseError> {
    const EXPECTED: &str = "an array of \"Ed25519\" or \"EdDSA\"";
    match policy.member("algs") {
        None => Ok(Algorithms::default()),
        Some(list) => list
            .as_array()
            .and_then(|names| {
                names
                    .iter()
                    .map(|name| name.as_str().and_then(Algorithm::from_name))
                    .collect()
            })
            .map(|algorithms: Vec<_>| Algorithms::new(algorithms))
            .ok_or_else(|| wrong("policy.algs", EXPECTED)),
    }
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

fn texts(json: &Json<'_>, place: &str) -> Result<Vec<String>, CaseError> {
    json.as_array()
        .and_then(|list| list.iter().map(|one| one.as_str().map(str::to_owned)).collect())
        .ok_or_else(|| wrong(place, "an array of strings"))
}

fn known_members(object: &Object<'_>, place: &str, known: &[&str]) -> Result<(), CaseError> {
    match object.iter().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(CaseError::UnknownMember {
            place: place.to_owned(),
            name: name.to_owned(),
            known: known.join(", "),
        }),
    }
}

fn wrong(place: impl Into<String>, expected: &'static str) -> CaseError {
    CaseError::Member {
        place: place.into(),
        expected,
    }
}

const MEMBERS: [&str; 9] = [
    "id", "anchors", "chain", "proof", "tool", "args", "now", "audience", "policy",
];
const POLICY_MEMBERS: [&str; 5] = ["require_pop_aud", "require_chain_aud", "nonce", "algs", "proof"];

/// The policy of a case without one.
const DEFAULT_POLICY: Policy = Policy {
    proof: ProofPolicy::Required,
    require_proof_audience: false,
    require_chain_audience: false,
    nonce: None,
};
