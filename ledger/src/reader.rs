//! Reads what is durable, beside the writer.

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

/// The ledger as readers see it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LedgerReader(pub(crate) Result<Arc<Shared>, Arc<str>>);

/// What the writer shares with the readers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) origin: String,
    pub(crate) keys: Arc<KeyFile>,
    pub(crate) hashes: Arc<HashFiles>,
    /// Oldest first.
    pub(crate) segments: RwLock<Vec<Arc<Segment>>>,
    first: AtomicU64,
    size: watch::Sender<u64>,
    /// The indexes of records that were found not to be readable, at most [`MAX_UNREADABLE`] of them.
    unreadable: Mutex<HashSet<u64>>,
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It was pruned.
    #[error("record {index} is not held any more: the oldest one that is has index {first}")]
    Pruned {
        /// What was asked for.
        index: u64,
        /// The oldest that is held.
        first: u64,
    },
    /// It is not there yet.
    #[error("there is no record {index}: the ledger has {size}")]
    NotThere {
        /// What was asked for.
        index: u64,
        /// Records that there are.
        size: u64,
    },
    /// The bytes on disk are not those that were stored.
    #[error(
        "record {index} is not what the tree says it is: the ledger is damaged; check the disk and restore a backup"
    )]
    Corrupt {
        /// The record's index.
        index: u64,
    },
    /// The ledger could not be opened.
    #[error("the ledger is damaged: {0}")]
    Damaged(Arc<str>),
    /// A file of it cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

// === impl LedgerReader ===

impl LedgerReader {
    /// Of a ledger that could not be opened: it has nothing, and every question is answered with this text.
    pub fn damaged(reason: &str) -> Self {
        Self(Err(reason.into()))
    }

    /// The origin under which the ledger began, with which its leaves are sealed. Empty if the ledger could not be opened.
    pub fn origin(&self) -> &str {
        self.0.as_ref().map_or("", |shared| &shared.origin)
    }

    /// Records that are durable and in the tree, those that were pruned included.
    pub fn size(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| *shared.size.borrow())
    }

    /// The lowest index that is still held; the size, if none is.
    pub fn first(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.first.load(Ordering::Acquire))
    }

    /// The size, and each new one when the ledger has grown. If the ledger could not be opened, it never changes.
    pub fn growth(&self) -> watch::Receiver<u64> {
        let of_nothing = |_: &Arc<str>| watch::channel(0).1;
        self.0
            .as_ref()
            .map_or_else(of_nothing, |shared| shared.size.subscribe())
    }

    /// What is held, newest first.
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

    /// How many records were found that cannot be read, as far as they were asked for; of the first
    /// [`MAX_UNREADABLE`] each counts once.
    pub fn unreadable(&self) -> usize {
        self.0.as_ref().map_or(0, |shared| shared.unreadable.lock().len())
    }

    /// The records of these indexes, in order; [`RecordBody::Unreadable`] stands for each that cannot be read. What is
    /// asked for is held in memory: ask for no more than a page.
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

    /// As [`LedgerReader::records`], without those that are not there: not yet, or not any more.
    pub fn held_records(&self, range: Range<u64>) -> Result<Vec<LedgerRecord>, ReadError> {
        loop {
            let held = self.first();
            let (from, until) = (range.start.max(held), range.end.min(self.size()));
            match self.records(from.min(until)..until) {
                // It was removed meanwhile, but what comes after it may be there.
                Err(ReadError::Pruned { .. }) if self.first() > held => {}
                Err(ReadError::Pruned { .. }) => return Ok(Vec::new()),
                records => return records,
            }
        }
    }

    /// The records of these places of a segment, in the order in which they are asked for. Leaves that lie side by side
    /// are best read with [`LedgerReader::records`].
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

    /// The leaf of this index, as the tree commits to it.
    pub fn leaf(&self, index: u64) -> Result<Vec<u8>, ReadError> {
        let bundle = self.bundle(index, 1)?;
        Ok(bundle.get(LEAF_LENGTH_BYTES..).unwrap_or_default().to_vec())
    }

    /// So many leaves from this index on, as an entry bundle of C2SP tlog-tiles. They are compared with the tree, so that
    /// what a disk has changed is never given out.
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
            // It may have been pruned since.
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

    /// What could not be read because its segment was removed meanwhile is no damage.
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

    /// A leaf that cannot be read is noted; but for one whose segment was pruned meanwhile, with its key.
    fn or_unreadable(
        &self,
        opened: Result<LedgerRecord, OpenError>,
        segment: &Segment,
        index: u64,
    ) -> Result<LedgerRecord, ReadError> {
        match opened {
            Ok(opened) => {
                // The disk may have answered another time.
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

    /// Readers find nothing before this index any more. Returns the segments that are to be removed.
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

/// Records that cannot be read, of which each is known.
pub const MAX_UNREADABLE: usize = 4096;
/// Leaves that are read at once.
const MAX_RUN: u64 = 256;
