//! A log that several control planes share: looks at it, and moves it to etcd or back.

use std::path::Path;
use std::time::Duration;

use credence_revocation::{StoreOptions, TransferError, Transferred, take_lock};

pub use credence_revocation::{ClusterStatus, MemberState, MemberStatus, export, status};

/// Moves the log of a data folder to etcd. With `standby`, waits until no control plane uses the folder.
///
/// Must be called within a tokio runtime, on a thread that may block.
///
/// # Errors
/// If the folder is in use, the store has a log already, or either cannot be read or written. Repeating it is safe.
pub fn import(
    data: &Path,
    standby: bool,
    to: &StoreOptions,
    max_staleness: Duration,
) -> Result<Transferred, TransferError> {
    let say = |holder: &str| tracing::info!(holder, "waiting for the control plane to stop");
    let lock = take_lock(data, false, standby.then_some(&say as &dyn Fn(&str)))?;
    credence_revocation::import(lock, to, max_staleness)
}
