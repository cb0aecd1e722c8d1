//! Chains, step by step in the order of the draft's section 8. Each case has one fault.

use crate::common::*;
use credence_delegation::{
    Algorithm, Algorithms, Chain, Limits, TrustAnchor, TrustAnchors, UnixTime, VerificationContext,
};

#[test]
fn a_valid_root_and_a_valid_derived_token_verify() {
    let root = root().with("sub", "\"ada\"").with("rev_epoch", "7").signed(&anchor());
    let child = child(&root).signed(&alice());
    let chain = verify(&[&root, &child]).unwrap();
    assert_eq!(chain.principal().issuer, ISSUER);
    assert_eq!(chain.principal().subject.as_deref(), Some("ada"));
    assert_eq!(chain.root_epoch(), Some(7));
    assert_eq!(
        chain.tokens().map(|token| token.id()).collect::<Vec<_>>(),
        ["root", "child"]
    );
    assert_eq!(chain.leaf().holder().key(), Some(&bob().public()));
    assert_eq!(chain.expires_at(), UnixTime(NOW + 1800));
    assert_eq!(verify(&[&root]).unwrap().leaf().id(), "root", "a prefix is a chain");
}

#[test]
fn steps_1_and_2_bound_the_chain() {
    let root = root().signed(&anchor());
    assert_eq!(denied_at(&[]), "1");
    let large = "x".repeat(65_537);
    assert_eq!(denied_at(&[&large]), "2a");
    let fat = crate::common::root()
        .with("padding", format!("\"{}\"", "x".repeat(48_000)))
        .signed(&anchor());
    assert_eq!(denied_at(&[&fat, &fat, &fat, &fat, &fat]), "2b");
    let many = vec![root.as_str(); 10];
    assert_eq!(denied_at(&many), "2b");
    assert_eq!(denied_at(&[&root, &root]), "2c");
    for token in ["", "a.b", "a.b.c.d", "!.e30.AA", "e30.!.AA"] {
        assert!(["2c", "3a"].contains(&denied_at(&[token])), "{token}");
    }
    for jti in ["7", "null", "[]"] {
        assert_eq!(
            denied_at(&[&crate::common::root().with("jti", jti).signed(&anchor())]),
            "2c",
            "{jti}"
        );
    }
    assert_eq!(
        denied_at(&[&crate::common::root().without("jti").signed(&anchor())]),
        "2c"
    );
}

#[test]
fn ids_that_differ_in_spelling_only_are_the_same() {
    let root = root().with("jti", "\"a\"").signed(&anchor());
    let child = child(&root).with("jti", r#""\u0061""#).signed(&alice());
    assert_eq!(denied_at(&[&root, &child]), "2c");
}

#[test]
fn step_3a_accepts_one_type_and_the_listed_algorithms() {
    let payload = root().json();
    for header in [
        r#"{"alg":"none","typ":"aat+jwt"}"#,
        r#"{"alg":"HS256","typ":"aat+jwt"}"#,
        r#"{"alg":"EdDSA","typ":"aat+jwt"}"#,
        r#"{"alg":"ed25519","typ":"aat+jwt"}"#,
        r#"{"typ":"aat+jwt"}"#,
        r#"{"alg":7,"typ":"aat+jwt"}"#,
        r#"{"alg":"Ed25519"}"#,
        r#"{"alg":"Ed25519","typ":"AAT+JWT"}"#,
        r#"{"alg":"Ed25519","typ":"aat-pop+jwt"}"#,
        r#"{"alg":"Ed25519","typ":"aat+jwt","crit":["exp"],"exp":1}"#,
        r#"{"alg":"Ed25519","typ":"aat+jwt","crit":[]}"#,
        r#"{"alg":"none","alg":"Ed25519","typ":"aat+jwt"}"#,
        r#"[]"#,
        r#"x"#,
    ] {
        assert_eq!(denied_at(&[&sign(&anchor(), header, &payload)]), "3a", "{header}");
    }
}

#[test]
fn an_anchor_may_allow_the_older_name_of_its_algorithm() {
    let token = sign(&anchor(), r#"{"alg":"EdDSA","typ":"aat+jwt"}"#, &root().json());
    let anchors = TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.into(),
        key: anchor().public(),
        key_id: None,
        algorithms: Algorithms::new([Algorithm::Ed25519, Algorithm::EdDsa]),
        asserts_subjects: false,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }]);
    let limits = Limits::default();
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    assert!(Chain::parse_joined(&token, &limits).unwrap().verify(&context).is_ok());
    let child = child(&token);
    let child = sign(&alice(), r#"{"alg":"EdDSA","typ":"aat+jwt"}"#, &child.json());
    let joined = format!("{token}~{child}");
    let denial = Chain::parse_joined(&joined, &limits)
        .unwrap()
        .verify(&context)
        .unwrap_err();
    assert_eq!(denial.step.name(), "4a", "the anchor's list is not the holders'");
}

#[test]
fn step_3b_accepts_the_anchors_signature_and_no_key_from_the_header() {
    assert_eq!(denied_at(&[&root().signed(&mallory())]), "3b");
    let header = format!(
        r#"{{"alg":"Ed25519","typ":"aat+jwt","jwk":{}}}"#,
        mallory().public().to_jwk()
    );
    assert_eq!(denied_at(&[&sign(&mallory(), &header, &root().json())]), "3b");
    let token = root().signed(&anchor());
    let (input, signature) = token.rsplit_once('.').unwrap();
    let flipped = if signature.starts_with('A') { 'B' } else { 'A' };
    assert_eq!(denied_at(&[&format!("{input}.{flipped}{}", &signature[1..])]), "3b");
    assert_eq!(denied_at(&[&format!("{input}.")]), "3b");
}

#[test]
fn step_3b_accepts_strict_json_with_whole_seconds() {
    let duplicate = format!("{},\"exp\":{}}}", root().json().strip_suffix('}').unwrap(), NOW + 99);
    let nested = root().with("x", r#"{"a":1,"a":2}"#).json();
    for payload in [duplicate, nested] {
        assert_eq!(
            denied_at(&[&sign(&anchor(), r#"{"alg":"Ed25519","typ":"aat+jwt"}"#, &payload)]),
            "3b"
        );
    }
    for (claim, json) in [
        ("iat", "1.5"),
        ("iat", "\"1\""),
        ("iat", "1e9"),
        ("exp", "9e9"),
        ("exp", "null"),
    ] {
        assert_eq!(
            denied_at(&[&root().with(claim, json).signed(&anchor())]),
            "3b",
            "{claim} {json}"
        );
    }
    assert_eq!(denied_at(&[&root().without("iat").signed(&anchor())]), "3b");
}

#[test]
fn steps_3c_to_3n_accept_only_a_valid_root() {
    let n = |offset: i64| (NOW + offset).to_string();
    for (claim, json, step) in [
        ("del_depth", "1".to_owned(), "3c"),
        ("del_depth", "0.0".to_owned(), "3c"),
        ("del_depth", "false".to_owned(), "3c"),
        ("par_hash", "\"x\"".to_owned(), "3d"),
        ("par_hash", "null".to_owned(), "3d"),
        ("exp", n(0), "3e"),
        ("iat", n(31), "3f"),
        ("iat", n(3600), "3f"),
        ("exp", n(90 * 86_400), "3h"),
        ("del_max_depth", "9".to_owned(), "3i"),
        ("del_max_depth", "-1".to_owned(), "3i"),
        ("del_max_depth", "4294967296".to_owned(), "3i"),
        ("jti", "\"\"".to_owned(), "3j"),
        ("iss", "\"https://evil.example\"".to_owned(), "3k"),
        ("iss", format!("[\"{ISSUER}\"]"), "3k"),
        ("cnf", "{}".to_owned(), "3l"),
        (
            "cnf",
            r#"{"jwk":{"kty":"OKP","crv":"Ed25519","x":"AA"}}"#.to_owned(),
            "3l",
        ),
        (
            "cnf",
            format!(r#"{{"jwk":{}}}"#, alice().to_private_jwk().as_str()),
            "3l",
        ),
        (
            "cnf",
            format!(r#"{{"jwk":{},"x5t#S256":"AA"}}"#, alice().public().to_jwk()),
            "3l",
        ),
        (
            "cnf",
            format!(
                r#"{{"jwk":{},"spiffe":"spiffe://mesh.example"}}"#,
                alice().public().to_jwk()
            ),
            "3l",
        ),
        ("authorization_details", "[]".to_owned(), "3m"),
        ("authorization_details", "{}".to_owned(), "3m"),
        ("authorization_details", r#"[{"type":"other"}]"#.to_owned(), "3m"),
        (
            "authorization_details",
            r#"[{"type":"attenuating_agent_token"}]"#.to_owned(),
            "3m",
        ),
        ("authorization_details", details(r#"{"a":[]}"#), "3m"),
        (
            "authorization_details",
            format!("[{0},{0}]", &details("{}")[1..details("{}").len() - 1]),
            "3m",
        ),
        (
            "authorization_details",
            details(r#"{"a":{"b":{"constraint_type":"regex"}}}"#),
            "3n",
        ),
        (
            "authorization_details",
            details(r#"{"a":{"*":{"constraint_type":"range"}}}"#),
            "3n",
        ),
        (
            "authorization_details",
            details(r#"{"a":{"*":{"constraint_type":"wildcard","optional":true}}}"#),
            "3n",
        ),
        ("sub", "7".to_owned(), "3b"),
        ("rev_epoch", "-1".to_owned(), "3b"),
        ("rev_epoch", "9007199254740992".to_owned(), "3b"),
    ] {
        assert_eq!(
            denied_at(&[&root().with(claim, json.clone()).signed(&anchor())]),
            step,
            "{claim} {json}"
        );
    }
    assert_eq!(
        denied_at(&[&root().with("iat", n(20)).with("exp", n(20)).signed(&anchor())]),
        "3g"
    );
}

#[test]
fn other_authorization_details_are_ignored() {
    let details = format!(r#"[{{"type":"payment","tools":7}},{}"#, &details("{}")[1..]);
    assert!(verify(&[&root().with("authorization_details", details).signed(&anchor())]).is_ok());
}

#[test]
fn step_4_accepts_the_parent_holders_signature() {
    let root = root().signed(&anchor());
    let child = child(&root);
    assert_eq!(
        denied_at(&[
            &root,
            &sign(&alice(), r#"{"alg":"none","typ":"aat+jwt"}"#, &child.json())
        ]),
        "4a"
    );
    assert_eq!(denied_at(&[&root, &child.signed(&mallory())]), "4b");
    assert_eq!(
        denied_at(&[&root, &child.signed(&anchor())]),
        "4b",
        "an anchor is no holder"
    );
    let header = format!(
        r#"{{"alg":"Ed25519","typ":"aat+jwt","jwk":{}}}"#,
        mallory().public().to_jwk()
    );
    assert_eq!(denied_at(&[&root, &sign(&mallory(), &header, &child.json())]), "4b");
}

#[test]
fn steps_4b_to_4q_accept_only_a_valid_derived_token() {
    let root = root().signed(&anchor());
    let n = |offset: i64| (NOW + offset).to_string();
    for (claim, json, step) in [
        ("jti", "\"\"".to_owned(), "4b1"),
        ("cnf", "7".to_owned(), "4b2"),
        (
            "cnf",
            format!(r#"{{"jwk":{}}}"#, bob().to_private_jwk().as_str()),
            "4b2",
        ),
        ("authorization_details", "{}".to_owned(), "4b3"),
        ("del_depth", "1.0".to_owned(), "4b4"),
        ("del_max_depth", "-1".to_owned(), "4b4"),
        ("iss", "7".to_owned(), "4b5"),
        ("par_hash", "7".to_owned(), "4b5"),
        ("iat", "1e9".to_owned(), "4b5"),
        ("iss", format!("\"{ISSUER}\""), "4c"),
        ("iss", format!("\"{}\"", bob().public().thumbprint().uri()), "4c"),
        ("del_depth", "2".to_owned(), "4d"),
        ("del_max_depth", "4".to_owned(), "4g"),
        ("exp", n(3601), "4h"),
        ("exp", n(0), "4i"),
        ("iat", n(-61), "4j"),
        ("iat", n(31), "4k"),
        ("del_max_depth", "0".to_owned(), "4m"),
        (
            "authorization_details",
            format!("[{0},{0}]", &details("{}")[1..details("{}").len() - 1]),
            "4n",
        ),
        ("authorization_details", details(r#"{"pay":7}"#), "4n"),
        (
            "authorization_details",
            details(r#"{"pay":{"account":{"constraint_type":"odd"}}}"#),
            "4o",
        ),
        ("authorization_details", details(r#"{"steal":{}}"#), "4p1"),
        (
            "authorization_details",
            details(r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"}}}"#),
            "4p2",
        ),
        ("authorization_details", details(r#"{"pay":{}}"#), "4p2"),
        (
            "par_hash",
            format!("\"{}\"", hash(&child(&root).signed(&alice()))),
            "4q",
        ),
    ] {
        let token = child(&root).with(claim, json.clone()).signed(&alice());
        assert_eq!(denied_at(&[&root, &token]), step, "{claim} {json}");
    }
    let empty = child(&root).with("iat", n(20)).with("exp", n(20)).signed(&alice());
    assert_eq!(denied_at(&[&root, &empty]), "4l");
    let terminal = crate::common::root().with("del_max_depth", "0").signed(&anchor());
    let derived = child(&terminal).with("del_max_depth", "0").signed(&alice());
    assert_eq!(denied_at(&[&terminal, &derived]), "4e");
}

#[test]
fn of_two_faults_the_one_of_the_earlier_step_is_named() {
    let root = root().signed(&anchor());
    let unknown = r#"{"pay":{"amount":{"constraint_type":"newer"}}}"#;
    assert_eq!(denied_at(&[&root, &child(&root).tools(unknown).signed(&alice())]), "4o");
    for (claim, json, step) in [
        ("iss", "\"https://other.example\"".to_owned(), "4c"),
        ("del_depth", "2".to_owned(), "4d"),
        ("exp", (NOW + 7200).to_string(), "4h"),
        ("iat", (NOW + 600).to_string(), "4k"),
    ] {
        let leaf = child(&root).tools(unknown).with(claim, json.clone());
        assert_eq!(denied_at(&[&root, &leaf.signed(&alice())]), step, "{claim} {json}");
    }
    let huge = "x".repeat(70_000);
    assert_eq!(denied_at(&["junk", &huge]), "2a");
}

#[test]
fn step_4p_never_lets_a_child_widen() {
    let exact = r#"{"constraint_type":"exact","value":1}"#;
    let optional = r#"{"constraint_type":"exact","value":1,"optional":true}"#;
    let any = r#"{"constraint_type":"wildcard"}"#;
    for (parent, child_map, outcome) in [
        (
            format!(r#"{{"a":{exact}}}"#),
            format!(r#"{{"a":{optional}}}"#),
            Err("4p3"),
        ),
        (format!(r#"{{"a":{optional}}}"#), format!(r#"{{"a":{exact}}}"#), Ok(())),
        (
            format!(r#"{{"a":{optional},"b":{exact}}}"#),
            format!(r#"{{"b":{exact}}}"#),
            Ok(()),
        ),
        (
            format!(r#"{{"a":{optional},"*":{any}}}"#),
            format!(r#"{{"*":{any}}}"#),
            Err("4p2"),
        ),
        (
            format!(r#"{{"a":{exact},"*":{any}}}"#),
            format!(r#"{{"a":{exact}}}"#),
            Ok(()),
        ),
        (
            format!(r#"{{"a":{exact}}}"#),
            format!(r#"{{"a":{exact},"*":{any}}}"#),
            Err("4p2"),
        ),
        (
            format!(r#"{{"a":{exact}}}"#),
            format!(r#"{{"a":{exact},"b":{exact}}}"#),
            Err("4p2"),
        ),
        (format!(r#"{{"a":{exact}}}"#), format!(r#"{{"a":{any}}}"#), Err("4p4")),
        ("{}".to_owned(), format!(r#"{{"a":{exact}}}"#), Ok(())),
        ("{}".to_owned(), "{}".to_owned(), Ok(())),
    ] {
        let root = root().tools(&format!(r#"{{"t":{parent}}}"#)).signed(&anchor());
        let derived = child(&root).tools(&format!(r#"{{"t":{child_map}}}"#)).signed(&alice());
        let result = verify(&[&root, &derived])
            .map(|_| ())
            .map_err(|denial| denial.step.name());
        assert_eq!(result, outcome, "{parent} over {child_map}");
    }
}

#[test]
fn a_chain_that_is_too_costly_to_compare_is_denied() {
    let chain = |clauses: usize| {
        let clauses: Vec<_> = (0..clauses)
            .map(|i| format!(r#"{{"constraint_type":"not_one_of","excluded":[{i}]}}"#))
            .collect();
        let tools = format!(
            r#"{{"t":{{"a":{{"constraint_type":"all","constraints":[{}]}}}}}}"#,
            clauses.join(",")
        );
        let root = root().tools(&tools).signed(&anchor());
        let child = child(&root).tools(&tools).signed(&alice());
        [root, child]
    };
    let [root, child] = chain(100);
    assert!(verify(&[&root, &child]).is_ok(), "5,051 comparisons");
    let [root, child] = chain(200);
    assert_eq!(denied_at(&[&root, &child]), "4p4");
}

#[test]
fn a_chain_knows_how_much_memory_it_takes() {
    let bytes = |tools: &str| verify(&[&root().tools(tools).signed(&anchor())]).unwrap().bytes();
    let excluding = |numbers: Vec<String>| {
        bytes(&format!(
            r#"{{"t":{{"a":{{"constraint_type":"not_one_of","excluded":[{}]}}}}}}"#,
            numbers.join(",")
        ))
    };
    let (one, thousand) = (
        excluding(vec!["0".into()]),
        excluding((0..1000).map(|i| i.to_string()).collect()),
    );
    assert!(thousand - one >= 999 * size_of::<credence_delegation::Value>());
}

#[test]
fn an_expired_token_does_not_reveal_the_trust_anchors() {
    let expired = || root().with("exp", (NOW - 1).to_string());
    let known = denied_at(&[&expired().signed(&mallory())]);
    let unknown = denied_at(&[&expired().with("iss", "\"https://other.example\"").signed(&mallory())]);
    assert_eq!(known, unknown);
}

#[test]
fn a_large_header_is_not_read() {
    let nested = "[".repeat(4000);
    let header = format!(r#"{{"alg":"Ed25519","typ":"aat+jwt","x":{nested}"#);
    let denial = verify(&[&sign(&anchor(), &header, &root().json())]).unwrap_err();
    assert_eq!(
        (denial.step.name(), denial.cause.to_string().contains("limit is 4096")),
        ("3a", true)
    );
}

#[test]
fn an_empty_set_of_capabilities_stays_empty_and_is_not_a_leaf() {
    let root = root().signed(&anchor());
    let none = child(&root).with("authorization_details", "[]").signed(&alice());
    let chain = verify(&[&root, &none]).unwrap();
    assert_eq!(chain.grants("pay").unwrap_err().step.name(), "6a");
    let grandchild = child(&none)
        .with("jti", "\"grandchild\"")
        .with("iss", format!("\"{}\"", bob().public().thumbprint().uri()))
        .with("del_depth", "2");
    assert_eq!(denied_at(&[&root, &none, &grandchild.signed(&bob())]), "4p1");
}

#[test]
fn tokens_cannot_be_left_out_or_swapped() {
    let root = root().signed(&anchor());
    let first = child(&root).signed(&alice());
    let second = child(&first)
        .with("jti", "\"second\"")
        .with("iss", format!("\"{}\"", bob().public().thumbprint().uri()))
        .with("del_depth", "2")
        .signed(&bob());
    assert!(verify(&[&root, &first, &second]).is_ok());
    assert_eq!(denied_at(&[&root, &second]), "4b");
    assert_eq!(denied_at(&[&first, &second]), "3k");
    assert_eq!(denied_at(&[&first, &root]), "3k");
    let sibling = crate::common::root().with("jti", "\"sibling\"").signed(&anchor());
    assert_eq!(denied_at(&[&sibling, &first]), "4q");
}

#[test]
fn an_invalid_chain_is_denied_before_signatures_are_checked() {
    // The signatures are invalid too. The denial names the cheaper fault, so the signatures were not checked.
    let expired = root().with("exp", (NOW - 1).to_string()).signed(&mallory());
    assert_eq!(denied_at(&[&expired]), "3e");
    let foreign = root().with("iss", "\"https://other.example\"").signed(&mallory());
    assert_eq!(denied_at(&[&foreign]), "3k");
    let forged = root().signed(&mallory());
    let late = child(&forged).with("exp", (NOW - 1).to_string()).signed(&mallory());
    assert_eq!(denied_at(&[&forged, &late]), "4i");
}

#[test]
fn the_unsigned_scan_does_not_decide() {
    // The scan sees the second `iss`, which selects the anchor. The strict parser then refuses the duplicate.
    let payload = root().json().replacen("{", r#"{"iss":"https://evil.example","#, 1);
    assert_eq!(
        denied_at(&[&sign(&anchor(), r#"{"alg":"Ed25519","typ":"aat+jwt"}"#, &payload)]),
        "3b"
    );
}

#[test]
fn a_subject_counts_only_where_the_anchor_asserts_it() {
    let token = root().with("sub", "7").signed(&anchor());
    let anchors = TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.into(),
        key: anchor().public(),
        key_id: None,
        algorithms: Algorithms::default(),
        asserts_subjects: false,
        delegations: true,
        access_tokens: None,
        same_principals: Vec::new(),
        is_fetched: false,
    }]);
    let limits = Limits::default();
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    let chain = Chain::parse_joined(&token, &limits).unwrap().verify(&context).unwrap();
    assert_eq!(chain.principal().subject, None);
}
