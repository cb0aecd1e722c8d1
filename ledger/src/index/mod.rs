//! Where in a segment what is asked for can be found.
//!
//! For every value that can be asked for there is a row: a keyed hash of the value and the record's place in its segment.
//! Rows are collected while the segment grows ([`IndexBuilder`]) and written sorted and packed when it is full
//! ([`IndexFile`]). What is found may be something else with the same hash, and has to be opened and compared; what is
//! there is always found. Without the secret nobody can tell from the file whom it is about.

mod builder;
mod file;
mod format;
mod key;

use std::io;
use std::path::{Path, PathBuf};

pub use self::builder::{IndexBuilder, MAX_PLACES};
pub use self::file::IndexFile;
pub use self::format::RUN_PLACES;
pub(crate) use self::key::KeyHasher;
pub use self::key::{IndexKey, IndexSecret};

/// Why the index can not be used. What it is made from is untouched: it can be made again.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The system did not let us.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not what was written.
    #[error("{path}: {what}; remove the file and start again: the index is made anew", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The file was made with another secret: nothing would be found in it.
    #[error(
        "{path} was made with another ledger/index-key; restore that one, or remove the file and start again: the index \
         is made anew", path = path.display()
    )]
    OtherSecret {
        /// The file.
        path: PathBuf,
    },
    /// A record is to be added out of order, or there is no room for it.
    #[error("the index of a segment has places 0 to {}, one after the other; {place} was to follow {places} of them", MAX_PLACES - 1)]
    Place {
        /// The place that was asked for.
        place: u32,
        /// How many there are.
        places: u32,
    },
}

// === impl IndexError ===

impl IndexError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Io { path, error }
    }
}
