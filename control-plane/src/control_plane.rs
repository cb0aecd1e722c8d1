//! Starts the parts in order, and stops them in the opposite order.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::access::{Access, AccessControl, read_operator_token};
use crate::config::Config;
use crate::descriptors;
use crate::fetched_anchors::FetchedAnchors;
use crate::grpc;
use crate::http::{self, Api, Rates};
use crate::metrics::Metrics;
use crate::moves;
use crate::settings::{GrpcAccess, Settings};
use credence_evidence::{EvidenceError, EvidenceOptions, LedgerSettings, OpenedEvidence, Publisher, with_note_outside};
use credence_ledger::LedgerReader;
use credence_provisioning::{Identity, IdentityError};
use credence_revocation::{DataDir, DataDirError, LogId, OpenLogError, OpenedLog, RestoreError, take_lock};
use credence_runtime::client_limits::{Bounds, Places, SharedLimit};
use credence_runtime::lifecycle::{Lifecycle, Phase};
use credence_runtime::metrics::count;
use credence_runtime::supervision::{Alarm, BackgroundTask, Failure, watch_folder};
use credence_runtime::threads::Threads;
use credence_runtime::throttle::Throttle;
use credence_runtime::turns::Turns;
use credence_server::{BoundedListener, Connections, Port, Server, TlsPorts, Unusable};
use credence_storage::folder_lock::FolderLock;

/// Starts control planes.
#[derive(Debug)]
pub struct ControlPlane;

/// A running control plane. Dropping it is like a crash: filters get no drain promise.
#[derive(Debug)]
pub struct Running {
    http_address: SocketAddr,
    grpc_address: SocketAddr,
    probe_address: Option<SocketAddr>,
    log_id: LogId,
    lifecycle: Lifecycle,
    drain_promise: Duration,
    alarm: Alarm,
    announced: Arc<AtomicBool>,
    operator_token_file: Option<PathBuf>,
    access: AccessControl,
    tls: TlsPorts,
    metrics: Arc<Metrics>,
    servers: JoinSet<()>,
    tasks: JoinSet<()>,
    log_writer: Option<Threads>,
    evidence: Vec<Threads>,
    publisher: Arc<Publisher<LedgerReader>>,
    /// Dropped last, so that its lock is released when nothing writes any more.
    _folder: DataDir,
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration, or something that it names, cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The revocation log cannot be opened.
    #[error(transparent)]
    RevocationLog(#[from] OpenLogError),
    /// The log cannot be declared restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The evidence cannot be opened.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// Data of identity providers cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Takes the data folder, and starts in it.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        let folder = Self::take_folder(&config).await?;
        Self::start_in(folder, config).await
    }

    /// Takes the data folder; on standby, waits until another control plane has left it. What is wrong with the
    /// configuration or its files is an error before the wait.
    ///
    /// The wait has no limit, and credentials may be removed in the meantime: read the settings again after it.
    pub async fn take_folder(config: &Config) -> Result<FolderLock, StartError> {
        config.check().map_err(Unusable::configuration)?;
        access(&config.settings, config.operator_token_file.as_deref())?;
        TlsPorts::open(&config.settings.tls, &Metrics::new().tls)?;
        lock_folder(config).await
    }

    /// Opens the data folder, listens, and serves on the current tokio runtime.
    ///
    /// When this returns, both addresses accept connections, and everything ever acknowledged is in force.
    pub async fn start_in(lock: FolderLock, config: Config) -> Result<Running, StartError> {
        config.check().map_err(Unusable::configuration)?;
        let access = access(&config.settings, config.operator_token_file.as_deref())?;
        survive_file_size_limit()?;
        let metrics = Arc::new(Metrics::new());
        note_limits(&config, &metrics);
        let access = AccessControl::new(access);
        let tls = TlsPorts::open(&config.settings.tls, &metrics.tls)?;
        let connections = descriptors::share(config.limits.max_connections)?;
        let shares = &config.settings.limits;
        let places = |limit, places| Places::new(limit, Bounds::new(places, shares.shares()), &metrics.shares);
        let bytes = |limit, bytes: usize| places(limit, bytes.div_ceil(http::UNIT_BYTES));
        let timeouts = config.timeouts;
        let (http_listener, grpc_listener, probe_listener) = listen(&config, connections, &places).await?;
        let (http_address, grpc_address) = (http_listener.address, grpc_listener.address);
        let probe_address = probe_listener.as_ref().map(|listener| listener.address);

        let (opened, evidence) = open(config.clone(), lock).await?;
        let log_id = opened.log_id();

        let lifecycle = Lifecycle::default();
        let alarm = Alarm::default();
        let announced = Arc::new(AtomicBool::new(false));
        let limits = &config.limits;
        let watch_places = places(SharedLimit::WatchStreams, config.log.max_subscribers);
        let (started, log_tasks) =
            opened.start(watch_places, timeouts, lifecycle.watch(), &alarm, &metrics.revocation)?;
        let (log, folder) = (started.log, started.folder);
        let source_places = places(SharedLimit::AuditSources, config.evidence.max_sources);
        let configured = config.settings.anchors().map_err(Unusable::configuration)?;
        let anchors = FetchedAnchors::new(configured, log.clone());
        let of_evidence = Arc::clone(&anchors);
        let (evidence, doors, evidence_tasks) = evidence.start(
            Arc::new(move || of_evidence.ever()),
            source_places,
            &lifecycle.watch(),
            &alarm,
            &metrics.evidence,
            &metrics.otlp,
        )?;

        let moves = started.moves.zip(doors.intake.arrivals.clone());
        let moves = moves.map(|(moves, arrivals)| {
            let ledger = evidence.reader.origin().to_owned();
            moves::tasks(moves, arrivals, doors.intake.clone(), ledger)
        });
        let identity = Identity::open(
            &folder.identity(),
            &folder.watch(),
            &config.settings.scim,
            &config.settings.security_events,
            config.identity,
            &log,
            &metrics.provisioning,
        )
        .await?;
        let key_tasks = credence_issuer_keys::tasks(&config.settings.issuer_keys, &log, &metrics.issuer_keys);
        let calls = limits.max_calls;
        let api = Arc::new(Api {
            log,
            ledger: evidence.ledger,
            seen: evidence.seen,
            reader: evidence.reader,
            publisher: Arc::clone(&evidence.publisher),
            tiles: config.settings.ledger.tiles,
            intake: doors.intake,
            access: access.clone(),
            provisioning: identity.provisioning,
            receiver: identity.receiver,
            phase: lifecycle.watch(),
            metrics: Arc::clone(&metrics),
            limits: limits.clone(),
            evidence: config.evidence,
            timeouts,
            anchors,
            audience: config.settings.audience.clone(),
            status: config.settings.status.clone(),
            rates: Rates::new(&config.settings.limits, Instant::now()),
            signature_places: Semaphore::new(http::SIGNATURE_PLACES),
            stream_places: places(SharedLimit::EventStreams, limits.max_http_subscribers),
            audit_stream_places: places(SharedLimit::EvidenceStreams, limits.max_audit_subscribers),
            bodies: bytes(SharedLimit::RequestBodies, limits.body_bytes),
            answers: bytes(SharedLimit::Answers, limits.answer_bytes),
            calls: places(SharedLimit::Calls, calls),
            confirmations: places(SharedLimit::Confirmations, calls.div_ceil(4)),
            query_turns: Turns::new(http::MAX_QUERIES, shares.credential_share_percent),
            refusals: Throttle::default(),
            foreign_positions: Throttle::default(),
            announced: Arc::clone(&announced),
        });

        let mut servers = JoinSet::new();
        let mut serve = |part, (port, tls), router, listener| {
            let server = Server {
                port,
                tls,
                router,
                request_timeout: limits.request_timeout,
                timeouts,
                phase: lifecycle.watch(),
            };
            servers.spawn(alarm.clone().guarded(part, lifecycle.watch(), server.serve(listener)));
        };
        if let Some(listener) = probe_listener {
            let router = http::probe_router(Arc::clone(&api));
            serve("the probes' server", (Port::Http, None), router, listener);
        }
        let of_port = |port| (port, tls.of(port));
        serve("the HTTP server", of_port(Port::Http), http::router(api), http_listener);
        let batch_bytes = config.evidence.batch.bytes;
        let streams = grpc::router(&access, &metrics, started.watch, doors.report, batch_bytes);
        serve("the gRPC server", of_port(Port::Grpc), streams, grpc_listener);
        // The first request then finds a checkpoint.
        Arc::clone(&evidence.publisher).publish().await;
        let own: [BackgroundTask; 2] = [
            (
                "the watch of the data folder",
                Box::pin(watch_folder(folder.watch(), alarm.clone())),
            ),
            ("the watch of TLS files", Box::pin(tls.clone().follow_files())),
        ];
        let mut tasks = JoinSet::new();
        for (part, task) in own
            .into_iter()
            .chain(log_tasks)
            .chain(identity.tasks)
            .chain(key_tasks)
            .chain(evidence_tasks)
            .chain(moves.into_iter().flatten())
        {
            tasks.spawn(alarm.clone().guarded(part, lifecycle.watch(), task));
        }

        tracing::info!(%log_id, http = %http_address, grpc = %grpc_address, probes = ?probe_address, "the control plane is serving");
        Ok(Running {
            http_address,
            grpc_address,
            probe_address,
            log_id,
            lifecycle,
            drain_promise: config.log.drain_promise,
            alarm,
            announced,
            operator_token_file: config.operator_token_file,
            access,
            tls,
            metrics,
            servers,
            tasks,
            log_writer: Some(started.writer),
            publisher: evidence.publisher,
            evidence: evidence.threads,
            _folder: folder,
        })
    }
}

// === impl Running ===

impl Running {
    /// The address of the HTTP API.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// The address for the filters' gRPC streams.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// The address for health probes, if they have their own port.
    pub fn probe_address(&self) -> Option<SocketAddr> {
        self.probe_address
    }

    /// The log's name, which filters pin.
    pub fn log_id(&self) -> &LogId {
        &self.log_id
    }

    /// Lets `/readyz` answer "ready". Call it once the log's name and the addresses were printed.
    pub fn announce_ready(&self) {
        self.announced.store(true, Ordering::Release);
    }

    /// Applies other credentials and TLS files, all of them or none. Streams whose credential became invalid end.
    /// Everything else in the settings applies from the next start.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn reload(&self, settings: Settings) -> Result<(), Unusable> {
        let (token_file, in_force, tls) = (self.operator_token_file.clone(), self.access.clone(), self.tls.clone());
        let reloading = tokio::task::spawn_blocking(move || {
            settings.check().map_err(|error| Unusable(error.to_string()))?;
            let access = access(&settings, token_file.as_deref())?;
            tls.replace(&settings.tls)?;
            in_force.send_replace(access);
            Ok(())
        });
        let reloaded = reloading
            .await
            .unwrap_or_else(|panic| Err(Unusable(format!("reading the settings failed unexpectedly: {panic}"))));
        self.note_reload(reloaded.is_ok());
        reloaded
    }

    /// Counts a reload. The caller must count one that failed before [`reload`](Self::reload).
    pub fn note_reload(&self, succeeded: bool) {
        let outcome = if succeeded { "success" } else { "failure" };
        count(&self.metrics.configuration_reloads, [("outcome", outcome)]);
    }

    /// Resolves if a part of the control plane has ended unexpectedly. The process must then end with an error.
    /// `/readyz` answers 503 from then on.
    pub async fn failed(&self) -> Failure {
        self.alarm.raised().await
    }

    /// Stops as planned: no more revocations are accepted, every filter is told how long it stays fresh, and evidence
    /// in transit is stored and acknowledged. Takes at most about ten seconds.
    pub async fn shutdown(mut self) {
        tracing::info!("the control plane is stopping");
        if let Some(writer) = self.log_writer.take() {
            writer.stop().await;
        }
        // They hold the log open. It is closed once the last of them has ended.
        self.tasks.shutdown().await;
        let promise = self.drain_promise;
        self.lifecycle.enter(Phase::Draining { promise });
        let all_ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await.is_err() {
            tracing::warn!("some connections did not end in time and are closed");
        }
        for threads in self.evidence.drain(..) {
            threads.stop().await;
        }
        Arc::clone(&self.publisher).publish().await;
        tracing::info!("the control plane has stopped");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After this nothing is acknowledged, so the folder's lock can be released.
        self.lifecycle.enter(Phase::Stopped);
        self.servers.abort_all();
        self.tasks.abort_all();
        drop(self.log_writer.take());
    }
}

/// The credentials of the settings, and the operator's token. Blocks while its file is read.
fn access(settings: &Settings, operator_token_file: Option<&Path>) -> Result<Access, Unusable> {
    let operator = operator_token_file.map(read_operator_token).transpose()?;
    Ok(Access::new(&settings.access, settings.grpc_access(), operator))
}

/// Listens for HTTP, gRPC and probes, with this many connections for the first two.
async fn listen(
    config: &Config,
    (http, grpc): descriptors::Share,
    places: &(impl Fn(SharedLimit, usize) -> Places + Sync),
) -> Result<(BoundedListener, BoundedListener, Option<BoundedListener>), Unusable> {
    let bind = |address, what, limit, connections| {
        let connections = Connections::new(places(limit, connections));
        BoundedListener::bind(address, what, connections, config.timeouts.silence)
    };
    let http = bind(config.http_address, "HTTP", SharedLimit::HttpConnections, http).await?;
    let grpc = bind(config.grpc_address, "gRPC", SharedLimit::GrpcConnections, grpc).await?;
    if config.settings.grpc_access() == GrpcAccess::Open && !grpc.address.ip().is_loopback() {
        tracing::warn!(
            address = %grpc.address,
            "the gRPC port is open: any client that reaches it can read revocations and report evidence. Configure \
             tls.grpc.client_ca and access.certificates, or let only filters reach the port"
        );
    }
    let probes = match config.probe_address {
        Some(address) => Some(bind(address, "probes", SharedLimit::ProbeConnections, PROBE_CONNECTIONS).await?),
        None => None,
    };
    Ok((http, grpc, probes))
}

/// Opens the contents of the data folder.
async fn open(config: Config, lock: FolderLock) -> Result<(OpenedLog, OpenedEvidence), StartError> {
    let opening = tokio::task::spawn_blocking(move || {
        // Checked before anything is created.
        let ledger = with_note_outside(lock.path(), config.settings.ledger.clone())?;
        let log = OpenedLog::open(lock, config.log.clone())?;
        let evidence = OpenedEvidence::open(evidence_options(&config, ledger, &log)?);
        Ok((log, evidence))
    });
    opening
        .await
        .map_err(|error| system("opening the data folder", error))?
}

fn evidence_options(config: &Config, ledger: LedgerSettings, log: &OpenedLog) -> Result<EvidenceOptions, Unusable> {
    let folder = log.folder();
    let settings = &config.settings;
    Ok(EvidenceOptions {
        ledger_folder: folder.ledger(),
        watch: folder.watch(),
        log_id: log.log_id().to_string(),
        source_key: folder.source_key(),
        is_one_of_several: config.log.store.is_some(),
        settings: ledger,
        otlp: settings.audit.otlp.clone(),
        verifies_again: !settings.trust_anchors.is_empty(),
        limits: config.evidence,
        credential_share_percent: settings.limits.credential_share_percent,
        timeouts: config.timeouts,
    })
}

/// Reports the limits as metrics, so that operators can see how full they are.
fn note_limits(config: &Config, metrics: &Metrics) {
    let gauge = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
    let (revocation, evidence, ledger) = (&metrics.revocation, &metrics.evidence, config.evidence.ledger);
    revocation.log_subjects_limit.set(gauge(config.log.max_subjects as u64));
    evidence.ledger_bytes_limit.set(gauge(ledger.total));
    evidence.ledger_keys_limit.set(gauge(u64::from(ledger.keys)));
}

/// Locks the data folder for this process; with `standby`, waits until another process has ended. It runs on its own
/// thread, because the wait has no limit and must not keep the runtime from ending.
async fn lock_folder(config: &Config) -> Result<FolderLock, StartError> {
    let (taken, lock) = tokio::sync::oneshot::channel();
    let (path, create, standby) = (
        config.data_dir.clone(),
        config.log.init.is_some() || config.log.store.is_some(),
        config.standby,
    );
    std::thread::Builder::new()
        .name("folder-lock".to_owned())
        .spawn(move || {
            let waited = Cell::new(false);
            let say = |holder: &str| {
                waited.set(true);
                tracing::info!(
                    holder,
                    "standing by: another control plane uses the data folder; this one takes over when it has ended"
                );
            };
            let said: &dyn Fn(&str) = &say;
            let lock = take_lock(&path, create, standby.then_some(said));
            if lock.is_ok() && waited.get() {
                tracing::info!("the other control plane has ended; taking over");
            }
            // The receiver may have gone; then the folder is unlocked again.
            let _ = taken.send(lock);
        })
        .map_err(|error| system("starting a thread", error))?;
    tokio::pin!(lock);
    let mut reminder = tokio::time::interval_at(tokio::time::Instant::now() + REMINDER, REMINDER);
    loop {
        tokio::select! {
            taken = &mut lock => {
                return Ok(taken.map_err(|error| system("taking the data folder", error))??);
            }
            _ = reminder.tick() => tracing::info!("still standing by"),
        }
    }
}

/// By default, the signal for a write beyond the limit of file sizes (`ulimit -f`) ends the process without a message.
/// With a handler, the write fails (`EFBIG`) and is reported like any other.
fn survive_file_size_limit() -> Result<(), Unusable> {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays after the stream is dropped.
    signal(exceeded)
        .map(drop)
        .map_err(|error| system("handling the signal SIGXFSZ", error))
}

fn system(what: &str, error: impl std::fmt::Display) -> Unusable {
    Unusable(format!("{what}: {error}"))
}

/// How long streams and requests may take to end after a planned stop began.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a control plane on standby logs a reminder.
const REMINDER: Duration = Duration::from_secs(60);
/// The number of connections of the port for probes. They use file descriptors that are reserved from other
/// connections.
const PROBE_CONNECTIONS: usize = 16;
