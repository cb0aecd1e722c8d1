//! The data that revocation streams read: the state of every subject at the last durable record, and the latest updates.

use std::collections::VecDeque;

use bytes::Bytes;
use credence_wire::v1;
use prost::Message as _;

use crate::digest::{Digest, Head};
use crate::digest_history::{DigestHistory, ForeignPosition};
use crate::log_id::LogId;
use crate::position::PositionKey;
use crate::state::State;
use crate::store::group::{EncodedRecord, Group};

/// The log up to its last durable record.
#[derive(Debug)]
pub(crate) struct LogView {
    pub(crate) state: State,
    pub(crate) digests: DigestHistory,
    /// The encoded updates up to the head, within the limits.
    history: VecDeque<Bytes>,
    history_bytes: usize,
    /// The end of the log during replay, from which the history is made.
    replayed: VecDeque<(u64, Digest, Bytes)>,
    bounds: HistoryBounds,
    /// Absent in tests, and if no positions are given out.
    key: Option<PositionKey>,
}

/// Limits of the history in memory.
#[derive(Debug, Clone, Copy)]
pub struct HistoryBounds {
    pub entries: usize,
    pub bytes: usize,
}

/// How a client reaches the head from its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the updates after this sequence number.
    After(u64),
    /// With a snapshot.
    Snapshot,
}

/// The updates that a stream still needs are no longer in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FellBehind;

// === impl LogView ===

impl LogView {
    pub(crate) fn new(log_id: &LogId, bounds: HistoryBounds) -> Self {
        Self {
            state: State::default(),
            digests: DigestHistory::start(log_id),
            history: VecDeque::new(),
            history_bytes: 0,
            replayed: VecDeque::new(),
            bounds,
            key: None,
        }
    }

    /// Adds a proof to every position that is given out.
    pub(crate) fn proving(self, key: PositionKey) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Adds the next durable record.
    pub(crate) fn append(&mut self, record: EncodedRecord) -> Result<(), &'static str> {
        let digest = self.digests.head.digest.after(&record.bytes);
        let seq = self.take(record.record, digest)?;
        self.remember(seq, digest, record.bytes);
        Ok(())
    }

    /// Returns the record's number.
    fn take(&mut self, record: v1::Record, digest: Digest) -> Result<u64, &'static str> {
        let seq = self.head() + 1;
        self.state.apply(seq, record)?;
        self.digests.push(digest);
        Ok(seq)
    }

    /// Keeps the update for followers, and drops old ones beyond the limits.
    fn remember(&mut self, seq: u64, digest: Digest, record: Bytes) {
        let update = EncodedUpdate {
            position: Some(position(Head { seq, digest }, self.key.as_ref())),
            record,
        };
        let update = Bytes::from(update.encode_to_vec());
        self.history_bytes += update.len();
        self.history.push_back(update);
        while self.history.len() > self.bounds.entries || self.history_bytes > self.bounds.bytes {
            let Some(oldest) = self.history.pop_front() else {
                break;
            };
            self.history_bytes -= oldest.len();
        }
    }

    /// Sequence number of the last durable record; 0 for an empty log.
    pub(crate) fn head(&self) -> u64 {
        self.digests.head.seq
    }

    /// How a client continues that has applied the log up to `applied`.
    pub(crate) fn start(&self, applied: Option<&v1::Position>) -> Result<Start, ForeignPosition> {
        let Some(applied) = applied else {
            return Ok(Start::Snapshot);
        };
        self.digests.check(applied.seq, &applied.digest)?;
        Ok(self.start_after(applied.seq))
    }

    /// How a client continues that shows only a position's [proof](Self::proof_of). Without a proof, or with one of a
    /// replaced key, its history is unknown.
    pub(crate) fn start_at_proof(&self, seq: u64, proof: &[u8]) -> Result<Start, ForeignPosition> {
        let mark = self.digests.mark(seq);
        if let Err(ahead @ ForeignPosition::Ahead { .. }) = mark {
            return Err(ahead);
        }
        let Some(key) = self.key.as_ref().filter(|key| proof.starts_with(&key.id())) else {
            return Ok(Start::Snapshot);
        };
        match key.prove_by_name(seq, mark?) == proof {
            true => Ok(self.start_after(seq)),
            false => Err(ForeignPosition::Diverged { applied: seq }),
        }
    }

    fn start_after(&self, seq: u64) -> Start {
        match self.covers(seq) {
            true => Start::After(seq),
            false => Start::Snapshot,
        }
    }

    /// The proof of a position, if the position is still known.
    pub(crate) fn proof_of(&self, seq: u64) -> Option<Vec<u8>> {
        Some(self.key.as_ref()?.prove_by_name(seq, self.digests.mark(seq).ok()?))
    }

    /// Whether this log gave out a position that it no longer has.
    pub(crate) fn gave_out(&self, position: &v1::Position) -> bool {
        self.key.as_ref().is_some_and(|key| key.accepts(position))
    }

    /// At most `limit` updates after `seq`, in order, each an encoded [`v1::Update`]; none if `seq` is the head.
    pub(crate) fn updates_after(&self, seq: u64, limit: usize) -> Result<Vec<Bytes>, FellBehind> {
        if !self.covers(seq) {
            return Err(FellBehind);
        }
        let missing = (self.head() - seq) as usize;
        let skip = self.history.len() - missing;
        Ok(self.history.iter().skip(skip).take(limit).cloned().collect())
    }

    /// Whether a snapshot at `seq` is still recent enough for a new stream: at least half of the history is after it.
    pub(crate) fn is_recent(&self, seq: u64) -> bool {
        self.covers(seq) && (self.head() - seq) as usize <= self.history.len() / 2
    }

    /// The head, as sent to clients.
    pub(crate) fn position(&self) -> v1::Position {
        position(self.digests.head, self.key.as_ref())
    }

    /// Whether the updates after `seq` are in memory.
    pub(crate) fn covers(&self, seq: u64) -> bool {
        seq <= self.head() && self.head() - seq <= self.history.len() as u64
    }

    // To open a log, call `restore`, then `begin`, then `replay`, and finally `end_replay`.

    /// Adds a record of the state with which the log begins.
    pub(crate) fn restore(&mut self, seq: u64, record: v1::Record) -> Result<(), &'static str> {
        self.state.apply(seq, record)
    }

    /// Sets the known positions. Called after the state, and again where the log was renamed.
    pub(crate) fn begin(&mut self, digests: DigestHistory) {
        self.digests = digests;
        // Earlier records belong to another name.
        self.replayed.clear();
    }

    /// Adds the next record, and the digest of the history up to it.
    fn replay(&mut self, record: EncodedRecord, digest: Digest) -> Result<(), &'static str> {
        let seq = self.take(record.record, digest)?;
        // Most updates of a long log are never requested; only the latest are encoded.
        self.replayed.push_back((seq, digest, record.bytes));
        if self.replayed.len() > self.bounds.entries {
            self.replayed.pop_front();
        }
        Ok(())
    }

    /// Adds a group after `head`, and returns the position after it.
    pub(crate) fn replay_group(&mut self, group: Group, head: Head) -> Result<Head, &'static str> {
        if group.renamed.is_some() {
            self.begin(DigestHistory::starting_at(group.begins_at(head)));
        }
        let head = group.head().unwrap_or(head);
        for (record, digest) in group.records.into_iter().zip(group.digests) {
            self.replay(record, digest)?;
        }
        Ok(head)
    }

    /// The log has no more records.
    pub(crate) fn end_replay(&mut self) {
        for (seq, digest, record) in std::mem::take(&mut self.replayed) {
            self.remember(seq, digest, record);
        }
    }
}

/// `credence.v1.Update` with an encoded record: on the wire, messages and bytes are the same.
#[derive(Clone, PartialEq, prost::Message)]
struct EncodedUpdate {
    #[prost(message, optional, tag = "1")]
    position: Option<v1::Position>,
    #[prost(bytes = "bytes", tag = "2")]
    record: Bytes,
}

fn position(Head { seq, digest }: Head, key: Option<&PositionKey>) -> v1::Position {
    v1::Position {
        seq,
        digest: digest.as_bytes().to_vec(),
        proof: key.map_or_else(Vec::new, |key| key.prove(seq, digest.mark()).to_vec()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
            under: Vec::new(),
        };
        v1::Record {
            subject: Some(Subject::Delegation(delegation)),
        }
        .into()
    }

    fn view(log_id: &LogId, records: usize, entries: usize) -> LogView {
        let mut view = LogView::new(
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

    /// The view of a new log with this many records, of which this many updates are kept.
    pub(crate) fn view_of(records: usize, entries: usize) -> LogView {
        view(&log_id(), records, entries)
    }

    /// The position of a client that followed a view like this one.
    fn position_at(log_id: &LogId, seq: u64) -> v1::Position {
        view(log_id, seq as usize, 1).position()
    }

    #[test]
    fn a_client_within_the_history_resumes_and_an_older_one_gets_a_snapshot() {
        let log_id = log_id();
        let view = view(&log_id, 10, 4);
        let start = |seq| view.start(Some(&position_at(&log_id, seq))).unwrap();
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
            proof: Vec::new(),
        };
        assert_eq!(
            view.start(Some(&ahead)),
            Err(ForeignPosition::Ahead { applied: 3, head: 2 })
        );
    }

    #[test]
    fn a_position_with_another_history_is_foreign_even_if_only_a_snapshot_would_help() {
        let log_id = log_id();
        let ours = view(&log_id, 10, 4);
        let mut theirs = LogView::new(
            &log_id,
            HistoryBounds {
                entries: 10,
                bytes: usize::MAX,
            },
        );
        theirs.append(delegation(99)).unwrap();
        theirs.append(delegation(2)).unwrap();
        let refused = ours.start(Some(&theirs.position()));
        assert_eq!(refused, Err(ForeignPosition::Diverged { applied: 2 }));
    }

    #[test]
    fn updates_follow_a_position_without_a_gap_up_to_the_limit() {
        let view = view(&log_id(), 10, 6);
        let seqs = |after, limit| {
            let updates = view.updates_after(after, limit)?;
            Ok(updates
                .iter()
                .map(|update| v1::Update::decode(update.clone()).unwrap().position.unwrap().seq)
                .collect::<Vec<_>>())
        };
        assert_eq!(seqs(4, 3), Ok(vec![5, 6, 7]));
        assert_eq!(seqs(8, 3), Ok(vec![9, 10]));
        assert_eq!(seqs(10, 3), Ok(vec![]));
        assert_eq!(seqs(3, 3), Err(FellBehind));
    }

    #[test]
    fn the_history_is_bounded_in_bytes_too() {
        let mut view = LogView::new(
            &log_id(),
            HistoryBounds {
                entries: 100,
                bytes: 200,
            },
        );
        for id in 1..=9 {
            view.append(delegation(id)).unwrap();
        }
        assert!(view.updates_after(9, 1).is_ok() && view.updates_after(8, 1).is_ok());
        assert_eq!(view.updates_after(5, 1), Err(FellBehind));
    }
}
