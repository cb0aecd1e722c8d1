//! Streams whose client does not read.

use std::thread;
use std::time::Instant;

use credence_e2e::operator::Operator;
use credence_e2e::subscriber::{Position, Said, Subscriber};
use credence_e2e::{Stack, StackOptions, process, waiting};

use super::load_of;

#[test]
fn stalled_streams_delay_no_other_are_cut_and_resume() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let control_plane = &stack.control_plane;
    let open = |position: Option<&Position>| {
        Subscriber::open_and_wait(control_plane.grpc(), control_plane.log_id(), position).unwrap()
    };
    let mut stalled: Vec<Subscriber> = (0..STALLED).map(|_| open(None)).collect();
    let load = load_of(&stack, &["alice", "bob"]);
    let mut operator = Operator::of(control_plane).unwrap();
    operator.raise("subject-0").unwrap();
    // Each has read this much. From now on, none reads.
    let read: Vec<Position> = stalled.iter_mut().map(next_update).collect();

    let before = process::resident_mib(control_plane.id()).unwrap();
    flood(&stack);
    let bob = operator.raise("bob").unwrap();
    load.go_on_beyond(bob.at, "bob").unwrap();
    let grown = process::resident_mib(control_plane.id()).unwrap() - before;
    assert!(grown < MEMORY_MIB, "{grown} MiB for {STALLED} streams that stall");
    load.finish().unwrap().assert_no_late_allows("bob", bob.at);

    waiting::until("those that stall to be cut", || {
        let cut = control_plane.metric(r#"credence_revocation_watch_ended_total{code="RESOURCE_EXHAUSTED"}"#)?;
        Ok((cut >= STALLED as f64).then_some(()))
    })
    .unwrap();
    drop(stalled);
    // One of them continues where it stopped, and misses no update.
    let mut resumed = open(read.first());
    for seq in 2..=2 + UPDATES as u64 {
        assert_eq!(next_update(&mut resumed).seq, seq);
    }
}

fn next_update(subscriber: &mut Subscriber) -> Position {
    loop {
        match subscriber.wait().unwrap() {
            Some(Said::Update(position)) => return position,
            Some(_) => {}
            None => panic!("the stream has ended"),
        }
    }
}

/// More than the windows of HTTP/2 and the system's buffers hold.
fn flood(stack: &Stack) {
    let begun = Instant::now();
    thread::scope(|scope| {
        for operator in 0..OPERATORS {
            scope.spawn(move || {
                let mut caller = Operator::of(&stack.control_plane).unwrap();
                for number in 0..UPDATES / OPERATORS {
                    // Names that make the updates long.
                    caller.commit(&format!("subject-{operator}-{number:0>200}")).unwrap();
                }
            });
        }
    });
    assert!(
        begun.elapsed() < waiting::PATIENCE,
        "{UPDATES} raises took {:?}",
        begun.elapsed()
    );
}

const STALLED: usize = 50;
const UPDATES: usize = 3_200;
const OPERATORS: usize = 16;
/// The log itself grows by a few MiB. Without a limit, the streams would hold half a KiB of each update: 80 MiB.
const MEMORY_MIB: f64 = 32.0;
