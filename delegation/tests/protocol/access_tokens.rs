//! Access tokens of an identity provider as roots: RFC 9068, RFC 8693, RFC 8725 and RFC 9396.

use std::cell::RefCell;

use base64::Engine as _;
use credence_delegation::trust::{self, Entry};
use credence_delegation::{
    Algorithms, Cause, Chain, Denial, Limits, Location, TrustAnchors, UnixTime, VerificationContext, VerifiedChain,
};
use serde_json::value::RawValue;

use crate::common::{AUDIENCE, Claims, ISSUER, NOW, alice, anchor, arguments, bob, child, cnf, hash, root, sign};

const SETTINGS: &str = r#"{
    "scopes": {
        "read": {"read": {}},
        "pay:small": {"pay": {"amount": {"constraint_type": "range", "max": 10}}},
        "pay:eur": {"pay": {"amount": {"constraint_type": "range", "max": 100},
                            "currency": {"constraint_type": "exact", "value": "EUR"}}}
    },
    "authorization_details": {
        "payment_initiation": {
            "tools": {"pay": {
                "amount": {"constraint_type": "range", "max": {"number_from": "/instructedAmount/amount"}},
                "account": {"constraint_type": "exact", "value": {"from": "/creditorAccount/iban"}}
            }},
            "requires": {"/actions": {"constraint_type": "contains", "required": ["initiate"]}},
            "ignore": ["/creditorName"]
        }
    },
    "delegation_depth": 1
}"#;

fn trust_in(settings: &str, algorithms: &[&str]) -> Result<TrustAnchors, Vec<String>> {
    trust_with(settings, algorithms, None)
}

/// With a JWK set in place of the one key.
fn trust_with(settings: &str, algorithms: &[&str], jwks: Option<String>) -> Result<TrustAnchors, Vec<String>> {
    let findings = RefCell::default();
    let jwk = RawValue::from_string(anchor().public().to_jwk()).unwrap();
    let entry = Entry {
        keys: None,
        same_principals_as: None,
        issuer: ISSUER.to_owned(),
        jwk: jwks.is_none().then_some(jwk),
        jwks: jwks.map(|set| RawValue::from_string(set).unwrap()),
        algorithms: Some(algorithms.iter().map(|name| (*name).to_owned()).collect()),
        asserts_subjects: true,
        access_tokens: Some(RawValue::from_string(settings.to_owned()).unwrap()),
        delegations: None,
    };
    let anchors = trust::trust(&Location::root(&findings).field("trust_anchors"), vec![entry]);
    let problems: Vec<String> = findings.into_inner().problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() {
        Ok(anchors)
    } else {
        Err(problems)
    }
}

fn claims() -> Claims {
    Claims::new(&[
        ("iss", &format!("\"{ISSUER}\"")),
        ("sub", "\"ada\""),
        ("client_id", "\"planner\""),
        ("aud", &format!("\"{AUDIENCE}\"")),
        ("jti", "\"t1\""),
        ("iat", &(NOW - 60).to_string()),
        ("exp", &(NOW + 600).to_string()),
        ("scope", "\"openid read\""),
    ])
}

fn token(claims: &Claims) -> String {
    sign(&anchor(), r#"{"alg":"Ed25519","typ":"at+jwt"}"#, &claims.json())
}

fn verify_with(settings: &str, chain: &[&str]) -> Result<VerifiedChain, Denial> {
    let limits = Limits::default();
    Chain::parse(chain.iter().copied(), &limits)?.verify(&VerificationContext {
        anchors: &trust_in(settings, &["Ed25519"]).unwrap(),
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    })
}

fn verify(claims: &Claims) -> Result<VerifiedChain, Denial> {
    verify_with(SETTINGS, &[&token(claims)])
}

#[test]
fn scopes_grant_what_is_configured_and_others_nothing() {
    let chain = verify(&claims()).unwrap();
    assert_eq!(chain.principal().subject.as_deref(), Some("ada"));
    assert_eq!(chain.client(), Some("planner"));
    assert!(chain.permits("read", &arguments("{}")).is_ok());
    assert!(chain.permits("pay", &arguments(r#"{"amount": 1}"#)).is_err());
    let nothing = verify(&claims().with("scope", "\"openid\"")).unwrap();
    assert!(nothing.permits("read", &arguments("{}")).is_err());
    let none = verify(&claims().without("scope")).unwrap();
    assert!(none.permits("read", &arguments("{}")).is_err());
}

#[test]
fn of_several_scopes_for_a_tool_each_suffices() {
    let chain = verify(&claims().with("scope", "\"pay:small pay:eur\"")).unwrap();
    for (wanted, is_granted) in [
        (r#"{"amount": 10}"#, true),
        (r#"{"amount": 11}"#, false),
        (r#"{"amount": 100, "currency": "EUR"}"#, true),
        (r#"{"amount": 100, "currency": "USD"}"#, false),
        (r#"{"amount": 101, "currency": "EUR"}"#, false),
    ] {
        assert_eq!(chain.permits("pay", &arguments(wanted)).is_ok(), is_granted, "{wanted}");
    }
}

#[test]
fn details_grant_by_their_template_only_what_is_wholly_understood() {
    let permits = |detail: &str, wanted: &str| {
        let claims = claims().with("authorization_details", format!("[{detail}]"));
        verify(&claims).unwrap().permits("pay", &arguments(wanted)).is_ok()
    };
    let wanted = r#"{"amount": 123.5, "account": "DE02"}"#;
    let detail = |more: &str| {
        format!(
            r#"{{"type":"payment_initiation","actions":["initiate","status"],"creditorName":"M",
                "instructedAmount":{{"amount":"123.50"}},"creditorAccount":{{"iban":"DE02"}}{more}}}"#
        )
    };
    assert!(permits(&detail(""), wanted));
    assert!(!permits(&detail(""), r#"{"amount": 123.51, "account": "DE02"}"#));
    assert!(!permits(&detail(""), r#"{"amount": 1, "account": "DE03"}"#));
    assert!(
        !permits(&detail(r#","currency":"EUR""#), wanted),
        "a member that is not read"
    );
    assert!(!permits(&detail(r#","limits":{}"#), wanted), "an empty one too");
    assert!(
        !permits(&detail("").replace("\"DE02\"", "\"DE02\",\"bic\":\"X\""), wanted),
        "a nested one"
    );
    assert!(
        !permits(&detail("").replace("\"initiate\",", ""), wanted),
        "a requirement is not met"
    );
    assert!(
        !permits(&detail("").replace("\"amount\":\"123.50\"", ""), wanted),
        "a value is missing"
    );
    assert!(!permits(&detail("").replace("payment_initiation", "other"), wanted));
    let own = r#"{"type":"attenuating_agent_token","tools":{"pay":{}}}"#;
    assert!(permits(own, wanted), "the draft's own type is read as it is");
}

/// Each entry costs the work of its template.
#[test]
fn a_token_has_at_most_sixteen_entries_of_configured_types() {
    let detail = r#"{"type":"payment_initiation","actions":["initiate","status"],"instructedAmount":{"amount":"1"},
        "creditorAccount":{"iban":"DE02"}}"#;
    let with = |entries: usize| {
        let details = vec![detail; entries].join(",");
        verify(&claims().with("authorization_details", format!("[{details}]")))
    };
    with(16).unwrap();
    assert_eq!(with(17).unwrap_err().step.name(), "3m");
}

/// RFC 9068, section 4, and RFC 8725, sections 3.8 to 3.12.
#[test]
fn each_wrong_claim_denies_at_its_step() {
    let past = (NOW - 1).to_string();
    let later = (NOW + 31).to_string();
    for (wrong, step) in [
        (claims().with("exp", past), "3e"),
        (claims().with("iat", later.clone()), "3f"),
        (claims().with("nbf", later), "3f"),
        (claims().with("nbf", "\"now\""), "3b"),
        (claims().without("exp"), "3b"),
        (claims().without("iat"), "3b"),
        (claims().without("aud"), "6c"),
        (claims().without("jti"), "2c"),
        (claims().without("client_id"), "3b"),
        (claims().without("sub"), "3b"),
        (claims().with("iss", "\"https://id.example.org\""), "3k"),
        (claims().with("scope", "7"), "3m"),
        (claims().with("authorization_details", "{}"), "3m"),
        (claims().with("cnf", "{}"), "3l"),
        (claims().with("cnf", r#"{"kid":"k1"}"#), "3l"),
        (claims().with("cnf", r#"{"jkt":"short"}"#), "3l"),
        (claims().with("act", "\"agent\""), "3b"),
        (claims().with("act", r#"{"iss":"x"}"#), "3b"),
    ] {
        let denial = verify(&wrong).expect_err(&wrong.json());
        assert_eq!(denial.step.name(), step, "{}: {denial}", wrong.json());
    }
}

#[test]
fn the_media_type_decides_what_a_token_is() {
    let typed = |typ: &str| format!(r#"{{"alg":"Ed25519"{typ}}}"#);
    let accepted = |settings: &str, typ: &str| {
        let token = sign(&anchor(), &typed(typ), &claims().json());
        verify_with(settings, &[&token]).is_ok()
    };
    let untyped = SETTINGS.replacen('{', r#"{"typ": "JWT","#, 1);
    for (typ, in_strict, in_untyped) in [
        (r#","typ":"at+jwt""#, true, true),
        (r#","typ":"application/at+jwt""#, true, true),
        (r#","typ":"AT+JWT""#, true, true),
        (r#","typ":"JWT""#, false, true),
        (r#","typ":"application/jwt""#, false, true),
        ("", false, true),
        (r#","typ":"aat+jwt""#, false, false),
        (r#","typ":"dpop+jwt""#, false, false),
        (r#","typ":"logout+jwt""#, false, false),
        (r#","typ":7"#, false, false),
    ] {
        assert_eq!(accepted(SETTINGS, typ), in_strict, "{typ}");
        assert_eq!(accepted(&untyped, typ), in_untyped, "{typ}");
    }
    // The issuer signs no delegations here.
    let delegation = root().signed(&anchor());
    assert!(matches!(
        verify_with(SETTINGS, &[&delegation]).unwrap_err().cause,
        Cause::WrongType { .. }
    ));
}

/// RFC 8725, section 3.12: other tokens of the provider, by the same key.
#[test]
fn an_id_token_is_no_access_token() {
    let untyped = SETTINGS.replacen('{', r#"{"typ": "JWT","#, 1);
    let verdict = |claims: &Claims| {
        let token = sign(&anchor(), r#"{"alg":"Ed25519","typ":"JWT"}"#, &claims.json());
        verify_with(&untyped, &[&token])
            .map(|_| ())
            .map_err(|denial| denial.step.name())
    };
    assert_eq!(verdict(&claims()), Ok(()));
    for (claim, value) in [
        ("nonce", "\"n\""),
        ("at_hash", "\"h\""),
        ("c_hash", "\"h\""),
        ("s_hash", "\"h\""),
        ("events", "{}"),
        ("typ", "\"ID\""),
        ("typ", "\"Refresh\""),
        ("token_use", "\"id\""),
    ] {
        assert_eq!(verdict(&claims().with(claim, value)), Err("3a"), "{claim}");
    }
    assert_eq!(
        verdict(&claims().with("typ", "\"Bearer\"").with("token_use", "\"access\"")),
        Ok(())
    );
}

/// Such as those of Entra ID.
#[test]
fn an_untyped_token_needs_no_id() {
    let untyped = SETTINGS.replacen('{', r#"{"typ": "JWT","#, 1);
    let signed = |header: &str, claims: &Claims| sign(&anchor(), header, &claims.json());
    let token = signed(r#"{"alg":"Ed25519","typ":"JWT"}"#, &claims().without("jti"));
    let chain = verify_with(&untyped, &[&token]).unwrap();
    assert_eq!(chain.root().id(), hash(&token), "its hash stands in");
    for jti in ["7", "null", "\"\""] {
        let token = signed(r#"{"alg":"Ed25519","typ":"JWT"}"#, &claims().with("jti", jti));
        assert_eq!(verify_with(&untyped, &[&token]).unwrap_err().step.name(), "3j", "{jti}");
    }
    let typed = signed(r#"{"alg":"Ed25519","typ":"at+jwt"}"#, &claims().without("jti"));
    assert_eq!(verify_with(&untyped, &[&typed]).unwrap_err().step.name(), "2c");
}

#[test]
fn a_thumbprint_beside_a_key_is_that_key_s() {
    let both = |jkt: String| {
        let jwk = alice().public().to_jwk();
        verify(&claims().with("cnf", format!(r#"{{"jwk":{jwk},"jkt":"{jkt}"}}"#)))
    };
    assert!(both(alice().public().thumbprint().to_string()).is_ok());
    for other in [bob().public().thumbprint().to_string(), "short".to_owned()] {
        assert_eq!(both(other.clone()).unwrap_err().step.name(), "3l", "{other}");
    }
}

#[test]
fn a_holder_is_a_key_a_thumbprint_or_a_certificate() {
    let holder = |cnf: &str| verify(&claims().with("cnf", cnf)).unwrap();
    let thumbprint = alice().public().thumbprint();
    let by_key = holder(&cnf(&alice()));
    assert_eq!(by_key.leaf().holder().thumbprint(), Some(thumbprint));
    let by_thumbprint = holder(&format!(r#"{{"jkt":"{thumbprint}"}}"#));
    assert_eq!(by_thumbprint.leaf().holder().thumbprint(), Some(thumbprint));
    assert!(by_thumbprint.leaf().holder().key().is_none());
    let by_certificate = holder(&format!(r#"{{"x5t#S256":"{thumbprint}"}}"#));
    assert_eq!(
        by_certificate.leaf().holder().certificate(),
        Some(thumbprint.as_bytes())
    );
    for bound in [by_key, by_thumbprint, by_certificate] {
        assert!(bound.is_bound_access_token(), "no one else may use it");
    }
    assert!(!verify(&claims()).unwrap().is_bound_access_token());
}

#[test]
fn actors_are_named_from_the_present_one_to_the_first() {
    let acted = claims().with("act", r#"{"sub":"agent-2","act":{"sub":"agent-1"}}"#);
    assert_eq!(verify(&acted).unwrap().actors(), ["agent-2", "agent-1"]);
    let deep =
        |depth: usize| format!("{}{}", r#"{"sub":"a","act":"#.repeat(depth), r#"{"sub":"a"}"#) + &"}".repeat(depth);
    assert_eq!(verify(&claims().with("act", deep(7))).unwrap().actors().len(), 8);
    assert_eq!(verify(&claims().with("act", deep(8))).unwrap_err().step.name(), "3b");
}

#[test]
fn its_holder_may_hand_it_on_where_the_issuer_s_settings_allow_it() {
    let root = token(&claims().with("cnf", cnf(&alice())).with("scope", "\"read pay:eur\""));
    let narrowed = |tools: &str| {
        child(&root)
            .tools(tools)
            .with("del_max_depth", "1")
            .with("exp", (NOW + 600).to_string())
    };
    let eur = r#"{"pay":{"amount":{"constraint_type":"range","max":50},"currency":{"constraint_type":"exact","value":"EUR"}}}"#;
    let leaf = narrowed(eur).signed(&alice());
    let chain = verify_with(SETTINGS, &[&root, &leaf]).unwrap();
    assert!(
        chain
            .permits("pay", &arguments(r#"{"amount": 50, "currency": "EUR"}"#))
            .is_ok()
    );
    assert!(chain.permits("read", &arguments("{}")).is_err());
    let wider = narrowed(&eur.replace("50", "101")).signed(&alice());
    assert_eq!(verify_with(SETTINGS, &[&root, &wider]).unwrap_err().step.name(), "4p4");
    let by_another = narrowed(eur).signed(&bob());
    assert_eq!(
        verify_with(SETTINGS, &[&root, &by_another]).unwrap_err().step.name(),
        "4b"
    );
    let never = SETTINGS.replace("\"delegation_depth\": 1", "\"delegation_depth\": 0");
    assert_eq!(verify_with(&never, &[&root, &leaf]).unwrap_err().step.name(), "4e");
    let without_key = token(&claims().with("cnf", format!(r#"{{"jkt":"{}"}}"#, alice().public().thumbprint())));
    let under_it = narrowed(r#"{"read":{}}"#)
        .with("par_hash", format!("\"{}\"", hash(&without_key)))
        .signed(&alice());
    assert_eq!(
        verify_with(SETTINGS, &[&without_key, &under_it]).unwrap_err().cause,
        Cause::HolderUnknown
    );
}

/// RFC 8725, sections 3.1 and 3.2, and the headers that name keys.
#[test]
fn the_header_selects_no_key_and_no_other_algorithm() {
    let payload = claims().json();
    let jwk = bob().public().to_jwk();
    for header in [
        r#"{"alg":"none","typ":"at+jwt"}"#.to_owned(),
        r#"{"alg":"HS256","typ":"at+jwt"}"#.to_owned(),
        r#"{"alg":"RS256","typ":"at+jwt"}"#.to_owned(),
        r#"{"alg":"EdDSA","typ":"at+jwt"}"#.to_owned(),
        format!(r#"{{"alg":"Ed25519","typ":"at+jwt","jwk":{jwk}}}"#),
        r#"{"alg":"Ed25519","typ":"at+jwt","jku":"https://evil.example/jwks"}"#.to_owned(),
        r#"{"alg":"Ed25519","typ":"at+jwt","x5u":"https://evil.example/cert"}"#.to_owned(),
        r#"{"alg":"Ed25519","typ":"at+jwt","crit":["exp"]}"#.to_owned(),
    ] {
        let forged = sign(&bob(), &header, &payload);
        assert!(verify_with(SETTINGS, &[&forged]).is_err(), "{header}");
    }
}

/// One RSA key is tried for a token, as with P-256.
#[test]
fn of_several_rsa_keys_each_needs_a_name() {
    let set = |names: [&str; 2]| {
        let keys = [0xfd, 0xff].into_iter().zip(names).map(|(last, name)| {
            let modulus: Vec<u8> = std::iter::repeat_n(0xff, 255).chain([last]).collect();
            let n = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(modulus);
            format!(r#"{{"kty":"RSA","e":"AQAB","n":"{n}"{name}}}"#)
        });
        format!(r#"{{"keys":[{}]}}"#, keys.collect::<Vec<_>>().join(","))
    };
    let named = [r#","kid":"a""#, r#","kid":"b""#];
    assert!(trust_with(SETTINGS, &["RS256"], Some(set(named))).is_ok());
    let problems = trust_with(SETTINGS, &["RS256"], Some(set(["", ""]))).unwrap_err();
    assert!(
        problems[0].contains("more than 1 RSA keys for RS256 without `kid`"),
        "{problems:?}"
    );
}

#[test]
fn an_error_in_the_settings_names_its_place() {
    for (settings, problem) in [
        ("[]", "trust_anchors[0].access_tokens: a mapping is needed"),
        (
            r#"{"scope": {}}"#,
            "trust_anchors[0].access_tokens.scope: unknown field",
        ),
        (
            r#"{"typ": "jwt"}"#,
            "trust_anchors[0].access_tokens.typ: `jwt` is not supported; write one of: at+jwt, JWT",
        ),
        (
            r#"{"scopes": {"read": {}}}"#,
            "trust_anchors[0].access_tokens.scopes.read: no tool",
        ),
        (
            r#"{"scopes": {"read": {"read": 7}}}"#,
            "trust_anchors[0].access_tokens.scopes.read: ",
        ),
        (
            r#"{"authorization_details": {"x": {}}}"#,
            "trust_anchors[0].access_tokens.authorization_details.x: no `tools`",
        ),
        (
            r#"{"authorization_details": {"x": {"tools": {"pay": {"amount": {"constraint_type": "rnage", "max": 1}}}}}}"#,
            "trust_anchors[0].access_tokens.authorization_details.x.tools: ",
        ),
        (
            r#"{"authorization_details": {"x": {"tools": {"pay": {"amount": {"constraint_type": "range", "max": {"numberfrom": "/a"}}}}}}}"#,
            "trust_anchors[0].access_tokens.authorization_details.x.tools: ",
        ),
        (
            r#"{"authorization_details": {"x": {"tools": {"pay": {}}, "ignore": [7]}}}"#,
            "trust_anchors[0].access_tokens.authorization_details.x.ignore: a list of JSON pointers",
        ),
        (
            r#"{"authorization_details": {"x": {"tools": {"pay": {"to": {"constraint_type": "exact", "value": {"from": "a"}}}}}}}"#,
            "trust_anchors[0].access_tokens.authorization_details.x: `a` is no JSON pointer",
        ),
        (
            r#"{"scopes": {"a\r\nset-cookie: x": {"read": {}}}}"#,
            "trust_anchors[0].access_tokens.scopes: `a\\r\\nset-cookie: x` is not a scope",
        ),
        (
            r#"{"delegation_depth": 9}"#,
            "trust_anchors[0].access_tokens.delegation_depth: a number from 0 to 8",
        ),
    ] {
        let problems = trust_in(settings, &["Ed25519"]).unwrap_err();
        assert!(problems.iter().any(|found| found.starts_with(problem)), "{problems:?}");
    }
}
