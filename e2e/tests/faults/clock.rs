//! Wall clocks that jump.

use std::time::{Duration, Instant};

use credence_e2e::assertions::assert_denied;
use credence_e2e::false_clock::FalseClock;
use credence_e2e::forge::now;
use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::link::Link;
use credence_e2e::operator::Operator;
use credence_e2e::{Request, Stack, StackOptions};

use super::{MAX_STALENESS, load_of, request_for, stack_by};

/// In seconds: far more than any allowed skew.
const JUMP: i64 = 1_800;

/// Valid before and after the jump.
fn lasting_request(stack: &Stack, subject: &str) -> Request {
    let issued = (now() - 2 * JUMP).to_string();
    let options = ["--tool", READ, "--issued-at", &issued, "--ttl", "3h"];
    let chain = stack.mint(subject, &options).unwrap();
    Request::get("/v1/catalog/book").delegation(&chain)
}

#[test]
fn jumps_in_the_control_plane_extend_no_lease_and_undo_no_revocation() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FalseClock::right(folder.path()).unwrap();
    let options = StackOptions {
        control_plane_environment: clock.environment(),
        ..StackOptions::quick()
    };
    let mut stack = Stack::start(&options).unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol", "dave"]);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let bob = operator.raise("bob").unwrap();
    // Delegations without an epoch are invalid if issued before the raise, by any clock.
    clock.jump(-JUMP).unwrap();
    let carol = operator.raise("carol").unwrap();
    load.until_denied("carol", "revoked_principal").unwrap();
    clock.jump(JUMP).unwrap();
    let dave = operator.raise("dave").unwrap();
    load.until_denied("dave", "revoked_principal").unwrap();
    clock.jump(-JUMP).unwrap();
    load.go_on_beyond(Instant::now() + MAX_STALENESS, "alice").unwrap();

    // Filters notice its end no later, and the next control plane trusts its files.
    let killed = Instant::now();
    stack.control_plane.kill().unwrap();
    load.until_denied("alice", "stale").unwrap();
    let restarted = Instant::now();
    clock.jump(0).unwrap();
    stack.control_plane.restart().unwrap();
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(Instant::now(), "bob").unwrap();
    let seen = load.finish().unwrap();
    for (subject, confirmed) in [("bob", bob), ("carol", carol), ("dave", dave)] {
        seen.assert_no_late_allows(subject, confirmed.at);
    }
    seen.assert_none_allowed_between("alice", killed + MAX_STALENESS, restarted);
    assert!(
        seen.of("alice")
            .all(|answer| answer.status == 200 || answer.began > killed),
        "its clock denies no request while the control plane runs"
    );
}

#[test]
fn jumps_in_envoy_extend_no_lease_and_undo_no_revocation() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FalseClock::right(folder.path()).unwrap();
    let options = StackOptions {
        envoy_environment: clock.environment(),
        ..StackOptions::quick()
    };
    let link = Link::new().unwrap();
    let stack = stack_by(link.port(), options, |stack| link.lead_to(stack.control_plane.grpc()));
    let requests = ["alice", "bob", "carol"].map(|subject| (subject, lasting_request(&stack, subject)));
    let load = Load::start(&stack.envoy, &requests).unwrap();
    for subject in ["alice", "bob", "carol"] {
        load.until_allowed(subject).unwrap();
    }
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let bob = operator.raise("bob").unwrap();
    load.until_denied("bob", "revoked_principal").unwrap();
    for jump in [-JUMP, JUMP, 0, -JUMP] {
        clock.jump(jump).unwrap();
        load.go_on(Duration::from_millis(300));
        if jump < 0 {
            // This shows that Envoy uses that clock.
            let reply = stack.send(&request_for(&stack, "alice")).unwrap();
            assert_denied(&reply, 401, "issued_in_future");
        }
    }
    // While the path is cut, the clock jumps forward, and then far back.
    link.cut();
    let cut = Instant::now();
    let carol = operator.raise("carol").unwrap();
    load.until_denied("alice", "stale").unwrap();
    for jump in [JUMP, -JUMP, 0] {
        clock.jump(jump).unwrap();
        load.go_on(Duration::from_millis(500));
    }
    let mended = Instant::now();
    link.mend();
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(Instant::now(), "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_no_late_allows("carol", carol.at);
    seen.assert_none_allowed_between("alice", cut + MAX_STALENESS, mended);
    assert!(
        seen.of("alice")
            .all(|answer| answer.status == 200 || answer.began > cut),
        "the clock denies no request while the path works"
    );
}
