//! One control plane replaces another.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::late_allows::Load;
use credence_e2e::link::Link;
use credence_e2e::operator::{Acknowledged, Operator};
use credence_e2e::{Stack, StackOptions, waiting};

use super::{MAX_STALENESS, load_of, stack_by};

#[test]
fn a_new_address_with_the_same_data_directory_continues_the_log() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), StackOptions::quick(), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    stack.control_plane.kill().unwrap();
    stack.control_plane.restart_elsewhere().unwrap();
    link.lead_to(stack.control_plane.grpc());
    let carol = Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(carol.at + MAX_STALENESS, "bob").unwrap();
    load.go_on_beyond(carol.at, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_no_late_allows("carol", carol.at);
}

#[test]
fn another_log_at_the_same_address_is_refused() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), StackOptions::quick(), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob"]);
    let revoked = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();

    // No principal was revoked in this one.
    let elsewhere = tempfile::tempdir().unwrap();
    let program = Artefacts::from_environment().unwrap().credence;
    let other = ControlPlane::start(&program, elsewhere.path(), &[]).unwrap();
    link.lead_to(other.grpc());
    stack.control_plane.kill().unwrap();
    load.until_denied("alice", "stale").unwrap();
    let cure = "pin its new log_id in the plugin configuration";
    waiting::until("the cure to stand in Envoy's log", || {
        Ok(stack.envoy.log().contains(cure).then_some(()))
    })
    .unwrap();

    stack.control_plane.restart().unwrap();
    link.lead_to(stack.control_plane.grpc());
    drop(other);
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(Instant::now(), "bob").unwrap();
    load.finish().unwrap().assert_no_late_allows("bob", revoked.at);
}

#[test]
fn an_upgrade_loses_no_request_and_no_revocation() {
    let mut stack = stack_promising(PROMISE);
    let upgrade = stack.folder().join("credence-upgraded");
    fs::copy(stack.credence.program(), &upgrade).unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let bob = operator.raise("bob").unwrap();
    // A client revokes during the whole upgrade, and retries until it succeeds.
    let caller = thread::spawn(move || operator.raise_in_the_end("carol", Duration::from_secs(20)));
    stop_as_planned(&mut stack);
    stack.control_plane.upgrade_to(&upgrade);
    stack.control_plane.restart().unwrap();
    let carol = caller.join().unwrap().unwrap();
    load.go_on_beyond(carol.at + MAX_STALENESS, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_always_allowed("alice");
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_no_late_allows("carol", carol.at);
}

/// A stack whose control plane gives this drain promise on a planned stop.
fn promising(promise: Duration) -> StackOptions {
    let promise = format!("{}s", promise.as_secs());
    StackOptions {
        serve_options: ["--max-staleness", "2s", "--drain-promise", &promise]
            .map(str::to_owned)
            .to_vec(),
        ..StackOptions::quick()
    }
}

fn stack_promising(promise: Duration) -> Stack {
    Stack::start(&promising(promise)).unwrap()
}

fn stop_as_planned(stack: &mut Stack) {
    let status = stack.control_plane.stop().unwrap();
    assert!(status.success(), "{status}");
}

/// Asserts that the restart denied no request, and that the revocation took effect in time.
fn assert_nothing_was_lost(load: Load, bob: Acknowledged) {
    load.go_on_beyond(bob.at + MAX_STALENESS, "bob").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_always_allowed("alice");
    seen.assert_no_late_allows("bob", bob.at);
}

#[test]
fn after_a_planned_stop_revocations_are_confirmed_once_the_drain_promise_has_ended() {
    const LONG: Duration = Duration::from_secs(10);
    let mut stack = stack_promising(LONG);
    let load = load_of(&stack, &["alice", "bob"]);
    stop_as_planned(&mut stack);
    // By now, the filters stay fresh only through the drain promise.
    load.go_on(MAX_STALENESS + Duration::from_secs(1));
    let restarted = Instant::now();
    stack.control_plane.restart().unwrap();
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let committed = operator.commit("bob").unwrap();
    let took = committed.at - committed.began;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let bob = Acknowledged {
        at: operator.confirmed(committed.seq).unwrap(),
        ..committed
    };
    assert!(bob.at - restarted >= LONG, "{:?}", bob.at - restarted);
    assert_nothing_was_lost(load, bob);
}

#[test]
fn a_second_planned_stop_hands_the_drain_promise_on() {
    let mut stack = stack_promising(PROMISE);
    let load = load_of(&stack, &["alice", "bob"]);
    for _ in 0..3 {
        // Before, while or after the filters reconnect.
        stop_as_planned(&mut stack);
        stack.control_plane.restart().unwrap();
    }
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    assert_nothing_was_lost(load, bob);
}

#[test]
fn after_a_crash_within_the_drain_promise_the_next_one_waits_again() {
    let mut stack = stack_promising(PROMISE);
    let load = load_of(&stack, &["alice", "bob"]);
    stop_as_planned(&mut stack);
    stack.control_plane.restart().unwrap();
    stack.control_plane.kill().unwrap();
    let restarted = Instant::now();
    stack.control_plane.restart().unwrap();
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    assert!(bob.at - restarted >= PROMISE, "{:?}", bob.at - restarted);
    assert_nothing_was_lost(load, bob);
}

#[test]
fn the_drain_promise_is_waited_out_for_filters_that_are_cut_off() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), promising(PROMISE), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob"]);
    stop_as_planned(&mut stack);
    link.cut();
    let cut = Instant::now();
    stack.control_plane.restart().unwrap();
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    load.until_denied("alice", "stale").unwrap();
    link.mend();
    load.until_allowed("alice").unwrap();
    load.until_denied("bob", "revoked_principal").unwrap();
    let seen = load.finish().unwrap();
    assert!(
        !seen.late_allows("bob", cut + 2 * MAX_STALENESS).is_empty(),
        "without the drain promise, requests would have been denied"
    );
    seen.assert_no_late_allows("bob", bob.at);
}

#[test]
fn after_reconnecting_filters_stay_fresh_only_by_new_ping_answers() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), promising(PROMISE), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    stop_as_planned(&mut stack);
    stack.control_plane.restart().unwrap();
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    operator.raise("bob").unwrap();
    link.cut();
    let carol = operator.raise("carol").unwrap();
    let took = carol.at - carol.began;
    assert!(took < MAX_STALENESS + Duration::from_secs(1), "{took:?}");
    load.until_denied("alice", "stale").unwrap();
    load.go_on_beyond(carol.at + MAX_STALENESS, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("carol", carol.at);
}

/// Longer than a lease, by enough to tell them apart.
const PROMISE: Duration = Duration::from_secs(6);
