//! Index work in the background: writing the index of a full segment, and dropping the rows of erased records.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::disk_error::DiskError;
use crate::index::{IndexFile, IndexKey, RUN_PLACES, SegmentIndex};
use crate::seal::key_name;
use crate::segment::Segment;

/// The thread for it. When dropped, it completes its work and ends.
#[derive(Debug)]
pub(crate) struct Indexer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// Segments whose index is yet to be written. That of the first one may be in progress.
    full: VecDeque<Arc<Segment>>,
    /// Segments whose index could not be written.
    failed: Vec<Arc<Segment>>,
    /// The error of the last one.
    error: Option<DiskError>,
    forgetting: VecDeque<ErasedRows>,
    /// No more work will be added.
    has_ended: bool,
    /// The thread has panicked.
    is_lost: bool,
}

/// The rows of records that can no longer be opened.
#[derive(Debug)]
pub(crate) struct ErasedRows {
    /// Segments that are yet to be searched.
    pub(crate) segments: std::vec::IntoIter<Arc<Segment>>,
    /// Whether some rows could not be dropped.
    pub(crate) failed: bool,
    /// The principal of the records: issuer and subject. Unknown after a crash; then the key of every leaf is checked.
    pub(crate) principal: Option<(String, Option<String>)>,
    /// The key that sealed the records.
    pub(crate) key: u32,
    /// A file that exists until all rows are dropped.
    pub(crate) pending: PathBuf,
}

// === impl Indexer ===

impl Indexer {
    /// Starts the thread, with full segments whose index could not be written so far.
    pub(crate) fn start(failed: Vec<Arc<Segment>>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        queue.change(|work| work.failed = failed);
        Self::spawn(queue, Queue::work_off)
    }

    fn spawn(queue: Arc<Queue>, work_off: fn(&Queue)) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new().name("ledger-index".to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || {
                let worked_off = catch_unwind(AssertUnwindSafe(|| work_off(&queue)));
                queue.change(|work| work.is_lost = worked_off.is_err());
            }
        })?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Writes the segment's index later. If that fails, it is tried again before the next segment is full.
    pub(crate) fn finish(&self, segment: Arc<Segment>) {
        self.queue.change(|work| work.full.push_back(segment));
    }

    /// Waits until another full segment can be added: at most two indexes of full segments are in memory.
    pub(crate) fn make_room(&self) -> Result<(), DiskError> {
        let mut work = self.queue.wait_while(|work| work.full.len() >= MAX_UNFINISHED);
        if work.failed.is_empty() {
            return Ok(());
        }
        // Tries again here, where the result is awaited. Rows that are dropped meanwhile must not come back with the
        // file.
        let failed = std::mem::take(&mut work.failed);
        drop(work);
        failed.into_iter().for_each(|segment| self.finish(segment));
        let mut work = self.queue.wait_while(|work| !work.full.is_empty());
        match work.error.take() {
            Some(error) if !work.failed.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether its thread has panicked.
    pub(crate) fn is_lost(&self) -> bool {
        self.queue.work.lock().is_lost
    }

    /// Drops rows from the indexes of their segments later.
    pub(crate) fn forget(&self, rows: ErasedRows) {
        self.queue.change(|work| work.forgetting.push_back(rows));
    }
}

impl Drop for Indexer {
    fn drop(&mut self) {
        self.queue.change(|work| work.has_ended = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// === impl Queue ===

impl Queue {
    fn change(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.work.lock());
        self.changed.notify_all();
    }

    /// Panics if the indexer's thread has panicked. The ledger's writer must not wait forever, and its end raises the
    /// alarm.
    fn wait_while(&self, condition: impl Fn(&Work) -> bool) -> MutexGuard<'_, Work> {
        let mut work = self.work.lock();
        self.changed
            .wait_while(&mut work, |work| !work.is_lost && condition(work));
        assert!(!work.is_lost, "the ledger's indexer has panicked");
        work
    }

    /// Works until no more work is added and all is done. Searching all segments for a principal's rows can take
    /// minutes, while the writer waits for the index of a full segment. So that index comes first, between any two
    /// segments.
    fn work_off(&self) {
        loop {
            let mut work =
                self.wait_while(|work| work.full.is_empty() && work.forgetting.is_empty() && !work.has_ended);
            if let Some(segment) = work.full.front().cloned() {
                drop(work);
                let finished = finish(&segment);
                self.change(|work| {
                    work.full.pop_front();
                    if let Err(error) = finished {
                        work.failed.push(segment);
                        work.error = Some(error);
                    }
                });
            } else if let Some(mut rows) = work.forgetting.pop_front() {
                drop(work);
                if rows.step() {
                    self.work.lock().forgetting.push_front(rows);
                }
            } else {
                return;
            }
        }
    }
}

// === impl ErasedRows ===

impl ErasedRows {
    /// Searches one more segment. Returns whether there was one. A row that cannot be dropped leads to a record that
    /// cannot be opened, so it shows only that a record existed. The next start tries again.
    fn step(&mut self) -> bool {
        let Some(segment) = self.segments.next() else {
            if !self.failed {
                // If the file remains, the next start searches again without effect.
                let _ = std::fs::remove_file(&self.pending);
            }
            return false;
        };
        self.failed |= forget(&segment, self).is_err() && !segment.is_removed();
        true
    }
}

/// Writes the index of a full segment. Lookups work meanwhile.
pub(crate) fn finish(segment: &Segment) -> Result<(), DiskError> {
    if segment.is_removed() {
        return Ok(());
    }
    let file = match &*segment.index() {
        SegmentIndex::Growing(builder) => IndexFile::write(builder, &segment.index_path)?,
        SegmentIndex::File(_) => return Ok(()),
    };
    segment.with_index(|index| *index = SegmentIndex::File(file));
    remove_with_its_segment(segment);
    Ok(())
}

/// If a segment is removed while its index is being written, the index would keep its rows.
fn remove_with_its_segment(segment: &Segment) {
    if segment.is_removed() {
        // The next start removes it if this fails.
        let _ = std::fs::remove_file(&segment.index_path);
    }
}

fn forget(segment: &Segment, rows: &ErasedRows) -> Result<(), DiskError> {
    let places = match &rows.principal {
        Some((issuer, subject)) => {
            let mut places = segment.lookup(&IndexKey::principal(issuer, subject.as_deref()))?;
            places.reverse();
            places
        }
        None => (0..segment.records()).collect(),
    };
    let mut sealed = Vec::new();
    // A single place, or consecutive places of a run.
    for run in places.chunk_by(|a, b| a + 1 == *b && a / RUN_PLACES == b / RUN_PLACES) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let read = segment.read(*first..last + 1)?;
        let of_key = run
            .iter()
            .zip(read.leaves())
            .filter(|(_, leaf)| key_name(leaf) == Some(rows.key));
        sealed.extend(of_key.map(|(place, _)| *place));
    }
    if sealed.is_empty() {
        return Ok(());
    }
    let file = match &*segment.index() {
        SegmentIndex::File(file) => Some(file.clone()),
        SegmentIndex::Growing(_) => None,
    };
    // Lookups and new segments are possible while a file is written again. Only this thread changes it.
    let file = file.map(|file| file.remove(&sealed)).transpose()?;
    segment.with_index(|index| match (index, file) {
        (index, Some(file)) => *index = SegmentIndex::File(file),
        (SegmentIndex::Growing(builder), None) => builder.remove(&sealed),
        (SegmentIndex::File(_), None) => {}
    });
    remove_with_its_segment(segment);
    Ok(())
}

/// Full segments whose index is in memory only.
pub(crate) const MAX_UNFINISHED: usize = 2;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::index::{IndexBuilder, IndexSecret};
    use crate::leaf::StoredRecord;
    use crate::seal::Sealer;
    use crate::segment::Paths;

    const KEY: u32 = 3;

    /// A full segment with one record, about this subject, that is sealed with the key.
    fn segment(folder: &Path, first: u64, subject: &str) -> Arc<Segment> {
        let paths = Paths(folder.to_owned());
        for folder in [paths.segments(), paths.indexes()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let keys = folder.join("keys");
        if !keys.exists() {
            crate::keys::DataKeys::create(&keys).unwrap();
        }
        let mut keys = crate::keys::DataKeys::open(&keys, 10, |_| false).unwrap();
        let mut leaf = Vec::new();
        let sealer = Sealer::new("log.example").unwrap();
        sealer
            .seal(KEY, keys.key(0).unwrap(), first, &mut leaf, &StoredRecord::default())
            .unwrap();
        let bundle = [&(leaf.len() as u16).to_be_bytes(), leaf.as_slice()].concat();
        std::fs::write(paths.segment(first), bundle).unwrap();
        let mut builder = IndexBuilder::new(&IndexSecret::new(&[1; 32]), first);
        builder.add(0, (1, 1), &[IndexKey::Subject(subject)]);
        let segment = Segment::new(first, &paths, 0, SegmentIndex::Growing(builder));
        segment.grown(1, 0);
        Arc::new(segment)
    }

    fn rows(folder: &Path, segments: Vec<Arc<Segment>>) -> ErasedRows {
        let pending = folder.join("erasing-3");
        std::fs::write(&pending, []).unwrap();
        ErasedRows {
            segments: segments.into_iter(),
            failed: false,
            principal: Some(("https://id".to_owned(), Some("ada".to_owned()))),
            key: KEY,
            pending,
        }
    }

    fn finds(segment: &Segment) -> usize {
        segment.lookup(&IndexKey::Subject("ada")).unwrap().len()
    }

    #[test]
    fn appending_does_not_wait_until_all_rows_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let old: Vec<_> = (0..3)
            .map(|number| segment(folder.path(), number * 256, "ada"))
            .collect();
        let indexer = Arc::new(Indexer::start(Vec::new()).unwrap());
        // While the indexes are locked, no row can be dropped.
        let held: Vec<_> = old.iter().map(|segment| segment.index()).collect();
        let rows = rows(folder.path(), old.clone());
        let pending = rows.pending.clone();
        indexer.forget(rows);
        for number in 3..5 {
            indexer.finish(segment(folder.path(), number * 256, "bob"));
        }
        let mut held = held.into_iter();
        drop(held.next());
        let (done, has_room) = mpsc::channel();
        let appending = std::thread::spawn({
            let indexer = Arc::clone(&indexer);
            move || done.send(indexer.make_room())
        });
        let made = has_room.recv_timeout(Duration::from_secs(20));
        drop(held);
        appending.join().unwrap().unwrap();
        made.expect("there is room while rows are still to be dropped").unwrap();
        drop(indexer);
        assert!(old.iter().all(|segment| finds(segment) == 0));
        assert!(!pending.exists());
    }

    #[test]
    fn an_index_that_cannot_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let full = segment(folder.path(), 0, "ada");
        let obstacle = folder.path().join(format!("index/{:020}.new", 0));
        std::fs::create_dir(&obstacle).unwrap();
        let indexer = Indexer::start(Vec::new()).unwrap();
        indexer.finish(Arc::clone(&full));
        drop(indexer.queue.wait_while(|work| !work.full.is_empty()));
        indexer.make_room().unwrap_err();
        assert_eq!(finds(&full), 1);
        std::fs::remove_dir(&obstacle).unwrap();
        indexer.make_room().unwrap();
        assert!(full.index_path.exists());
        assert_eq!(finds(&full), 1);
    }

    #[test]
    fn waiting_for_room_ends_if_the_thread_has_panicked() {
        let folder = tempfile::tempdir().unwrap();
        let panic = |queue: &Queue| {
            drop(queue.wait_while(|work| work.full.is_empty()));
            panic!("on purpose");
        };
        let indexer = Indexer::spawn(Arc::default(), panic).unwrap();
        let (done, waited) = mpsc::channel();
        let appending = std::thread::spawn(move || {
            (0..MAX_UNFINISHED as u64).for_each(|number| indexer.finish(segment(folder.path(), number * 256, "ada")));
            let made = catch_unwind(AssertUnwindSafe(|| indexer.make_room()));
            done.send((made.is_err(), indexer.is_lost())).unwrap();
        });
        assert_eq!(waited.recv_timeout(Duration::from_secs(5)), Ok((true, true)));
        appending.join().unwrap();
    }

    #[test]
    fn a_removed_segment_leaves_no_index_behind() {
        let folder = tempfile::tempdir().unwrap();
        let removed = segment(folder.path(), 0, "ada");
        removed.remove();
        finish(&removed).unwrap();
        assert!(!removed.index_path.exists());
    }
}
