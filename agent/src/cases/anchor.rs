//! A trusted issuer and its keys.

use std::cell::RefCell;

use credence_delegation::json::Json;
use credence_delegation::trust::{self, Entry};
use credence_delegation::{
    Algorithm, Algorithms, Findings, IdentifiedKey, Location, PublicKey, TrustAnchor, Value, canonicalize,
};
use serde_json::value::RawValue;

/// The prefix of issuers whose name contains their key.
pub const DID_KEY: &str = "did:key:";

/// The keys of an issuer: one, or a JWK set.
#[derive(Debug)]
pub enum IssuerKeys {
    /// One key.
    One(Box<PublicKey>),
    /// The keys of the set that can verify signatures.
    Set(Vec<IdentifiedKey>),
}

/// The trust anchors of one issuer, with the given keys or, for a `did:key`, with the key in its name. An error says
/// why the issuer cannot be trusted.
pub fn anchors(issuer: &str, keys: Option<IssuerKeys>, algorithms: &Algorithms) -> Result<Vec<TrustAnchor>, String> {
    let keys = if issuer.starts_with(DID_KEY) {
        vec![unnamed(did_key(issuer, keys)?)]
    } else {
        match keys {
            None => return Err("it has no key; only a did:key issuer needs none".to_owned()),
            Some(IssuerKeys::One(key)) => vec![unnamed(*key)],
            Some(IssuerKeys::Set(keys)) => keys,
        }
    };
    let anchors = keys.into_iter().map(|IdentifiedKey { id, key }| TrustAnchor {
        issuer: issuer.to_owned(),
        key,
        key_id: id,
        algorithms: algorithms.clone(),
        asserts_subjects: false,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    });
    Ok(anchors.collect())
}

/// The parts of an anchor whose access tokens count, as JSON.
pub(super) struct AccessTokenAnchor<'a> {
    pub(super) issuer: &'a str,
    pub(super) jwk: Option<&'a Json<'a>>,
    pub(super) jwks: Option<&'a Json<'a>>,
    pub(super) access_tokens: &'a Json<'a>,
}

impl AccessTokenAnchor<'_> {
    /// The trust anchors, read as an entry of the filter's configuration, and notes about keys that are not used. An
    /// error says why the issuer cannot be trusted.
    pub(super) fn read(&self, algorithms: &Algorithms) -> Result<(Vec<TrustAnchor>, Vec<String>), String> {
        let mut names: Vec<String> = Vec::new();
        for algorithm in algorithms
            .iter()
            .filter(|one| Algorithm::OF_ACCESS_TOKENS.contains(one))
        {
            let name = algorithm.name().to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // The settings' numbers are exact, or an error.
        let access_tokens = Value::from_json(self.access_tokens).map_err(|error| format!("access_tokens: {error}"))?;
        let entry = Entry {
            issuer: self.issuer.to_owned(),
            jwk: self.jwk.map(key_text).transpose()?,
            jwks: self.jwks.map(key_text).transpose()?,
            keys: None,
            same_principals_as: None,
            algorithms: Some(names),
            asserts_subjects: false,
            access_tokens: Some(raw(access_tokens.canonical())?),
            delegations: None,
        };
        let findings = RefCell::default();
        let anchors = trust::trust(&Location::root(&findings), vec![entry]);
        let Findings { problems, notes, .. } = findings.into_inner();
        let said = |path: &str, message: &str| {
            let place = path.trim_start_matches("[0]").trim_start_matches('.');
            match place {
                "" => message.to_owned(),
                _ => format!("{place}: {message}"),
            }
        };
        match problems.first() {
            Some(problem) => Err(said(&problem.path, &problem.message)),
            None => {
                let notes = notes.iter().map(|note| said(&note.path, &note.message));
                Ok((anchors.iter().cloned().collect(), notes.collect()))
            }
        }
    }
}

/// The text of a JWK or a JWK set. No member that counts is a number.
fn key_text(json: &Json<'_>) -> Result<Box<RawValue>, String> {
    let text = canonicalize(json).ok_or("its JWK has a number that is out of range")?;
    raw(text)
}

fn raw(text: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text).map_err(|error| error.to_string())
}

fn did_key(issuer: &str, beside: Option<IssuerKeys>) -> Result<PublicKey, String> {
    let key = PublicKey::from_did_key(issuer).map_err(|error| error.to_string())?;
    match beside {
        Some(IssuerKeys::Set(_)) => Err("a did:key issuer has only the key in its name, and no JWK set".to_owned()),
        Some(IssuerKeys::One(other)) if *other != key => Err(format!(
            "the issuer's name does not contain this key, but another one: that of {}",
            other.to_did_key()
        )),
        Some(IssuerKeys::One(_)) | None => Ok(key),
    }
}

fn unnamed(key: PublicKey) -> IdentifiedKey {
    IdentifiedKey { id: None, key }
}
