//! Puts the parts together: opens the ledger and all that works on it, and stops them in the opposite order.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_delegation::TrustAnchors;
use credence_ledger::log_identity::{LedgerIdentity, Naming};
use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, LedgerReader, RecordBody, Retention, SourceName, TornTail};
use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::{SettingsError, Timeouts};
use credence_runtime::supervision::{Alarm, BackgroundTask};
use credence_runtime::threads::Threads;
use credence_runtime::turns::Turns;
use credence_storage::folder_lock::FolderWatch;

use crate::cursors::{self, Cursors};
use crate::handover::Handover;
use crate::ingest::BatchBounds;
use crate::intake::{Intake, UNIT_BYTES};
use crate::metrics::Metrics;
use crate::otlp::{Follower, OtlpMetrics, Sender};
use crate::publisher::Publisher;
use crate::reverification::Reverification;
use crate::seen::{Seen, SeenOfLate, Sightings};
use crate::service::{ReportService, give_up_lost_sources};
use crate::settings::{LedgerSettings, OtlpSettings};
use crate::sources::Sources;
use crate::ticket::TicketKey;
use crate::witness::Witness;
use crate::writer::{self, LedgerHandle};

/// What evidence is kept, checked and sent on with.
#[derive(Debug)]
pub struct EvidenceOptions {
    pub ledger_folder: PathBuf,
    /// Of the data folder that it lies in.
    pub watch: FolderWatch,
    pub log_id: String,
    pub source_key: [u8; 32],
    pub settings: LedgerSettings,
    pub otlp: Option<OtlpSettings>,
    /// Whom to trust; absent where allows are not to be verified again.
    pub anchors: Option<TrustAnchors>,
    pub limits: EvidenceLimits,
    /// Hundredths of the evidence on its way to the disk that one credential may have.
    pub credential_share_percent: u8,
    pub timeouts: Timeouts,
}

/// Bounds on memory, disk and time.
#[derive(Debug, Clone, Copy)]
pub struct EvidenceLimits {
    /// When these are used up, evidence is refused (UNAVAILABLE) and `/readyz` says so; revocations are not affected.
    pub ledger: LedgerBounds,
    pub retention: Retention,
    /// Bytes that the ledger leaves free on its file system, so that what shares it (revocations do) finds room; a sixteenth of
    /// the file system, if that is less. Beyond, evidence is refused as when the ledger is full.
    pub reserve_bytes: u64,
    /// Hundredths of what the ledger may hold that may be about one principal, 1 to 100. While the ledger is more than half
    /// full, what a principal brings beyond that is counted.
    pub principal_share: u8,
    /// Of one batch; more gets RESOURCE_EXHAUSTED. 64 KiB to 4 MiB.
    pub batch: BatchBounds,
    /// Memory for evidence on its way to the disk, in bytes, of all streams together; a stream whose batch does not
    /// fit waits. At least 1 MiB.
    pub ingest_bytes: usize,
    /// Audit sources at a time, those that may still come back included; the next one gets RESOURCE_EXHAUSTED.
    pub max_sources: usize,
    /// How long a source whose stream ended without Bye may take to come back before the ledger records that it
    /// ended with its tail unknown.
    pub source_grace: Duration,
    /// Principals whose live delegations are remembered; beyond, who was seen the longest ago is forgotten.
    pub seen_principals: usize,
    /// Delegations remembered of all principals together; of one, at most 32.
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

/// Why evidence cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The latest checkpoint cannot be remembered where it is configured to be, or a witness or the OpenTelemetry collector
    /// cannot be asked.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// How far evidence was sent and verified cannot be read.
    #[error(
        "{path}: {problem}. Restore it from a backup, or remove it: then the OpenTelemetry collector is sent every record of \
         the ledger again, and what was allowed since the last segment began is verified again",
        path = path.display()
    )]
    Followers {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A thread cannot be started.
    #[error("starting the thread of {part}: {error}")]
    Thread {
        /// What it would have done.
        part: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// What the ledger's folder holds.
#[derive(Debug)]
pub struct OpenedEvidence {
    options: EvidenceOptions,
    /// Or what is wrong with it: revocations go on without it.
    ledger: Result<(Ledger, LedgerIdentity), String>,
    /// Present if the ledger has a follower: the OpenTelemetry export, or reverification.
    cursors: Option<Result<Arc<Cursors>, redb::Error>>,
    seen: Arc<Seen>,
}

/// Evidence at work.
#[derive(Debug)]
pub struct Evidence {
    pub ledger: LedgerHandle,
    pub reader: LedgerReader,
    pub seen: Arc<Seen>,
    pub publisher: Arc<Publisher<LedgerReader>>,
    /// In the order in which they end: what verifies again notes what it finds through the writer.
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
    /// Reads the ledger's newest records. May take as long as its indexes take to be made again.
    #[must_use]
    pub fn open(options: EvidenceOptions) -> Self {
        let limits = &options.limits;
        let seen = Arc::new(Seen::new(limits.seen_principals, limits.seen_delegations));
        let ledger = open_ledger(&options);
        match &ledger {
            Ok((ledger, _)) => see_again(&ledger.reader(), &seen),
            Err(damage) => tracing::error!(
                damage,
                "the ledger is damaged: evidence is refused until it is repaired; revocations go on"
            ),
        }
        let is_followed = options.otlp.is_some() || options.anchors.is_some();
        let cursors = is_followed.then(|| Cursors::open(&options.ledger_folder, options.watch.clone()).map(Arc::new));
        Self {
            options,
            ledger,
            cursors,
            seen,
        }
    }

    /// Starts to write, to publish, to verify again and to send on. `source_places` are the audit sources that there may be.
    pub fn start(
        self,
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
            // It would be sent twice; verified twice it may be.
            Err(error) if options.otlp.is_some() => return Err(error),
            Err(error) => {
                tracing::error!(%error, "how far evidence was verified again is not known");
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
            Ok(ledger) => start_threads(ledger, &options, cursors.clone(), &reader, &seen, alarm, metrics)?,
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
            patience: options.timeouts.send,
            phase: phase.clone(),
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

/// The writer, and what verifies its entries again if it is said whom to trust.
fn start_threads(
    ledger: Ledger,
    options: &EvidenceOptions,
    cursors: Option<Arc<Cursors>>,
    reader: &LedgerReader,
    seen: &Arc<Seen>,
    alarm: &Alarm,
    metrics: &Arc<Metrics>,
) -> Result<(LedgerHandle, Vec<Threads>), EvidenceError> {
    let failed = |part| move |error| EvidenceError::Thread { part, error };
    let handover = options.anchors.is_some().then(Arc::<Handover>::default);
    let (handle, writer) = writer::start(
        ledger,
        options.watch.clone(),
        Arc::clone(seen),
        handover.clone(),
        Arc::clone(metrics),
        alarm,
    )
    .map_err(failed("the ledger's writer"))?;
    let reverification = options.anchors.clone().zip(handover).map(|(anchors, handover)| {
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

/// Who is asked to cosign the ledger's checkpoints.
fn witnesses(settings: &LedgerSettings, metrics: &Arc<Metrics>) -> Result<Vec<Witness>, SettingsError> {
    let witnesses = settings.witnesses.iter().enumerate();
    witnesses
        .map(|(index, witness)| Witness::new(witness, &format!("ledger.witnesses[{index}]"), Arc::clone(metrics)))
        .collect()
}

/// The ledger, and who it is to others; or what is wrong with it.
fn open_ledger(options: &EvidenceOptions) -> Result<(Ledger, LedgerIdentity), String> {
    let origin = options.settings.origin().map_err(|error| error.to_string())?;
    let naming = Naming {
        origin: origin.as_ref(),
        log_id: &options.log_id,
    };
    let mut identity = LedgerIdentity::open(&options.ledger_folder, &naming).map_err(|error| error.to_string())?;
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
    ledger.share_out(limits.principal_share);
    if let Some(TornTail { offset, bytes }) = opened.torn {
        tracing::warn!(
            file = "ledger",
            offset,
            bytes,
            "cut an incomplete end, as a crash leaves it that interrupts a write; of what is known to have been \
             acknowledged nothing is missing"
        );
    }
    if opened.reindexed > 0 || opened.rehashed {
        tracing::warn!(
            indexes = opened.reindexed,
            hashes = opened.rehashed,
            "files of the ledger that follow from its segments were missing and were made again"
        );
    }
    Ok((ledger, identity))
}

/// The settings with the whole path of the file that remembers the latest checkpoint.
///
/// # Errors
/// The file would lie in the data folder, or in a folder that is not there.
pub fn with_note_outside(data_folder: &Path, mut settings: LedgerSettings) -> Result<LedgerSettings, EvidenceError> {
    if let Some(note) = &mut settings.published_note {
        *note = outside_of(data_folder, note).map_err(|problem| SettingsError::at("ledger.published_note", problem))?;
    }
    Ok(settings)
}

/// The file that remembers the latest checkpoint, if it does not lie in the data folder, with which it would be restored.
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
            "{note_text} names no file. Name one outside of the data folder"
        ));
    };
    let parent = note.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = settled(parent.unwrap_or(Path::new(".")))?;
    if parent.starts_with(settled(data)?) {
        return Err(format!(
            "{note_text} lies in the data folder, and would be restored with it. Name a file elsewhere"
        ));
    }
    Ok(parent.join(name))
}

/// Notes what principals' agents were seen to use, from the newest records.
fn see_again(reader: &LedgerReader, seen: &Seen) {
    let size = reader.size();
    let mut next = size.saturating_sub(SEEN_AGAIN).max(reader.first());
    let mut of_late = SeenOfLate::default();
    while next < size {
        let end = size.min(next + SEEN_AT_ONCE);
        let records = match reader.records(next..end) {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(%error, "the ledger's newest records cannot be read: delegations in use are not known");
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

/// How often evidence is looked at that is older than the retention.
const RETENTION_TICK: Duration = Duration::from_secs(60);
/// Records that are read at the start, to know again which delegations are in use.
const SEEN_AGAIN: u64 = 200_000;
const SEEN_AT_ONCE: u64 = 4096;
