//! A revocation log on a full or failing disk.

use std::time::Duration;

use credence_e2e::artefacts::Artefacts;
use credence_e2e::operator::Operator;
use credence_e2e::small_disk::SmallDisk;
use credence_e2e::tracer::Tracer;
use credence_e2e::{Stack, StackOptions, waiting};

use super::{MAX_STALENESS, load_of};

#[test]
fn a_full_disk_takes_revocations_in_the_space_reserved_for_them() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    stack.control_plane.kill().unwrap();
    let Some(disk) = SmallDisk::over(&stack.control_plane.data_dir(), DISK_MIB, stack.folder()).unwrap() else {
        return;
    };
    let program = Artefacts::from_environment().unwrap().credence;
    stack.control_plane.upgrade_to(&disk.program(&program).unwrap());
    stack.control_plane.restart().unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    operator.commit("subject").unwrap();
    let words = "reserved disk space for revocations";
    waiting::until("room to be kept", || {
        Ok(stack.control_plane.log().contains(words).then_some(()))
    })
    .unwrap();

    disk.fill().unwrap();
    // More than the file's free pages hold: the first ones need no space.
    let mut taken = 0;
    while !stack.control_plane.log().contains("the disk is full") {
        operator.commit(&format!("subject-{taken}")).unwrap();
        taken += 1;
        assert!(taken < 20_000, "the log does not grow");
    }
    let bob = operator.raise("bob").unwrap();
    stack.control_plane.kill().unwrap();
    stack.control_plane.restart().unwrap();
    let carol = Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    load.until_allowed("alice").unwrap();

    disk.free().unwrap();
    let kept = stack.control_plane.log().matches(words).count();
    Operator::of(&stack.control_plane).unwrap().commit("subject").unwrap();
    waiting::until("room to be kept again", || {
        Ok((stack.control_plane.log().matches(words).count() > kept).then_some(()))
    })
    .unwrap();
    load.go_on_beyond(carol.at, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_no_late_allows("carol", carol.at);
}

/// After a failed sync, earlier writes may not be on the disk, even if the next sync succeeds. So the log is opened and
/// read again, without a restart.
#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_the_disk_syncs_again() {
    let mut stack = Stack::start(&StackOptions::quick()).unwrap();
    let load = load_of(&stack, &["alice", "bob", "carol"]);
    let failing = Tracer::meddle(
        "fdatasync,fsync",
        "error=EIO",
        (stack.control_plane.id(), WRITER),
        &stack.control_plane.data_dir().join("log"),
        stack.folder(),
    )
    .unwrap();
    let mut operator = Operator::of(&stack.control_plane).unwrap();
    for _ in 0..5 {
        let refused = operator.commit("bob").unwrap_err().to_string();
        assert!(
            refused.contains("503") && refused.contains("Input/output error"),
            "{refused}"
        );
    }
    assert_eq!(
        stack.control_plane.metric("credence_revocation_log_writable").unwrap(),
        0.0
    );
    drop(failing);
    let bob = operator.raise_in_the_end("bob", Duration::from_secs(20)).unwrap();
    assert_eq!(
        stack.control_plane.metric("credence_revocation_log_writable").unwrap(),
        1.0
    );
    stack.control_plane.kill().unwrap();
    stack.control_plane.restart().unwrap();
    let carol = Operator::of(&stack.control_plane).unwrap().raise("carol").unwrap();
    load.until_allowed("alice").unwrap();
    load.go_on_beyond(carol.at + MAX_STALENESS, "carol").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_no_late_allows("bob", bob.at);
    seen.assert_no_late_allows("carol", carol.at);
}

const DISK_MIB: u32 = 128;
/// The thread that writes the log.
const WRITER: &str = "revocation-log";
