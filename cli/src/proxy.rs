//! `credence proxy`

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use credence_proxy::Settings;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Outcome};
use crate::log::Logging;
use crate::settings_file;

/// Run the proxy of an agent: it holds keys and delegations, and proves each request.
///
/// Prints its addresses once it serves. SIGTERM or SIGINT stops it.
#[derive(Debug, clap::Args)]
pub(crate) struct Proxy {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Check the configuration file, and do nothing else. The files that it names are not read.
    #[arg(long)]
    check: bool,

    /// Serve one client of MCP over standard input and output instead, to the server at this URL.
    #[arg(long, value_name = "URL", conflicts_with_all = ["check", "admin"])]
    stdio: Option<String>,

    /// The client that this is, by its name in the file. Default: the only one.
    #[arg(long, value_name = "NAME", requires = "stdio")]
    client: Option<String>,

    /// Address for operators: `/metrics`, `/healthz` and `/readyz`. Default: none.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    #[command(flatten)]
    log: Logging,
}

// === impl Proxy ===

impl Proxy {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let settings = settings(&self.config)?;
        if self.check {
            writeln!(out, "{}: no errors", self.config.display())?;
            return Ok(Outcome::Done);
        }
        let _flushed_at_the_end = self.log.start()?;
        // One thread: a proxy beside an agent is to be small.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
        match &self.stdio {
            None => runtime.block_on(self.serve(&settings, out)),
            Some(url) => {
                let served = credence_proxy::serve_stdio(&settings, url, self.client.as_deref());
                let served = runtime.block_on(served);
                // A thread may still wait for standard input.
                runtime.shutdown_background();
                served.map_err(|error| Failure::operation(error.to_string()))?;
                Ok(Outcome::Done)
            }
        }
    }

    async fn serve(&self, settings: &Settings, out: &mut impl Write) -> Result<Outcome, Failure> {
        let failed = |error: std::io::Error| Failure::operation(format!("signals cannot be received: {error}"));
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let proxy = credence_proxy::Proxy::start(settings, self.admin).await;
        let proxy = proxy.map_err(|error| Failure::operation(error.to_string()))?;
        for (listen, address) in &proxy.addresses {
            match address {
                Some(address) => writeln!(out, "{listen} {address}")?,
                None => writeln!(out, "{listen}")?,
            }
        }
        if let Some(admin) = proxy.admin {
            writeln!(out, "admin {admin}")?;
        }
        out.flush()?;
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        proxy.shutdown().await;
        Ok(Outcome::Done)
    }
}

fn settings(path: &Path) -> Result<Settings, Failure> {
    let file = settings_file::read(path, Settings::check)?;
    let file = file.ok_or_else(|| Failure::input(format!("{}: it is empty", path.display())))?;
    Ok(file.settings)
}
