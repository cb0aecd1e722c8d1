//! Equal requests: decided with less work, but never differently.

use std::time::Duration;

use credence_wire::v1;
use prost::Message as _;

use super::*;
use crate::audit::events::{Record, Recorder};
use crate::usage_sketch::Amount;

/// An engine of the usual configuration with this many cache entries, and with more rules.
fn engine_with(entries: usize, more_rules: &str, world: &mut TestWorld) -> Engine {
    let configuration = format!(
        r#"{{
            "audience": ["{AUDIENCE}"],
            "trust_anchors": [{{"issuer": "{ISSUER}", "jwk": {}, "asserts_subjects": true}}],
            "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
            "limits": {{"repeat_entries": {entries}}},
            "rules": [
                {more_rules}
                {{"name": "catalog", "match": {{"methods": ["GET"], "path": "/catalog/{{item}}"}}, "tool": "read",
                  "args": {{"item": {{"path": "item"}}}}, "proof": "none"}},
                {{"name": "inner", "match": {{"hosts": ["inner.example"], "path": "/{{item}}"}}, "tool": "read",
                  "args": {{"item": {{"path": "item"}}}}, "proof": "none", "mode": "shadow"}},
                {{"name": "tenant", "match": {{"path": "/tenant/x"}}, "tool": "read",
                  "args": {{"item": {{"header": "x-item"}}}}, "proof": "none"}},
                {{"name": "lenient", "match": {{"path": "/lenient/{{item}}"}}, "tool": "read", "proof": "none",
                  "args": {{"item": {{"path": "item"}}}}, "on_stale": {{"allow_cached_for": "1m"}}}},
                {{"name": "upload", "match": {{"path": "/uploads/{{item}}"}}, "tool": "read",
                  "args": {{"item": {{"path": "item"}}}}, "proof": "none", "ignore_body": true}},
                {{"name": "charge", "match": {{"path": "/charges"}}, "tool": "pay", "proof": "none",
                  "args": {{"account": {{"query": "account"}}, "amount": {{"query": "amount", "type": "number"}}}}}},
                {{"name": "mesh", "match": {{"path": "/mesh"}}, "tool": "read", "proof": "mtls"}},
                {{"name": "health", "match": {{"path": "/healthz"}}, "public": true}}
            ]
        }}"#,
        key(1).public().to_jwk()
    );
    let policy = Policy::parse(configuration.as_bytes()).unwrap();
    let replay = ReplayMemory::join(world, [5; 16], UnixTime(NOW - 1000), 5).unwrap();
    Engine::new(policy.into(), [6; 16], replay)
}

/// The visible parts of a decision, and whether the decision cache made it.
fn seen(engine: &mut Engine, world: &mut TestWorld, headers: &[(&str, &str)], has_body: bool) -> (String, bool) {
    let serialized = serialize(headers);
    let request = Request::parse(&serialized, &HeaderNames::default(), has_body).unwrap();
    let Outcome::Decided(verdict) = engine.decide(&request, world) else {
        return ("body".to_owned(), false);
    };
    let identity = match &verdict.decision {
        Decision::Allow(Allowance::Delegated(grant)) => Some(grant.identity.clone()),
        Decision::Allow(_) | Decision::Deny(_) => None,
    };
    let findings = &verdict.findings;
    let text = format!(
        "{} {:?} {:?} {identity:?} {:?} {:?} {:?} {:?} {:?} {}",
        code(&verdict),
        verdict.rule.map(|rule| &rule.name),
        verdict.mode,
        findings.chain.as_ref().map(|chain| chain.digest),
        findings.lookup,
        findings.agent,
        findings.arguments,
        findings.stale,
        findings.verified,
    );
    (text, findings.cached_decision.is_some())
}

/// Repeats a request until the decision cache knows it: verified, found, seen twice.
fn ask_until_known(engine: &mut Engine, world: &mut TestWorld, headers: &[(&str, &str)]) {
    for _ in 0..3 {
        assert!(!seen(engine, world, headers, false).1);
    }
    assert!(seen(engine, world, headers, false).1, "{headers:?}");
}

#[test]
fn a_repeated_request_is_decided_from_the_cache() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(64, "", world);
    let delegation = delegation();
    let request = read(&delegation);
    seen(&mut engine, world, &request, false);
    let (found, was_cached) = seen(&mut engine, world, &request, false);
    assert!(!was_cached);
    seen(&mut engine, world, &request, false);
    assert_eq!(seen(&mut engine, world, &request, false), (found, true));
}

/// The record does not depend on how a decision was made.
#[test]
fn the_record_of_a_repeated_request_is_the_same() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(64, "", world);
    let mut recorder = Recorder::new(&engine.policy().audit, [7; 16]);
    let delegation = delegation();
    let mut headers = read(&delegation);
    headers.push(("x-request-id", "one"));
    ask_until_known(&mut engine, world, &headers);
    let mut plain = engine_with(0, "", world);
    for _ in 0..2 {
        decide(&mut plain, world, &headers);
    }
    let serialized = serialize(&headers);
    let request = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
    let mut event = |engine: &mut Engine, world: &mut TestWorld| {
        let verdict = decided(engine.decide(&request, world));
        let was_cached = verdict.findings.cached_decision.is_some();
        let Some(Record { event, owner, .. }) = recorder.record(&verdict, &request, world.now(), Some(5)) else {
            panic!("{verdict:?}");
        };
        let mut event = v1::Event::decode(event).unwrap();
        assert_eq!(std::mem::take(&mut event.arguments_hash).len(), 48);
        (event, owner, was_cached)
    };
    let (expected, owner, _) = event(&mut plain, world);
    assert_eq!((expected.method.as_str(), expected.request_id.as_str()), ("GET", "one"));
    // The second time, the constant part is not encoded again.
    for _ in 0..2 {
        assert_eq!(event(&mut engine, world), (expected.clone(), owner, true));
    }
}

#[test]
fn nothing_is_cached_if_the_cache_is_off() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(0, "", world);
    let delegation = delegation();
    for _ in 0..6 {
        assert!(!seen(&mut engine, world, &read(&delegation), false).1);
    }
}

#[test]
fn changeable_conditions_are_checked_every_time() {
    let world = &mut TestWorld::default();
    let delegation = delegation();
    let request = read(&delegation);
    let changes: [(&str, Change); 7] = [
        ("expired", |world| world.now = NOW + 3600),
        ("stale", |world| {
            world.freshness = Freshness::Stale {
                age: Duration::from_secs(6),
            };
        }),
        ("not_ready", |world| world.freshness = Freshness::NeverSynced),
        ("not_ready", |world| world.revision = None),
        ("revoked_principal", |world| {
            (world.log.epoch, world.revision) = (9, Some(2));
        }),
        ("revoked_delegation", |world| {
            (world.log.delegation, world.revision) = (Some("root"), Some(2));
        }),
        ("audit_full", |world| world.can_record = false),
    ];
    for (reason, change) in changes {
        *world = TestWorld::default();
        let mut engine = engine_with(64, "", world);
        ask_until_known(&mut engine, world, &request);
        change(world);
        assert_eq!(decide(&mut engine, world, &request), reason);
    }
}

/// Changes the world.
type Change = fn(&mut TestWorld);

/// A different chain or request was allowed, not this one.
#[test]
fn one_different_text_makes_another_request() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(64, "", world);
    let delegation = delegation();
    let request = read(&delegation);
    ask_until_known(&mut engine, world, &request);
    let other = root(grant("other", 2, TOOLS));
    let forged = format!("{}AAAA", &delegation[..delegation.len() - 4]);
    for (name, value, reason) in [
        (":path", "/catalog/hats", "allow"),
        (":path", "/catalog/shoes?x=1", "argument_unknown"),
        (":path", "/catalog/shoe", "allow"),
        (":method", "POST", "no_route"),
        (":authority", "inner.example", "allow"),
        (":authority", "payments.example:x", "host_malformed"),
        ("delegation", &other, "allow"),
        ("delegation", &forged, "signature_invalid"),
    ] {
        let changed: Vec<_> = request
            .iter()
            .map(|header| if header.0 == name { (name, value) } else { *header })
            .collect();
        let serialized = serialize(&changed);
        let parsed = Request::parse(&serialized, &HeaderNames::default(), false).unwrap();
        let verdict = decided(engine.decide(&parsed, world));
        assert_eq!(
            (code(&verdict), verdict.findings.cached_decision.is_some()),
            (reason, false),
            "{name}: {value}"
        );
    }
    assert!(
        seen(&mut engine, world, &request, false).1,
        "and the first one is still cached"
    );
}

#[test]
fn a_decision_that_depends_on_more_is_never_cached() {
    let world = &mut TestWorld {
        certificate: Some([7; 32]),
        ..TestWorld::default()
    };
    let mut engine = engine_with(64, "", world);
    let delegation = delegation();
    let with = |path: &'static str, more: &[(&'static str, &'static str)]| {
        let mut request = read(&delegation);
        request[2] = (":path", path);
        request.extend(more);
        request
    };
    // A header as an argument; another kind of proof; no delegation required; no delegation presented.
    for request in [
        with("/tenant/x", &[("x-item", "shoes")]),
        with("/mesh", &[]),
        with("/healthz", &[]),
        with("/catalog/shoes", &[("upgrade", "websocket")]),
        read(&delegation)[..3].to_vec(),
    ] {
        for _ in 0..6 {
            assert!(!seen(&mut engine, world, &request, false).1, "{request:?}");
        }
    }
    // A body, even if it is ignored.
    for _ in 0..6 {
        assert!(!seen(&mut engine, world, &with("/uploads/shoes", &[]), true).1);
    }
}

/// If any rule reads a header, the same path may match another rule.
#[test]
fn rules_with_header_conditions_turn_the_decision_cache_off() {
    let world = &mut TestWorld::default();
    let beta = r#"{"name": "beta", "match": {"path": "/catalog/{item}", "headers": {"x-beta": {"present": true}}},
        "tool": "unheard-of", "proof": "none", "args": {"item": {"path": "item"}}},"#;
    let mut engine = engine_with(64, beta, world);
    let delegation = delegation();
    let mut request = read(&delegation);
    for _ in 0..6 {
        assert!(!seen(&mut engine, world, &request, false).1);
    }
    request.push(("x-beta", "1"));
    assert_eq!(decide(&mut engine, world, &request), "tool_not_granted");
}

/// The chain cache keeps chains in use, and a hit of the decision cache counts as use.
#[test]
fn a_chain_used_by_the_decision_cache_outlives_an_unused_one() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(64, "", world);
    engine.memories.cache = ChainCache::new(
        [6; 16],
        Amount {
            entries: 2,
            bytes: 1 << 20,
        },
    );
    let [first, second, third, fourth] = ["first", "second", "third", "fourth"].map(|id| root(grant(id, 2, TOOLS)));
    ask_until_known(&mut engine, world, &read(&first));
    // The third takes the second's place, and the first is no longer marked as used.
    for new in [&second, &third] {
        assert_eq!(looked_up(&mut engine, world, new), (Some(Lookup::Miss), "allow"));
    }
    assert!(seen(&mut engine, world, &read(&first), false).1);
    assert_eq!(looked_up(&mut engine, world, &fourth), (Some(Lookup::Miss), "allow"));
    assert!(seen(&mut engine, world, &read(&first), false).1);
}

/// The chain cache decides how long a chain is kept: no other cache extends that.
#[test]
fn an_evicted_chain_is_not_found_by_the_decision_cache() {
    let world = &mut TestWorld::default();
    let mut engine = engine_with(64, "", world);
    let delegation = delegation();
    ask_until_known(&mut engine, world, &read(&delegation));
    engine
        .memories
        .cache
        .remove(engine.memories.cache.key(delegation.as_bytes()));
    let (seen, was_cached) = seen(&mut engine, world, &read(&delegation), false);
    assert!(!was_cached && seen.contains("Some(Miss)"), "{seen}");
}

/// Random requests in a random world: an engine without caches makes the same decisions, with the same records.
#[test]
fn the_decision_cache_never_changes_a_decision() {
    let (mut plain_world, mut world) = (TestWorld::default(), TestWorld::default());
    let mut plain = engine_with(0, "", &mut plain_world);
    let mut engine = engine_with(3, "", &mut world);
    let one = delegation();
    let other = root(grant(
        "other",
        2,
        r#"{"read":{"item":{"constraint_type":"exact","value":"shoes"}}}"#,
    ));
    let delegations = [one.as_str(), other.as_str(), "", "x"];
    let paths = [
        "/catalog/shoes",
        "/catalog/hats",
        "/lenient/shoes",
        "/charges?account=a1&amount=5",
        "/charges?account=a1&amount=500",
        "/tenant/x",
        "/healthz",
        "/catalog//x",
    ];
    let mut state = 88_172_645_463_325_252_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut cached = 0;
    for step in 0..20_000 {
        if draw(30) == 0 {
            let (what, value) = (draw(9), draw(4));
            for world in [&mut plain_world, &mut world] {
                match what {
                    0 => world.now = NOW + [0, 10, 3_599, 3_600][value],
                    1 => {
                        let age = Duration::from_secs([1, 30, 59, 61][value]);
                        world.freshness = Freshness::Stale { age };
                    }
                    2 => world.log.epoch = [0, 0, 0, 9][value],
                    3 => world.log.delegation = [None, None, Some("other"), Some("root")][value],
                    4 => world.can_record = value > 0,
                    _ => {
                        (world.freshness, world.now, world.can_record) = (Freshness::Fresh, NOW, true);
                        world.log = Log::default();
                    }
                }
                world.revision = world
                    .revision
                    .map(|revision| revision + u64::from(what != 0 && what != 1));
            }
        }
        let request = [
            (":method", ["GET", "GET", "GET", "POST"][draw(4)]),
            (
                ":authority",
                ["payments.example", "payments.example", "inner.example"][draw(3)],
            ),
            // The first ones more often than the others.
            (":path", paths[draw(paths.len()).saturating_sub(3)]),
            ("delegation", delegations[draw(9).saturating_sub(5)]),
            ("x-item", ["shoes", "hats"][draw(2)]),
        ];
        let has_body = draw(10) == 0;
        let expected = seen(&mut plain, &mut plain_world, &request, has_body);
        let found = seen(&mut engine, &mut world, &request, has_body);
        assert_eq!(found.0, expected.0, "step {step}: {request:?}");
        assert!(!expected.1);
        cached += usize::from(found.1);
    }
    assert!(cached > 1_000, "{cached}");
}
