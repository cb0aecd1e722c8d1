//! What watch streams read: the state of every subject at the last durable record, and the latest updates.

use std::collections::VecDeque;
use std::sync::Arc;

use credence_wire::v1;
use prost::Message as _;

use super::digest::Digest;
use super::state::State;
use super::storage::EncodedRecord;
use crate::data_folder::LogId;

/// The log up to its last durable record.
#[derive(Debug)]
pub(crate) struct View {
    state: State,
    /// The digest at position 0.
    origin: Digest,
    /// The digest at position 1 and every later one; 32 bytes for each record the log ever had.
    digests: Vec<Digest>,
    /// The updates up to the head, as many as the bounds allow.
    history: VecDeque<(usize, Arc<v1::Update>)>,
    history_bytes: usize,
    bounds: HistoryBounds,
}

/// How much of the past is kept in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistoryBounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// How a client gets from where it is to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// By the updates after this sequence number.
    After(u64),
    /// By a snapshot.
    Snapshot,
}

/// The client's position is none of this log's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForeignPosition {
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
}

/// The updates that a stream still needs are no longer in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FellBehind;

/// A whole state, cut into chunks.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) seq: u64,
    pub(crate) digest: Digest,
    pub(crate) chunks: Vec<v1::SnapshotChunk>,
}

// === impl View ===

impl View {
    pub(crate) fn new(log_id: &LogId, bounds: HistoryBounds) -> Self {
        Self {
            state: State::default(),
            origin: Digest::start(log_id),
            digests: Vec::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            bounds,
        }
    }

    /// Takes the next durable record in.
    pub(crate) fn append(&mut self, record: EncodedRecord) -> Result<(), &'static str> {
        let seq = self.head() + 1;
        self.state.apply(seq, &record.record)?;
        let digest = self.digest().after(&record.bytes);
        self.digests.push(digest);
        let bytes = record.bytes.len();
        let update = v1::Update {
            position: Some(position(seq, digest)),
            record: Some(record.record),
        };
        self.history.push_back((bytes, Arc::new(update)));
        self.history_bytes += bytes;
        while self.history.len() > self.bounds.entries || self.history_bytes > self.bounds.bytes {
            let Some((bytes, _)) = self.history.pop_front() else {
                break;
            };
            self.history_bytes -= bytes;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Sequence number of the last durable record; 0 for an empty log.
    pub(crate) fn head(&self) -> u64 {
        self.digests.len() as u64
    }

    /// Where a client that has applied the log up to `applied` goes on.
    pub(crate) fn start(&self, applied: Option<&v1::Position>) -> Result<Start, ForeignPosition> {
        let Some(applied) = applied else {
            return Ok(Start::Snapshot);
        };
        match self.digest_at(applied.seq) {
            None => Err(ForeignPosition::Ahead {
                applied: applied.seq,
                head: self.head(),
            }),
            Some(digest) if digest.as_bytes() != applied.digest => {
                Err(ForeignPosition::Diverged { applied: applied.seq })
            }
            Some(_) if self.covers(applied.seq) => Ok(Start::After(applied.seq)),
            Some(_) => Ok(Start::Snapshot),
        }
    }

    /// At most `limit` updates after `seq`, in order; none if `seq` is the head.
    pub(crate) fn updates_after(&self, seq: u64, limit: usize) -> Result<Vec<Arc<v1::Update>>, FellBehind> {
        if !self.covers(seq) {
            return Err(FellBehind);
        }
        let missing = (self.head() - seq) as usize;
        let skip = self.history.len() - missing;
        Ok(self
            .history
            .iter()
            .skip(skip)
            .take(limit)
            .map(|(_, update)| Arc::clone(update))
            .collect())
    }

    /// Whether a snapshot taken at `seq` is still good to start a new stream from: half of the history lies ahead.
    pub(crate) fn is_recent(&self, seq: u64) -> bool {
        self.covers(seq) && (self.head() - seq) as usize <= self.history.len() / 2
    }

    /// The state in chunks. Takes time in proportion to the number of subjects.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut chunks = Vec::new();
        let mut chunk = v1::SnapshotChunk::default();
        let mut bytes = CHUNK_OVERHEAD;
        for record in self.state.records() {
            let needed = record.encoded_len() + RECORD_OVERHEAD;
            if bytes + needed > MAX_CHUNK_BYTES && !chunk.records.is_empty() {
                let next = v1::SnapshotChunk {
                    index: chunk.index + 1,
                    records: Vec::new(),
                };
                chunks.push(std::mem::replace(&mut chunk, next));
                bytes = CHUNK_OVERHEAD;
            }
            bytes += needed;
            chunk.records.push(record);
        }
        if !chunk.records.is_empty() {
            chunks.push(chunk);
        }
        Snapshot {
            seq: self.head(),
            digest: self.digest(),
            chunks,
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digests.last().copied().unwrap_or(self.origin)
    }

    fn digest_at(&self, seq: u64) -> Option<Digest> {
        match usize::try_from(seq).ok()?.checked_sub(1) {
            None => Some(self.origin),
            Some(index) => self.digests.get(index).copied(),
        }
    }

    fn covers(&self, seq: u64) -> bool {
        seq <= self.head() && self.head() - seq <= self.history.len() as u64
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) fn announcement(&self) -> v1::Snapshot {
        v1::Snapshot {
            position: Some(position(self.seq, self.digest)),
            chunks: self.chunks.len() as u32,
            subjects: 0,
        }
    }
}

fn position(seq: u64, digest: Digest) -> v1::Position {
    v1::Position {
        seq,
        digest: digest.as_bytes().to_vec(),
    }
}

/// Encoded size of a snapshot chunk, from the contract.
const MAX_CHUNK_BYTES: usize = 64 << 10;
/// A `WatchResponse` around the chunk: tag and length, and the chunk's index.
const CHUNK_OVERHEAD: usize = 16;
/// Tag and length of a record in its chunk.
const RECORD_OVERHEAD: usize = 5;

#[cfg(test)]
mod tests {
    use credence_wire::v1::record::Subject;

    use super::*;

    fn log_id() -> LogId {
        LogId::random().unwrap()
    }

    fn delegation(id: usize) -> EncodedRecord {
        let principal = v1::Principal {
            issuer: "https://id.example.com".to_owned(),
            subject: None,
        };
        let delegation = v1::RevokedDelegation {
            principal: Some(principal),
            id: format!("id-{id}"),
            revoked_at: 0,
        };
        v1::Record {
            subject: Some(Subject::Delegation(delegation)),
        }
        .into()
    }

    fn view(log_id: &LogId, records: usize, entries: usize) -> View {
        let mut view = View::new(
            log_id,
            HistoryBounds {
                entries,
                bytes: usize::MAX,
            },
        );
        for id in 1..=records {
            view.append(delegation(id)).unwrap();
        }
        view
    }

    fn position_at(view: &View, seq: u64) -> v1::Position {
        position(seq, view.digest_at(seq).unwrap())
    }

    #[test]
    fn a_client_within_the_history_resumes_and_an_older_one_gets_a_snapshot() {
        let view = view(&log_id(), 10, 4);
        let start = |seq| view.start(Some(&position_at(&view, seq))).unwrap();
        assert_eq!(start(10), Start::After(10));
        assert_eq!(start(6), Start::After(6));
        assert_eq!(start(5), Start::Snapshot);
        assert_eq!(start(0), Start::Snapshot);
        assert_eq!(view.start(None).unwrap(), Start::Snapshot);
    }

    #[test]
    fn a_position_ahead_of_the_log_is_foreign() {
        let view = view(&log_id(), 2, 10);
        let ahead = v1::Position {
            seq: 3,
            digest: vec![0; 32],
        };
        assert_eq!(
            view.start(Some(&ahead)),
            Err(ForeignPosition::Ahead { applied: 3, head: 2 })
        );
    }

    #[test]
    fn a_position_with_another_history_is_foreign_even_where_only_a_snapshot_would_help() {
        let log_id = log_id();
        let ours = view(&log_id, 10, 4);
        let mut theirs = View::new(
            &log_id,
            HistoryBounds {
                entries: 10,
                bytes: usize::MAX,
            },
        );
        theirs.append(delegation(99)).unwrap();
        theirs.append(delegation(2)).unwrap();
        let refused = ours.start(Some(&position_at(&theirs, 2)));
        assert_eq!(refused, Err(ForeignPosition::Diverged { applied: 2 }));
    }

    #[test]
    fn updates_follow_a_position_without_a_gap_up_to_the_limit() {
        let view = view(&log_id(), 10, 6);
        let seqs = |after, limit| {
            let updates = view.updates_after(after, limit)?;
            Ok(updates
                .iter()
                .map(|update| update.position.as_ref().unwrap().seq)
                .collect::<Vec<_>>())
        };
        assert_eq!(seqs(4, 3), Ok(vec![5, 6, 7]));
        assert_eq!(seqs(8, 3), Ok(vec![9, 10]));
        assert_eq!(seqs(10, 3), Ok(vec![]));
        assert_eq!(seqs(3, 3), Err(FellBehind));
    }

    #[test]
    fn the_history_is_bounded_in_bytes_too() {
        let mut view = View::new(
            &log_id(),
            HistoryBounds {
                entries: 100,
                bytes: delegation(1).bytes.len() * 2,
            },
        );
        for id in 1..=9 {
            view.append(delegation(id)).unwrap();
        }
        assert_eq!(view.history.len(), 2);
    }

    #[test]
    fn a_snapshots_chunks_fit_the_contract_and_hold_everything() {
        let view = view(&log_id(), 5_000, 1);
        let snapshot = view.snapshot();
        assert!(snapshot.chunks.len() > 1);
        for (index, chunk) in snapshot.chunks.iter().enumerate() {
            assert_eq!(chunk.index as usize, index);
            assert!(chunk.encoded_len() <= MAX_CHUNK_BYTES);
        }
        assert_eq!(
            snapshot.chunks.iter().map(|chunk| chunk.records.len()).sum::<usize>(),
            5_000
        );
        assert_eq!(snapshot.announcement().position, Some(position_at(&view, 5_000)));
    }

    #[test]
    fn an_empty_log_has_a_snapshot_without_chunks() {
        assert_eq!(view(&log_id(), 0, 1).snapshot().announcement().chunks, 0);
    }
}
