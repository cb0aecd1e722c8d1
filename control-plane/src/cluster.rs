//! A log that several control planes share: looks at it, and moves it to etcd or back.

use std::path::Path;

use credence_revocation::{StoreOptions, TransferError, Transferred, take_lock};

pub use credence_revocation::{ClusterStatus, MemberState, MemberStatus, export, status};

/// Moves the log of a data folder to etcd. With `standby`, calls it with the name of the process that uses the folder, and
/// waits until that one has ended.
///
/// Must be called within a tokio runtime, on a thread that may block.
///
/// # Errors
/// If the folder is in use, the store has a log already, or either cannot be read or written. Repeating it is safe.
pub fn import(data: &Path, standby: Option<&dyn Fn(&str)>, to: &StoreOptions) -> Result<Transferred, TransferError> {
    let lock = take_lock(data, false, standby)?;
    credence_revocation::import(lock, to)
}
