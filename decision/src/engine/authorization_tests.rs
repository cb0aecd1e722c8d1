//! Access tokens in `Authorization`: how they are presented and bound, and what a denied client learns.

#![allow(clippy::disallowed_types, reason = "reads back what the filter wrote")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::answer::Answer;
use crate::samples::key_of;
use credence_delegation::{KeyType, SigningKey};

/// An engine whose rules read access tokens of `ISSUER`, and delegations too.
fn engine(world: &mut TestWorld) -> Engine {
    let configuration = format!(
        r#"{{
            "audience": ["{AUDIENCE}"],
            "holder_algorithms": ["Ed25519", "ES256"],
            "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true, "delegations": true,
                "access_tokens": {{
                    "scopes": {{"shop.read": {{"read": {{}}}},
                                "shop.pay": {{"pay": {{"amount": {{"constraint_type": "range", "max": 100}}}}}},
                                "shop.pay.all": {{"pay": {{}}}}}},
                    "authorization_details": {{"payment": {{"tools": {{"pay": {{"amount": {{"constraint_type": "range",
                                "max": {{"from": "/limit"}}}}}}}}}}}}
                }}}}],
            "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
            "rules": [
                {{"name": "read", "match": {{"path": "/read/{{item}}"}}, "tool": "read", "args": {{"item": {{"path": "item"}}}},
                  "authorization": {{"proof": "dpop"}}, "proof": "none"}},
                {{"name": "pay", "match": {{"path": "/pay"}}, "tool": "pay",
                  "args": {{"amount": {{"query": "amount", "type": "number"}}}}, "authorization": {{"proof": "dpop"}}}},
                {{"name": "once", "match": {{"path": "/once"}}, "tool": "read", "authorization": {{"proof": "dpop"}}, "nonce": true}},
                {{"name": "public-name", "match": {{"path": "/named"}}, "tool": "read",
                  "authorization": {{"proof": "dpop", "origins": ["https://api.example", "http://localhost:8080"]}}}},
                {{"name": "bearer", "match": {{"path": "/bearer/{{item}}"}}, "tool": "read", "args": {{"item": {{"path": "item"}}}},
                  "authorization": {{"proof": "none"}}, "forward": true}},
                {{"name": "mesh", "match": {{"path": "/mesh"}}, "tool": "read", "authorization": {{"proof": "mtls"}}}},
                {{"name": "own", "match": {{"path": "/own"}}, "tool": "read", "proof": "none"}}
            ]
        }}"#,
        key(1).public().to_jwk()
    );
    let policy = Policy::parse(configuration.as_bytes()).unwrap();
    let replay = ReplayMemory::join(world, [5; 16], UnixTime(NOW - 1000), 5).unwrap();
    Engine::new(policy.into(), [6; 16], replay)
}

fn client() -> SigningKey {
    key_of(KeyType::P256, 7)
}

fn jws(by: &SigningKey, header: &str, claims: &str) -> String {
    let input = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let signature = URL_SAFE_NO_PAD.encode(by.sign(input.as_bytes()));
    format!("{input}.{signature}")
}

/// An access token with these scopes and this `cnf`, if any.
fn token_with(scope: &str, more: &str) -> String {
    let claims = format!(
        r#"{{"iss":"{ISSUER}","sub":"ada","client_id":"shop-agent","aud":"{AUDIENCE}","jti":"t1","iat":{NOW},"exp":{},
            "scope":"{scope}","act":{{"sub":"planner","act":{{"sub":"first"}}}}{more}}}"#,
        NOW + 600
    );
    jws(&key(1), r#"{"alg":"Ed25519","typ":"at+jwt"}"#, &claims)
}

fn bound(scope: &str) -> String {
    let thumbprint = client().public().thumbprint();
    token_with(scope, &format!(r#","cnf":{{"jkt":"{thumbprint}"}}"#))
}

fn bearer(scope: &str) -> String {
    token_with(scope, "")
}

/// A DPoP proof for this token and request.
struct Dpop<'a> {
    token: &'a str,
    method: &'a str,
    uri: &'a str,
    id: &'a str,
    nonce: Option<&'a str>,
    issued_at: i64,
}

impl<'a> Dpop<'a> {
    fn of(token: &'a str, method: &'a str, uri: &'a str) -> Self {
        Self {
            token,
            method,
            uri,
            id: "p1",
            nonce: None,
            issued_at: NOW,
        }
    }

    fn signed(&self) -> String {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(self.token));
        let nonce = self
            .nonce
            .map(|nonce| format!(r#","nonce":"{nonce}""#))
            .unwrap_or_default();
        let claims = format!(
            r#"{{"jti":"{}","htm":"{}","htu":"{}","iat":{},"ath":"{hash}"{nonce}}}"#,
            self.id, self.method, self.uri, self.issued_at
        );
        let header = format!(
            r#"{{"alg":"ES256","typ":"dpop+jwt","jwk":{}}}"#,
            client().public().to_jwk()
        );
        jws(&client(), &header, &claims)
    }
}

fn get<'a>(path: &'a str, more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
    let mut request = vec![
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "payments.example"),
        (":path", path),
    ];
    request.extend(more);
    request
}

/// The answer to a request that is denied.
fn answer(engine: &mut Engine, world: &mut TestWorld, request: &[(&str, &str)]) -> Answer {
    let serialized = serialize(request);
    let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    let verdict = decided(engine.decide(&request, world));
    let Decision::Deny(denial) = &verdict.decision else {
        panic!("{verdict:?}")
    };
    Answer::for_verdict(&verdict, denial, &request)
}

fn challenges(answer: &Answer) -> Vec<&str> {
    let named = answer.headers.iter().filter(|(name, _)| *name == "www-authenticate");
    named.map(|(_, value)| value.as_str()).collect()
}

const AT: &str = "https://payments.example/read/shoes";

#[test]
fn a_token_with_a_dpop_proof_is_allowed_and_names_client_and_actor() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bound("shop.read");
    let authorization = format!("DPoP {token}");
    let proof = Dpop::of(&token, "GET", AT).signed();
    let request = get("/read/shoes", &[("authorization", &authorization), ("dpop", &proof)]);
    let serialized = serialize(&request);
    let parsed = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    let verdict = decided(engine.decide(&parsed, world));
    let Decision::Allow(Allowance::Delegated(grant)) = &verdict.decision else {
        panic!("{verdict:?}")
    };
    assert_eq!(
        verdict.findings.agent,
        Some(Agent::DpopKey(client().public().thumbprint()))
    );
    for part in [
        (Part::Subject, "ada"),
        (Part::Client, "shop-agent"),
        (Part::Actor, "planner"),
        (Part::Proof, "dpop"),
    ] {
        let (part, value) = part;
        assert!(grant.identity.parts.contains(&(part, value.to_owned())), "{part:?}");
    }
    assert_eq!(
        decide(&mut engine, world, &request),
        "proof_replayed",
        "a proof counts once"
    );
}

#[test]
fn a_proof_is_for_the_method_and_uri_that_envoy_routes() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bound("shop.read");
    let authorization = format!("DPoP {token}");
    let mut ids = 0..;
    let mut ask = |method: &str, uri: &str| {
        let id = ids.next().map(|id: u32| id.to_string()).unwrap();
        let mut proof = Dpop::of(&token, method, uri);
        proof.id = &id;
        let proof = proof.signed();
        decide(
            &mut engine,
            world,
            &get("/read/shoes", &[("authorization", &authorization), ("dpop", &proof)]),
        )
    };
    for same in [
        AT,
        "HTTPS://PAYMENTS.example:443/read/shoes?x=1#y",
        "https://payments.example/%72ead/shoes",
    ] {
        assert_eq!(ask("GET", same), "allow", "{same}");
    }
    assert_eq!(ask("POST", AT), "proof_mismatch");
    assert_eq!(ask("get", AT), "proof_mismatch");
    for other in [
        "http://payments.example/read/shoes",
        "https://payments.example:8443/read/shoes",
        "https://evil.example/read/shoes",
        "https://payments.example/read/socks",
        "https://payments.example/read/shoes/",
        "https://payments.example/read/x/../shoes",
        "https://payments.example@evil.example/read/shoes",
        "/read/shoes",
    ] {
        assert_eq!(ask("GET", other), "proof_mismatch", "{other}");
    }
}

#[test]
fn configured_origins_replace_the_one_that_envoy_sees() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bound("shop.read");
    let authorization = format!("DPoP {token}");
    for (uri, expected) in [
        ("https://api.example/named", "allow"),
        ("http://localhost:8080/named", "allow"),
        ("https://payments.example/named", "proof_mismatch"),
        ("https://localhost:8080/named", "proof_mismatch"),
    ] {
        let mut proof = Dpop::of(&token, "GET", uri);
        proof.id = uri;
        let proof = proof.signed();
        let request = get("/named", &[("authorization", &authorization), ("dpop", &proof)]);
        assert_eq!(decide(&mut engine, world, &request), expected, "{uri}");
    }
}

#[test]
fn the_scheme_is_that_of_the_rule_s_binding() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let (bound, bearer) = (bound("shop.read"), bearer("shop.read"));
    let proof = Dpop::of(&bound, "GET", AT).signed();
    let proof_of_bearer = Dpop::of(&bearer, "GET", AT).signed();
    for (path, scheme, token, proof, expected) in [
        ("/read/shoes", "Bearer", &bound, &proof, "authorization_scheme"),
        ("/read/shoes", "Bearer", &bearer, &proof, "authorization_scheme"),
        ("/read/shoes", "DPoP", &bearer, &proof_of_bearer, "proof_mismatch"),
        ("/bearer/shoes", "DPoP", &bound, &proof, "authorization_scheme"),
        ("/bearer/shoes", "Bearer", &bound, &proof, "proof_missing"),
        ("/bearer/shoes", "bearer", &bearer, &proof, "allow"),
        ("/read/shoes", "Basic", &bound, &proof, "delegation_missing"),
        ("/own", "Bearer", &bearer, &proof, "delegation_missing"),
    ] {
        let authorization = format!("{scheme} {token}");
        let request = get(path, &[("authorization", &authorization), ("dpop", proof)]);
        assert_eq!(decide(&mut engine, world, &request), expected, "{path} {scheme}");
    }
    // Alone in the header of delegations, it would be a bearer of another rule.
    for token in [&bound, &bearer] {
        for path in ["/own", "/read/shoes", "/bearer/shoes"] {
            let request = get(path, &[("delegation", token)]);
            let reason = decide(&mut engine, world, &request);
            assert!(
                ["delegation_malformed", "proof_missing"].contains(&reason),
                "{path}: {reason}"
            );
        }
    }
}

#[test]
fn more_than_one_credential_or_proof_is_denied() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bound("shop.read");
    let authorization = format!("DPoP {token}");
    let proof = Dpop::of(&token, "GET", AT).signed();
    let delegation = delegation();
    let with = |more: &[(&'static str, &str)], world: &mut TestWorld, engine: &mut Engine| {
        let request: Vec<_> = get("/read/shoes", &[])
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        decide(engine, world, &request)
    };
    let mut ask = |more: &[(&'static str, &str)]| with(more, world, &mut engine);
    let token_and_proof = [("authorization", authorization.as_str()), ("dpop", proof.as_str())];
    assert_eq!(ask(&[]), "delegation_missing");
    assert_eq!(ask(&[("delegation", &delegation)]), "allow");
    let both = [token_and_proof[0], token_and_proof[1], ("delegation", &delegation)];
    assert_eq!(ask(&both), "credentials_ambiguous");
    let other = ("authorization", "Basic YTpi");
    assert_eq!(ask(&[("delegation", &delegation), other]), "credentials_ambiguous");
    assert_eq!(ask(&[token_and_proof[0], other]), "delegation_repeated");
    assert_eq!(ask(&token_and_proof[..1]), "proof_missing");
    let twice = [token_and_proof[0], token_and_proof[1], token_and_proof[1]];
    assert_eq!(ask(&twice), "proof_repeated");
    let joined = format!("{proof},{proof}");
    assert_eq!(ask(&[token_and_proof[0], ("dpop", &joined)]), "proof_repeated");
    let chain = format!("DPoP {token}~{token}");
    assert_eq!(
        ask(&[("authorization", &chain), token_and_proof[1]]),
        "delegation_malformed"
    );
    // A delegation is no access token, even with a proof of its holder.
    let holder = key_of(KeyType::P256, 7).public();
    let mut grant = grant("root", 2, TOOLS);
    grant.holder = holder;
    let delegation = root(grant);
    let proof = Dpop::of(&delegation, "GET", AT).signed();
    let authorization = format!("DPoP {delegation}");
    assert_eq!(
        ask(&[("authorization", &authorization), ("dpop", &proof)]),
        "delegation_malformed"
    );
}

/// An equal request with one header more is another request.
#[test]
fn a_cached_decision_is_for_the_same_headers() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bearer("shop.read");
    let authorization = format!("Bearer {token}");
    let delegation = delegation();
    for _ in 0..4 {
        let request = get("/read/shoes", &[("delegation", &delegation)]);
        assert_eq!(decide(&mut engine, world, &request), "allow");
        let request = get("/bearer/shoes", &[("authorization", &authorization)]);
        assert_eq!(decide(&mut engine, world, &request), "allow");
    }
    let both = [
        ("delegation", delegation.as_str()),
        ("authorization", authorization.as_str()),
    ];
    assert_eq!(
        decide(&mut engine, world, &get("/read/shoes", &both)),
        "credentials_ambiguous"
    );
    assert_eq!(
        decide(&mut engine, world, &get("/bearer/shoes", &both)),
        "credentials_ambiguous"
    );
    let elsewhere = get("/bearer/shoes", &[("delegation", &authorization)]);
    assert_eq!(decide(&mut engine, world, &elsewhere), "proof_missing");
}

#[test]
fn a_certificate_binds_a_token() {
    let world = &mut TestWorld {
        certificate: Some([9; 32]),
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    let bound_to = |certificate: [u8; 32]| {
        let digest = URL_SAFE_NO_PAD.encode(certificate);
        token_with("shop.read", &format!(r#","cnf":{{"x5t#S256":"{digest}"}}"#))
    };
    for (token, expected) in [
        (bound_to([9; 32]), "allow"),
        (bound_to([8; 32]), "certificate_mismatch"),
        (bearer("shop.read"), "certificate_mismatch"),
        (bound("shop.read"), "certificate_mismatch"),
    ] {
        let authorization = format!("Bearer {token}");
        let request = get("/mesh", &[("authorization", &authorization)]);
        assert_eq!(decide(&mut engine, world, &request), expected);
    }
    world.certificate = None;
    let authorization = format!("Bearer {}", bound_to([9; 32]));
    let request = get("/mesh", &[("authorization", &authorization)]);
    let denied = answer(&mut engine, world, &request);
    assert!(
        challenges(&denied)[0].starts_with(r#"Bearer error="invalid_token""#),
        "{denied:?}"
    );
}

#[test]
fn a_nonce_is_asked_for_and_handed_out() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let token = bound("shop.read");
    let authorization = format!("DPoP {token}");
    let at = "https://payments.example/once";
    let proof = Dpop::of(&token, "GET", at).signed();
    let denied = answer(
        &mut engine,
        world,
        &get("/once", &[("authorization", &authorization), ("dpop", &proof)]),
    );
    assert_eq!(denied.status, 401);
    assert!(
        challenges(&denied)[0].starts_with(r#"DPoP error="use_dpop_nonce""#),
        "{denied:?}"
    );
    let header = denied.headers.iter().find(|(name, _)| *name == "dpop-nonce");
    let (_, nonce) = header.unwrap();
    let mut proof = Dpop::of(&token, "GET", at);
    proof.nonce = Some(nonce);
    let proof = proof.signed();
    let request = get("/once", &[("authorization", &authorization), ("dpop", &proof)]);
    assert_eq!(decide(&mut engine, world, &request), "allow");
}

#[test]
fn a_challenge_says_what_is_needed_and_where_to_get_it() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let metadata = r#"resource_metadata="https://payments.example/.well-known/oauth-protected-resource""#;
    let missing = answer(&mut engine, world, &get("/read/shoes", &[]));
    assert_eq!(missing.status, 401);
    let algorithms = r#"algs="Ed25519 ES256""#;
    assert_eq!(
        challenges(&missing),
        [
            format!(r#"DPoP {algorithms}, scope="shop.read", {metadata}"#),
            r#"Delegation error="missing_token", error_description="The request carries no delegation.""#.to_owned()
        ]
    );
    let missing = answer(&mut engine, world, &get("/bearer/shoes", &[]));
    assert_eq!(
        challenges(&missing)[0],
        format!(r#"Bearer scope="shop.read", {metadata}"#)
    );
    let delegation = root(grant("root", 2, r#"{"other":{}}"#));
    let denied = answer(&mut engine, world, &get("/read/shoes", &[("delegation", &delegation)]));
    assert_eq!(
        challenges(&denied).len(),
        1,
        "a delegation needs no access token: {denied:?}"
    );
    assert!(challenges(&denied)[0].starts_with("Delegation "));

    let token = bound("shop.pay");
    let authorization = format!("DPoP {token}");
    let ask = |path: &str, id: &str, world: &mut TestWorld, engine: &mut Engine| {
        let uri = format!("https://payments.example{}", path.split('?').next().unwrap());
        let mut proof = Dpop::of(&token, "GET", &uri);
        proof.id = id;
        let proof = proof.signed();
        answer(
            engine,
            world,
            &get(path, &[("authorization", &authorization), ("dpop", &proof)]),
        )
    };
    let denied = ask("/read/shoes", "a", world, &mut engine);
    assert_eq!(denied.status, 403);
    assert_eq!(
        challenges(&denied),
        [format!(
            r#"DPoP error="insufficient_scope", error_description="The access token does not grant this tool.", {algorithms}, scope="shop.read", {metadata}"#
        )]
    );
    let denied = ask("/pay?amount=500", "b", world, &mut engine);
    assert!(
        challenges(&denied)[0].contains(r#"scope="shop.pay.all""#),
        "not the one it has: {denied:?}"
    );
    let body: serde_json::Value = serde_json::from_slice(&denied.body).unwrap();
    assert_eq!(
        body["needed"],
        serde_json::json!({"scope": "shop.pay.all", "authorization_details": [
            {"type": "payment"}, {"type": "attenuating_agent_token", "tools": {"pay": {}}}]})
    );
    let denied = ask("/pay?amount=many", "c", world, &mut engine);
    assert_eq!(
        (denied.status, challenges(&denied).len()),
        (403, 0),
        "no scope helps: {denied:?}"
    );
}

#[test]
fn an_invalid_token_and_an_invalid_proof_have_errors_of_their_own() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let (token, early) = (bound("shop.read"), token_with("shop.read", r#","nbf":99999999999"#));
    let other_key = jws(&key(9), r#"{"alg":"Ed25519","typ":"at+jwt"}"#, "{}");
    let proof = Dpop::of(&token, "GET", AT).signed();
    let mut late = Dpop::of(&token, "GET", AT);
    late.issued_at = NOW - 100;
    for (token, proof, error) in [
        (&early, &proof, "invalid_token"),
        (&other_key, &proof, "invalid_token"),
        (&token, &late.signed(), "invalid_dpop_proof"),
        (&token, &"x".to_owned(), "invalid_dpop_proof"),
        (&token, &Dpop::of("other", "GET", AT).signed(), "invalid_dpop_proof"),
    ] {
        let authorization = format!("DPoP {token}");
        let request = get("/read/shoes", &[("authorization", &authorization), ("dpop", proof)]);
        let denied = answer(&mut engine, world, &request);
        assert_eq!(denied.status, 401);
        let expected = format!(r#"DPoP error="{error}""#);
        assert!(challenges(&denied)[0].starts_with(&expected), "{error}: {denied:?}");
    }
}

#[test]
fn metadata_is_served_at_the_resource_s_own_host() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let path = "/.well-known/oauth-protected-resource";
    let mut ask = |method: &'static str, authority: &'static str, path: &'static str| {
        let serialized = serialize(&[(":method", method), (":authority", authority), (":path", path)]);
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&request, world));
        match &verdict.decision {
            Decision::Allow(Allowance::ResourceMetadata(document)) => Ok(Answer::with_metadata(document, &request)),
            _ => Err(code(&verdict)),
        }
    };
    let found = ask("GET", "payments.example", path).unwrap();
    assert_eq!(found.status, 200);
    let document: serde_json::Value = serde_json::from_slice(&found.body).unwrap();
    assert_eq!(
        document,
        serde_json::json!({
            "resource": AUDIENCE,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["shop.read", "shop.pay", "shop.pay.all"],
            "bearer_methods_supported": ["header"],
            "authorization_details_types_supported": ["attenuating_agent_token", "payment"],
            "dpop_signing_alg_values_supported": ["Ed25519", "ES256"],
            "dpop_bound_access_tokens_required": false,
            "tls_client_certificate_bound_access_tokens": true,
        })
    );
    assert!(ask("HEAD", "Payments.Example:443", path).is_ok());
    assert_eq!(
        ask("OPTIONS", "payments.example", path).map(|answer| answer.status),
        Ok(204)
    );
    assert_eq!(ask("POST", "payments.example", path), Err("no_route"));
    assert_eq!(ask("GET", "evil.example", path), Err("no_route"));
    assert_eq!(ask("GET", "payments.example:8443", path), Err("no_route"));
    assert_eq!(
        ask("GET", "payments.example", "/.well-known/oauth-protected-resource/x"),
        Err("no_route")
    );
}

#[test]
fn the_service_never_receives_a_proof_and_a_token_only_if_configured() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let (bound, bearer) = (bound("shop.read"), bearer("shop.read"));
    let (dpop, plain) = (format!("DPoP {bound}"), format!("Bearer {bearer}"));
    let proof = Dpop::of(&bound, "GET", AT).signed();
    for (path, authorization, removed) in [
        ("/read/shoes", &dpop, &["dpop", "authorization"][..]),
        ("/bearer/shoes", &plain, &["dpop"]),
    ] {
        let serialized = serialize(&get(path, &[("authorization", authorization), ("dpop", &proof)]));
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let policy = Rc::clone(&engine.policy);
        let verdict = decided(engine.decide(&request, world));
        let mut names = Vec::new();
        crate::changes::make(&policy, &verdict, &request, |change| {
            if let crate::changes::Change::Remove(name) = change {
                names.push(std::str::from_utf8(name).unwrap().to_owned());
            }
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(names, removed, "{path}");
    }
}
