//! What the ledger leaves free on its disk, for what shares it: revocations are written to the same data folder.

use std::path::{Path, PathBuf};

use crate::options::Retention;

/// How much is left free.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reserve {
    /// Bytes; on a small file system a sixteenth of it, if that is less.
    pub(crate) bytes: u64,
}

/// What is free on the ledger's file system, and what of that is left to what shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free for us.
    pub free: u64,
    /// Bytes of those that the ledger leaves free.
    pub reserve: u64,
}

/// What room there is, is for others.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: the file system has {free} bytes free, and {reserve} are left to what shares it with the ledger. Make room, or \
     start the control plane with a smaller --ledger-reserve or with a --ledger-retention; until then the filters keep \
     the evidence while they have room", path = path.display()
)]
pub struct Reserved {
    /// The ledger's folder.
    path: PathBuf,
    free: u64,
    reserve: u64,
}

// === impl Reserve ===

impl Reserve {
    /// So much, and enough for what a retention writes down before it removes anything: on a disk that is full to the last
    /// byte, nothing could be removed any more.
    pub(crate) fn with(bytes: u64, retention: Retention) -> Self {
        let needed = match retention == Retention::default() {
            true => 0,
            false => ROOM_TO_PRUNE,
        };
        Self {
            bytes: bytes.max(needed),
        }
    }

    /// Whether so many bytes more leave as much free as they should. Where the system does not say, it is the disk that
    /// refuses what it has no room for.
    pub(crate) fn allows(self, folder: &Path, needed: u64) -> Result<(), Reserved> {
        if self.bytes == 0 {
            return Ok(());
        }
        match self.room(folder) {
            Some(room) if !room.is_left(needed) => Err(Reserved {
                path: folder.to_owned(),
                free: room.free,
                reserve: room.reserve,
            }),
            _ => Ok(()),
        }
    }

    /// How it is now; nothing where the system does not say.
    pub(crate) fn room(self, folder: &Path) -> Option<Room> {
        let status = rustix::fs::statvfs(folder).ok()?;
        let total = status.f_blocks.saturating_mul(status.f_frsize);
        Some(Room {
            // What is free for us: some file systems keep blocks for root alone.
            free: status.f_bavail.saturating_mul(status.f_frsize),
            reserve: self.of(total),
        })
    }

    /// What of a file system of this size is left free.
    fn of(self, total: u64) -> u64 {
        self.bytes.min(total / SMALLEST_PART)
    }
}

// === impl Room ===

impl Room {
    /// Whether the reserve is left once so many bytes more are used.
    fn is_left(self, needed: u64) -> bool {
        self.free >= self.reserve.saturating_add(needed)
    }
}

/// For a note, and for the chains of a segment that have not expired.
const ROOM_TO_PRUNE: u64 = 16 << 20;
/// No more than this part of the file system is left free.
const SMALLEST_PART: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_free_is_what_was_asked_for_or_a_sixteenth_of_a_small_disk() {
        let reserve = Reserve { bytes: 256 << 20 };
        let cases: [(u64, u64, u64, bool); 5] = [
            (100 << 30, 300 << 20, 44 << 20, true),
            (100 << 30, 300 << 20, 45 << 20, false),
            (160 << 20, 11 << 20, 1 << 20, true),
            (160 << 20, 11 << 20, 2 << 20, false),
            (160 << 20, 9 << 20, 0, false),
        ];
        for (total, free, needed, expected) in cases {
            let room = Room {
                free,
                reserve: reserve.of(total),
            };
            assert_eq!(room.is_left(needed), expected, "{needed} bytes of {free}");
        }
    }

    #[test]
    fn where_evidence_is_removed_by_and_by_there_is_always_room_to_write_that_down() {
        let by_size = Retention {
            bytes: Some(1 << 30),
            age: None,
        };
        for (retention, expected) in [
            (Retention::default(), [0, 1 << 30]),
            (by_size, [ROOM_TO_PRUNE, 1 << 30]),
        ] {
            assert_eq!(
                [0, 1 << 30].map(|bytes| Reserve::with(bytes, retention).bytes),
                expected
            );
        }
    }

    #[test]
    fn a_disk_with_room_refuses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Reserve { bytes: 1 }.room(folder.path()).unwrap().reserve == 1);
        assert!(Reserve { bytes: 1 }.allows(folder.path(), 0).is_ok());
        let refused = Reserve { bytes: 1 }.allows(folder.path(), u64::MAX).unwrap_err();
        assert!(refused.to_string().contains("--ledger-reserve"), "{refused}");
        assert!(Reserve { bytes: 0 }.allows(folder.path(), u64::MAX).is_ok());
    }
}
