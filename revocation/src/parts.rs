//! Puts the parts together: opens the log in a data folder, and starts all that works on it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::supervision::Alarm;
use credence_runtime::threads::Threads;
use credence_runtime::time::unix_seconds;
use credence_storage::folder_lock::FolderLock;

use crate::cache_keys::CacheKeys;
use crate::clock::{Forgetting, LogClock};
use crate::data_folder::{DataFolder, DataFolderError};
use crate::leases::{Leases, with_allowance};
use crate::limits::{InitOptions, LogLimits, MAX_STALENESS};
use crate::log::RevocationLog;
use crate::log_id::LogId;
use crate::log_view::LogView;
use crate::metrics::Metrics;
use crate::position::PositionKey;
use crate::restored::{self, RestoreError};
use crate::service::WatchService;
use crate::store::{LogStore, Notes, StoreError};
use crate::writer::{self, WriterOptions, milliseconds};

/// How the log is opened and kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Makes a new log.
    pub init: Option<InitOptions>,
    /// The log of this name was restored from a backup.
    pub restored: Option<String>,
    /// Begins the log's clock anew at the wall clock.
    pub reset_clock: bool,
    /// The longest that a filter may stay fresh without an echo.
    pub max_staleness: Duration,
    /// For how long filters stay fresh after a planned stop.
    pub drain_promise: Duration,
    /// The longest that a token may live.
    pub max_token_lifetime: Duration,
    /// How often filters get another key for their shared caches.
    pub cache_key_rotation: Duration,
    pub limits: LogLimits,
}

/// Why the log cannot be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// The log cannot be read or written.
    #[error("the revocation log: {0}")]
    Store(#[from] StoreError),
    /// The log cannot be declared restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A thread cannot be started.
    #[error("starting a thread of the revocation log: {0}")]
    Thread(std::io::Error),
}

/// A log that was read, and on which nothing works yet.
#[derive(Debug)]
pub struct OpenedLog {
    folder: DataFolder,
    store: Arc<dyn LogStore>,
    view: LogView,
    forgetting: Forgetting,
    /// How long filters of earlier processes may be fresh.
    inherited: Duration,
    /// Earlier processes had ended by then.
    begun: Instant,
    options: LogOptions,
}

/// A log at work.
#[derive(Debug)]
pub struct StartedLog {
    pub log: RevocationLog,
    /// Serves the filters' streams.
    pub watch: WatchService,
    /// Is to be stopped before anything else.
    pub writer: Threads,
    /// Is to be dropped after everything else, so that its lock is released when nothing writes any more.
    pub folder: DataFolder,
}

/// Work that is done for as long as it is polled.
pub type Chore = Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl OpenedLog ===

impl OpenedLog {
    /// Opens the log in a locked folder, and checks all of it.
    pub fn open(lock: FolderLock, options: LogOptions) -> Result<Self, OpenLogError> {
        let begun = Instant::now();
        let folder = DataFolder::open(lock, options.init, unix_seconds())?;
        let store: Arc<dyn LogStore> = Arc::new(folder.open_store()?);
        if let Some(named) = &options.restored {
            restored::declare(&*store, named, unix_seconds())?;
        }
        let mut notes = store.notes();
        if options.reset_clock {
            (notes.clock, notes.forgotten) = (None, None);
            store.write_notes(notes)?;
        }
        let key = PositionKey::new(folder.source_key(), &store.log_id());
        let mut view = LogView::new(&store.log_id(), options.limits.updates).proving(key);
        store.replay(&mut view)?;
        let showed = LogClock::beginning(notes.clock, unix_seconds(), view.state().last_seen());
        let forgetting = Forgetting {
            clock: LogClock::showing(showed, Instant::now()),
            max_token_lifetime: options.max_token_lifetime.as_secs(),
            forgotten: notes.forgotten,
        };
        let inherited = Duration::from_millis(notes.leases_ms).min(with_allowance(MAX_STALENESS));
        let leases_ms = milliseconds(inherited.max(lasting(&options)));
        if leases_ms != notes.leases_ms {
            store.write_notes(Notes { leases_ms, ..notes })?;
        }
        if !inherited.is_zero() {
            tracing::info!(
                at_most = ?inherited,
                "revocations are taken at once, and confirmed once no filter can live any more on what an earlier control \
                 plane said"
            );
        }
        Ok(Self {
            folder,
            store,
            view,
            forgetting,
            inherited,
            begun,
            options,
        })
    }

    /// The log's name, which filters pin.
    pub fn log_id(&self) -> LogId {
        self.store.log_id()
    }

    pub fn folder(&self) -> &DataFolder {
        &self.folder
    }

    /// Starts to write and to serve streams, for which there are so many places.
    pub fn start(
        self,
        places: Places,
        phase: PhaseWatch,
        alarm: &Alarm,
        metrics: &Arc<Metrics>,
    ) -> Result<(StartedLog, Vec<Chore>), OpenLogError> {
        let Self { folder, options, .. } = self;
        let limits = &options.limits;
        let leases = Leases::new(
            options.max_staleness,
            self.inherited,
            self.view.head(),
            limits.max_subscribers,
            Arc::clone(metrics),
            self.begun,
        );
        let writer_options = WriterOptions {
            max_subjects: limits.max_subjects,
            folder: folder.watch(),
            leases: leases.clone(),
            leases_from: (self.begun + self.inherited, lasting(&options)),
            forgetting: self.forgetting,
            compact_above: limits.compact_above_bytes,
            history_path: folder.histories(),
            history_kept: limits.history_kept,
        };
        let (log, writer) = writer::start(self.store, self.view, writer_options, Arc::clone(metrics), alarm)
            .map_err(OpenLogError::Thread)?;
        let cache_keys = CacheKeys::new(folder.cache_secret(), options.cache_key_rotation);
        let watch = WatchService {
            log: log.clone(),
            cache_keys: cache_keys.clone(),
            places,
            limits: options.limits,
            phase,
            metrics: Arc::clone(metrics),
            foreign: Arc::default(),
        };
        let chores: Vec<Chore> = vec![Box::pin(leases.run()), Box::pin(cache_keys.rotate())];
        let started = StartedLog {
            log,
            watch,
            writer,
            folder,
        };
        Ok((started, chores))
    }
}

/// For how long filters may be fresh once this process has ended.
fn lasting(options: &LogOptions) -> Duration {
    with_allowance(options.max_staleness.max(options.drain_promise))
}
