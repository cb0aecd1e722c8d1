//! Messages that arrive twice, in another order, or not at all.

use std::time::Instant;

use credence_e2e::late_allows::Load;
use credence_e2e::meddler::{Kind, Meddler, Message};
use credence_e2e::operator::Operator;
use credence_e2e::{Stack, StackOptions, waiting};

use super::{MAX_STALENESS, load_of, request_for, stack_by};

fn stack_behind_a_meddler() -> (Stack, Meddler) {
    let meddler = Meddler::new().unwrap();
    let stack = stack_by(meddler.port(), StackOptions::quick(), |stack| {
        meddler.lead_to(stack.control_plane.grpc());
    });
    (stack, meddler)
}

/// Revokes two principals while the proxy changes the stream, so that it has messages to swap and to drop. In the end
/// both are denied, and neither was allowed too late. Envoy's log has the filter's notice.
fn assert_noticed<M>(start: impl Fn() -> M + Send + Sync + 'static, notice: &str)
where
    M: FnMut(Message) -> Vec<Message> + Send + 'static,
{
    let (stack, meddler) = stack_behind_a_meddler();
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    meddler.meddle(start);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    let [bob, carol] = ["bob", "carol"].map(|subject| operator.commit(subject).unwrap().seq);
    waiting::until(format_args!("every filter to say {notice:?}"), || {
        Ok((stack.envoy.log().matches(notice).count() >= 3).then_some(()))
    })
    .unwrap();
    meddler.be_honest();
    let [bob, carol] = [bob, carol].map(|seq| operator.confirmed(seq).unwrap());
    for subject in ["bob", "carol"] {
        load.until_denied(subject, "revoked_principal").unwrap();
    }
    load.until_allowed("alice").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob);
    seen.assert_no_late_allows("carol", carol);
}

fn is_update(message: &Message) -> bool {
    message.kind == Kind::Update
}

#[test]
fn a_repeated_update_resets_the_stream() {
    let twice = || {
        |message: Message| {
            if is_update(&message) {
                vec![message.clone(), message]
            } else {
                vec![message]
            }
        }
    };
    assert_noticed(twice, "received update 1; expected 2");
}

#[test]
fn reordered_updates_reset_the_stream() {
    let swapped = || {
        let mut held = None;
        move |message: Message| match held.take() {
            None if is_update(&message) => {
                held = Some(message);
                Vec::new()
            }
            Some(first) if is_update(&message) => vec![message, first],
            first => first.into_iter().chain([message]).collect(),
        }
    };
    assert_noticed(swapped, "received update 2; expected 1");
}

#[test]
fn a_skipped_update_resets_the_stream_at_the_next_one() {
    let first_skipped = || {
        let mut skipped = false;
        move |message: Message| {
            let skip = is_update(&message) && !skipped;
            skipped |= skip;
            if skip { Vec::new() } else { vec![message] }
        }
    };
    assert_noticed(first_skipped, "received update 2; expected 1");
}

#[test]
fn a_repeated_ping_answer_resets_the_stream() {
    let twice = || {
        |message: Message| {
            if message.kind == Kind::Pong {
                vec![message.clone(), message]
            } else {
                vec![message]
            }
        }
    };
    assert_noticed(twice, "which was not sent on this stream or already answered");
}

/// No later update reveals it; only the answers to pings do, which name the end of the log. The filter asks for the
/// missing part.
#[test]
fn a_skipped_last_update_ends_the_lease() {
    let (stack, meddler) = stack_behind_a_meddler();
    let load = load_of(&stack, &["alice", "bob"]);
    meddler.meddle(|| |message: Message| if is_update(&message) { Vec::new() } else { vec![message] });
    let bob = Operator::of(&stack.control_plane).unwrap().raise("bob").unwrap();
    load.until_denied("alice", "stale").unwrap();
    load.go_on(2 * MAX_STALENESS);
    let honest = Instant::now();
    meddler.be_honest();
    load.until_allowed("alice").unwrap();
    load.until_denied("bob", "revoked_principal").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_none_allowed_between("alice", bob.at + MAX_STALENESS, honest);
}

/// What newly started filters receive.
#[test]
fn a_snapshot_with_repeated_or_skipped_chunks_is_not_applied() {
    let (mut stack, meddler) = stack_behind_a_meddler();
    let bob = request_for(&stack, "bob");
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    operator.commit("bob").unwrap();
    // Enough for several chunks of 64 KiB.
    for number in 0..SUBJECTS {
        operator.commit(&format!("{number:0>200}")).unwrap();
    }
    let chunk = |message: &Message| message.kind == Kind::Chunk;
    type Meddling = Box<dyn FnMut(Message) -> Vec<Message> + Send>;
    type Start = Box<dyn Fn() -> Meddling + Send + Sync>;
    let twice = move || -> Meddling {
        Box::new(move |message| {
            if chunk(&message) {
                vec![message.clone(), message]
            } else {
                vec![message]
            }
        })
    };
    let first_skipped = move || -> Meddling {
        let mut skipped = false;
        Box::new(move |message| {
            let skip = chunk(&message) && !skipped;
            skipped |= skip;
            if skip { Vec::new() } else { vec![message] }
        })
    };
    let cases: [(Start, &str); 2] = [
        (Box::new(twice), "received snapshot chunk 0; pulled chunk 1"),
        (Box::new(first_skipped), "nothing was received for"),
    ];
    for (meddling, notice) in cases {
        meddler.meddle(meddling);
        stack.restart_envoy_unsynced().unwrap();
        let load = Load::start(&stack.envoy, &[("bob", bob.clone())]).unwrap();
        waiting::until(format_args!("every filter to say {notice:?}"), || {
            Ok((stack.envoy.log().matches(notice).count() >= 3).then_some(()))
        })
        .unwrap();
        load.until_denied("bob", "not_ready").unwrap();
        meddler.be_honest();
        load.until_denied("bob", "revoked_principal").unwrap();
        let seen = load.finish().unwrap();
        assert!(seen.of("bob").all(|answer| answer.status != 200));
    }
}

const SUBJECTS: usize = 600;
