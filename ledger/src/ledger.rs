//! The ledger's files: segments of frames, each named by the index of its first record.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message as _;

use crate::group::{StoredGroup, StoredItem};
use crate::index::{IndexError, IndexKey};
use crate::query::{Evidence, Searchable};
use crate::record::LedgerRecord;
use credence_storage::frames::{
    AppendError, FrameError, FrameFile, FrameKind, FrameReader, HEAD_LEN, HEADER_LEN, TornTail,
};

/// The open ledger. Its owner is the only one who appends.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    current: FrameFile,
    /// Records in the current segment.
    current_records: u64,
    next_index: u64,
    /// Of all segments but the current one.
    sealed_bytes: u64,
    bounds: LedgerBounds,
    index: Arc<RwLock<Index>>,
}

/// How much disk the ledger may use, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct LedgerBounds {
    /// Of the whole ledger.
    pub total: u64,
    /// After which a new segment begins.
    pub segment: u64,
}

/// Reads the durable part of the ledger while it is being appended to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LedgerReader(Arc<RwLock<Index>>);

/// The whole ledger, without an index.
#[derive(Debug)]
pub struct Unindexed {
    until: u64,
}

impl Searchable for Unindexed {
    fn first(&self) -> u64 {
        0
    }

    fn until(&self) -> u64 {
        self.until
    }

    fn lookup(&self, _: &IndexKey<'_>) -> Result<Option<Vec<u32>>, IndexError> {
        Ok(None)
    }

    fn times(&self) -> Option<(u64, u64)> {
        None
    }

    fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError> {
        Ok(Vec::new())
    }
}

/// Why records can not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A segment can not be read.
    #[error(transparent)]
    Frames(#[from] FrameError),
    /// A segment's index can not be read.
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// Why the ledger can not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The system did not let us.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A segment can not be read.
    #[error(transparent)]
    Frames(#[from] FrameError),
    /// A segment is missing.
    #[error(
        "the ledger has no records {expected} to {found}: the segment before {path} is missing or incomplete. Restore \
         it from a backup", path = path.display()
    )]
    Missing {
        /// The index that comes next.
        expected: u64,
        /// The index that the file begins with.
        found: u64,
        /// The file.
        path: PathBuf,
    },
    /// A file that is none of ours.
    #[error("{path} does not belong into the ledger's folder; move it away", path = path.display())]
    Stranger {
        /// The file.
        path: PathBuf,
    },
}

/// Why a group was not appended. None of it will be read back as if it had been acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum LedgerAppendError {
    /// The file can not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// There is no room left.
    #[error(
        "the ledger has used up its {limit} bytes. Start the control plane with a larger --ledger-bytes; until then the \
         filters keep the evidence while they have room"
    )]
    Full {
        /// How many bytes it may have.
        limit: u64,
    },
    /// The next file can not be made.
    #[error("a new segment could not be created: {0}")]
    NewSegment(io::Error),
}

/// Where records are on disk.
#[derive(Debug, Default)]
struct Index {
    segments: Vec<Segment>,
    /// Runs of whole frames, oldest first: sparse, so that memory stays small beside the disk.
    blocks: Vec<Block>,
    next_index: u64,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    /// Behind its last durable frame.
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    segment: usize,
    offset: u64,
    first_index: u64,
}

// === impl Ledger ===

impl Ledger {
    /// Opens the ledger in `folder` and hands every item to `visit`, oldest first.
    pub fn open(
        folder: &Path,
        bounds: LedgerBounds,
        mut visit: impl FnMut(&StoredItem),
    ) -> Result<(Self, Option<TornTail>), LedgerError> {
        let mut paths = segments(folder)?;
        let mut index = Index::default();
        let last = match paths.pop() {
            Some(last) => last,
            None => {
                let path = folder.join(segment_name(0));
                FrameFile::create(&path, FrameKind::Ledger).map_err(|error| LedgerError::Io {
                    path: path.clone(),
                    error,
                })?;
                (0, path)
            }
        };
        let mut sealed_bytes = 0;
        for (first_index, path) in paths {
            index.begin_segment(first_index, &path)?;
            let end = FrameReader::open(&path, FrameKind::Ledger)?.scan(|frame| index.take(frame, &mut visit))?;
            index.extend(end);
            sealed_bytes += end;
        }
        let (first_index, path) = last;
        index.begin_segment(first_index, &path)?;
        let (current, torn) = FrameFile::open(
            &path,
            FrameKind::Ledger,
            || Ok(()),
            |frame| index.take(frame, &mut visit),
        )?;
        index.extend(current.end());
        let ledger = Self {
            folder: folder.to_owned(),
            current,
            current_records: index.next_index - first_index,
            next_index: index.next_index,
            sealed_bytes,
            bounds,
            index: Arc::new(RwLock::new(index)),
        };
        Ok((ledger, torn))
    }

    /// Appends items as one group. They are durable and readable on return.
    pub fn append(&mut self, items: Vec<StoredItem>) -> Result<(), LedgerAppendError> {
        let received = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let group = StoredGroup {
            first_index: self.next_index,
            received_unix_nano: u64::try_from(received.as_nanos()).unwrap_or(u64::MAX),
            items,
        };
        let payload = group.encode_to_vec();
        let needed = HEAD_LEN + payload.len() as u64;
        if self.bytes() + needed > self.bounds.total {
            return Err(LedgerAppendError::Full {
                limit: self.bounds.total,
            });
        }
        if self.current_records > 0 && self.current.end() + needed > self.bounds.segment && !self.current.is_broken() {
            self.begin_segment().map_err(LedgerAppendError::NewSegment)?;
        }
        let offset = self.current.append(&payload)?;
        let first_index = self.next_index;
        self.next_index += group.records();
        self.current_records += group.records();
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.add_frame(offset, first_index);
        index.extend(self.current.end());
        index.next_index = self.next_index;
        Ok(())
    }

    /// Reads it beside the one who appends.
    pub fn reader(&self) -> LedgerReader {
        LedgerReader(Arc::clone(&self.index))
    }

    /// Size of all segments.
    pub fn bytes(&self) -> u64 {
        self.sealed_bytes + self.current.end()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let path = self.folder.join(segment_name(self.next_index));
        let next = FrameFile::create(&path, FrameKind::Ledger)?;
        self.sealed_bytes += self.current.end();
        self.current = next;
        self.current_records = 0;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.segments.push(Segment { path, end: HEADER_LEN });
        Ok(())
    }
}

// === impl LedgerReader ===

impl Evidence for LedgerReader {
    type Segment = Unindexed;
    type Error = ReadError;

    fn segments(&self) -> Vec<Unindexed> {
        vec![Unindexed { until: self.size() }]
    }

    fn records_at(&self, _: &Unindexed, places: &[u32]) -> Result<Vec<LedgerRecord>, ReadError> {
        let mut records = Vec::new();
        for place in places {
            records.extend(self.records(u64::from(*place), u64::from(*place) + 1)?);
        }
        Ok(records)
    }

    fn records(&self, from: u64, until: u64) -> Result<Vec<LedgerRecord>, ReadError> {
        let mut records = Vec::new();
        let mut before = until;
        while before > from {
            let mut block = self.block_before(before)?;
            let Some(first) = block.first() else { break };
            before = first.index;
            block.retain(|record| record.index >= from);
            records.splice(0..0, block);
        }
        Ok(records)
    }
}

impl LedgerReader {
    /// How many records are durable.
    pub fn size(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).next_index
    }

    /// The run of records that ends just before index `before` (or before the ledger's end, if that comes first), in
    /// order; empty at the ledger's beginning. Reads from the disk.
    pub fn block_before(&self, before: u64) -> Result<Vec<LedgerRecord>, FrameError> {
        let (path, from, until) = {
            let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let behind = index.blocks.partition_point(|block| block.first_index < before);
            let Some(block) = behind.checked_sub(1).and_then(|at| index.blocks.get(at)) else {
                return Ok(Vec::new());
            };
            let Some(segment) = index.segments.get(block.segment) else {
                return Ok(Vec::new());
            };
            let next = index.blocks.get(behind).filter(|next| next.segment == block.segment);
            (
                segment.path.clone(),
                block.offset,
                next.map_or(segment.end, |next| next.offset),
            )
        };
        let mut records = Vec::new();
        for frame in FrameReader::open(&path, FrameKind::Ledger)?.frames(from, until)? {
            let group = StoredGroup::decode(frame.payload.as_slice()).map_err(|_| FrameError::Corrupt {
                path: path.clone(),
                offset: frame.offset,
                found: UNREADABLE,
            })?;
            records.extend(group.into_records());
        }
        records.retain(|record| record.index < before);
        Ok(records)
    }
}

// === impl Index ===

impl Index {
    fn begin_segment(&mut self, first_index: u64, path: &Path) -> Result<(), LedgerError> {
        if first_index != self.next_index {
            let (expected, found) = (self.next_index, first_index);
            return Err(LedgerError::Missing {
                expected,
                found,
                path: path.to_owned(),
            });
        }
        self.segments.push(Segment {
            path: path.to_owned(),
            end: HEADER_LEN,
        });
        Ok(())
    }

    /// Takes in a frame that was read from the last segment.
    fn take(
        &mut self,
        frame: credence_storage::frames::Frame,
        visit: &mut impl FnMut(&StoredItem),
    ) -> Result<(), &'static str> {
        let group = StoredGroup::decode(frame.payload.as_slice()).map_err(|_| UNREADABLE)?;
        if group.first_index != self.next_index {
            return Err("its records do not follow the ones before them");
        }
        self.add_frame(frame.offset, group.first_index);
        self.next_index += group.records();
        group.items.iter().for_each(visit);
        Ok(())
    }

    fn add_frame(&mut self, offset: u64, first_index: u64) {
        let segment = self.segments.len().saturating_sub(1);
        let begins_block = self
            .blocks
            .last()
            .is_none_or(|block| block.segment != segment || offset - block.offset >= BLOCK_BYTES);
        if begins_block {
            self.blocks.push(Block {
                segment,
                offset,
                first_index,
            });
        }
    }

    fn extend(&mut self, end: u64) {
        if let Some(segment) = self.segments.last_mut() {
            segment.end = end;
        }
    }
}

/// The segments in `folder`, oldest first, and the index that each begins with.
fn segments(folder: &Path) -> Result<Vec<(u64, PathBuf)>, LedgerError> {
    let io_error = |error| LedgerError::Io {
        path: folder.to_owned(),
        error,
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".new") || name == "lost+found" {
            // The first is a segment whose creation was interrupted; its name will be used again.
            continue;
        }
        let index = name.parse().ok().filter(|index| segment_name(*index) == name);
        found.push((index.ok_or_else(|| LedgerError::Stranger { path: path.clone() })?, path));
    }
    found.sort();
    Ok(found)
}

fn segment_name(first_index: u64) -> String {
    format!("{first_index:020}")
}

const UNREADABLE: &str = "the frame does not hold records that this version can read";
/// Frames are read back in runs of about this size.
const BLOCK_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use credence_wire::v1;
    use credence_wire::v1::entry::Entry as Kind;

    use super::*;
    use crate::group::StoredBody;

    const ROOMY: LedgerBounds = LedgerBounds {
        total: 1 << 30,
        segment: 1 << 30,
    };

    fn batch(first_sequence: u64, entries: usize) -> StoredItem {
        let aggregate = v1::Aggregate {
            rule: "r".repeat(1000),
            count: 1,
            ..Default::default()
        };
        let entry = v1::Entry {
            entry: Some(Kind::Aggregate(aggregate)),
        };
        let batch = v1::Batch {
            first_sequence,
            entries: vec![entry; entries],
        };
        StoredItem {
            source: "s".to_owned(),
            body: Some(StoredBody::Batch(batch)),
        }
    }

    fn open(folder: &Path, bounds: LedgerBounds) -> Result<(Ledger, usize), LedgerError> {
        let mut items = 0;
        let (ledger, _) = Ledger::open(folder, bounds, |_| items += 1)?;
        Ok((ledger, items))
    }

    /// Every index from the newest to the oldest, block by block.
    fn indexes(reader: &LedgerReader) -> Vec<u64> {
        let mut indexes = Vec::new();
        let mut before = u64::MAX;
        loop {
            let block = reader.block_before(before).unwrap();
            let Some(first) = block.first() else { return indexes };
            before = first.index;
            indexes.extend(block.iter().rev().map(|record| record.index));
        }
    }

    #[test]
    fn records_are_read_back_block_by_block_before_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, _) = open(folder.path(), ROOMY).unwrap();
        for round in 0..10 {
            ledger.append(vec![batch(round * 100 + 1, 100)]).unwrap();
        }
        let expected: Vec<u64> = (0..1000).rev().collect();
        assert_eq!(indexes(&ledger.reader()), expected);
        assert!(ledger.reader().0.read().unwrap().blocks.len() > 1);
        drop(ledger);
        let (ledger, items) = open(folder.path(), ROOMY).unwrap();
        assert_eq!(items, 10);
        assert_eq!(indexes(&ledger.reader()), expected);
    }

    #[test]
    fn a_full_segment_is_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LedgerBounds {
            segment: 5_000,
            ..ROOMY
        };
        let (mut ledger, _) = open(folder.path(), bounds).unwrap();
        for round in 0..10 {
            ledger.append(vec![batch(round * 2 + 1, 2)]).unwrap();
        }
        assert_eq!(indexes(&ledger.reader()), (0..20).rev().collect::<Vec<u64>>());
        let bytes = ledger.bytes();
        drop(ledger);
        assert_eq!(segments(folder.path()).unwrap().len(), 5);
        let (ledger, _) = open(folder.path(), bounds).unwrap();
        assert_eq!(ledger.bytes(), bytes);
        assert_eq!(indexes(&ledger.reader()), (0..20).rev().collect::<Vec<u64>>());
    }

    #[test]
    fn a_ledger_at_its_limit_refuses_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LedgerBounds {
            total: 3_000,
            segment: 1 << 20,
        };
        let (mut ledger, _) = open(folder.path(), bounds).unwrap();
        ledger.append(vec![batch(1, 2)]).unwrap();
        let error = ledger.append(vec![batch(3, 2)]).unwrap_err();
        assert!(matches!(error, LedgerAppendError::Full { limit: 3_000 }));
        assert_eq!(indexes(&ledger.reader()), [1, 0]);
    }

    #[test]
    fn a_missing_segment_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = LedgerBounds { segment: 100, ..ROOMY };
        let (mut ledger, _) = open(folder.path(), bounds).unwrap();
        for sequence in 1..=3 {
            ledger.append(vec![batch(sequence, 1)]).unwrap();
        }
        drop(ledger);
        std::fs::remove_file(folder.path().join(segment_name(1))).unwrap();
        assert!(matches!(
            open(folder.path(), bounds),
            Err(LedgerError::Missing {
                expected: 1,
                found: 2,
                ..
            })
        ));
    }

    #[test]
    fn an_interrupted_new_segment_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), ROOMY).unwrap());
        std::fs::write(folder.path().join(format!("{}.new", segment_name(5))), "CRED").unwrap();
        open(folder.path(), ROOMY).unwrap();
    }
}
