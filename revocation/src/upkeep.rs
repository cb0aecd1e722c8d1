//! The work behind the writer that would hold it up: making compacted files, keeping the log's clock.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::clock::Forgetting;
use crate::data_folder::LogNotes;
use crate::groups::Groups;
use crate::history::Histories;
use crate::log::{Request, RevocationLog, note_forgotten};
use crate::metrics::Metrics;
use crate::storage::{Compacted, Cut, remove_leftover};

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// Where a compacted file is made.
    pub(crate) path: PathBuf,
    pub(crate) groups: Arc<Groups>,
    pub(crate) histories: Histories,
    pub(crate) notes: LogNotes,
    pub(crate) forgetting: Forgetting,
    pub(crate) log: RevocationLog,
    pub(crate) metrics: Arc<Metrics>,
}

// === impl Upkeep ===

impl Upkeep {
    /// Works until the writer has ended, which asks for compactions.
    pub(crate) fn run(mut self, cuts: &Receiver<Box<Cut>>) {
        self.keep_clock();
        let mut next = Instant::now() + ROUND;
        loop {
            match cuts.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(cut) => self.compact(*cut),
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + ROUND;
                    self.keep_clock();
                    let due = self.forgetting.due(Instant::now());
                    if let Some(due) = note_forgotten(&mut self.forgetting.forgotten, due, &self.notes) {
                        self.log.ask(Request::Forget(due));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.keep_clock();
                    return;
                }
            }
        }
    }

    /// Makes a compacted file and hands it to the writer, which puts it in the present one's place.
    fn compact(&self, cut: Cut) {
        let begun = Instant::now();
        // What is compacted away is not in the log any more for the histories to be filed from.
        let filed = self.histories.wait_durable(cut.trail.head(), || {
            self.log.is_stopping() || begun.elapsed() > PATIENCE
        });
        let compacted = match filed {
            true => self.make(&cut),
            false => Err(io::Error::other("the histories are not filed up to the cut")),
        };
        drop(cut);
        self.metrics
            .log_compaction_seconds
            .observe(begun.elapsed().as_secs_f64());
        let made = match compacted {
            Ok(compacted) => Some(compacted),
            Err(error) => {
                tracing::warn!(%error, "no compacted file could be made of the revocation log");
                // What is left of it takes room on the disk that may be full.
                let _ = remove_leftover(&self.path);
                None
            }
        };
        self.log.ask(Request::Compacted(made));
    }

    fn make(&self, cut: &Cut) -> io::Result<Compacted> {
        let mut unless_stopping = |_| match self.log.is_stopping() {
            true => Err(io::Error::other("the control plane is stopping")),
            false => Ok(()),
        };
        let mut compacted = Compacted::begin(&self.path, cut, &mut unless_stopping)?;
        // The writer has to copy and sync what is then still missing, while nothing is acknowledged: as little as can
        // be. Under a load that outruns the copying it is what one round leaves.
        for _ in 0..ROUNDS_OF_COPYING {
            let extent = self.groups.extent();
            compacted.copy(&extent.file, extent.end)?;
            compacted.sync()?;
            if compacted.missing(self.groups.extent().end) < LITTLE {
                break;
            }
        }
        Ok(compacted)
    }

    fn keep_clock(&self) {
        if let Err(error) = self.notes.write_clock(self.forgetting.clock.at(Instant::now())) {
            tracing::warn!(%error, "the log's clock could not be noted; after a restart ids are kept longer for it");
        }
    }
}

/// How often the clock is noted and some of what is over is forgotten.
const ROUND: Duration = Duration::from_secs(60);
/// How long a compaction waits for the index of histories.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS_OF_COPYING: usize = 8;
/// Bytes that the writer may copy itself.
const LITTLE: u64 = 64 << 10;
