//! What the ledger leaves free on its disk, for what shares it: revocations are written to the same data folder.

use std::path::Path;

use crate::options::Retention;

/// What is free on the ledger's file system, and what of that is left to what shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free for us.
    pub free: u64,
    /// Bytes of those that the ledger leaves free.
    pub reserve: u64,
}

impl Room {
    /// How it is now, with so many bytes to leave free; nothing where the system does not say.
    pub(crate) fn of(folder: &Path, reserve: u64) -> Option<Self> {
        let status = rustix::fs::statvfs(folder).ok()?;
        let total = status.f_blocks.saturating_mul(status.f_frsize);
        Some(Self {
            // What is free for us: some file systems keep blocks for root alone.
            free: status.f_bavail.saturating_mul(status.f_frsize),
            reserve: reserve_on(total, reserve),
        })
    }

    /// Whether the reserve is left once so many bytes more are used.
    pub(crate) fn is_left(self, needed: u64) -> bool {
        self.free >= self.reserve.saturating_add(needed)
    }
}

/// Bytes to leave free: so many, and enough for what a retention writes down before it removes anything. On a disk that is
/// full to the last byte, nothing could be removed any more.
pub(crate) fn reserve_for(retention: Retention, bytes: u64) -> u64 {
    match retention == Retention::default() {
        true => bytes,
        false => bytes.max(ROOM_TO_PRUNE),
    }
}

/// What of a file system of this size is left free.
fn reserve_on(total: u64, bytes: u64) -> u64 {
    bytes.min(total / SMALLEST_PART)
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
    fn where_evidence_is_removed_by_and_by_there_is_always_room_to_write_that_down() {
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
