//! The records of the ledger.

use prost::bytes::Bytes;

use crate::entry::{EntryKind, EntryView};

/// One record of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRecord {
    /// The record's number, from 0: the leaf's place in the tree.
    pub index: u64,
    /// When the control plane made it durable, nanoseconds since the Unix epoch. 0 if unreadable.
    pub received_unix_nano: u64,
    /// The source: 32 hexadecimal digits. Empty for records of the control plane itself, or if unreadable.
    pub source: String,
    /// The contents.
    pub body: RecordBody,
}

// === impl LedgerRecord ===

impl LedgerRecord {
    /// An erased or unreadable record: nothing else is known about it.
    pub(crate) fn lost(index: u64, body: RecordBody) -> Self {
        Self {
            index,
            received_unix_nano: 0,
            source: String::new(),
            body,
        }
    }
}

/// The contents of a [`LedgerRecord`].
#[derive(Debug, Clone, PartialEq)]
pub enum RecordBody {
    /// An entry that the source reported.
    Entry(StoredEntry),
    /// A change of the source itself.
    Source(StoredSourceChange),
    /// A note of the control plane.
    Note(StoredNote),
    /// Evidence about a principal that was erased: the key that sealed it is destroyed.
    Erased,
    /// The record is damaged on disk, or a newer version wrote it.
    Unreadable,
}

/// The kinds of records. Numbers are part of the index's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "documented at RecordBody")]
pub enum RecordKind {
    Decision = 0,
    Aggregate = 1,
    Gap = 2,
    Chain = 3,
    Source = 4,
    Note = 5,
    Erased = 6,
    Unknown = 7,
    Unreadable = 8,
}

/// An entry as its source encoded it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredEntry {
    /// The source's sequence number, from 1. 0 for a chain that was stored again because its leaf was pruned, and for
    /// counts of a principal beyond its share.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// An encoded `credence.v1.Entry`.
    #[prost(bytes = "bytes", tag = "2")]
    pub entry: Bytes,
    /// For a chain that the ledger already had: its digest. Then `entry` has no chain.
    #[prost(bytes = "bytes", tag = "3")]
    pub known_chain: Bytes,
}

/// A source started, ended or returned.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredSourceChange {
    /// The change.
    #[prost(enumeration = "SourceChange", tag = "1")]
    pub change: i32,
    /// The last sequence number stored at that time.
    #[prost(uint64, tag = "2")]
    pub last_sequence: u64,
    /// The node name that the source sent. Only with `Started` and `Arrived`, like `plugin` and `peer`.
    #[prost(string, tag = "3")]
    pub node: String,
    /// The plugin's root id that the source sent.
    #[prost(string, tag = "4")]
    pub plugin: String,
    /// The source's network address.
    #[prost(string, tag = "5")]
    pub peer: String,
    /// The digest of the source's trust anchors ([`TrustAnchors::digest`]). With `Started`, `Returned` and `Arrived`; empty if the
    /// source did not send it.
    ///
    /// [`TrustAnchors::digest`]: https://docs.rs/credence-delegation
    #[prost(bytes = "vec", tag = "6")]
    pub anchors_digest: Vec<u8>,
    /// With `Moved`: the origin of the other replica's ledger.
    #[prost(string, tag = "7")]
    pub ledger: String,
}

/// A change of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SourceChange {
    /// A newer version wrote it.
    Unspecified = 0,
    /// The source was given its name.
    Started = 1,
    /// The source sent Bye: nothing is unacknowledged.
    Ended = 2,
    /// The stream ended without Bye, and the source did not return in time: its unsent evidence is unknown.
    Lost = 3,
    /// The source returned after it had been given up.
    Returned = 4,
    /// The source reported to another replica before. What it says is acknowledged is in that one's ledger.
    Arrived = 5,
    /// The source reports to another replica, in whose ledger it goes on.
    Moved = 6,
}

/// A note of the control plane.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredNote {
    /// The note; absent if a newer version wrote it.
    #[prost(oneof = "Note", tags = "1, 2, 3")]
    pub note: Option<Note>,
}

/// The kinds of notes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Note {
    /// A principal's evidence was erased.
    #[prost(message, tag = "1")]
    Erasure(Erasure),
    /// The oldest records were removed; their hashes were kept.
    #[prost(message, tag = "2")]
    Pruning(Pruning),
    /// A filter allowed a request that does not verify.
    #[prost(message, tag = "3")]
    Mismatch(Mismatch),
}

/// Evidence was erased by destroying its key. The note does not name the principal, because that would defeat the
/// erasure.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Erasure {
    /// The name of the data key. Leaves with this name cannot be read any more.
    #[prost(uint64, tag = "1")]
    pub key: u64,
    /// The requester: the credential's name.
    #[prost(string, tag = "2")]
    pub by: String,
    /// The reason, as the requester gave it.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// The oldest records were removed from the disk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pruning {
    /// The lowest held index.
    #[prost(uint64, tag = "1")]
    pub first: u64,
    /// The size of the published tree at the time of the decision. Held records are proven against it.
    #[prost(uint64, tag = "2")]
    pub tree_size: u64,
    /// The root of that tree, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub root: Vec<u8>,
}

/// A filter allowed a request that the control plane would deny.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mismatch {
    /// The source that reported it.
    #[prost(string, tag = "1")]
    pub source: String,
    /// The chain's digest, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub chain_digest: Vec<u8>,
    /// The step of the draft at which it fails.
    #[prost(string, tag = "3")]
    pub step: String,
    /// Why it fails.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// Whether the source has other trust anchors than the control plane, which explains the difference.
    #[prost(bool, tag = "5")]
    pub other_anchors: bool,
}

// === impl StoredEntry ===

impl StoredEntry {
    /// The entry's contents; none if a newer version wrote it.
    pub fn view(&self) -> Option<EntryView<'_>> {
        EntryView::parse(&self.entry).ok()
    }
}

// === impl RecordKind ===

impl RecordKind {
    /// The kind of a record.
    pub fn of(body: &RecordBody) -> Self {
        match body {
            RecordBody::Entry(stored) => match stored.view().map(|view| view.kind) {
                Some(EntryKind::Event(_)) => Self::Decision,
                Some(EntryKind::Aggregate(_)) => Self::Aggregate,
                Some(EntryKind::Gap(_)) => Self::Gap,
                Some(EntryKind::Chain(_)) => Self::Chain,
                None => Self::Unknown,
            },
            RecordBody::Source(_) => Self::Source,
            RecordBody::Note(_) => Self::Note,
            RecordBody::Erased => Self::Erased,
            RecordBody::Unreadable => Self::Unreadable,
        }
    }
}
