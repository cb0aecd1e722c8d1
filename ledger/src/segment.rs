//! One segment: a file of leaves, and the offsets of the leaves.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use credence_storage::at;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::disk_error::DiskError;
use crate::group::{LEAF_LENGTH_BYTES, groups_of};
use crate::index::{IndexBuilder, IndexKey, RUN_PLACES, SegmentIndex};

/// A held segment, for readers. It may be the one that is being appended to.
#[derive(Debug)]
pub struct Segment {
    first: u64,
    pub(crate) path: PathBuf,
    pub(crate) index_path: PathBuf,
    /// When its first frame was written, nanoseconds since the Unix epoch.
    pub(crate) began_unix_nano: u64,
    records: AtomicU32,
    bytes: AtomicU64,
    /// Set before its files are removed.
    removed: AtomicBool,
    index: RwLock<SegmentIndex>,
}

/// Consecutive leaves, as in a bundle of C2SP tlog-tiles.
#[derive(Debug, Default)]
pub(crate) struct LeafRun {
    pub(crate) bundle: Vec<u8>,
    /// The position of each leaf, without its length.
    leaves: Vec<Range<usize>>,
}

// === impl LeafRun ===

impl LeafRun {
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &[u8]> {
        let leaves = self.leaves.iter();
        leaves.map(|leaf| self.bundle.get(leaf.clone()).unwrap_or_default())
    }
}

// === impl Segment ===

impl Segment {
    pub(crate) fn new(first: u64, paths: &Paths, began_unix_nano: u64, index: SegmentIndex) -> Self {
        Self {
            first,
            path: paths.segment(first),
            index_path: paths.index(first),
            began_unix_nano,
            records: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            index: RwLock::new(index),
        }
    }

    /// Index of its first record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The present number of records.
    pub fn records(&self) -> u32 {
        self.records.load(Ordering::Acquire)
    }

    /// The index after its last record.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.records())
    }

    /// The places of all records that may have the key, newest first. Blocks on the disk.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Result<Vec<u32>, DiskError> {
        let records = self.records();
        let mut places = self.index().lookup(key)?;
        places.retain(|place| *place < records);
        Ok(places)
    }

    /// Locks its index for reading; the writer waits meanwhile.
    pub fn index(&self) -> RwLockReadGuard<'_, SegmentIndex> {
        self.index.read()
    }

    /// Whether it was pruned. Then its files, and the keys of its leaves, may disappear at any moment.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(crate) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// The size of the file and of its index.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.index().bytes()
    }

    /// Notes that the append is durable, and in the index.
    pub(crate) fn grown(&self, records: u32, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.records.store(records, Ordering::Release);
    }

    /// Changes the index.
    pub(crate) fn with_index<T>(&self, change: impl FnOnce(&mut SegmentIndex) -> T) -> T {
        change(&mut self.index.write())
    }

    /// Adds to the index, if it is in memory.
    pub(crate) fn with_growing(&self, add: impl FnOnce(&mut IndexBuilder)) {
        self.with_index(|index| match index {
            SegmentIndex::Growing(builder) => add(builder),
            SegmentIndex::File(_) => {}
        });
    }

    /// Reads leaves from the disk. They are close together, but separated by the heads of groups. An unreadable leaf is
    /// returned empty, which no written leaf is. If every one gives a disk error, that error is returned, because the
    /// next read may succeed.
    pub(crate) fn read(&self, places: Range<u32>) -> Result<LeafRun, DiskError> {
        let offsets = self.offsets(places)?;
        let (Some(first), Some(last)) = (offsets.first().copied(), offsets.last().copied()) else {
            return Ok(LeafRun::default());
        };
        let file = File::open(&self.path).map_err(at(&self.path))?;
        // Despite a damaged length, or an unreadable part, the other leaves are returned.
        let together = read_leaf(&file, last)
            .ok()
            .and_then(|leaf| (last as usize + leaf.len()).checked_sub(first as usize))
            .filter(|span| *span <= MAX_SPAN)
            .and_then(|span| read_at(&file, first, span).ok());
        let mut run = LeafRun::default();
        let mut errors = Vec::new();
        for offset in offsets {
            let leaf = match &together {
                Some(bytes) => {
                    let rest = offset.checked_sub(first).and_then(|at| bytes.get(at as usize..));
                    rest.and_then(first_leaf).map(Cow::Borrowed)
                }
                None => match read_leaf(&file, offset) {
                    Ok(leaf) => Some(Cow::Owned(leaf)),
                    Err(error) => {
                        errors.extend((error.kind() != io::ErrorKind::UnexpectedEof).then_some(error));
                        None
                    }
                },
            };
            let leaf = leaf.unwrap_or_default();
            let begin = run.bundle.len();
            run.bundle.extend_from_slice(&leaf);
            run.leaves
                .push((begin + LEAF_LENGTH_BYTES).min(run.bundle.len())..run.bundle.len());
        }
        match errors.pop() {
            Some(error) if errors.len() + 1 == run.leaves.len() => Err(at(&self.path)(error).into()),
            Some(_) | None => Ok(run),
        }
    }

    /// The offsets of leaves in the file.
    fn offsets(&self, places: Range<u32>) -> Result<Vec<u32>, DiskError> {
        let mut offsets = Vec::with_capacity(places.len());
        for run in places.start / RUN_PLACES..places.end.div_ceil(RUN_PLACES) {
            // If the index is damaged, the offsets come from the segment itself.
            let of_run = self.index().offsets(run).or_else(|_| self.offsets_of_run(run));
            let first = run * RUN_PLACES;
            let wanted = places.start.max(first)..places.end.min(first + RUN_PLACES);
            let of_run = of_run.map_err(|_| self.mismatch())?;
            let of_run = of_run.get((wanted.start - first) as usize..(wanted.end - first) as usize);
            offsets.extend_from_slice(of_run.ok_or_else(|| self.mismatch())?);
        }
        Ok(offsets)
    }

    /// The offsets of a run's leaves, from the segment itself: every group before them is read.
    fn offsets_of_run(&self, run: u32) -> Result<Vec<u32>, DiskError> {
        let first = self.first + u64::from(run * RUN_PLACES);
        let mut offsets = Vec::new();
        for group in groups_of(&self.path)? {
            let group = group?;
            let wanted = group
                .leaves()
                .filter(|leaf| (first..first + u64::from(RUN_PLACES)).contains(&leaf.index));
            offsets.extend(wanted.map(|leaf| leaf.offset));
        }
        Ok(offsets)
    }

    fn mismatch(&self) -> DiskError {
        DiskError::damaged(&self.path, "it does not match its index").with_cure(
            "Stop the control plane, remove the file of the same name in ledger/index, and start again: the index is then rebuilt",
        )
    }
}

/// The leaf at this offset, after its length.
fn read_leaf(file: &File, offset: u32) -> io::Result<Vec<u8>> {
    let length = read_at(file, offset, LEAF_LENGTH_BYTES)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    read_at(file, offset, LEAF_LENGTH_BYTES + length)
}

fn read_at(file: &File, offset: u32, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, u64::from(offset))?;
    Ok(bytes)
}

/// The first leaf of the bytes, after its length.
fn first_leaf(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.first_chunk::<LEAF_LENGTH_BYTES>()?;
    bytes.get(..LEAF_LENGTH_BYTES + usize::from(u16::from_be_bytes(*length)))
}

/// The paths of the ledger's files.
#[derive(Debug, Clone)]
pub(crate) struct Paths(pub(crate) PathBuf);

// === impl Paths ===

impl Paths {
    pub(crate) fn segments(&self) -> PathBuf {
        self.0.join("segments")
    }

    pub(crate) fn indexes(&self) -> PathBuf {
        self.0.join("index")
    }

    pub(crate) fn hashes(&self) -> PathBuf {
        self.0.join("hashes")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.0.join("keys")
    }

    /// This file exists while rows of records sealed with this key may still be in the index.
    pub(crate) fn erasing(&self, key: u32) -> PathBuf {
        self.0.join(format!("{ERASING}{key}"))
    }

    /// The keys with such a file.
    pub(crate) fn being_erased(&self) -> io::Result<Vec<u32>> {
        let names = names_in(&self.0)?;
        let keys = names.iter().filter_map(|name| name.strip_prefix(ERASING)?.parse().ok());
        Ok(keys.collect())
    }

    /// The first indexes of the existing segments, in order. Other files are ignored.
    pub(crate) fn held_segments(&self) -> io::Result<Vec<u64>> {
        let names = names_in(&self.segments())?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    pub(crate) fn segment(&self, first: u64) -> PathBuf {
        self.segments().join(segment_name(first))
    }

    pub(crate) fn index(&self, first: u64) -> PathBuf {
        self.indexes().join(segment_name(first))
    }
}

/// The names of the files in a folder.
pub(crate) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

pub(crate) fn segment_name(first: u64) -> String {
    format!("{first:020}")
}

/// The first index, from a segment's name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    name.parse().ok().filter(|first| segment_name(*first) == name)
}

const ERASING: &str = "erasing-";
/// The size of 256 of the largest leaves, with heads of groups between them.
const MAX_SPAN: usize = 64 << 20;
