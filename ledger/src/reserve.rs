//! Disk space that the ledger leaves free for others: revocations are written to the same data folder.

use std::path::Path;

use crate::options::Retention;

/// The free space on the ledger's file system, and the reserved part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free for this process.
    pub free: u64,
    /// Bytes of these that the ledger leaves free.
    pub reserve: u64,
}

impl Room {
    /// The present state, with this many bytes to reserve. None if the system does not tell.
    pub(crate) fn of(folder: &Path, reserve: u64) -> Option<Self> {
        let status = rustix::fs::statvfs(folder).ok()?;
        let total = status.f_blocks.saturating_mul(status.f_frsize);
        Some(Self {
            // Free for this process: some file systems keep blocks for root only.
            free: status.f_bavail.saturating_mul(status.f_frsize),
            reserve: reserve_on(total, reserve),
        })
    }

    /// Whether the reserve remains after this many more bytes.
    pub(crate) fn is_left(self, needed: u64) -> bool {
        self.free >= self.reserve.saturating_add(needed)
    }
}

/// The bytes to reserve: this many, and with a retention enough for the notes that precede a removal. On a completely
/// full disk nothing could be removed any more.
pub(crate) fn reserve_for(retention: Retention, bytes: u64) -> u64 {
    match retention == Retention::default() {
        true => bytes,
        false => bytes.max(ROOM_TO_PRUNE),
    }
}

/// The reserve on a file system of this size.
fn reserve_on(total: u64, bytes: u64) -> u64 {
    bytes.min(total / SMALLEST_PART)
}

/// Space for a note, and for the unexpired chains of a segment.
const ROOM_TO_PRUNE: u64 = 16 << 20;
/// At most this fraction of the file system is reserved.
const SMALLEST_PART: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_as_configured_or_a_sixteenth_of_a_small_disk() {
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
                reserve: reserve_on(total, 256 << 20),
            };
            assert_eq!(room.is_left(needed), expected, "{needed} bytes of {free}");
        }
    }

    #[test]
    fn with_a_retention_there_is_always_room_for_its_notes() {
        let by_size = Retention {
            bytes: Some(1 << 30),
            age: None,
        };
        for (retention, expected) in [
            (Retention::default(), [0, 1 << 30]),
            (by_size, [ROOM_TO_PRUNE, 1 << 30]),
        ] {
            assert_eq!([0, 1 << 30].map(|bytes| reserve_for(retention, bytes)), expected);
        }
    }

    #[test]
    fn a_disk_with_room_refuses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::of(folder.path(), 1).unwrap();
        assert!(room.reserve == 1 && room.is_left(0) && !room.is_left(u64::MAX));
    }
}
