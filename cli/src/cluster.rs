//! `credence cluster`: the log of several replicas, on etcd.

use std::io::Write;
use std::path::{Path, PathBuf};

use credence_control_plane::cluster::{self, MemberStatus};
use credence_control_plane::{StoreOptions, TransferError, Transferred};

use crate::failure::{Failure, Outcome};
use crate::store::StoreArgs;
use crate::{columns, stderr};

/// Look after a log that several control planes share.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Cluster {
    Status(Status),
    Import(Import),
    Export(Export),
}

/// Show the log, its replicas, and the members of etcd.
///
/// Exits with 1 if a member does not answer, or says that something is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    store: StoreArgs,
}

/// Move the log of a data folder to etcd.
///
/// Stop the control plane first, or let the command wait for it with --standby. The log keeps its name, its position and
/// its digest: filters go on where they were. Start the replicas within ten seconds, and no filter denies anything. The
/// first may use the same data folder, so that its ledger goes on.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// Data folder of the control plane.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    /// Folder for `audit-source-key` and `filter-cache-secret`, which every replica needs.
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,

    /// Wait until the control plane has stopped.
    #[arg(long)]
    standby: bool,
}

/// Move the log from etcd to a new data folder.
///
/// Stop all replicas first. The log keeps its name, its position and its digest. Ledgers stay where they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    store: StoreArgs,

    /// Folder with `audit-source-key` and `filter-cache-secret`.
    #[arg(long, value_name = "DIR")]
    secrets: PathBuf,

    /// New data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Cluster {
    pub(crate) fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        match self {
            Self::Status(status) => status.run(out),
            Self::Import(import) => import.run(out),
            Self::Export(export) => export.run(out),
        }
    }
}

impl Status {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let store = given(&self.store, Path::new(""))?;
        let found = in_runtime(move || cluster::status(&store))?;
        print(&found.log, out)?;
        if let (Some(staleness), Some(lifetime)) = (found.max_staleness, found.max_token_lifetime) {
            writeln!(out, "max_staleness: {} ms", staleness.as_millis())?;
            writeln!(out, "max_token_lifetime: {} s", lifetime.as_secs())?;
        }
        let mut rows = vec![["REPLICA", "APPLIED"].map(str::to_owned)];
        for (name, applied) in found.replicas {
            rows.push([name, applied.to_string()]);
        }
        columns::print(&rows, out)?;
        let mut rows = vec![["MEMBER", "STATE", "VERSION", "MIB", "USED"].map(str::to_owned)];
        let mut is_well = true;
        for MemberStatus { address, state } in found.members {
            let (state, version, bytes) = match state {
                Ok(state) => {
                    is_well &= state.alarms.is_empty();
                    let role = if state.leads { "leads" } else { "follows" };
                    let says = std::iter::once(role).chain(state.alarms.iter().map(String::as_str));
                    let says: Vec<_> = says.collect();
                    (says.join(", "), state.version, [state.bytes, state.bytes_used])
                }
                Err(error) => {
                    is_well = false;
                    (error, "-".to_owned(), [0, 0])
                }
            };
            let [bytes, used] = bytes.map(|bytes| bytes.div_ceil(1 << 20).to_string());
            rows.push([address, state, version, bytes, used]);
        }
        columns::print(&rows, out)?;
        Ok(if is_well { Outcome::Done } else { Outcome::Denied })
    }
}

impl Import {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let store = given(&self.store, &self.secrets)?;
        let (data, standby) = (self.data.clone(), self.standby);
        let moved = in_runtime(move || {
            let say = |holder: &str| stderr::print(format_args!("credence: waiting until {holder} has stopped"));
            cluster::import(&data, standby.then_some(&say), &store)
        })?;
        print(&moved, out)?;
        writeln!(
            out,
            "next: start the replicas with --store and --secrets {}, the first with --data {}",
            self.secrets.display(),
            self.data.display()
        )?;
        Ok(Outcome::Done)
    }
}

impl Export {
    fn run(&self, out: &mut impl Write) -> Result<Outcome, Failure> {
        let store = given(&self.store, &self.secrets)?;
        let data = self.data.clone();
        let moved = in_runtime(move || cluster::export(&store, &data))?;
        print(&moved, out)?;
        writeln!(
            out,
            "next: start one control plane with --data {}, without --store",
            self.data.display()
        )?;
        Ok(Outcome::Done)
    }
}

fn print(log: &Transferred, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "log_id: {}\nseq: {}\ndigest: {}", log.log_id, log.seq, log.digest)?;
    Ok(())
}

fn given(store: &StoreArgs, secrets: &Path) -> Result<StoreOptions, Failure> {
    let missing =
        || Failure::input("no store: give --store etcd://HOST:PORT,HOST:PORT,HOST:PORT, or set CREDENCE_STORE");
    store.options(secrets).ok_or_else(missing)
}

/// The work blocks, and needs a runtime for its connections.
fn in_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::operation(format!("the runtime cannot be started: {error}")))?;
    let done = runtime.block_on(async { tokio::task::spawn_blocking(work).await });
    let done = done.map_err(|error| Failure::operation(error.to_string()))?;
    done.map_err(|error| Failure::operation(error.to_string()))
}
