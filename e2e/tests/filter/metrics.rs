//! The metrics after a known set of requests.

use std::collections::BTreeMap;

use credence_e2e::grants::READ;
use credence_e2e::{Client, Request, Stack, StackOptions, waiting};

/// The filter's metrics that have changed, by name and labels.
fn told(stack: &Stack) -> BTreeMap<String, u64> {
    let page = stack.envoy.admin_page("/stats/prometheus").unwrap().text();
    let ours = page.lines().filter(|line| line.starts_with("credence_"));
    ours.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    })
    .collect()
}

#[test]
fn decisions_and_cache_levels_are_counted_one_by_one() {
    // One rule is in shadow mode.
    let options = StackOptions::quick().replacing(
        "- name: charge\n",
        "- name: charge\n                                mode: shadow\n",
    );
    let stack = Stack::start(&options).unwrap();
    let helper = stack.credence.keygen("helper").unwrap();
    let root = stack.mint("alice", &["--tool", READ, "--max-depth", "1"]).unwrap();
    let child = stack.derive(&root, &helper, &["--same-tools"]).unwrap();
    let book = |chain: &str| Request::get("/v1/catalog/book").delegation(chain);
    let stranger = {
        let (input, _) = root.rsplit_once('.').unwrap();
        format!("{input}.{}", "A".repeat(86))
    };
    // One connection is one worker's, with one cache.
    let mut client = Client::connect(stack.envoy.ingress()).unwrap();
    let before = waiting::until("the requests so far to be counted", || {
        let now = told(&stack);
        let decisions = now.iter().filter(|(name, _)| name.contains("decision{"));
        let counted: u64 = decisions.map(|(_, count)| count).sum();
        Ok((counted == stack.envoy.stat("http.ingress.downstream_rq_completed")?).then_some(now))
    })
    .unwrap();
    let traffic = [
        (book(&root), 200, 3),
        (book(&child), 200, 2),
        (book(&stranger), 401, 4),
        (book("no token"), 401, 2),
        (Request::get("/v1/catalog/book"), 401, 5),
        (Request::get("/healthz"), 200, 6),
        (Request::get("/elsewhere"), 403, 7),
        (Request::post("/v1/accounts/a1/charges?amount=1"), 200, 8),
    ];
    for (request, status, times) in &traffic {
        for _ in 0..*times {
            assert_eq!(client.send(request).unwrap().status, *status, "{request:?}");
        }
    }
    let decision = |metric: &str, rule: &str, decision: &str, reason: &str| {
        format!(r#"credence_{metric}{{rule="{rule}",decision="{decision}",reason="{reason}"}}"#)
    };
    let expected = [
        (decision("decision", "catalog", "allow", "delegated"), 5),
        (decision("decision", "catalog", "deny", "signature_invalid"), 4),
        (decision("decision", "catalog", "deny", "delegation_malformed"), 2),
        (decision("decision", "catalog", "deny", "delegation_missing"), 5),
        (decision("decision", "health", "allow", "public"), 6),
        (decision("decision", "(none)", "deny", "no_route"), 7),
        (decision("shadow_decision", "charge", "deny", "delegation_missing"), 8),
        // Root: first unknown, then cached. Child: first its prefix is cached, then all of it. Stranger: first unknown,
        // then its denial is cached. A text that is not a token is not cached.
        ("credence_cache_hits{}".to_owned(), 3),
        ("credence_cache_beginnings{}".to_owned(), 1),
        ("credence_cache_misses{}".to_owned(), 4),
        ("credence_cache_refusals{}".to_owned(), 3),
    ];
    let mut seen = Vec::new();
    let counted = waiting::until("the counters", || {
        let now = told(&stack);
        let grown = |name: &str| now.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
        seen = expected.iter().map(|(name, _)| (name.clone(), grown(name))).collect();
        Ok((seen == expected).then_some(()))
    });
    assert!(counted.is_ok(), "{seen:#?} instead of {expected:#?}");
}

#[test]
fn the_state_of_each_part_shows() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let book = Request::get("/v1/catalog/book").delegation(chain);
    for client in &mut stack.envoy.connection_to_every_worker().unwrap() {
        assert_eq!(client.send(&book).unwrap().status, 200);
    }
    waiting::until("gauges and totals", || {
        let now = told(&stack);
        let value = |name: &str| now.get(&format!("{name}{{}}")).copied();
        let is_healthy = value("credence_audit_acknowledged") >= Some(2)
            && value("credence_audit_waiting") == Some(0)
            // One VM for each worker and one for the main thread.
            && value("credence_audit_streams") == Some(3)
            && value("credence_revocation_streams") == Some(3)
            && value("credence_revocation_revision") >= Some(1)
            && value("credence_lease_age_ms").is_some_and(|age| age < 2_000)
            && value("credence_cached_chains").is_some();
        Ok(is_healthy.then_some(()))
    })
    .unwrap();
}
