//! A delegation on the side of its holder: what a verifier would deny is refused, except for signatures.

use std::convert::Infallible;

use credence_delegation::mint::{self, DpopRequest, Grant, Invocation};
use credence_delegation::{
    Algorithms, DpopContext, DpopProof, HeldChain, HttpUri, Limits, UnixTime, Value, json::Json,
};

use crate::common::*;

fn held(tokens: &[&str]) -> Result<HeldChain, credence_delegation::Denial> {
    HeldChain::read(&tokens.join("~"), UnixTime(NOW), &Limits::default())
}

fn denied_at(tokens: &[&str]) -> &'static str {
    held(tokens).expect_err("it is denied").step.name()
}

#[test]
fn a_holder_knows_what_a_verifier_would_allow() {
    let root = root().signed(&anchor());
    let leaf = child(&root).signed(&alice());
    let chain = held(&[&root, &leaf]).unwrap();
    let verified = verify(&[&root, &leaf]).unwrap();
    for (tool, args) in [
        ("pay", r#"{"account":"a1","amount":50}"#),
        ("pay", r#"{"account":"a1","amount":51}"#),
        ("pay", r#"{"account":"a2","amount":50}"#),
        ("pay", r#"{"account":"a1"}"#),
        ("read", "{}"),
    ] {
        let args = arguments(args);
        assert_eq!(chain.permits(tool, &args), verified.permits(tool, &args), "{tool}");
        assert_eq!(chain.permits_all(tool), verified.permits_all(tool), "{tool}");
    }
    assert_eq!((chain.depth(), chain.depth_left()), (1, 1));
    assert_eq!(chain.tools().collect::<Vec<_>>(), ["pay"]);
    assert_eq!((chain.id(), chain.expires_at()), ("child", UnixTime(NOW + 1800)));
}

#[test]
fn what_a_verifier_denies_is_refused_at_the_same_step() {
    let good = root().signed(&anchor());
    let derived = |claims: Claims| claims.signed(&alice());
    assert_eq!(denied_at(&[]), "2c");
    assert_eq!(
        denied_at(&[&root().with("exp", NOW.to_string()).signed(&anchor())]),
        "3e"
    );
    assert_eq!(
        denied_at(&[&good, &derived(child(&good).with("par_hash", "\"a\""))]),
        "4q"
    );
    assert_eq!(
        denied_at(&[&good, &derived(child(&good).tools(r#"{"other":{}}"#))]),
        "4p1"
    );
    assert_eq!(denied_at(&[&good, &derived(child(&good).with("del_depth", "2"))]), "4d");
    assert_eq!(denied_at(&[&good, &derived(child(&good).with("iss", "\"a\""))]), "4c");
    assert_eq!(denied_at(&[&derived(child(&good))]), "3c");
    assert_eq!(denied_at(&[&good, &good]), "2c");
}

#[test]
fn every_audience_of_a_chain_must_be_the_service() {
    let root = root().with("aud", r#"["https://a","https://b"]"#).signed(&anchor());
    let leaf = child(&root).with("aud", r#""https://b""#).signed(&alice());
    let chain = held(&[&root, &leaf]).unwrap();
    let is_for = |name: &str| chain.is_for(&[name.to_owned()]).is_ok();
    assert_eq!(
        (is_for("https://a"), is_for("https://b"), is_for("https://c")),
        (false, true, false)
    );
}

#[test]
fn a_key_that_is_elsewhere_signs_what_a_verifier_accepts() {
    let limits = Limits::default();
    let root = root().signed(&anchor());
    let chain = held(&[&root]).unwrap();
    let sign = |key: &credence_delegation::SigningKey, unsigned: &mint::Unsigned| {
        let Ok(signed) = unsigned.signed_by(|message| Ok::<_, Infallible>(key.sign(message)));
        signed
    };
    let tools =
        r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":5}}}"#;
    let grant = Grant {
        id: "leaf".into(),
        issued_at: UnixTime(NOW),
        expires_at: UnixTime(NOW + 60),
        holder: bob().public(),
        holder_certificate: None,
        holder_spiffe_id: None,
        audience: vec![],
        max_depth: 1,
        tools: Value::from_json(&Json::parse(tools.as_bytes()).unwrap()).unwrap(),
    };
    let token = sign(&alice(), &chain.derivation(&grant, &limits).unwrap());
    let chain = chain.with(&token, UnixTime(NOW), &limits).unwrap();
    let verified = verify(&[&root, &token]).unwrap();
    let args = arguments(r#"{"account":"a1","amount":5}"#);
    let invocation = Invocation {
        id: "p1".into(),
        issued_at: UnixTime(NOW),
        tool: "pay".into(),
        arguments: args.clone(),
        audience: Some(AUDIENCE.into()),
        nonce: None,
    };
    let proof = sign(&bob(), &chain.proof(&invocation, &limits).unwrap());
    assert_eq!(prove(&verified, &proof, "pay", &args), Ok(()));
    assert_eq!(mint::prove(&token, &invocation, &bob(), &limits).unwrap(), proof);

    let request = DpopRequest {
        id: "d1",
        issued_at: UnixTime(NOW),
        method: "POST",
        uri: "https://api.example.com/v1/orders?secret=1#a",
        access_token: None,
        nonce: Some("n"),
    };
    let dpop = sign(&alice(), &mint::dpop(&request, &alice().public()));
    let parsed = DpopProof::parse(&dpop, &Algorithms::default(), &limits, None).unwrap();
    let verified = parsed.verify(&DpopContext {
        method: "POST",
        uris: &[HttpUri::parse("https://api.example.com/v1/orders").unwrap()],
        access_token: None,
        limits: &limits,
        now: UnixTime(NOW),
        hot_keys: None,
    });
    assert_eq!(verified.unwrap().nonce(), Some("n"));
    assert!(!dpop.contains("secret"));
}
