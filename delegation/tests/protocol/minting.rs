//! Minted tokens verify, and tokens that would not verify are not minted.

use std::sync::Arc;

use crate::common::*;
use credence_delegation::json::Json;
use credence_delegation::mint::{self, AccessTokenGrant, Binding, Grant, Invocation, MintError, RootGrant, Signer};
use credence_delegation::{
    AccessTokens, Algorithms, Chain, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime, Value,
    VerificationContext, VerifiedChain, inspect,
};

fn tools(json: &str) -> Value {
    Value::from_json(&Json::parse(json.as_bytes()).unwrap()).unwrap()
}

fn grant(id: &str, holder: &SigningKey, granted: &str) -> Grant {
    Grant {
        id: id.into(),
        issued_at: UnixTime(NOW),
        expires_at: UnixTime(NOW + 600),
        holder: holder.public(),
        holder_certificate: None,
        holder_spiffe_id: None,
        audience: audience(),
        max_depth: 3,
        tools: tools(granted),
    }
}

fn root_grant() -> RootGrant {
    RootGrant {
        grant: grant("root", &alice(), TOOLS),
        issuer: ISSUER.into(),
        subject: Some("ada".into()),
        epoch: Some(41),
        agent_name: Some("Ada's planner".into()),
    }
}

#[test]
fn a_minted_chain_verifies_and_its_proof_does() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let narrowed = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"exact","value":7}}}"#;
    let mut leaf_grant = grant("leaf", &bob(), narrowed);
    leaf_grant.holder_certificate = Some([5; 32]);
    leaf_grant.holder_spiffe_id = Some("spiffe://mesh.example/ns/pay/sa/agent".into());
    let leaf = mint::derive(&root, &leaf_grant, &alice(), &limits).unwrap();
    let chain = verify(&[&root, &leaf]).unwrap();
    assert_eq!(
        (chain.principal().subject.as_deref(), chain.root_epoch()),
        (Some("ada"), Some(41))
    );
    assert_eq!(chain.leaf().holder().certificate(), Some(&[5; 32]));
    assert_eq!(
        chain.leaf().holder().spiffe_id(),
        Some("spiffe://mesh.example/ns/pay/sa/agent")
    );
    let args = arguments(r#"{"account":"a1","amount":7}"#);
    let invocation = Invocation {
        id: "p1".into(),
        issued_at: UnixTime(NOW),
        tool: "pay".into(),
        arguments: args.clone(),
        audience: Some(AUDIENCE.into()),
        nonce: None,
    };
    let proof = mint::prove(&leaf, &invocation, &bob(), &limits).unwrap();
    assert_eq!(prove(&chain, &proof, "pay", &args), Ok(()));
    chain.permits("pay", &args).unwrap();
}

#[test]
fn payloads_are_canonical() {
    let root = mint::root(&root_grant(), &anchor(), &Limits::default()).unwrap();
    let claims = credence_delegation::inspect::contents(&root).unwrap().claims;
    let canonical = credence_delegation::canonicalize(&Json::parse(&claims).unwrap()).unwrap();
    assert_eq!(String::from_utf8(claims).unwrap(), canonical);
}

#[test]
fn only_the_holder_derives_and_proves() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let error = mint::derive(&root, &grant("leaf", &bob(), "{}"), &mallory(), &limits).unwrap_err();
    assert!(matches!(error, MintError::NotTheHolder { .. }), "{error}");
    assert!(error.to_string().contains(&alice().public().thumbprint().to_string()));
}

#[test]
fn an_invalid_token_is_not_minted() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let denied = |result: Result<String, MintError>| match result {
        Err(MintError::WouldBeDenied(denial)) => denial.step.name(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        denied(mint::derive(
            &root,
            &grant("leaf", &bob(), r#"{"steal":{}}"#),
            &alice(),
            &limits
        )),
        "4p1"
    );
    let mut late = grant("leaf", &bob(), "{}");
    late.expires_at = UnixTime(NOW + 601);
    assert_eq!(denied(mint::derive(&root, &late, &alice(), &limits)), "4h");
    let mut malformed = root_grant();
    malformed.grant.tools = tools(r#"{"t":{"a":{"constraint_type":"one_of","values":[]}}}"#);
    assert_eq!(denied(mint::root(&malformed, &anchor(), &limits)), "3n");
    let mut endless = root_grant();
    endless.grant.expires_at = UnixTime(NOW + 91 * 86_400);
    assert_eq!(denied(mint::root(&endless, &anchor(), &limits)), "3h");
}

#[test]
fn rules_beyond_the_draft_are_checked_too() {
    let mint = |change: &dyn Fn(&mut RootGrant)| {
        let mut root = root_grant();
        change(&mut root);
        match mint::root(&root, &anchor(), &Limits::default()) {
            Err(MintError::WouldBeDenied(denial)) => denial.step.name(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mint(&|root| root.issuer = String::new()), "3k");
    assert_eq!(mint(&|root| root.issuer = "no-uri".into()), "3k");
    assert_eq!(mint(&|root| root.subject = Some(String::new())), "3b");
    assert_eq!(mint(&|root| root.epoch = Some(1 << 53)), "3b");
}

#[test]
fn no_token_or_proof_is_made_from_an_expired_token() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let leaf = mint::derive(&root, &grant("leaf", &bob(), r#"{"read":{}}"#), &alice(), &limits).unwrap();
    let mut late = grant("late", &mallory(), r#"{"read":{}}"#);
    late.issued_at = UnixTime(NOW + 600);
    late.expires_at = UnixTime(NOW + 601);
    let error = mint::derive(&leaf, &late, &bob(), &limits).unwrap_err();
    assert!(
        matches!(error, MintError::Parent(ref denial) if denial.step.name() == "4i"),
        "{error}"
    );
}

#[test]
fn a_proof_needs_an_id() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let invocation = Invocation {
        id: String::new(),
        issued_at: UnixTime(NOW),
        tool: "read".into(),
        arguments: arguments("{}"),
        audience: None,
        nonce: None,
    };
    assert!(matches!(
        mint::prove(&root, &invocation, &alice(), &limits),
        Err(MintError::WouldBeDenied(_))
    ));
}

#[test]
fn a_token_has_another_id_than_its_parent() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let id = root_grant().grant.id;
    let error = mint::derive(&root, &grant(&id, &bob(), r#"{"read":{}}"#), &alice(), &limits).unwrap_err();
    assert!(
        matches!(error, MintError::WouldBeDenied(ref denial) if denial.step.name() == "2c"),
        "{error}"
    );
}

#[test]
fn a_proof_is_no_larger_than_a_verifier_reads() {
    let limits = Limits::default();
    let root = mint::root(&root_grant(), &anchor(), &limits).unwrap();
    let invocation = Invocation {
        id: "proof".into(),
        issued_at: UnixTime(NOW),
        tool: "read".into(),
        arguments: arguments(&format!(r#"{{"text":"{}"}}"#, "x".repeat(70_000))),
        audience: None,
        nonce: None,
    };
    let error = mint::prove(&root, &invocation, &alice(), &limits).unwrap_err();
    assert!(
        matches!(error, MintError::WouldBeDenied(ref denial) if denial.step.name() == "7a"),
        "{error}"
    );
}

fn access_token_grant(binding: Binding) -> AccessTokenGrant {
    AccessTokenGrant {
        id: "token".into(),
        issued_at: UnixTime(NOW),
        expires_at: UnixTime(NOW + 600),
        issuer: ISSUER.into(),
        subject: "ada".into(),
        client: "planner".into(),
        audience: audience(),
        epoch: Some(41),
        tools: tools(TOOLS),
        binding,
    }
}

/// Verifies with a trust anchor whose `kid` is this, for access tokens too.
fn verify_as(key_id: Option<&str>, token: &str) -> VerifiedChain {
    let limits = Limits::default();
    let anchors = TrustAnchors::new([TrustAnchor {
        issuer: ISSUER.into(),
        key: anchor().public(),
        key_id: key_id.map(str::to_owned),
        algorithms: Algorithms::default(),
        asserts_subjects: true,
        delegations: true,
        access_tokens: Some(Arc::new(AccessTokens::default())),
        same_principals: Vec::new(),
        is_fetched: false,
    }]);
    let context = VerificationContext {
        anchors: &anchors,
        holder_algorithms: &Algorithms::default(),
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    };
    Chain::parse_joined(token, &limits).unwrap().verify(&context).unwrap()
}

#[test]
fn a_minted_access_token_verifies_whatever_it_is_bound_to() {
    let key = alice().public().thumbprint();
    for binding in [Binding::Jkt(key), Binding::Certificate([5; 32]), Binding::Bearer] {
        let grant = access_token_grant(binding);
        let token = mint::access_token(&grant, &anchor(), &Limits::default()).unwrap();
        let chain = verify_as(None, &token);
        assert_eq!(
            (chain.principal().subject.as_deref(), chain.client(), chain.root_epoch()),
            (Some("ada"), Some("planner"), Some(41))
        );
        let holder = chain.leaf().holder();
        let bound_to = match (holder.thumbprint(), holder.certificate()) {
            (Some(key), None) => Binding::Jkt(key),
            (None, Some(certificate)) => Binding::Certificate(*certificate),
            _ => Binding::Bearer,
        };
        assert_eq!(bound_to, binding);
        chain
            .permits("pay", &arguments(r#"{"account":"a1","amount":7}"#))
            .unwrap();
        assert!(
            chain
                .permits("pay", &arguments(r#"{"account":"a1","amount":700}"#))
                .is_err()
        );
        let claims = inspect::contents(&token).unwrap().claims;
        assert!(!String::from_utf8(claims).unwrap().contains("scope"));
    }
}

#[test]
fn an_invalid_access_token_is_not_minted() {
    let mint = |change: &dyn Fn(&mut AccessTokenGrant)| {
        let mut grant = access_token_grant(Binding::Bearer);
        change(&mut grant);
        match mint::access_token(&grant, &anchor(), &Limits::default()) {
            Err(MintError::WouldBeDenied(denial)) => denial.step.name(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mint(&|grant| grant.audience.clear()), "6c");
    assert_eq!(mint(&|grant| grant.issuer = "no-uri".into()), "3k");
    assert_eq!(mint(&|grant| grant.subject.clear()), "3b");
    assert_eq!(mint(&|grant| grant.id.clear()), "3j");
    assert_eq!(mint(&|grant| grant.epoch = Some(1 << 53)), "3b");
    assert_eq!(mint(&|grant| grant.expires_at = UnixTime(NOW)), "3e");
    assert_eq!(
        mint(&|grant| grant.tools = tools(r#"{"t":{"a":{"constraint_type":"one_of","values":[]}}}"#)),
        "3n"
    );
}

#[test]
fn a_header_names_the_key_only_if_the_signer_does() {
    let (key, limits) = (anchor(), Limits::default());
    let named = |key_id| Signer { key: &key, key_id };
    let access = access_token_grant(Binding::Bearer);
    for (signer, kid) in [(named(None), ""), (named(Some("k\"1")), r#""kid":"k\"1","#)] {
        for (token, typ) in [
            (mint::root(&root_grant(), signer, &limits).unwrap(), "aat+jwt"),
            (mint::access_token(&access, signer, &limits).unwrap(), "at+jwt"),
        ] {
            let header = String::from_utf8(inspect::contents(&token).unwrap().header).unwrap();
            assert_eq!(header, format!(r#"{{"alg":"Ed25519",{kid}"typ":"{typ}"}}"#));
            verify_as(signer.key_id, &token);
        }
    }
    let long = "k".repeat(4096);
    assert!(mint::root(&root_grant(), named(Some(&long)), &limits).is_err());
}
