//! Why something was not recorded.

use std::path::PathBuf;

use credence_storage::FileError;

use crate::disk_error::DiskError;
use crate::entry::EntryError;
use crate::frames::AppendError;
use crate::reserve::Room;

/// Why the ledger cannot be opened, or something was not appended, or not all of it: what was is durable, and the sources'
/// states say how far it goes.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file of it cannot be read, or is not as it was.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// There is no room left.
    #[error(
        "the ledger has used up its {limit} bytes. Start the control plane with a larger --ledger-bytes, or with a \
         --ledger-retention; until then the filters keep the evidence while they have room"
    )]
    Full {
        /// How many bytes it may have.
        limit: u64,
    },
    /// What room there is, is for others.
    #[error(
        "{path}: the file system has {free} bytes free, and {reserve} are left to what shares it with the ledger. Make room, or \
         start the control plane with a smaller --ledger-reserve or with a --ledger-retention; until then the filters keep \
         the evidence while they have room", path = path.display(), free = room.free, reserve = room.reserve
    )]
    Reserved {
        /// The ledger's folder.
        path: PathBuf,
        /// What room there is.
        room: Room,
    },
    /// There are as many data keys as there may be.
    #[error(
        "the ledger has {limit} data keys, which is the limit, and evidence is about another principal. Start the control \
         plane with a larger --ledger-keys, or with a --ledger-retention; until then the filters keep the evidence while \
         they have room"
    )]
    TooManyKeys {
        /// How many there may be.
        limit: u32,
    },
    /// What is to be erased cannot be noted.
    #[error("{0}. Nothing was erased; ask again")]
    Erasing(FileError),
    /// An entry out of bounds.
    #[error("an entry {0}")]
    Entry(#[from] EntryError),
    /// Nothing can be sealed that is this large.
    #[error("a record is too large to be sealed")]
    TooLarge,
}

impl From<FileError> for LedgerError {
    fn from(error: FileError) -> Self {
        Self::Disk(error.into())
    }
}
