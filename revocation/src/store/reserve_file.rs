//! Room on the disk that is kept for the log.
//!
//! A database grows in large steps and writes its pages in no order, so that space cannot be allocated ahead of it.
//! A file of this size lies beside it instead. Where the disk is full the file is removed, and revocations go on in the
//! room that it leaves. It is made again once there is room for it.

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
    /// That the file could not be made.
    has_warned: AtomicBool,
}

// === impl ReserveFile ===

impl ReserveFile {
    /// A file that is yet to be made, or taken over from an earlier process.
    pub(super) fn new(path: PathBuf) -> Self {
        let is_kept = path.metadata().is_ok_and(|file| file.len() >= RESERVE_BYTES);
        Self {
            path,
            is_kept: AtomicBool::new(is_kept),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Makes the file if it is missing.
    pub(super) fn keep(&self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        match self.make() {
            Ok(()) => {
                self.is_kept.store(true, Ordering::Relaxed);
                self.has_warned.store(false, Ordering::Relaxed);
                tracing::info!(bytes = RESERVE_BYTES, "room on the disk is kept for revocations");
            }
            Err(error) if !self.has_warned.swap(true, Ordering::Relaxed) => tracing::warn!(
                %error,
                path = %self.path.display(),
                bytes = RESERVE_BYTES,
                "no room on the disk can be kept for revocations at the moment: where the disk is full, they are refused"
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
            // What there was room for is not kept from others.
            .inspect_err(|_| drop(std::fs::remove_file(&self.path)))
    }

    /// Gives the room free. False if there is none to give.
    pub(super) fn release(&self) -> bool {
        if !self.is_kept.swap(false, Ordering::Relaxed) {
            return false;
        }
        let released = std::fs::remove_file(&self.path);
        match &released {
            Ok(()) => tracing::warn!(
                bytes = RESERVE_BYTES,
                "the disk is full: revocations use the room that was kept for them. Free some"
            ),
            Err(error) => tracing::error!(%error, "the room that is kept for revocations could not be freed"),
        }
        released.is_ok()
    }
}

/// The largest group (256 of the largest records) writes up to 16 MiB: room for two of them, or for 100,000 small ones.
const RESERVE_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_room_is_allocated_given_once_and_taken_back() {
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
        // By the next process, though the disk is full when it starts.
        assert!(ReserveFile::new(path.clone()).release() && !path.exists());
    }
}
