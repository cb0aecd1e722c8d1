//! Proofs that this log gave out a position.
//!
//! After a restore from a backup, nothing in the data folder shows that it is an old copy. But clients that have seen
//! more know it. A client could invent a position, so each position that is given out carries a proof, which clients
//! send back: a MAC under a key of the data folder, which its backups hold too.

use credence_wire::v1;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

use crate::digest::Digest;
use crate::log_id::LogId;

/// Makes and verifies the proofs of one log.
#[derive(Clone)]
pub(crate) struct PositionKey(Hmac<Sha256>);

/// The proof of one position.
pub(crate) type PositionProof = [u8; 16];

/// Distinguishes a proof by another key from one of another history.
pub(crate) type KeyId = [u8; 4];

// === impl PositionKey ===

impl PositionKey {
    pub(crate) fn new(key: [u8; 32], log_id: &LogId) -> Self {
        // RFC 2104: a key shorter than the hash's block is filled up with zeros.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(&key);
        let mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
        Self(
            mac.chain_update(CONTEXT)
                .chain_update(log_id.as_str())
                .chain_update([0]),
        )
    }

    pub(crate) fn id(&self) -> KeyId {
        beginning_of(self.0.clone())
    }

    /// `mark` is the shortened digest, which is kept for every position.
    pub(crate) fn prove(&self, seq: u64, mark: u64) -> PositionProof {
        beginning_of(self.of(seq, mark))
    }

    /// A proof for a position that is shown by its number alone. It begins with the key's [id](Self::id).
    pub(crate) fn prove_by_name(&self, seq: u64, mark: u64) -> Vec<u8> {
        [self.id().as_slice(), &self.prove(seq, mark)].concat()
    }

    /// Whether the proof shows that this log gave out the position.
    pub(crate) fn accepts(&self, position: &v1::Position) -> bool {
        let Some(digest) = Digest::parse(&position.digest) else {
            return false;
        };
        let expected = self.of(position.seq, digest.mark());
        position.proof.len() == size_of::<PositionProof>() && expected.verify_truncated_left(&position.proof).is_ok()
    }

    fn of(&self, seq: u64, mark: u64) -> Hmac<Sha256> {
        self.0
            .clone()
            .chain_update(seq.to_be_bytes())
            .chain_update(mark.to_be_bytes())
    }
}

fn beginning_of<const LENGTH: usize>(mac: Hmac<Sha256>) -> [u8; LENGTH] {
    let mac = mac.finalize().into_bytes();
    std::array::from_fn(|index| mac[index])
}

impl std::fmt::Debug for PositionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PositionKey(..)")
    }
}

/// Separates these MACs from any other use of the key.
const CONTEXT: &[u8] = b"credence log position v1\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positions_that_were_given_out_are_accepted() {
        let log_id = LogId::random().unwrap();
        let key = PositionKey::new([7; 32], &log_id);
        let digest = Digest::start(&log_id);
        let given = v1::Position {
            seq: 9,
            digest: digest.as_bytes().to_vec(),
            proof: key.prove(9, digest.mark()).to_vec(),
        };
        assert!(key.accepts(&given));
        let changed = |change: fn(&mut v1::Position)| {
            let mut position = given.clone();
            change(&mut position);
            position
        };
        for forged in [
            changed(|position| position.seq = u64::MAX),
            changed(|position| position.digest[0] ^= 1),
            changed(|position| position.proof[0] ^= 1),
            changed(|position| position.proof.truncate(1)),
            changed(|position| position.proof.clear()),
        ] {
            assert!(!key.accepts(&forged), "{forged:?}");
        }
        let other = PositionKey::new([8; 32], &log_id);
        assert!(!other.accepts(&given));
        assert_ne!(other.id(), key.id());
        assert!(!PositionKey::new([7; 32], &LogId::random().unwrap()).accepts(&given));
    }
}
