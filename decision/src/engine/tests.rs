//! Every outcome of a request, in the order of the engine's checks.

use std::time::Duration;

use credence_delegation::mint::{self, RootGrant};
use credence_delegation::revocation::{DelegationPath, PrincipalState, RevocationView};
use credence_delegation::{IssuerKeys, Thumbprint, UnixTime};

use super::*;
use crate::clock::UnixNanos;
use crate::identity_headers::Part;
use crate::request::HeaderNames;
use crate::samples::{self, AUDIENCE, ISSUER, NOW, Store, derived, grant, key, proof, root};
use crate::shared_store::{StoreFailure, Version};
use crate::usage_sketch::UserKey;

/// A world in which all checks pass, unless a test changes it.
struct TestWorld {
    now: i64,
    freshness: Freshness,
    revision: Option<u64>,
    log: Log,
    certificate: Option<[u8; 32]>,
    uri: Option<&'static str>,
    cluster: Option<&'static str>,
    can_record: bool,
    cache_keys: Option<SealKeys>,
    session_keys: Option<SealKeys>,
    store: Store,
}

#[derive(Default)]
struct Log {
    epoch: u64,
    delegation: Option<&'static str>,
    /// The ids from the root down to the revoked token.
    path: &'static [&'static str],
    issuer_floor: Option<UnixTime>,
    log_floor: Option<UnixTime>,
    key: Option<Thumbprint>,
    /// The keys of every issuer whose keys are fetched.
    issuer_keys: Option<IssuerKeys>,
    disabled_at: Option<&'static str>,
}

impl RevocationView for Log {
    fn principal(&self, issuer: &str, _: Option<&str>) -> PrincipalState {
        PrincipalState {
            epoch: self.epoch,
            disabled: self.disabled_at == Some(issuer),
            raised_at: None,
        }
    }
    fn issuer_keys(&self, _: &str) -> Option<&IssuerKeys> {
        self.issuer_keys.as_ref()
    }
    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        self.key == Some(*key)
    }
    fn issuer_floor(&self, _: &str) -> Option<UnixTime> {
        self.issuer_floor
    }
    fn log_floor(&self) -> Option<UnixTime> {
        self.log_floor
    }
    fn is_delegation_revoked(&self, _: &str, _: Option<&str>, token: DelegationPath<'_>) -> bool {
        self.delegation == Some(token.id) || self.path == [token.under, &[token.id]].concat()
    }
}

impl Default for TestWorld {
    fn default() -> Self {
        Self {
            now: NOW,
            freshness: Freshness::Fresh,
            revision: Some(1),
            log: Log::default(),
            certificate: None,
            uri: None,
            cluster: None,
            can_record: true,
            cache_keys: None,
            session_keys: None,
            store: Store::default(),
        }
    }
}

impl World for TestWorld {
    fn now(&self) -> UnixNanos {
        UnixNanos(u64::try_from(self.now).unwrap() * 1_000_000_000)
    }
    fn freshness(&self) -> Freshness {
        self.freshness
    }
    fn revocations(&self) -> Option<(&impl RevocationView, u64)> {
        self.revision.map(|revision| (&self.log, revision))
    }
    fn keys_revision(&self) -> Option<u64> {
        self.revision
    }
    fn session_keys(&self) -> Option<&SealKeys> {
        self.session_keys.as_ref()
    }
    fn cache_keys(&self) -> Option<&SealKeys> {
        self.cache_keys.as_ref()
    }
    fn client_certificate(&self) -> Option<[u8; 32]> {
        self.certificate
    }
    fn client_uri(&self) -> Option<Vec<u8>> {
        self.uri.map(Into::into)
    }
    fn cluster(&self) -> Option<Vec<u8>> {
        self.cluster.map(Into::into)
    }
    fn can_record(&self, _: Option<UserKey>) -> bool {
        self.can_record
    }
}

impl SharedStore for TestWorld {
    fn read(&mut self, key: &str) -> Result<Option<(Vec<u8>, Version)>, StoreFailure> {
        self.store.read(key)
    }
    fn write(&mut self, key: &str, value: &[u8], expected: Option<Version>) -> Result<bool, StoreFailure> {
        self.store.write(key, value, expected)
    }
}

fn engine(world: &mut TestWorld) -> Engine {
    let anchor = format!(
        r#""trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}}]"#,
        key(1).public().to_jwk()
    );
    engine_that_trusts(&anchor, world)
}

/// An engine whose configuration has these trust anchors.
fn engine_that_trusts(trust: &str, world: &mut TestWorld) -> Engine {
    let configuration = format!(
        r#"{{
            "audience": ["{AUDIENCE}"],
            {trust},
            "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
            "rules": [
                {{"name": "charge", "match": {{"methods": ["POST"], "path": "/accounts/{{account}}/charges"}},
                  "tool": "pay", "args": {{"account": {{"path": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
                {{"name": "catalog", "match": {{"methods": ["GET"], "path": "/catalog/{{item}}"}}, "tool": "read",
                  "args": {{"item": {{"path": "item"}}}}, "proof": "none"}},
                {{"name": "charge-v2", "match": {{"methods": ["POST"], "path": "/v2/accounts/{{account}}/charges"}},
                  "audience": ["{AUDIENCE}", "https://pay.internal"],
                  "tool": "pay", "args": {{"account": {{"path": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
                {{"name": "upload", "match": {{"path": "/uploads/{{item}}"}}, "tool": "read",
                  "args": {{"item": {{"path": "item"}}}}, "proof": "none", "ignore_body": true}},
                {{"name": "order", "match": {{"path": "/orders/{{account}}"}}, "tool": "order", "proof": "none",
                  "args": {{"account": {{"path": "account"}}, "amount": {{"body": "/amount", "type": "number"}},
                            "items": {{"body": "/items", "type": "json", "optional": true}}}},
                  "ignore_members": ["/note"]}},
                {{"name": "transfer", "match": {{"path": "/transfers"}}, "tool": "pay",
                  "args": {{"account": {{"body": "/account"}}, "amount": {{"body": "/amount", "type": "number"}}}}}},
                {{"name": "once", "match": {{"path": "/once/accounts/{{account}}/charges"}}, "nonce": true,
                  "tool": "pay", "args": {{"account": {{"path": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
                {{"name": "lenient", "match": {{"path": "/lenient/{{item}}"}}, "tool": "read", "proof": "none",
                  "args": {{"item": {{"path": "item"}}}}, "on_stale": {{"allow_cached_for": "1m"}}}},
                {{"name": "shadow", "match": {{"path": "/shadow/accounts/{{account}}/charges"}}, "mode": "shadow",
                  "tool": "pay", "args": {{"account": {{"path": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
                {{"name": "mesh", "match": {{"path": "/mesh"}}, "tool": "read", "proof": "mtls"}},
                {{"name": "validated", "match": {{"path": "/validated"}}, "tool": "read", "proof": "mtls",
                  "peer_validated": true}},
                {{"name": "health", "match": {{"path": "/healthz"}}, "public": true}}
            ]
        }}"#
    );
    let policy = Policy::parse(configuration.as_bytes()).unwrap();
    let replay = ReplayMemory::join(world, [5; 16], UnixTime(NOW - 1000), 5).unwrap();
    Engine::new(policy.into(), [6; 16], replay)
}

/// The result of a request: `allow`, or the reason's code.
fn decide(engine: &mut Engine, world: &mut TestWorld, request: &[(&str, &str)]) -> &'static str {
    let serialized = serialize(request);
    let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    match engine.decide(&request, world) {
        Outcome::Decided(verdict) => code(&verdict),
        Outcome::NeedsBody(_) => "body",
    }
}

fn code(verdict: &Verdict<'_>) -> &'static str {
    match &verdict.decision {
        Decision::Allow(_) => "allow",
        Decision::Deny(denial) => denial.reason.code(),
    }
}

/// The verdict on a request whose headers are sufficient.
fn decided(outcome: Outcome<'_>) -> Verdict<'_> {
    match outcome {
        Outcome::Decided(verdict) => verdict,
        Outcome::NeedsBody(held) => panic!("{held:?}"),
    }
}

fn serialize(headers: &[(&str, &str)]) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).unwrap().to_le_bytes();
    let mut bytes = u32::try_from(headers.len()).unwrap().to_le_bytes().to_vec();
    for (name, value) in headers {
        bytes.extend(length(name));
        bytes.extend(length(value));
    }
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

const TOOLS: &str = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100}},
    "read":{"item":{"constraint_type":"wildcard","optional":true}},
    "order":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100},
             "items":{"constraint_type":"subset","allowed":["shoes","socks"],"optional":true}}}"#;

fn delegation() -> String {
    root(grant("root", 2, TOOLS))
}

fn read(delegation: &str) -> Vec<(&'static str, &str)> {
    vec![
        (":method", "GET"),
        (":authority", "payments.example"),
        (":path", "/catalog/shoes"),
        ("delegation", delegation),
    ]
}

fn pay<'a>(delegation: &'a str, proof: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/accounts/a1/charges?amount=50"),
        ("delegation", delegation),
        ("delegation-proof", proof),
    ]
}

const PAID: &str = r#"{"account":"a1","amount":50}"#;

#[test]
fn a_delegated_request_is_allowed_and_its_identity_established() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let serialized = serialize(&read(&delegation));
    let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    let verdict = decided(engine.decide(&request, world));
    let Decision::Allow(Allowance::Delegated(grant)) = verdict.decision else {
        panic!("{verdict:?}")
    };
    assert!(grant.identity.parts.contains(&(Part::Subject, "ada".to_owned())));
    assert_eq!(verdict.rule.map(|rule| rule.name.as_str()), Some("catalog"));
    assert_eq!(verdict.findings.arguments.as_deref(), Some(r#"{"item":"shoes"}"#));
    assert_eq!(
        (verdict.findings.agent, verdict.findings.lookup),
        (Some(Agent::Bearer), Some(Lookup::Miss))
    );
    assert!(
        decided(engine.decide(&request, world)).findings.lookup == Some(Lookup::Hit),
        "the second time it is known"
    );
}

#[test]
fn an_unmatched_request_is_denied_and_a_public_one_needs_no_delegation() {
    let world = &mut TestWorld {
        freshness: Freshness::NeverSynced,
        revision: None,
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    let mut ask = |path, extra: &[(&'static str, &'static str)]| {
        let mut request = vec![(":method", "GET"), (":authority", "payments.example"), (":path", path)];
        request.extend(extra);
        decide(&mut engine, world, &request)
    };
    assert_eq!(ask("/healthz", &[]), "allow");
    assert_eq!(ask("/elsewhere", &[]), "no_route");
    assert_eq!(ask("/healthz", &[("upgrade", "websocket")]), "upgrade_denied");
    assert_eq!(ask("/elsewhere", &[(":protocol", "websocket")]), "upgrade_denied");
    assert_eq!(ask("/x/../healthz", &[]), "path_ambiguous");
}

/// Any client that has seen a proof can present it with arguments that its signer never requested.
#[test]
fn an_agent_is_named_only_for_the_invocation_of_its_proof() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let agent = Some(Agent::Key(key(2).public().thumbprint()));
    let signed_for = |arguments: &str| proof(&delegation, 2, "p", "pay", arguments, NOW);
    for (signed, asked, reason, named) in [
        (PAID, "50", "allow", agent),
        (PAID, "51", "proof_mismatch", None),
        (PAID, "5000", "argument_not_allowed", None),
        (PAID, "many", "argument_malformed", None),
        (
            r#"{"account":"a1","amount":5000}"#,
            "5000",
            "argument_not_allowed",
            agent,
        ),
    ] {
        let proof = signed_for(signed);
        let path = format!("/accounts/a1/charges?amount={asked}");
        let mut request = pay(&delegation, &proof);
        request[2].1 = &path;
        let serialized = serialize(&request);
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&request, world));
        assert_eq!(
            (code(&verdict), verdict.findings.agent),
            (reason, named),
            "{signed} as {asked}"
        );
    }
}

/// `limits.hot_keys: 0`: the same answers, from ed25519-dalek alone.
#[test]
fn answers_are_the_same_without_tables_of_keys() {
    let trust = |limits: &str| {
        let jwk = key(1).public().to_jwk();
        format!(r#"{limits} "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {jwk}, "asserts_subjects": true}}]"#)
    };
    let (with_world, without_world) = (&mut TestWorld::default(), &mut TestWorld::default());
    let mut with = engine_that_trusts(&trust(""), with_world);
    let mut without = engine_that_trusts(&trust(r#""limits": {"hot_keys": 0},"#), without_world);
    let delegation = delegation();
    for number in 0..30 {
        let mut proof = proof(&delegation, 2, &format!("p{number}"), "pay", PAID, NOW);
        let is_forged = number % 3 == 2;
        if is_forged {
            let signature = proof.rfind('.').unwrap() + 1;
            let other = if proof[signature..].starts_with('A') { "B" } else { "A" };
            proof.replace_range(signature..=signature, other);
        }
        let request = pay(&delegation, &proof);
        let answer = decide(&mut with, with_world, &request);
        assert_eq!(answer, if is_forged { "proof_signature_invalid" } else { "allow" });
        assert_eq!(decide(&mut without, without_world, &request), answer);
        with.on_tick();
        without.on_tick();
    }
    assert!(!with.memories.hot_keys.is_empty());
    assert!(without.memories.hot_keys.is_empty());
}

#[test]
fn a_missing_or_repeated_credential_is_reported_before_any_verification() {
    let world = &mut TestWorld {
        freshness: Freshness::NeverSynced,
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    let delegation = delegation();
    let line = [
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/accounts/a1/charges"),
    ];
    for (headers, reason) in [
        (vec![], "delegation_missing"),
        (vec![("delegation", "a"), ("delegation", "a")], "delegation_repeated"),
        (vec![("delegation", "a,b")], "delegation_repeated"),
        (vec![("delegation", delegation.as_str())], "proof_missing"),
        (
            vec![
                ("delegation", delegation.as_str()),
                ("delegation-proof", "a"),
                ("delegation-proof", "a"),
            ],
            "proof_repeated",
        ),
        (
            vec![("delegation", delegation.as_str()), ("delegation-proof", "a")],
            "proof_malformed",
        ),
    ] {
        let request: Vec<_> = line.iter().copied().chain(headers).collect();
        assert_eq!(decide(&mut engine, world, &request), reason);
    }
}

#[test]
fn without_a_fresh_view_requests_are_denied_cached_or_not() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "allow");
    world.freshness = Freshness::Stale {
        age: std::time::Duration::from_secs(6),
    };
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "stale");
    world.freshness = Freshness::NeverSynced;
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "not_ready");
    (world.freshness, world.revision) = (Freshness::Fresh, None);
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "not_ready");
}

#[test]
fn a_revocation_applies_to_the_next_request() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "allow");
    world.log.epoch = 9;
    world.revision = Some(2);
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "revoked_principal");
    assert_eq!(
        decide(&mut engine, world, &read(&delegation)),
        "revoked_principal",
        "and on the one after"
    );
}

#[test]
fn a_revoked_delegation_leaves_its_sibling_alone() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let root = delegation();
    let chain = |id| {
        format!(
            "{root}~{}",
            derived(
                &root,
                2,
                &grant(
                    id,
                    3,
                    r#"{"read":{"item":{"constraint_type":"wildcard","optional":true}}}"#
                )
            )
        )
    };
    let (one, sibling) = (chain("one"), chain("sibling"));
    assert_eq!(decide(&mut engine, world, &read(&one)), "allow");
    (world.log.delegation, world.revision) = (Some("one"), Some(2));
    assert_eq!(decide(&mut engine, world, &read(&one)), "revoked_delegation");
    assert_eq!(decide(&mut engine, world, &read(&sibling)), "allow");
}

#[test]
fn a_delegation_that_reuses_the_id_of_another_is_revoked_alone() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let (one, two) = (root(grant("one", 2, TOOLS)), root(grant("two", 2, TOOLS)));
    let impostor = format!("{one}~{}", derived(&one, 2, &grant("two", 3, TOOLS)));
    for chain in [&impostor, &two] {
        assert_eq!(decide(&mut engine, world, &read(chain)), "allow");
    }
    (world.log.path, world.revision) = (&["one", "two"], Some(2));
    assert_eq!(decide(&mut engine, world, &read(&impostor)), "revoked_delegation");
    assert_eq!(decide(&mut engine, world, &read(&two)), "allow");
}

#[test]
fn an_issuer_revocation_includes_roots_issued_within_the_allowed_skew_after_it() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    // Its root was issued at NOW - 60.
    let delegation = delegation();
    for (revision, floor, expected) in [
        (2, NOW - 60 - 31, "allow"),
        (3, NOW - 60 - 30, "revoked_issuer"),
        (4, NOW - 60, "revoked_issuer"),
    ] {
        let floor = Some(UnixTime(floor));
        for (of_issuer, of_log) in [(floor, None), (None, floor)] {
            (world.log.issuer_floor, world.log.log_floor) = (of_issuer, of_log);
            world.revision = world.revision.map(|before| before + revision);
            assert_eq!(decide(&mut engine, world, &read(&delegation)), expected, "{floor:?}");
        }
    }
}

#[test]
fn a_cached_chain_expires_on_time() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    world.now = NOW + 3599;
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "allow");
    world.now = NOW + 3600;
    assert_eq!(decide(&mut engine, world, &read(&delegation)), "expired");
}

#[test]
fn the_chain_must_have_our_audience_and_grant_the_tool() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let mut elsewhere = grant("root", 2, TOOLS);
    elsewhere.audience = vec!["https://other.example".into()];
    assert_eq!(decide(&mut engine, world, &read(&root(elsewhere))), "audience_mismatch");
    let other_tool = root(grant("root", 2, r#"{"write":{}}"#));
    assert_eq!(decide(&mut engine, world, &read(&other_tool)), "tool_not_granted");
}

#[test]
fn arguments_come_from_the_request_and_are_checked_against_the_grant() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    for (path, arguments, reason) in [
        ("/accounts/a1/charges?amount=50", PAID, "allow"),
        (
            "/accounts/a2/charges?amount=50",
            r#"{"account":"a2","amount":50}"#,
            "argument_not_allowed",
        ),
        (
            "/accounts/a1/charges?amount=101",
            r#"{"account":"a1","amount":101}"#,
            "argument_not_allowed",
        ),
        ("/accounts/a1/charges", PAID, "argument_missing"),
        ("/accounts/a1/charges?amount=050", PAID, "argument_malformed"),
        ("/accounts/a1/charges?amount=50&amount=50", PAID, "argument_repeated"),
        ("/accounts/a1/charges?amount=50&admin=1", PAID, "argument_unknown"),
        ("/accounts/a1/charges?amount=51", PAID, "proof_mismatch"),
    ] {
        let proof = proof(&delegation, 2, path, "pay", arguments, NOW);
        let mut request = pay(&delegation, &proof);
        request[2] = (":path", path);
        assert_eq!(decide(&mut engine, world, &request), reason, "{path}");
    }
}

#[test]
fn a_proof_is_the_leaf_holders_recent_and_counts_once() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let ask = |engine: &mut Engine, world: &mut TestWorld, proof: &str| decide(engine, world, &pay(&delegation, proof));
    let good = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    assert_eq!(ask(&mut engine, world, &good), "allow");
    assert_eq!(ask(&mut engine, world, &good), "proof_replayed");
    for (iat, reason) in [
        (NOW - 31, "proof_outside_window"),
        (NOW + 6, "proof_outside_window"),
        (NOW + 5, "allow"),
    ] {
        let proof = proof(&delegation, 2, &iat.to_string(), "pay", PAID, iat);
        assert_eq!(ask(&mut engine, world, &proof), reason, "{iat}");
    }
    let other_tool = proof(&delegation, 2, "p2", "read", PAID, NOW);
    assert_eq!(ask(&mut engine, world, &other_tool), "proof_mismatch");
}

#[test]
fn a_proof_counts_once_across_all_rules() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let proof = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    assert_eq!(decide(&mut engine, world, &pay(&delegation, &proof)), "allow");
    let mut other_rule = pay(&delegation, &proof);
    other_rule[2] = (":path", "/v2/accounts/a1/charges?amount=50");
    assert_eq!(decide(&mut engine, world, &other_rule), "proof_replayed");
}

#[test]
fn a_body_that_no_rule_maps_is_denied() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let serialized = serialize(&read(&delegation));
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    let verdict = decided(engine.decide(&request, world));
    assert!(matches!(verdict.decision, Decision::Deny(denial) if denial.reason == Reason::BodyUnmapped));
    let mut uploads = read(&delegation);
    uploads[2] = (":path", "/uploads/shoes");
    let serialized = serialize(&uploads);
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    assert!(
        matches!(decided(engine.decide(&request, world)).decision, Decision::Allow(_)),
        "unless it is to be ignored"
    );
}

#[test]
fn a_denied_request_uses_no_proof_up() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let proof = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    let mut wrong = pay(&delegation, &proof);
    wrong[2] = (":path", "/accounts/a1/charges?amount=7");
    assert_eq!(decide(&mut engine, world, &wrong), "proof_mismatch");
    assert_eq!(decide(&mut engine, world, &pay(&delegation, &proof)), "allow");
}

#[test]
fn only_the_leafs_holder_can_prove() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let root = delegation();
    let tools = r#"{"pay":{"account":{"constraint_type":"exact","value":"a1"},"amount":{"constraint_type":"range","max":100}}}"#;
    let leaf = derived(&root, 2, &grant("leaf", 3, tools));
    let chain = format!("{root}~{leaf}");
    let own = proof(&leaf, 3, "p1", "pay", PAID, NOW);
    assert_eq!(decide(&mut engine, world, &pay(&chain, &own)), "allow");
    let parents = proof(&root, 2, "p2", "pay", PAID, NOW);
    assert_eq!(
        decide(&mut engine, world, &pay(&chain, &parents)),
        "proof_signature_invalid"
    );
}

#[test]
fn mutual_tls_binds_to_the_certificate_that_the_leaf_names() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let mut bound = grant("root", 2, r#"{"read":{}}"#);
    bound.holder_certificate = Some([7; 32]);
    let (bound, unbound) = (root(bound), root(grant("other", 2, r#"{"read":{}}"#)));
    let request = |delegation| {
        vec![
            (":method", "GET"),
            (":authority", "a"),
            (":path", "/mesh"),
            ("delegation", delegation),
        ]
    };
    assert_eq!(decide(&mut engine, world, &request(&bound)), "certificate_missing");
    world.certificate = Some([8; 32]);
    assert_eq!(decide(&mut engine, world, &request(&bound)), "certificate_mismatch");
    world.certificate = Some([7; 32]);
    assert_eq!(decide(&mut engine, world, &request(&bound)), "allow");
    assert_eq!(decide(&mut engine, world, &request(&unbound)), "certificate_mismatch");
}

#[test]
fn a_spiffe_id_counts_where_envoy_validates_certificates() {
    const ID: &str = "spiffe://mesh.example/agent";
    let world = &mut TestWorld {
        certificate: Some([7; 32]),
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    let named = |jti: &str, certificate: Option<[u8; 32]>| {
        let mut grant = grant(jti, 2, r#"{"read":{}}"#);
        grant.holder_certificate = certificate;
        grant.holder_spiffe_id = Some(ID.into());
        root(grant)
    };
    let (by_id, by_both, by_another) = (
        named("id", None),
        named("both", Some([7; 32])),
        named("another", Some([8; 32])),
    );
    let mut ask = |world: &mut TestWorld, path, delegation: &str| {
        let request = [
            (":method", "GET"),
            (":authority", "a"),
            (":path", path),
            ("delegation", delegation),
        ];
        decide(&mut engine, world, &request)
    };
    let wrong = "certificate_mismatch";
    for (uri, answer) in [
        (Some(ID), "allow"),
        (Some("spiffe://mesh.example/other"), wrong),
        (Some("spiffe://mesh.example/agent,spiffe://mesh.example/other"), wrong),
        (Some(""), wrong),
        (None, wrong),
    ] {
        world.uri = uri;
        assert_eq!(ask(world, "/validated", &by_id), answer, "{uri:?}");
        assert_eq!(ask(world, "/validated", &by_both), answer, "{uri:?}");
        // Without validation the digest decides, and the ID can only contradict it.
        assert_eq!(ask(world, "/mesh", &by_both), answer, "{uri:?}");
        assert_eq!(ask(world, "/mesh", &by_id), wrong, "{uri:?}");
        for path in ["/mesh", "/validated"] {
            assert_eq!(ask(world, path, &by_another), wrong, "{uri:?}");
        }
    }
    (world.uri, world.certificate) = (Some(ID), None);
    assert_eq!(ask(world, "/validated", &by_id), "certificate_missing");
}

#[test]
fn only_requests_that_waiting_can_help_wait_for_the_first_snapshot() {
    let world = &mut TestWorld {
        freshness: Freshness::NeverSynced,
        revision: None,
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    let delegation = delegation();
    let mut waits = |world: &mut TestWorld, headers: &[(&str, &str)], has_body| {
        let serialized = serialize(headers);
        let request = Request::parse(&serialized, &HeaderNames::default(), has_body).unwrap();
        match engine.decide(&request, world) {
            Outcome::Decided(verdict) => Engine::is_unready(&verdict, has_body),
            Outcome::NeedsBody(_) => panic!("there are no revocations yet"),
        }
    };
    let to = |path| {
        [
            (":method", "GET"),
            (":authority", "a"),
            (":path", path),
            ("delegation", delegation.as_str()),
        ]
    };
    assert!(waits(world, &to("/catalog/book"), false));
    assert!(waits(world, &to("/uploads/book"), true), "no rule reads the body");
    assert!(waits(world, &to("/orders/a1"), false), "there is no body");
    assert!(!waits(world, &to("/orders/a1"), true), "the body is to be read");
    assert!(
        !waits(world, &to("/shadow/accounts/a1/charges"), false),
        "nothing may be delayed"
    );
    assert!(!waits(world, &to("/healthz"), false));
    assert!(!waits(world, &to("/nowhere"), false));
    assert!(!waits(world, &to("/catalog/book")[..3], false), "nothing is delegated");
    (world.freshness, world.revision) = (Freshness::Fresh, Some(1));
    assert!(!waits(world, &to("/catalog/book"), false));
}

#[test]
fn a_request_that_cannot_be_recorded_is_denied() {
    let world = &mut TestWorld {
        can_record: false,
        ..TestWorld::default()
    };
    let mut engine = engine(world);
    assert_eq!(decide(&mut engine, world, &read(&delegation())), "audit_full");
}

#[test]
fn a_name_too_long_for_the_record_is_denied() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let root = RootGrant {
        grant: grant("root", 2, TOOLS),
        issuer: ISSUER.into(),
        subject: Some("x".repeat(257)),
        epoch: Some(0),
        agent_name: None,
    };
    let long = mint::root(&root, &key(1), &Default::default()).unwrap();
    assert_eq!(decide(&mut engine, world, &read(&long)), "delegation_too_large");
}

#[test]
fn an_id_too_long_for_the_record_is_denied() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let long = root(grant(&"x".repeat(257), 2, TOOLS));
    // It is verified first, and only once.
    for lookup in [Lookup::Miss, Lookup::Refused] {
        assert_eq!(
            looked_up(&mut engine, world, &long),
            (Some(lookup), "delegation_too_large")
        );
    }
}

#[test]
fn failed_requests_are_not_cached() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let good = samples::root(grant("root", 2, TOOLS));
    let (input, signature) = good.rsplit_once('.').unwrap();
    let forged = format!("{input}.{}", signature.chars().rev().collect::<String>());
    for _ in 0..2 {
        assert_ne!(decide(&mut engine, world, &read(&forged)), "allow");
        assert!(engine.cache().is_empty());
    }
}

/// Keys of other kinds, of several devices, and several keys of one issuer.
mod keys {
    use credence_delegation::{KeyType, PublicKey, SigningKey};

    use super::*;
    use crate::samples::{key_of, proof_by, root_by};

    /// A root for the agent (key 2) in the issuer's name, signed by this key and with this id.
    fn root_of(id: &str, by: &SigningKey) -> String {
        root_by(by, ISSUER, grant(id, 2, TOOLS))
    }

    /// A trust anchor for the issuer with these members.
    fn anchor(members: &str) -> String {
        format!(r#"{{"issuer": "{ISSUER}", "asserts_subjects": true, {members}}}"#)
    }

    fn anchors(anchors: &[String]) -> String {
        format!(r#""trust_anchors": [{}]"#, anchors.join(","))
    }

    fn named(key: &PublicKey, id: &str) -> String {
        key.to_jwk().replacen('{', &format!(r#"{{"kid": "{id}","#), 1)
    }

    #[test]
    fn every_kind_of_key_can_issue_hold_and_prove_where_it_is_allowed() {
        for kind in KeyType::ALL {
            let [issuer, holder] = [1, 2].map(|number| key_of(kind, number));
            let jwk = issuer.public().to_jwk();
            let algorithm = kind.algorithm();
            let trust = format!(
                r#"{}, "holder_algorithms": ["{algorithm}"]"#,
                anchors(&[anchor(&format!(r#""jwk": {jwk}, "algorithms": ["{algorithm}"]"#))])
            );
            let world = &mut TestWorld::default();
            let mut engine = engine_that_trusts(&trust, world);
            let mut held = grant("root", 2, TOOLS);
            held.holder = holder.public();
            let root = root_by(&issuer, ISSUER, held);
            let proof = proof_by(&holder, &root, "p1", "pay", PAID, NOW);
            assert_eq!(decide(&mut engine, world, &pay(&root, &proof)), "allow", "{kind}");
            let mut handed_on = grant("leaf", 3, TOOLS);
            handed_on.holder = key_of(kind, 3).public();
            let leaf = mint::derive(&root, &handed_on, &holder, &Default::default()).unwrap();
            let chain = format!("{root}~{leaf}");
            let proof = proof_by(&key_of(kind, 3), &leaf, "p2", "pay", PAID, NOW);
            assert_eq!(decide(&mut engine, world, &pay(&chain, &proof)), "allow", "{kind}");
        }
    }

    #[test]
    fn a_kind_of_key_that_is_not_allowed_for_holders_is_refused() {
        let world = &mut TestWorld::default();
        let mut engine = engine(world);
        let phone = key_of(KeyType::P256, 2);
        let mut held = grant("root", 2, TOOLS);
        held.holder = phone.public();
        let root = root(held);
        let proof = proof_by(&phone, &root, "p1", "pay", PAID, NOW);
        assert_eq!(
            decide(&mut engine, world, &pay(&root, &proof)),
            "proof_algorithm_not_allowed"
        );
        let leaf = mint::derive(&root, &grant("leaf", 3, TOOLS), &phone, &Default::default()).unwrap();
        assert_eq!(
            decide(&mut engine, world, &read(&format!("{root}~{leaf}"))),
            "algorithm_not_allowed"
        );
    }

    #[test]
    fn a_root_may_only_be_signed_as_its_issuer_s_anchor_says() {
        let world = &mut TestWorld::default();
        let mut engine = engine(world);
        let forged = root_of("root", &key_of(KeyType::P256, 1));
        assert_eq!(decide(&mut engine, world, &read(&forged)), "algorithm_not_allowed");
    }

    #[test]
    fn a_did_key_issuer_is_trusted_only_for_its_own_signatures() {
        let device = key_of(KeyType::P256, 7);
        let did = device.public().to_did_key();
        let trust = format!(r#""trust_anchors": [{{"issuer": "{did}", "algorithms": ["ES256"]}}]"#);
        let world = &mut TestWorld::default();
        let mut engine = engine_that_trusts(&trust, world);
        let own = root_by(&device, &did, grant("own", 2, TOOLS));
        assert_eq!(decide(&mut engine, world, &read(&own)), "allow");
        let forged = root_by(&key_of(KeyType::P256, 8), &did, grant("forged", 2, TOOLS));
        assert_eq!(decide(&mut engine, world, &read(&forged)), "signature_invalid");
        // A did:key is an issuer only if it is listed.
        let other = key_of(KeyType::P256, 8);
        let unlisted = root_by(&other, &other.public().to_did_key(), grant("unlisted", 2, TOOLS));
        assert_eq!(decide(&mut engine, world, &read(&unlisted)), "issuer_unknown");
    }

    /// Two devices of the same principal, each with its own key, in every form of configuration.
    fn two_devices() -> [(SigningKey, String); 2] {
        [(KeyType::Ed25519, 11), (KeyType::P256, 12)].map(|(kind, number)| {
            let device = key_of(kind, number);
            let root = root_of(&format!("from-{kind}"), &device);
            (device, root)
        })
    }

    #[test]
    fn an_issuer_may_have_several_keys_in_one_set_or_in_several_entries() {
        let [(one, by_one), (two, by_two)] = two_devices();
        let (one, two) = (one.public(), two.public());
        let algorithms = r#""algorithms": ["Ed25519", "ES256"]"#;
        for trust in [
            anchors(&[
                anchor(&format!(r#""jwk": {}"#, one.to_jwk())),
                anchor(&format!(r#""jwk": {}, "algorithms": ["ES256"]"#, two.to_jwk())),
            ]),
            anchors(&[anchor(&format!(
                r#""jwks": {{"keys": [{}, {}]}}, {algorithms}"#,
                named(&one, "laptop"),
                named(&two, "phone")
            ))]),
        ] {
            let world = &mut TestWorld::default();
            let mut engine = engine_that_trusts(&trust, world);
            for root in [&by_one, &by_two] {
                assert_eq!(decide(&mut engine, world, &read(root)), "allow", "{trust}");
            }
        }
    }

    #[test]
    fn removing_one_key_from_the_configuration_keeps_the_tokens_of_the_others() {
        let [(_, by_one), (two, by_two)] = two_devices();
        let left = anchor(&format!(r#""jwk": {}, "algorithms": ["ES256"]"#, two.public().to_jwk()));
        let world = &mut TestWorld::default();
        let mut engine = engine_that_trusts(&anchors(&[left]), world);
        assert_eq!(decide(&mut engine, world, &read(&by_one)), "algorithm_not_allowed");
        assert_eq!(decide(&mut engine, world, &read(&by_two)), "allow");
    }

    #[test]
    fn replacing_one_key_keeps_the_tokens_of_the_others() {
        let [old, kept, new] = [21, 22, 23].map(|number| key_of(KeyType::Ed25519, number));
        let [by_old, by_kept, by_new] = [("old", &old), ("kept", &kept), ("new", &new)].map(|(id, by)| root_of(id, by));
        let set = |keys: [&SigningKey; 2]| {
            let keys = keys.map(|key| key.public().to_jwk()).join(",");
            anchors(&[anchor(&format!(r#""jwks": {{"keys": [{keys}]}}"#))])
        };
        for (trust, reasons) in [
            (set([&old, &kept]), ["allow", "allow", "signature_invalid"]),
            (set([&new, &kept]), ["signature_invalid", "allow", "allow"]),
        ] {
            let world = &mut TestWorld::default();
            let mut engine = engine_that_trusts(&trust, world);
            let decided = [&by_old, &by_kept, &by_new].map(|root| decide(&mut engine, world, &read(root)));
            assert_eq!(decided, reasons);
        }
    }

    #[test]
    fn revoking_one_key_keeps_the_tokens_of_the_others() {
        let [(one, by_one), (two, by_two)] = two_devices();
        let trust = anchors(&[anchor(&format!(
            r#""jwks": {{"keys": [{}, {}]}}, "algorithms": ["Ed25519", "ES256"]"#,
            one.public().to_jwk(),
            two.public().to_jwk()
        ))]);
        for (revoked, reasons) in [(&one, ["revoked_key", "allow"]), (&two, ["allow", "revoked_key"])] {
            let world = &mut TestWorld::default();
            let mut engine = engine_that_trusts(&trust, world);
            for root in [&by_one, &by_two] {
                assert_eq!(decide(&mut engine, world, &read(root)), "allow");
            }
            (world.log.key, world.revision) = (Some(revoked.public().thumbprint()), Some(2));
            let decided = [&by_one, &by_two].map(|root| decide(&mut engine, world, &read(root)));
            assert_eq!(decided, reasons, "cached or not");
        }
    }
}

fn order(delegation: &str) -> Vec<(&'static str, &str)> {
    vec![
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/orders/a1"),
        ("content-type", "application/json"),
        ("delegation", delegation),
    ]
}

/// The result of a request with this body.
fn decide_with_body(engine: &mut Engine, world: &mut TestWorld, request: &[(&str, &str)], body: &[u8]) -> &'static str {
    let serialized = serialize(request);
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    match engine.decide(&request, world) {
        Outcome::Decided(verdict) => code(&verdict),
        Outcome::NeedsBody(held) => code(&engine.resume(held, &request, body, world)),
    }
}

#[test]
fn arguments_from_the_body_are_constrained_like_any_other() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let mut with = |body: &str| decide_with_body(&mut engine, world, &order(&delegation), body.as_bytes());
    assert_eq!(with(r#"{"amount": 50}"#), "allow");
    assert_eq!(
        with(r#"{"amount": 50, "items": ["socks"], "note": {"any": "thing"}}"#),
        "allow"
    );
    assert_eq!(with(r#"{"amount": 101}"#), "argument_not_allowed");
    assert_eq!(
        with(r#"{"amount": 50, "items": ["socks", "gold"]}"#),
        "argument_not_allowed"
    );
    assert_eq!(with(r#"{"amount": 50, "items": "socks"}"#), "argument_not_allowed");
    assert_eq!(with(r#"{"amount": "50"}"#), "argument_malformed");
    assert_eq!(with("{}"), "argument_missing");
    assert_eq!(with(""), "argument_missing");
    assert_eq!(with(r#"{"amount": 50, "currency": "EUR"}"#), "argument_unknown");
    assert_eq!(with(r#"{"amount": 50, "amount": 5000}"#), "body_malformed");
    let large = format!(r#"{{"amount": 50, "note": "{}"}}"#, "x".repeat(65_536));
    assert_eq!(with(&large), "body_too_large");
}

#[test]
fn without_a_body_its_arguments_are_missing() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    assert_eq!(decide(&mut engine, world, &order(&delegation)), "argument_missing");
}

#[test]
fn a_body_of_another_kind_is_not_waited_for() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let mut with = |headers: &[(&'static str, &'static str)]| {
        let mut request = order(&delegation);
        request.retain(|(name, _)| *name != "content-type");
        request.extend(headers);
        decide_with_body(&mut engine, world, &request, br#"{"amount": 50}"#)
    };
    assert_eq!(with(&[("content-type", "application/json; charset=utf-8")]), "allow");
    for wrong in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("content-type", "application/json; charset=utf-16")],
        &[
            ("content-type", "application/json"),
            ("content-type", "application/json"),
        ],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &[("content-type", "application/grpc")],
    ] {
        assert_eq!(with(wrong), "body_media_type", "{wrong:?}");
    }
    let announced = [("content-type", "application/json"), ("content-length", "65537")];
    assert_eq!(with(&announced), "body_too_large");
}

#[test]
fn changes_while_a_request_waits_for_its_body_count() {
    let mut engine = engine(&mut TestWorld::default());
    let delegation = delegation();
    let serialized = serialize(&order(&delegation));
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    let mut meanwhile = |change: &dyn Fn(&mut TestWorld)| {
        let world = &mut TestWorld::default();
        let Outcome::NeedsBody(held) = engine.decide(&request, world) else {
            panic!("the rule reads the body");
        };
        change(world);
        code(&engine.resume(held, &request, br#"{"amount": 50}"#, world))
    };
    assert_eq!(meanwhile(&|_| ()), "allow");
    let revoke = |world: &mut TestWorld| (world.log.epoch, world.revision) = (9, Some(2));
    assert_eq!(meanwhile(&revoke), "revoked_principal");
    assert_eq!(meanwhile(&|world| world.now = NOW + 3600), "expired");
    let stale = Freshness::Stale {
        age: std::time::Duration::from_secs(6),
    };
    assert_eq!(meanwhile(&|world| world.freshness = stale), "stale");
    assert_eq!(meanwhile(&|world| world.can_record = false), "audit_full");
}

#[test]
fn a_request_that_is_no_longer_held_leaves_a_record() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let serialized = serialize(&order(&delegation));
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    let Outcome::NeedsBody(held) = engine.decide(&request, world) else {
        panic!("the rule reads the body");
    };
    let verdict = engine.turn_away(held, Reason::BodyIncomplete);
    assert_eq!(code(&verdict), "body_incomplete");
    assert_eq!(verdict.rule.map(|rule| rule.name.as_str()), Some("order"));
    assert!(verdict.findings.chain.is_some());
}

#[test]
fn a_proof_covers_the_body_and_only_an_allowed_request_uses_it_up() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let proof = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    let mut with = |body: &str| {
        let request = [
            (":method", "POST"),
            (":authority", "payments.example"),
            (":path", "/transfers"),
            ("content-type", "application/json"),
            ("delegation", delegation.as_str()),
            ("delegation-proof", proof.as_str()),
        ];
        decide_with_body(&mut engine, world, &request, body.as_bytes())
    };
    assert_eq!(with(r#"{"account": "a1", "amount": 60}"#), "proof_mismatch");
    assert_eq!(with(r#"{"account": "a1", "amount": 5000}"#), "argument_not_allowed");
    assert_eq!(with(r#"{"amount": 50, "account": "a1"}"#), "allow");
    assert_eq!(with(r#"{"amount": 50, "account": "a1"}"#), "proof_replayed");
}

/// The result of the look-up of a request's chain, and the result of the request.
fn looked_up(engine: &mut Engine, world: &mut TestWorld, delegation: &str) -> (Option<Lookup>, &'static str) {
    let serialized = serialize(&read(delegation));
    let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    let verdict = decided(engine.decide(&request, world));
    (verdict.findings.lookup, code(&verdict))
}

#[test]
fn only_the_new_leaf_under_a_known_parent_is_verified() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let root = delegation();
    let leaf = |id: &str, tools: &str| format!("{root}~{}", derived(&root, 2, &grant(id, 3, tools)));
    let tools = r#"{"read":{"item":{"constraint_type":"wildcard","optional":true}}}"#;
    let (one, two, three) = (leaf("one", tools), leaf("two", tools), leaf("three", tools));
    assert_eq!(looked_up(&mut engine, world, &one), (Some(Lookup::Miss), "allow"));
    assert_eq!(looked_up(&mut engine, world, &two), (Some(Lookup::Beginning), "allow"));
    assert_eq!(looked_up(&mut engine, world, &two), (Some(Lookup::Hit), "allow"));
    assert_eq!(
        looked_up(&mut engine, world, &root),
        (Some(Lookup::Hit), "allow"),
        "a beginning is a chain"
    );
    // Knowing the parent says nothing about the leaf.
    let (chain, signature) = three.rsplit_once('.').unwrap();
    let forged = format!("{chain}.{}", two.rsplit_once('.').unwrap().1);
    assert_ne!(signature, two.rsplit_once('.').unwrap().1);
    assert_eq!(
        looked_up(&mut engine, world, &forged),
        (Some(Lookup::Beginning), "signature_invalid")
    );
    (world.log.epoch, world.revision) = (9, Some(2));
    assert_eq!(
        looked_up(&mut engine, world, &three),
        (Some(Lookup::Refused), "revoked_principal")
    );
}

#[test]
fn the_same_bad_chain_is_verified_once() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let other = samples::root_by(&key(9), ISSUER, grant("root", 2, TOOLS));
    assert_eq!(
        looked_up(&mut engine, world, &other),
        (Some(Lookup::Miss), "signature_invalid")
    );
    for _ in 0..2 {
        assert_eq!(
            looked_up(&mut engine, world, &other),
            (Some(Lookup::Refused), "signature_invalid")
        );
    }
    // Nor does another tail cause another check of the same forged root. A bad tail does not affect its root.
    let below = |root: &str, id: &str| format!("{root}~{}", derived(root, 2, &grant(id, 3, TOOLS)));
    for id in ["one", "two"] {
        assert_eq!(
            looked_up(&mut engine, world, &below(&other, id)),
            (Some(Lookup::Refused), "signature_invalid")
        );
    }
    let another = samples::root_by(&key(8), ISSUER, grant("root", 2, TOOLS));
    for (tail, lookup) in [("one", Lookup::Miss), ("two", Lookup::Refused)] {
        assert_eq!(
            looked_up(&mut engine, world, &below(&another, tail)),
            (Some(lookup), "signature_invalid")
        );
    }
    let good = root(grant("good", 2, TOOLS));
    let (claims, signature) = below(&good, "leaf")
        .rsplit_once('.')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let bad_tail = format!("{claims}.{}", signature.chars().rev().collect::<String>());
    assert_eq!(looked_up(&mut engine, world, &bad_tail).1, "signature_invalid");
    let good_tail = below(&good, "leaf");
    assert_eq!(looked_up(&mut engine, world, &good_tail).1, "allow");
    // A chain that is only wrong because of its time is not cached.
    world.now = NOW - 3600;
    let delegation = delegation();
    assert_eq!(
        looked_up(&mut engine, world, &delegation),
        (Some(Lookup::Miss), "issued_in_future")
    );
    world.now = NOW;
    assert_eq!(
        looked_up(&mut engine, world, &delegation),
        (Some(Lookup::Miss), "allow")
    );
}

#[test]
fn a_rule_may_accept_a_stale_state_for_known_chains() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let other = root(grant("other", 2, TOOLS));
    let lenient = |delegation: &str| {
        let mut request = read(delegation);
        request[2] = (":path", "/lenient/shoes");
        serialize(&request)
    };
    let mut decide = |world: &mut TestWorld, delegation: &str| {
        let serialized = lenient(delegation);
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&request, world));
        (code(&verdict), verdict.findings.stale)
    };
    let stale = |seconds| Freshness::Stale {
        age: Duration::from_secs(seconds),
    };
    world.freshness = stale(6);
    assert_eq!(decide(world, &delegation).0, "stale", "it is not cached yet");
    world.freshness = Freshness::Fresh;
    assert_eq!(decide(world, &delegation), ("allow", None));
    world.freshness = stale(60);
    assert_eq!(decide(world, &delegation), ("allow", Some(Duration::from_secs(60))));
    assert_eq!(decide(world, &other).0, "stale", "a new chain is not accepted");
    world.freshness = stale(61);
    assert_eq!(decide(world, &delegation).0, "stale");
    world.freshness = Freshness::NeverSynced;
    assert_eq!(decide(world, &delegation).0, "not_ready");
    // A known revocation applies at any age of the state.
    world.freshness = stale(6);
    (world.log.epoch, world.revision) = (9, Some(2));
    assert_eq!(decide(world, &delegation).0, "revoked_principal");
}

#[test]
fn a_shadow_decision_is_made_and_uses_no_proof_up() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let proof = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    let mut decide = |world: &mut TestWorld, path: &'static str| {
        let mut request = pay(&delegation, &proof);
        request[2] = (":path", path);
        let serialized = serialize(&request);
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&request, world));
        (verdict.mode, code(&verdict))
    };
    let shadow = "/shadow/accounts/a1/charges?amount=50";
    assert_eq!(decide(world, shadow), (Mode::Shadow, "allow"));
    assert_eq!(decide(world, shadow), (Mode::Shadow, "allow"));
    let too_much = "/shadow/accounts/a1/charges?amount=500";
    assert_eq!(decide(world, too_much), (Mode::Shadow, "argument_not_allowed"));
    let enforced = "/accounts/a1/charges?amount=50";
    assert_eq!(decide(world, enforced), (Mode::Enforce, "allow"));
    assert_eq!(decide(world, enforced), (Mode::Enforce, "proof_replayed"));
}

#[test]
fn a_rule_may_require_a_nonce_of_this_process() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let mut decide = |world: &mut TestWorld, id: &str, nonce: Option<&str>| {
        let proof = samples::proof_with_nonce(&delegation, 2, id, "pay", PAID, NOW, nonce);
        let mut request = pay(&delegation, &proof);
        request[2] = (":path", "/once/accounts/a1/charges?amount=50");
        let serialized = serialize(&request);
        let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&request, world));
        (code(&verdict), verdict.nonce)
    };
    let (reason, offered) = decide(world, "p1", None);
    assert_eq!(reason, "nonce_required");
    let offered = offered.expect("a nonce for the next proof");
    assert_eq!(decide(world, "p2", Some("made up")).0, "nonce_required");
    assert_eq!(decide(world, "p3", Some(&offered)), ("allow", None));
    let (reason, next) = decide(world, "p3", Some(&offered));
    assert_eq!(reason, "proof_replayed");
    assert!(next.is_some());
    assert_eq!(
        decide(world, "p4", Some(&offered)).0,
        "allow",
        "the nonce is not used up"
    );
}

#[test]
fn a_proof_does_not_outlive_its_window_by_waiting_for_a_body() {
    let world = &mut TestWorld::default();
    let mut engine = engine(world);
    let delegation = delegation();
    let proof = proof(&delegation, 2, "p1", "pay", PAID, NOW);
    let serialized = serialize(&[
        (":method", "POST"),
        (":authority", "payments.example"),
        (":path", "/transfers"),
        ("content-type", "application/json"),
        ("delegation", delegation.as_str()),
        ("delegation-proof", proof.as_str()),
    ]);
    let request = Request::parse(&serialized, &HeaderNames::default(), true).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        match engine.decide(&request, world) {
            Outcome::NeedsBody(one) => held.push(one),
            Outcome::Decided(verdict) => panic!("{verdict:?}"),
        }
    }
    let mut resume = |world: &mut TestWorld, held| {
        code(&engine.resume(held, &request, br#"{"account": "a1", "amount": 50}"#, world))
    };
    world.now = NOW + 30;
    assert_eq!(resume(world, held.pop().unwrap()), "allow");
    assert_eq!(resume(world, held.pop().unwrap()), "proof_replayed");
    world.now = NOW + 31;
    for one in held {
        assert_eq!(resume(world, one), "proof_outside_window");
    }
}

mod a_chain_that_workers_share {
    use super::*;

    pub(super) fn keys(current: u8, previous: u8) -> SealKeys {
        SealKeys::parse(&[current; 32], &[previous; 32]).unwrap()
    }

    fn world_with_keys() -> TestWorld {
        TestWorld {
            cache_keys: Some(keys(1, 0)),
            ..TestWorld::default()
        }
    }

    fn tick(engine: &mut Engine, world: &mut TestWorld) {
        engine.share_chains(UnixTime(world.now), &mut world.store, world.cache_keys.as_ref());
    }

    /// A worker that has verified this chain and shared it.
    fn worker_that_knows(delegation: &str, world: &mut TestWorld) -> Engine {
        let mut worker = engine(world);
        assert_eq!(looked_up(&mut worker, world, delegation).1, "allow");
        tick(&mut worker, world);
        worker
    }

    fn chain_of_two() -> String {
        let root = delegation();
        let tools = r#"{"read":{"item":{"constraint_type":"wildcard","optional":true}}}"#;
        format!("{root}~{}", derived(&root, 2, &grant("leaf", 3, tools)))
    }

    #[test]
    fn costs_no_signature_in_another_one() {
        let world = &mut world_with_keys();
        let chain = chain_of_two();
        let mut one = engine(world);
        assert_eq!(looked_up(&mut one, world, &chain), (Some(Lookup::Miss), "allow"));
        let mut other = engine(world);
        assert_eq!(
            looked_up(&mut other, world, &chain),
            (Some(Lookup::Miss), "allow"),
            "nothing is written while a request waits"
        );
        tick(&mut one, world);
        let mut third = engine(world);
        assert_eq!(looked_up(&mut third, world, &chain), (Some(Lookup::Shared), "allow"));
        assert_eq!(
            looked_up(&mut third, world, &chain),
            (Some(Lookup::Hit), "allow"),
            "from now on it is cached"
        );
        // And its beginning too.
        let root = chain.split_once('~').unwrap().0;
        assert_eq!(looked_up(&mut third, world, root), (Some(Lookup::Hit), "allow"));
        assert_eq!(
            looked_up(&mut engine(world), world, root),
            (Some(Lookup::Shared), "allow")
        );
    }

    #[test]
    fn lends_its_beginning_to_a_new_leaf_but_not_to_a_forged_one() {
        let world = &mut world_with_keys();
        let chain = chain_of_two();
        worker_that_knows(&chain, world);
        let root = delegation();
        let tools = r#"{"read":{"item":{"constraint_type":"wildcard","optional":true}}}"#;
        let leaf = format!("{root}~{}", derived(&root, 2, &grant("another", 3, tools)));
        let forged = format!(
            "{}.{}",
            leaf.rsplit_once('.').unwrap().0,
            chain.rsplit_once('.').unwrap().1
        );
        let mut other = engine(world);
        assert_eq!(
            looked_up(&mut other, world, &forged),
            (Some(Lookup::Beginning), "signature_invalid")
        );
        assert_eq!(looked_up(&mut other, world, &leaf), (Some(Lookup::Beginning), "allow"));
    }

    #[test]
    fn is_checked_for_everything_else_on_every_request() {
        let world = &mut world_with_keys();
        let delegation = delegation();
        worker_that_knows(&delegation, world);
        (world.log.epoch, world.revision) = (9, Some(2));
        assert_eq!(looked_up(&mut engine(world), world, &delegation).1, "revoked_principal");
        (world.log.epoch, world.revision) = (0, Some(3));
        world.now = NOW + 3600;
        assert_eq!(looked_up(&mut engine(world), world, &delegation).1, "expired");
        world.now = NOW - 3600;
        assert_eq!(looked_up(&mut engine(world), world, &delegation).1, "issued_in_future");
    }

    #[test]
    fn is_not_accepted_while_the_state_is_stale() {
        let world = &mut world_with_keys();
        let delegation = delegation();
        worker_that_knows(&delegation, world);
        world.freshness = Freshness::Stale {
            age: std::time::Duration::from_secs(6),
        };
        let mut request = read(&delegation);
        request[2] = (":path", "/lenient/shoes");
        assert_eq!(decide(&mut engine(world), world, &request), "stale");
    }

    #[test]
    fn is_invalid_under_other_trust_anchors() {
        let world = &mut world_with_keys();
        let delegation = delegation();
        worker_that_knows(&delegation, world);
        let with = |number: u8| {
            format!(
                r#"{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}}"#,
                key(number).public().to_jwk()
            )
        };
        let more = format!(r#""trust_anchors": [{}, {}]"#, with(1), with(7));
        let mut more = engine_that_trusts(&more, world);
        assert_eq!(looked_up(&mut more, world, &delegation), (Some(Lookup::Miss), "allow"));
        let others = format!(r#""trust_anchors": [{}]"#, with(7));
        let mut others = engine_that_trusts(&others, world);
        assert_eq!(
            looked_up(&mut others, world, &delegation),
            (Some(Lookup::Miss), "signature_invalid")
        );
    }

    #[test]
    fn outlives_one_rotation_of_the_keys_after_each_look() {
        let world = &mut world_with_keys();
        let delegation = delegation();
        worker_that_knows(&delegation, world);
        for current in 2..5 {
            world.cache_keys = Some(keys(current, current - 1));
            let mut worker = engine(world);
            assert_eq!(
                looked_up(&mut worker, world, &delegation),
                (Some(Lookup::Shared), "allow")
            );
            tick(&mut worker, world);
        }
        world.cache_keys = Some(keys(6, 5));
        assert_eq!(
            looked_up(&mut engine(world), world, &delegation),
            (Some(Lookup::Miss), "allow")
        );
    }

    #[test]
    fn needs_keys() {
        let world = &mut world_with_keys();
        let delegation = delegation();
        worker_that_knows(&delegation, world);
        world.cache_keys = None;
        let mut worker = engine(world);
        world.store.reads = 0;
        assert_eq!(
            looked_up(&mut worker, world, &delegation),
            (Some(Lookup::Miss), "allow")
        );
        assert_eq!(world.store.reads, 0);
        let keys = world.store.keys();
        tick(&mut worker, world);
        assert_eq!(world.store.keys(), keys);
    }

    #[test]
    fn is_not_looked_up_if_a_cheap_denial_suffices() {
        let world = &mut world_with_keys();
        let mut worker = engine(world);
        let mut expired = grant("root", 2, TOOLS);
        (expired.issued_at, expired.expires_at) = (UnixTime(NOW - 60), UnixTime(NOW - 1));
        let other_issuer = samples::root_by(&key(1), "https://other.example", grant("root", 2, TOOLS));
        world.store.reads = 0;
        for (chain, reason) in [
            ("garbage", "delegation_malformed"),
            ("a.b.c", "delegation_malformed"),
            (&root(expired), "expired"),
            (&other_issuer, "issuer_unknown"),
        ] {
            assert_eq!(looked_up(&mut worker, world, chain).1, reason);
        }
        assert_eq!(world.store.reads, 0);
        // Nor for a chain that was refused before.
        let forged = samples::root_by(&key(9), ISSUER, grant("root", 2, TOOLS));
        assert_eq!(looked_up(&mut worker, world, &forged).1, "signature_invalid");
        let reads = world.store.reads;
        assert_eq!(looked_up(&mut worker, world, &forged).1, "signature_invalid");
        assert_eq!(world.store.reads, reads);
    }

    /// An attacker who can write to the workers' shared data can cause work, but not acceptance.
    #[test]
    fn is_never_accepted_because_of_forged_entries() {
        let world = &mut world_with_keys();
        let (good, forged) = (delegation(), samples::root_by(&key(9), ISSUER, grant("root", 2, TOOLS)));
        worker_that_knows(&good, world);
        let is_bucket = |key: &str| key.starts_with("credence/chains/");
        type Change = fn(&mut Vec<u8>);
        let changes: [Change; 5] = [
            |bucket| bucket.truncate(79),
            |bucket| bucket.clear(),
            |bucket| bucket.fill(0),
            |bucket| bucket.fill(0xff),
            |bucket| bucket[79] ^= 1,
        ];
        for change in changes {
            world.store.overwrite(|key, bucket| {
                if is_bucket(key) {
                    change(bucket);
                }
            });
            let mut worker = engine(world);
            assert_eq!(looked_up(&mut worker, world, &good), (Some(Lookup::Miss), "allow"));
            assert_eq!(looked_up(&mut worker, world, &forged).1, "signature_invalid");
            tick(&mut worker, world);
            assert_eq!(
                looked_up(&mut engine(world), world, &good),
                (Some(Lookup::Shared), "allow")
            );
        }
    }
}

#[path = "authorization_tests.rs"]
mod authorization_tests;
#[path = "fetched_keys_tests.rs"]
mod fetched_keys_tests;
#[path = "mcp_tests.rs"]
mod mcp_tests;
#[path = "decision_cache_tests.rs"]
mod repeats;

#[path = "route_tests.rs"]
mod routes;
mod of_a_revoked_holder {
    use super::*;

    /// A revoked root, and leaves that its holder derives.
    fn revoked() -> (TestWorld, String) {
        let mut world = TestWorld::default();
        world.log.epoch = 1;
        (world, delegation())
    }

    fn leaf_of(root: &str, id: &str) -> String {
        let tools = r#"{"read":{"item":{"constraint_type":"wildcard","optional":true}}}"#;
        format!("{root}~{}", derived(root, 2, &grant(id, 3, tools)))
    }

    #[test]
    fn new_leaves_are_not_cached() {
        let (mut world, root) = revoked();
        world.cache_keys = Some(a_chain_that_workers_share::keys(1, 0));
        let mut engine = engine(&mut world);
        for number in 0..5 {
            let leaf = leaf_of(&root, &number.to_string());
            assert_eq!(decide(&mut engine, &mut world, &read(&leaf)), "revoked_principal");
        }
        assert_eq!(engine.cache().len(), 0);
        let keys = world.cache_keys.clone();
        engine.share_chains(UnixTime(NOW), &mut world.store, keys.as_ref());
        assert_eq!(engine.shared_cache().stored, 0);
        // Those of a holder that is not revoked are.
        world.log.epoch = 0;
        world.revision = Some(2);
        assert_eq!(decide(&mut engine, &mut world, &read(&leaf_of(&root, "a"))), "allow");
        assert_eq!(engine.cache().len(), 2, "the leaf and its parent");
        engine.share_chains(UnixTime(NOW), &mut world.store, keys.as_ref());
        assert_eq!(engine.shared_cache().stored, 2);
    }

    #[test]
    fn a_new_leaf_causes_no_signature_check() {
        let (mut world, root) = revoked();
        let mut engine = engine(&mut world);
        let first = leaf_of(&root, "first");
        assert_eq!(decide(&mut engine, &mut world, &read(&first)), "revoked_principal");
        // A leaf with an invalid signature shows that the signature was not checked.
        let mut forged = leaf_of(&root, "second");
        forged.truncate(forged.rfind('.').unwrap());
        forged.push_str(&format!(".{}", "A".repeat(86)));
        assert_eq!(decide(&mut engine, &mut world, &read(&forged)), "revoked_principal");
        // After a change of the log, it is.
        world.log.epoch = 0;
        world.revision = Some(2);
        assert_eq!(decide(&mut engine, &mut world, &read(&forged)), "signature_invalid");
        assert_eq!(decide(&mut engine, &mut world, &read(&first)), "allow");
    }

    #[test]
    fn a_new_leaf_under_a_known_parent_causes_no_signature_check() {
        let mut world = TestWorld::default();
        let mut engine = engine(&mut world);
        let root = delegation();
        assert_eq!(decide(&mut engine, &mut world, &read(&leaf_of(&root, "a"))), "allow");
        (world.log.epoch, world.revision) = (1, Some(2));
        let mut forged = leaf_of(&root, "b");
        forged.truncate(forged.rfind('.').unwrap());
        forged.push_str(&format!(".{}", "A".repeat(86)));
        assert_eq!(decide(&mut engine, &mut world, &read(&forged)), "revoked_principal");
    }

    #[test]
    fn one_revoked_leaf_leaves_its_siblings_alone() {
        let mut world = TestWorld::default();
        world.log.delegation = Some("one");
        let mut engine = engine(&mut world);
        let root = delegation();
        for _ in 0..2 {
            assert_eq!(
                decide(&mut engine, &mut world, &read(&leaf_of(&root, "one"))),
                "revoked_delegation"
            );
            assert_eq!(
                decide(&mut engine, &mut world, &read(&leaf_of(&root, "other"))),
                "allow"
            );
        }
    }
}
