//! One control plane takes the place of another.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::assertions::assert_denied;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::grants::READ;
use credence_e2e::late_allows::{Load, PROMPT};
use credence_e2e::link::Link;
use credence_e2e::operator::{Acknowledged, Operator};
use credence_e2e::subscriber::{Said, Subscriber};
use credence_e2e::{Request, Stack, StackOptions, waiting};

use super::{MAX_STALENESS, copy_folder, load_of, stack_by};

#[test]
fn that_takes_over_the_data_folder_elsewhere_goes_on_where_the_other_ended() {
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
    load.until_denied("carol", "revoked_principal").unwrap();
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(carol.at + MAX_STALENESS, "bob").unwrap();
    let seen = load.finish().unwrap();
    // Killed at once after the answer: the update may not have left, and the lease is what bounds it.
    seen.assert_no_late_allows("bob", bob.at + MAX_STALENESS);
    seen.assert_no_late_allows("carol", carol.at + MAX_STALENESS);
}

#[test]
fn of_another_log_at_the_same_address_is_not_believed() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), StackOptions::quick(), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob"]);
    let revoked = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    load.until_denied("bob", "revoked_principal").unwrap();

    // In this one nobody was ever revoked.
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
    load.finish().unwrap().assert_no_late_allows("bob", revoked.at + PROMPT);
}

#[test]
fn as_an_upgrade_costs_no_request_and_no_revocation() {
    let options = StackOptions {
        serve_options: ["--drain-promise", "8s"].map(str::to_owned).to_vec(),
        ..StackOptions::quick()
    };
    let mut stack = Stack::start(&options).unwrap();
    let upgrade = stack.folder().join("credence-upgraded");
    fs::copy(stack.credence.program(), &upgrade).unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let bob = operator.raise("bob").unwrap();
    // Somebody revokes all through it, and tries again as long as it takes.
    let caller = thread::spawn(move || operator.raise_in_the_end("carol", Duration::from_secs(20)));
    let status = stack.control_plane.stop().unwrap();
    assert!(status.success(), "{status}");
    stack.control_plane.upgrade_to(&upgrade);
    stack.control_plane.restart().unwrap();
    let carol = caller.join().unwrap().unwrap();
    load.go_on_beyond(carol.at + 2 * MAX_STALENESS, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_always_allowed("alice");
    seen.assert_no_late_allows("bob", bob.at + PROMPT);
    seen.assert_no_late_allows("carol", carol.at + PROMPT);
}

/// Of a stack whose control plane promises so much when it is stopped as planned.
fn promising(promise: Duration) -> StackOptions {
    let promise = format!("{}s", promise.as_secs());
    StackOptions {
        serve_options: vec!["--drain-promise".to_owned(), promise],
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

/// Has bob revoked as soon as that is accepted, and returns how long it took.
fn until_accepted(stack: &Stack) -> (Duration, Acknowledged) {
    let asked = Instant::now();
    let bob = Operator::of(&stack.control_plane)
        .unwrap()
        .raise_in_the_end("bob", 2 * LONG)
        .unwrap();
    (bob.at - asked, bob)
}

/// That nobody noticed the restart, and everybody the revocation.
fn assert_nothing_was_lost(load: Load, bob: Acknowledged) {
    load.go_on_beyond(bob.at + 2 * MAX_STALENESS, "bob").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_always_allowed("alice");
    seen.assert_no_late_allows("bob", bob.at + PROMPT);
}

#[test]
fn of_one_that_stopped_as_planned_revokes_as_soon_as_the_filters_are_back() {
    let mut stack = stack_promising(LONG);
    let load = load_of(&stack, &["alice", "bob"]);
    stop_as_planned(&mut stack);
    // By now filters have nothing but the promise, and try to come back as rarely as they ever do.
    load.go_on(2 * MAX_STALENESS);
    stack.control_plane.restart().unwrap();
    let (took, bob) = until_accepted(&stack);
    println!("accepted {took:?} after the successor was ready");
    assert!(took < SOON, "{took:?}");
    assert_nothing_was_lost(load, bob);
}

#[test]
fn that_is_stopped_as_planned_itself_hands_on_what_it_still_had_to_keep() {
    let mut stack = stack_promising(LONG);
    let load = load_of(&stack, &["alice", "bob"]);
    for _ in 0..3 {
        // Before, while or after the filters come back, as it happens.
        stop_as_planned(&mut stack);
        stack.control_plane.restart().unwrap();
    }
    let (took, bob) = until_accepted(&stack);
    assert!(took < SOON, "{took:?}");
    assert_nothing_was_lost(load, bob);
}

#[test]
fn that_crashes_within_the_promise_is_followed_by_one_that_waits_for_the_filters_again() {
    let mut stack = stack_promising(LONG);
    let load = load_of(&stack, &["alice", "bob"]);
    stop_as_planned(&mut stack);
    stack.control_plane.restart().unwrap();
    stack.control_plane.kill().unwrap();
    stack.control_plane.restart().unwrap();
    let (took, bob) = until_accepted(&stack);
    assert!(took < SOON, "{took:?}");
    assert_nothing_was_lost(load, bob);
}

#[test]
fn waits_out_the_promise_for_a_filter_that_does_not_come_back() {
    const PROMISE: Duration = Duration::from_secs(8);
    let mut stack = stack_promising(PROMISE);
    let load = load_of(&stack, &["alice", "bob"]);
    // One more that is promised the quiet, and is gone when it is over.
    let grpc = stack.control_plane.grpc();
    let mut gone = Subscriber::open_and_wait(grpc, stack.control_plane.log_id(), None).unwrap();
    gone.ping(1).unwrap();
    while !matches!(gone.wait().unwrap(), Some(Said::Pong(_))) {}
    let stopping = Instant::now();
    stop_as_planned(&mut stack);
    drop(gone);
    stack.control_plane.restart().unwrap();
    let (_, bob) = until_accepted(&stack);
    let took = bob.at - stopping;
    assert!(took >= PROMISE, "{took:?}");
    assert_nothing_was_lost(load, bob);
}

#[test]
fn waits_out_the_promise_for_filters_that_live_on_it_cut_off() {
    const PROMISE: Duration = Duration::from_secs(8);
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), promising(PROMISE), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob"]);
    let stopping = Instant::now();
    stop_as_planned(&mut stack);
    link.cut();
    let cut = Instant::now();
    stack.control_plane.restart().unwrap();
    let (_, bob) = until_accepted(&stack);
    assert!(bob.at - stopping >= PROMISE, "{:?}", bob.at - stopping);
    load.until_denied("alice", "stale").unwrap();
    link.mend();
    load.until_allowed("alice").unwrap();
    load.until_denied("bob", "revoked_principal").unwrap();
    let seen = load.finish().unwrap();
    assert!(
        !seen.late_allows("bob", cut + 2 * MAX_STALENESS).is_empty(),
        "without the promise nobody would have been allowed any more"
    );
    // Not even for as long as a lease lasts.
    seen.assert_no_late_allows("bob", bob.at);
}

#[test]
fn that_has_the_filters_back_and_loses_them_again_is_believed_no_longer_than_its_echoes() {
    let link = Link::new().unwrap();
    let mut stack = stack_by(link.port(), promising(LONG), |stack| {
        link.lead_to(stack.control_plane.grpc());
    });
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    stop_as_planned(&mut stack);
    stack.control_plane.restart().unwrap();
    let (took, _) = until_accepted(&stack);
    assert!(took < SOON, "{took:?}");
    link.cut();
    let carol = Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    load.until_denied("alice", "stale").unwrap();
    load.go_on_beyond(carol.at + 2 * MAX_STALENESS, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("carol", carol.at + MAX_STALENESS);
}

#[test]
fn waits_out_the_promise_for_an_envoy_that_was_killed() {
    const PROMISE: Duration = Duration::from_secs(5);
    let mut stack = stack_promising(PROMISE);
    let stopping = Instant::now();
    stop_as_planned(&mut stack);
    stack.envoy.kill().unwrap();
    stack.control_plane.restart().unwrap();
    let (_, bob) = until_accepted(&stack);
    let took = bob.at - stopping;
    assert!(took >= PROMISE, "{took:?}");
}

/// A promise that no test waits out.
const LONG: Duration = Duration::from_secs(20);
/// Filters try to come back at least once a second.
const SOON: Duration = Duration::from_secs(4);

/// The data folder that release 0.1.0 left behind when it was stopped: bob raised, carol
/// disabled, and one of alice's delegations revoked.
#[test]
fn that_is_newer_serves_the_data_folder_of_the_release_before() {
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/data-folder-0.1.0");
    let log_id = fs::read_to_string(written.join("log/id")).unwrap().trim().to_owned();
    let options = StackOptions {
        log_id: Some(log_id),
        unsynced: true,
        ..StackOptions::quick()
    };
    let mut stack = Stack::start(&options).unwrap();
    stack.control_plane.kill().unwrap();
    let data = stack.control_plane.data_folder();
    fs::remove_dir_all(&data).unwrap();
    copy_folder(&written, &data);
    stack.control_plane.restart().unwrap();
    stack.wait_until_synced().unwrap();
    for (subject, reason) in [("bob", "revoked_principal"), ("carol", "disabled_principal")] {
        let of_before = stack.mint(subject, &["--tool", READ, "--epoch", "0"]).unwrap();
        let request = Request::get("/v1/catalog/book").delegation(&of_before);
        assert_denied(&stack.send(&request).unwrap(), 401, reason);
    }
    let load = load_of(&stack, &["alice"]);
    let alice = Operator::of(&stack.control_plane).unwrap().raise("alice").unwrap();
    load.go_on_beyond(alice.at + PROMPT, "alice").unwrap();
    load.finish().unwrap().assert_no_late_allows("alice", alice.at + PROMPT);
}
