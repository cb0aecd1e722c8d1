//! `authorization` of a rule, and anchors whose keys are fetched.

use super::super::*;

/// A configuration with these anchors, and a rule with these fields.
fn load(anchor: &str, rule: &str) -> Result<Policy, String> {
    let text = format!(
        r#"{{"audience": ["https://orders.example"], "trust_anchors": [{anchor}],
            "control_plane": {{"cluster": "c", "log_id": "0123456789abcdef0123456789abcdef"}},
            "rules": [{{"name": "r", "match": {{"path": "/"}}, "tool": "t"{rule}}}]}}"#
    );
    Policy::parse(text.as_bytes()).map_err(|error| error.to_string())
}

const FETCHED: &str = r#"{"issuer": "https://idp.example", "keys": "control_plane", "algorithms": ["RS256"],
    "asserts_subjects": true, "access_tokens": {"scopes": {"s": {"t": {}}}}}"#;

#[test]
fn an_anchor_whose_keys_are_fetched_needs_none_here() {
    let policy = load(FETCHED, r#", "authorization": {"proof": "dpop"}"#).unwrap();
    assert_eq!(policy.trust_anchors.iter().count(), 0);
    assert_eq!(policy.trust_anchors.fetched().len(), 1);
    assert_eq!(policy.resources.len(), 1);
}

#[test]
fn an_origin_is_scheme_host_and_port_alone() {
    let with = |origin: &str| {
        load(
            FETCHED,
            &format!(r#", "authorization": {{"proof": "dpop", "origins": ["{origin}"]}}"#),
        )
    };
    for origin in ["https://api.example", "http://localhost:8080", "https://[::1]:8443"] {
        with(origin).unwrap();
    }
    for origin in [
        "https://api.example/",
        "https://api.example/v1",
        "https://api.example?x",
        "https://api.example#x",
        "https://user@api.example",
        "api.example",
        "ftp://api.example",
        "https://",
    ] {
        let said = with(origin).unwrap_err();
        assert!(said.contains("rules[0].authorization.origins[0]: "), "{origin}: {said}");
    }
}

#[test]
fn errors_name_place_and_cure() {
    let broker = r#"{"issuer": "https://idp.example", "keys": "control_plane", "algorithms": ["Ed25519"],"#;
    for (anchor, rule, expected) in [
        (
            FETCHED,
            r#", "authorization": {"proof": "mtls", "origins": ["https://a"]}"#,
            "rules[0].authorization.origins: only a DPoP proof names its URI",
        ),
        (
            FETCHED,
            r#", "nonce": true, "proof": "none", "authorization": {"proof": "none"}"#,
            "rules[0].nonce: only a signed proof carries a nonce",
        ),
        (
            &format!(r#"{broker} "asserts_subjects": true}}"#),
            r#", "authorization": {"proof": "dpop"}"#,
            "rules[0].authorization: no trust anchor has `access_tokens`",
        ),
        (
            &format!(r#"{broker} "jwk": {{}}}}"#),
            "",
            "trust_anchors[0].keys: `keys: control_plane` is the only value, and goes without `jwk` and `jwks`",
        ),
        (
            &format!(r#"{broker} "same_principals_as": "https://other.example"}}"#),
            "",
            "trust_anchors[0].same_principals_as: without `asserts_subjects: true`",
        ),
        (
            &format!(r#"{broker} "asserts_subjects": true, "same_principals_as": "https://idp.example"}}"#),
            "",
            "trust_anchors[0].same_principals_as: `https://idp.example` is not another issuer",
        ),
    ] {
        let said = load(anchor, rule).unwrap_err();
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
