//! The work of a replica among others: it reads what a quorum has, follows the others, and tells them what its filters
//! have applied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_runtime::supervision::BackgroundTask;

use crate::digest_history::ForeignPosition;
use crate::leases::Leases;
use crate::log::RevocationLog;
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::etcd::{EtcdStore, Registered};

/// The tasks of a replica.
pub(crate) fn tasks(
    store: &Arc<EtcdStore>,
    log: &RevocationLog,
    leases: &Leases,
    metrics: &Arc<Metrics>,
) -> Vec<BackgroundTask> {
    let follow = {
        let (store, log, leases, metrics) = (Arc::clone(store), log.clone(), leases.clone(), Arc::clone(metrics));
        move || {
            let (observed, others) = store.others();
            metrics
                .replicas
                .set(1 + i64::try_from(others.len()).unwrap_or(i64::MAX));
            leases.follow_replicas(observed, &others, Instant::now());
            log.follow();
        }
    };
    // Before the first revocation.
    follow();
    log.quorum().ask();
    let confirm = {
        let (store, mut confirmed) = (Arc::clone(store), leases.confirmed_here());
        async move {
            loop {
                let applied = *confirmed.borrow_and_update();
                if store.confirm(applied).await.is_err() {
                    tokio::time::sleep(CONFIRM_AGAIN).await;
                } else if confirmed.changed().await.is_err() {
                    return;
                }
            }
        }
    };
    let (fed, renewed) = (Arc::clone(store), Arc::clone(store));
    vec![
        (
            "the reads of the store",
            Box::pin(read(Arc::clone(store), log.clone(), Arc::clone(metrics))),
        ),
        (
            "the changes of the store",
            Box::pin(async move { match fed.feed(follow).await {} }),
        ),
        (
            "the lease of the store",
            Box::pin(async move { match renewed.renew().await {} }),
        ),
        ("the confirmations for other replicas", Box::pin(confirm)),
    ]
}

/// Reads whenever somebody asks. Ends if the log in the store does not continue ours.
async fn read(store: Arc<EtcdStore>, log: RevocationLog, metrics: Arc<Metrics>) {
    let quorum = log.quorum().clone();
    let jitter = Duration::from_millis(u64::from(getrandom::u32().unwrap_or_default() % 300));
    let mut waiting_since = None;
    loop {
        let (asked, read) = quorum.state();
        let is_lost = read.is_lost;
        if asked == read.through && !is_lost {
            waiting_since = None;
            // Without filters too, this replica stays registered and sees what becomes of the log.
            if tokio::time::timeout(READ_AT_LEAST_EVERY, quorum.asked()).await.is_err() {
                quorum.ask();
            }
            continue;
        }
        let since = *waiting_since.get_or_insert_with(Instant::now);
        let ours = log.position();
        let applied = *log.leases().confirmed_here().borrow();
        let found = match store.register(applied).await {
            Ok(Registered::Before(found)) => found,
            // Read again: until now, the others did not wait for this replica's filters.
            Ok(Registered::Now) => continue,
            Err(
                error @ (StoreError::MovedAway { .. } | StoreError::WentBack { .. } | StoreError::OtherSettings { .. }),
            ) => {
                tracing::error!(%error, "this replica ends");
                return;
            }
            Err(error) => {
                if !is_lost && since.elapsed() > LOST_AFTER + jitter {
                    tracing::error!(%error, "no quorum of the store answers: filters are sent to other replicas");
                    quorum.lose();
                    metrics.quorum.set(0);
                }
                // A refusal comes at once.
                tokio::time::sleep(READ_AGAIN).await;
                continue;
            }
        };
        let is_ours = match log.check(&found) {
            Ok(()) | Err(ForeignPosition::TooOld { .. }) => found.seq >= ours.seq,
            Err(ForeignPosition::Ahead { .. }) => true,
            Err(ForeignPosition::Diverged { .. }) => false,
        };
        if !is_ours || store.is_renamed(log.log_id()) {
            tracing::error!(
                found = found.seq,
                ours = ours.seq,
                "the log in the store does not continue this replica's: it was restored from a snapshot, and \
                     revocations are forgotten. Stop all replicas, and start one with --restored {} \
                     (docs/operate/backup.md#restore)",
                log.log_id()
            );
            return;
        }
        if found.seq > ours.seq {
            log.follow();
        }
        if is_lost {
            tracing::info!("a quorum of the store answers again");
            metrics.quorum.set(1);
        }
        waiting_since = None;
        quorum.complete(asked, found.seq);
    }
}

/// Longer than an election, and short enough for filters to go elsewhere while they are fresh.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// After a read that failed.
const READ_AGAIN: Duration = Duration::from_millis(20);
/// A quiet replica reads as often.
const READ_AT_LEAST_EVERY: Duration = Duration::from_secs(3);
/// Between two attempts to tell the other replicas what was applied.
const CONFIRM_AGAIN: Duration = Duration::from_millis(50);
