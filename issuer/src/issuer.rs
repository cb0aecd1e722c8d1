//! Starts the issuer, and stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use credence_runtime::client_limits::{Bounds, Places, ShareMetrics, SharedLimit, Shares};
use credence_runtime::lifecycle::{Lifecycle, Phase, PhaseWatch};
use credence_runtime::outbound;
use credence_runtime::rates::{Rate, RateTable};
use credence_runtime::settings::{SettingsError, Timeouts};
use credence_runtime::supervision::{Alarm, BackgroundTask, Failure, watch_folder};
use credence_server::{
    BoundedListener, Connections, Port, Server, TlsMetrics, TlsPorts, TlsSettings, Unusable, operators,
};
use credence_storage::folder_lock::{FolderLock, FolderLockError};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::app::{self, App};
use crate::backchannel;
use crate::browser;
use crate::clients::{ClientDirectory, KnownClients, networks};
use crate::events;
use crate::front;
use crate::grants::Grants;
use crate::key_ring::KeyRing;
use crate::keys::{Keys, KeysError};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::plane::Plane;
use crate::settings::Settings;
use crate::sign_in::IdentityProvider;
use crate::store::Store;
use crate::tasks;

/// What the command line says.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data folder, for one issuer at a time.
    pub data: PathBuf,
    /// The address of its port.
    pub listen: SocketAddr,
    /// The address of the operator's port: metrics and probes.
    pub admin: SocketAddr,
}

/// Why the issuer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Something that a setting names cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderLockError),
    /// The signing keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// Another issuer has this one's URL.
    #[error("another issuer answers at {0}; stop it first: the grants and keys of two would not be the same")]
    Another(String),
    /// The database cannot be used.
    #[error("{path}: the issuer's database cannot be opened: {error}", path = .0.display(), error = .1)]
    Database(PathBuf, Box<redb::Error>),
}

/// A running issuer.
#[derive(Debug)]
pub struct Issuer {
    /// The address of its port.
    pub address: SocketAddr,
    /// The address of the operator's port.
    pub admin: SocketAddr,
    lifecycle: Lifecycle,
    alarm: Alarm,
    servers: JoinSet<()>,
    tasks: JoinSet<()>,
    /// Dropped last.
    _folder: FolderLock,
}

// === impl Issuer ===

impl Issuer {
    /// Opens the data folder, listens, and serves on the current tokio runtime.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(settings: &Settings, options: &Options) -> Result<Self, StartError> {
        let policy = settings.policy()?;
        if !options.data.exists() {
            return Err(KeysError::Missing(options.data.clone()).into());
        }
        let folder = FolderLock::take(&options.data, None)?;
        check_alone(&settings.url).await?;
        let watch = folder.watch(&[]).map_err(Unusable::configuration)?;
        let failed = |error: redb::Error| StartError::Database(options.data.clone(), Box::new(error));
        let store = Store::open(&options.data, watch.clone(), |transaction| {
            Grants::prepare(transaction)?;
            events::prepare(transaction)
        })
        .map_err(failed)?;
        let (data, passphrase) = (options.data.clone(), passphrase(&settings.keys_passphrase_file)?);
        // It takes a while, on purpose.
        let keys = tokio::task::spawn_blocking(move || Keys::open(&data, passphrase.as_bytes()));
        let keys = KeyRing::new(keys.await.map_err(Unusable::configuration)??);
        let mut registry = Registry::with_prefix("credence");
        let rate = settings.limits.requests_per_second;
        let rate = Rate::new(rate, rate.saturating_mul(BURST_SECONDS));
        let metrics = Metrics::new(&mut registry);
        let shares = ShareMetrics::new(&mut registry);
        let callback = format!("{}/callback", settings.url);
        let app = Arc::new(App {
            started_at: app::now(),
            has_certificates: settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
            url: settings.url.clone(),
            provider_url: settings.identity_provider.issuer.clone(),
            policy,
            scopes: settings.scopes()?,
            descriptions: settings.tools.clone(),
            grants_per_person: settings.limits.grants_per_person,
            clients: ClientDirectory::new(
                KnownClients::new(&settings.clients)?,
                &settings.client_metadata,
                &shares,
            )?,
            provider: IdentityProvider::new(&settings.identity_provider, &callback, PROVIDER_TIMEOUT)?,
            plane: Plane::new(&settings.control_plane).map_err(Unusable::configuration)?,
            grants: Grants::new(store.clone(), &settings.url, metrics.grants.clone()),
            store: store.clone(),
            keys: Arc::new(keys),
            pushed: Memory::new(app::PUSHED_LIFE, app::MAX_PUSHED),
            sign_ins: Memory::new(app::SIGN_IN_LIFE, app::MAX_SIGN_INS),
            sessions: Memory::new(app::SESSION_LIFE, app::MAX_SESSIONS),
            consents: Memory::new(app::CONSENT_LIFE, app::MAX_CONSENTS),
            used_ids: Memory::new(app::USED_LIFE, app::MAX_USED),
            trusted_proxies: networks("trusted_proxies", &settings.trusted_proxies)?,
            rates: RateTable::new(rate, COUNTED_APART, Instant::now()),
            metrics,
        });

        let tls_settings = TlsSettings {
            http: settings.tls.clone(),
            grpc: None,
        };
        let tls = TlsPorts::open(&tls_settings, &TlsMetrics::new(&mut registry))?;
        let (lifecycle, alarm) = (Lifecycle::default(), Alarm::default());
        let timeouts = Timeouts::default();
        // A proxy has the connections of many.
        let address_percent = if settings.trusted_proxies.is_empty() { 25 } else { 100 };
        let bounds = Bounds::new(
            settings.limits.connections,
            Shares {
                credential_percent: 100,
                address_percent,
            },
        );
        let connections = Connections::new(Places::new(SharedLimit::HttpConnections, bounds, &shares));
        let listener = BoundedListener::bind(options.listen, "HTTP", connections, timeouts.silence).await?;
        let address = listener.address;
        let is_ready = readiness(store, lifecycle.watch());
        let (admin, operators) = operators(options.admin, registry, is_ready, lifecycle.watch(), &shares).await?;
        let people = Server {
            port: Port::Http,
            tls: tls.of(Port::Http),
            router: router(Arc::clone(&app)),
            request_timeout: BODY_TIMEOUT,
            timeouts,
            phase: lifecycle.watch(),
        };
        let mut servers = JoinSet::new();
        servers.spawn(
            alarm
                .clone()
                .guarded("the HTTP server", lifecycle.watch(), people.serve(listener)),
        );
        servers.spawn(
            alarm
                .clone()
                .guarded("the operator's port", lifecycle.watch(), operators),
        );
        let kept = u64::from(settings.limits.kept_days) * 86_400;
        let background: [BackgroundTask; 6] = [
            (
                "the watch of the data folder",
                Box::pin(watch_folder(watch, alarm.clone())),
            ),
            ("the watch of TLS files", Box::pin(tls.follow_files())),
            (
                "the watch of the signing keys",
                Box::pin(Arc::clone(&app.keys).follow()),
            ),
            (
                "the revocation of ended grants",
                Box::pin(tasks::revoke_the_rest(Arc::clone(&app))),
            ),
            ("the sending of evidence", Box::pin(tasks::report(Arc::clone(&app)))),
            ("the forgetting of old grants", Box::pin(tasks::forget(app, kept))),
        ];
        let mut tasks = JoinSet::new();
        for (part, task) in background {
            tasks.spawn(alarm.clone().guarded(part, lifecycle.watch(), task));
        }
        tracing::info!(url = settings.url, %address, "the issuer is serving");
        Ok(Self {
            address,
            admin,
            lifecycle,
            alarm,
            servers,
            tasks,
            _folder: folder,
        })
    }

    /// Resolves if a part of the issuer has ended unexpectedly. The process must then end with an error.
    pub async fn failed(&self) -> Failure {
        self.alarm.raised().await
    }

    /// Answers the requests that have arrived, and stops.
    pub async fn shutdown(mut self) {
        self.lifecycle.enter(Phase::Draining {
            promise: Duration::ZERO,
        });
        let all_ended = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await.is_err() {
            tracing::warn!("some connections did not end in time and are closed");
        }
        self.tasks.shutdown().await;
        self.lifecycle.enter(Phase::Stopped);
        tracing::info!("the issuer has stopped");
    }
}

/// Grants can be stored. What people sign in at and the control plane may be away: they are asked again for each request.
fn readiness(store: Store, phase: PhaseWatch) -> impl Fn() -> Result<(), String> {
    move || match (phase.current(), store.fault()) {
        (Phase::Running, None) => Ok(()),
        (Phase::Running, Some(fault)) => Err(fault.to_string()),
        _ => Err("the issuer is stopping".to_owned()),
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(METADATA, get(backchannel::metadata))
        .route("/jwks", get(backchannel::jwks))
        .route("/par", post(backchannel::push).options(backchannel::preflight))
        .route("/token", post(backchannel::token).options(backchannel::preflight))
        .route("/revoke", post(backchannel::revoke).options(backchannel::preflight))
        .route("/introspect", post(backchannel::introspect))
        .route("/authorize", get(browser::authorize))
        .route("/callback", get(browser::callback))
        .route("/consent", post(browser::decide))
        .route("/", get(browser::list))
        .route("/withdraw", post(browser::withdraw))
        .route("/sign-out", post(browser::sign_out))
        .route("/style.css", get(browser::style))
        .route("/healthz", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), front::receive))
        .with_state(app)
}

/// Refuses to start while another issuer answers at this URL.
async fn check_alone(url: &str) -> Result<(), StartError> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
    }
    let asked = url.to_owned();
    let found = tokio::task::spawn_blocking(move || {
        let agent = outbound::probing_agent(ALONE_TIMEOUT);
        let metadata = agent.get(format!("{asked}{METADATA}")).call();
        let metadata = metadata.inspect_err(|error| tracing::info!(%error, "no other issuer answers at the URL"));
        let mut metadata = metadata.ok().filter(|answer| answer.status().is_success())?;
        let body = metadata
            .body_mut()
            .with_config()
            .limit(MAX_METADATA_BYTES)
            .read_to_vec();
        serde_json::from_slice::<Metadata>(&body.ok()?).ok()
    });
    match found.await {
        Ok(Some(Metadata { issuer })) if issuer == url => Err(StartError::Another(issuer)),
        _ => Ok(()),
    }
}

/// Reads the passphrase of the signing keys.
///
/// # Errors
/// The file cannot be read, or is empty.
pub fn passphrase(path: &Path) -> Result<Zeroizing<String>, SettingsError> {
    let wrong = |problem: String| SettingsError::at("keys_passphrase_file", format!("{}: {problem}", path.display()));
    let bytes = credence_storage::durable::read_small_file(path, MAX_PASSPHRASE_BYTES);
    let bytes = Zeroizing::new(bytes.map_err(|error| wrong(error.to_string()))?);
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is no UTF-8".to_owned()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(wrong("it is empty; write a passphrase into it".to_owned())),
        text => Ok(Zeroizing::new(text.to_owned())),
    }
}

/// For the rest of a request's body after an early answer.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// For one request to the identity provider, with its answer.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);
const ALONE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_METADATA_BYTES: u64 = 64 << 10;
const METADATA: &str = "/.well-known/oauth-authorization-server";
/// How many seconds' worth of requests may come at once.
const BURST_SECONDS: u32 = 10;
/// Networks whose requests are counted apart; others share one rate.
const COUNTED_APART: usize = 65_536;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// A consent with many values, or a request with many tools.
const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_PASSPHRASE_BYTES: u64 = 4 << 10;
