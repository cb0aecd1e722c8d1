//! A full or read-only disk below the ledger.

use credence_e2e::control_plane::ControlPlane;
use credence_e2e::operator::Operator;
use credence_e2e::small_disk::SmallDisk;
use credence_e2e::tracer::Tracer;
use credence_e2e::{Request, waiting};
use tempfile::TempDir;

use super::{Reporters, SLOW, assert_complete, program};

/// A control plane whose ledger is on a small disk; `None` if the system does not allow one.
fn on_a_small_disk() -> Option<(TempDir, SmallDisk, ControlPlane)> {
    let folder = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(&program(), folder.path(), &["--ledger-reserve=0".to_owned()]).unwrap();
    control_plane.kill().unwrap();
    let ledger = control_plane.data_dir().join("ledger");
    let disk = SmallDisk::over(&ledger, DISK_MIB, folder.path()).unwrap()?;
    control_plane.upgrade_to(&disk.program(&program()).unwrap());
    Some((folder, disk, control_plane))
}

/// The reports of the fault, and the service meanwhile.
fn assert_trouble_shows_and_revocations_go_on(control_plane: &ControlPlane, reporters: &Reporters, word: &str) {
    let refused_before: Vec<usize> = reporters
        .0
        .iter()
        .map(|(_, reporter)| reporter.told().refusals.len())
        .collect();
    waiting::until("/readyz to say that evidence is refused, and why", || {
        // After a start, it may not be listening yet.
        let Ok(reply) = control_plane.send(&Request::get("/readyz")) else {
            return Ok(None);
        };
        let says = reply.text();
        let is_clear = reply.status == 503
            && says.contains("evidence is refused (revocations are not affected)")
            && says.contains(word);
        Ok(is_clear.then_some(()))
    })
    .unwrap();
    assert_eq!(control_plane.metric("credence_ledger_writable").unwrap(), 0.0);
    waiting::until("the log to say why", || {
        Ok(control_plane.log().contains(word).then_some(()))
    })
    .unwrap();
    let mut operator = Operator::of(control_plane).unwrap();
    for number in 0..20 {
        operator.commit(&format!("subject-{number}")).unwrap();
    }
    for ((label, reporter), before) in reporters.0.iter().zip(refused_before) {
        waiting::until(format_args!("{label} to be refused"), || {
            let told = reporter.told();
            // With UNAVAILABLE: another status would break a promise.
            Ok((told.refusals.len() > before).then_some(()))
        })
        .unwrap();
    }
}

/// It recovers by itself, with all acknowledged evidence.
fn assert_recovers(mut control_plane: ControlPlane, reporters: Reporters) {
    control_plane.wait_until_ready().unwrap();
    reporters.until_acknowledged_again();
    assert_eq!(control_plane.metric("credence_ledger_writable").unwrap(), 1.0);
    let sources = reporters.finish();
    assert_complete(&control_plane, &sources);
    control_plane.kill().unwrap();
    control_plane.restart().unwrap();
    assert_complete(&control_plane, &sources);
}

#[test]
fn a_full_disk_refuses_evidence_until_there_is_space() {
    let Some((_folder, disk, mut control_plane)) = on_a_small_disk() else {
        return;
    };
    control_plane.restart().unwrap();
    let reporters = Reporters::start(&control_plane, SOURCES, SLOW);
    reporters.until_acknowledged_again();
    // Repeatedly: a refused write must leave nothing behind that blocks the next one.
    for _ in 0..3 {
        disk.fill().unwrap();
        assert_trouble_shows_and_revocations_go_on(&control_plane, &reporters, "No space left on device");
        disk.free().unwrap();
        control_plane.wait_until_ready().unwrap();
        reporters.until_acknowledged_again();
    }
    assert_recovers(control_plane, reporters);
}

#[test]
fn a_control_plane_that_is_killed_on_a_full_disk_recovers() {
    let Some((_folder, disk, mut control_plane)) = on_a_small_disk() else {
        return;
    };
    control_plane.restart().unwrap();
    let reporters = Reporters::start(&control_plane, SOURCES, SLOW);
    reporters.until_acknowledged_again();
    disk.fill().unwrap();
    assert_trouble_shows_and_revocations_go_on(&control_plane, &reporters, "No space left on device");
    control_plane.kill().unwrap();
    control_plane.restart_and_not_wait().unwrap();
    assert_trouble_shows_and_revocations_go_on(&control_plane, &reporters, "No space left on device");
    disk.free().unwrap();
    assert_recovers(control_plane, reporters);
}

#[test]
fn a_shared_disk_keeps_space_for_revocations() {
    let folder = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(&program(), folder.path(), &[]).unwrap();
    control_plane.kill().unwrap();
    let Some(disk) = SmallDisk::over(&control_plane.data_dir(), SHARED_MIB, folder.path()).unwrap() else {
        return;
    };
    control_plane.upgrade_to(&disk.program(&program()).unwrap());
    control_plane.restart().unwrap();
    let reporters = Reporters::start(&control_plane, SOURCES, SLOW);
    reporters.until_acknowledged_again();
    // Half of the space that the ledger leaves free on such a disk.
    disk.fill_but(SHARED_MIB / 32).unwrap();
    assert_trouble_shows_and_revocations_go_on(&control_plane, &reporters, "--ledger-reserve");
    disk.free().unwrap();
    assert_recovers(control_plane, reporters);
}

/// As a file system does to itself when its disk fails.
#[test]
fn a_read_only_disk_refuses_evidence_until_it_is_writable() {
    refuses_for_a_while(
        "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,fdatasync,fsync",
        "EROFS",
        "Read-only file system",
    );
}

/// After a failed sync, earlier writes may not be on the disk, even if the next sync succeeds.
#[test]
fn a_disk_that_cannot_sync_refuses_evidence_until_it_can() {
    refuses_for_a_while("fdatasync,fsync", "EIO", "Input/output error");
}

fn refuses_for_a_while(calls: &str, error: &str, word: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut control_plane = ControlPlane::start(&program(), folder.path(), &[]).unwrap();
    let reporters = Reporters::start(&control_plane, SOURCES, SLOW);
    for _ in 0..2 {
        reporters.until_acknowledged_again();
        let refusing = Tracer::meddle(
            calls,
            &format!("error={error}"),
            (control_plane.id(), WRITER),
            &control_plane.data_dir().join("ledger"),
            folder.path(),
        )
        .unwrap();
        assert_trouble_shows_and_revocations_go_on(&control_plane, &reporters, word);
        drop(refusing);
        control_plane.wait_until_ready().unwrap();
    }
    assert_recovers(control_plane, reporters);
}

const SOURCES: usize = 2;
const DISK_MIB: u32 = 32;
/// Includes the space that the log reserves.
const SHARED_MIB: u32 = 128;
/// The thread that writes the ledger.
const WRITER: &str = "ledger";
