//! Which positions are this log's: what tells a client that has followed it from one that has followed another.
//!
//! A client names its position by a sequence number and the digest of the history up to it. To know whether that
//! history is ours takes the digest at that very number: two copies of a log, of which one was restored from a backup
//! and continued, agree up to some number and nowhere after it. Eight bytes of each digest are kept for that, of the
//! last four million positions. What is older cannot be told apart any more, and is refused: a snapshot would take
//! from a client of the other copy what had been revoked there, unnoticed.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::digest::{Digest, Head};
use crate::log_id::LogId;

/// The digests of the history, shortened, and the last one whole. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct DigestHistory {
    head: u64,
    digest: Digest,
    /// The position of the first mark.
    first: u64,
    /// From `first` to `head`; every block but the last is full.
    blocks: VecDeque<Arc<Vec<u64>>>,
}

/// What is known about a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is one of this log's.
    Ours,
    /// Its history is another.
    Diverged,
    /// This log does not reach so far.
    Ahead,
    /// It lies before the first that is still known.
    TooOld,
}

// === impl DigestHistory ===

impl DigestHistory {
    /// Of a log without a record.
    pub(crate) fn start(log_id: &LogId) -> Self {
        Self::starting_at(Head {
            seq: 0,
            digest: Digest::start(log_id),
        })
    }

    /// Of a log of which no earlier position is known.
    pub(crate) fn starting_at(at: Head) -> Self {
        Self {
            head: at.seq,
            digest: at.digest,
            first: at.seq,
            blocks: VecDeque::from([Arc::new(vec![at.digest.mark()])]),
        }
    }

    /// Of a log of which the beginning was compacted away: `marks` are those up to `head`, the last one its own.
    pub(crate) fn resume(head: u64, digest: Digest, marks: &[u64]) -> Result<Self, &'static str> {
        let before = (marks.len() as u64).checked_sub(1);
        let first = before.and_then(|before| head.checked_sub(before));
        match first {
            Some(first) if marks.last() == Some(&digest.mark()) => Ok(Self {
                head,
                digest,
                first,
                blocks: marks.chunks(BLOCK).map(|block| Arc::new(block.to_vec())).collect(),
            }),
            _ => Err("the compacted history does not end with its own digest"),
        }
    }

    /// The next record's digest.
    pub(crate) fn push(&mut self, digest: Digest) {
        self.head += 1;
        self.digest = digest;
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => Arc::make_mut(block).push(digest.mark()),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(digest.mark());
                self.blocks.push_back(Arc::new(block));
            }
        }
        if self.blocks.len() > MAX_BLOCKS
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.first += oldest.len() as u64;
        }
    }

    /// Sequence number of the last record; 0 without one.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The digest of the history up to the head.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// The last position.
    pub(crate) fn position(&self) -> Head {
        Head {
            seq: self.head,
            digest: self.digest,
        }
    }

    pub(crate) fn standing(&self, seq: u64, digest: &[u8]) -> Standing {
        if seq > self.head {
            return Standing::Ahead;
        }
        if seq < self.first {
            return Standing::TooOld;
        }
        let theirs = <[u8; 32]>::try_from(digest).map(|digest| Digest::from_bytes(digest).mark());
        match (self.mark(seq), theirs) {
            (Some(ours), Ok(theirs)) if ours == theirs => Standing::Ours,
            _ => Standing::Diverged,
        }
    }

    /// What is kept of the digest at a position, if that is known.
    pub(crate) fn mark(&self, seq: u64) -> Option<u64> {
        let place = seq.checked_sub(self.first)?;
        let (block, within) = (place as usize / BLOCK, place as usize % BLOCK);
        self.blocks.get(block)?.get(within).copied()
    }

    /// How many positions are known.
    pub(crate) fn len(&self) -> usize {
        (self.head - self.first) as usize + 1
    }

    /// The marks in blocks, the oldest first.
    pub(crate) fn block(&self, index: usize) -> Option<&[u64]> {
        self.blocks.get(index).map(|block| block.as_slice())
    }
}

const BLOCK: usize = 4_096;
/// Four million positions, in 32 MiB.
const MAX_BLOCKS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn history_of(log_id: &LogId, records: u64) -> (DigestHistory, Vec<Digest>) {
        let mut history = DigestHistory::start(log_id);
        let mut digests = vec![history.digest()];
        for seq in 1..=records {
            let digest = history.digest().after(&seq.to_be_bytes());
            history.push(digest);
            digests.push(digest);
        }
        (history, digests)
    }

    #[test]
    fn every_position_of_the_log_is_known_and_no_other() {
        let (history, digests) = history_of(&LogId::random().unwrap(), 10_000);
        for seq in [0, 1, 4_095, 4_096, 4_097, 10_000] {
            let digest = digests[seq].as_bytes();
            assert_eq!(history.standing(seq as u64, digest), Standing::Ours, "{seq}");
            assert_eq!(history.standing(seq as u64, &digest[..31]), Standing::Diverged, "{seq}");
            assert_eq!(
                history.standing(seq as u64 + 1, digest),
                if seq == 10_000 {
                    Standing::Ahead
                } else {
                    Standing::Diverged
                }
            );
        }
    }

    #[test]
    fn what_is_older_than_the_oldest_mark_is_not_believed() {
        let (mut history, digests) = history_of(&LogId::random().unwrap(), (BLOCK * MAX_BLOCKS) as u64 - 1);
        assert_eq!(history.standing(0, digests[0].as_bytes()), Standing::Ours);
        history.push(history.digest().after(b"one more"));
        assert_eq!(history.standing(0, digests[0].as_bytes()), Standing::TooOld);
        assert_eq!(
            history.standing(BLOCK as u64, digests[BLOCK].as_bytes()),
            Standing::Ours
        );
    }

    #[test]
    fn a_history_goes_on_from_its_marks() {
        let (history, digests) = history_of(&LogId::random().unwrap(), 9_000);
        let marks: Vec<_> = history
            .blocks
            .iter()
            .flat_map(|block| block.iter().copied())
            .skip(5_000)
            .collect();
        let mut resumed = DigestHistory::resume(9_000, history.digest(), &marks).unwrap();
        resumed.push(history.digest().after(b"next"));
        assert_eq!(resumed.standing(4_999, digests[4_999].as_bytes()), Standing::TooOld);
        for seq in [5_000, 8_999, 9_000] {
            assert_eq!(resumed.standing(seq as u64, digests[seq].as_bytes()), Standing::Ours);
        }
        assert_eq!((resumed.head(), resumed.len()), (9_001, 4_002));
        assert!(DigestHistory::resume(9_000, digests[1], &marks).is_err());
        assert!(DigestHistory::resume(9_000, history.digest(), &[]).is_err());
    }
}
