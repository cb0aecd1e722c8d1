//! Why something was not recorded.

use std::path::PathBuf;

use credence_storage::FileError;

use crate::disk_error::DiskError;
use crate::entry::EntryError;
use crate::frames::AppendError;
use crate::reserve::Room;

/// Why the ledger cannot be opened, or why some items were not appended. The appended ones are durable; the sources'
/// states show how far that goes.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file cannot be read, or is damaged.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The ledger has reached its size limit.
    #[error(
        "the ledger has reached its limit of {limit} bytes. Start the control plane with a larger --ledger-bytes, or \
         with a --ledger-retention; until then the filters keep evidence as long as they have room"
    )]
    Full {
        /// The size limit in bytes.
        limit: u64,
    },
    /// The free space is reserved for others.
    #[error(
        "{path}: the file system has {free} bytes free, and {reserve} are reserved for its other users. Make room, or \
         start the control plane with a smaller --ledger-reserve or with a --ledger-retention; until then the filters keep \
         evidence as long as they have room", path = path.display(), free = room.free, reserve = room.reserve
    )]
    Reserved {
        /// The ledger's folder.
        path: PathBuf,
        /// Free and reserved bytes.
        room: Room,
    },
    /// All data keys are used.
    #[error(
        "the ledger has {limit} data keys, which is the limit, and there is evidence about another principal. Start \
         the control plane with a larger --ledger-keys, or with a --ledger-retention; until then the filters keep evidence \
         as long as they have room"
    )]
    TooManyKeys {
        /// The largest number of keys.
        limit: u32,
    },
    /// An erasure cannot be noted.
    #[error("{0}. Nothing was erased; try again")]
    Erasing(FileError),
    /// An entry out of bounds.
    #[error("an entry {0}")]
    Entry(#[from] EntryError),
    /// A record is too large to be sealed.
    #[error("a record is too large to be sealed")]
    TooLarge,
}

impl From<FileError> for LedgerError {
    fn from(error: FileError) -> Self {
        Self::Disk(error.into())
    }
}
