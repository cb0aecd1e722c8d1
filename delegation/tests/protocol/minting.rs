//! Minted tokens verify, and tokens that would not verify are not minted.

use crate::common::*;
use credence_delegation::json::Json;
use credence_delegation::mint::{self, Grant, Invocation, MintError, RootGrant};
use credence_delegation::{Limits, SigningKey, UnixTime, Value};

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
