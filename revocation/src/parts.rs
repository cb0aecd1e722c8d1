//! Opens the log in a data folder, and starts all parts that work on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use credence_etcd::{Address, Client, Security};
use credence_runtime::client_limits::Places;
use credence_runtime::lifecycle::PhaseWatch;
use credence_runtime::settings::Timeouts;
use credence_runtime::supervision::{Alarm, BackgroundTask};
use credence_runtime::threads::Threads;
use credence_runtime::time::unix_seconds;
use credence_storage::folder_lock::FolderLock;

use crate::digest_history::ForeignPosition;
use crate::history::filed_at;
use crate::quorum::Quorum;
use crate::store::etcd::{self, EtcdStore, Settings};
use tokio::runtime::Handle;

use crate::cache_keys::CacheKeys;
use crate::clock::{Forgetting, LogClock};
use crate::data_dir::{DataDir, DataDirError};
use crate::leases::{Leases, with_allowance};
use crate::limits::{InitOptions, MAX_STALENESS};
use crate::log::RevocationLog;
use crate::log_id::LogId;
use crate::log_view::{HistoryBounds, LogView};
use crate::metrics::Metrics;
use crate::moves::Moves;
use crate::position::PositionKey;
use crate::replica;
use crate::restored::{self, RestoreError};
use crate::service::WatchService;
use crate::store::{LogStore, Notes, StoreError};
use crate::writer::{self, WriterOptions, milliseconds};

/// The options of the log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Where the log is; in the data folder if absent.
    pub store: Option<StoreOptions>,
    /// Present to create a log in an empty data folder. The start refuses it if there is a log, and requires it if
    /// there is none: an emptied folder must never pass for a log without revocations.
    pub init: Option<InitOptions>,
    /// The `log_id` of a log that was restored from a backup. It gets a new `log_id`, and a not-before time of now.
    /// Refused if the folder holds another log, so that it happens only once.
    pub restored: Option<String>,
    /// Whether to reset the log's own clock to the wall clock.
    pub reset_clock: bool,
    /// The longest time that a filter may stay fresh without an echo of its pings: 2 s to 60 s, in whole milliseconds.
    /// A revocation is confirmed at most this long after the last echo of a filter that has not applied it.
    pub max_staleness: Duration,
    /// How long filters stay fresh after a planned stop; at most 10 s. The successor accepts revocations at once, and
    /// confirms none for this long after its own start. Zero means not at all.
    pub drain_promise: Duration,
    /// How often the keys of the filters' shared caches change: 1 s to 30 days, in whole seconds. An entry is accepted
    /// for one to two of these periods.
    pub cache_key_rotation: Duration,
    /// The longest lifetime (`exp - iat`) of accepted tokens: 60 s to 366 days, in whole seconds. The log forgets a
    /// revoked delegation after this time and five minutes. Filters are told this limit, and must not be configured to
    /// accept tokens that live longer.
    pub max_token_lifetime: Duration,
    /// The largest number of revocation streams. The next one gets RESOURCE_EXHAUSTED.
    pub max_subscribers: usize,
    /// Updates kept in memory, from which streams resume. A client that is further behind gets a snapshot. A stream
    /// that falls further behind ends with RESOURCE_EXHAUSTED.
    pub updates: HistoryBounds,
    /// The largest number of revoked subjects in the log. Single delegations and keys may use nine tenths of it, so
    /// that principals still find room. An issuer's not-before time is never refused, and a known subject can always be
    /// revoked again.
    pub max_subjects: usize,
    /// The log's file is not compacted below this many bytes. Above, it is compacted once it has one and a half times
    /// the size that it needs.
    pub compact_above_bytes: u64,
    /// The latest entries that are kept of each principal's history.
    pub history_kept: usize,
}

// === impl LogOptions ===

impl Default for LogOptions {
    /// Leases of 5 s, a drain promise of 10 s, daily cache keys, tokens of up to 90 days, and no initialisation.
    fn default() -> Self {
        Self {
            store: None,
            init: None,
            restored: None,
            reset_clock: false,
            max_staleness: Duration::from_secs(5),
            drain_promise: Duration::from_secs(10),
            cache_key_rotation: Duration::from_secs(24 * 60 * 60),
            max_token_lifetime: Duration::from_secs(90 * 24 * 60 * 60),
            max_subscribers: 10_000,
            updates: HistoryBounds {
                entries: 65_536,
                bytes: 64 << 20,
            },
            max_subjects: 1_000_000,
            compact_above_bytes: 64 << 20,
            history_kept: 32,
        }
    }
}

/// The log of several replicas.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub address: Address,
    pub security: Security,
    /// The folder with the secrets that all replicas have: `audit-source-key` and `filter-cache-secret`.
    pub secrets: PathBuf,
}

/// Why the log cannot be opened or started.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
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

/// A log that was read, before its parts are started.
#[derive(Debug)]
pub struct OpenedLog {
    folder: DataDir,
    store: Arc<dyn LogStore>,
    /// The same, if there are other replicas.
    shared: Option<Arc<EtcdStore>>,
    view: LogView,
    forgetting: Forgetting,
    /// How long filters of earlier processes may be fresh.
    earlier_leases: Duration,
    /// The earlier processes had ended by then.
    begun: Instant,
    options: LogOptions,
}

/// A running log.
#[derive(Debug)]
pub struct StartedLog {
    pub log: RevocationLog,
    /// Serves the filters' streams.
    pub watch: WatchService,
    /// Present if there are other replicas.
    pub moves: Option<Moves>,
    /// Must be stopped before anything else.
    pub writer: Threads,
    /// Must be dropped last, so that the lock is released when nothing writes any more.
    pub folder: DataDir,
}

// === impl OpenedLog ===

impl OpenedLog {
    /// Opens the log in a locked folder, and checks all of it.
    pub fn open(lock: FolderLock, options: LogOptions) -> Result<Self, OpenLogError> {
        let mut begun = Instant::now();
        let (folder, shared) = match &options.store {
            None => {
                let folder = DataDir::open(lock, options.init, unix_seconds())?;
                folder.check_not_moved()?;
                (folder, None)
            }
            Some(of_several) => {
                let folder = DataDir::open_of_replica(lock, &of_several.secrets)?;
                let shared = open_shared(of_several, &options, &folder)?;
                // Replicas that have left before this are not known.
                begun = Instant::now();
                (folder, Some(shared))
            }
        };
        let store: Arc<dyn LogStore> = match &shared {
            Some(shared) => Arc::<EtcdStore>::clone(shared),
            None => Arc::new(folder.open_store()?),
        };
        if let Some(named) = &options.restored {
            restored::declare(&*store, named, unix_seconds())?;
        }
        let mut notes = store.notes();
        if options.reset_clock {
            (notes.clock, notes.forgotten) = (None, None);
            match &shared {
                Some(shared) => shared.replace_notes(notes)?,
                None => store.write_notes(notes)?,
            }
        }
        let key = PositionKey::new(folder.source_key(), &store.log_id());
        let mut view = LogView::new(&store.log_id(), options.updates).proving(key);
        store.replay(&mut view)?;
        if let Some(of_several) = &options.store {
            check_continues(&view, &folder, of_several, &store.log_id())?;
        }
        let showed = LogClock::beginning(notes.clock, unix_seconds(), view.state.last_seen());
        let forgetting = Forgetting {
            clock: LogClock::showing(showed, Instant::now()),
            max_token_lifetime: options.max_token_lifetime.as_secs(),
            forgotten: notes.forgotten,
        };
        let noted = Duration::from_millis(notes.leases_ms).min(with_allowance(MAX_STALENESS));
        // Of other replicas too, which have left while this one did not run.
        let earlier_leases = match shared {
            Some(_) => noted.max(with_allowance(options.max_staleness)),
            None => noted,
        };
        let leases_ms = milliseconds(earlier_leases.max(lasting(&options)));
        if leases_ms != notes.leases_ms {
            store.write_notes(Notes { leases_ms, ..notes })?;
        }
        if !earlier_leases.is_zero() {
            tracing::info!(
                at_most = ?earlier_leases,
                "revocations are accepted at once, and confirmed when the filters' leases from earlier control planes \
                 have ended"
            );
        }
        Ok(Self {
            folder,
            store,
            shared,
            view,
            forgetting,
            earlier_leases,
            begun,
            options,
        })
    }

    /// The log's name, which filters pin.
    pub fn log_id(&self) -> LogId {
        self.store.log_id()
    }

    pub fn folder(&self) -> &DataDir {
        &self.folder
    }

    /// Starts the writer, and serves this many streams.
    pub fn start(
        self,
        places: Places,
        timeouts: Timeouts,
        phase: PhaseWatch,
        alarm: &Alarm,
        metrics: &Arc<Metrics>,
    ) -> Result<(StartedLog, Vec<BackgroundTask>), OpenLogError> {
        let Self { folder, options, .. } = self;
        let (earlier_here, earlier_elsewhere) = match &self.shared {
            Some(_) => (Duration::ZERO, Some(self.begun + self.earlier_leases)),
            None => (self.earlier_leases, None),
        };
        let leases = Leases::new(
            options.max_staleness,
            earlier_here,
            self.view.head(),
            options.max_subscribers,
            Arc::clone(metrics),
            self.begun,
        );
        if let Some(until) = earlier_elsewhere {
            leases.follow_earlier_replicas(until);
        }
        let writer_options = WriterOptions {
            max_subjects: options.max_subjects,
            folder: folder.watch(),
            leases: leases.clone(),
            quorum: match &self.shared {
                Some(_) => Quorum::of_several(),
                None => Quorum::of_one(),
            },
            leases_from: (self.begun + self.earlier_leases, lasting(&options)),
            forgetting: self.forgetting,
            compact_above: options.compact_above_bytes,
            history_path: folder.histories(),
            history_kept: options.history_kept,
        };
        let (log, writer) = writer::start(self.store, self.view, writer_options, Arc::clone(metrics), alarm)
            .map_err(OpenLogError::Thread)?;
        let cache_keys = CacheKeys::new(folder.cache_secret, options.cache_key_rotation);
        let watch = WatchService {
            log: log.clone(),
            cache_keys: cache_keys.clone(),
            places,
            timeouts,
            phase,
            metrics: Arc::clone(metrics),
            foreign: Arc::default(),
        };
        let mut tasks: Vec<BackgroundTask> = vec![
            ("the filters' leases", Box::pin(leases.clone().run())),
            ("the rotation of cache keys", Box::pin(cache_keys.rotate())),
        ];
        if let Some(shared) = &self.shared {
            tasks.extend(replica::tasks(shared, &log, &leases, metrics));
        }
        let started = StartedLog {
            log,
            watch,
            moves: self.shared.map(Moves),
            writer,
            folder,
        };
        Ok((started, tasks))
    }
}

/// Opens the log of several replicas; with `init`, creates it.
fn open_shared(
    of_several: &StoreOptions,
    options: &LogOptions,
    folder: &DataDir,
) -> Result<Arc<EtcdStore>, OpenLogError> {
    let StoreOptions { address, security, .. } = of_several;
    let opening = async {
        // Replicas begin with different members.
        let first = getrandom::u32().unwrap_or_default() as usize;
        let client = Client::new(address, security.clone(), first).map_err(|error| StoreError::Etcd(error.into()))?;
        if let Some(init) = options.init {
            let log_id = LogId::random().map_err(StoreError::Random)?;
            etcd::create(&client, address, &log_id, init, unix_seconds()).await?;
        }
        let settings = Settings {
            max_staleness_ms: milliseconds(options.max_staleness),
            max_token_lifetime_s: options.max_token_lifetime.as_secs(),
        };
        let store = EtcdStore::open(client, address.clone(), settings).await?;
        if let Some(earlier) = folder.replica()? {
            store.forget(&earlier).await?;
        }
        folder.note_replica(store.name())?;
        Ok::<_, OpenLogError>(store)
    };
    Ok(Arc::new(Handle::current().block_on(opening)?))
}

/// The log must have what this replica has seen of it, unless it was declared restored since, under another name. The
/// index of histories remembers both.
fn check_continues(
    view: &LogView,
    folder: &DataDir,
    of_several: &StoreOptions,
    log_id: &LogId,
) -> Result<(), StoreError> {
    let Some(seen) = filed_at(&folder.histories(), log_id) else {
        return Ok(());
    };
    match view.digests.check(seen.seq, seen.digest.as_bytes()) {
        Ok(()) | Err(ForeignPosition::TooOld { .. }) => Ok(()),
        Err(ForeignPosition::Ahead { .. } | ForeignPosition::Diverged { .. }) => Err(StoreError::Rewound {
            store: of_several.address.to_string(),
            seq: seen.seq,
            log_id: log_id.to_string(),
        }),
    }
}

/// How long filters may be fresh once this process has ended.
fn lasting(options: &LogOptions) -> Duration {
    with_allowance(options.max_staleness.max(options.drain_promise))
}
