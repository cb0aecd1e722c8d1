//! The thread that verifies evidence again, after the acknowledgements.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_delegation::TrustAnchors;
use credence_ledger::record::Mismatch;
use credence_ledger::{LedgerReader, Note, SourceName, StoredNote};
use credence_runtime::text::hex;
use credence_runtime::threads::Threads;

use super::checker::{Checker, Evidence as _, StepError};
use super::recorded::Recorded;
use crate::cursors::{Cursors, Progress};
use crate::handover::Handover;
use crate::metrics::Metrics;
use crate::writer::{LedgerHandle, ReportError};

/// The trust anchors by which evidence is verified again. Their keys may change.
pub type CurrentAnchors = Arc<dyn Fn() -> TrustAnchors + Send + Sync>;

/// The inputs of the reverification, and the place for its findings.
pub(crate) struct Reverification {
    pub anchors: CurrentAnchors,
    pub reader: LedgerReader,
    pub ledger: LedgerHandle,
    pub handover: Arc<Handover>,
    /// Absent if the progress cannot be read: then it starts with the last segment.
    pub cursors: Option<Arc<Cursors>>,
    pub metrics: Arc<Metrics>,
}

// === impl Reverification ===

impl Reverification {
    /// Continues where the last run stopped. The thread saves its progress.
    pub(crate) fn start(self) -> io::Result<Threads> {
        let handover = Arc::clone(&self.handover);
        let thread = std::thread::Builder::new().name("reverify".to_owned()).spawn(move || {
            // Requests and acknowledgements have priority. On Linux this sets the priority of this thread only. If it
            // fails, the thread runs with normal priority.
            _ = rustix::process::setpriority_process(None, LOW_PRIORITY);
            self.run();
        })?;
        Ok(Threads::new(vec![thread], move || handover.stop()))
    }

    fn run(&self) {
        let mut returned = HashMap::new();
        let mut record = |mismatches: Vec<Mismatch>| {
            let note = |mismatch| StoredNote {
                note: Some(Note::Mismatch(mismatch)),
            };
            self.ledger.note(mismatches.into_iter().map(note).collect())
        };
        keep_trying(&self.handover, RETRY, || {
            // With other keys, verdicts on chains start anew.
            while self.follow(&mut record, &mut returned) {}
        });
    }

    /// Follows the ledger until it is time to stop, or until the trust anchors have changed: then it returns true.
    /// `returned` has the trust anchors of returned sources that are not
    /// on disk yet. A source sends them only once.
    fn follow(&self, record: Record<'_>, returned: &mut HashMap<SourceName, Vec<u8>>) -> bool {
        let anchors = (self.anchors)();
        let mut last_compared = Instant::now();
        let mut has_changed = false;
        let progress = self.cursors.as_ref().map(|cursors| cursors.progress()).transpose();
        let progress = progress
            .inspect_err(|error| tracing::warn!(%error, "the progress of verifying evidence again cannot be read"));
        let mut saved = progress.ok().flatten().unwrap_or_default();
        let newest = self.reader.segments().first().map_or(0, |segment| segment.first());
        // Without progress, or with progress beyond the end of a restored ledger, it starts with the last segment.
        if saved.next > self.reader.size() || saved == Progress::default() {
            saved.next = newest;
        }
        let evidence = Recorded::new(self.reader.clone(), Arc::clone(&self.handover));
        let mut checker = Checker::new(&anchors, saved.clone(), VERDICT_BYTES);
        for (source, anchors) in &*returned {
            checker.trusts(&source.to_string(), anchors);
        }
        let mut last_saved = Instant::now();
        let mut goes_on = true;
        let mut is_failing = false;
        while goes_on && !has_changed {
            if last_compared.elapsed() >= COMPARE_EVERY {
                last_compared = Instant::now();
                has_changed = (self.anchors)() != anchors;
            }
            for (source, anchors) in self.handover.take_returned() {
                checker.trusts(&source.to_string(), &anchors);
                returned.insert(source, anchors);
            }
            self.note_lag(&evidence, &checker);
            if has_changed {
                continue;
            }
            let outdated = Cell::new(false);
            let step = checker.step(&evidence, |mismatches| {
                // The keys may have come while the records were read.
                if !mismatches.is_empty() && (self.anchors)() != anchors {
                    outdated.set(true);
                    return Err(ReportError::Superseded);
                }
                log(&mismatches);
                record(mismatches)
            });
            has_changed = outdated.get();
            let failed = step.is_err();
            let mut has_recorded = false;
            goes_on = match step {
                Err(_) if has_changed => true,
                Ok(Some(findings)) => {
                    has_recorded = !findings.mismatches.is_empty();
                    findings.report(&self.metrics);
                    self.note_lag(&evidence, &checker);
                    // Reading from the disk takes at most half of the time, so that a backlog slows no request.
                    self.handover.pause(evidence.take_reading())
                }
                Ok(None) => self.handover.wait(),
                Err(error) => {
                    if !is_failing {
                        say(&error);
                    }
                    self.handover.pause(RETRY)
                }
            };
            is_failing = failed;
            // If the progress were not saved, a restart would record the mismatches again.
            let is_due = has_recorded || last_saved.elapsed() >= SAVE_EVERY;
            if (is_due || !goes_on || has_changed) && checker.next() != saved.next {
                last_saved = Instant::now();
                saved = checker.progress();
                match self
                    .cursors
                    .as_ref()
                    .map_or(Ok(()), |cursors| cursors.set_progress(&saved))
                {
                    Ok(()) => returned.clear(),
                    Err(error) => {
                        tracing::warn!(%error, "the progress of verifying evidence again could not be saved; after a \
                            restart some is verified once more");
                    }
                }
            }
        }
        has_changed && goes_on
    }

    fn note_lag(&self, evidence: &Recorded, checker: &Checker<'_>) {
        let lag = evidence.size().saturating_sub(checker.next());
        self.metrics
            .unchecked_records
            .set(i64::try_from(lag).unwrap_or(i64::MAX));
    }
}

/// Appends mismatches to the ledger as notes, durable on return.
type Record<'a> = &'a mut dyn FnMut(Vec<Mismatch>) -> Result<(), ReportError>;

/// No report may end the process: after a panic here revocations continue, and the metric shows that nothing is
/// verified.
fn keep_trying(handover: &Handover, pause: Duration, mut attempt: impl FnMut()) {
    while catch_unwind(AssertUnwindSafe(&mut attempt)).is_err() {
        tracing::error!(
            "verifying evidence again has failed (the log says why); it is tried again from the same place"
        );
        if !handover.pause(pause) {
            return;
        }
    }
}

/// Before they are recorded.
fn log(mismatches: &[Mismatch]) {
    for mismatch in mismatches.iter().filter(|mismatch| !mismatch.other_anchors) {
        tracing::error!(
            source = mismatch.source,
            chain = hex(&mismatch.chain_digest),
            step = mismatch.step,
            reason = mismatch.reason,
            "a filter allowed a request that its delegation does not allow: check that the filter still runs what you \
             deployed"
        );
    }
}

fn say(error: &StepError) {
    match error {
        StepError::Read(error) => tracing::error!(%error, "evidence cannot be read to verify it again"),
        // Nothing is lost: it will be found again.
        StepError::Record(ReportError::Stopping) => {}
        StepError::Record(error) => tracing::error!(
            %error,
            "a filter allowed a request that its delegation does not allow, and this could not be recorded; it is \
             tried again"
        ),
    }
}

/// The value for `nice`.
const LOW_PRIORITY: i32 = 5;
/// Memory for verdicts on chains: about 30,000 of them.
const VERDICT_BYTES: usize = 32 << 20;
/// How often the trust anchors are looked at.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
const SAVE_EVERY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use credence_delegation::json::Json;
    use credence_delegation::mint::{self, Grant, RootGrant};
    use credence_delegation::{
        Algorithms, Limits, SigningKey, TrustAnchor, TrustAnchors, UnixTime, Value, chain_digest,
    };
    use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, SourceChange, StoredSourceChange};
    use credence_storage::folder_lock::FolderWatch;
    use credence_wire::v1;
    use prost::Message as _;

    use super::*;

    const ISSUER: &str = "https://id.example";
    const IAT: i64 = 1_790_000_000;
    const SOURCE: SourceName = SourceName([7; 16]);

    fn anchors() -> TrustAnchors {
        TrustAnchors::new([TrustAnchor {
            issuer: ISSUER.to_owned(),
            key: SigningKey::from_seed(&[1; 32]).public(),
            key_id: None,
            algorithms: Algorithms::default(),
            asserts_subjects: true,
            delegations: true,
            access_tokens: None,
            same_principals: Vec::new(),
            is_fetched: false,
        }])
    }

    /// Not signed by the issuer.
    fn forged() -> String {
        let root = RootGrant {
            grant: Grant {
                id: "root".to_owned(),
                issued_at: UnixTime(IAT),
                expires_at: UnixTime(IAT + 3_600),
                holder: SigningKey::from_seed(&[3; 32]).public(),
                holder_certificate: None,
                holder_spiffe_id: None,
                audience: Vec::new(),
                max_depth: 8,
                tools: Value::from_json(&Json::parse(br#"{"pay":{}}"#).unwrap()).unwrap(),
            },
            issuer: ISSUER.to_owned(),
            subject: None,
            epoch: None,
            agent_name: None,
        };
        mint::root(&root, &SigningKey::from_seed(&[8; 32]), &Limits::default()).unwrap()
    }

    /// The source starts, presents a forged chain, and allows a request under it.
    fn items() -> Vec<NewItem> {
        let chain = forged();
        let entries = [
            v1::entry::Entry::Chain(v1::PresentedChain {
                chain: chain.as_bytes().to_vec(),
                principal: None,
            }),
            v1::entry::Entry::Event(v1::Event {
                time_unix_nano: (IAT as u64 + 60) * 1_000_000_000,
                decision: v1::Decision::Allow.into(),
                chain_digest: chain_digest(&chain).to_vec(),
                ..Default::default()
            }),
        ];
        let batch = v1::Batch {
            first_sequence: 1,
            entries: entries.map(|entry| v1::Entry { entry: Some(entry) }).to_vec(),
        };
        let started = StoredSourceChange {
            change: SourceChange::Started.into(),
            ..Default::default()
        };
        vec![
            NewItem::Change {
                source: SOURCE,
                change: started,
            },
            NewItem::Entries {
                source: SOURCE,
                batch: batch.encode_to_vec().into(),
                skip: 0,
                first_sequence: 1,
            },
        ]
    }

    #[test]
    fn after_a_panic_it_continues_where_it_was_with_the_sources_anchors() {
        let folder = tempfile::tempdir().unwrap();
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds: LedgerBounds {
                total: 1 << 30,
                segment: 1 << 30,
                keys: 100,
            },
            retention: Retention::default(),
            published: None,
        };
        let (mut ledger, _) = Ledger::open(folder.path(), options).unwrap();
        ledger.append(&items()).unwrap();
        // An earlier run read the source's start, so its anchors are known only from its return.
        let cursors = Arc::new(Cursors::open(folder.path(), FolderWatch::of_nothing()).unwrap());
        let read = Progress {
            next: 1,
            ..Progress::default()
        };
        cursors.set_progress(&read).unwrap();
        let handover = Arc::new(Handover::default());
        handover.has_returned(SOURCE, anchors().digest().to_vec());
        let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
        let reverification = Reverification {
            anchors: Arc::new(anchors),
            reader: ledger.reader(),
            ledger: crate::writer::damaged("no other thread writes here", &metrics),
            handover: Arc::clone(&handover),
            cursors: Some(Arc::clone(&cursors)),
            metrics,
        };
        let (reported, reports) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut has_panicked = false;
            let mut record = |mismatches: Vec<Mismatch>| {
                assert!(std::mem::replace(&mut has_panicked, true), "on purpose");
                mismatches
                    .into_iter()
                    .for_each(|mismatch| reported.send(mismatch).unwrap());
                Ok(())
            };
            let mut returned = HashMap::new();
            keep_trying(&reverification.handover, Duration::ZERO, || {
                reverification.follow(&mut record, &mut returned);
            });
        });
        let mismatch = reports.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!((mismatch.step.as_str(), mismatch.other_anchors), ("3b", false));
        handover.stop();
        thread.join().unwrap();
        assert_eq!(reports.try_iter().count(), 0, "once");
        let stopped = cursors.progress().unwrap();
        assert_eq!(stopped.next, 3);
        assert_eq!(stopped.anchors_of[&SOURCE.to_string()], Some(anchors().digest()));
    }

    #[test]
    fn it_tries_again_until_it_is_time_to_stop() {
        let handover = Handover::default();
        let mut attempts = 0;
        keep_trying(&handover, Duration::ZERO, || {
            attempts += 1;
            if attempts == 3 {
                handover.stop();
            }
            panic!("on purpose");
        });
        assert_eq!(attempts, 3);
    }
}
