//! The options of a ledger.

use std::time::Duration;

use crate::tree::Hash;

/// The options of a ledger.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// The first origin of the tree
    /// ([`LedgerIdentity::first_origin`](crate::log_identity::LedgerIdentity::first_origin)). Leaves are sealed with
    /// it.
    pub origin: String,
    /// The size limits.
    pub bounds: LedgerBounds,
    /// What is removed, and when.
    pub retention: Retention,
    /// The latest published tree: size and root. The tree on disk must begin with it.
    pub published: Option<(u64, Hash)>,
}

/// The size limits of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct LedgerBounds {
    /// Bytes of all its files.
    pub total: u64,
    /// Bytes after which a new segment begins, as soon as the index allows it; at most [`MAX_SEGMENT_BYTES`].
    pub segment: u64,
    /// Data keys, with erased ones.
    pub keys: u32,
}

/// What is removed, and when. Hashes and proofs are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments whose records are all older are removed.
    pub age: Option<Duration>,
    /// The oldest segments are removed while the ledger is larger.
    pub bytes: Option<u64>,
}

/// File offsets have 32 bits, and a segment can end up to 255 records late.
pub const MAX_SEGMENT_BYTES: u64 = 3 << 30;
