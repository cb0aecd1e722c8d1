//! What of the ledger others may see, and what it owes to what they have seen.

use crate::checkpoint::Checkpoint;
use crate::proof::{ProofError, TreeError, consistency, verify_consistency};
use crate::reader::LedgerReader;
use crate::tree::{Hash, Hashes, root_of};

/// A ledger's tree, as far as its leaves are durable.
pub trait LogTree: Hashes {
    /// How many leaves it has.
    fn size(&self) -> u64;

    /// The lowest index whose leaf is still held; hashes are held of all.
    fn first(&self) -> u64;

    /// `count` leaves from `first` on, each behind its length (u16, big-endian), as C2SP tlog-tiles has it.
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

/// Why nothing more may be signed: others have seen a tree of which this one is no continuation.
#[derive(Debug, thiserror::Error)]
pub enum ContinuationError<E> {
    /// Leaves are missing.
    #[error(
        "the checkpoint that was published last commits to {published} leaves, but there are {size}. Restore the \
         missing ones; or, if the folder is from a backup, start with --restored, and the tree goes on under another \
         origin"
    )]
    Missing {
        /// How many there were.
        published: u64,
        /// How many there are.
        size: u64,
    },
    /// Leaves are others than they were.
    #[error(
        "the first {published} leaves are not those that the checkpoint committed to which was published last ({error}). \
         `credence audit verify --data` names the file. Restore it; or, if the folder is from a backup, start with \
         --restored, and the tree goes on under another origin"
    )]
    Changed {
        /// How many there were.
        published: u64,
        /// What shows it.
        error: ProofError,
    },
    /// The tree cannot be read.
    #[error("the ledger's tree cannot be read: {0}")]
    Hashes(E),
}

/// Checks that the tree of `size` leaves goes on from a published checkpoint. Gives the tree's root.
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
    fn a_tree_goes_on_from_what_was_published_of_it() {
        let leaves = some_leaves(700);
        let tree = InMemory::of(&leaves);
        for published in [0, 1, 255, 256, 300, 699, 700] {
            let root = check_continuation(&checkpoint(&leaves[..published]), 700, &tree).unwrap();
            assert_eq!(root, tree.frontier.root());
        }
    }

    #[test]
    fn one_that_is_shorter_or_changed_does_not() {
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
