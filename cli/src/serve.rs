//! `credence serve`

mod log_output;
pub(crate) mod settings;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_control_plane::{Config, ControlPlane, EvidenceLimits, IdentityLimits, InitOptions, LogOptions, Running};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use zeroize::Zeroizing;

use self::log_output::Flush;
use crate::failure::{Failure, Outcome};
use crate::{clock, files, token};

/// Run the control plane: the revocation log that filters follow, and the ledger of their decisions.
///
/// Prints its log_id (which filters pin) and its addresses once it serves. SIGTERM or SIGINT stops it so that filters
/// stay fresh until its successor is there; a second one stops it at once. SIGHUP has it read the configuration file, the
/// TLS files and the operator's token again.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The folder that holds the revocation log and the ledger. One control plane at a time uses it.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Create the log in an empty folder, and the operator's token file if it is not there. Tokens issued
    /// before are revoked in the new log, which cannot know what a lost log had revoked.
    #[arg(long)]
    init: bool,

    /// With --init: this is a first installation, nothing was ever revoked, so that what was issued before stays
    /// valid.
    #[arg(long, requires = "init")]
    fresh: bool,

    /// With --init: end once the log is created and its log_id printed, and serve no requests. For a job that runs once.
    #[arg(long, requires = "init")]
    init_only: bool,

    /// The data folder was restored from a backup of the log with this log_id: go on with what it holds, under a new
    /// log_id, and revoke every root token issued before now, since what was revoked after the backup is not known.
    #[arg(long, value_name = "LOG_ID", conflicts_with = "init")]
    restored: Option<String>,

    /// Begin the log's own clock anew at the wall clock: for a log that was begun while that was far ahead.
    #[arg(long, conflicts_with = "init")]
    reset_clock: bool,

    /// Where the HTTP API listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    http: SocketAddr,

    /// Where filters connect; port 0 takes a free one. Without access and tls.grpc in the configuration file they are not
    /// authenticated: let only the mesh reach it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7071")]
    grpc: SocketAddr,

    /// Where health probes are answered, apart from all other clients: /healthz and /readyz in plain HTTP, and nothing else.
    /// The HTTP API answers them too.
    #[arg(long, value_name = "ADDRESS")]
    probes: Option<SocketAddr>,

    /// The file with the bearer token of an operator who may do everything. The configuration file may name others.
    #[arg(
        long,
        value_name = "FILE",
        env = "CREDENCE_TOKEN_FILE",
        required_unless_present = "config"
    )]
    operator_token_file: Option<PathBuf>,

    /// The configuration file, YAML: TLS and credentials (docs/reference/configuration.md).
    #[arg(long, value_name = "FILE", env = "CREDENCE_CONFIG")]
    config: Option<PathBuf>,

    /// The longest that a filter may allow requests without having heard that its revocations are complete: 2s to 60s. A
    /// filter whose own max_staleness is shorter goes by that. A revocation is confirmed when every filter has applied it, or
    /// this long after the filter was heard last.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = clock::span)]
    max_staleness: Duration,

    /// How long filters stay fresh after a planned stop: at most 10s. The successor confirms no revocation for as long.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = clock::span)]
    drain_promise: Duration,

    /// How often the keys change with which the filters of an Envoy seal the verified chains that they share: 1s to
    /// 30d. What they sealed is believed for one to two of these spans.
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = clock::span)]
    cache_key_rotation: Duration,

    /// How many subjects (principals, keys, issuers, delegations) the log may hold. Filters need room for as many.
    #[arg(long, value_name = "COUNT", default_value_t = LogOptions::default().max_subjects)]
    max_subjects: usize,

    /// The longest that a token may live which filters believe: 60s to 366d. Revoked delegations are forgotten after it;
    /// no filter's max_token_lifetime may be longer.
    #[arg(long, value_name = "SPAN", default_value = "90d", value_parser = clock::span)]
    max_token_lifetime: Duration,

    /// How many entries of each principal's history are kept: 1 to 1000.
    #[arg(long, value_name = "COUNT", default_value_t = LogOptions::default().history_kept)]
    history_kept: usize,

    /// The size, in bytes, up to which the revocation log's file is never compacted. Beyond, it is as soon as a third of it
    /// is superseded.
    #[arg(long, value_name = "BYTES", default_value_t = LogOptions::default().compact_above_bytes)]
    compact_above: u64,

    /// Where another control plane uses the data folder, wait for it to end and take over; without, that is an error.
    #[arg(long)]
    standby: bool,

    /// How much disk the ledger may use, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().ledger.total)]
    ledger_bytes: u64,

    /// How much room the ledger leaves on its disk, in bytes, for revocations and all else that shares it; on a small disk a
    /// sixteenth of it, if that is less.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().reserve_bytes)]
    ledger_reserve: u64,

    /// How large a file of the ledger becomes before another is begun, in bytes, 65536 to 3 GiB: evidence is removed a file
    /// at a time.
    #[arg(long, value_name = "BYTES", default_value_t = EvidenceLimits::default().ledger.segment,
        value_parser = clap::value_parser!(u64).range(65_536..=3 << 30))]
    ledger_segment_bytes: u64,

    /// How many hundredths of --ledger-retention-bytes, or else of --ledger-bytes, may be about one principal: 1 to 100. While
    /// the ledger is more than half full, what a principal brings beyond that is counted and not recorded one by one.
    #[arg(long, value_name = "PERCENT", default_value_t = EvidenceLimits::default().principal_share,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    ledger_principal_share: u8,

    /// How many data keys the ledger may have: one for each principal that there is evidence of.
    #[arg(long, value_name = "COUNT", default_value_t = EvidenceLimits::default().ledger.keys)]
    ledger_keys: u32,

    /// How long evidence is kept, 60s or more; its hashes stay. Forever, if it is not said.
    #[arg(long, value_name = "SPAN", value_parser = clock::span)]
    ledger_retention: Option<Duration>,

    /// The size of evidence and its index, in bytes, beyond which the oldest is removed; its hashes stay. Nothing is, if it is
    /// not said.
    #[arg(long, value_name = "BYTES")]
    ledger_retention_bytes: Option<u64>,

    /// How many users the SCIM realms may hold together.
    #[arg(long, value_name = "COUNT", default_value_t = IdentityLimits::default().users)]
    scim_users: u64,

    /// How many security event tokens are remembered, so that none counts twice.
    #[arg(long, value_name = "COUNT", default_value_t = IdentityLimits::default().event_ids)]
    security_event_ids: u64,

    /// What to log, such as info or credence_control_plane=debug.
    #[arg(long, value_name = "FILTER", env = "CREDENCE_LOG", default_value = "info")]
    log: String,

    /// How to write the log to standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        self.refuse_token_in_data()?;
        let _flushed_at_the_end = self.start_logging()?;
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
        runtime.block_on(serve(config, self.config.as_deref(), out))
    }

    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::new(self.data.clone(), self.operator_token_file.clone());
        if let Some(path) = &self.config {
            config.settings = settings::read(path)?;
        }
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
        Ok(config)
    }

    /// A file in the folder that is to hold the new log would make it look like a folder in use.
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

    fn start_logging(&self) -> Result<Flush, Failure> {
        let logged: Targets = self
            .log
            .parse()
            .map_err(|error| Failure::input(format!("--log {}: {error}; write such as info or debug", self.log)))?;
        let (output, flush) = log_output::start(std::io::stderr())
            .map_err(|error| Failure::operation(format!("the log's thread cannot be started: {error}")))?;
        let lines = tracing_subscriber::fmt::layer()
            .log_internal_errors(false)
            .with_writer(move || output.clone());
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        tracing_subscriber::registry().with(lines).with(logged).init();
        // The usual hook writes to standard error itself, and would wait there for a reader.
        std::panic::set_hook(Box::new(
            |panic| tracing::error!(%panic, "a thread broke down; this is a bug"),
        ));
        Ok(flush)
    }
}

/// A start and a planned stop: what the next start finds is what it finds after any other. It listens on free ports of
/// this machine, and promises its clients nothing.
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

async fn serve(config: Config, file: Option<&Path>, out: &mut impl Write) -> Result<Outcome, Failure> {
    let failed = |error: std::io::Error| Failure::operation(format!("signals cannot be received: {error}"));
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hung_up = signal(SignalKind::hangup()).map_err(failed)?;
    let running = tokio::select! {
        started = ControlPlane::start(config) => started.map_err(|error| Failure::operation(error.to_string()))?,
        // It may stand by for as long as it likes, and holds nothing then.
        _ = terminated.recv() => return Ok(Outcome::Done),
        _ = interrupted.recv() => return Ok(Outcome::Done),
    };
    announce(&running, out)?;
    running.announce_ready();
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
            _ = hung_up.recv() => reload(&running, file).await,
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

/// Reads again what may change without a restart. An error changes nothing.
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
            "the configuration was read again and cannot be used; what was in force stays. Fix it and send SIGHUP \
             again"
        ),
    }
}

/// The path from the root, through every link in the part of it that exists.
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

/// What a filter's configuration and the API's callers need, a line each.
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

/// Makes an operator's token: 256 random bits.
fn create_token(path: &Path) -> Result<(), Failure> {
    files::create_secret(path, &Zeroizing::new(format!("{}\n", *token::generate()?)))?;
    tracing::info!("made the operator's token file {}", path.display());
    Ok(())
}

/// Ends the process soon, even if a thread or the reader of its output is stuck.
fn end_soon() {
    std::thread::spawn(|| {
        std::thread::sleep(END_TIMEOUT);
        std::process::exit(1);
    });
}

fn cut_short() -> Failure {
    Failure::operation(
        "stopped at once by a second signal: filters were promised nothing and are stale until a restart",
    )
}

/// A free port that only this machine reaches.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long an orderly end may take after a part of the control plane broke down.
const END_TIMEOUT: Duration = Duration::from_secs(3);
