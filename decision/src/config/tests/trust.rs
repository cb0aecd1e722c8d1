//! Trust anchors: every form of one, and every error in one.

use credence_delegation::{Algorithm, KeyType, PublicKey, SigningKey};

use super::*;
use credence_delegation::trust::MAX_KEYS_PER_ISSUER;

const ISSUER: &str = "https://id.example.com";

#[test]
fn a_single_key_is_tried_for_any_key_id_of_a_token() {
    let jwk = with_id(&key(KeyType::Ed25519, 1), "a");
    let policy = load(&[anchor(&format!(r#""jwk":{jwk}"#))]).unwrap();
    let [anchor] = &anchors(&policy)[..] else {
        panic!("one key")
    };
    assert_eq!(
        (&anchor.key, &anchor.key_id),
        (&key(KeyType::Ed25519, 1), &None),
        "a `kid` selects among several"
    );
}

#[test]
fn each_key_of_a_jwk_set_is_a_trust_anchor_by_its_key_id() {
    let (one, two) = (key(KeyType::Ed25519, 1), key(KeyType::P256, 2));
    let set = format!(r#"{{"keys":[{},{}]}}"#, with_id(&one, "one"), two.to_jwk());
    let policy = load(&[anchor(&format!(
        r#""jwks":{set},"algorithms":["Ed25519","ES256"],"asserts_subjects":true"#
    ))])
    .unwrap();
    let found: Vec<_> = anchors(&policy)
        .iter()
        .map(|anchor| (anchor.key.clone(), anchor.key_id.clone(), anchor.asserts_subjects))
        .collect();
    assert_eq!(found, [(one, Some("one".to_owned()), true), (two, None, true)]);
    assert_eq!(policy.notes, []);
}

#[test]
fn a_did_key_issuer_needs_no_key_beside_its_name() {
    for kind in KeyType::ALL {
        let public = key(kind, 1);
        let did = public.to_did_key();
        let algorithms = format!(r#""algorithms":["{}"]"#, kind.algorithm());
        for jwk in ["", &format!(r#","jwk":{}"#, public.to_jwk())] {
            let policy = load(&[format!(r#"{{"issuer":"{did}",{algorithms}{jwk}}}"#)]).unwrap();
            let [anchor] = &anchors(&policy)[..] else {
                panic!("one key")
            };
            assert_eq!((&anchor.issuer, &anchor.key), (&did, &public));
        }
    }
}

#[test]
fn every_algorithm_can_be_allowed_for_issuers_and_for_holders() {
    let names = Algorithm::ALL.map(|algorithm| format!(r#""{algorithm}""#)).join(",");
    let jwk = key(KeyType::Secp256k1, 1).to_jwk();
    let anchors = [anchor(&format!(r#""jwk":{jwk},"algorithms":[{names}]"#))];
    let json = configuration(&anchors).replacen('{', &format!(r#"{{"holder_algorithms":[{names}],"#), 1);
    let policy = Policy::parse(json.as_bytes()).unwrap();
    for algorithm in Algorithm::ALL {
        assert!(policy.holder_algorithms.allow(algorithm), "{algorithm}");
        assert!(
            policy
                .trust_anchors
                .iter()
                .all(|anchor| anchor.algorithms.allow(algorithm))
        );
    }
}

#[test]
fn keys_of_a_set_that_are_for_something_else_are_noted_and_not_used() {
    let good = with_id(&key(KeyType::Ed25519, 1), "good");
    let encryption = key(KeyType::Ed25519, 2).to_jwk().replacen('{', r#"{"use":"enc","#, 1);
    let rsa = r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#;
    let policy = load(&[anchor(&format!(r#""jwks":{{"keys":[{rsa},{good},{encryption}]}}"#))]).unwrap();
    assert_eq!(anchors(&policy).len(), 1);
    let notes: Vec<_> = policy.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, (place, why)) in notes.iter().zip([
        ("trust_anchors[0].jwks.keys[0]: this key is not used: ", "kty \"RSA\""),
        ("trust_anchors[0].jwks.keys[2]: this key is not used: ", "\"use\""),
    ]) {
        assert!(note.starts_with(place) && note.contains(why), "{note}");
    }
}

#[test]
fn an_error_in_a_trust_anchor_is_reported_with_its_place_and_cure() {
    let one = key(KeyType::Ed25519, 1);
    let two = key(KeyType::Ed25519, 2);
    let (jwk, other) = (one.to_jwk(), two.to_jwk());
    let (p256, secp256k1) = (key(KeyType::P256, 3), key(KeyType::Secp256k1, 4).to_jwk());
    let did = one.to_did_key();
    let set = |keys: &[&str]| format!(r#""jwks":{{"keys":[{}]}}"#, keys.join(","));
    let of_did = |members: &str| format!(r#"{{"issuer":"{did}",{members}}}"#);
    let cases: &[(&[String], &str, &str)] = &[
        // Which form.
        (
            &[anchor(r#""asserts_subjects":true"#)],
            "trust_anchors[0]",
            "no key; add `jwk`, or `jwks`",
        ),
        (
            &[anchor(&format!(r#""jwk":{jwk},{}"#, set(&[&other])))],
            "trust_anchors[0]",
            "both `jwk` and `jwks`; keep one",
        ),
        (
            &[anchor(r#""jwk":null"#)],
            "trust_anchors[0].jwk",
            "invalid type: null; give the field a value",
        ),
        // did:key.
        (
            &[of_did(&set(&[&jwk]))],
            "trust_anchors[0].jwks",
            "only the key in its name; leave `jwks` out",
        ),
        (
            &[of_did(&format!(r#""jwk":{other}"#))],
            "trust_anchors[0].jwk",
            &format!("but that of {}; leave `jwk` out", two.to_did_key()),
        ),
        (
            &[of_did("\"asserts_subjects\":false").replace("\",", "#key-1\",")],
            "trust_anchors[0].issuer",
            "without a fragment",
        ),
        (
            &[format!(r#"{{"issuer":"did:key:hello","jwk":{jwk}}}"#)],
            "trust_anchors[0].issuer",
            "write the did:key as `credence keygen` prints it",
        ),
        // JWK sets.
        (
            &[anchor(r#""jwks":[]"#)],
            "trust_anchors[0].jwks",
            "a JWK set is a JSON object",
        ),
        (
            &[anchor(&set(&[]))],
            "trust_anchors[0].jwks",
            "none of its 0 keys can be used",
        ),
        (
            &[anchor(&set(&[&with_id(&one, "a"), &with_id(&two, "a")]))],
            "trust_anchors[0].jwks",
            "keys[1]: its \"kid\" or the key itself is in the set twice",
        ),
        (
            &[anchor(&set(&[&jwk.replacen('{', r#"{"d":"x","#, 1)]))],
            "trust_anchors[0].jwks",
            "private member \"d\"",
        ),
        // Algorithms.
        (
            &[anchor(&format!(r#""jwk":{}"#, p256.to_jwk()))],
            "trust_anchors[0].jwk",
            "no listed algorithm fits this P-256 key, so no signature by it would ever verify; write \
             `algorithms: [ES256]`",
        ),
        (
            &[anchor(&format!(r#""jwk":{jwk},"algorithms":["ES256","ES256K"]"#))],
            "trust_anchors[0].jwk",
            "fits this Ed25519 key, so no signature by it would ever verify; write `algorithms: [Ed25519]`",
        ),
        (
            &[of_did(r#""algorithms":["ES256K"]"#)],
            "trust_anchors[0].issuer",
            "write `algorithms: [Ed25519]`",
        ),
        (
            &[anchor(&format!(
                r#"{},"algorithms":["EdDSA","ES256"]"#,
                set(&[&jwk, &p256.to_jwk(), &secp256k1])
            ))],
            "trust_anchors[0].jwks.keys[2]",
            "fits this secp256k1 key, so no signature by it would ever verify; write \
             `algorithms: [EdDSA, ES256, ES256K]`",
        ),
        (
            &[anchor(&format!(r#""jwk":{jwk},"algorithms":["ES256k"]"#))],
            "trust_anchors[0].algorithms[0]",
            "`ES256k` is not supported; write one of: Ed25519, EdDSA, ES256, ES256K",
        ),
        // One issuer in several entries.
        (
            &[anchor(&format!(r#""jwk":{jwk}"#)), anchor(&set(&[&other, &jwk]))],
            "trust_anchors[1].jwks.keys[1]",
            "issuer `https://id.example.com` has this key at trust_anchors[0].jwk already; remove one",
        ),
        (
            &[
                of_did("\"algorithms\":[\"Ed25519\"]"),
                of_did("\"algorithms\":[\"EdDSA\"]"),
            ],
            "trust_anchors[1].issuer",
            "has this key at trust_anchors[0].issuer already",
        ),
        (
            &[
                anchor(&set(&[&with_id(&one, "a")])),
                anchor(&set(&[&with_id(&two, "a")])),
            ],
            "trust_anchors[1].jwks.keys[0]",
            "another key with this `kid` at trust_anchors[0].jwks.keys[0]",
        ),
        (
            &[
                anchor(&format!(r#""jwk":{jwk},"asserts_subjects":true"#)),
                anchor(&format!(r#""jwk":{other}"#)),
            ],
            "trust_anchors[1].asserts_subjects",
            "false here, but true at trust_anchors[0], so the principal would depend on which of the issuer's \
             keys signed; write the same",
        ),
    ];
    for (anchors, path, message) in cases {
        let error = load(anchors).expect_err(&format!("{anchors:?} should be refused"));
        let [problem] = &error.problems[..] else {
            panic!("{anchors:?}: expected one error, found\n{error}")
        };
        assert_eq!(&problem.path, path, "{problem}");
        assert!(problem.message.contains(message), "{message} is not in {problem}");
    }
}

#[test]
fn a_key_whose_private_half_is_published_is_refused_anywhere() {
    let printed = PublicKey::from_jwk_text(PRINTED.as_bytes()).unwrap();
    let (good, did) = (key(KeyType::Ed25519, 1).to_jwk(), printed.to_did_key());
    for (anchor, path) in [
        (anchor(&format!(r#""jwk":{PRINTED}"#)), "trust_anchors[0].jwk"),
        (
            anchor(&format!(r#""jwks":{{"keys":[{good},{PRINTED}]}}"#)),
            "trust_anchors[0].jwks.keys[1]",
        ),
        (format!(r#"{{"issuer":"{did}"}}"#), "trust_anchors[0].issuer"),
    ] {
        let error = load(&[anchor]).unwrap_err();
        let [problem] = &error.problems[..] else {
            panic!("expected one error, found\n{error}")
        };
        assert_eq!(problem.path, path);
        assert!(
            problem
                .message
                .starts_with("RFC 8037, appendix A, prints the private half"),
            "{problem}"
        );
        assert!(
            problem.message.contains("put your issuer's own public key here"),
            "{problem}"
        );
    }
}

#[test]
fn the_key_of_our_own_files_is_noted() {
    let policy = load(&[anchor(&format!(r#""jwk":{SAMPLE_KEY}"#))]).unwrap();
    let [note] = policy.notes.as_slice() else {
        panic!("{:?}", policy.notes)
    };
    assert_eq!(note.path, "trust_anchors[0].jwk");
    assert!(
        note.message.contains("Credence's own files") && note.message.contains("put your issuer's own public key here"),
        "{note}"
    );
}

/// RFC 8037, appendix A.
const PRINTED: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

/// The key in envoy-config.
const SAMPLE_KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"yYBm-rE6VHWP5Wqf-hF5cS2bUSil1mkmgEUrOfsixqc"}"#;

#[test]
fn the_keys_of_one_issuer_are_counted_together() {
    let set = |numbers: std::ops::Range<u8>| {
        let keys: Vec<_> = numbers
            .map(|number| with_id(&key(KeyType::Ed25519, number), &number.to_string()))
            .collect();
        anchor(&format!(r#""jwks":{{"keys":[{}]}}"#, keys.join(",")))
    };
    let most = u8::try_from(MAX_KEYS_PER_ISSUER).unwrap();
    let other = set(100..103).replace(ISSUER, "https://other.example");
    let policy = load(&[set(1..5), set(5..1 + most), other]).unwrap();
    assert_eq!(policy.trust_anchors.of_issuer(ISSUER).count(), MAX_KEYS_PER_ISSUER);

    let error = load(&[set(1..5), set(5..4 + most)]).unwrap_err();
    let [problem] = &error.problems[..] else {
        panic!("expected one error, found\n{error}")
    };
    assert_eq!(
        problem.path,
        format!("trust_anchors[1].jwks.keys[{}]", MAX_KEYS_PER_ISSUER - 4)
    );
    assert!(problem.message.contains("more than 16 keys"), "{problem}");
}

#[test]
fn keys_that_no_token_could_name_are_refused_where_they_are_too_many_to_be_tried() {
    for kind in KeyType::ALL {
        let limit = u8::try_from(kind.most_tried()).unwrap();
        let algorithms = format!(r#""algorithms":["{}"]"#, kind.algorithm());
        let singly = |number| anchor(&format!(r#""jwk":{},{algorithms}"#, key(kind, number).to_jwk()));
        let set = |keys: Vec<String>| anchor(&format!(r#""jwks":{{"keys":[{}]}},{algorithms}"#, keys.join(",")));
        let named = |number: u8| with_id(&key(kind, number), &number.to_string());

        // As many as are tried, each in its own entry; and as many again of another issuer.
        let few: Vec<_> = (1..=limit).map(singly).collect();
        let other = few.iter().map(|entry| entry.replace(ISSUER, "https://other.example"));
        load(&few.iter().cloned().chain(other).collect::<Vec<_>>()).unwrap();
        let error = load(&(1..=limit + 1).map(singly).collect::<Vec<_>>()).unwrap_err();
        let [problem] = &error.problems[..] else {
            panic!("expected one error, found\n{error}")
        };
        assert_eq!(problem.path, format!("trust_anchors[{limit}].jwk"));
        assert!(problem.message.contains("without `kid`"), "{problem}");

        // With key ids, and in one more set: a note, since tokens must have a `kid`.
        let policy = load(&[set((1..=limit + 1).map(named).collect())]).unwrap();
        let notes: Vec<_> = policy.notes.iter().map(ToString::to_string).collect();
        assert!(
            notes
                .iter()
                .any(|note| note.contains("a token without `kid` in its header is denied")),
            "{notes:?}"
        );
        let policy = load(&[set((1..=limit).map(named).collect())]).unwrap();
        let notes: Vec<_> = policy.notes.iter().map(ToString::to_string).collect();
        assert!(!notes.iter().any(|note| note.contains("without `kid`")), "{notes:?}");
    }
}

#[test]
fn all_keys_are_counted_together_too() {
    let entries: Vec<_> = (0..26u8)
        .map(|issuer| {
            let keys: Vec<_> = (0..10u8)
                .map(|number| {
                    let mut secret = [1; 32];
                    (secret[0], secret[1]) = (issuer, number);
                    with_id(&SigningKey::from_seed(&secret).public(), &number.to_string())
                })
                .collect();
            format!(
                r#"{{"issuer":"https://id{issuer}.example","jwks":{{"keys":[{}]}}}}"#,
                keys.join(",")
            )
        })
        .collect();
    assert_eq!(load(&entries[..25]).unwrap().trust_anchors.iter().count(), 250);
    let error = load(&entries).unwrap_err();
    assert_eq!(
        error.to_string(),
        "trust_anchors: 260 keys, counting those in JWK sets; at most 256 are accepted"
    );
}

fn key(kind: KeyType, number: u8) -> PublicKey {
    SigningKey::from_secret(kind, &[number; 32]).unwrap().public()
}

/// The key's JWK with a `kid`.
fn with_id(key: &PublicKey, id: &str) -> String {
    key.to_jwk().replacen('{', &format!(r#"{{"kid":"{id}","#), 1)
}

/// A trust anchor for [`ISSUER`] with these further members.
fn anchor(members: &str) -> String {
    format!(r#"{{"issuer":"{ISSUER}",{members}}}"#)
}

/// The complete configuration, with these trust anchors instead of its own.
fn configuration(anchors: &[String]) -> String {
    let complete = complete();
    let (start, rest) = complete.split_once(r#""trust_anchors": ["#).unwrap();
    let (_, end) = rest.split_once("],\n\"control_plane\"").unwrap();
    format!(
        "{start}\"trust_anchors\": [{}],\n\"control_plane\"{end}",
        anchors.join(",")
    )
}

fn load(anchors: &[String]) -> Result<Policy, ConfigError> {
    Policy::parse(configuration(anchors).as_bytes())
}

fn anchors(policy: &Policy) -> Vec<credence_delegation::TrustAnchor> {
    policy.trust_anchors.iter().cloned().collect()
}
