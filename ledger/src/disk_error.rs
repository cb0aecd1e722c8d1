//! Why a file of the ledger cannot be used.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use credence_storage::FileError;

/// Why a file of the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// An error of the system, which may not recur.
    #[error(transparent)]
    Io(#[from] FileError),
    /// The file is damaged or missing.
    #[error("{path} is damaged{place}: {found}. {cure}", path = path.display(), place = at_byte(*offset))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in it, if it is one place.
        offset: Option<u64>,
        /// The damage.
        found: Cow<'static, str>,
        /// The fix for the operator.
        cure: &'static str,
    },
}

// === impl DiskError ===

impl DiskError {
    /// Damage to a file that cannot be rebuilt from other files.
    pub(crate) fn damaged(path: &Path, found: impl Into<Cow<'static, str>>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset: None,
            found: found.into(),
            cure: RESTORE,
        }
    }

    /// Adds the place in the file.
    pub(crate) fn at_byte(mut self, place: u64) -> Self {
        if let Self::Damaged { offset, .. } = &mut self {
            *offset = Some(place);
        }
        self
    }

    /// Replaces the fix.
    pub(crate) fn with_cure(mut self, other: &'static str) -> Self {
        if let Self::Damaged { cure, .. } = &mut self {
            *cure = other;
        }
        self
    }
}

fn at_byte(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

const RESTORE: &str =
    "Nothing was changed. Check the disk, keep a copy of the file, and restore the data folder from a backup";
