//! Revocation statements, claim by claim.

use credence_delegation::mint::{self, RevocationOrder};
use credence_delegation::{
    Algorithm, Algorithms, Cause, KeyType, Limits, Revocation, SigningKey, Statement, StatementContext, StatementError,
    TrustAnchor, TrustAnchors, UnixTime, VerifiedStatement,
};

use crate::common::*;

const LOG: &str = "https://revocations.example";
const HEADER: &str = r#"{"alg":"Ed25519","typ":"revocation+jwt"}"#;

#[test]
fn a_minted_statement_verifies_and_has_the_given_claims() {
    let limits = Limits::default();
    for (revocation, subject) in [
        (Revocation::Epoch(0), Some("ada")),
        (Revocation::Epoch((1 << 53) - 1), None),
        (revoked(&[], "019a-1"), Some("ada")),
        (revoked(&["root"], "019a-1"), Some("ada")),
        (revoked(&["1", "2", "3", "4", "5", "6", "7", "8"], "019a-1"), None),
        (Revocation::Key(anchor().public().thumbprint()), None),
        (Revocation::IssuedUntil(UnixTime(NOW - 5)), None),
    ] {
        let order = RevocationOrder {
            id: "statement".into(),
            issuer: ISSUER.into(),
            subject: subject.map(str::to_owned),
            audience: vec![LOG.into(), "https://other.example".into()],
            issued_at: UnixTime(NOW),
            expires_at: UnixTime(NOW + 60),
            revocation: revocation.clone(),
        };
        let compact = mint::revocation(&order, &anchor(), &limits).unwrap();
        let verified = verify(&compact).unwrap();
        assert_eq!(verified.revocation, revocation);
        assert_eq!(verified.issuer, ISSUER);
        assert_eq!(verified.subject.as_deref(), subject);
        assert_eq!(verified.id, "statement");
        assert_eq!(verified.issued_at, UnixTime(NOW));
        assert_eq!(verified.expires_at, UnixTime(NOW + 60));
        assert_eq!(verified.signed_by(), anchor().public().thumbprint());
    }
}

fn revoked(under: &[&str], id: &str) -> Revocation {
    Revocation::Delegation {
        under: under.iter().copied().map(str::to_owned).collect(),
        id: id.to_owned(),
    }
}

#[test]
fn an_invalid_statement_is_not_minted() {
    let order = |change: fn(&mut RevocationOrder)| {
        let mut order = RevocationOrder {
            id: "statement".into(),
            issuer: ISSUER.into(),
            subject: None,
            audience: vec![LOG.into()],
            issued_at: UnixTime(NOW),
            expires_at: UnixTime(NOW + 60),
            revocation: Revocation::Epoch(7),
        };
        change(&mut order);
        mint::revocation(&order, &anchor(), &Limits::default())
            .err()
            .map(without_words)
    };
    assert_eq!(order(|_| {}), None);
    assert_eq!(order(|order| order.id.clear()), Some(claim("jti")));
    assert_eq!(order(|order| order.issuer.clear()), Some(claim("iss")));
    assert_eq!(order(|order| order.audience.clear()), Some(claim("aud")));
    assert_eq!(
        order(|order| order.revocation = Revocation::Epoch(1 << 53)),
        Some(claim("revoke.epoch"))
    );
    assert_eq!(
        order(|order| order.expires_at = UnixTime(NOW + 86_401)),
        Some(StatementError::Lifetime(86_400))
    );
    assert_eq!(
        order(|order| {
            order.subject = Some("ada".into());
            order.revocation = Revocation::IssuedUntil(UnixTime(NOW));
        }),
        Some(claim("sub"))
    );
    assert_eq!(
        order(|order| order.audience = vec!["x".repeat(9000)]).map(|error| match error {
            StatementError::Unreadable(Cause::TooLarge { limit, .. }) => limit,
            other => panic!("{other}"),
        }),
        Some(8192)
    );
}

#[test]
fn a_statement_is_a_small_jws_of_its_own_type() {
    let payload = good().json();
    let header = |header: &str| refused(&sign(&anchor(), header, &payload));
    assert_eq!(verify(&sign(&anchor(), HEADER, &payload)).map(|_| ()), Ok(()));
    let expected = "revocation+jwt";
    for typ in [
        r#"{"alg":"Ed25519","typ":"aat+jwt"}"#,
        r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#,
        r#"{"alg":"Ed25519","typ":"JWT"}"#,
        r#"{"alg":"Ed25519"}"#,
    ] {
        assert_eq!(
            header(typ),
            StatementError::Unreadable(Cause::WrongType { expected }),
            "{typ}"
        );
    }
    assert_eq!(
        header(r#"{"alg":"none","typ":"revocation+jwt"}"#),
        StatementError::Unreadable(Cause::AlgorithmNotAllowed)
    );
    assert_eq!(
        header(r#"{"alg":"Ed25519","typ":"revocation+jwt","crit":["b64"],"b64":false}"#),
        StatementError::Unreadable(Cause::CriticalHeader)
    );
    assert!(matches!(
        refused("a.b"),
        StatementError::Unreadable(Cause::Malformed(_))
    ));
    assert!(matches!(
        refused(&format!("{}.!.x", HEADER)),
        StatementError::Unreadable(Cause::Malformed(_))
    ));
    let large = good().with("x", format!("\"{}\"", "x".repeat(6200)));
    assert!(matches!(
        refused(&signed(&large)),
        StatementError::Unreadable(Cause::TooLarge { limit: 8192, .. })
    ));
    // And a statement is not a token.
    assert_eq!(denied_at(&[&signed(&good())]), "3a");
    assert_eq!(denied_at(&[&signed(&root())]), "3a");
}

#[test]
fn an_invalid_statement_is_refused_before_its_signature_is_checked() {
    let by_mallory = |claims: Claims| refused(&sign(&mallory(), HEADER, &claims.json()));
    assert_eq!(by_mallory(good().with("exp", NOW.to_string())), StatementError::Expired);
    assert_eq!(
        by_mallory(good().with("iss", "\"https://other.example\"")),
        StatementError::Untrusted(Cause::IssuerUnknown)
    );
    assert_eq!(
        by_mallory(good().without("iss")),
        StatementError::Untrusted(Cause::IssuerUnknown)
    );
    assert_eq!(by_mallory(good()), StatementError::Untrusted(Cause::SignatureInvalid));
}

#[test]
fn every_claim_is_required_and_checked() {
    for name in ["jti", "aud", "iat", "exp", "revoke"] {
        assert_eq!(refused(&signed(&good().without(name))), claim(name), "without {name}");
    }
    for (name, json) in [
        ("jti", "\"\""),
        ("jti", "7"),
        ("sub", "\"\""),
        ("sub", "null"),
        ("aud", "[]"),
        ("aud", "7"),
        ("aud", r#"["a",7]"#),
        ("iat", "1.5"),
        ("iat", "\"1800000000\""),
        ("exp", "1e300"),
        ("revoke", "{}"),
        ("revoke", "[]"),
        ("revoke", "\"all\""),
        ("revoke", r#"{"epoch":7,"key":"x"}"#),
        ("revoke", r#"{"everything":true}"#),
    ] {
        assert_eq!(refused(&signed(&good().with(name, json))), claim(name), "{name} {json}");
    }
    for (member, values) in [
        ("revoke.epoch", &["-1", "1.5", "9007199254740992", "\"7\"", "null"][..]),
        (
            "revoke.delegation",
            &[
                "\"\"",
                "7",
                "null",
                "[]",
                r#"["leaf"]"#,
                r#"["root",""]"#,
                r#"["root",7]"#,
                r#"["1","2","3","4","5","6","7","8","9","leaf"]"#,
            ],
        ),
        ("revoke.key", &["\"\"", "\"AAAA\"", "7"]),
        ("revoke.issued_until", &["\"now\"", "1.5", "null"]),
    ] {
        let name = member.strip_prefix("revoke.").unwrap();
        for value in values {
            let claims = good().with("revoke", format!(r#"{{"{name}":{value}}}"#));
            assert_eq!(refused(&signed(&claims)), claim(member), "{value}");
        }
    }
    let twice = good().with("revoke", r#"{"epoch":7,"epoch":8}"#);
    assert!(matches!(
        refused(&signed(&twice)),
        StatementError::Unreadable(Cause::Json(_))
    ));
}

#[test]
fn it_counts_for_its_audience_and_its_time_only() {
    let other = good().with("aud", "\"https://other.example\"");
    assert_eq!(refused(&signed(&other)), StatementError::Audience);
    let several = good().with("aud", format!(r#"["https://other.example","{LOG}"]"#));
    assert!(verify(&signed(&several)).is_ok());
    for (iat, exp, refusal) in [
        (NOW + 30, NOW + 60, None),
        (NOW + 31, NOW + 60, Some(StatementError::IssuedInFuture)),
        (NOW - 60, NOW + 1, None),
        (NOW - 60, NOW, Some(StatementError::Expired)),
        (NOW + 20, NOW + 20, Some(StatementError::Lifetime(86_400))),
        (NOW, NOW + 86_400, None),
        (NOW, NOW + 86_401, Some(StatementError::Lifetime(86_400))),
        (i64::MIN, i64::MAX, Some(StatementError::Lifetime(86_400))),
    ] {
        let claims = good().with("iat", iat.to_string()).with("exp", exp.to_string());
        assert_eq!(verify(&signed(&claims)).err(), refusal, "{iat} to {exp}");
    }
}

#[test]
fn an_issuer_or_principal_revokes_only_its_own() {
    let with = |claims: Claims, asserts_subjects: bool| {
        verify_with(&signed(&claims), &trusting(anchor().public(), asserts_subjects)).map(|verified| {
            let principal = &*verified;
            (principal.issuer.clone(), principal.subject.clone())
        })
    };
    let of_ada = || good().with("sub", "\"ada\"");
    assert_eq!(with(of_ada(), true), Ok((ISSUER.into(), Some("ada".into()))));
    assert_eq!(
        with(of_ada(), false),
        Err(claim("sub")),
        "refused, not widened to the issuer"
    );
    assert_eq!(with(good(), false), Ok((ISSUER.into(), None)));

    let key = |key: &SigningKey| format!(r#"{{"key":"{}"}}"#, key.public().thumbprint());
    assert!(with(good().with("revoke", key(&anchor())), true).is_ok());
    for other in [alice(), mallory()] {
        let foreign = good().with("revoke", key(&other));
        assert_eq!(with(foreign, true), Err(StatementError::ForeignKey));
    }
    for whole in [key(&anchor()), format!(r#"{{"issued_until":{NOW}}}"#)] {
        assert_eq!(with(of_ada().with("revoke", whole), true), Err(claim("sub")));
    }
    let floor = |until: i64| with(good().with("revoke", format!(r#"{{"issued_until":{until}}}"#)), true).err();
    assert_eq!(floor(NOW + 30), None);
    assert_eq!(floor(NOW + 31), Some(claim("revoke.issued_until")));
    assert_eq!(floor(i64::MAX), Some(claim("revoke.issued_until")));

    // Another issuer's key does not help, even if that issuer is trusted too.
    let other = TrustAnchor {
        issuer: "https://other.example".into(),
        ..an_anchor(mallory().public(), true)
    };
    let both = TrustAnchors::new([an_anchor(anchor().public(), true), other]);
    let by_mallory = sign(&mallory(), HEADER, &good().json());
    assert_eq!(
        verify_with(&by_mallory, &both),
        Err(StatementError::Untrusted(Cause::SignatureInvalid))
    );
    let his_key = good().with("revoke", key(&mallory()));
    assert_eq!(verify_with(&signed(&his_key), &both), Err(StatementError::ForeignKey));
    // If both have a key, neither can revoke it.
    let shared = TrustAnchors::new([
        an_anchor(anchor().public(), true),
        an_anchor(mallory().public(), true),
        TrustAnchor {
            issuer: "https://other.example".into(),
            ..an_anchor(mallory().public(), true)
        },
    ]);
    assert_eq!(verify_with(&signed(&his_key), &shared), Err(StatementError::ForeignKey));
}

#[test]
fn any_of_the_issuers_keys_signs_and_a_kid_selects_one() {
    let phone = SigningKey::from_secret(KeyType::P256, &[7; 32]).unwrap();
    let named = TrustAnchor {
        key_id: Some("phone".into()),
        algorithms: Algorithms::new([Algorithm::Es256]),
        ..an_anchor(phone.public(), true)
    };
    let devices = TrustAnchors::new([an_anchor(anchor().public(), true), named]);
    let signed = |header: &str| verify_with(&sign(&phone, header, &good().json()), &devices);
    let verified = signed(r#"{"alg":"ES256","typ":"revocation+jwt","kid":"phone"}"#).unwrap();
    assert_eq!(verified.signed_by(), phone.public().thumbprint());
    assert!(signed(r#"{"alg":"ES256","typ":"revocation+jwt"}"#).is_ok());
    assert_eq!(
        signed(r#"{"alg":"ES256","typ":"revocation+jwt","kid":"tablet"}"#),
        Err(StatementError::Untrusted(Cause::KeyUnknown))
    );
    assert_eq!(
        signed(r#"{"alg":"ES256K","typ":"revocation+jwt"}"#),
        Err(StatementError::Untrusted(Cause::AlgorithmNotAllowed))
    );
    let lost = good().with("revoke", format!(r#"{{"key":"{}"}}"#, phone.public().thumbprint()));
    let by_laptop = verify_with(&sign(&anchor(), HEADER, &lost.json()), &devices).unwrap();
    assert_eq!(by_laptop.revocation, Revocation::Key(phone.public().thumbprint()));
}

fn good() -> Claims {
    Claims::new(&[
        ("iss", &format!("\"{ISSUER}\"")),
        ("aud", &format!("\"{LOG}\"")),
        ("jti", "\"statement\""),
        ("iat", &NOW.to_string()),
        ("exp", &(NOW + 60).to_string()),
        ("revoke", r#"{"epoch":7}"#),
    ])
}

fn signed(claims: &Claims) -> String {
    sign(&anchor(), HEADER, &claims.json())
}

/// The error about this claim, with any expectation.
#[track_caller]
fn claim(claim: &'static str) -> StatementError {
    StatementError::Unreadable(Cause::Claim { claim, expected: "" })
}

fn an_anchor(key: credence_delegation::PublicKey, asserts_subjects: bool) -> TrustAnchor {
    TrustAnchor {
        issuer: ISSUER.to_owned(),
        key,
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }
}

fn trusting(key: credence_delegation::PublicKey, asserts_subjects: bool) -> TrustAnchors {
    TrustAnchors::new([an_anchor(key, asserts_subjects)])
}

#[track_caller]
fn refused(compact: &str) -> StatementError {
    verify(compact).expect_err("refused")
}

fn verify(compact: &str) -> Result<VerifiedStatement, StatementError> {
    verify_with(compact, &anchors())
}

fn verify_with(compact: &str, anchors: &TrustAnchors) -> Result<VerifiedStatement, StatementError> {
    let limits = Limits::default();
    let context = StatementContext {
        anchors,
        audience: &[LOG.to_owned()],
        limits: &limits,
        now: UnixTime(NOW),
    };
    Statement::parse(compact, &limits)
        .and_then(|statement| statement.verify(&context))
        .map_err(without_words)
}

fn without_words(error: StatementError) -> StatementError {
    match error {
        StatementError::Unreadable(Cause::Claim { claim, .. }) => {
            StatementError::Unreadable(Cause::Claim { claim, expected: "" })
        }
        other => other,
    }
}
