//! A ledger's tree in memory, for tests.

use std::sync::{Mutex, MutexGuard};

use credence_ledger::continuation::LogTree;
use credence_ledger::tree::{Frontier, Hash, Hashes, leaf_hash};

/// A tree that grows, and that can be damaged.
#[derive(Debug, Default)]
pub(crate) struct MemoryTree {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    frontier: Frontier,
    levels: Vec<Vec<Hash>>,
    leaves: Vec<Vec<u8>>,
    first: u64,
}

// === impl MemoryTree ===

impl MemoryTree {
    /// Leaves with these numbers in them.
    pub(crate) fn of(numbers: std::ops::Range<u64>) -> Self {
        let tree = Self::default();
        tree.grow(numbers);
        tree
    }

    pub(crate) fn grow(&self, numbers: std::ops::Range<u64>) {
        let inner = &mut *self.inner();
        for number in numbers {
            let leaf = number.to_be_bytes().to_vec();
            let levels = &mut inner.levels;
            inner.frontier.push(leaf_hash(&leaf), &mut |level, hash| {
                let level = usize::from(level);
                levels.resize_with(levels.len().max(level + 1), Vec::new);
                levels[level].push(hash);
            });
            inner.leaves.push(leaf);
        }
    }

    /// Drops the leaves below this index, but not their hashes.
    #[allow(dead_code, reason = "two crates include this file in their tests")]
    pub(crate) fn prune(&self, first: u64) {
        self.inner().first = first;
    }

    /// Changes its first hashes.
    pub(crate) fn damage(&self) {
        for level in &mut self.inner().levels {
            level[0] = Hash([0; 32]);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Hashes for MemoryTree {
    type Error = String;

    fn read(&self, level: u8, first: u64, count: usize) -> Result<Vec<Hash>, String> {
        let first = first as usize;
        let inner = self.inner();
        let hashes = inner
            .levels
            .get(usize::from(level))
            .and_then(|hashes| hashes.get(first..first + count));
        hashes.map(<[Hash]>::to_vec).ok_or_else(|| "not there".to_owned())
    }
}

impl LogTree for MemoryTree {
    fn size(&self) -> u64 {
        self.inner().frontier.size()
    }

    fn first(&self) -> u64 {
        self.inner().first
    }

    fn bundle(&self, first: u64, count: usize) -> Result<Vec<u8>, String> {
        let inner = self.inner();
        let leaves = &inner.leaves[first as usize..first as usize + count];
        Ok(leaves
            .iter()
            .flat_map(|leaf| [&(leaf.len() as u16).to_be_bytes()[..], leaf].concat())
            .collect())
    }
}
