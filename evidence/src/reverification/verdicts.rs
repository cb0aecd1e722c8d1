//! The results for the chains that were verified last.

use std::collections::HashMap;

use super::comparison::Verdict;

/// Verdicts by chain digest, limited in bytes.
///
/// There are two halves. Verdicts that are used are kept in the newer one. When it is full, the older one is forgotten.
/// So approximately the least recently used verdicts are forgotten, and a lookup costs no more than a map's.
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

/// The overhead of a map's entry besides its verdict.
const ENTRY_BYTES: usize = 96;
