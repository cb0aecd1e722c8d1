//! What need not hold up evidence: writing the index of a segment that is full, and dropping rows of what was erased.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::index::{IndexError, IndexKey};
use crate::seal::key_name;
use crate::segment::{Segment, SegmentIndex};

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
    pub(crate) issuer: String,
    pub(crate) subject: Option<String>,
    /// What those records were sealed with.
    pub(crate) key: u32,
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
                    Job::Forget(segments, rows) => segments.iter().for_each(|segment| forget(segment, &rows)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("ledger-index".to_owned()).spawn(work)?;
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
            unfinished = self.waiting.fewer.wait(unfinished).unwrap_or_else(PoisonError::into_inner);
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

/// What can not be dropped finds what can not be opened: no more than that something was there.
fn forget(segment: &Segment, rows: &ErasedRows) {
    let key = IndexKey::principal(&rows.issuer, rows.subject.as_deref());
    let Ok(mut places) = segment.lookup(&key) else { return };
    places.reverse();
    places.retain(|place| {
        let run = segment.read(*place..place + 1).unwrap_or_default();
        let leaf = run.leaves.first().and_then(|leaf| run.bundle.get(leaf.clone()));
        leaf.and_then(key_name) == Some(rows.key)
    });
    if places.is_empty() {
        return;
    }
    segment.with_index(|index| match index {
        SegmentIndex::Growing(builder) => builder.remove(&places),
        SegmentIndex::File(file) => {
            if let Ok(without) = file.remove(&places) {
                *file = without;
            }
        }
    });
}

/// Full segments whose index is in memory only.
const MAX_UNFINISHED: usize = 2;
