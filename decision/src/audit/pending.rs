//! Events of requests that are not answered yet: an event includes the answer's status.
//!
//! Each one has reserved room in the ring ([`Ring::reserve`](super::Ring::reserve)), so that waiting loses nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use prost::encoding::{WireType, encode_key, encode_varint};

use super::{Owner, Ring};
use crate::clock::{Monotonic, UnixNanos};
use crate::usage_sketch::UserKey;

/// Waiting events, by the stream of their request.
#[derive(Debug)]
pub struct Pending<K> {
    waiting: BTreeMap<K, Waiting>,
    /// Where the next round of [`Pending::asked_after`] begins.
    asked: Option<K>,
}

#[derive(Debug)]
struct Waiting {
    event: Vec<u8>,
    share: Option<UserKey>,
    since: Monotonic,
}

/// The age from which the filter asks Envoy for the status of an unfinished request.
const ASKED_AFTER: Duration = Duration::from_secs(1);

/// Bytes that a status adds to an event: a two-byte key and a number below 2^21.
const STATUS_BYTES: usize = 5;

/// Field `response_status` of `Event`.
const RESPONSE_STATUS: u32 = 23;

impl<K: Ord + Copy> Pending<K> {
    /// The number of waiting events.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the event of this request waits.
    pub fn is_waiting(&self, stream: K) -> bool {
        self.waiting.contains_key(&stream)
    }

    /// Keeps the event of a request until its answer, and reserves room for it in the ring. Without room, the event is
    /// shed.
    pub fn hold(&mut self, stream: K, event: &[u8], owner: Owner, ring: &mut Ring, since: Monotonic, wall: UnixNanos) {
        // One event for each request: if a stream number is reused before the end of its stream was seen, the older
        // event is completed first.
        self.complete(stream, 0, ring, wall);
        if ring.reserve(event.len().saturating_add(STATUS_BYTES), owner) {
            let event = event.to_vec();
            let share = owner.share;
            self.waiting.insert(stream, Waiting { event, share, since });
        } else {
            ring.shed_event(wall);
        }
    }

    /// The request was answered with this status, or has ended without an answer: 0. No effect if no event of it waits.
    pub fn complete(&mut self, stream: K, status: u32, ring: &mut Ring, wall: UnixNanos) {
        if let Some(Waiting { mut event, share, .. }) = self.waiting.remove(&stream) {
            let reserved = event.len().saturating_add(STATUS_BYTES);
            if status != 0 {
                encode_key(RESPONSE_STATUS, WireType::Varint, &mut event);
                encode_varint(status.into(), &mut event);
            }
            ring.push_reserved(&event, reserved, share, wall);
        }
    }

    /// The source ends: completes all events without waiting for answers.
    pub fn complete_all(&mut self, ring: &mut Ring, wall: UnixNanos) {
        while let Some((stream, _)) = self.waiting.first_key_value() {
            let stream = *stream;
            self.complete(stream, 0, ring, wall);
        }
    }

    /// Requests that are older than `ASKED_AFTER` and may have been answered: at most `most`, and the next ones the
    /// next time.
    pub fn asked_after(&mut self, now: Monotonic, most: usize) -> Vec<K> {
        let from = self.asked.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((from, Bound::Unbounded)).take(most);
        let seen: Vec<(K, bool)> = next
            .map(|(stream, waiting)| (*stream, now.since(waiting.since) >= ASKED_AFTER))
            .collect();
        // Continues from the beginning after the end.
        self.asked = seen.last().filter(|_| seen.len() == most).map(|last| last.0);
        seen.into_iter().filter(|seen| seen.1).map(|seen| seen.0).collect()
    }
}

impl<K: Ord + Copy> Default for Pending<K> {
    /// No event waits.
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            asked: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use credence_wire::v1;
    use prost::Message as _;

    use super::*;
    use crate::audit::Trust;
    use crate::audit::ring::MIN_BYTES;
    use crate::usage_sketch::Amount;

    use crate::config::Overflow;

    const WALL: UnixNanos = UnixNanos(1);

    fn ring(max_entries: usize) -> Ring {
        Ring::new(
            Amount {
                entries: max_entries,
                bytes: MIN_BYTES,
            },
            Overflow::Shed,
        )
        .unwrap()
    }

    fn at(millis: u64) -> Monotonic {
        Monotonic(0).plus(Duration::from_millis(millis))
    }

    fn hold(pending: &mut Pending<u32>, stream: u32, ring: &mut Ring) {
        let event = v1::Event {
            request_id: stream.to_string(),
            ..Default::default()
        };
        let owner = Owner {
            trust: Trust::Verified,
            share: None,
        };
        pending.hold(stream, &event.encode_to_vec(), owner, ring, at(0), WALL);
    }

    fn recorded(ring: &Ring) -> Vec<(String, u32)> {
        let found = ring.measure(Amount::default(), usize::MAX, usize::MAX);
        let mut bytes = Vec::new();
        ring.copy(Amount::default(), found.bytes, &mut bytes);
        let batch = v1::Batch::decode(bytes.as_slice()).unwrap();
        let events = batch.entries.into_iter().filter_map(|entry| match entry.entry? {
            v1::entry::Entry::Event(event) => Some((event.request_id, event.response_status)),
            _ => None,
        });
        events.collect()
    }

    #[test]
    fn an_event_is_recorded_once_with_the_answer_to_its_request() {
        let (mut ring, mut pending) = (ring(10), Pending::default());
        hold(&mut pending, 1, &mut ring);
        hold(&mut pending, 2, &mut ring);
        assert!(ring.is_empty());
        for status in [503, 200] {
            pending.complete(2, status, &mut ring, WALL);
        }
        pending.complete(1, 0, &mut ring, WALL);
        assert_eq!(recorded(&ring), [("2".to_owned(), 503), ("1".to_owned(), 0)]);
        assert!(pending.is_empty());
    }

    #[test]
    fn a_waiting_event_has_reserved_room_and_without_room_it_is_shed_at_once() {
        let (mut ring, mut pending) = (ring(3), Pending::default());
        for stream in 1..=5 {
            hold(&mut pending, stream, &mut ring);
        }
        assert_eq!(
            (pending.len(), ring.shed.events),
            (2, 3),
            "one entry is left for the gap"
        );
        pending.complete_all(&mut ring, WALL);
        assert_eq!((recorded(&ring).len(), ring.shed.events), (2, 3));
    }

    #[test]
    fn all_long_waiting_requests_are_asked_after_in_turn() {
        let (mut ring, mut pending) = (ring(100), Pending::default());
        for stream in 1..=5 {
            hold(&mut pending, stream, &mut ring);
        }
        assert!(pending.asked_after(at(999), 10).is_empty());
        assert_eq!(pending.asked_after(at(1_000), 2), [1, 2]);
        assert_eq!(pending.asked_after(at(1_000), 2), [3, 4]);
        assert_eq!(pending.asked_after(at(1_000), 2), [5]);
        assert_eq!(pending.asked_after(at(1_000), 2), [1, 2]);
    }

    #[test]
    fn a_reused_stream_number_loses_no_event() {
        let (mut ring, mut pending) = (ring(10), Pending::default());
        hold(&mut pending, 1, &mut ring);
        hold(&mut pending, 1, &mut ring);
        pending.complete(1, 200, &mut ring, WALL);
        assert_eq!(recorded(&ring), [("1".to_owned(), 0), ("1".to_owned(), 200)]);
    }
}
