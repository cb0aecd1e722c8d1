//! How a ledger is kept.

use std::time::Duration;

use crate::tree::Hash;

/// How a ledger is kept.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// The origin under which the ledger began ([`LedgerIdentity::first_origin`](crate::log_identity::LedgerIdentity::first_origin)):
    /// leaves are sealed with it.
    pub origin: String,
    /// What it may use.
    pub bounds: LedgerBounds,
    /// What is removed when.
    pub retention: Retention,
    /// The latest tree that was published: size and root. What is on disk has to begin with it.
    pub published: Option<(u64, Hash)>,
}

/// What the ledger may use.
#[derive(Debug, Clone, Copy)]
pub struct LedgerBounds {
    /// Bytes of all its files.
    pub total: u64,
    /// Bytes after which a new segment begins, as soon as the index allows it; at most [`MAX_SEGMENT_BYTES`].
    pub segment: u64,
    /// Data keys, those that were erased included.
    pub keys: u32,
}

/// What is removed when. The hashes are kept, and what is proven by them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments whose every record is older are removed.
    pub age: Option<Duration>,
    /// The oldest segments are removed while the ledger is larger.
    pub bytes: Option<u64>,
}

/// Places in a file have 32 bits, and a segment ends up to 255 records late.
pub const MAX_SEGMENT_BYTES: u64 = 3 << 30;
