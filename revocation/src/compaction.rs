//! Compacts the log, so that its file does not grow without limit.
//!
//! The writer compacts between two groups, in bounded steps. It stores the state at one instant in chunks. Then the
//! chunks replace all groups up to that instant, which are removed afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::history::Histories;
use crate::log_view::LogView;
use crate::metrics::Metrics;
use crate::store::LogStore;
use crate::store::beginning::Cut;

pub(crate) struct Compactor {
    store: Arc<dyn LogStore>,
    histories: Histories,
    metrics: Arc<Metrics>,
    /// A log of at most this size, in bytes, is not compacted.
    above: u64,
    running: Option<Compaction>,
    /// When the next step, or the next check, may happen.
    not_before: Instant,
}

struct Compaction {
    cut: Cut,
    begun: Instant,
    longest_step: Duration,
}

// === impl Compactor ===

impl Compactor {
    pub(crate) fn new(store: Arc<dyn LogStore>, histories: Histories, metrics: Arc<Metrics>, above: u64) -> Self {
        Self {
            store,
            histories,
            metrics,
            above,
            running: None,
            not_before: Instant::now(),
        }
    }

    /// Starts compacting if it is worth it.
    pub(crate) fn consider(&mut self, view: &LogView) {
        if self.running.is_some() || Instant::now() < self.not_before {
            return;
        }
        // Delegations that were forgotten since the last compaction are removed by the first compaction after another
        // record.
        if view.digests.head.seq == self.store.beginning().seq {
            return;
        }
        let needed = view.state.bytes + view.digests.marks.len() as u64 * 8;
        let bytes = self.store.bytes();
        if is_worth_compacting(bytes, needed, self.above) {
            self.running = Some(Compaction {
                cut: Cut::new(view.state.freeze(), view.digests.clone(), bytes),
                begun: Instant::now(),
                longest_step: Duration::ZERO,
            });
        }
    }

    /// When the next step is due, if there is one.
    pub(crate) fn next_step(&self) -> Option<Instant> {
        self.running.as_ref().map(|_| self.not_before)
    }

    /// Does one step.
    pub(crate) fn step(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let begun = Instant::now();
        // The histories need the records that a compaction removes.
        if !running.cut.is_moved && !self.histories.is_durable(running.cut.head.seq) {
            if running.begun.elapsed() > HISTORIES_TIMEOUT {
                self.fail(&"the histories do not reach the cut yet");
            } else {
                self.not_before = begun + LOOK_AGAIN;
            }
            return;
        }
        let stepped = self.store.compact(&mut running.cut);
        running.longest_step = running.longest_step.max(begun.elapsed());
        self.not_before = Instant::now();
        match stepped {
            Ok(true) => {}
            Ok(false) => {
                let (took, longest_step) = (running.begun.elapsed(), running.longest_step);
                self.running = None;
                self.metrics.log_compactions.inc();
                self.metrics.log_compaction_seconds.observe(took.as_secs_f64());
                let pause = longest_step.as_secs_f64();
                self.metrics.log_compaction_pause_seconds.observe(pause);
                let bytes = self.store.bytes();
                tracing::info!(bytes, ?took, ?longest_step, "the revocation log has been compacted");
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.running = None;
        self.not_before = Instant::now() + AGAIN_AFTER;
        self.metrics.log_compaction_failures.inc();
        tracing::warn!(%error, again_in = ?AGAIN_AFTER, "the revocation log was not compacted");
    }
}

/// Whether to compact a log of `bytes` that needs only `needed` of them: above a minimum size, once a third of it is
/// superseded. This limits what a start reads, because a start reads all of it. It also limits what compaction writes:
/// at most twice the bytes that made it necessary.
pub(crate) fn is_worth_compacting(bytes: u64, needed: u64, above: u64) -> bool {
    bytes > above && bytes - bytes / 3 > needed
}

/// How long a compaction waits for the index of histories.
const HISTORIES_TIMEOUT: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long after a failure compaction is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use credence_storage::folder_lock::FolderWatch;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::history::HistoryIndexer;
    use crate::log_id::LogId;
    use crate::log_view::HistoryBounds;
    use crate::store::embedded::{self, EmbeddedStore, tests::delegations};

    #[test]
    fn a_log_whose_delegations_are_forgotten_is_compacted_again_after_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        embedded::create(&path, &LogId::random().unwrap(), None).unwrap();
        let store = Arc::new(EmbeddedStore::open(&path, FolderWatch::of_nothing()).unwrap());
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let bounds = HistoryBounds {
            entries: usize::MAX,
            bytes: usize::MAX,
        };
        let mut view = LogView::new(&store.log_id(), bounds);
        let append = |view: &mut LogView, count| {
            let group = delegations(view.digests.head, count);
            store.append(view.digests.head, &group).unwrap();
            group.records.into_iter().for_each(|record| {
                view.append(record).unwrap();
            });
        };
        append(&mut view, 1_000);
        let mut cut = Cut::new(view.state.freeze(), view.digests.clone(), store.bytes());
        while store.compact(&mut cut).unwrap() {}
        view.state.forget(0..usize::MAX, |_| true);
        let dir = folder.path().join("histories");
        let (_, histories) = HistoryIndexer::new(
            dir,
            FolderWatch::of_nothing(),
            1,
            Arc::<EmbeddedStore>::clone(&store),
            Arc::clone(&metrics),
        );
        let mut compactor = Compactor::new(Arc::<EmbeddedStore>::clone(&store), histories, metrics, 1);
        compactor.consider(&view);
        assert!(compactor.next_step().is_none());
        append(&mut view, 1);
        compactor.consider(&view);
        assert!(compactor.next_step().is_some());
    }
}
