//! Puts the parts together, starts them in order and stops them in the opposite one.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::access::{Access, AccessControl, Gate, OperatorTokenError, Permission, read_operator_token};
use crate::config::{Config, ConfigError, Limits};
use crate::connections::Connections;
use crate::descriptors::{self, DescriptorError};
use crate::grpc;
use crate::http::{self, Api, Rates};
use crate::metrics::Metrics;
use crate::net::BoundedListener;
use crate::reload::{ReloadError, Reloader};
use crate::settings::{Settings, anchors};
use crate::tls::{self, HandshakeFailures, Port, TlsError, TlsPorts};
use credence_evidence::{
    BatchBounds, Budget, CursorFile, FollowedLedger, Follower, Handover, Intake, LedgerWriter, OtlpError, Publisher,
    ReportOptions, ReportService, Reverification, Reverifier, Seen, SeenOfLate, Sender, Sightings, Sources, TicketKey,
    Witness, damaged_ledger, give_up_lost_sources, start_ledger,
};
use credence_ledger::identity::{LedgerIdentity, Naming};
use credence_ledger::view::EntryView;
use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, LedgerReader, RecordBody, Retention, SourceName};
use credence_provisioning::{Identity, IdentityError, IdentityLimits};
use credence_revocation::{
    CacheKeys, DataFolder, DataFolderError, Forgetting, HeadKeeper, HistoryBounds, Leases, LogClock, LogId, LogNotes,
    PositionKey, RestoreError, Storage, View, WatchOptions, WatchService, Writer, WriterOptions, declare_restored,
    read_clock, remove_leftover, start_log, take_lock, with_allowance,
};
use credence_runtime::client_limits::{Bounds, Places, SharedLimit};
use credence_runtime::lifecycle::{Lifecycle, Phase, PhaseWatch};
use credence_runtime::stream_server::StreamServer;
use credence_runtime::supervision::{Alarm, Failure, Guard, watch_folder};
use credence_runtime::throttle::Throttle;
use credence_runtime::time::unix_seconds;
use credence_runtime::turns::Turns;
use credence_storage::folder_lock::FolderLock;
use credence_storage::frames::TornTail;
use prost::Message as _;
use prost::bytes::Bytes;

/// Starts control planes.
#[derive(Debug)]
pub struct ControlPlane;

/// A control plane that serves. Dropping it is like a crash, only tidier: nothing is promised to the filters.
#[derive(Debug)]
pub struct Running {
    http_address: SocketAddr,
    grpc_address: SocketAddr,
    probe_address: Option<SocketAddr>,
    log_id: LogId,
    lifecycle: Lifecycle,
    drain_promise: Duration,
    head_keeper: Arc<HeadKeeper>,
    alarm: Alarm,
    announced: Arc<AtomicBool>,
    reloader: Reloader,
    servers: JoinSet<()>,
    chores: JoinSet<()>,
    log_writer: Option<Writer>,
    ledger_writer: Option<LedgerWriter>,
    /// If it is said whom to trust.
    reverifier: Option<Reverifier>,
    publisher: Arc<Publisher<LedgerReader>>,
    /// Last, so that its lock is released when nothing writes any more.
    _folder: DataFolder,
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration can not be served.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The data folder can not be used.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// The operator's token can not be read.
    #[error(transparent)]
    OperatorToken(#[from] OperatorTokenError),
    /// The files of a port that speaks TLS can not be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The revocation log can not be read.
    #[error("the revocation log: {0}")]
    RevocationLog(String),
    /// The log can not be declared restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The latest checkpoint can not be remembered where it is configured to be.
    #[error("ledger.published_note: {0}")]
    PublishedNote(String),
    /// A witness can not be asked.
    #[error("{0}")]
    Witness(String),
    /// The OpenTelemetry collector can not be spoken to.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// Something of identity providers can not be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The process may open too few files.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// An address can not be listened on.
    #[error("can not listen on {address} for {what}: {error}. Free the address or configure another one")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Which listener.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Opens the data folder, listens, and serves on the current tokio runtime.
    ///
    /// When this returns, both addresses accept connections and everything that was ever acknowledged is in force.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        config.check()?;
        let operator = config
            .operator_token_file
            .as_deref()
            .map(read_operator_token)
            .transpose()?;
        survive_file_size_limit()?;
        let metrics = Arc::new(Metrics::new());
        note_limits(&config.limits, &metrics);
        let access = Access::new(&config.settings.access, operator);
        let access = AccessControl::new(access, config.settings.grpc_access());
        let tls = TlsPorts::open(&config.settings.tls, metrics.tls.clone())?;
        let connections = descriptors::share(config.limits.max_connections)?;
        // Before the addresses: whoever waits for a predecessor to end must not hold them.
        let lock = lock_folder(&config).await?;
        let shares = &config.settings.limits;
        let places = |limit, places| Places::new(limit, Bounds::new(places, shares.shares()), &metrics.shares);
        let port = |limit, connections| Connections::new(places(limit, connections));
        let silence = config.limits.silence_timeout;
        let of_http = port(SharedLimit::HttpConnections, connections.http);
        let http_listener = listen(config.http_address, "HTTP", of_http, silence).await?;
        let of_grpc = port(SharedLimit::GrpcConnections, connections.grpc);
        let grpc_listener = listen(config.grpc_address, "gRPC", of_grpc, silence).await?;
        let http_address = address_of(&http_listener)?;
        let grpc_address = address_of(&grpc_listener)?;
        let probe_listener = match config.probe_address {
            Some(address) => {
                let of_probes = port(SharedLimit::ProbeConnections, PROBE_CONNECTIONS);
                Some(listen(address, "probes", of_probes, silence).await?)
            }
            None => None,
        };
        let probe_address = probe_listener.as_ref().map(address_of).transpose()?;

        let opening = tokio::task::spawn_blocking({
            let config = config.clone();
            move || Opened::open(&config, lock)
        });
        let opened = opening
            .await
            .map_err(|error| system("opening the data folder", io::Error::other(error)))??;
        let Opened {
            folder,
            inherited,
            seen,
            ..
        } = opened;

        let lifecycle = Lifecycle::new();
        let alarm = Alarm::new();
        let announced = Arc::new(AtomicBool::new(false));
        let limits = &config.limits;
        let (reader, awaited) = match &opened.ledger {
            Ok((ledger, _)) => (ledger.reader(), ledger.awaited()),
            Err(damage) => (LedgerReader::damaged(damage), Vec::new()),
        };
        let (ledger, publisher) = match opened.ledger {
            Ok((ledger, identity)) => {
                let publisher = Publisher::open(identity, reader.clone(), Arc::clone(&metrics.evidence));
                match publisher.fault() {
                    None => (Ok(ledger), publisher),
                    Some(fault) => (Err(fault), publisher),
                }
            }
            Err(damage) => {
                let publisher = Publisher::damaged(&damage, reader.clone(), Arc::clone(&metrics.evidence));
                (Err(damage), publisher)
            }
        };
        let publisher = Arc::new(publisher.only_while(folder.watch()));
        let witnesses = witnesses(&config.settings, &metrics.evidence)?;
        if !witnesses.is_empty() {
            publisher.await_witness();
        }
        let awaited = awaited.iter().map(SourceName::to_string);
        let source_places = places(SharedLimit::AuditSources, limits.max_sources);
        let watch_places = places(SharedLimit::WatchStreams, limits.max_subscribers);
        let stream_places = places(SharedLimit::EventStreams, limits.max_http_subscribers);
        let audit_stream_places = places(SharedLimit::EvidenceStreams, limits.max_audit_subscribers);
        let bodies = places(
            SharedLimit::RequestBodies,
            limits.body_bytes.div_ceil(http::BODY_UNIT_BYTES),
        );
        let calls = places(SharedLimit::Calls, limits.max_calls);
        let confirmations = places(SharedLimit::Confirmations, limits.max_calls.div_ceil(4));
        let sources = Arc::new(Sources::new(source_places, awaited, Instant::now()));
        let leases = Leases::new(
            config.max_staleness,
            inherited,
            opened.view.head(),
            limits.max_subscribers,
            Arc::clone(&metrics.revocation),
            opened.begun,
        );
        let options = WriterOptions {
            log_id: folder.log_id().clone(),
            max_subjects: limits.max_subjects,
            folder: folder.watch(),
            leases: leases.clone(),
            forgetting: opened.forgetting,
            notes: folder.notes(),
            compact_above: limits.compact_above_bytes,
            compacting_path: folder.compacting(),
            history_path: folder.history(),
            history_kept: limits.history_kept,
        };
        let (log, log_writer) = start_log(
            opened.storage,
            opened.view,
            options,
            Arc::clone(&metrics.revocation),
            &alarm,
        )
        .map_err(|error| StartError::RevocationLog(error.to_string()))?;
        let trust_anchors = config.settings.anchors().map_err(ConfigError::from)?;
        metrics.evidence.unchecked_records.set(-1);
        let (ledger, ledger_writer, reverifier) = match ledger {
            Ok(ledger) => {
                let handover = (!config.settings.trust_anchors.is_empty()).then(Arc::<Handover>::default);
                let (seen, metrics) = (Arc::clone(&seen), Arc::clone(&metrics.evidence));
                let (handle, writer) = start_ledger(
                    ledger,
                    folder.watch(),
                    seen,
                    handover.clone(),
                    Arc::clone(&metrics),
                    &alarm,
                )
                .map_err(|error| system("starting the ledger's thread", error))?;
                let reverification = handover.map(|handover| Reverification {
                    anchors: trust_anchors,
                    reader: reader.clone(),
                    ledger: handle.clone(),
                    handover,
                    folder: folder.ledger(),
                    watch: folder.watch(),
                    metrics,
                });
                let reverifier = reverification
                    .map(Reverification::start)
                    .transpose()
                    .map_err(|error| system("starting the thread that verifies evidence again", error))?;
                (handle, Some(writer), reverifier)
            }
            Err(damage) => (damaged_ledger(&damage, &metrics.evidence), None, None),
        };

        let identity = Identity::open(
            &folder.identity(),
            &folder.watch(),
            &config.settings.scim,
            &config.settings.security_events,
            identity_limits(limits),
            &log,
            &metrics.provisioning,
        )
        .await?;
        let cache_keys = CacheKeys::new(folder.cache_secret(), config.cache_key_rotation);
        let watch = WatchService::new(
            log.clone(),
            cache_keys.clone(),
            watch_options(limits, watch_places),
            lifecycle.watch(),
            Arc::clone(&metrics.revocation),
        );
        let budget = Budget::new(limits.ingest_bytes, shares.credential_share_percent);
        let tickets = TicketKey::new(folder.source_key());
        let intake = Intake {
            ledger: ledger.clone(),
            sources: Arc::clone(&sources),
            tickets: tickets.clone(),
            budget: budget.clone(),
            bounds: BatchBounds {
                entries: limits.max_batch_entries as usize,
                bytes: limits.max_batch_bytes as usize,
            },
            patience: limits.send_timeout,
            phase: lifecycle.watch(),
        };
        let report = ReportService::new(
            ledger.clone(),
            Arc::clone(&sources),
            tickets,
            budget,
            report_options(limits),
            lifecycle.watch(),
            Arc::clone(&metrics.evidence),
        );
        let ledger_growth = growth_of(&reader);
        let exporting = match &config.settings.audit.otlp {
            Some(otlp) => Some(Follower::open(
                FollowedLedger::new(reader.clone(), ledger_growth.clone()),
                Sender::new(otlp)?,
                CursorFile::open(&folder.otlp(), folder.watch())?,
                folder.log_id().to_string(),
                Arc::clone(&metrics.otlp),
            )?),
            None => None,
        };
        let head_keeper = Arc::new(HeadKeeper::new(log.clone(), folder.notes()));
        let api = Arc::new(Api {
            log,
            ledger: ledger.clone(),
            seen: Arc::clone(&seen),
            ledger_growth,
            reader,
            publisher: Arc::clone(&publisher),
            tiles: config.settings.ledger.tiles,
            intake,
            access: access.clone(),
            provisioning: identity.provisioning,
            receiver: identity.receiver,
            phase: lifecycle.watch(),
            metrics: Arc::clone(&metrics),
            limits: limits.clone(),
            anchors: anchors(&config.settings.trust_anchors).map_err(ConfigError::from)?,
            audience: config.settings.audience.clone(),
            status: config.settings.status.clone(),
            rates: Rates::new(&config.settings.limits, Instant::now()),
            signature_places: Semaphore::new(http::SIGNATURE_PLACES),
            stream_places,
            audit_stream_places,
            bodies,
            calls,
            confirmations,
            query_turns: Turns::new(http::MAX_QUERIES, shares.credential_share_percent),
            refusals: Throttle::default(),
            announced: Arc::clone(&announced),
        });

        let mut servers = JoinSet::new();
        let incoming = |listener, port| {
            let failures = HandshakeFailures::new(port, metrics.tls.clone());
            tls::connections(listener, tls.of(port), limits.hello_timeout, failures)
        };
        let http_incoming = incoming(http_listener, Port::Http);
        if let Some(listener) = probe_listener {
            let failures = HandshakeFailures::new(Port::Http, metrics.tls.clone());
            let incoming = tls::connections(listener, None, limits.hello_timeout, failures);
            let router = http::probe_router(Arc::clone(&api));
            let serving = http::serve(incoming, router, limits.clone(), lifecycle.watch());
            servers.spawn(guarded(alarm.guard("the probes' server"), lifecycle.watch(), serving));
        }
        let serving = http::serve(http_incoming, http::router(api), limits.clone(), lifecycle.watch());
        servers.spawn(guarded(alarm.guard("the HTTP server"), lifecycle.watch(), serving));
        // Batches beyond the announced limit should get our own answer where that is cheap.
        let report = StreamServer::new(report, limits.max_batch_bytes as usize + SMALL_MESSAGE_BYTES);
        let watch = StreamServer::new(watch, SMALL_MESSAGE_BYTES);
        let watch = Gate::new(Permission::Watch, access.clone(), Arc::clone(&metrics), watch);
        let report = Gate::new(Permission::Report, access.clone(), Arc::clone(&metrics), report);
        let grpc_incoming = incoming(grpc_listener, Port::Grpc);
        let serving = grpc::serve(grpc_incoming, watch, report, limits.clone(), lifecycle.watch());
        servers.spawn(guarded(alarm.guard("the gRPC server"), lifecycle.watch(), serving));
        let mut chores = JoinSet::new();
        chores.spawn(give_up_lost_sources(ledger.clone(), sources, limits.source_grace));
        if let Some(follower) = exporting {
            chores.spawn(follower.follow());
        }
        chores.spawn(leases.keep());
        chores.spawn(outlive(inherited, folder.notes(), lasting(&config)));
        chores.spawn(watch_folder(folder.watch(), alarm.clone()));
        chores.spawn(Arc::clone(&head_keeper).keep());
        chores.spawn(cache_keys.rotate());
        // Whoever asks from the first moment on finds a checkpoint.
        Arc::clone(&publisher).publish().await;
        chores.spawn(Arc::clone(&publisher).keep());
        chores.spawn(ledger.keep_retention(RETENTION_TICK, publisher.follow()));
        for witness in witnesses {
            chores.spawn(witness.follow(Arc::clone(&publisher)));
        }
        chores.spawn(tls.clone().follow_files());
        for chore in identity.chores {
            chores.spawn(chore);
        }

        let log_id = folder.log_id().clone();
        tracing::info!(%log_id, http = %http_address, grpc = %grpc_address, probes = ?probe_address, "the control plane is serving");
        Ok(Running {
            http_address,
            grpc_address,
            probe_address,
            log_id,
            lifecycle,
            drain_promise: config.drain_promise,
            head_keeper,
            alarm,
            announced,
            reloader: Reloader {
                operator_token_file: config.operator_token_file,
                access,
                tls,
                metrics: metrics.tls.clone(),
            },
            servers,
            chores,
            log_writer: Some(log_writer),
            ledger_writer,
            reverifier,
            publisher,
            _folder: folder,
        })
    }
}

// === impl Running ===

impl Running {
    /// Where the HTTP API listens.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Where the filters' gRPC streams arrive.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Where health probes are answered, if they have a port of their own.
    pub fn probe_address(&self) -> Option<SocketAddr> {
        self.probe_address
    }

    /// The log's name, which filters pin.
    pub fn log_id(&self) -> &LogId {
        &self.log_id
    }

    /// Lets `/readyz` answer "ready": call it once everybody who has to know the log's name and the addresses has
    /// been told.
    pub fn announce_ready(&self) {
        self.announced.store(true, Ordering::Release);
    }

    /// Takes over other credentials and TLS files, all of them or none. Whoever is served for long under a credential
    /// that no longer counts is turned away. Everything else in the settings counts from the next start.
    ///
    /// # Errors
    /// Why everything stays as it was.
    pub async fn reload(&self, settings: Settings) -> Result<(), ReloadError> {
        let reloader = self.reloader.clone();
        let reloading = tokio::task::spawn_blocking(move || reloader.reload(&settings));
        let reloaded = reloading
            .await
            .unwrap_or_else(|panic| Err(ReloadError::Broken(panic.to_string())));
        self.note_reload(reloaded.is_ok());
        reloaded
    }

    /// Counts a reload; one that failed before [`reload`](Self::reload) could be called has to be counted by its caller.
    pub fn note_reload(&self, succeeded: bool) {
        self.reloader.count(succeeded);
    }

    /// Resolves if a part of the control plane has ended that must not: the process should then end too, with an
    /// error. `/readyz` has been answering 503 since.
    pub async fn failed(&self) -> Failure {
        self.alarm.raised().await
    }

    /// Stops as planned: no more revocations are accepted, every filter is told for how long it stays fresh, evidence on
    /// its way is stored and acknowledged. Takes at most about ten seconds.
    pub async fn shutdown(mut self) {
        tracing::info!("the control plane is stopping");
        if let Some(writer) = self.log_writer.take() {
            writer.stop().await;
        }
        // They have the log: what it keeps open is closed once the last of them has ended.
        self.chores.shutdown().await;
        let promise = self.drain_promise;
        Arc::clone(&self.head_keeper).note().await;
        self.lifecycle.enter(Phase::Draining { promise });
        let all_ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
        if let Some(reverifier) = self.reverifier.take() {
            reverifier.stop().await;
        }
        if let Some(writer) = self.ledger_writer.take() {
            writer.stop().await;
        }
        Arc::clone(&self.publisher).publish().await;
        tracing::info!("the control plane has stopped");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After this nobody is acknowledged anything, and only then is the folder's lock released.
        self.lifecycle.enter(Phase::Stopped);
        self.servers.abort_all();
        self.chores.abort_all();
        drop(self.log_writer.take());
        drop(self.reverifier.take());
        drop(self.ledger_writer.take());
    }
}

/// For how long filters may be fresh once this process has ended.
fn lasting(config: &Config) -> Duration {
    with_allowance(config.max_staleness.max(config.drain_promise))
}

/// Once nobody lives any more on what earlier processes said, only what this one says counts for the next.
async fn outlive(inherited: Duration, notes: LogNotes, lasts: Duration) {
    tokio::time::sleep(inherited).await;
    if inherited > lasts
        && let Err(error) = notes.write_leases(lasts)
    {
        tracing::warn!(%error, "for how long filters may be fresh could not be noted; the next start will wait for longer");
    }
}

/// Tells whoever follows the ledger that it has grown.
fn growth_of(reader: &LedgerReader) -> watch::Receiver<u64> {
    let (sender, receiver) = watch::channel(reader.size());
    reader.on_growth(move |size| {
        sender.send_replace(size);
    });
    receiver
}

/// Runs a server that may end only when the process stops.
async fn guarded(mut guard: Guard, phase: PhaseWatch, serving: impl Future<Output = ()>) {
    serving.await;
    if phase.current() != Phase::Running {
        guard.planned();
    }
}

/// What the data folder holds.
struct Opened {
    folder: DataFolder,
    storage: Storage,
    view: View,
    forgetting: Forgetting,
    /// Or what is wrong with it: revocations go on without it.
    ledger: Result<(Ledger, LedgerIdentity), String>,
    seen: Arc<Seen>,
    /// How long filters of earlier processes may be fresh.
    inherited: Duration,
    /// Earlier processes had ended by then.
    begun: Instant,
}

// === impl Opened ===

impl Opened {
    fn open(config: &Config, lock: FolderLock) -> Result<Self, StartError> {
        let begun = Instant::now();
        let limits = &config.limits;
        let published_note = config.settings.ledger.published_note.as_deref();
        let published_note = published_note
            .map(|note| outside_of(lock.path(), note).map_err(StartError::PublishedNote))
            .transpose()?;
        let mut folder = DataFolder::open(lock, config.init, unix_seconds())?;
        if let Some(named) = &config.restored {
            declare_restored(&mut folder, named, unix_seconds(), limits.history_kept)?;
        }
        let bounds = HistoryBounds {
            entries: limits.history_entries,
            bytes: limits.history_bytes,
        };
        remove_leftover(&folder.compacting())
            .map_err(|error| system("removing what an interrupted compaction left", error))?;
        let key = PositionKey::new(folder.source_key(), folder.log_id());
        let mut view = View::new(folder.log_id(), bounds).proving(key);
        let noted = folder.notes().head()?;
        let (storage, torn) = Storage::open(&folder.revocations(), folder.log_id(), noted.as_ref(), &mut view)
            .map_err(|error| StartError::RevocationLog(error.to_string()))?;
        report_torn_tail("revocation log", torn);
        let (showed, forgotten) = read_clock(&folder.notes(), unix_seconds(), view.state().last_seen())?;
        let forgetting = Forgetting {
            clock: LogClock::showing(showed, Instant::now()),
            max_token_lifetime: config.max_token_lifetime.as_secs(),
            forgotten,
        };
        let seen = Arc::new(Seen::new(limits.seen_principals, limits.seen_delegations));
        let ledger = open_ledger(&folder, &config.settings, published_note, limits);
        match &ledger {
            Ok((ledger, _)) => see_again(&ledger.reader(), &seen),
            Err(damage) => tracing::error!(
                damage,
                "the ledger is damaged: evidence is refused until it is repaired; revocations go on"
            ),
        }
        let notes = folder.notes();
        let inherited = notes
            .leases()
            .map_err(|error| system("reading for how long filters may be fresh", error))?;
        notes
            .write_leases(inherited.max(lasting(config)))
            .map_err(|error| system("noting for how long filters may be fresh", error))?;
        if !inherited.is_zero() {
            tracing::info!(
                at_most = ?inherited,
                "revocations are taken at once, and confirmed once no filter can live any more on what an earlier control \
                 plane said"
            );
        }
        Ok(Self {
            folder,
            storage,
            view,
            forgetting,
            ledger,
            seen,
            inherited,
            begun,
        })
    }
}

fn identity_limits(limits: &Limits) -> IdentityLimits {
    IdentityLimits {
        users: limits.scim_users,
        user_bytes: limits.scim_user_bytes,
        // Half of what a request may take: an answer that says so is better than none.
        search_timeout: limits.request_timeout / 2,
        event_ids: limits.security_event_ids,
    }
}

/// What is full at which size, so that it can be told from outside how full it is.
fn note_limits(limits: &Limits, metrics: &Metrics) {
    let gauge = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
    metrics
        .revocation
        .log_subjects_limit
        .set(gauge(limits.max_subjects as u64));
    metrics.evidence.ledger_bytes_limit.set(gauge(limits.ledger_bytes));
    metrics
        .evidence
        .ledger_keys_limit
        .set(gauge(u64::from(limits.ledger_keys)));
}

/// Who is asked to cosign the ledger's checkpoints.
fn witnesses(settings: &Settings, metrics: &Arc<credence_evidence::Metrics>) -> Result<Vec<Witness>, StartError> {
    let witnesses = settings.ledger.witnesses.iter().enumerate();
    witnesses
        .map(|(index, witness)| {
            Witness::new(witness, &format!("ledger.witnesses[{index}]"), Arc::clone(metrics))
                .map_err(|error| StartError::Witness(error.to_string()))
        })
        .collect()
}

/// The ledger, and who it is to others; or what is wrong with it.
fn open_ledger(
    folder: &DataFolder,
    settings: &Settings,
    published_note: Option<PathBuf>,
    limits: &Limits,
) -> Result<(Ledger, LedgerIdentity), String> {
    let origin = settings.ledger.origin().map_err(|error| error.to_string())?;
    let naming = Naming {
        origin: origin.as_ref(),
        log_id: folder.log_id().as_str(),
    };
    let mut identity = LedgerIdentity::open(&folder.ledger(), &naming).map_err(|error| error.to_string())?;
    if let Some(note) = published_note {
        identity.remember_in(note);
    }
    let published = identity.published().map_err(|error| error.to_string())?;
    tracing::info!(key = %identity.verifier_key(), "the ledger's checkpoints are signed with this key");
    let options = LedgerOptions {
        origin: identity.first_origin().to_string(),
        bounds: LedgerBounds {
            total: limits.ledger_bytes,
            segment: limits.ledger_segment_bytes,
            keys: limits.ledger_keys,
        },
        retention: Retention {
            age: limits.ledger_retention,
            bytes: limits.ledger_retention_bytes,
        },
        published: published.map(|published| (published.checkpoint().size, published.checkpoint().root)),
    };
    let (mut ledger, opened) = Ledger::open(&folder.ledger(), options).map_err(|error| error.to_string())?;
    ledger.leave_free(limits.ledger_reserve_bytes);
    ledger.share_out(limits.ledger_principal_share);
    report_torn_tail("ledger", opened.torn);
    if let Some(target) = opened.unsealed {
        tracing::warn!(
            folder = %target.display(),
            "the ledger of an earlier version, whose entries are not sealed, was moved away; a new ledger was begun"
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
                tracing::error!(%error, "the ledger's newest records can not be read: delegations in use are not known");
                return;
            }
        };
        let mut sightings = Sightings::default();
        for record in records {
            if let RecordBody::Entry { entry, .. } = record.body {
                let encoded = Bytes::from(entry.encode_to_vec());
                if let Ok(entry) = EntryView::parse(&encoded) {
                    let mut of_entry = Sightings::of(encoded.clone());
                    of_entry.add(&entry, &mut of_late);
                    sightings.append(of_entry);
                }
            }
        }
        seen.note(sightings);
        next = end;
    }
}

/// Takes the data folder for this process; if `standby` says so, as soon as another has ended. On a thread of its own:
/// the wait has no end, and must not keep the runtime from ending.
async fn lock_folder(config: &Config) -> Result<FolderLock, StartError> {
    let (taken, lock) = tokio::sync::oneshot::channel();
    let (path, create, standby) = (config.data_folder.clone(), config.init.is_some(), config.standby);
    let waiting = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&waiting);
    std::thread::Builder::new()
        .name("folder-lock".to_owned())
        .spawn(move || {
            let say = |holder: &str| {
                waits.store(true, Ordering::Release);
                tracing::info!(
                    holder,
                    "standing by: another control plane uses the data folder; this one takes over when it has ended"
                );
            };
            let said: &dyn Fn(&str) = &say;
            // Whoever wanted it may have gone; then it is free again.
            let _ = taken.send(take_lock(&path, create, standby.then_some(said)));
        })
        .map_err(|error| system("starting a thread", error))?;
    tokio::pin!(lock);
    let mut reminder = tokio::time::interval_at(tokio::time::Instant::now() + REMINDER, REMINDER);
    loop {
        tokio::select! {
            taken = &mut lock => {
                let lock = taken.map_err(|error| system("taking the data folder", io::Error::other(error)))??;
                if waiting.load(Ordering::Acquire) {
                    tracing::info!("the other control plane has ended; taking over");
                }
                return Ok(lock);
            }
            _ = reminder.tick() => tracing::info!("still standing by"),
        }
    }
}

/// By default the signal that comes with a write beyond the limit of file sizes (`ulimit -f`) ends the process without a
/// word. With a handler, the write fails (`EFBIG`), which is reported as any other.
fn survive_file_size_limit() -> Result<(), StartError> {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays when the stream ends.
    signal(exceeded)
        .map(drop)
        .map_err(|error| system("handling the signal SIGXFSZ", error))
}

async fn listen(
    address: SocketAddr,
    what: &'static str,
    connections: Connections,
    silence: Duration,
) -> Result<BoundedListener, StartError> {
    BoundedListener::bind(address, connections, silence)
        .await
        .map_err(|error| StartError::Listen { address, what, error })
}

fn address_of(listener: &BoundedListener) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|error| system("asking for the bound address", error))
}

fn system(what: &'static str, error: io::Error) -> StartError {
    StartError::System { what, error }
}

fn report_torn_tail(file: &'static str, torn: Option<TornTail>) {
    if let Some(TornTail { offset, bytes }) = torn {
        tracing::warn!(
            file,
            offset,
            bytes,
            "cut an incomplete end, as a crash leaves it that interrupts a write; of what is known to have been \
             acknowledged nothing is missing"
        );
    }
}

fn watch_options(limits: &Limits, places: Places) -> WatchOptions {
    WatchOptions {
        places,
        hello_timeout: limits.hello_timeout,
        silence_timeout: limits.silence_timeout,
        send_timeout: limits.send_timeout,
    }
}

fn report_options(limits: &Limits) -> ReportOptions {
    ReportOptions {
        max_batch_entries: limits.max_batch_entries,
        max_batch_bytes: limits.max_batch_bytes,
        hello_timeout: limits.hello_timeout,
        send_timeout: limits.send_timeout,
    }
}

/// How long streams and requests may take to end after a planned stop began.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a control plane that stands by says so.
const REMINDER: Duration = Duration::from_secs(60);
/// Hellos, pings, pulls and the like.
const SMALL_MESSAGE_BYTES: usize = 64 << 10;
/// How often evidence is looked at that is older than the retention.
const RETENTION_TICK: Duration = Duration::from_secs(60);
/// Connections of the port for probes. They come out of the file descriptors that are kept free of other connections.
const PROBE_CONNECTIONS: usize = 16;
/// Records that are read at the start, to know again which delegations are in use.
const SEEN_AGAIN: u64 = 200_000;
const SEEN_AT_ONCE: u64 = 4096;
