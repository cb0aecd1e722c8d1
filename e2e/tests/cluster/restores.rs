//! An etcd that was restored from a snapshot has the same ids, members and keys. No revocation is undone by it, and the
//! error names the cure.

use std::thread;
use std::time::Duration;

use credence_e2e::cluster::REPLICAS;
use credence_e2e::operator::Operator;

use super::{Cluster, MAX_STALENESS};

#[test]
#[ignore = "long: make soak runs it"]
fn a_restore_under_running_replicas_ends_them_and_allows_nothing() {
    restored_while_running(false);
}

#[test]
#[ignore = "long: make soak runs it"]
fn a_restore_with_bumped_revisions_under_running_replicas_ends_them_too() {
    restored_while_running(true);
}

#[test]
#[ignore = "long: make soak runs it"]
fn replicas_refuse_a_store_that_was_restored_while_they_were_stopped() {
    restored_while_stopped(false);
}

#[test]
fn replicas_refuse_bumped_revisions_too_and_a_declared_restore_continues_under_another_name() {
    let Some(mut cluster) = restored_while_stopped(true) else {
        return;
    };
    let old = cluster.replica(0).log_id().to_owned();
    cluster.replica(0).restart_restored().unwrap();
    assert_ne!(cluster.replica(0).log_id(), old);
    cluster.replica(1).restart().unwrap();
    let mut operator = Operator::of(cluster.replica(1)).unwrap();
    let raised = operator.raise_in_the_end("bob", 3 * MAX_STALENESS).unwrap();
    assert_eq!(raised.seq, 3, "alice, the not-before time, and bob");
}

fn restored_while_running(bumped: bool) {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = cluster.load_of(&["alice", "bob"]);
    let mut operator = Operator::of(cluster.replica(0)).unwrap();
    operator.raise("alice").unwrap();
    let snapshot = cluster.all.etcd.save_snapshot().unwrap();
    let bob = operator.raise("bob").unwrap();
    cluster.all.etcd.restore(&snapshot, bumped).unwrap();
    for nth in 0..REPLICAS {
        // A replica that no filter follows finds out with the next request.
        let _ = Operator::of(cluster.replica(nth)).and_then(|mut operator| operator.raise("carol"));
        let has_ended = cluster.replica(nth).has_ended_by(3 * MAX_STALENESS).unwrap();
        let said = cluster.replica(nth).log();
        assert!(has_ended && said.contains("--restored"), "replica {nth}: {said}");
    }
    load.go_on(MAX_STALENESS + Duration::from_secs(1));
    load.finish().unwrap().assert_no_late_allows("bob", bob.at);
}

fn restored_while_stopped(bumped: bool) -> Option<Cluster> {
    let mut cluster = Cluster::start()?;
    let mut operator = Operator::of(cluster.replica(0)).unwrap();
    operator.raise("alice").unwrap();
    let snapshot = cluster.all.etcd.save_snapshot().unwrap();
    operator.raise("bob").unwrap();
    // The index of histories, which is durable by then, remembers what a replica has seen.
    thread::sleep(Duration::from_secs(2));
    for nth in 0..REPLICAS {
        cluster.replica(nth).stop().unwrap();
    }
    cluster.all.etcd.restore(&snapshot, bumped).unwrap();
    for nth in 0..REPLICAS {
        let refused = cluster.replica(nth).restart().unwrap_err().to_string();
        let names = refused.contains("has seen entry 2") && refused.contains("--restored");
        assert!(names, "replica {nth}: {refused}");
    }
    Some(cluster)
}
