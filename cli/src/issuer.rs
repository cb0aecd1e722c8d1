//! `credence issuer`

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_issuer::{Issuer, Keys, Options, Settings, passphrase};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Outcome};
use crate::log::Logging;
use crate::{clock, settings_file};

/// Run the issuer: an OAuth authorization server where people grant delegations to agents, and revoke them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum IssuerCommand {
    Serve(ServeIssuer),
    Check(CheckIssuer),
    #[command(subcommand)]
    Keys(KeysCommand),
}

/// Serve people and clients.
///
/// Prints its addresses once it serves. SIGTERM or SIGINT stops it.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeIssuer {
    #[command(flatten)]
    place: Place,

    /// Address for people and clients.
    ///
    /// Port 0 takes a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7074")]
    listen: SocketAddr,

    /// Address for operators: `/metrics`, `/healthz` and `/readyz`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7073")]
    admin: SocketAddr,

    #[command(flatten)]
    log: Logging,
}

/// Check a configuration file. The files that it names are not read.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckIssuer {
    /// Configuration file.
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

/// Make and rotate the signing keys.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeysCommand {
    /// Make the first signing key, in a new data folder.
    Create(Place),
    /// Add a key that replaces the current one after `--lead`.
    ///
    /// It is published at once. A running issuer notices it.
    Rotate(Rotate),
}

/// Rotate the signing keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    place: Place,

    /// How long the new key is published before it signs.
    ///
    /// Longer than verifiers keep keys: `refresh_s` of `issuer_keys`.
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = clock::span)]
    lead: Duration,
}

/// The issuer's files.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Data folder, for one issuer at a time.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

// === impl IssuerCommand ===

impl IssuerCommand {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Serve(command) => command.run(out),
            Self::Check(command) => {
                settings(&command.config)?;
                writeln!(out, "{}: no errors", command.config.display())?;
                Ok(Outcome::Done)
            }
            Self::Keys(KeysCommand::Create(place)) => {
                let settings = settings(&place.config)?;
                let passphrase = passphrase(&settings.keys_passphrase_file).map_err(input)?;
                let keys = Keys::create(&place.data, passphrase.as_bytes()).map_err(operation)?;
                show(&keys, out)
            }
            Self::Keys(KeysCommand::Rotate(command)) => command.run(out),
        }
    }
}

// === impl ServeIssuer ===

impl ServeIssuer {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let _flushed_at_the_end = self.log.start()?;
        let settings = settings(&self.place.config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
        runtime.block_on(self.serve(&settings, out))
    }

    async fn serve(&self, settings: &Settings, out: &mut impl Write) -> Result<Outcome, Failure> {
        let failed = |error: std::io::Error| Failure::operation(format!("signals cannot be received: {error}"));
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let options = Options {
            data: self.place.data.clone(),
            listen: self.listen,
            admin: self.admin,
        };
        let issuer = Issuer::start(settings, &options).await.map_err(operation)?;
        writeln!(out, "http {}\nadmin {}", issuer.address, issuer.admin)?;
        out.flush()?;
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
            failure = issuer.failed() => return Err(Failure::operation(failure.to_string())),
        }
        issuer.shutdown().await;
        Ok(Outcome::Done)
    }
}

// === impl Rotate ===

impl Rotate {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let settings = settings(&self.place.config)?;
        let passphrase = passphrase(&settings.keys_passphrase_file).map_err(input)?;
        let mut keys = Keys::open(&self.place.data, passphrase.as_bytes()).map_err(operation)?;
        let longest = settings.policy.iter().map(|rule| rule.token_lifetime_s).max();
        keys.rotate(now(), self.lead.as_secs(), longest.unwrap_or_default().into())
            .map_err(operation)?;
        show(&keys, out)
    }
}

fn show(keys: &Keys, out: &mut impl Write) -> Result<Outcome, Failure> {
    for key in keys.schedule(now()) {
        writeln!(out, "{key}")?;
    }
    Ok(Outcome::Done)
}

fn now() -> u64 {
    u64::try_from(clock::now().0).unwrap_or_default()
}

fn settings(path: &Path) -> Result<Settings, Failure> {
    let file = settings_file::read(path, Settings::check)?;
    let file = file.ok_or_else(|| Failure::input(format!("{}: it is empty", path.display())))?;
    Ok(file.settings)
}

fn input(error: impl ToString) -> Failure {
    Failure::input(error.to_string())
}

fn operation(error: impl ToString) -> Failure {
    Failure::operation(error.to_string())
}
