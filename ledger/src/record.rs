//! What the ledger holds.

use prost::bytes::Bytes;

use crate::entry::{EntryKind, EntryView};

/// One thing in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRecord {
    /// Counts everything in the ledger from 0: the leaf's place in the tree.
    pub index: u64,
    /// When the control plane made it durable, nanoseconds since the Unix epoch. 0 if that cannot be read any more.
    pub received_unix_nano: u64,
    /// Who reported it: 32 hexadecimal digits. Empty if the control plane itself did, or if that cannot be read any
    /// more.
    pub source: String,
    /// What it says.
    pub body: RecordBody,
}

// === impl LedgerRecord ===

impl LedgerRecord {
    /// One that is erased or unreadable: nothing else is known of it.
    pub(crate) fn lost(index: u64, body: RecordBody) -> Self {
        Self {
            index,
            received_unix_nano: 0,
            source: String::new(),
            body,
        }
    }
}

/// What a [`LedgerRecord`] says.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordBody {
    /// What the source reported.
    Entry(StoredEntry),
    /// What happened to the source itself.
    Source(StoredSourceChange),
    /// What the control plane has to say of the ledger or of what it holds.
    Note(StoredNote),
    /// It was about a principal whose evidence has been erased: the key that it was sealed with is gone.
    Erased,
    /// The disk does not have it any more as it was written, or a newer version wrote it.
    Unreadable,
}

/// The kinds of records. Numbers are part of the index's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "RecordBody says what they are")]
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
    /// Counts the source's entries from 1. 0 for a chain that was stored again because the leaf that had it was pruned, and for
    /// counts of a principal beyond its share.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// An encoded `credence.v1.Entry`.
    #[prost(bytes = "bytes", tag = "2")]
    pub entry: Bytes,
    /// If the entry was a chain that the ledger already had: what it is known by, and then `entry` has no chain in it.
    #[prost(bytes = "bytes", tag = "3")]
    pub known_chain: Bytes,
}

/// A source began, went or came back.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredSourceChange {
    /// What happened.
    #[prost(enumeration = "SourceChange", tag = "1")]
    pub change: i32,
    /// The last sequence number stored when it happened.
    #[prost(uint64, tag = "2")]
    pub last_sequence: u64,
    /// What the source said of itself, and where it called from; with `Started` only.
    #[prost(string, tag = "3")]
    pub node: String,
    /// As above.
    #[prost(string, tag = "4")]
    pub plugin: String,
    /// As above.
    #[prost(string, tag = "5")]
    pub peer: String,
    /// What the source trusts ([`TrustAnchors::digest`]); with `Started` and `Returned`, empty if it did not say.
    ///
    /// [`TrustAnchors::digest`]: https://docs.rs/credence-delegation
    #[prost(bytes = "vec", tag = "6")]
    pub anchors_digest: Vec<u8>,
}

/// What happened to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SourceChange {
    /// Written by a newer version.
    Unspecified = 0,
    /// It was given its name.
    Started = 1,
    /// It said Bye: nothing is outstanding.
    Ended = 2,
    /// Its stream ended without Bye and it did not come back in time: what it had not yet sent is unknown.
    Lost = 3,
    /// It came back after it had been given up.
    Returned = 4,
}

/// What the control plane has to say.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredNote {
    /// Which it is; absent if a newer version wrote it.
    #[prost(oneof = "Note", tags = "1, 2, 3")]
    pub note: Option<Note>,
}

/// What the control plane has to say.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Note {
    /// A principal's evidence was erased.
    #[prost(message, tag = "1")]
    Erasure(Erasure),
    /// The oldest entries were removed; their hashes were kept.
    #[prost(message, tag = "2")]
    Pruning(Pruning),
    /// A filter allowed what does not verify.
    #[prost(message, tag = "3")]
    Mismatch(Mismatch),
}

/// Evidence was erased by destroying the key that it was sealed with. Does not say whose: that would defeat it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Erasure {
    /// The name of the data key: the leaves that carry it cannot be read any more.
    #[prost(uint64, tag = "1")]
    pub key: u64,
    /// Who asked for it: the credential's name.
    #[prost(string, tag = "2")]
    pub by: String,
    /// Why, in the requester's words.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// The oldest entries were removed from the disk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pruning {
    /// The lowest index that is still held.
    #[prost(uint64, tag = "1")]
    pub first: u64,
    /// The size of the tree that was published when it was decided, and its root: what is kept is proven against it.
    #[prost(uint64, tag = "2")]
    pub tree_size: u64,
    /// As above, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub root: Vec<u8>,
}

/// A filter's allow is not what we come to.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mismatch {
    /// The source that said so.
    #[prost(string, tag = "1")]
    pub source: String,
    /// What the chain is known by, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub chain_digest: Vec<u8>,
    /// The draft's step at which it fails, and why.
    #[prost(string, tag = "3")]
    pub step: String,
    /// As above.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// Whether the source trusts other anchors than we do, which explains it.
    #[prost(bool, tag = "5")]
    pub other_anchors: bool,
}

// === impl StoredEntry ===

impl StoredEntry {
    /// What the entry says; nothing if a newer version wrote it.
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
