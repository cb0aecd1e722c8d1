//! Filters that start while revocations continue.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::forge::{Claims, Forger};
use credence_e2e::grants::READ;
use credence_e2e::operator::Operator;
use credence_e2e::{Client, ISSUER, Request, Stack, StackOptions, waiting};

use super::request_for;

/// The snapshot is large, so that many raises come between its first and its last chunk, and many updates follow at
/// once. From a worker's first allow on, it must deny all revoked principals.
#[test]
fn filters_that_load_a_snapshot_miss_no_update() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    fill(&stack, SUBJECTS);
    let alice = request_for(&stack, "alice");
    let is_done = AtomicBool::new(false);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    thread::scope(|scope| {
        let raiser = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            while !is_done.load(Ordering::Relaxed) {
                acknowledged.push(operator.commit(&person(acknowledged.len())).unwrap().at);
            }
            acknowledged
        });
        stack.restart_envoy_unsynced().unwrap();
        let workers = stack.envoy.connection_to_every_worker().unwrap();
        let joined: Vec<_> = workers
            .into_iter()
            .map(|client| scope.spawn(|| first_allow(client, &alice)))
            .map(|joining| joining.join().unwrap())
            .collect();
        thread::sleep(PROMPT);
        is_done.store(true, Ordering::Relaxed);
        let acknowledged = raiser.join().unwrap();
        // Without the ones from before Envoy started: only the time of joining matters.
        let earlier = acknowledged.len().saturating_sub(PEOPLE);
        let people = requests(&stack, earlier..acknowledged.len());
        for (mut client, first_allow) in joined {
            let before = acknowledged.iter().filter(|at| **at + PROMPT < first_allow).count();
            assert!(before > 100, "only {before} raises came before the first allow");
            assert!(
                acknowledged[earlier] < first_allow,
                "{PEOPLE} raises came after the first allow"
            );
            for (number, request) in (earlier..).zip(&people) {
                let began = Instant::now();
                let reply = client.send(request).unwrap();
                let late = began.saturating_duration_since(acknowledged[number] + PROMPT);
                assert!(
                    reply.status != 200 || late.is_zero(),
                    "raise {number} of {}, {before} of them before the first allow, is unknown {late:?} too late",
                    acknowledged.len()
                );
            }
        }
    });
}

/// Repeats the request until it is allowed, and returns when that one began.
fn first_allow(mut client: Client, request: &Request) -> (Client, Instant) {
    let began = waiting::until("a worker that has just started to allow a request", || {
        let began = Instant::now();
        Ok((client.send(request)?.status == 200).then_some(began))
    });
    (client, began.unwrap())
}

/// Raises this many principals that appear nowhere else.
fn fill(stack: &Stack, subjects: usize) {
    thread::scope(|scope| {
        for operator in 0..OPERATORS {
            scope.spawn(move || {
                let mut caller = Operator::of(&stack.control_plane).unwrap();
                for number in 0..subjects / OPERATORS {
                    caller.commit(&format!("subject-{operator}-{number}")).unwrap();
                }
            });
        }
    });
}

fn requests(stack: &Stack, people: Range<usize>) -> Vec<Request> {
    let [issuer, agent] = [&stack.issuer, &stack.agent].map(|key| Forger::from_file(&key.file).unwrap());
    let tools = READ.replacen('=', "\":", 1);
    let request = |number| {
        let claims = Claims::root(ISSUER, &person(number), &agent, &format!("{{\"{tools}}}")).unwrap();
        Request::get("/v1/catalog/book").delegation(issuer.token(&claims).unwrap())
    };
    people.map(request).collect()
}

fn person(number: usize) -> String {
    format!("person-{number}")
}

/// How long after its commit a joining worker may not know a revocation. This is long compared with the milliseconds
/// that it takes, as these tests run in parallel. It is short compared with any `max_staleness`, so that a revocation
/// that only a later resynchronisation brought does not pass.
const PROMPT: Duration = Duration::from_millis(500);
const SUBJECTS: usize = 20_000;
/// More than the raises while workers join.
const PEOPLE: usize = 6_000;
/// Raises that wait for the disk at the same time become durable together.
const OPERATORS: usize = 32;
