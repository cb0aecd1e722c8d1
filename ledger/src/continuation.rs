//! The part of the ledger that may be published, and the check that it continues what was published before.

use crate::checkpoint::Checkpoint;
use crate::proof::{ProofError, TreeError, consistency, verify_consistency};
use crate::reader::LedgerReader;
use crate::tree::{Hash, Hashes, root_of};

/// The durable part of a ledger's tree.
pub trait LogTree: Hashes {
    /// The number of leaves.
    fn size(&self) -> u64;

    /// The lowest index whose leaf is held. Hashes are held for all leaves.
    fn first(&self) -> u64;

    /// `count` leaves from `first` on, each after its length (u16, big-endian), as in C2SP tlog-tiles.
    fn bundle(&self, first: u64, count: usize) -> Result<Vec<u8>, Self::Error>;
}

impl LogTree for LedgerReader {
    fn size(&self) -> u64 {
        Self::size(self)
    }

    fn first(&self) -> u64 {
        Self::first(self)
    }

    fn bundle(&self, first: u64, count: usize) -> Result<Vec<u8>, Self::Error> {
        Self::bundle(self, first, count as u64)
    }
}

/// Why signing must stop: this tree does not continue a published one.
#[derive(Debug, thiserror::Error)]
pub enum ContinuationError<E> {
    /// Leaves are missing.
    #[error(
        "the checkpoint that was published last commits to {published} leaves, but there are {size}. Restore the \
         missing ones; or, if the folder is from a backup, start with --restored, and the tree continues under another \
         origin"
    )]
    Missing {
        /// The published number of leaves.
        published: u64,
        /// The present number of leaves.
        size: u64,
    },
    /// Leaves have changed.
    #[error(
        "the first {published} leaves are not those of the checkpoint that was published last ({error}). \
         `credence audit verify --data` names the file. Restore it; or, if the folder is from a backup, start with \
         --restored, and the tree continues under another origin"
    )]
    Changed {
        /// The published number of leaves.
        published: u64,
        /// The failed proof.
        error: ProofError,
    },
    /// The tree cannot be read.
    #[error("the ledger's tree cannot be read: {0}")]
    Hashes(E),
}

/// Checks that the tree of `size` leaves continues a published checkpoint. Returns the tree's root.
pub fn check_continuation<H: Hashes>(
    published: &Checkpoint,
    size: u64,
    hashes: &H,
) -> Result<Hash, ContinuationError<H::Error>> {
    let missing = ContinuationError::Missing {
        published: published.size,
        size,
    };
    if published.size > size {
        return Err(missing);
    }
    let proof = consistency(published.size, size, hashes).map_err(|error| match error {
        TreeError::Proof(_) => missing,
        TreeError::Hashes(error) => ContinuationError::Hashes(error),
    })?;
    let root = root_of(size, hashes).map_err(ContinuationError::Hashes)?;
    match verify_consistency((published.size, &published.root), (size, &root), &proof) {
        Ok(()) => Ok(root),
        Err(error) => Err(ContinuationError::Changed {
            published: published.size,
            error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{InMemory, some_leaves};

    fn checkpoint(leaves: &[Hash]) -> Checkpoint {
        Checkpoint {
            origin: "example.com/log".parse().unwrap(),
            size: leaves.len() as u64,
            root: InMemory::of(leaves).frontier.root(),
        }
    }

    #[test]
    fn a_tree_continues_its_published_checkpoint() {
        let leaves = some_leaves(700);
        let tree = InMemory::of(&leaves);
        for published in [0, 1, 255, 256, 300, 699, 700] {
            let root = check_continuation(&checkpoint(&leaves[..published]), 700, &tree).unwrap();
            assert_eq!(root, tree.frontier.root());
        }
    }

    #[test]
    fn a_shorter_or_changed_tree_does_not() {
        let leaves = some_leaves(700);
        let tree = InMemory::of(&leaves[..600]);
        let refused = check_continuation(&checkpoint(&leaves), 600, &tree).unwrap_err();
        assert!(matches!(
            refused,
            ContinuationError::Missing {
                published: 700,
                size: 600
            }
        ));
        let mut changed = leaves.clone();
        changed[3].0[0] ^= 1;
        for published in [4, 599, 600] {
            let refused = check_continuation(&checkpoint(&changed[..published]), 600, &tree).unwrap_err();
            assert!(matches!(refused, ContinuationError::Changed { .. }), "{published}");
        }
    }
}
