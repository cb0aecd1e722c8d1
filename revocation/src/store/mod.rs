//! The store of the log: groups of records in a digest chain, the compacted beginning before them, and a few notes.
//!
//! [`LogStore`] is the interface of a store. [`embedded`] keeps everything in one redb file, [`etcd`] on etcd.

pub(crate) mod beginning;
pub(crate) mod embedded;
pub(crate) mod etcd;
pub(crate) mod group;
mod reserve_file;

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use credence_etcd::EtcdError;

use crate::clock::Forgotten;
use crate::digest::Head;
use crate::log_id::LogId;
use crate::log_view::LogView;

use beginning::Cut;
use group::Group;

/// Stores a log. Only one thread appends and compacts; any thread may follow.
pub(crate) trait LogStore: Debug + Send + Sync {
    /// Passes everything to `view`, and checks the whole digest chain.
    fn replay(&self, view: &mut LogView) -> Result<(), StoreError>;

    /// Appends a group if the log ends at `after`. The group is durable on return.
    fn append(&self, after: Head, group: &Group) -> Result<(), AppendError>;

    /// The groups after a position: about `limit` records, and at least one group unless the position is the last.
    /// Checks that they continue the history of that position.
    fn follow(&self, after: Head, limit: usize) -> Result<Vec<Group>, FollowError>;

    /// The position at which the groups begin.
    fn beginning(&self) -> Head;

    /// Runs the next bounded step of replacing the groups up to `cut`. Returns whether more steps are left. After an
    /// error the log is unchanged. A cut that is not after the beginning is ignored.
    fn compact(&self, cut: &mut Cut) -> Result<bool, StoreError>;

    /// The log's name.
    fn log_id(&self) -> LogId;

    /// The notes beside the groups.
    fn notes(&self) -> Notes;

    /// Durable on return.
    fn write_notes(&self, notes: Notes) -> Result<(), StoreError>;

    /// Protects the last group against damage like those before it, and reserves disk space for later groups. Called
    /// when there is time.
    fn seal(&self) -> Result<(), StoreError>;

    /// The approximate size of the log.
    fn bytes(&self) -> u64;

    /// Whether other processes write to it.
    fn is_shared(&self) -> bool {
        false
    }

    /// This process stops as planned, and has written for the last time.
    fn leave(&self) {}
}

/// The notes beside the groups, in the same store.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Notes {
    /// The log's own clock, in seconds since the Unix epoch; see [`clock`](crate::clock).
    #[prost(int64, optional, tag = "1")]
    pub(crate) clock: Option<i64>,
    /// Which delegations may have been forgotten.
    #[prost(message, optional, tag = "2")]
    pub(crate) forgotten: Option<Forgotten>,
    /// How long filters may be fresh after this process has ended, in milliseconds.
    #[prost(uint64, tag = "3")]
    pub(crate) leases_ms: u64,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is damaged.
    #[error(
        "{path} is damaged: {found}. Restore the data folder from a backup, and start once with --restored \
         (docs/operate/backup.md#restore)", path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        found: String,
    },
    /// Another version of Credence wrote the file.
    #[error(
        "{path} has layout {found}, and this version reads layout {expected} only. Use the version that wrote it, or \
         start with --init in an empty folder", path = path.display()
    )]
    OtherLayout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: String,
        /// The layout of this version.
        expected: u32,
    },
    /// The system or the database refused.
    #[error(
        "{path} cannot be read or written: {error}. Free disk space, raise a limit on file sizes (ulimit -f), or repair the \
         volume; it is retried automatically", path = path.display()
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// The error.
        error: redb::Error,
    },
    /// etcd has no log there.
    #[error(
        "{store} holds no log. If this is a new installation, start one replica once with --init. If a log was here, \
         restore etcd from a snapshot: starting an empty one would forget every revocation"
    )]
    Missing {
        /// The address.
        store: String,
    },
    /// etcd has a log already.
    #[error("{store} is already initialised (log {log_id}); start without --init")]
    Taken {
        /// The address.
        store: String,
        /// Its log.
        log_id: String,
    },
    /// etcd has forgotten what it had.
    #[error(
        "{store} was restored from a snapshot: it is at revision {found} and was at {known}. Revocations may be forgotten. Stop \
         all replicas, and start one with --restored {log_id} (docs/operate/backup.md#restore)"
    )]
    WentBack {
        /// The address.
        store: String,
        /// etcd's revision.
        found: i64,
        /// An earlier one.
        known: i64,
        /// The log.
        log_id: String,
    },
    /// The log has left etcd.
    #[error(
        "log {log_id} left {store} and goes on in the data folder {to} (credence cluster export). Serve that folder, \
         without --store"
    )]
    MovedAway {
        /// The address.
        store: String,
        /// The log.
        log_id: String,
        /// The folder.
        to: String,
    },
    /// The log cannot be moved while replicas use it.
    #[error(
        "replicas are registered in {store}, or write to it: stop all of them, and wait ten seconds for those that were killed"
    )]
    InUse {
        /// The address.
        store: String,
    },
    /// Other settings than the replicas that run.
    #[error(
        "replicas of {store} run with {theirs}, and this one has {ours}: all must have the same. Start it with theirs; or \
         stop all of them, and wait ten seconds for those that were killed"
    )]
    OtherSettings {
        /// The address.
        store: String,
        /// As options.
        theirs: String,
        /// As options.
        ours: String,
    },
    /// The store does not continue what this replica had.
    #[error(
        "{store} was restored from a snapshot, or is another log: this replica has seen entry {seq}, which the log there \
         does not have. Revocations would be forgotten. Restore a newer snapshot; or, if there is none, stop all \
         replicas and start one with --restored {log_id} (docs/operate/backup.md#restore)"
    )]
    Rewound {
        /// The address.
        store: String,
        /// The entry.
        seq: u64,
        /// The log there.
        log_id: String,
    },
    /// This replica has not registered yet, or stops.
    #[error("this replica is not registered in the store")]
    Left,
    /// The system gave no random bytes.
    #[error("no randomness for the name of this replica: {0}")]
    Random(io::Error),
    /// etcd did not answer, or refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The file was closed after an error, and was last opened less than a second ago.
    #[error("{why} (the file is reopened within a second)")]
    Closed {
        /// The error.
        why: String,
    },
}

/// Why a group was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    /// The log does not have the group.
    #[error(transparent)]
    NotDone(StoreError),
    /// The log does not end at the position: another replica has appended.
    #[error("another replica has appended to the log")]
    Moved,
    /// The log may have the group: [`LogStore::follow`] tells, once it succeeds.
    #[error(transparent)]
    Unknown(StoreError),
}

/// Why a log cannot be followed from a position.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error("the position does not belong to this log, or was compacted away")]
    NotContinued,
    /// Other replicas have compacted the log beyond the position.
    #[error("other replicas have compacted the log beyond this position")]
    Outrun,
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl StoreError ===

impl StoreError {
    /// Whether the disk was full.
    fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Database { error: redb::Error::Io(error), .. }
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        )
    }
}
