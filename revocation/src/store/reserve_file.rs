//! Disk space that is reserved for the log.
//!
//! A database grows in large steps and writes its pages in any order, so space cannot be allocated for it ahead of
//! time. Instead, a file of this size is kept beside it. If the disk is full, the file is removed, and revocations use
//! its space. It is created again once there is room.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

#[derive(Debug)]
pub(super) struct ReserveFile {
    path: PathBuf,
    is_kept: AtomicBool,
    /// Whether it was logged that the file could not be created.
    has_warned: AtomicBool,
}

// === impl ReserveFile ===

impl ReserveFile {
    /// A file that is yet to be created, or that an earlier process created.
    pub(super) fn new(path: PathBuf) -> Self {
        let is_kept = path.metadata().is_ok_and(|file| file.len() >= RESERVE_BYTES);
        Self {
            path,
            is_kept: AtomicBool::new(is_kept),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Creates the file if it is missing.
    pub(super) fn keep(&self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        match self.make() {
            Ok(()) => {
                self.is_kept.store(true, Ordering::Relaxed);
                self.has_warned.store(false, Ordering::Relaxed);
                tracing::info!(bytes = RESERVE_BYTES, "reserved disk space for revocations");
            }
            Err(error) if !self.has_warned.swap(true, Ordering::Relaxed) => tracing::warn!(
                %error,
                path = %self.path.display(),
                bytes = RESERVE_BYTES,
                "no disk space can be reserved for revocations now: if the disk gets full, they are refused"
            ),
            Err(_) => {}
        }
    }

    fn make(&self) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)
            .map_err(io::Error::from)
            .and_then(|()| file.sync_all())
            // The incomplete file must not take space from others.
            .inspect_err(|_| drop(std::fs::remove_file(&self.path)))
    }

    /// Frees the space. Returns false if there is none to free.
    pub(super) fn release(&self) -> bool {
        if !self.is_kept.swap(false, Ordering::Relaxed) {
            return false;
        }
        let released = std::fs::remove_file(&self.path);
        match &released {
            Ok(()) => tracing::warn!(
                bytes = RESERVE_BYTES,
                "the disk is full: revocations use the space that is reserved for them. Free disk space"
            ),
            Err(error) => tracing::error!(%error, "the disk space that is reserved for revocations could not be freed"),
        }
        released.is_ok()
    }
}

/// The largest group (256 of the largest records) writes up to 16 MiB. There is space for two of them, or for 100,000
/// small ones.
const RESERVE_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_space_is_reserved_freed_once_and_reserved_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reserve");
        let reserve = ReserveFile::new(path.clone());
        assert!(!reserve.release());
        reserve.keep();
        assert!(path.metadata().unwrap().blocks() * 512 >= RESERVE_BYTES);
        assert!(reserve.release());
        assert!(!path.exists() && !reserve.release());
        reserve.keep();
        assert!(path.exists());
        // By the next process, even if the disk is full when it starts.
        assert!(ReserveFile::new(path.clone()).release() && !path.exists());
    }
}
