//! What a compacted log begins with: the state at one position, and the marks of the positions before it.
//!
//! Both are stored in chunks of a bounded size. A note says how many chunks, records and marks there are, and makes them
//! count.

use bytes::Bytes;
use credence_wire::v1;
use prost::Message as _;

use crate::digest::{Digest, Head};
use crate::digest_history::DigestHistory;
use crate::state::FrozenState;

/// The log at one instant, on its way into the place of the groups up to there.
#[derive(Debug)]
pub(crate) struct Cut {
    state: FrozenState,
    digests: DigestHistory,
    next_part: usize,
    next_block: usize,
    written: Beginning,
    /// Bytes of the chunks so far.
    pub(crate) bytes: u64,
    /// Bytes of the log that the chunks take the place of.
    pub(crate) replaced_bytes: u64,
    /// The chunks count.
    pub(crate) is_moved: bool,
}

/// Which chunks the log begins with.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Beginning {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(crate) chunks: u32,
    #[prost(uint64, tag = "4")]
    records: u64,
    #[prost(uint64, tag = "5")]
    marks: u64,
}

// === impl Cut ===

impl Cut {
    /// Of a log that takes so many bytes now.
    pub(crate) fn new(state: FrozenState, digests: DigestHistory, replaced_bytes: u64) -> Self {
        Self {
            written: Beginning::at(digests.position()),
            state,
            digests,
            next_part: 0,
            next_block: 0,
            bytes: 0,
            replaced_bytes,
            is_moved: false,
        }
    }

    pub(crate) fn head(&self) -> Head {
        self.digests.position()
    }

    /// The next chunk and its number.
    pub(crate) fn next_chunk(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES
            && let Some(records) = self.state.part(self.next_part)
        {
            self.next_part += 1;
            for (seq, record) in records {
                let encoded = record.encode_to_vec();
                bytes += encoded.len();
                chunk.records.push(encoded.into());
                chunk.seqs.push(seq);
            }
        }
        let mut marks = Vec::new();
        while bytes + marks.len() < CHUNK_BYTES
            && let Some(block) = self.digests.block(self.next_block)
        {
            self.next_block += 1;
            marks.extend(block.iter().flat_map(|mark| mark.to_be_bytes()));
        }
        if chunk.records.is_empty() && marks.is_empty() {
            return None;
        }
        self.written.records += chunk.records.len() as u64;
        self.written.marks += marks.len() as u64 / 8;
        chunk.marks = marks.into();
        let index = self.written.chunks;
        self.written.chunks += 1;
        let encoded = chunk.encode_to_vec();
        self.bytes += encoded.len() as u64;
        Some((index, encoded))
    }

    /// What makes the chunks so far count.
    pub(crate) fn beginning(&self) -> &Beginning {
        &self.written
    }
}

// === impl Beginning ===

impl Beginning {
    /// Of a log that has no state at this position, and knows none before it.
    pub(crate) fn at(head: Head) -> Self {
        Self {
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec(),
            ..Self::default()
        }
    }

    pub(crate) fn head(&self) -> Result<Head, &'static str> {
        let digest = Digest::parse(&self.digest).ok_or("a digest of impossible length")?;
        Ok(Head { seq: self.seq, digest })
    }

    /// The positions up to the beginning, of which the chunks had so many records and these marks.
    pub(crate) fn digests(&self, records: u64, marks: &[u64]) -> Result<DigestHistory, &'static str> {
        if records != self.records || marks.len() as u64 != self.marks {
            return Err(NOT_WHOLE);
        }
        let Head { seq, digest } = self.head()?;
        match marks.is_empty() {
            true => Ok(DigestHistory::starting_at(Head { seq, digest })),
            false => DigestHistory::resume(seq, digest, marks),
        }
    }
}

/// The records of a chunk, each with the number that it once had. Its marks are added to `marks`.
pub(crate) fn read_chunk(chunk: &[u8], marks: &mut Vec<u64>) -> Result<Vec<(u64, v1::Record)>, &'static str> {
    let chunk = Chunk::decode(chunk).map_err(|_| "a row that does not hold a part of the log's beginning")?;
    let (found, rest) = chunk.marks.as_chunks::<8>();
    if chunk.records.len() != chunk.seqs.len() || !rest.is_empty() {
        return Err(NOT_WHOLE);
    }
    marks.extend(found.iter().map(|mark| u64::from_be_bytes(*mark)));
    let records = chunk.seqs.into_iter().zip(chunk.records).map(|(seq, bytes)| {
        let record = v1::Record::decode(bytes).map_err(|_| "a record that this version cannot read")?;
        Ok((seq, record))
    });
    records.collect()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Chunk {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    records: Vec<Bytes>,
    /// The number that each once had.
    #[prost(uint64, repeated, tag = "2")]
    seqs: Vec<u64>,
    /// Eight bytes each, big-endian, the oldest first.
    #[prost(bytes = "bytes", tag = "3")]
    marks: Bytes,
}

const NOT_WHOLE: &str = "the compacted beginning of the log is not whole";
/// What goes into one chunk, about.
const CHUNK_BYTES: usize = 512 << 10;
