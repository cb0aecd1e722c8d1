//! Wycheproof's JOSE vectors: tokens, each with the key or the set of keys to verify it with.
//!
//! Most are of algorithms that we do not implement. Those are no less of a test: where such a token is valid, it must
//! be refused all the same, and because of its algorithm.

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
        // Symmetric keys have no public half: the file gives them as "private" only.
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
    // One in the JSON serialisation is given as an object: its text is what a client would send.
    let token = token
        .as_str()
        .map_or_else(|| canonicalize(token).unwrap(), str::to_owned);
    let got = keys.verify(&token);
    match (string(test, "result"), &got) {
        ("valid", Err(refusal)) => {
            let reason = purposeful(&token, refusal);
            if suite.case(id, true, reason.is_some()) {
                suite.remark(format!("valid, and refused as must be: {}", reason.unwrap_or_default()));
            }
        }
        (result, _) => {
            let passed = suite.case(id, result, if got.is_ok() { "valid" } else { "invalid" });
            if passed {
                suite.remark(match got.err().and_then(|refusal| refusal.key) {
                    None => "decided by signature and header".to_owned(),
                    Some(error) => format!("invalid, and already refused for {}", fault(&error)),
                });
            }
        }
    }
}

/// Why we refuse a token that is valid by its own rules, or `None` if we should have accepted it.
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
        _ if token.split('.').count() == 5 && refusal.token == not_three_parts() => {
            Some("it is encrypted (JWE), not signed".to_owned())
        }
        Refusal {
            key: Some(KeyError::Private("k")),
            token: Cause::Malformed(what),
        } if header.is_none() => Some(format!(
            "{what}; RFC 7515, section 2, leaves no room for other characters, and HS256 is not implemented anyway"
        )),
        _ => None,
    }
}

/// What is wrong with a key, in few words.
fn fault(error: &KeyError) -> String {
    match error {
        KeyError::Unsupported { kty, crv } => format!("a key of kty {kty}, crv \"{crv}\", which is not implemented"),
        KeyError::Private("k") => "a symmetric key".to_owned(),
        KeyError::Private(_) => "a private key in place of the public one".to_owned(),
        KeyError::Purpose { member, .. } => format!("a key whose \"{member}\" is for something else"),
        KeyError::Unusable(key_type) => format!("a key that is no point of {key_type}"),
        other => other.to_string(),
    }
}

/// What a token is refused as if it has not three parts.
fn not_three_parts() -> Cause {
    jws::verify("....", None, &stand_in(), &Algorithms::default()).unwrap_err()
}

/// The keys that a group's tokens are verified with.
enum Keys {
    One(PublicKey),
    Set(JwkSet),
    /// Refused themselves, so that no token can be accepted.
    Refused(KeyError),
}

/// Why a token is refused.
#[derive(Debug)]
struct Refusal {
    /// Because its key is.
    key: Option<KeyError>,
    /// Because of the token. If its key is refused: because of the token even if its key were not.
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
            // Why none of them can be used, by the first.
            Err(JwkSetError::Empty { .. }) => {
                let first = &array(object(jwk), "keys")[0];
                Self::Refused(PublicKey::from_jwk(first).unwrap_err())
            }
            Err(error) => panic!("{error}: {jwk:?}"),
        }
    }

    fn verify(&self, token: &str) -> Result<(), Refusal> {
        let (key, refused) = match self {
            Self::One(key) => (Some(key.clone()), None),
            Self::Set(set) => (named(set, token), None),
            Self::Refused(error) => (None, Some(error.clone())),
        };
        let verified = jws::verify(
            token,
            None,
            &key.unwrap_or_else(stand_in),
            &Algorithms::new(Algorithm::ALL),
        );
        match verified {
            Ok(_) => Ok(()),
            Err(token) => Err(Refusal { key: refused, token }),
        }
    }
}

/// The key of the set that the token's `kid` names.
fn named(set: &JwkSet, token: &str) -> Option<PublicKey> {
    let header = header(token)?;
    let header = Json::parse(&header).ok()?;
    let id = header.as_object()?.member("kid")?.as_str();
    let key = set.keys().iter().find(|key| key.id.as_deref() == id)?;
    Some(key.key.clone())
}

/// A key that made none of the signatures.
fn stand_in() -> PublicKey {
    SigningKey::from_secret(KeyType::P256, &[1; 32]).unwrap().public()
}

fn header(token: &str) -> Option<Vec<u8>> {
    from_base64url(token.split('.').next()?)
}
