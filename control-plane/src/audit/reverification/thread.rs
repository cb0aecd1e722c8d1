//! The thread that verifies evidence again, behind the acknowledgements.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use credence_delegation::TrustAnchors;
use credence_ledger::record::Mismatch;
use credence_ledger::{LedgerReader, Note, StoredNote};

use super::follower::{Evidence as _, Follower, StepError};
use super::progress::{Progress, ProgressFile};
use super::recorded::Recorded;
use super::reporter::{Record, Reporter};
use crate::audit::handover::Handover;
use crate::audit::writer::{LedgerHandle, ReportError};
use crate::metrics::Metrics;

/// What is verified again, and whither it is told.
#[derive(Debug)]
pub(crate) struct Reverification {
    pub(crate) anchors: TrustAnchors,
    pub(crate) reader: LedgerReader,
    pub(crate) ledger: LedgerHandle,
    pub(crate) handover: Arc<Handover>,
    /// The ledger's folder.
    pub(crate) folder: PathBuf,
    pub(crate) metrics: Arc<Metrics>,
}

/// Stops the thread when told to, or when dropped.
#[derive(Debug)]
pub(crate) struct Reverifier {
    handover: Arc<Handover>,
    thread: Option<JoinHandle<()>>,
}

/// Appends notes through the ledger's writer.
#[derive(Debug)]
struct Notes(LedgerHandle);

// === impl Reverification ===

impl Reverification {
    /// Begins where the last run has stopped.
    pub(crate) fn start(self) -> io::Result<Reverifier> {
        let handover = Arc::clone(&self.handover);
        let thread = std::thread::Builder::new().name("reverify".to_owned()).spawn(move || {
            // Requests and acknowledgements go first. Of this thread only, as Linux has it; where it is not allowed, or
            // not known, it runs as all do.
            _ = rustix::process::setpriority_process(None, LOW_PRIORITY);
            self.run();
        })?;
        Ok(Reverifier {
            handover,
            thread: Some(thread),
        })
    }

    /// What a report can bring about must not end the process: whatever it is, revocations go on without it, and the
    /// metric says that nothing is verified.
    fn run(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.follow())).is_err() {
            tracing::error!("verifying evidence again has failed (the log says why); it is tried again where it was");
            if !self.handover.pause(RETRY) {
                return;
            }
        }
    }

    fn follow(&self) {
        let file = ProgressFile {
            folder: self.folder.clone(),
        };
        let mut saved = file.read().unwrap_or_default();
        let newest = self.reader.segments().first().map_or(0, |segment| segment.first());
        // Without a place to go on, or with one that a restored backup does not reach: what is at hand.
        if saved.next > self.reader.size() || saved == Progress::default() {
            saved.next = newest;
        }
        let evidence = Recorded::new(self.reader.clone(), Arc::clone(&self.handover));
        let mut follower = Follower::new(&self.anchors, saved.clone(), VERDICT_BYTES);
        let mut reporter = Reporter {
            metrics: Arc::clone(&self.metrics),
            record: Notes(self.ledger.clone()),
        };
        let mut last_saved = Instant::now();
        let mut goes_on = true;
        let mut is_failing = false;
        while goes_on {
            for (source, anchors) in self.handover.take_returned() {
                follower.trusts(&source.to_string(), &anchors);
            }
            let lag = evidence.size().saturating_sub(follower.next());
            self.metrics
                .unchecked_records
                .set(i64::try_from(lag).unwrap_or(i64::MAX));
            let step = follower.step(&evidence, &mut reporter);
            let failed = step.is_err();
            goes_on = match step {
                // What is read from the disk is caught up with in half of the time, so that a backlog slows nobody.
                Ok(true) => self.handover.pause(evidence.take_reading().min(LONGEST_PAUSE)),
                Ok(false) => self.handover.wait(),
                Err(error) => {
                    if !is_failing {
                        say(&error);
                    }
                    self.handover.pause(RETRY)
                }
            };
            is_failing = failed;
            if (last_saved.elapsed() >= SAVE_EVERY || !goes_on) && follower.next() != saved.next {
                last_saved = Instant::now();
                saved = follower.progress();
                if let Err(error) = file.write(&saved) {
                    tracing::warn!(%error, "how far evidence was verified again could not be written; after a restart some of it is verified once more");
                }
            }
        }
    }
}

fn say(error: &StepError<credence_ledger::ReadError, ReportError>) {
    match error {
        StepError::Read(error) => tracing::error!(%error, "evidence can not be read to verify it again"),
        // Nothing is lost: it is found again.
        StepError::Record(ReportError::Stopping) => {}
        StepError::Record(error) => tracing::error!(
            %error,
            "a filter allowed what its delegation does not say, and it could not be recorded; it is tried again"
        ),
    }
}

impl Record for Notes {
    type Error = ReportError;

    fn append(&mut self, mismatches: Vec<Mismatch>) -> Result<(), ReportError> {
        let note = |mismatch| StoredNote {
            note: Some(Note::Mismatch(mismatch)),
        };
        self.0.note(mismatches.into_iter().map(note).collect())
    }
}

// === impl Reverifier ===

impl Reverifier {
    /// Returns when it has noted where it stopped.
    pub(crate) async fn stop(mut self) {
        self.handover.stop();
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Reverifier {
    fn drop(&mut self) {
        self.handover.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// As `nice` has it.
const LOW_PRIORITY: i32 = 5;
/// What verdicts on chains may take: some 30,000 of them.
const VERDICT_BYTES: usize = 32 << 20;
const SAVE_EVERY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
