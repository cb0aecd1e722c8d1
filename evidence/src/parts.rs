//! Opens the ledger and all parts that work on it, and stops them in the opposite order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_ledger::log_identity::{LedgerIdentity, Naming};
use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, LedgerReader, RecordBody, Retention, SourceName, TornTail};
use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::{SettingsError, Timeouts};
use credence_runtime::supervision::{Alarm, BackgroundTask};
use credence_runtime::threads::Threads;
use credence_runtime::turns::Turns;
use credence_storage::folder_lock::FolderWatch;

use crate::arrivals::Arrivals;
use crate::cursors::{self, Cursors};
use crate::handover::Handover;
use crate::ingest::BatchBounds;
use crate::intake::{Intake, UNIT_BYTES};
use crate::metrics::Metrics;
use crate::otlp::{Follower, OtlpMetrics, Sender};
use crate::publisher::Publisher;
use crate::reverification::{CurrentAnchors, Reverification};
use crate::seen::{Seen, SeenOfLate, Sightings};
use crate::service::{ReportService, give_up_lost_sources};
use crate::settings::{LedgerSettings, OtlpSettings};
use crate::sources::Sources;
use crate::ticket::TicketKey;
use crate::witness::Witness;
use crate::writer::{self, LedgerHandle};

/// The options of evidence.
#[derive(Debug)]
pub struct EvidenceOptions {
    pub ledger_folder: PathBuf,
    /// The watch of the data folder.
    pub watch: FolderWatch,
    pub log_id: String,
    pub source_key: [u8; 32],
    /// Whether other replicas have ledgers of their own beside the same log.
    pub is_one_of_several: bool,
    pub settings: LedgerSettings,
    pub otlp: Option<OtlpSettings>,
    /// Whether allows are verified again.
    pub verifies_again: bool,
    pub limits: EvidenceLimits,
    /// The percentage of the memory for waiting evidence that one credential may use.
    pub credential_share_percent: u8,
    pub timeouts: Timeouts,
}

/// Limits of memory, disk and time.
#[derive(Debug, Clone, Copy)]
pub struct EvidenceLimits {
    /// When these are reached, evidence is refused (UNAVAILABLE) and `/readyz` reports it. Revocations are not
    /// affected.
    pub ledger: LedgerBounds,
    pub retention: Retention,
    /// Bytes that the ledger leaves free on its file system for its other users, such as revocations; a sixteenth of
    /// the file system, if that is less. Beyond that, evidence is refused as when the ledger is full.
    pub reserve_bytes: u64,
    /// The percentage of the ledger's space that one principal may use, 1 to 100. While the ledger is more than half
    /// full, further entries of a principal beyond that are counted.
    pub principal_share: u8,
    /// The limits of one batch; a larger one gets RESOURCE_EXHAUSTED. 64 KiB to 4 MiB.
    pub batch: BatchBounds,
    /// Memory for evidence that waits for the disk, in bytes, for all streams together. A stream whose batch does not
    /// fit waits. At least 1 MiB.
    pub ingest_bytes: usize,
    /// The largest number of audit sources, with those that may still return. The next one gets RESOURCE_EXHAUSTED.
    pub max_sources: usize,
    /// How long a source may be away after its stream ended without Bye. Then the ledger records that it ended and its
    /// last entries are unknown.
    pub source_grace: Duration,
    /// The number of principals whose live delegations are remembered. Beyond it, the principal seen longest ago is
    /// forgotten.
    pub seen_principals: usize,
    /// The number of delegations remembered for all principals together; at most 32 for one.
    pub seen_delegations: usize,
}

// === impl EvidenceLimits ===

impl Default for EvidenceLimits {
    fn default() -> Self {
        Self {
            ledger: LedgerBounds {
                total: 64 << 30,
                segment: 256 << 20,
                keys: 1_000_000,
            },
            retention: Retention::default(),
            reserve_bytes: 256 << 20,
            principal_share: 25,
            batch: BatchBounds {
                entries: 1_000,
                bytes: 1 << 20,
            },
            ingest_bytes: 64 << 20,
            max_sources: 20_000,
            source_grace: Duration::from_secs(60),
            seen_principals: 100_000,
            seen_delegations: 200_000,
        }
    }
}

/// Why the parts of evidence cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The file for the latest checkpoint cannot be used, or the settings of a witness or of the OpenTelemetry
    /// collector are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The progress of the followers cannot be read.
    #[error(
        "{path}: {problem}. Restore it from a backup, or remove it: then the OpenTelemetry collector is sent every \
         record of the ledger again, and everything since the beginning of the last segment is verified again",
        path = path.display()
    )]
    Followers {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A thread cannot be started.
    #[error("starting the thread of {part}: {error}")]
    Thread {
        /// The thread's job.
        part: &'static str,
        /// The error of the system.
        error: io::Error,
    },
}

/// The contents of the ledger's folder.
#[derive(Debug)]
pub struct OpenedEvidence {
    options: EvidenceOptions,
    /// The ledger, or why it is unusable: revocations continue without it.
    ledger: Result<(Ledger, LedgerIdentity), String>,
    /// Present if the ledger has a follower: the OpenTelemetry export or reverification.
    cursors: Option<Result<Arc<Cursors>, redb::Error>>,
    seen: Arc<Seen>,
}

/// The running parts.
#[derive(Debug)]
pub struct Evidence {
    pub ledger: LedgerHandle,
    pub reader: LedgerReader,
    pub seen: Arc<Seen>,
    pub publisher: Arc<Publisher<LedgerReader>>,
    /// In the order in which they end: the reverification writes its findings through the writer.
    pub threads: Vec<Threads>,
}

/// The two ways in which evidence arrives.
#[derive(Debug)]
pub struct Ingest {
    /// Over HTTP.
    pub intake: Intake,
    /// Over gRPC.
    pub report: ReportService,
}

// === impl OpenedEvidence ===

impl OpenedEvidence {
    /// Reads the ledger's newest records. May take as long as rebuilding its indexes takes.
    #[must_use]
    pub fn open(options: EvidenceOptions) -> Self {
        let limits = &options.limits;
        let seen = Arc::new(Seen::new(limits.seen_principals, limits.seen_delegations));
        let ledger = open_ledger(&options);
        match &ledger {
            Ok((ledger, _)) => see_again(&ledger.reader(), &seen),
            Err(damage) => tracing::error!(
                damage,
                "the ledger is damaged: evidence is refused until it is repaired; revocations continue"
            ),
        }
        let is_followed = options.otlp.is_some() || options.verifies_again;
        let cursors = is_followed.then(|| Cursors::open(&options.ledger_folder, options.watch.clone()).map(Arc::new));
        Self {
            options,
            ledger,
            cursors,
            seen,
        }
    }

    /// Starts the writer, the publisher, the reverification and the export. `source_places` limits the number of audit
    /// sources.
    pub fn start(
        self,
        anchors: CurrentAnchors,
        source_places: Places,
        phase: &PhaseWatch,
        alarm: &Alarm,
        metrics: &Arc<Metrics>,
        otlp_metrics: &Arc<OtlpMetrics>,
    ) -> Result<(Evidence, Ingest, Vec<BackgroundTask>), EvidenceError> {
        let (options, seen) = (self.options, self.seen);
        let unreadable = |error: redb::Error| EvidenceError::Followers {
            path: options.ledger_folder.join(cursors::FILE),
            problem: error.to_string(),
        };
        let cursors = match self.cursors.transpose().map_err(unreadable) {
            Ok(cursors) => cursors,
            // A record must not be sent twice, but may be verified twice.
            Err(error) if options.otlp.is_some() => return Err(error),
            Err(error) => {
                tracing::error!(%error, "the progress of verifying evidence again cannot be read");
                None
            }
        };
        let watch = options.watch.clone();
        let (reader, awaited) = match &self.ledger {
            Ok((ledger, _)) => (ledger.reader(), ledger.awaited()),
            Err(damage) => (LedgerReader::damaged(damage), Vec::new()),
        };
        let (ledger, publisher) = match self.ledger {
            Ok((ledger, identity)) => {
                let publisher = Publisher::open(identity, reader.clone(), watch.clone(), Arc::clone(metrics));
                (publisher.fault().map_or(Ok(ledger), Err), publisher)
            }
            Err(damage) => {
                let publisher = Publisher::damaged(&damage, reader.clone(), Arc::clone(metrics));
                (Err(damage), publisher)
            }
        };
        let publisher = Arc::new(publisher);
        let witnesses = witnesses(&options.settings, metrics)?;
        if !witnesses.is_empty() {
            publisher.await_witness();
        }
        metrics.unchecked_records.set(-1);
        let (ledger, threads) = match ledger {
            Ok(ledger) => start_threads(
                ledger,
                (anchors, cursors.clone()),
                &options,
                &reader,
                &seen,
                alarm,
                metrics,
            )?,
            Err(damage) => (writer::damaged(&damage, metrics), Vec::new()),
        };
        let exporting = match (&options.otlp, cursors) {
            (Some(otlp), Some(cursors)) => {
                let sender = Sender::new(otlp)?;
                let metrics = Arc::clone(otlp_metrics);
                let follower = Follower::open(reader.clone(), sender, cursors, options.log_id.clone(), metrics);
                Some(follower.map_err(unreadable)?)
            }
            _ => None,
        };

        let limits = options.limits;
        let awaited = awaited.iter().map(SourceName::to_string);
        let sources = Arc::new(Sources::new(source_places, awaited, Instant::now()));
        let memory = u32::try_from(limits.ingest_bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let intake = Intake {
            ledger: ledger.clone(),
            sources: Arc::clone(&sources),
            tickets: TicketKey::new(options.source_key),
            memory: Turns::new(memory, options.credential_share_percent),
            bounds: limits.batch,
            send_timeout: options.timeouts.send,
            phase: phase.clone(),
            arrivals: options.is_one_of_several.then(Arrivals::default),
        };
        let report = ReportService {
            intake: intake.clone(),
            hello_timeout: options.timeouts.hello,
            metrics: Arc::clone(metrics),
        };

        let retention = ledger.clone().keep_retention(RETENTION_TICK, publisher.follow());
        let mut tasks: Vec<BackgroundTask> = vec![
            (
                "the look for lost audit sources",
                Box::pin(give_up_lost_sources(ledger.clone(), sources, limits.source_grace)),
            ),
            ("the checkpoints' publisher", Box::pin(Arc::clone(&publisher).keep())),
            ("the ledger's retention", Box::pin(retention)),
        ];
        if let Some(follower) = exporting {
            tasks.push(("the OpenTelemetry export", Box::pin(follower.follow())));
        }
        for witness in witnesses {
            tasks.push(("a witness's client", Box::pin(witness.follow(Arc::clone(&publisher)))));
        }
        let evidence = Evidence {
            ledger,
            reader,
            seen,
            publisher,
            threads,
        };
        Ok((evidence, Ingest { intake, report }, tasks))
    }
}

/// Starts the writer and, if configured, the reverification.
fn start_threads(
    ledger: Ledger,
    (anchors, cursors): (CurrentAnchors, Option<Arc<Cursors>>),
    options: &EvidenceOptions,
    reader: &LedgerReader,
    seen: &Arc<Seen>,
    alarm: &Alarm,
    metrics: &Arc<Metrics>,
) -> Result<(LedgerHandle, Vec<Threads>), EvidenceError> {
    let failed = |part| move |error| EvidenceError::Thread { part, error };
    let handover = options.verifies_again.then(Arc::<Handover>::default);
    let (handle, writer) = writer::start(
        ledger,
        options.watch.clone(),
        Arc::clone(seen),
        handover.clone(),
        Arc::clone(metrics),
        alarm,
    )
    .map_err(failed("the ledger's writer"))?;
    let reverification = handover.map(|handover| {
        let reverification = Reverification {
            anchors,
            reader: reader.clone(),
            ledger: handle.clone(),
            handover,
            cursors,
            metrics: Arc::clone(metrics),
        };
        reverification.start()
    });
    let reverifier = reverification.transpose().map_err(failed("reverification"))?;
    Ok((handle, reverifier.into_iter().chain([writer]).collect()))
}

/// The witnesses of the ledger's checkpoints.
fn witnesses(settings: &LedgerSettings, metrics: &Arc<Metrics>) -> Result<Vec<Witness>, SettingsError> {
    let witnesses = settings.witnesses.iter().enumerate();
    witnesses
        .map(|(index, witness)| Witness::new(witness, &format!("ledger.witnesses[{index}]"), Arc::clone(metrics)))
        .collect()
}

/// The ledger and its identity, or why it is unusable.
fn open_ledger(options: &EvidenceOptions) -> Result<(Ledger, LedgerIdentity), String> {
    let origin = options.settings.origin().map_err(|error| error.to_string())?;
    let naming = Naming {
        origin: origin.as_ref(),
        log_id: &options.log_id,
    };
    let identity = match options.is_one_of_several {
        true => LedgerIdentity::open_among_others(&options.ledger_folder, &naming),
        false => LedgerIdentity::open(&options.ledger_folder, &naming),
    };
    let mut identity = identity.map_err(|error| error.to_string())?;
    if let Some(note) = &options.settings.published_note {
        identity.remember_in(note.clone());
    }
    let published = identity.published().map_err(|error| error.to_string())?;
    tracing::info!(key = %identity.verifier_key(), "the ledger's checkpoints are signed with this key");
    let limits = &options.limits;
    let ledger_options = LedgerOptions {
        origin: identity.first_origin().to_string(),
        bounds: limits.ledger,
        retention: limits.retention,
        published: published.map(|published| (published.checkpoint().size, published.checkpoint().root)),
    };
    let (mut ledger, opened) =
        Ledger::open(&options.ledger_folder, ledger_options).map_err(|error| error.to_string())?;
    ledger.leave_free(limits.reserve_bytes);
    ledger.limit_shares(limits.principal_share);
    if let Some(TornTail { offset, bytes }) = opened.torn {
        tracing::warn!(
            file = "ledger",
            offset,
            bytes,
            "cut off an incomplete write, as a crash leaves it; of the records known to have been \
             acknowledged, none is missing"
        );
    }
    if opened.reindexed > 0 || opened.rehashed {
        tracing::warn!(
            indexes = opened.reindexed,
            hashes = opened.rehashed,
            "files of the ledger that derive from its segments were missing and were rebuilt"
        );
    }
    Ok((ledger, identity))
}

/// The settings with the absolute path of `published_note`.
///
/// # Errors
/// The file is in the data folder, or its folder does not exist.
pub fn with_note_outside(data_dir: &Path, mut settings: LedgerSettings) -> Result<LedgerSettings, EvidenceError> {
    if let Some(note) = &mut settings.published_note {
        *note = outside_of(data_dir, note).map_err(|problem| SettingsError::at("ledger.published_note", problem))?;
    }
    Ok(settings)
}

/// The path of the file for the latest checkpoint. It must be outside of the data folder, which a restore would
/// overwrite.
fn outside_of(data: &Path, note: &Path) -> Result<PathBuf, String> {
    let settled = |path: &Path| {
        let found = path.canonicalize().and_then(|found| match found.is_dir() {
            true => Ok(found),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        found.map_err(|error| {
            let path = path.display();
            format!("the folder {path}: {error}. Create it, or mount the disk that it is on, and start again")
        })
    };
    let note_text = note.display();
    let Some(name) = note.file_name() else {
        return Err(format!(
            "{note_text} is not the path of a file. Name one outside of the data folder"
        ));
    };
    let parent = note.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = settled(parent.unwrap_or(Path::new(".")))?;
    if parent.starts_with(settled(data)?) {
        return Err(format!(
            "{note_text} is in the data folder, and would be restored with it. Name a file elsewhere"
        ));
    }
    Ok(parent.join(name))
}

/// Restores the delegations in use from the newest records.
fn see_again(reader: &LedgerReader, seen: &Seen) {
    let size = reader.size();
    let mut next = size.saturating_sub(SEEN_AGAIN).max(reader.first());
    let mut of_late = SeenOfLate::default();
    while next < size {
        let end = size.min(next + SEEN_AT_ONCE);
        let records = match reader.records(next..end) {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(%error, "the ledger's newest records cannot be read: delegations in use are unknown");
                return;
            }
        };
        let mut sightings = Sightings::default();
        for record in records {
            if let RecordBody::Entry(stored) = &record.body
                && let Some(entry) = stored.view()
            {
                sightings.add(&stored.entry, &entry, &mut of_late);
            }
        }
        seen.note(sightings);
        next = end;
    }
}

/// How often evidence beyond the retention is removed.
const RETENTION_TICK: Duration = Duration::from_secs(60);
/// The number of records that a start reads to restore the delegations in use.
const SEEN_AGAIN: u64 = 200_000;
const SEEN_AT_ONCE: u64 = 4096;
