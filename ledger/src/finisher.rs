//! What need not hold up evidence: writing the index of a segment that is full, and dropping rows of what was erased.

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::index::{IndexError, IndexKey, RUN_PLACES};
use crate::seal::key_name;
use crate::segment::{Segment, SegmentError, SegmentIndex};

/// A thread for it. It ends, with everything done, when this is dropped.
#[derive(Debug)]
pub(crate) struct Finisher {
    jobs: Option<Sender<Job>>,
    waiting: Arc<Waiting>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Waiting {
    segments: Mutex<Unfinished>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct Unfinished {
    count: usize,
    /// Segments whose index could not be written.
    failed: Vec<(Arc<Segment>, IndexError)>,
}

#[derive(Debug)]
enum Job {
    Finish(Arc<Segment>),
    Forget(Vec<Arc<Segment>>, ErasedRows),
}

/// The rows of records that can not be opened any more.
#[derive(Debug, Clone)]
pub(crate) struct ErasedRows {
    /// Whom they are about: issuer and subject. After a crash nobody knows, and every leaf's key is looked at.
    pub(crate) principal: Option<(String, Option<String>)>,
    /// What those records were sealed with.
    pub(crate) key: u32,
    /// A file that is there until all of them are dropped.
    pub(crate) pending: PathBuf,
}

// === impl Finisher ===

impl Finisher {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let waiting = Arc::new(Waiting::default());
        let done = Arc::clone(&waiting);
        let work = move || {
            for job in queue {
                match job {
                    Job::Finish(segment) => {
                        let finished = finish(&segment);
                        let mut unfinished = done.lock();
                        unfinished.count -= 1;
                        unfinished.failed.extend(finished.err().map(|error| (segment, error)));
                        done.fewer.notify_all();
                    }
                    Job::Forget(segments, rows) => forget_all(&segments, &rows),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("ledger-index".to_owned())
            .spawn(work)?;
        Ok(Self {
            jobs: Some(jobs),
            waiting,
            thread: Some(thread),
        })
    }

    /// Writes the segment's index in a while. Waits, if need be, so that no more than two indexes of full segments are in
    /// memory; one that could not be written is tried again first.
    pub(crate) fn finish(&self, segment: Arc<Segment>) {
        self.waiting.lock().count += 1;
        self.submit(Job::Finish(segment));
    }

    /// Waits until there is room for another full segment.
    pub(crate) fn make_room(&self) -> Result<(), IndexError> {
        let mut unfinished = self.waiting.lock();
        while unfinished.count >= MAX_UNFINISHED {
            unfinished = self
                .waiting
                .fewer
                .wait(unfinished)
                .unwrap_or_else(PoisonError::into_inner);
        }
        while let Some((segment, error)) = unfinished.failed.pop() {
            if let Err(again) = finish(&segment) {
                unfinished.failed.push((segment, error));
                return Err(again);
            }
        }
        Ok(())
    }

    /// Drops rows from these segments' indexes in a while.
    pub(crate) fn forget(&self, segments: Vec<Arc<Segment>>, rows: ErasedRows) {
        self.submit(Job::Forget(segments, rows));
    }

    fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only when the sender is gone.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Unfinished> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the index of a segment that is full. Questions are answered meanwhile.
pub(crate) fn finish(segment: &Segment) -> Result<(), IndexError> {
    let file = match &*segment.index() {
        SegmentIndex::Growing(builder) => builder.finish(segment.index_path())?,
        SegmentIndex::File(_) => return Ok(()),
    };
    segment.with_index(|index| *index = SegmentIndex::File(file));
    Ok(())
}

/// What can not be dropped finds what can not be opened, no more than that something was there; the next start tries again.
fn forget_all(segments: &[Arc<Segment>], rows: &ErasedRows) {
    let failed = segments.iter().filter(|segment| forget(segment, rows).is_err()).count();
    if failed == 0 {
        // One that stays costs the next start a look.
        let _ = std::fs::remove_file(&rows.pending);
    }
}

fn forget(segment: &Segment, rows: &ErasedRows) -> Result<(), SegmentError> {
    let places = match &rows.principal {
        Some((issuer, subject)) => {
            let mut places = segment.lookup(&IndexKey::principal(issuer, subject.as_deref()))?;
            places.reverse();
            places
        }
        None => (0..segment.records()).collect(),
    };
    let mut sealed = Vec::new();
    // A place alone, or those of a run that follow one another.
    for run in places.chunk_by(|a, b| a + 1 == *b && a / RUN_PLACES == b / RUN_PLACES) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let read = segment.read(*first..last + 1)?;
        for (place, leaf) in run.iter().zip(read.leaves) {
            if read.bundle.get(leaf).and_then(key_name) == Some(rows.key) {
                sealed.push(*place);
            }
        }
    }
    if sealed.is_empty() {
        return Ok(());
    }
    segment.with_index(|index| {
        match index {
            SegmentIndex::Growing(builder) => builder.remove(&sealed),
            SegmentIndex::File(file) => *file = file.remove(&sealed)?,
        }
        Ok(())
    })
}

/// Full segments whose index is in memory only.
const MAX_UNFINISHED: usize = 2;
