//! Keys as JWKs, public and private, and JWK sets. An input is a JSON text that is read as all three.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::Json;
use credence_delegation::{JwkSet, KeyError, PublicKey, SigningKey, canonicalize};
use sha2::{Digest, Sha256};

use super::{Effort, Outcome};

/// Reads the text.
pub fn run(input: &[u8], _: Effort) -> Outcome {
    let public = PublicKey::from_jwk_text(input);
    let private = SigningKey::from_jwk_text(input);
    let set = JwkSet::parse(input);
    if let Ok(key) = &public {
        check_public(input, key);
    }
    if let Ok(key) = &private {
        check_private(input, key);
        assert_eq!(public, Err(KeyError::Private("d")), "a secret is not published");
    }
    if let Ok(set) = &set {
        check_set(input, set);
    }
    check_set_of_one(input, &public);
    if public.is_ok() || private.is_ok() || set.is_ok() {
        Outcome::Accepted
    } else {
        Outcome::Refused
    }
}

fn check_public(input: &[u8], key: &PublicKey) {
    let jwk = key.to_jwk();
    assert_eq!(PublicKey::from_jwk_text(jwk.as_bytes()).as_ref(), Ok(key), "{jwk}");
    let json = Json::parse(jwk.as_bytes()).expect("what the crate writes is JSON");
    assert_eq!(canonicalize(&json).as_deref(), Some(jwk.as_str()), "canonical");
    // RFC 7638, section 3.
    assert_eq!(
        key.thumbprint().to_string(),
        URL_SAFE_NO_PAD.encode(Sha256::digest(&jwk)),
        "the thumbprint is that of the required members"
    );
    assert_eq!(PublicKey::from_did_key(&key.to_did_key()).as_ref(), Ok(key));

    let json = Json::parse(input).expect("JSON, since it was accepted");
    let given = json.as_object().expect("an object, since it was accepted");
    for (name, value) in Json::parse(jwk.as_bytes())
        .expect("JSON")
        .as_object()
        .expect("an object")
        .iter()
    {
        assert_eq!(given.member(name), Some(value), "a key has one encoding: {name}");
    }
    for secret in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        assert_eq!(given.member(secret), None, "a public key without a secret");
    }
}

fn check_private(input: &[u8], key: &SigningKey) {
    let jwk = key.to_private_jwk();
    let same = SigningKey::from_jwk_text(jwk.as_bytes()).expect("what the crate writes it reads");
    assert_eq!(same.public(), key.public());
    let signature = same.sign(input);
    assert!(key.public().verifies(input, &signature), "the halves belong together");
    assert!(!key.public().verifies(b"another message", &signature));
    let debug = format!("{key:?}");
    let secret = Json::parse(jwk.as_bytes()).expect("JSON");
    let secret = secret
        .as_object()
        .and_then(|jwk| jwk.member("d"))
        .and_then(Json::as_str);
    assert!(!debug.contains(secret.expect("it has a secret")), "not in logs");
}

fn check_set(input: &[u8], set: &JwkSet) {
    let json = Json::parse(input).expect("JSON, since it was accepted");
    let members = json
        .as_object()
        .and_then(|set| set.member("keys"))
        .and_then(Json::as_array);
    let members = members.expect("an array, since it was accepted");
    assert!(!set.keys().is_empty(), "a set of no keys is refused");
    assert_eq!(
        set.keys().len() + set.skipped().len(),
        members.len(),
        "every key is either used or named as skipped"
    );

    let mut used = set.keys().iter();
    for (index, member) in members.iter().enumerate() {
        match set.skipped().iter().find(|skipped| skipped.index == index) {
            Some(skipped) => assert_eq!(PublicKey::from_jwk(member).as_ref(), Err(&skipped.why)),
            None => {
                let key = used.next().expect("as many as were counted");
                assert_eq!(PublicKey::from_jwk(member).as_ref(), Ok(&key.key));
                let id = member.as_object().and_then(|jwk| jwk.member("kid"));
                assert_eq!(key.id.as_deref(), id.and_then(Json::as_str));
            }
        }
    }
    for (index, key) in set.keys().iter().enumerate() {
        for earlier in &set.keys()[..index] {
            assert_ne!(earlier.key, key.key, "no key twice");
            assert!(key.id.is_none() || earlier.id != key.id, "no name twice");
        }
    }
}

/// The text as the only key of a set: it is used, skipped or refused for the same reason.
fn check_set_of_one(input: &[u8], public: &Result<PublicKey, KeyError>) {
    let set = [b"{\"keys\":[", input, b"]}"].concat();
    match (JwkSet::parse(&set), public) {
        (Ok(set), Ok(key)) => assert_eq!(&set.keys()[0].key, key),
        // A text that closes the array and continues with another key makes a set of several.
        (Ok(_), Err(error)) => assert!(matches!(error, KeyError::Json(_)), "{error}"),
        (Err(_), _) => {}
    }
}
