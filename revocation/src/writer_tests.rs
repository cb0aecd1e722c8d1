use std::path::Path;

use prometheus_client::registry::Registry;
use tempfile::TempDir;

use super::*;
use crate::clock::LogClock;
use crate::history::{History, HistoryError};
use crate::log_id::LogId;
use crate::log_view::HistoryBounds;
use crate::restored;
use crate::store::embedded::tests::Failing;
use crate::store::embedded::{self, EmbeddedStore};
use crate::subject::{PrincipalName, Requester, Source};

/// A log with its writer, in its own folder.
struct Running {
    store: Arc<EmbeddedStore>,
    log: RevocationLog,
    writer: Threads,
    metrics: Arc<Metrics>,
}

impl Running {
    fn start(folder: &TempDir) -> Self {
        Self::start_with(folder, u64::MAX)
    }

    fn start_with(folder: &TempDir, compact_above: u64) -> Self {
        let path = folder.path().join("state.redb");
        if !path.exists() {
            embedded::create(&path, &LogId::random().unwrap(), None).unwrap();
        }
        let store = Arc::new(EmbeddedStore::open(&path, FolderWatch::of_nothing()).unwrap());
        let mut view = LogView::new(&store.log_id(), ALL);
        store.replay(&mut view).unwrap();
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let begun = Instant::now();
        let lasts = Duration::from_secs(1);
        let options = WriterOptions {
            max_subjects: 1_000,
            folder: FolderWatch::of_nothing(),
            quorum: Quorum::of_one(),
            leases: Leases::new(lasts, Duration::ZERO, view.head(), 9, Arc::clone(&metrics), begun),
            leases_from: (begun, lasts),
            forgetting: Forgetting {
                clock: LogClock::showing(LogClock::beginning(store.notes().clock, NOW, None), begun),
                max_token_lifetime: 3_600,
                forgotten: store.notes().forgotten,
            },
            compact_above,
            history_path: histories_in(folder.path()),
            history_kept: 8,
        };
        let (log, writer) = start(
            Arc::<EmbeddedStore>::clone(&store),
            view,
            options,
            Arc::clone(&metrics),
            &Alarm::default(),
        )
        .unwrap();
        Self {
            store,
            log,
            writer,
            metrics,
        }
    }

    /// Waits until the time is noted: the next transaction is then a group.
    async fn have_noted_the_time(&self) {
        while self.store.notes().leases_ms == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn raise(&self, user: &str) -> Result<Receipt, RevokeError> {
        let order = Order {
            operation: Operation::Raise {
                principal: principal(user),
                from: None,
            },
            by: Requester {
                source: Source::Operator,
                name: "ci".to_owned(),
            },
            reason: None,
        };
        self.log.perform(order).await
    }

    async fn history(&self, user: &str) -> Result<(Vec<u64>, Option<u64>), HistoryError> {
        let History { entries, complete_from } = self.log.history(&principal(user), 9).await?;
        Ok((entries.iter().map(|entry| entry.seq).collect(), complete_from))
    }

    async fn stop(self) {
        self.writer.stop().await;
    }
}

fn histories_in(folder: &Path) -> PathBuf {
    folder.join("histories.redb")
}

fn principal(user: &str) -> PrincipalName {
    PrincipalName::parse("https://id.example.com".to_owned(), Some(user.to_owned())).unwrap()
}

const ALL: HistoryBounds = HistoryBounds {
    entries: usize::MAX,
    bytes: usize::MAX,
};
const NOW: i64 = 1_800_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_revocations_and_the_time_are_kept_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&folder);
    for user in ["alice", "bob", "alice"] {
        running.raise(user).await.unwrap();
    }
    let log_id = running.log.log_id().clone();
    running.stop().await;
    let running = Running::start(&folder);
    assert_eq!((running.log.log_id(), running.log.head()), (&log_id, 3));
    assert_eq!(running.log.principal(&principal("alice")).seq, 3);
    let notes = running.store.notes();
    assert!(notes.clock.unwrap() >= NOW);
    assert_eq!(notes.forgotten.unwrap().before, notes.clock.unwrap() - 3_600 - 300);
    assert_eq!(running.history("alice").await.unwrap(), (vec![3, 1], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_could_not_be_stored_is_refused_and_the_next_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&folder);
    running.have_noted_the_time().await;
    running.raise("alice").await.unwrap();
    running.store.fail_next(Failing::Absent);
    let refused = running.raise("alice").await;
    assert!(matches!(refused, Err(RevokeError::Storage(_))), "{refused:?}");
    assert!(running.log.fault().is_some());
    assert_eq!(running.metrics.log_writable.get(), 0);
    assert_eq!(running.raise("alice").await.unwrap().seq, 2);
    assert_eq!((running.log.fault(), running.metrics.log_writable.get()), (None, 1));
    assert_eq!(running.history("alice").await.unwrap().0, [2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_with_an_unknown_outcome_comes_into_force_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&folder);
    running.have_noted_the_time().await;
    running.store.fail_next(Failing::Absent);
    running.raise("alice").await.unwrap_err();
    // The file was just reopened, so that it cannot be read once more at once.
    running.store.fail_next(Failing::Present);
    running.raise("bob").await.unwrap_err();
    assert_eq!(running.log.head(), 0);
    let mut head = running.log.watch_head();
    head.wait_for(|head| *head == 1).await.unwrap();
    assert_eq!(running.log.principal(&principal("bob")).seq, 1);
    assert_eq!(running.raise("alice").await.unwrap().seq, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_compacted_up_to_its_histories_which_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start_with(&folder, 1);
    while running.metrics.log_compactions.get() == 0 {
        running.raise("alice").await.unwrap();
    }
    let head = running.raise("bob").await.unwrap().seq;
    assert!(running.store.beginning().seq > 0);
    let (alice, complete_from) = running.history("alice").await.unwrap();
    assert_eq!((alice.len(), complete_from), (8, None));
    running.stop().await;
    let running = Running::start(&folder);
    assert_eq!(running.history("alice").await.unwrap(), (alice, None));
    assert_eq!(running.history("bob").await.unwrap(), (vec![head], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_damaged_or_foreign_index_is_rebuilt_and_names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start_with(&folder, 1);
    while running.metrics.log_compactions.get() == 0 {
        running.raise("alice").await.unwrap();
    }
    let gap = Some(running.store.beginning().seq + 1);
    let seq = running.raise("bob").await.unwrap().seq;
    running.stop().await;
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Running::start(&other);
    elsewhere.raise("mallory").await.unwrap();
    elsewhere.history("mallory").await.unwrap();
    elsewhere.stop().await;
    let index = histories_in(folder.path());
    let whole = std::fs::read(&index).unwrap();
    let anothers = std::fs::read(histories_in(other.path())).unwrap();
    for bytes in [None, Some(anothers), Some(whole[..whole.len() / 2].to_vec())] {
        match bytes {
            Some(bytes) => std::fs::write(&index, bytes).unwrap(),
            None => std::fs::remove_file(&index).unwrap(),
        }
        let running = Running::start(&folder);
        let (bob, complete_from) = running.history("bob").await.unwrap();
        assert_eq!(bob, [seq]);
        assert!(complete_from >= gap, "{complete_from:?}");
        assert!(running.history("mallory").await.unwrap().0.is_empty());
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_continue_in_a_log_that_was_declared_restored() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&folder);
    running.raise("alice").await.unwrap();
    let old = running.log.log_id().clone();
    running.stop().await;
    let store = EmbeddedStore::open(&folder.path().join("state.redb"), FolderWatch::of_nothing()).unwrap();
    restored::declare(&store, old.as_str(), NOW + 60).unwrap();
    drop(store);
    let running = Running::start(&folder);
    assert_ne!(running.log.log_id(), &old);
    running.raise("alice").await.unwrap();
    assert_eq!(running.history("alice").await.unwrap(), (vec![3, 1], None));
}
