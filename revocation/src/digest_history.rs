//! Tells whether a client's position belongs to this log or to another copy.
//!
//! A client names its position by a sequence number and the digest of the history up to it. Checking it takes the log's
//! digest at that number: if a copy was restored from a backup and continued, two copies agree up to some number and
//! nowhere after it. So eight bytes of each digest are kept, for the last four million positions. Older positions
//! cannot be checked, and are refused: a snapshot could silently remove revocations that the client has from another
//! copy.

use std::collections::VecDeque;

use crate::digest::{Digest, Head};
use crate::log_id::LogId;

/// The shortened digests of the history, and the last one in full.
#[derive(Debug, Clone)]
pub(crate) struct DigestHistory {
    pub(crate) head: Head,
    /// The shortened digests up to the head, oldest first.
    pub(crate) marks: VecDeque<u64>,
}

/// The client's position does not belong to this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForeignPosition {
    #[error(
        "you have applied entry {applied}, but this log ends at {head}: it was restored from an old copy or \
         re-initialised. Restore the newest copy, or initialise a new log and configure its id"
    )]
    Ahead { applied: u64, head: u64 },
    #[error(
        "your history up to entry {applied} differs from this log's: one of the two was restored from an old copy and \
         continued. Restore the right copy, or initialise a new log and configure its id"
    )]
    Diverged { applied: u64 },
    #[error(
        "you have applied entry {applied}, which is so old that this log can no longer tell whether it was one of \
         its own. Restart the client, so that it starts from a snapshot"
    )]
    TooOld { applied: u64 },
}

// === impl DigestHistory ===

impl DigestHistory {
    /// For a log without records.
    pub(crate) fn start(log_id: &LogId) -> Self {
        Self::starting_at(Head {
            seq: 0,
            digest: Digest::start(log_id),
        })
    }

    /// For a log that knows no earlier position.
    pub(crate) fn starting_at(head: Head) -> Self {
        Self {
            head,
            marks: VecDeque::from([head.digest.mark()]),
        }
    }

    /// For a log whose beginning was compacted away: `marks` are the shortened digests up to `head`, with its own as
    /// the last.
    pub(crate) fn resume(head: Head, marks: Vec<u64>) -> Result<Self, &'static str> {
        if marks.last() != Some(&head.digest.mark()) || marks.len() as u64 > head.seq + 1 {
            return Err("the compacted history does not end with its own digest");
        }
        Ok(Self {
            head,
            marks: marks.into(),
        })
    }

    /// The next record's digest.
    pub(crate) fn push(&mut self, digest: Digest) {
        self.head = Head {
            seq: self.head.seq + 1,
            digest,
        };
        if self.marks.len() == MAX_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(digest.mark());
    }

    /// Checks that a position with this digest belongs to this log.
    pub(crate) fn check(&self, seq: u64, digest: &[u8]) -> Result<(), ForeignPosition> {
        let ours = self.mark(seq)?;
        match Digest::parse(digest) {
            Some(theirs) if theirs.mark() == ours => Ok(()),
            _ => Err(ForeignPosition::Diverged { applied: seq }),
        }
    }

    /// The shortened digest at a position.
    pub(crate) fn mark(&self, applied: u64) -> Result<u64, ForeignPosition> {
        let head = self.head.seq;
        let after = head
            .checked_sub(applied)
            .ok_or(ForeignPosition::Ahead { applied, head })?;
        // The last mark is the head's.
        let place = (self.marks.len() as u64).checked_sub(after + 1);
        let mark = place.and_then(|place| self.marks.get(place as usize));
        mark.copied().ok_or(ForeignPosition::TooOld { applied })
    }
}

/// Four million positions, in 32 MiB.
const MAX_MARKS: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn history_of(log_id: &LogId, records: u64) -> (DigestHistory, Vec<Digest>) {
        let mut history = DigestHistory::start(log_id);
        let mut digests = vec![history.head.digest];
        for seq in 1..=records {
            let digest = history.head.digest.after(&seq.to_be_bytes());
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
            assert_eq!(history.check(seq as u64, digest), Ok(()), "{seq}");
            let applied = seq as u64;
            let diverged = Err(ForeignPosition::Diverged { applied });
            assert_eq!(history.check(applied, &digest[..31]), diverged, "{seq}");
            let next = ForeignPosition::Diverged {
                applied: seq as u64 + 1,
            };
            let beyond = ForeignPosition::Ahead {
                applied: 10_001,
                head: 10_000,
            };
            assert_eq!(
                history.check(seq as u64 + 1, digest),
                Err(if seq == 10_000 { beyond } else { next })
            );
        }
    }

    #[test]
    fn a_position_before_the_oldest_mark_is_refused() {
        let (mut history, digests) = history_of(&LogId::random().unwrap(), MAX_MARKS as u64 - 1);
        assert_eq!(history.check(0, digests[0].as_bytes()), Ok(()));
        history.push(history.head.digest.after(b"one more"));
        assert_eq!(
            history.check(0, digests[0].as_bytes()),
            Err(ForeignPosition::TooOld { applied: 0 })
        );
        assert_eq!(history.check(1, digests[1].as_bytes()), Ok(()));
    }

    #[test]
    fn a_history_continues_from_its_marks() {
        let (history, digests) = history_of(&LogId::random().unwrap(), 9_000);
        let marks: Vec<_> = history.marks.iter().copied().skip(5_000).collect();
        let mut resumed = DigestHistory::resume(history.head, marks.clone()).unwrap();
        resumed.push(history.head.digest.after(b"next"));
        assert_eq!(
            resumed.check(4_999, digests[4_999].as_bytes()),
            Err(ForeignPosition::TooOld { applied: 4_999 })
        );
        for seq in [5_000, 8_999, 9_000] {
            assert_eq!(resumed.check(seq as u64, digests[seq].as_bytes()), Ok(()));
        }
        assert_eq!((resumed.head.seq, resumed.marks.len()), (9_001, 4_002));
        let other = Head {
            seq: 9_000,
            digest: digests[1],
        };
        assert!(DigestHistory::resume(other, marks).is_err());
        assert!(DigestHistory::resume(history.head, Vec::new()).is_err());
    }
}
