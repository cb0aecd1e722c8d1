//! The beginning of a compacted log: the state at one position, and the shortened digests of the positions before it.
//!
//! Both are stored in bounded chunks. A note has the number of chunks, and puts them in force.

use std::collections::VecDeque;

use credence_wire::v1;
use prost::Message as _;

use crate::digest::{Digest, Head};
use crate::digest_history::DigestHistory;
use crate::log_view::LogView;
use crate::state::FrozenState;

/// The log at one instant, which will replace the groups up to that instant.
pub(crate) struct Cut {
    pub(crate) head: Head,
    records: Box<dyn Iterator<Item = (u64, v1::Record)> + Send>,
    marks: VecDeque<u64>,
    /// The number of chunks so far.
    chunks: u32,
    /// The bytes of the chunks so far.
    pub(crate) bytes: u64,
    /// The bytes of the log that the chunks replace.
    pub(crate) replaced_bytes: u64,
    /// Whether the chunks are in force.
    pub(crate) is_moved: bool,
}

/// The chunks with which the log begins.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Beginning {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(crate) chunks: u32,
}

/// A part of the log's beginning.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Chunk {
    #[prost(message, repeated, tag = "1")]
    pub(crate) records: Vec<v1::Record>,
    /// The number of each record.
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) seqs: Vec<u64>,
    /// The shortened digests, oldest first.
    #[prost(fixed64, repeated, tag = "3")]
    pub(crate) marks: Vec<u64>,
}

/// Restores a view from the chunks.
pub(crate) struct Restoring {
    beginning: Beginning,
    marks: Vec<u64>,
    chunks: u32,
}

// === impl Restoring ===

impl Restoring {
    pub(crate) fn new(beginning: Beginning) -> Self {
        Self {
            beginning,
            marks: Vec::new(),
            chunks: 0,
        }
    }

    /// Adds the next chunk.
    pub(crate) fn chunk(&mut self, bytes: &[u8], view: &mut LogView) -> Result<(), &'static str> {
        let chunk = Chunk::decode(bytes).map_err(|_| "a value that is not a part of the log's beginning")?;
        if chunk.seqs.len() != chunk.records.len() {
            return Err("a part of the log's beginning that is not complete");
        }
        for (seq, record) in chunk.seqs.into_iter().zip(chunk.records) {
            view.restore(seq, record)?;
        }
        self.marks.extend(chunk.marks);
        self.chunks += 1;
        Ok(())
    }

    /// All chunks were added. Returns the position where the groups begin.
    pub(crate) fn begin(self, view: &mut LogView) -> Result<Head, &'static str> {
        let head = self.beginning.head()?;
        if self.chunks != self.beginning.chunks {
            return Err("the compacted beginning of the log is not complete");
        }
        view.begin(match self.marks.is_empty() {
            true => DigestHistory::starting_at(head),
            false => DigestHistory::resume(head, self.marks)?,
        });
        Ok(head)
    }
}

// === impl Cut ===

impl Cut {
    /// For a log that now takes this many bytes.
    pub(crate) fn new(state: FrozenState, digests: DigestHistory, replaced_bytes: u64) -> Self {
        Self {
            head: digests.head,
            records: Box::new(state.into_records()),
            marks: digests.marks,
            chunks: 0,
            bytes: 0,
            replaced_bytes,
            is_moved: false,
        }
    }

    /// The next encoded chunk, and its number.
    pub(crate) fn next_chunk(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut chunk = Chunk::default();
        let mut room = CHUNK_BYTES;
        while room > 0
            && let Some((seq, record)) = self.records.next()
        {
            room = room.saturating_sub(record.encoded_len() + RECORD_OVERHEAD);
            chunk.seqs.push(seq);
            chunk.records.push(record);
        }
        let marks = (room / size_of::<u64>()).min(self.marks.len());
        chunk.marks.extend(self.marks.drain(..marks));
        if chunk.records.is_empty() && chunk.marks.is_empty() {
            return None;
        }
        let index = self.chunks;
        self.chunks += 1;
        let encoded = chunk.encode_to_vec();
        self.bytes += encoded.len() as u64;
        Some((index, encoded))
    }

    /// The note that puts the chunks so far in force.
    pub(crate) fn beginning(&self) -> Beginning {
        Beginning {
            chunks: self.chunks,
            ..Beginning::at(self.head)
        }
    }
}

// === impl Beginning ===

impl Beginning {
    /// For a log without state at this position, and without earlier positions.
    pub(crate) fn at(head: Head) -> Self {
        Self {
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec(),
            chunks: 0,
        }
    }

    pub(crate) fn head(&self) -> Result<Head, &'static str> {
        let digest = Digest::parse(&self.digest).ok_or("a digest of impossible length")?;
        Ok(Head { seq: self.seq, digest })
    }
}

/// The size of one chunk. redb stores a value in a power of two of bytes: with its last record, the chunk's tags and
/// its key, a chunk stays below 256 KiB.
const CHUNK_BYTES: usize = 250 << 10;
/// A record's tag and length in the chunk, and its number.
const RECORD_OVERHEAD: usize = 12;
