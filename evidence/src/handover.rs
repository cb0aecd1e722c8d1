//! Hands records over in memory, from the ledger's writer to the thread that verifies them again.
//!
//! The writer never waits for that thread. Reports are passed on as they arrived, without a copy: opening leaves again
//! would cost more than comparing them. Records that do not fit are not handed over. The thread must read them from the
//! ledger.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use credence_ledger::{NewItem, SourceName};
use parking_lot::{Condvar, Mutex};

/// A queue from the writer to one follower.
#[derive(Debug)]
pub(crate) struct Handover {
    queue: Mutex<Queue>,
    woken: Condvar,
    /// The largest number of waiting bytes.
    limit: u64,
}

/// Records that were appended together.
#[derive(Debug)]
pub(crate) struct Appended {
    /// Index of the first record.
    pub(crate) first: u64,
    /// Index after the last record.
    pub(crate) end: u64,
    pub(crate) items: Vec<NewItem>,
}

#[derive(Debug, Default)]
struct Queue {
    appended: VecDeque<Appended>,
    bytes: u64,
    /// The trust anchors that sources sent when they returned.
    returned: HashMap<SourceName, Vec<u8>>,
    has_grown: bool,
    is_stopping: bool,
}

// === impl Handover ===

impl Handover {
    /// A queue with room for this many bytes.
    pub(crate) fn within(limit: u64) -> Self {
        Self {
            queue: Mutex::default(),
            woken: Condvar::new(),
            limit,
        }
    }

    /// Adds durable records, and wakes the follower. It wakes even if there is no room for them.
    pub(crate) fn offer(&self, appended: Appended) {
        let bytes = appended.bytes();
        let mut queue = self.queue.lock();
        if queue.bytes + bytes <= self.limit && appended.is_whole() {
            queue.bytes += bytes;
            queue.appended.push_back(appended);
        }
        queue.has_grown = true;
        self.woken.notify_one();
    }

    /// A known source has returned, with these trust anchors.
    pub(crate) fn has_returned(&self, source: SourceName, anchors_digest: Vec<u8>) {
        self.queue.lock().returned.insert(source, anchors_digest);
    }

    /// The sources that have returned since the last call.
    pub(crate) fn take_returned(&self) -> HashMap<SourceName, Vec<u8>> {
        std::mem::take(&mut self.queue.lock().returned)
    }

    /// Consecutive records from index `from` on, about `records` of them; none if the ledger must be read.
    pub(crate) fn take(&self, from: u64, records: u64) -> Vec<Appended> {
        let mut queue = self.queue.lock();
        let mut taken: Vec<Appended> = Vec::new();
        let mut next = from;
        while let Some(front) = queue.appended.front() {
            let is_next = front.first == next && next - from < records;
            if !is_next && front.first >= next {
                break;
            }
            let Some(front) = queue.appended.pop_front() else { break };
            queue.bytes -= front.bytes();
            if is_next {
                next = front.end;
                taken.push(front);
            }
        }
        taken
    }

    /// The lowest index in the queue.
    pub(crate) fn first(&self) -> Option<u64> {
        self.queue.lock().appended.front().map(|front| front.first)
    }

    /// Waits until the ledger has grown. Returns false if it is time to stop.
    pub(crate) fn wait(&self) -> bool {
        let mut queue = self.queue.lock();
        self.woken
            .wait_while(&mut queue, |queue| !queue.has_grown && !queue.is_stopping);
        queue.has_grown = false;
        !queue.is_stopping
    }

    /// Waits for this time. Returns false if it is time to stop.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let mut queue = self.queue.lock();
        self.woken.wait_while_for(&mut queue, |queue| !queue.is_stopping, pause);
        !queue.is_stopping
    }

    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopping = true;
        self.woken.notify_all();
    }
}

impl Default for Handover {
    fn default() -> Self {
        Self::within(QUEUE_BYTES)
    }
}

// === impl Appended ===

impl Appended {
    /// Whether each item has its index: not if a write failed in between and was repaired.
    fn is_whole(&self) -> bool {
        self.items.iter().map(NewItem::records).sum::<u64>() == self.end - self.first
    }

    fn bytes(&self) -> u64 {
        self.items.iter().map(NewItem::bytes).sum()
    }
}

/// The largest number of bytes that wait in memory: about a busy second.
const QUEUE_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use credence_ledger::StoredNote;

    use super::*;

    fn notes(first: u64, end: u64) -> Appended {
        let items = (first..end).map(|_| NewItem::Note(StoredNote::default())).collect();
        Appended { first, end, items }
    }

    fn taken(handover: &Handover, from: u64, records: u64) -> Vec<(u64, u64)> {
        let taken = handover.take(from, records);
        taken.iter().map(|appended| (appended.first, appended.end)).collect()
    }

    #[test]
    fn consecutive_records_are_taken_together() {
        let handover = Handover::default();
        for (first, end) in [(0, 2), (2, 3), (3, 6), (8, 9)] {
            handover.offer(notes(first, end));
        }
        assert_eq!(taken(&handover, 0, 3), [(0, 2), (2, 3)]);
        assert_eq!(taken(&handover, 3, 100), [(3, 6)]);
        // Records 6 and 7 must be read from the ledger.
        assert_eq!(taken(&handover, 6, 100), []);
        assert_eq!(handover.first(), Some(8));
        assert_eq!(taken(&handover, 8, 100), [(8, 9)]);
    }

    #[test]
    fn records_that_were_read_meanwhile_are_left_out() {
        let handover = Handover::default();
        for (first, end) in [(0, 2), (2, 5), (5, 6)] {
            handover.offer(notes(first, end));
        }
        assert_eq!(taken(&handover, 3, 100), []);
        assert_eq!(taken(&handover, 5, 100), [(5, 6)]);
    }

    #[test]
    fn records_without_room_leave_a_hole_and_later_ones_find_room_again() {
        let handover = Handover::within(notes(0, 2).bytes());
        for (first, end) in [(0, 1), (1, 2), (2, 3)] {
            handover.offer(notes(first, end));
        }
        assert_eq!(taken(&handover, 0, 100), [(0, 1), (1, 2)]);
        handover.offer(notes(3, 4));
        // Record 2 must be read from the ledger.
        assert_eq!(taken(&handover, 2, 100), []);
        assert_eq!(taken(&handover, 3, 100), [(3, 4)]);
    }

    #[test]
    fn a_pause_lasts_until_it_is_over_or_it_is_time_to_stop() {
        let handover = Handover::default();
        assert!(handover.pause(Duration::ZERO));
        std::thread::scope(|scope| {
            let paused = scope.spawn(|| handover.pause(Duration::from_secs(3_600)));
            handover.stop();
            assert!(!paused.join().unwrap());
        });
    }

    #[test]
    fn it_wakes_up_for_records_without_room() {
        let handover = Handover::default();
        let mut torn = notes(0, 4);
        torn.items.pop();
        handover.offer(torn);
        assert!(handover.wait());
        assert_eq!(taken(&handover, 0, 100), []);
        handover.stop();
        assert!(!handover.wait());
    }
}
