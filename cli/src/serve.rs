//! `credence serve`

pub(crate) mod settings;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_control_plane::{
    Config, ControlPlane, EvidenceLimits, IdentityLimits, InitOptions, LogOptions, Running, StartError, StoreOptions,
};
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome};
use crate::log::Logging;
use crate::store::StoreArgs;
use crate::{clock, files, token};

/// Run the control plane: the revocation log that filters follow, and the ledger of their decisions.
///
/// Prints its log_id (which filters pin) and its addresses once it serves. SIGTERM or SIGINT stops it; filters stay
/// fresh until the next control plane starts, for at most --drain-promise. A second signal stops it at once. SIGHUP
/// reloads the configuration file, the TLS files and the operator token.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Data folder, for one control plane at a time. Required.
    ///
    /// It holds the revocation log and the ledger.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Create the log in an empty folder, and the operator token. Revokes all earlier tokens.
    ///
    /// The new log cannot know what a lost log had revoked, so tokens issued before are revoked. An existing token file is
    /// kept.
    #[arg(long)]
    init: bool,

    /// With `--init`: a first installation, so that earlier tokens stay valid.
    #[arg(long, requires = "init")]
    fresh: bool,

    /// With `--init`: print `log_id` and exit.
    ///
    /// For a job that runs once, before the control plane.
    #[arg(long, requires = "init")]
    init_only: bool,

    /// Once after restoring a backup: new `log_id`; revokes all earlier tokens.
    ///
    /// LOG_ID is that of the backup. Revocations made after the backup are unknown, so every root token issued before now
    /// is revoked.
    #[arg(long, value_name = "LOG_ID", conflicts_with = "init")]
    restored: Option<String>,

    /// Set the log's clock back to the wall clock, once.
    ///
    /// For a log that was created while the wall clock was far ahead.
    #[arg(long, conflicts_with = "init")]
    reset_clock: bool,

    /// HTTP API.
    ///
    /// Port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    http: SocketAddr,

    /// gRPC, for filters. `access.grpc` says who may connect.
    ///
    /// Port 0 takes a free port. Without `access` and `tls.grpc` in the configuration file, filters are not authenticated:
    /// only the mesh may reach this port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7071")]
    grpc: SocketAddr,

    /// Only `/healthz` and `/readyz`, in plain HTTP.
    ///
    /// The HTTP API answers them too.
    #[arg(long, value_name = "ADDRESS")]
    probes: Option<SocketAddr>,

    /// Token of an operator with role `admin`. Required without `--config`.
    ///
    /// The configuration file can name other credentials.
    #[arg(
        long,
        value_name = "FILE",
        env = "CREDENCE_TOKEN_FILE",
        required_unless_present = "config"
    )]
    operator_token_file: Option<PathBuf>,

    /// Configuration file.
    ///
    /// YAML; docs/reference/configuration.md has the settings.
    #[arg(long, value_name = "FILE", env = "CREDENCE_CONFIG")]
    config: Option<PathBuf>,

    /// Longest lease of a filter: 2s to 60s.
    ///
    /// A filter denies requests once its lease is older. A filter with a shorter max_staleness uses its own. A revocation
    /// is confirmed when every filter has applied it, or this long after the control plane last heard from the filter.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = clock::span)]
    max_staleness: Duration,

    /// Lease after a planned stop: at most 10s.
    ///
    /// The next control plane confirms no revocation for as long.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = clock::span)]
    drain_promise: Duration,

    /// Rotation of the shared cache's keys: 1s to 30d.
    ///
    /// The workers of an Envoy seal the verified chains that they share with these keys. A sealed chain is valid for one to
    /// two of these spans.
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = clock::span)]
    cache_key_rotation: Duration,

    /// Revoked subjects in the log.
    ///
    /// Principals, keys, issuers and delegations. Filters need memory for as many.
    #[arg(long, value_name = "COUNT", default_value_t = LogOptions::default().max_subjects)]
    max_subjects: usize,

    /// Longest token lifetime that filters accept: 60s to 366d.
    ///
    /// Revoked delegations are forgotten after it. No filter's max_token_lifetime may be longer.
    #[arg(long, value_name = "SPAN", default_value = "90d", value_parser = clock::span)]
    max_token_lifetime: Duration,

    /// History entries kept of a principal: 1 to 1,000.
    #[arg(long, value_name = "COUNT", default_value_t = LogOptions::default().history_kept)]
    history_kept: usize,

    /// Log size, in bytes, below which it is never compacted.
    ///
    /// Above it, the log is compacted when a third of it is superseded.
    #[arg(long, value_name = "BYTES", default_value_t = LogOptions::default().compact_above_bytes)]
    compact_above: u64,

    #[command(flatten)]
    store: StoreArgs,

    /// With `--store`: folder with `audit-source-key` and `filter-cache-secret`.
    ///
    /// 32 random bytes each, the same for every replica.
    #[arg(long, value_name = "DIR", requires = "store")]
    secrets: Option<PathBuf>,

    /// Wait until the data folder is free, then take over.
    ///
    /// Without it, a data folder in use is an error.
    #[arg(long)]
    standby: bool,

    /// Disk space of the ledger, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().ledger.total)]
    ledger_bytes: u64,

    /// Disk space that the ledger leaves free, in bytes; at most a sixteenth of the disk.
    ///
    /// Revocations and everything else on the disk can use it.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().reserve_bytes)]
    ledger_reserve: u64,

    /// Size of a ledger segment, in bytes: 65,536 to 3 GiB.
    ///
    /// Evidence is removed a segment at a time.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().ledger.segment,
        value_parser = clap::value_parser!(u64).range(65_536..=3 << 30))]
    ledger_segment_bytes: u64,

    /// Percentage of the ledger for one principal: 1 to 100.
    ///
    /// Of --ledger-retention-bytes, or else of --ledger-bytes. While the ledger is more than half full, decisions about a
    /// principal beyond its share are counted, not recorded as events.
    #[arg(long, value_name = "PERCENT", default_value_t = EvidenceLimits::default().principal_share,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    ledger_principal_share: u8,

    /// Principals with evidence.
    ///
    /// Each has a data key.
    #[arg(long, value_name = "COUNT", default_value_t = EvidenceLimits::default().ledger.keys)]
    ledger_keys: u32,

    /// Age of evidence to remove: at least 60s. Default: none.
    ///
    /// The hashes of removed evidence stay.
    #[arg(long, value_name = "SPAN", value_parser = clock::span)]
    ledger_retention: Option<Duration>,

    /// Size of evidence, in bytes, above which the oldest is removed. Default: none.
    ///
    /// The hashes of removed evidence stay.
    #[arg(long, value_name = "BYTES")]
    ledger_retention_bytes: Option<u64>,

    /// SCIM users, all realms.
    #[arg(long, value_name = "COUNT", default_value_t = IdentityLimits::default().users)]
    scim_users: u64,

    /// Security event tokens remembered.
    ///
    /// Each token counts once.
    #[arg(long, value_name = "COUNT", default_value_t = IdentityLimits::default().event_ids)]
    security_event_ids: u64,

    #[command(flatten)]
    log: Logging,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        self.refuse_token_in_data()?;
        let _flushed_at_the_end = self.log.start()?;
        let config = self.config()?;
        if let Some(token_file) = self
            .operator_token_file
            .as_deref()
            .filter(|file| self.init && !file.exists())
        {
            create_token(token_file)?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
        if self.init_only {
            return runtime.block_on(create(config, out));
        }
        runtime.block_on(self.serve(config, out))
    }

    async fn serve(&self, config: Config, out: &mut impl Write) -> Result<Outcome, Failure> {
        let failed = |error: std::io::Error| Failure::operation(format!("signals cannot be received: {error}"));
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut hung_up = signal(SignalKind::hangup()).map_err(failed)?;
        let running = tokio::select! {
            started = self.start(config) => started?,
            // A standby may wait for any time, and holds no resources then.
            _ = terminated.recv() => return Ok(Outcome::Done),
            _ = interrupted.recv() => return Ok(Outcome::Done),
        };
        announce(&running, out)?;
        running.announce_ready();
        loop {
            tokio::select! {
                _ = terminated.recv() => break,
                _ = interrupted.recv() => break,
                _ = hung_up.recv() => reload(&running, self.config.as_deref()).await,
                failure = running.failed() => {
                    tracing::error!(%failure, "the process ends");
                    end_soon();
                    return Err(Failure::operation(failure.to_string()));
                }
            }
        }
        tokio::select! {
            () = running.shutdown() => Ok(Outcome::Done),
            _ = terminated.recv() => Err(cut_short()),
            _ = interrupted.recv() => Err(cut_short()),
        }
    }

    /// On standby, the settings are read a second time: what was removed from them during the wait must not count.
    async fn start(&self, config: Config) -> Result<Running, Failure> {
        let failed = |error: StartError| Failure::operation(error.to_string());
        let folder = ControlPlane::take_folder(&config).await.map_err(failed)?;
        let config = if self.standby { self.config()? } else { config };
        ControlPlane::start_in(folder, config).await.map_err(failed)
    }

    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::new(self.data.clone(), self.operator_token_file.clone());
        if let Some(path) = &self.config {
            config.settings = settings::read(path)?;
        }
        config.log.store = self.store()?;
        config.log.init = self.init.then_some(InitOptions { floor: !self.fresh });
        config.log.restored.clone_from(&self.restored);
        config.log.reset_clock = self.reset_clock;
        config.http_address = self.http;
        config.grpc_address = self.grpc;
        config.probe_address = self.probes;
        config.log.max_staleness = self.max_staleness;
        config.log.drain_promise = self.drain_promise;
        config.log.cache_key_rotation = self.cache_key_rotation;
        config.log.max_subjects = self.max_subjects;
        config.evidence.ledger.total = self.ledger_bytes;
        config.evidence.reserve_bytes = self.ledger_reserve;
        config.evidence.ledger.segment = self.ledger_segment_bytes;
        config.evidence.principal_share = self.ledger_principal_share;
        config.evidence.ledger.keys = self.ledger_keys;
        config.evidence.retention.age = self.ledger_retention;
        config.evidence.retention.bytes = self.ledger_retention_bytes;
        config.identity.users = self.scim_users;
        config.identity.event_ids = self.security_event_ids;
        config.log.history_kept = self.history_kept;
        config.log.compact_above_bytes = self.compact_above;
        config.log.max_token_lifetime = self.max_token_lifetime;
        config.standby = self.standby;
        if config.log.store.is_some() {
            // The filters of a replica that stops go to another one.
            config.log.drain_promise = Duration::ZERO;
        }
        Ok(config)
    }

    fn store(&self) -> Result<Option<StoreOptions>, Failure> {
        match (&self.store.store, &self.secrets) {
            (Some(_), None) => Err(Failure::input(
                "--store needs --secrets: a folder with the files audit-source-key and filter-cache-secret, 32 random \
                 bytes each, the same for every replica",
            )),
            (_, secrets) => Ok(secrets.as_deref().and_then(|secrets| self.store.options(secrets))),
        }
    }

    /// A token file in the new folder would make it look like a folder in use.
    fn refuse_token_in_data(&self) -> Result<(), Failure> {
        let Some(token_file) = self.operator_token_file.as_deref().filter(|_| self.init) else {
            return Ok(());
        };
        if settled(token_file)?.starts_with(settled(&self.data)?) {
            return Err(Failure::input(format!(
                "--operator-token-file {} lies in the data folder {}, which --init creates and which must hold nothing \
                 else. Name a file beside it, such as {}.token",
                token_file.display(),
                self.data.display(),
                self.data.display()
            )));
        }
        Ok(())
    }
}

/// A start and a planned stop, so that the next start finds the same state as after any other. It listens on free ports
/// of the loopback address, and gives its clients no drain promise.
async fn create(mut config: Config, out: &mut impl Write) -> Result<Outcome, Failure> {
    config.http_address = LOOPBACK;
    config.grpc_address = LOOPBACK;
    config.probe_address = None;
    config.log.drain_promise = Duration::ZERO;
    let running = ControlPlane::start(config)
        .await
        .map_err(|error| Failure::operation(error.to_string()))?;
    writeln!(out, "log_id: {}", running.log_id())?;
    out.flush()?;
    running.shutdown().await;
    Ok(Outcome::Done)
}

/// Reloads the settings that may change without a restart. An error changes nothing.
async fn reload(running: &Running, file: Option<&Path>) {
    let reloaded = match file.map(settings::read).transpose() {
        Ok(settings) => running
            .reload(settings.unwrap_or_default())
            .await
            .map_err(|error| error.to_string()),
        Err(failure) => {
            running.note_reload(false);
            Err(failure.to_string())
        }
    };
    match reloaded {
        Ok(()) => tracing::info!("the configuration was read again: its credentials and TLS files are in force"),
        Err(error) => tracing::error!(
            error,
            "the configuration was read again but is invalid; the previous one stays in force. Fix it and send SIGHUP \
             again"
        ),
    }
}

/// The absolute path, with every link resolved in the part that exists.
fn settled(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(path)?;
    let real = absolute.ancestors().find_map(|existing| {
        Some(
            existing
                .canonicalize()
                .ok()?
                .join(absolute.strip_prefix(existing).ok()?),
        )
    });
    Ok(real.unwrap_or(absolute))
}

/// Prints what filters' configurations and callers of the API need, a line each.
fn announce(running: &Running, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "log_id: {}", running.log_id())?;
    writeln!(out, "http: {}", running.http_address())?;
    writeln!(out, "grpc: {}", running.grpc_address())?;
    if let Some(probes) = running.probe_address() {
        writeln!(out, "probes: {probes}")?;
    }
    out.flush()?;
    Ok(())
}

/// Creates an operator token: 256 random bits.
fn create_token(path: &Path) -> Result<(), Failure> {
    files::create_secret(path, &Zeroizing::new(format!("{}\n", *token::generate()?)))?;
    tracing::info!("created the operator token file {}", path.display());
    Ok(())
}

/// Ends the process soon, even if a thread or the reader of its output blocks.
fn end_soon() {
    std::thread::spawn(|| {
        std::thread::sleep(END_TIMEOUT);
        std::process::exit(1);
    });
}

fn cut_short() -> Failure {
    Failure::operation("stopped at once by a second signal: filters got no drain promise and are stale until a restart")
}

/// A free port on the loopback address.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long an orderly stop may take after a part of the control plane failed.
const END_TIMEOUT: Duration = Duration::from_secs(3);
