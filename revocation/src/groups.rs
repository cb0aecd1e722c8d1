//! Where the log's file is at, for those who read along behind the writer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::storage::GroupReader;

/// Told by the writer, waited for by readers.
#[derive(Debug)]
pub(crate) struct Groups {
    extent: Mutex<Extent>,
    changed: Condvar,
}

/// What there is to read.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) file: Arc<GroupReader>,
    /// Changes when a compacted file takes the place of the present one: offsets then mean something else.
    pub(crate) generation: u64,
    /// Where the first group lies.
    pub(crate) from: u64,
    /// Behind the last durable group.
    pub(crate) end: u64,
    /// The last record's number.
    pub(crate) head: u64,
    /// No more will come.
    pub(crate) ended: bool,
}

// === impl Groups ===

impl Groups {
    pub(crate) fn new(file: GroupReader, from: u64, end: u64, head: u64) -> Self {
        Self {
            extent: Mutex::new(Extent {
                file: Arc::new(file),
                generation: 0,
                from,
                end,
                head,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.lock().clone()
    }

    /// More groups have become durable.
    pub(crate) fn reach(&self, end: u64, head: u64) {
        let mut extent = self.lock();
        extent.end = end;
        extent.head = head;
        drop(extent);
        self.changed.notify_all();
    }

    /// The log goes on in another file.
    pub(crate) fn switch(&self, file: GroupReader, from: u64, end: u64) {
        let mut extent = self.lock();
        extent.file = Arc::new(file);
        extent.generation += 1;
        extent.from = from;
        extent.end = end;
        drop(extent);
        self.changed.notify_all();
    }

    pub(crate) fn finish(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits, no longer than `patience`, until there is something else than this generation up to this offset.
    pub(crate) fn wait(&self, generation: u64, offset: u64, patience: Duration) -> Extent {
        let same = |extent: &mut Extent| extent.generation == generation && extent.end == offset && !extent.ended;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, same);
        let (extent, _) = waited.unwrap_or_else(PoisonError::into_inner);
        extent.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Extent> {
        // Whoever holds it sets a few numbers, and can not panic between two of them.
        self.extent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
