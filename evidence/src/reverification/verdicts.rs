//! What came of the chains that were verified last.

use std::collections::HashMap;

use super::comparison::Verdict;

/// Verdicts by what the chains are known by, within so many bytes.
///
/// There are two halves: what is asked for is kept in the newer one, and when that is full the older one is forgotten.
/// So the least recently used go first, about, and a look-up costs no more than a map's.
#[derive(Debug)]
pub(crate) struct Verdicts {
    newer: HashMap<[u8; 32], Verdict>,
    older: HashMap<[u8; 32], Verdict>,
    bytes: usize,
    limit: usize,
}

impl Verdicts {
    pub(crate) fn within(bytes: usize) -> Self {
        Self {
            newer: HashMap::new(),
            older: HashMap::new(),
            bytes: 0,
            limit: bytes / 2,
        }
    }

    pub(crate) fn get(&mut self, digest: &[u8; 32]) -> Option<&Verdict> {
        if !self.newer.contains_key(digest) {
            let verdict = self.older.remove(digest)?;
            self.insert(*digest, verdict);
        }
        self.newer.get(digest)
    }

    pub(crate) fn insert(&mut self, digest: [u8; 32], verdict: Verdict) {
        let bytes = verdict.bytes() + ENTRY_BYTES;
        if self.bytes + bytes > self.limit {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        if self.newer.insert(digest, verdict).is_none() {
            self.bytes += bytes;
        }
    }
}

/// What an entry of a map takes besides its verdict.
const ENTRY_BYTES: usize = 96;
