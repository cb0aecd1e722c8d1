//! Invocations under a verified chain: steps 6 and 7 of the draft's section 8.

use crate::common::*;
use credence_delegation::{AudiencePolicy, Limits, NoncePolicy, Proof, ProofContext, UnixTime};

#[test]
fn step_6b_grants_what_the_leaf_names_and_nothing_else() {
    let tools = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},
        "note":{"constraint_type":"wildcard","optional":true}},"open":{}}"#;
    let chain = verify(&[&root().tools(tools).signed(&anchor())]).unwrap();
    for (tool, args, outcome) in [
        ("pay", r#"{"account":"a1"}"#, Ok(())),
        ("pay", r#"{"account":"a1","note":[1]}"#, Ok(())),
        (
            "pay",
            r#"{"account":"a2"}"#,
            Err("argument \"account\" is out of bounds"),
        ),
        ("pay", r#"{"note":"x"}"#, Err("argument \"account\" is required")),
        (
            "pay",
            r#"{"account":"a1","extra":1}"#,
            Err("argument \"extra\" is not granted"),
        ),
        ("PAY", r#"{"account":"a1"}"#, Err("the tool is not granted")),
        ("open", r#"{"anything":{"at":["all"]}}"#, Ok(())),
    ] {
        let result = chain.permits(tool, &arguments(args)).map_err(|denial| {
            assert_eq!(denial.step.name(), "6b");
            denial.cause.to_string()
        });
        assert_eq!(result, outcome.map_err(str::to_owned), "{tool} {args}");
    }
}

#[test]
fn step_6c_accepts_a_chain_for_our_audience() {
    let ours = audience();
    let policy = |require_chain_audience| AudiencePolicy {
        identifiers: &ours,
        require_chain_audience,
    };
    for (aud, required, allowed) in [
        (None, false, true),
        (None, true, false),
        (Some(format!("\"{AUDIENCE}\"")), true, true),
        (Some(format!("[\"https://other.example\",\"{AUDIENCE}\"]")), true, true),
        (Some("\"https://other.example\"".into()), false, false),
        (Some("[]".into()), false, false),
        (Some("7".into()), false, false),
        (Some(format!("[\"{AUDIENCE}\",7]")), false, false),
        (Some(format!("\"{AUDIENCE}/\"")), false, false),
    ] {
        let claims = match &aud {
            Some(aud) => root().with("aud", aud.clone()),
            None => root(),
        };
        let chain = verify(&[&claims.signed(&anchor())]).unwrap();
        assert_eq!(
            chain.identifies_audience(&policy(required)).is_ok(),
            allowed,
            "{aud:?} {required}"
        );
    }
    let elsewhere = root().with("aud", "\"https://other.example\"").signed(&anchor());
    let narrowed = child(&elsewhere)
        .with("aud", format!("\"{AUDIENCE}\""))
        .signed(&alice());
    let chain = verify(&[&elsewhere, &narrowed]).unwrap();
    assert!(
        chain.identifies_audience(&policy(false)).is_err(),
        "a child cannot lift its parent's audience"
    );
}

#[test]
fn step_7_accepts_only_a_valid_proof() {
    let token = root().signed(&anchor());
    let chain = verify(&[&token]).unwrap();
    let args = r#"{"account":"a1","amount":5}"#;
    let good = || proof(&token, "root", "pay", args);
    let sign_proof = |claims: &Claims| sign(&alice(), r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#, &claims.json());
    let check = |compact: &str| prove(&chain, compact, "pay", &arguments(args)).map_err(|denial| denial.step.name());
    assert_eq!(check(&sign_proof(&good())), Ok(()));
    let reordered = good().with("hta", r#"{ "amount": 5.0, "account": "a1" }"#);
    assert_eq!(
        check(&sign_proof(&reordered)),
        Ok(()),
        "arguments are compared in canonical form"
    );

    for header in [
        r#"{"alg":"Ed25519","typ":"aat+jwt"}"#,
        r#"{"alg":"none","typ":"aat-pop+jwt"}"#,
        r#"{"alg":"EdDSA","typ":"aat-pop+jwt"}"#,
        r#"{"alg":"Ed25519","typ":"aat-pop+jwt","crit":["b64"],"b64":false}"#,
    ] {
        assert_eq!(check(&sign(&alice(), header, &good().json())), Err("7a"), "{header}");
    }
    assert_eq!(check(&token), Err("7a"), "a token is no proof");
    assert_eq!(check("x"), Err("7a"));
    let by =
        |key: &credence_delegation::SigningKey| sign(key, r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#, &good().json());
    assert_eq!(check(&by(&mallory())), Err("7b"));
    assert_eq!(check(&by(&anchor())), Err("7b"));
    for (claim, json, step) in [
        ("jti", "\"\"".to_owned(), "7c"),
        ("jti", "7".to_owned(), "7c"),
        ("iat", "1.5".to_owned(), "7c"),
        ("aat_id", "\"other\"".to_owned(), "7c"),
        (
            "aat_hash",
            format!("\"{}\"", hash(&child(&token).signed(&alice()))),
            "7c",
        ),
        ("hta", "[]".to_owned(), "7c"),
        ("hta", r#"{"amount":1e999}"#.to_owned(), "7c"),
        ("x", r#"{"a":1,"a":1}"#.to_owned(), "7b"),
        ("aat_aud", "\"https://other.example\"".to_owned(), "7d"),
        ("aat_aud", "7".to_owned(), "7d"),
        ("aat_tool", "\"read\"".to_owned(), "7e"),
        ("hta", r#"{"account":"a1","amount":6}"#.to_owned(), "7f"),
        ("hta", r#"{"account":"a1"}"#.to_owned(), "7f"),
        ("iat", (NOW - 31).to_string(), "7g"),
        ("iat", (NOW + 31).to_string(), "7g"),
    ] {
        assert_eq!(
            check(&sign_proof(&good().with(claim, json.clone()))),
            Err(step),
            "{claim} {json}"
        );
    }
    for (claim, step) in [
        ("jti", "7c"),
        ("aat_id", "7c"),
        ("aat_hash", "7c"),
        ("aat_tool", "7c"),
        ("hta", "7c"),
        ("aat_aud", "7d"),
    ] {
        assert_eq!(check(&sign_proof(&good().without(claim))), Err(step), "without {claim}");
    }
    for iat in [NOW - 30, NOW + 30] {
        assert_eq!(
            check(&sign_proof(&good().with("iat", iat.to_string()))),
            Ok(()),
            "{iat}"
        );
    }
}

#[test]
fn step_7h_accepts_a_nonce_that_was_issued() {
    let token = root().signed(&anchor());
    let chain = verify(&[&token]).unwrap();
    let limits = Limits::default();
    let check = |nonce: Option<&str>| {
        let mut claims = proof(&token, "root", "pay", "{}");
        if let Some(nonce) = nonce {
            claims = claims.with("nonce", nonce);
        }
        let compact = sign(&alice(), r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#, &claims.json());
        let context = ProofContext {
            holder_algorithms: &Default::default(),
            audience: &audience(),
            require_audience: false,
            nonce: NoncePolicy::OneOf(&["n1", "n2"]),
            limits: &limits,
            now: UnixTime(NOW),
            hot_keys: None,
        };
        Proof::parse(&compact, &limits)
            .unwrap()
            .verify(&chain, &context)
            .map(|_| ())
            .map_err(|d| d.step.name())
    };
    assert_eq!(check(Some("\"n2\"")), Ok(()));
    for nonce in [None, Some("\"n3\""), Some("7"), Some("\"\"")] {
        assert_eq!(check(nonce), Err("7h"), "{nonce:?}");
    }
}
