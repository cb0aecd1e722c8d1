//! Where the log is kept: groups of records in a chain of digests, the compacted beginning before them, and a few notes.
//!
//! [`LogStore`] is what the rest of the log needs of a store. [`embedded`] keeps all of it in one redb file.

pub(crate) mod beginning;
pub(crate) mod embedded;
pub(crate) mod group;
mod reserve_file;

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use crate::clock::Forgotten;
use crate::digest::Head;
use crate::log_id::LogId;
use crate::log_view::LogView;

use beginning::Cut;
use group::Group;

/// Keeps a log. Only one thread appends and compacts; any may follow.
pub(crate) trait LogStore: Debug + Send + Sync {
    /// Hands everything to `view`, and checks the chain of digests over all of it.
    fn replay(&self, view: &mut LogView) -> Result<(), StoreError>;

    /// Appends a group if the log ends at `after`. The group is durable on return.
    fn append(&self, after: Head, group: &Group) -> Result<(), AppendError>;

    /// The groups after a position: at least one unless it is the last, and about `limit` records. Checks that they
    /// continue the history of that position.
    fn follow(&self, after: Head, limit: usize) -> Result<Vec<Group>, FollowError>;

    /// Where the groups begin.
    fn beginning(&self) -> Head;

    /// Does the next bounded part of putting `cut` into the place of the groups up to it. Returns whether more is left to
    /// do. After an error the log is what it was. A cut that is not after the beginning is ignored.
    fn compact(&self, cut: &mut Cut) -> Result<bool, StoreError>;

    /// The log's name.
    fn log_id(&self) -> LogId;

    /// What is noted besides the groups.
    fn notes(&self) -> Notes;

    /// Durable on return.
    fn write_notes(&self, notes: Notes) -> Result<(), StoreError>;

    /// Protects the last group as well as those before it against damage, and keeps room on the disk for those to come.
    /// Called when there is time.
    fn seal(&self) -> Result<(), StoreError>;

    /// About how many bytes the log takes.
    fn bytes(&self) -> u64;
}

/// What is noted beside the groups, in the same store.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Notes {
    /// The log's own clock, in seconds since the Unix epoch; see [`clock`](crate::clock).
    #[prost(int64, optional, tag = "1")]
    pub(crate) clock: Option<i64>,
    /// Which delegations may have been forgotten.
    #[prost(message, optional, tag = "2")]
    pub(crate) forgotten: Option<Forgotten>,
    /// For how many milliseconds filters may be fresh after this process has ended.
    #[prost(uint64, tag = "3")]
    pub(crate) leases_ms: u64,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not hold what was written.
    #[error(
        "{path} is damaged: {found}. Restore the data folder from a backup, and start once with --restored \
         (docs/operate/backup.md#restore)", path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The file is of another version of Credence.
    #[error(
        "{path} has layout {found}, and this version reads layout {expected} only. Use the version that wrote it, or \
         start with --init in an empty folder", path = path.display()
    )]
    OtherLayout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: String,
        /// The one that can be read.
        expected: u32,
    },
    /// The system or the database refused.
    #[error(
        "{path} cannot be read or written: {error}. Free disk space, raise a limit on file sizes (ulimit -f), or repair the \
         volume; it is tried again by itself", path = path.display()
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// What was said.
        error: redb::Error,
    },
    /// The file was closed after an error, and was opened less than a second ago.
    #[error("{why} (the file is opened again in a second)")]
    Closed {
        /// What the error was.
        why: String,
    },
}

/// Why a group was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    /// The log does not have it.
    #[error(transparent)]
    NotDone(StoreError),
    /// The log may have it: [`LogStore::follow`] tells, once it succeeds.
    #[error(transparent)]
    Unknown(StoreError),
}

/// Why a log cannot be followed from a position.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error("the position is none of this log's, or it was compacted away")]
    NotContinued,
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl StoreError ===

impl StoreError {
    /// Whether there was no room on the disk.
    fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Database { error: redb::Error::Io(error), .. }
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        )
    }
}
