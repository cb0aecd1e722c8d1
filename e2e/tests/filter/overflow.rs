//! More evidence than the ring holds: it is counted and recorded as a gap, or the requests are denied.

use credence_e2e::audit::{Kind, Record};
use credence_e2e::grants::READ;
use credence_e2e::{Client, Request, Stack, StackOptions, waiting};

/// A ring for 64 entries, and a filter that tolerates a silent control plane.
fn with_little_room(on_overflow: &str) -> Stack {
    let audit =
        format!("audit: {{ring_entries: 64, on_overflow: {on_overflow}}}\n                            rules:\n");
    let options = StackOptions::default().replacing("rules:\n", &audit).patient();
    Stack::start(&options).unwrap()
}

fn book(stack: &Stack) -> Request {
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    Request::get("/v1/catalog/book").delegation(chain)
}

fn shed(records: &[Record]) -> u64 {
    let gaps = records.iter().filter_map(|record| match record.kind {
        Kind::Gap { shed, .. } => Some(shed),
        Kind::Decision(_) | Kind::Aggregate { .. } | Kind::Chain | Kind::Source { .. } => None,
    });
    gaps.sum()
}

#[test]
fn shed_evidence_is_a_gap_in_the_ledger() {
    let mut stack = with_little_room("shed");
    let book = book(&stack);
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    stack.control_plane.kill().unwrap();
    for client in &mut workers {
        for _ in 0..200 {
            assert_eq!(client.send(&book).unwrap().status, 200);
            assert_eq!(client.send(&Request::get("/v1/catalog/book")).unwrap().status, 401);
            assert_eq!(client.send(&Request::get("/healthz")).unwrap().status, 200);
        }
    }
    waiting::until("shed evidence to be counted", || {
        Ok((stack.envoy.stat("wasmcustom.credence_audit_shed")? > 0).then_some(()))
    })
    .unwrap();
    stack.control_plane.restart().unwrap();
    let records = stack.until_all_is_accounted_for().unwrap();
    let shed = shed(&records);
    // Of 200 decisions on each of two workers, each ring kept at most 64 entries.
    assert!(shed >= 2 * (200 - 64), "{shed}");
    assert_eq!(stack.envoy.stat("wasmcustom.credence_audit_shed").unwrap(), shed);
    // Counts need no place in the ring, so none is missing.
    assert_eq!(counted(&records, "delegation_missing"), 400);
    let public = "wasmcustom.credence_decision.rule.health.decision.allow.reason.public";
    assert_eq!(counted(&records, "public"), stack.envoy.stat(public).unwrap());
}

#[test]
fn the_operator_sees_the_evidence_pile_up() {
    let mut stack = with_little_room("shed");
    let book = book(&stack);
    let gauge = |stack: &Stack, name: &str| stack.envoy.stat(&format!("wasmcustom.credence_audit_{name}"));
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    stack.control_plane.kill().unwrap();
    for client in &mut workers {
        for _ in 0..10 {
            assert_eq!(client.send(&book).unwrap().status, 200);
        }
    }
    waiting::until("the metrics to say that evidence waits, and for how long", || {
        let bytes = gauge(&stack, "ring_bytes")?;
        // The gauges add the workers up.
        let is_seen = gauge(&stack, "waiting")? >= 20 && bytes > 20 * 100 && gauge(&stack, "lag_ms")? >= 500;
        Ok(is_seen.then_some(()))
    })
    .unwrap();
    stack.control_plane.restart().unwrap();
    waiting::until("the metrics to say that all was delivered", || {
        let rest = gauge(&stack, "waiting")? + gauge(&stack, "ring_bytes")? + gauge(&stack, "lag_ms")?;
        Ok((rest == 0).then_some(()))
    })
    .unwrap();
}

fn counted(records: &[Record], wanted: &str) -> u64 {
    let counts = records.iter().filter_map(|record| match &record.kind {
        Kind::Aggregate { reason, count, .. } if reason == wanted => Some(count),
        Kind::Aggregate { .. } | Kind::Decision(_) | Kind::Gap { .. } | Kind::Chain | Kind::Source { .. } => None,
    });
    counts.sum()
}

#[test]
fn with_deny_on_overflow_a_request_that_cannot_be_recorded_is_denied() {
    let mut stack = with_little_room("deny");
    let book = book(&stack);
    let mut workers = stack.envoy.connection_to_every_worker().unwrap();
    stack.control_plane.kill().unwrap();
    let allowed_until_full = |client: &mut Client| {
        for allowed in 0..200 {
            let reply = client.send(&book).unwrap();
            if reply.status != 200 {
                assert_eq!((reply.status, reply.reason().as_deref()), (503, Some("audit_full")));
                assert!(reply.header("retry-after").is_some());
                return allowed;
            }
        }
        panic!("200 decisions went into a ring of 64")
    };
    for client in &mut workers {
        let allowed = allowed_until_full(client);
        assert!(allowed <= 64, "{allowed}");
        // Requests without a record are still allowed, and the ring stays full.
        assert_eq!(client.send(&Request::get("/healthz")).unwrap().status, 200);
        assert_eq!(client.send(&book).unwrap().status, 503);
    }
    stack.control_plane.restart().unwrap();
    for client in &mut workers {
        waiting::until("room for evidence", || {
            Ok((client.send(&book)?.status == 200).then_some(()))
        })
        .unwrap();
    }
    let records = stack.until_all_is_accounted_for().unwrap();
    assert_eq!(shed(&records), 0, "nothing is missing");
}
