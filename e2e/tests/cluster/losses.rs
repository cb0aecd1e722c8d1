//! No single loss is noticed, and no revocation is lost.

use std::time::{Duration, Instant};

use credence_e2e::audit::Record;
use credence_e2e::cluster::REPLICAS;
use credence_e2e::operator::Operator;
use credence_e2e::waiting;

use super::{Cluster, MAX_STALENESS};

#[test]
fn a_revocation_at_any_replica_holds_in_every_filter() {
    let Some(mut cluster) = Cluster::start() else { return };
    let subjects = ["alice", "bob", "carol"];
    let load = cluster.load_of(&subjects);
    let raised = subjects.iter().enumerate().map(|(nth, subject)| {
        let mut operator = Operator::of(cluster.replica(nth)).unwrap();
        (*subject, operator.raise(subject).unwrap())
    });
    let raised: Vec<_> = raised.collect();
    for (subject, raised) in &raised {
        load.go_on_beyond(raised.at, subject).unwrap();
    }
    let seen = load.finish().unwrap();
    for (subject, raised) in &raised {
        seen.assert_no_late_allows(subject, raised.at);
    }
    let seqs: Vec<_> = raised.iter().map(|(_, raised)| raised.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn the_loss_of_any_replica_denies_nothing_and_loses_no_revocation() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = cluster.load_of(&["alice", "bob0", "bob1", "bob2"]);
    for (nth, subject) in ["bob0", "bob1", "bob2"].iter().enumerate() {
        cluster.replica(nth).kill().unwrap();
        let survivor = (nth + 1) % REPLICAS;
        let mut operator = Operator::of(cluster.replica(survivor)).unwrap();
        let raised = operator.raise_in_the_end(subject, 3 * MAX_STALENESS).unwrap();
        load.go_on_beyond(raised.at + MAX_STALENESS, subject).unwrap();
        cluster.replica(nth).restart().unwrap();
        load.until_denied(subject, "revoked_principal").unwrap();
    }
    load.finish().unwrap().assert_always_allowed("alice");
}

#[test]
fn the_loss_of_any_member_of_etcd_denies_nothing() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = cluster.load_of(&["alice", "bob"]);
    for member in cluster.all.etcd.members() {
        cluster.all.etcd.member(member).kill().unwrap();
        load.go_on(MAX_STALENESS + Duration::from_secs(1));
        cluster.all.etcd.restart(member).unwrap();
    }
    let raised = Operator::of(cluster.replica(0)).unwrap().raise("bob").unwrap();
    load.go_on_beyond(raised.at, "bob").unwrap();
    let seen = load.finish().unwrap();
    seen.assert_always_allowed("alice");
    seen.assert_no_late_allows("bob", raised.at);
}

/// The ledgers of three replicas have it together: each source says where it went, and what two ledgers have counts once.
#[test]
fn evidence_of_filters_that_move_is_complete_and_counts_once() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = cluster.load_of(&["alice"]);
    for nth in 0..REPLICAS {
        cluster.replica(nth).kill().unwrap();
        load.go_on(Duration::from_secs(2));
        cluster.replica(nth).restart().unwrap();
        load.go_on(Duration::from_secs(1));
    }
    load.finish().unwrap().assert_always_allowed("alice");
    let sent = cluster.stack().envoy.stat("http.ingress.downstream_rq_total").unwrap();
    waiting::until("every request to be in one of the ledgers", || {
        let printed = cluster.all.audit(&["query", "--json", "--limit", "1000000"])?;
        let records = printed
            .lines()
            .map(|line| serde_json::from_str::<Record>(line).unwrap());
        let recorded: u64 = records.map(|record| record.decisions()).sum();
        Ok((recorded == sent).then_some(()))
    })
    .unwrap();
    waiting::until("every ledger to know where its sources went", || {
        let printed = cluster.all.audit(&["verify"])?;
        let knows = printed.ends_with("verified") && !printed.contains("not checked: source");
        Ok((knows && !printed.contains("of which 0 have moved")).then_some(()))
    })
    .unwrap();
}

#[test]
fn without_a_quorum_nothing_is_allowed_for_longer_than_a_lease_and_it_recovers() {
    let Some(mut cluster) = Cluster::start() else { return };
    let load = cluster.load_of(&["alice"]);
    let lost = Instant::now();
    for member in [0, 1] {
        cluster.all.etcd.member(member).suspend().unwrap();
    }
    load.until_denied("alice", "stale").unwrap();
    let denied_after = lost.elapsed();
    for member in [0, 1] {
        cluster.all.etcd.member(member).resume().unwrap();
    }
    let back = Instant::now();
    load.until_allowed("alice").unwrap();
    let allowed_after = back.elapsed();
    load.finish().unwrap();
    let moment = Duration::from_millis(500);
    assert!(
        denied_after > MAX_STALENESS - Duration::from_secs(1) - moment,
        "{denied_after:?}"
    );
    assert!(denied_after < MAX_STALENESS + moment, "{denied_after:?}");
    assert!(allowed_after < Duration::from_secs(3) + moment, "{allowed_after:?}");
}
