//! Faults of the control plane, its disk, its clock and the path to it: no request is allowed that began after a revocation
//! was confirmed, and no evidence is lost that was acknowledged.
//!
//! `Load` keeps asking every worker throughout, and tells afterwards what was allowed and when it began.

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

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use credence_e2e::grants::READ;
use credence_e2e::late_allows::Load;
use credence_e2e::{Request, Stack, StackOptions};

/// Of [`StackOptions::quick`]: how long a worker may go on without a word from the control plane.
const MAX_STALENESS: Duration = Duration::from_secs(2);

/// A request that this person's delegation allows as long as nothing is revoked.
fn request_for(stack: &Stack, subject: &str) -> Request {
    let chain = stack.mint(subject, &["--tool", READ]).unwrap();
    Request::get("/v1/catalog/book").delegation(&chain)
}

/// Load with the delegations of these people, once every worker allows them all.
fn load_of(stack: &Stack, subjects: &[&str]) -> Load {
    let requests: Vec<(&str, Request)> = subjects.iter().map(|name| (*name, request_for(stack, name))).collect();
    let load = Load::start(&stack.envoy, &requests).unwrap();
    for subject in subjects {
        load.until_allowed(subject).unwrap();
    }
    load
}

/// A stack whose filters reach the control plane over a path that leads by `port`; `lead` makes it lead there.
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

/// With files that only their owner can read, as the control plane has them.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}
