//! Proofs about the tree: that a leaf is in it, and that it only grew (RFC 6962, section 2.1; verification as in RFC
//! 9162, section 2.1).

use crate::tree::{Frontier, Hash, Hashes, node_hash, range_root};

/// Why a proof cannot be made, or a tree cannot be checked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TreeError<E> {
    /// The tree lacks the leaf or subtree, or does not match.
    #[error(transparent)]
    Proof(ProofError),
    /// A hash cannot be read.
    #[error(transparent)]
    Hashes(E),
}

/// Why a proof is invalid, or does not fit the tree.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum ProofError {
    /// The tree has no such leaf.
    #[error("there is no leaf {index} in a tree of {size}")]
    NoSuchLeaf {
        /// The leaf's index.
        index: u64,
        /// The number of leaves.
        size: u64,
    },
    /// The newer tree is smaller.
    #[error("a tree of {old} leaves cannot have become one of {new}")]
    Shrunk {
        /// The older tree's size.
        old: u64,
        /// The newer tree's size.
        new: u64,
    },
    /// Too few or too many hashes.
    #[error("the proof has the wrong number of hashes for these sizes")]
    WrongLength,
    /// The hashes lead to another root than the older tree's.
    #[error("the proof leads to {found}, but the root of the older tree is {expected}")]
    OldRoot {
        /// The root to which the proof leads.
        found: Hash,
        /// The older tree's root.
        expected: Hash,
    },
    /// The hashes lead to another root than the tree's.
    #[error("the proof leads to {found}, but the root of the tree is {expected}")]
    Root {
        /// The root to which the proof leads.
        found: Hash,
        /// The tree's root.
        expected: Hash,
    },
}

/// Proves that leaf `index` is in the tree of the first `size` leaves: the hashes from its sibling up to the child of
/// the root.
pub fn inclusion<H: Hashes>(index: u64, size: u64, hashes: &H) -> Result<Vec<Hash>, TreeError<H::Error>> {
    if index >= size {
        return Err(TreeError::Proof(ProofError::NoSuchLeaf { index, size }));
    }
    let (mut path, _) = path_to(index, size, |first, end| end - first == 1, hashes)?;
    path.reverse();
    Ok(path)
}

/// The hashes beside the path from the root of the tree of `size` leaves down to the first wanted subtree with this
/// leaf, and where that subtree begins. Subtrees are the leaves `first..end`.
fn path_to<H: Hashes>(
    leaf: u64,
    size: u64,
    is_looked_for: impl Fn(u64, u64) -> bool,
    hashes: &H,
) -> Result<(Vec<Hash>, u64), TreeError<H::Error>> {
    let root = |first, end| range_root(first, end, hashes).map_err(TreeError::Hashes);
    let mut path = Vec::new();
    let (mut first, mut end) = (0, size);
    while !is_looked_for(first, end) {
        let middle = first + largest_power_of_two_below(end - first);
        if leaf < middle {
            path.push(root(middle, end)?);
            end = middle;
        } else {
            path.push(root(first, middle)?);
            first = middle;
        }
    }
    Ok((path, first))
}

/// Checks that a leaf with this hash is number `index` of the tree of `size` leaves that has this root.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, root: &Hash, proof: &[Hash]) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::NoSuchLeaf { index, size });
    }
    let mut climb = Climb {
        node: index,
        last: size - 1,
    };
    let mut found = *leaf;
    for sibling in proof {
        found = match climb.side().ok_or(ProofError::WrongLength)? {
            Side::Left => node_hash(sibling, &found),
            Side::Right => node_hash(&found, sibling),
        };
    }
    climb.end()?;
    expect_root(found, root)
}

/// Checks hashes read from a disk: whether the tree of `size` leaves has this root if the complete subtrees `first`,
/// `first + 1`, … of 256^level leaves have these hashes. Other hashes are read from `hashes`.
pub fn check_hashes<H: Hashes>(
    (level, first, read): (u8, u64, &[Hash]),
    (size, root): (u64, &Hash),
    hashes: &H,
) -> Result<(), TreeError<H::Error>> {
    let row = Row {
        height: 8 * u32::from(level),
        first,
        hashes: read,
    };
    let number = first.saturating_add(read.len() as u64);
    let complete = size.checked_shr(row.height).unwrap_or(0);
    if number > complete {
        return Err(TreeError::Proof(ProofError::NoSuchLeaf {
            index: number.saturating_sub(1),
            size: complete,
        }));
    }
    if read.is_empty() {
        return Ok(());
    }
    let found = row.root_with(0, size, hashes).map_err(TreeError::Hashes)?;
    expect_root(found, root).map_err(TreeError::Proof)
}

/// Hashes of adjacent complete subtrees.
struct Row<'a> {
    /// The height of each subtree.
    height: u32,
    /// The number of the first subtree.
    first: u64,
    hashes: &'a [Hash],
}

impl Row<'_> {
    /// The root over the leaves `first..end`, which is a node of the tree.
    fn root_with<H: Hashes>(&self, first: u64, end: u64, hashes: &H) -> Result<Hash, H::Error> {
        let begins = self.first << self.height;
        let ends = (self.first + self.hashes.len() as u64) << self.height;
        if end <= begins || first >= ends {
            return range_root(first, end, hashes);
        }
        if begins <= first && end <= ends {
            let place = |leaf: u64| ((leaf - begins) >> self.height) as usize;
            let mut subtrees = Frontier::new();
            for hash in self.hashes.get(place(first)..place(end)).unwrap_or_default() {
                subtrees.push(*hash, &mut |_, _| {});
            }
            return Ok(subtrees.root());
        }
        let middle = first + largest_power_of_two_below(end - first);
        let left = self.root_with(first, middle, hashes)?;
        let right = self.root_with(middle, end, hashes)?;
        Ok(node_hash(&left, &right))
    }
}

/// Proves that the tree of the first `new` leaves begins with the tree of the first `old` leaves. An empty tree, or two
/// trees of the same size, need no proof.
pub fn consistency<H: Hashes>(old: u64, new: u64, hashes: &H) -> Result<Vec<Hash>, TreeError<H::Error>> {
    if old > new {
        return Err(TreeError::Proof(ProofError::Shrunk { old, new }));
    }
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let (mut path, first) = path_to(old - 1, new, |_, end| end == old, hashes)?;
    // The verifier knows the older tree's own root.
    if first > 0 {
        path.push(range_root(first, old, hashes).map_err(TreeError::Hashes)?);
    }
    path.reverse();
    Ok(path)
}

/// Checks that the tree of `new` leaves and its root begin with the tree of `old` leaves and its root.
pub fn verify_consistency(
    (old, old_root): (u64, &Hash),
    (new, new_root): (u64, &Hash),
    proof: &[Hash],
) -> Result<(), ProofError> {
    if old > new {
        return Err(ProofError::Shrunk { old, new });
    }
    if old == 0 || old == new {
        if !proof.is_empty() {
            return Err(ProofError::WrongLength);
        }
        let expected = if old == 0 { &crate::tree::empty_root() } else { new_root };
        return expect_old_root(*expected, old_root);
    }
    let mut climb = Climb {
        node: old - 1,
        last: new - 1,
    };
    // A complete subtree of the older tree is also one of the newer tree: the climb begins at its top.
    while climb.node & 1 == 1 {
        climb.up();
    }
    let mut hashes = proof.iter();
    let begin = if old.is_power_of_two() {
        old_root
    } else {
        hashes.next().ok_or(ProofError::WrongLength)?
    };
    let (mut in_old, mut in_new) = (*begin, *begin);
    for sibling in hashes {
        match climb.side().ok_or(ProofError::WrongLength)? {
            Side::Left => {
                in_old = node_hash(sibling, &in_old);
                in_new = node_hash(sibling, &in_new);
            }
            Side::Right => in_new = node_hash(&in_new, sibling),
        }
    }
    climb.end()?;
    expect_old_root(in_old, old_root)?;
    expect_root(in_new, new_root)
}

/// The path from a node up to the root: its number in its row, and that of the row's last node.
struct Climb {
    node: u64,
    last: u64,
}

/// The side of the sibling.
enum Side {
    Left,
    Right,
}

impl Climb {
    fn up(&mut self) {
        self.node >>= 1;
        self.last >>= 1;
    }

    /// The side of the next sibling; then moves to the parent. None at the root.
    fn side(&mut self) -> Option<Side> {
        if self.last == 0 {
            return None;
        }
        if self.node & 1 == 1 || self.node == self.last {
            // The last node of a row, if it has no sibling, is also the node in the row above.
            while self.node & 1 == 0 {
                self.up();
            }
            self.up();
            Some(Side::Left)
        } else {
            self.up();
            Some(Side::Right)
        }
    }

    fn end(&self) -> Result<(), ProofError> {
        if self.last == 0 {
            Ok(())
        } else {
            Err(ProofError::WrongLength)
        }
    }
}

fn expect_old_root(found: Hash, root: &Hash) -> Result<(), ProofError> {
    if found == *root {
        Ok(())
    } else {
        Err(ProofError::OldRoot { found, expected: *root })
    }
}

fn expect_root(found: Hash, root: &Hash) -> Result<(), ProofError> {
    if found == *root {
        Ok(())
    } else {
        Err(ProofError::Root { found, expected: *root })
    }
}

fn largest_power_of_two_below(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::root_of;
    use crate::tree::tests::{InMemory, naive_root, reference_leaves, some_leaves};

    /// PATH of RFC 6962, section 2.1.1, word for word.
    fn naive_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() == 1 {
            return Vec::new();
        }
        let k = crate::tree::tests::largest_power_of_two_below(leaves.len());
        let (mut path, last) = if index < k {
            (naive_path(index, &leaves[..k]), naive_root(&leaves[k..]))
        } else {
            (naive_path(index - k, &leaves[k..]), naive_root(&leaves[..k]))
        };
        path.push(last);
        path
    }

    /// SUBPROOF of RFC 6962, section 2.1.2, word for word.
    fn naive_subproof(old: usize, leaves: &[Hash], is_known: bool) -> Vec<Hash> {
        if old == leaves.len() {
            return if is_known { Vec::new() } else { vec![naive_root(leaves)] };
        }
        let k = crate::tree::tests::largest_power_of_two_below(leaves.len());
        let (mut proof, last) = if old <= k {
            (naive_subproof(old, &leaves[..k], is_known), naive_root(&leaves[k..]))
        } else {
            (naive_subproof(old - k, &leaves[k..], false), naive_root(&leaves[..k]))
        };
        proof.push(last);
        proof
    }

    fn texts(hashes: &[Hash]) -> Vec<String> {
        hashes.iter().map(Hash::to_string).collect()
    }

    #[test]
    fn proofs_are_those_of_the_reference_implementation() {
        let tree = InMemory::of(&reference_leaves());
        assert_eq!(
            texts(&inclusion(5, 8, &tree).unwrap()),
            [
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ]
        );
        assert_eq!(
            texts(&consistency(6, 8, &tree).unwrap()),
            [
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ]
        );
    }

    #[test]
    fn every_leaf_of_every_tree_can_be_proven_as_the_definition_says() {
        let leaves = some_leaves(300);
        let tree = InMemory::of(&leaves);
        for size in (1..70).chain([127, 128, 129, 255, 256, 257, 300]) {
            let root = naive_root(&leaves[..size]);
            for index in 0..size {
                let proof = inclusion(index as u64, size as u64, &tree).unwrap();
                assert_eq!(proof, naive_path(index, &leaves[..size]), "{index} of {size}");
                verify_inclusion(&leaves[index], index as u64, size as u64, &root, &proof).unwrap();
            }
        }
    }

    #[test]
    fn every_two_trees_can_be_proven_consistent_as_the_definition_says() {
        let leaves = some_leaves(300);
        let tree = InMemory::of(&leaves);
        let roots: Vec<_> = (0..=300).map(|size| naive_root(&leaves[..size])).collect();
        for new in (0..70).chain([127, 128, 129, 255, 256, 257, 300]) {
            for old in 0..=new {
                let proof = consistency(old as u64, new as u64, &tree).unwrap();
                if old > 0 {
                    assert_eq!(proof, naive_subproof(old, &leaves[..new], true), "{old} to {new}");
                }
                verify_consistency((old as u64, &roots[old]), (new as u64, &roots[new]), &proof).unwrap();
            }
        }
    }

    #[test]
    fn no_other_leaf_index_size_or_proof_passes() {
        let leaves = some_leaves(40);
        let tree = InMemory::of(&leaves);
        for size in 1..=40_usize {
            let root = naive_root(&leaves[..size]);
            for index in 0..size {
                let (leaf, at, of) = (&leaves[index], index as u64, size as u64);
                let proof = inclusion(at, of, &tree).unwrap();
                for other in (0..size).filter(|other| *other != index) {
                    assert!(verify_inclusion(leaf, other as u64, of, &root, &proof).is_err());
                    assert!(verify_inclusion(&leaves[other], at, of, &root, &proof).is_err());
                }
                assert!(verify_inclusion(leaf, of, of, &root, &proof).is_err());
                for place in 0..proof.len() {
                    let mut forged = proof.clone();
                    forged[place].0[31] ^= 1;
                    assert!(verify_inclusion(leaf, at, of, &root, &forged).is_err());
                    assert!(verify_inclusion(leaf, at, of, &root, &proof[..place]).is_err());
                }
                let longer = [proof.as_slice(), &[root]].concat();
                assert_eq!(
                    verify_inclusion(leaf, at, of, &root, &longer),
                    Err(ProofError::WrongLength)
                );
            }
        }
    }

    #[test]
    fn a_rewritten_history_is_refused() {
        let leaves = some_leaves(40);
        let tree = InMemory::of(&leaves);
        for new in 1..=40_usize {
            for old in 1..=new {
                let roots = (naive_root(&leaves[..old]), naive_root(&leaves[..new]));
                let mut rewritten = leaves[..new].to_vec();
                rewritten[old - 1].0[0] ^= 1;
                let rewritten = InMemory::of(&rewritten);
                let proof = consistency(old as u64, new as u64, &rewritten).unwrap();
                let new_root = rewritten.frontier.root();
                assert!(verify_consistency((old as u64, &roots.0), (new as u64, &new_root), &proof).is_err());
                let honest = consistency(old as u64, new as u64, &tree).unwrap();
                assert!(verify_consistency((old as u64, &roots.0), (new as u64, &new_root), &honest).is_err());
                assert!(verify_consistency((old as u64, &new_root), (new as u64, &roots.1), &proof).is_err());
                for place in 0..honest.len() {
                    let mut forged = honest.clone();
                    forged[place].0[0] ^= 1;
                    for proof in [&forged[..], &honest[..place]] {
                        assert!(verify_consistency((old as u64, &roots.0), (new as u64, &roots.1), proof).is_err());
                    }
                }
                let longer = [honest.as_slice(), &[roots.1]].concat();
                assert_eq!(
                    verify_consistency((old as u64, &roots.0), (new as u64, &roots.1), &longer),
                    Err(ProofError::WrongLength)
                );
            }
        }
        let root = naive_root(&leaves);
        assert!(verify_consistency((41, &root), (40, &root), &[]).is_err());
        assert!(verify_consistency((0, &root), (40, &root), &[]).is_err());
    }

    #[test]
    fn hashes_as_they_were_written_pass_and_no_others() {
        let leaves = some_leaves(70_000);
        let tree = InMemory::of(&leaves);
        for size in [1, 255, 256, 257, 600, 65_536, 66_000, 70_000] {
            let root = root_of(size, &tree).unwrap();
            for (level, first, count) in [
                (0, 0, 256),
                (0, 256, 88),
                (0, 65_536, 200),
                (0, 1, 1),
                (1, 0, 256),
                (1, 0, 3),
                (2, 0, 1),
            ] {
                let mut read = tree.read(level, first, count).unwrap();
                let is_there = first + count as u64 <= size >> (8 * level);
                let check = |read: &[Hash]| check_hashes((level, first, read), (size, &root), &tree);
                assert_eq!(check(&read).is_ok(), is_there, "{size}: {level}/{first}+{count}");
                for place in [0, count / 2, count - 1] {
                    read[place].0[31] ^= 1;
                    assert!(check(&read).is_err(), "{size}: {level}/{first}+{count} at {place}");
                    read[place].0[31] ^= 1;
                }
            }
        }
    }

    #[test]
    fn there_is_no_proof_of_what_is_not_there() {
        let tree = InMemory::of(&some_leaves(3));
        assert_eq!(
            inclusion(3, 3, &tree),
            Err(TreeError::Proof(ProofError::NoSuchLeaf { index: 3, size: 3 }))
        );
        assert_eq!(
            consistency(4, 3, &tree),
            Err(TreeError::Proof(ProofError::Shrunk { old: 4, new: 3 }))
        );
        assert!(matches!(inclusion(0, 4, &tree), Err(TreeError::Hashes(_))));
    }
}
