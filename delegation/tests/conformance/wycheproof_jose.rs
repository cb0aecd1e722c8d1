//! Wycheproof's JOSE vectors: tokens, each with the key or the key set that verifies it.
//!
//! Most have keys of kinds that we do not implement, or are encrypted. A valid token of that kind must be refused
//! because of its algorithm. Neither it nor an invalid one shows anything about signatures that we verify, so none of
//! them counts as passed.

use credence_delegation::json::{Json, Object};
use credence_delegation::{
    Algorithm, Algorithms, Cause, JwkSet, JwkSetError, KeyError, KeyType, PublicKey, SigningKey, canonicalize, jws,
};

use crate::data::{Downloaded, array, from_base64url, integer, object, string};
use crate::report::Suite;

pub(crate) fn signatures() -> Suite {
    run("Wycheproof JSON Web Signature", "json_web_signature_test.json")
}

pub(crate) fn keys() -> Suite {
    run("Wycheproof JSON Web Key", "json_web_key_test.json")
}

/// The older collection of both, which has encrypted tokens too.
pub(crate) fn crypto() -> Suite {
    run("Wycheproof JSON Web Crypto", "json_web_crypto_test.json")
}

fn run(name: &str, file: &str) -> Suite {
    let vectors = match Downloaded::wycheproof() {
        Ok(vectors) => vectors,
        Err(reason) => return Suite::skipped(name, reason),
    };
    let text = vectors.file(&format!("testvectors_v1/{file}"));
    let json = Json::parse(&text).unwrap();
    let mut suite = Suite::new(name);
    let mut cases = 0;
    for group in array(object(&json), "testGroups").iter().map(object) {
        // Symmetric keys have no public half: the file has them only as "private".
        let jwk = group.member("public").or(group.member("private")).unwrap();
        let keys = Keys::read(jwk);
        for test in array(group, "tests").iter().map(object) {
            cases += 1;
            one(&mut suite, string(group, "comment"), &keys, test);
        }
    }
    assert_eq!(
        cases,
        integer(object(&json), "numberOfTests"),
        "every case must have run"
    );
    suite
}

fn one(suite: &mut Suite, group: &str, keys: &Keys, test: &Object<'_>) {
    let id = format!("tcId {} ({group}: {})", integer(test, "tcId"), string(test, "comment"));
    let token = test.member("jws").or(test.member("jwe")).unwrap();
    // A token in the JSON serialisation is an object: a client would send its text.
    let token = token
        .as_str()
        .map_or_else(|| canonicalize(token).unwrap(), str::to_owned);
    let got = keys.verify(&token);
    match (string(test, "result"), &got) {
        ("valid", Err(refusal)) => {
            let reason = purposeful(&token, refusal);
            let kind = format!(
                "valid, and refused as must be: {}",
                reason.as_deref().unwrap_or_default()
            );
            suite.other_kind(id, true, reason.is_some(), kind);
        }
        (result, Err(refusal)) => match already_refused(test, refusal) {
            Some(kind) => suite.other_kind(id, result, "invalid", format!("invalid, and already refused: {kind}")),
            None => {
                if suite.case(id, result, "invalid") {
                    suite.remark(format!("invalid, and refused for {}", fault(refusal)));
                }
            }
        },
        (result, Ok(())) => {
            if suite.case(id, result, "valid") {
                suite.remark("valid, and accepted");
            }
        }
    }
}

/// Why an invalid token would be refused even if it were valid; `None` if its fault was checked.
fn already_refused(test: &Object<'_>, refusal: &Refusal) -> Option<String> {
    if test.member("jwe").is_some() {
        return Some(ENCRYPTED.to_owned());
    }
    match refusal.key.as_ref()? {
        KeyError::Unsupported { kty, crv } => Some(format!("keys of kty {kty}, crv \"{crv}\" are not implemented")),
        KeyError::Private("k") => Some("symmetric keys are not implemented".to_owned()),
        _ => None,
    }
}

/// Why we refuse a token that is valid by its own rules; `None` if we should have accepted it.
fn purposeful(token: &str, refusal: &Refusal) -> Option<String> {
    let header = header(token);
    let algorithm = header.as_deref().map(|bytes| Json::parse(bytes).unwrap());
    let algorithm = algorithm
        .as_ref()
        .and_then(|header| header.as_object()?.member("alg")?.as_str());
    match refusal {
        Refusal {
            key: Some(KeyError::Unsupported { .. } | KeyError::Private("k")),
            token: Cause::AlgorithmNotAllowed,
        } => Some(format!("{} is not implemented", algorithm?)),
        _ if token.split('.').count() == 5 && refusal.token == not_three_parts() => Some(ENCRYPTED.to_owned()),
        Refusal {
            key: Some(KeyError::Private("k")),
            token: Cause::Malformed(what),
        } if header.is_none() => Some(format!(
            "{what}; RFC 7515, section 2, leaves no room for other characters, and HS256 is not implemented anyway"
        )),
        _ => None,
    }
}

/// The reason for refusing an invalid token, in few words.
fn fault(refusal: &Refusal) -> String {
    match (&refusal.key, &refusal.token) {
        (Some(KeyError::Private(_)), _) => "a private key in place of the public one".to_owned(),
        (Some(KeyError::Purpose { member, .. }), _) => format!("a key whose \"{member}\" is for another purpose"),
        (Some(KeyError::Unusable(key_type)), _) => format!("a key that is no point of {key_type}"),
        (Some(error), _) => error.to_string(),
        (None, Cause::KeyUnknown) => "a kid that no key of its set has".to_owned(),
        (None, _) => "its signature or its header".to_owned(),
    }
}

/// The cause for a token without three parts.
fn not_three_parts() -> Cause {
    jws::verify("....", None, &stand_in(), &Algorithms::default()).unwrap_err()
}

/// The keys that verify a group's tokens.
enum Keys {
    One(PublicKey),
    Set(JwkSet),
    /// The keys are refused themselves, so no token can be accepted.
    Refused(KeyError),
}

/// Why a token is refused.
#[derive(Debug)]
struct Refusal {
    /// Because of its key.
    key: Option<KeyError>,
    /// Because of the token. If its key is refused: the cause with another key.
    token: Cause,
}

impl Keys {
    fn read(jwk: &Json<'_>) -> Self {
        if object(jwk).member("keys").is_none() {
            return PublicKey::from_jwk(jwk).map_or_else(Self::Refused, Self::One);
        }
        match JwkSet::from_json(jwk) {
            Ok(set) => Self::Set(set),
            Err(JwkSetError::Key { error, .. }) => Self::Refused(error),
            // Why no key can be used: the reason of the first.
            Err(JwkSetError::Empty { .. }) => {
                let first = &array(object(jwk), "keys")[0];
                Self::Refused(PublicKey::from_jwk(first).unwrap_err())
            }
            Err(error) => panic!("{error}: {jwk:?}"),
        }
    }

    fn verify(&self, token: &str) -> Result<(), Refusal> {
        let verify = |key: &PublicKey| jws::verify(token, None, key, &Algorithms::new(Algorithm::ALL)).map(|_| ());
        match self {
            Self::One(key) => verify(key).map_err(|token| Refusal { key: None, token }),
            Self::Set(set) => {
                let mut refused = Cause::KeyUnknown;
                for key in selected(set, token) {
                    match verify(&key) {
                        Ok(()) => return Ok(()),
                        Err(cause) => refused = cause,
                    }
                }
                Err(Refusal {
                    key: None,
                    token: refused,
                })
            }
            Self::Refused(error) => match verify(&stand_in()) {
                Ok(()) => panic!("the replacement key has signed nothing: {token}"),
                Err(token) => Err(Refusal {
                    key: Some(error.clone()),
                    token,
                }),
            },
        }
    }
}

/// The keys of the set that may verify the token, by its `kid` (RFC 7515, section 4.1.4).
fn selected(set: &JwkSet, token: &str) -> Vec<PublicKey> {
    let header = header(token);
    let header = header.as_deref().and_then(|header| Json::parse(header).ok());
    let id = header
        .as_ref()
        .and_then(|header| header.as_object()?.member("kid")?.as_str());
    let keys = set.keys().iter();
    keys.filter(|key| id.is_none() || key.id.is_none() || key.id.as_deref() == id)
        .map(|key| key.key.clone())
        .collect()
}

/// A key that made none of the signatures. It replaces a refused key, so that the token is checked all the same.
fn stand_in() -> PublicKey {
    SigningKey::from_secret(KeyType::P256, &[1; 32]).unwrap().public()
}

fn header(token: &str) -> Option<Vec<u8>> {
    from_base64url(token.split('.').next()?)
}

const ENCRYPTED: &str = "it is encrypted (JWE), not signed";
