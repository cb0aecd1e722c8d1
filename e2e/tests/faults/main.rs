//! Faults of the control plane, its disk, its clock and the path to it. No request is allowed that began after a
//! revocation was confirmed, and no acknowledged evidence is lost.
//!
//! `Load` asks every worker throughout, and reports which requests were allowed and when they began.

mod clock;
mod crash;
mod damaged_log;
mod failing_disk;
mod joining;
mod ledger;
mod meddling;
mod partition;
mod slow_subscriber;
mod succession;

use std::time::Duration;

use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::{Request, Stack, StackOptions};

/// In [`StackOptions::quick`]: how long a worker may decide without an answer from the control plane.
const MAX_STALENESS: Duration = Duration::from_secs(2);

/// A request with this person's delegation, allowed until a revocation.
fn request_for(stack: &Stack, subject: &str) -> Request {
    let chain = stack.mint(subject, &["--tool", READ]).unwrap();
    Request::get("/v1/catalog/book").delegation(&chain)
}

/// Load with the delegations of these people, once every worker allows all of them.
fn load_of(stack: &Stack, subjects: &[&str]) -> Load {
    let requests: Vec<(&str, Request)> = subjects.iter().map(|name| (*name, request_for(stack, name))).collect();
    let load = Load::start(&stack.envoy, &requests).unwrap();
    for subject in subjects {
        load.until_allowed(subject).unwrap();
    }
    load
}

/// A stack whose filters reach the control plane through `port`; `lead` connects it.
fn stack_by(port: u16, options: StackOptions, lead: impl FnOnce(&Stack)) -> Stack {
    let stack = Stack::start(&StackOptions {
        control_plane_port: Some(port),
        unsynced: true,
        ..options
    });
    let stack = stack.unwrap();
    lead(&stack);
    stack.wait_until_synced().unwrap();
    stack
}
