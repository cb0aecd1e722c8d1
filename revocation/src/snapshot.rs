//! The whole state in chunks, encoded once for every stream that starts from it.

use bytes::Bytes;
use credence_wire::v1;
use prost::Message as _;

use crate::state::FrozenState;

/// The chunks, and the position of a client that has applied them.
#[derive(Debug)]
pub struct Snapshot {
    pub seq: u64,
    position: v1::Position,
    subjects: usize,
    chunks: Vec<Bytes>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Takes time in proportion to the number of subjects, and blocks no other work.
    pub(crate) fn of(position: v1::Position, state: FrozenState) -> Self {
        let subjects = state.subjects;
        let mut chunks = Vec::new();
        let mut chunk = v1::SnapshotChunk::default();
        let mut bytes = CHUNK_OVERHEAD;
        for (_, record) in state.into_records() {
            let needed = record.encoded_len() + RECORD_OVERHEAD;
            if bytes + needed > MAX_CHUNK_BYTES && !chunk.records.is_empty() {
                chunks.push(chunk.encode_to_vec().into());
                chunk.index += 1;
                chunk.records.clear();
                bytes = CHUNK_OVERHEAD;
            }
            bytes += needed;
            chunk.records.push(record);
        }
        if !chunk.records.is_empty() {
            chunks.push(chunk.encode_to_vec().into());
        }
        Self {
            seq: position.seq,
            position,
            subjects,
            chunks,
        }
    }

    pub(crate) fn announcement(&self) -> v1::Snapshot {
        v1::Snapshot {
            position: Some(self.position.clone()),
            chunks: self.chunks.len() as u32,
            subjects: self.subjects as u64,
        }
    }

    /// An encoded [`v1::SnapshotChunk`].
    pub(crate) fn chunk(&self, index: u32) -> Option<&Bytes> {
        self.chunks.get(index as usize)
    }

    /// The records of all chunks, in order.
    pub fn records(&self) -> impl Iterator<Item = Result<Vec<v1::Record>, prost::DecodeError>> {
        let decode = |bytes: &Bytes| v1::SnapshotChunk::decode(bytes.clone()).map(|chunk| chunk.records);
        self.chunks.iter().map(decode)
    }

    /// The number of chunks.
    pub(crate) fn len(&self) -> u32 {
        self.chunks.len() as u32
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
    use super::*;
    use crate::log_view::tests::view_of;

    #[test]
    fn a_snapshots_chunks_fit_the_contract_and_hold_everything() {
        let view = view_of(5_000, 1);
        let snapshot = Snapshot::of(view.position(), view.state.freeze());
        let mut records = 0;
        for index in 0..snapshot.len() {
            let bytes = snapshot.chunk(index).unwrap().clone();
            assert!(bytes.len() <= MAX_CHUNK_BYTES);
            let chunk = v1::SnapshotChunk::decode(bytes).unwrap();
            assert_eq!(chunk.index, index);
            records += chunk.records.len();
        }
        assert!(snapshot.len() > 1);
        assert_eq!(records, 5_000);
        let announced = snapshot.announcement();
        assert_eq!((announced.chunks, announced.subjects), (snapshot.len(), 5_000));
        assert_eq!(announced.position, Some(view.position()));
    }

    #[test]
    fn an_empty_log_has_a_snapshot_without_chunks() {
        let announced = Snapshot::of(v1::Position::default(), view_of(0, 1).state.freeze()).announcement();
        assert_eq!((announced.chunks, announced.subjects), (0, 0));
    }
}
