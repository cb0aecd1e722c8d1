//! Reads durable records, concurrently with the writer.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::disk_error::DiskError;
use crate::group::LEAF_LENGTH_BYTES;
use crate::hashes::{HashFiles, HashesAt};
use crate::keys::KeyFile;
use crate::record::{LedgerRecord, RecordBody};
use crate::seal::{OpenError, Opener};
use crate::segment::{LeafRun, Segment};
use crate::tree::{Hash, Hashes, leaf_hash, root_of};

/// The ledger for readers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LedgerReader(pub(crate) Result<Arc<Shared>, Arc<str>>);

/// The state that writer and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) origin: String,
    pub(crate) keys: Arc<KeyFile>,
    pub(crate) hashes: Arc<HashFiles>,
    /// Oldest first.
    pub(crate) segments: RwLock<Vec<Arc<Segment>>>,
    first: AtomicU64,
    size: watch::Sender<u64>,
    /// The indexes of records found unreadable, at most [`MAX_UNREADABLE`].
    unreadable: Mutex<HashSet<u64>>,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The record was pruned.
    #[error("record {index} was pruned: the oldest held record has index {first}")]
    Pruned {
        /// The requested index.
        index: u64,
        /// The oldest held index.
        first: u64,
    },
    /// The record does not exist yet.
    #[error("there is no record {index}: the ledger has {size}")]
    NotThere {
        /// The requested index.
        index: u64,
        /// The number of records.
        size: u64,
    },
    /// The bytes on disk have changed.
    #[error("record {index} does not match the tree: the ledger is damaged; check the disk and restore a backup")]
    Corrupt {
        /// The record's index.
        index: u64,
    },
    /// The ledger could not be opened.
    #[error("the ledger is damaged: {0}")]
    Damaged(Arc<str>),
    /// A file cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The leaf cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

// === impl LedgerReader ===

impl LedgerReader {
    /// The reader of a ledger that could not be opened. It has no records, and every query returns this text.
    pub fn damaged(reason: &str) -> Self {
        Self(Err(reason.into()))
    }

    /// The first origin of the ledger, with which its leaves are sealed. Empty if the ledger could not be opened.
    pub fn origin(&self) -> &str {
        self.0.as_ref().map_or("", |shared| &shared.origin)
    }

    /// The number of durable records in the tree, with pruned ones.
    pub fn size(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| *shared.size.borrow())
    }

    /// The lowest held index; the size, if nothing is held.
    pub fn first(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.first.load(Ordering::Acquire))
    }

    /// Watches the size. If the ledger could not be opened, it never changes.
    pub fn growth(&self) -> watch::Receiver<u64> {
        let of_nothing = |_: &Arc<str>| watch::channel(0).1;
        self.0
            .as_ref()
            .map_or_else(of_nothing, |shared| shared.size.subscribe())
    }

    /// The held segments, newest first.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.0
            .as_ref()
            .map_or_else(|_| Vec::new(), |shared| shared.segments().into_iter().rev().collect())
    }

    /// The record of this index. Blocks on the disk, as everything below does.
    pub fn record(&self, index: u64) -> Result<LedgerRecord, ReadError> {
        let mut records = self.records(index..index + 1)?;
        let size = self.size();
        match records.pop() {
            Some(record) if record.body == RecordBody::Unreadable => Err(OpenError::Damaged { index }.into()),
            Some(record) => Ok(record),
            None => Err(ReadError::NotThere { index, size }),
        }
    }

    /// The number of records found unreadable so far. Each of the first [`MAX_UNREADABLE`] counts once.
    pub fn unreadable(&self) -> usize {
        self.0.as_ref().map_or(0, |shared| shared.unreadable.lock().len())
    }

    /// The records with these indexes, in order. [`RecordBody::Unreadable`] stands for each unreadable one. All are in
    /// memory: request at most a page.
    pub fn records(&self, range: Range<u64>) -> Result<Vec<LedgerRecord>, ReadError> {
        let shared = self.shared()?;
        let mut opener = shared.opener();
        let mut records = Vec::new();
        self.runs(range, |segment, first, run| {
            for (index, leaf) in (first..).zip(run.leaves()) {
                records.push(shared.or_unreadable(opener.open(index, leaf), segment, index)?);
            }
            Ok(())
        })?;
        Ok(records)
    }

    /// As [`LedgerReader::records`], without missing ones: pruned, or not there yet.
    pub fn held_records(&self, range: Range<u64>) -> Result<Vec<LedgerRecord>, ReadError> {
        loop {
            let held = self.first();
            let (from, until) = (range.start.max(held), range.end.min(self.size()));
            match self.records(from.min(until)..until) {
                // This one was removed meanwhile, but later ones may exist.
                Err(ReadError::Pruned { .. }) if self.first() > held => {}
                Err(ReadError::Pruned { .. }) => return Ok(Vec::new()),
                records => return records,
            }
        }
    }

    /// The records at these places of a segment, in the given order. For adjacent leaves, [`LedgerReader::records`] is
    /// faster.
    pub fn records_at(&self, segment: &Segment, places: &[u32]) -> Result<Vec<LedgerRecord>, ReadError> {
        let shared = self.shared()?;
        let mut opener = shared.opener();
        let mut records = Vec::with_capacity(places.len());
        for place in places {
            let index = segment.first() + u64::from(*place);
            let read = segment.read(*place..place + 1).map_err(ReadError::from);
            let record = read.and_then(|run| {
                let opened = opener.open(index, run.leaves().next().unwrap_or_default());
                shared.or_unreadable(opened, segment, index)
            });
            records.push(record.map_err(|error| self.or_pruned(segment, index, error))?);
        }
        Ok(records)
    }

    /// The leaf with this index, as the tree commits to it.
    pub fn leaf(&self, index: u64) -> Result<Vec<u8>, ReadError> {
        let bundle = self.bundle(index, 1)?;
        Ok(bundle.get(LEAF_LENGTH_BYTES..).unwrap_or_default().to_vec())
    }

    /// This many leaves from this index on, as an entry bundle of C2SP tlog-tiles. They are compared with the tree, so
    /// that damaged bytes are never served.
    pub fn bundle(&self, first: u64, count: u64) -> Result<Vec<u8>, ReadError> {
        let mut bundle = Vec::new();
        self.runs(first..first.saturating_add(count), |_, first, run| {
            let hashes = self.read(0, first, run.leaves().count())?;
            for ((index, leaf), hash) in (first..).zip(run.leaves()).zip(hashes) {
                if leaf_hash(leaf) != hash {
                    return Err(ReadError::Corrupt { index });
                }
            }
            bundle.extend_from_slice(&run.bundle);
            Ok(())
        })?;
        Ok(bundle)
    }

    /// The root of the tree of the first `size` records.
    pub fn root(&self, size: u64) -> Result<Hash, ReadError> {
        root_of(size, self)
    }

    /// Reads leaves in runs of at most 256.
    fn runs(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(&Segment, u64, LeafRun) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let shared = self.shared()?;
        let (first, size) = (self.first(), self.size());
        if range.is_empty() {
            return Ok(());
        }
        if range.start < first {
            let index = range.start;
            return Err(ReadError::Pruned { index, first });
        }
        if range.end > size {
            let index = range.end - 1;
            return Err(ReadError::NotThere { index, size });
        }
        let segments = shared.segments();
        let mut next = range.start;
        while next < range.end {
            let behind = segments.partition_point(|segment| segment.first() <= next);
            let held = behind.checked_sub(1).and_then(|at| segments.get(at));
            // It may have been pruned meanwhile.
            let segment = held.ok_or(ReadError::Pruned { index: next, first })?;
            let end = range.end.min(segment.end()).min(next + MAX_RUN);
            if end <= next {
                return Err(ReadError::NotThere { index: next, size });
            }
            let place = |index: u64| (index - segment.first()) as u32;
            let read = segment.read(place(next)..place(end)).map_err(ReadError::from);
            read.and_then(|run| visit(segment, next, run))
                .map_err(|error| self.or_pruned(segment, next, error))?;
            next = end;
        }
        Ok(())
    }

    /// An error is not damage if the segment was removed meanwhile.
    fn or_pruned(&self, segment: &Segment, index: u64, error: ReadError) -> ReadError {
        match segment.is_removed() {
            true => ReadError::Pruned {
                index,
                first: self.first(),
            },
            false => error,
        }
    }

    fn shared(&self) -> Result<&Arc<Shared>, ReadError> {
        self.0.as_ref().map_err(|reason| ReadError::Damaged(Arc::clone(reason)))
    }
}

impl Hashes for LedgerReader {
    type Error = ReadError;

    fn read(&self, level: u8, first: u64, count: usize) -> Result<Vec<Hash>, ReadError> {
        let hashes = HashesAt {
            files: &self.shared()?.hashes,
            size: self.size(),
        };
        Ok(hashes.read(level, first, count)?)
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(origin: String, keys: Arc<KeyFile>, hashes: Arc<HashFiles>) -> Self {
        Self {
            origin,
            keys,
            hashes,
            segments: RwLock::default(),
            first: AtomicU64::new(0),
            size: watch::Sender::new(0),
            unreadable: Mutex::default(),
        }
    }

    /// Notes a leaf that cannot be read, unless its segment was pruned meanwhile, with its key.
    fn or_unreadable(
        &self,
        opened: Result<LedgerRecord, OpenError>,
        segment: &Segment,
        index: u64,
    ) -> Result<LedgerRecord, ReadError> {
        match opened {
            Ok(opened) => {
                // The disk may have returned an error only temporarily.
                self.unreadable.lock().remove(&index);
                Ok(opened)
            }
            Err(OpenError::Damaged { .. } | OpenError::Unknown { .. }) if !segment.is_removed() => {
                let mut unreadable = self.unreadable.lock();
                if unreadable.len() < MAX_UNREADABLE {
                    unreadable.insert(index);
                }
                Ok(LedgerRecord::lost(index, RecordBody::Unreadable))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn opener(&self) -> Opener {
        Opener::new(&self.origin, Arc::clone(&self.keys))
    }

    /// Oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().clone()
    }

    pub(crate) fn begin(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write();
        if segments.is_empty() {
            self.first.store(segment.first(), Ordering::Release);
        }
        segments.push(segment);
    }

    /// Hides everything before this index from readers. Returns the segments to remove.
    pub(crate) fn prune(&self, first: u64) -> Vec<Arc<Segment>> {
        let mut segments = self.segments.write();
        self.first.store(first, Ordering::Release);
        let kept = segments.partition_point(|segment| segment.first() < first);
        let removed: Vec<_> = segments.drain(..kept).collect();
        removed.iter().for_each(|segment| segment.remove());
        removed
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    pub(crate) fn grown(&self, size: u64) {
        self.size.send_replace(size);
    }
}

/// The largest number of unreadable records that are remembered one by one.
pub const MAX_UNREADABLE: usize = 4096;
/// Leaves that are read at once.
const MAX_RUN: u64 = 256;
