//! A slow disk below the ledger, and a control plane that hangs with it.

use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::grants::READ;
use credence_e2e::tracer::Tracer;
use credence_e2e::{Request, Stack, StackOptions};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_slow_disk_delays_evidence_and_no_request() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let slow = Tracer::meddle(
        "fdatasync,fsync",
        "delay_enter=1s",
        (stack.control_plane.id(), "ledger"),
        &stack.control_plane.data_dir().join("ledger"),
        stack.folder(),
    )
    .unwrap();
    let slowest = slowest_of_many_requests(&stack);
    assert!(slowest < DELAY / 2, "a request took {slowest:?}, a sync {DELAY:?}");
    drop(slow);
    stack.until_all_is_accounted_for().unwrap();
}

#[test]
fn a_disk_that_stops_the_control_plane_delays_no_request() {
    let stack = Stack::start(&StackOptions::quick()).unwrap();
    let process = i32::try_from(stack.control_plane.id())
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let slowest = slowest_of_many_requests(&stack);
    kill_process(process, Signal::CONT).unwrap();
    assert!(slowest < DELAY / 2, "a request took {slowest:?}");
    stack.until_all_is_accounted_for().unwrap();
}

/// For about the time of one sync, on every worker.
fn slowest_of_many_requests(stack: &Stack) -> Duration {
    let chain = stack.mint("alice", &["--tool", READ]).unwrap();
    let request = Request::get("/v1/catalog/book").delegation(&chain);
    let workers = stack.envoy.connection_to_every_worker().unwrap();
    let begun = Instant::now();
    let slowest = |mut client: credence_e2e::Client| {
        let mut slowest = Duration::ZERO;
        while begun.elapsed() < DELAY {
            let reply = client.send(&request).unwrap();
            assert_eq!(reply.status, 200);
            slowest = slowest.max(reply.latency);
        }
        slowest
    };
    thread::scope(|scope| {
        let asking: Vec<_> = workers
            .into_iter()
            .map(|client| scope.spawn(|| slowest(client)))
            .collect();
        asking.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    })
}

const DELAY: Duration = Duration::from_secs(1);
