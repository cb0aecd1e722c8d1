//! A file that proves that a leaf is in the log, for offline verification (C2SP tlog-proof).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::checkpoint::{Checkpoint, CheckpointError, SignedCheckpoint, parse_decimal};
use crate::note::VerifierKey;
use crate::proof::{ProofError, verify_inclusion};
use crate::tree::{Hash, leaf_hash};

/// A leaf's index, the path from it to a checkpoint's root, and the checkpoint. `Display` gives the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// Extra data: here the leaf itself.
    pub extra: Option<Vec<u8>>,
    /// The leaf's index.
    pub index: u64,
    /// The hashes from the leaf's sibling up to the child of the root.
    pub inclusion: Vec<Hash>,
    /// The checkpoint's note, signatures included.
    pub checkpoint: String,
}

/// Why a file is not a valid proof.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum TlogProofError {
    /// It is not a tlog-proof.
    #[error("this is not a C2SP tlog-proof: {0}")]
    Malformed(&'static str),
    /// The leaf is missing.
    #[error("the proof does not contain the leaf (its `extra` line); give the leaf")]
    NoLeaf,
    /// The checkpoint is not from the log.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The leaf is not in the tree.
    #[error(transparent)]
    Inclusion(#[from] ProofError),
}

// === impl TlogProof ===

impl TlogProof {
    /// Parses a file. Nothing is verified yet.
    pub fn parse(text: &str) -> Result<Self, TlogProofError> {
        let malformed = TlogProofError::Malformed;
        let (head, checkpoint) = text
            .split_once("\n\n")
            .ok_or(malformed("there is no empty line between the proof and the checkpoint"))?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(FIRST_LINE) {
            return Err(malformed("its first line is not c2sp.org/tlog-proof@v1"));
        }
        let extra = lines
            .next_if(|line| line.starts_with(EXTRA))
            .and_then(|line| line.strip_prefix(EXTRA))
            .map(|extra| STANDARD.decode(extra))
            .transpose()
            .map_err(|_| malformed("its extra data is not base64"))?;
        let index = lines
            .next()
            .and_then(|line| line.strip_prefix(INDEX))
            .and_then(parse_decimal)
            .ok_or(malformed("it has no index"))?;
        let inclusion = lines
            .map(parse_hash)
            .collect::<Option<Vec<_>>>()
            .filter(|hashes| hashes.len() < MAX_HASHES)
            .ok_or(malformed(
                "the lines after the index are not up to 63 hashes, one per line",
            ))?;
        Ok(Self {
            extra,
            index,
            inclusion,
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// Checks that the leaf in the proof is in the log of this key, at this index. Returns the checkpoint.
    pub fn verify(&self, key: &VerifierKey) -> Result<Checkpoint, TlogProofError> {
        let leaf = self.extra.as_deref().ok_or(TlogProofError::NoLeaf)?;
        self.verify_leaf(leaf, key)
    }

    /// Checks that a leaf is in the log of this key, at this index. Returns the checkpoint.
    pub fn verify_leaf(&self, leaf: &[u8], key: &VerifierKey) -> Result<Checkpoint, TlogProofError> {
        let signed = SignedCheckpoint::open(self.checkpoint.as_bytes(), key)?;
        let checkpoint = signed.checkpoint();
        verify_inclusion(
            &leaf_hash(leaf),
            self.index,
            checkpoint.size,
            &checkpoint.root,
            &self.inclusion,
        )?;
        Ok(checkpoint.clone())
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        if let Some(extra) = &self.extra {
            writeln!(f, "{EXTRA}{}", STANDARD.encode(extra))?;
        }
        writeln!(f, "{INDEX}{}", self.index)?;
        for hash in &self.inclusion {
            writeln!(f, "{}", STANDARD.encode(hash.0))?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}

fn parse_hash(line: &str) -> Option<Hash> {
    Some(Hash(STANDARD.decode(line).ok()?.try_into().ok()?))
}

const FIRST_LINE: &str = "c2sp.org/tlog-proof@v1";
const EXTRA: &str = "extra ";
const INDEX: &str = "index ";
const MAX_HASHES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::NoteSigner;
    use crate::proof::inclusion;
    use crate::tree::tests::InMemory;

    fn signer() -> NoteSigner {
        NoteSigner::new("example.com/log".parse().unwrap(), &[1; 32])
    }

    fn proof_of(index: u64, leaves: &[&[u8]]) -> TlogProof {
        let hashes: Vec<_> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
        let tree = InMemory::of(&hashes);
        let checkpoint = Checkpoint {
            origin: "example.com/log".parse().unwrap(),
            size: leaves.len() as u64,
            root: tree.frontier.root(),
        };
        TlogProof {
            extra: Some(leaves[index as usize].to_vec()),
            index,
            inclusion: inclusion(index, checkpoint.size, &tree).unwrap(),
            checkpoint: checkpoint.sign(&signer()).unwrap().note().to_owned(),
        }
    }

    #[test]
    fn a_proof_is_read_again_and_proves_its_leaf() {
        let leaves: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        for index in 0..5 {
            let proof = proof_of(index, &leaves);
            let read = TlogProof::parse(&proof.to_string()).unwrap();
            assert_eq!(read, proof);
            let checkpoint = read.verify(&signer().verifier_key()).unwrap();
            assert_eq!(checkpoint.size, 5);
            assert!(read.verify_leaf(b"z", &signer().verifier_key()).is_err());
        }
        let alone = proof_of(0, &[b"a"]);
        assert!(alone.inclusion.is_empty());
        let read = TlogProof::parse(&alone.to_string()).unwrap();
        read.verify(&signer().verifier_key()).unwrap();
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let text = proof_of(2, &[b"a", b"b", b"c"]).to_string();
        for byte in 0..text.len() {
            for bit in 0..8 {
                let mut changed = text.as_bytes().to_vec();
                changed[byte] ^= 1 << bit;
                let verified = String::from_utf8(changed)
                    .ok()
                    .and_then(|text| TlogProof::parse(&text).ok())
                    .and_then(|proof| proof.verify(&signer().verifier_key()).ok());
                assert_eq!(verified, None, "byte {byte}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_proof_without_its_leaf_needs_the_leaf() {
        let mut proof = proof_of(1, &[b"a", b"b"]);
        proof.extra = None;
        let read = TlogProof::parse(&proof.to_string()).unwrap();
        assert_eq!(read.verify(&signer().verifier_key()), Err(TlogProofError::NoLeaf));
        read.verify_leaf(b"b", &signer().verifier_key()).unwrap();
    }
}
