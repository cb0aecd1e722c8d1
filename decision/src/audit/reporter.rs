//! The stream to the ledger: the client side of `AuditService.Report`, for one source.

use std::collections::VecDeque;
use std::time::Duration;

use credence_wire::v1::{self, report_request, report_response};
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::ring::{MAX_CHAIN_ENTRY_BYTES, Ring, framed};
use crate::backoff::Backoff;
use crate::clock::{Monotonic, UnixNanos};
use crate::stream::{StreamAction, StreamHandler, Violation, decode};
use crate::usage_sketch::Amount;

/// Sends a ring's entries in batches, and removes them when the control plane has them on disk.
///
/// It is passive: the caller provides ticks, messages and the time, and carries out the returned actions in order
/// ([`StreamHandler`]).
///
/// An entry leaves the ring only after its acknowledgement. After a reconnect, all unacknowledged entries are sent
/// again under the same numbers, so that the ledger has no duplicates.
#[derive(Debug)]
pub struct Reporter {
    /// The entries that wait for the control plane.
    pub(super) ring: Ring,
    /// The first message of a stream. Its `resume` identifies this source to the control plane, after the first
    /// welcome.
    hello: v1::ReportHello,
    phase: Phase,
    /// Since when the control plane owes an answer. Unused while it owes none.
    waiting_since: Monotonic,
    /// The number of the last acknowledged entry, before the ring's oldest.
    acknowledged: u64,
    /// The highest number ever sent under the present ticket.
    sent: u64,
    drain_until: Option<Monotonic>,
    backoff: Backoff,
    pub(super) counters: Counters,
    arrivals: Arrivals,
    /// Counts the ledgers that it has reported to.
    pub(super) ledger: u32,
}

/// When entries were first seen in the ring, to compute the age of the oldest.
#[derive(Debug, Default)]
struct Arrivals {
    /// The number of an entry, and a time at which it and the entries before it were already in the ring. Oldest first.
    marks: VecDeque<(u64, Monotonic)>,
}

/// An action on the stream; messages are encoded `ReportRequest`s.
pub type Action = StreamAction;

/// Counters since the source began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attempts to open a stream.
    pub opened: u64,
    /// Entries that the control plane has on disk.
    pub acknowledged: u64,
}

#[derive(Debug)]
enum Phase {
    Closed { retry_at: Monotonic },
    Connecting,
    AwaitingWelcome,
    Reporting(Sending),
    AwaitingEnd,
    Finished,
}

#[derive(Debug)]
struct Sending {
    /// Unacknowledged batches, oldest first: the number of the last entry of each.
    in_flight: VecDeque<u64>,
    /// The part of the ring that is in flight.
    skip: Amount,
    max_batch_entries: usize,
    max_batch_bytes: usize,
}

/// The minimum size of a batch to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    OneEntry,
    FullBatch,
}

impl Sending {
    /// Whether another batch may be in flight, and the ring has enough entries for it.
    fn may_send(&self, ring: &Ring, least: Least) -> bool {
        let bytes = ring.bytes().saturating_sub(self.skip.bytes);
        let entries = ring.len().saturating_sub(self.skip.entries);
        let is_enough = match least {
            Least::OneEntry => entries > 0,
            Least::FullBatch => {
                bytes >= self.max_batch_bytes.min(WORTH_SENDING_BYTES) || entries >= self.max_batch_entries
            }
        };
        is_enough && self.in_flight.len() < MAX_IN_FLIGHT
    }
}

/// The most batches in flight. Envoy's filter API has no back-pressure for streams, so this is the only limit.
pub const MAX_IN_FLIGHT: usize = 4;

/// The most entries of a batch, unless the control plane sets a lower limit.
pub const MAX_BATCH_ENTRIES: usize = 1024;

/// The most bytes of a batch, unless the control plane sets a lower limit.
pub const MAX_BATCH_BYTES: usize = 256 * 1024;

/// Bytes that are sent at once, before the next tick. Larger batches save little, and copying them would evict Envoy's
/// working set from the processor's caches.
const WORTH_SENDING_BYTES: usize = 32 * 1024;

/// The smallest batch limit that is accepted from a control plane: the largest entry and the batch's own fields.
pub const MIN_BATCH_BYTES: usize = MAX_CHAIN_ENTRY_BYTES + BATCH_OVERHEAD;

/// The largest accepted message; the protocol has none of more than a few hundred bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// The longest time for which the control plane may owe an answer.
pub const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The maximum size of the field `first_sequence` of a batch.
const BATCH_OVERHEAD: usize = 11;

/// Field `batch` of `ReportRequest`, length-delimited.
const REQUEST_BATCH_TAG: u8 = 2 << 3 | 2;

/// Field `first_sequence` of `Batch`, varint.
const BATCH_FIRST_SEQUENCE_TAG: u8 = 1 << 3;

/// gRPC status UNAUTHENTICATED.
const UNAUTHENTICATED: u32 = 16;

// === impl Reporter ===

impl Reporter {
    /// A reporter that opens its first stream on its first tick. `hello` identifies the reporter, without a ticket.
    pub fn new(hello: v1::ReportHello, ring: Ring) -> Self {
        Self {
            ring,
            hello,
            phase: Phase::Closed {
                retry_at: Monotonic::default(),
            },
            waiting_since: Monotonic::default(),
            acknowledged: 0,
            sent: 0,
            drain_until: None,
            backoff: Backoff::default(),
            counters: Counters::default(),
            arrivals: Arrivals::default(),
            ledger: 0,
        }
    }

    /// How long the oldest entry in the ring has waited for its acknowledgement, with the precision of a tick or two.
    pub fn lag(&self, now: Monotonic) -> Duration {
        self.arrivals.age(now)
    }

    /// The source ends: the remaining entries are still sent, until `deadline`. No more may be pushed.
    pub fn drain(&mut self, deadline: Monotonic) {
        self.drain_until.get_or_insert(deadline);
    }

    /// Whether a drained source has ended. No action follows.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// Time has passed. Streams are opened only here. `random` must be uniform over `u64`.
    pub fn on_tick(&mut self, now: Monotonic, wall: UnixNanos, random: u64) -> Vec<Action> {
        if let Some(deadline) = self.drain_until {
            if let Some(actions) = self.end(now, deadline) {
                return actions;
            }
        } else {
            self.ring.on_tick(wall);
        }
        if !self.ring.is_empty() {
            let last = self.acknowledged.saturating_add(self.ring.len() as u64);
            self.arrivals.note(last, now);
        }
        let silence = now.since(self.waiting_since);
        match &self.phase {
            Phase::Finished => Vec::new(),
            Phase::Closed { retry_at } if now < *retry_at => Vec::new(),
            Phase::Closed { .. } => {
                self.counters.opened = self.counters.opened.saturating_add(1);
                self.await_answer(Phase::Connecting, now);
                vec![Action::Open]
            }
            Phase::Reporting(sending) if sending.in_flight.is_empty() || silence <= MAX_SILENCE => {
                self.send_batches(now, Least::OneEntry)
            }
            Phase::Connecting | Phase::AwaitingWelcome | Phase::AwaitingEnd if silence <= MAX_SILENCE => Vec::new(),
            Phase::Connecting | Phase::AwaitingWelcome | Phase::AwaitingEnd | Phase::Reporting(_) => {
                let wait = self.backoff.after_failure(random);
                let notice = format!(
                    "audit stream reset: no answer for {} ms; check the control plane's disk",
                    silence.as_millis()
                );
                self.reset(now, wait, notice)
            }
        }
    }

    /// Sends full batches within the limits, without waiting for the next tick.
    pub fn flush_full(&mut self, now: Monotonic) -> Vec<Action> {
        self.send_batches(now, Least::FullBatch)
    }

    /// Sends unsent entries within the limits.
    fn send_batches(&mut self, now: Monotonic, least: Least) -> Vec<Action> {
        let Phase::Reporting(sending) = &mut self.phase else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        while sending.may_send(&self.ring, least) {
            let next = self
                .ring
                .measure(sending.skip, sending.max_batch_entries, sending.max_batch_bytes);
            if next.entries == 0 {
                break;
            }
            let first = self
                .acknowledged
                .saturating_add(sending.skip.entries as u64)
                .saturating_add(1);
            let last = first.saturating_add(next.entries as u64).saturating_sub(1);
            if sending.in_flight.is_empty() {
                self.waiting_since = now;
            }
            actions.push(Action::Send(batch(first, &self.ring, sending.skip, next.bytes)));
            sending.in_flight.push_back(last);
            sending.skip = sending.skip.plus(next);
            self.sent = self.sent.max(last);
        }
        actions
    }

    fn receive(&mut self, now: Monotonic, bytes: &[u8]) -> Result<(), Violation> {
        let message = decode(
            bytes,
            MAX_MESSAGE_BYTES,
            "ReportResponse",
            |response: v1::ReportResponse| response.message,
        )?;
        match message {
            report_response::Message::Welcome(welcome) => self.on_welcome(welcome),
            report_response::Message::Acknowledgement(acknowledgement) => {
                self.on_acknowledgement(now, acknowledgement.through)
            }
        }
    }

    fn on_welcome(&mut self, welcome: v1::ReportWelcome) -> Result<(), Violation> {
        if !matches!(self.phase, Phase::AwaitingWelcome) {
            return Err(Violation::new("received an unexpected welcome"));
        }
        let ticket = welcome.ticket.filter(|ticket| !ticket.source.is_empty());
        let ticket = ticket.ok_or_else(|| Violation::new("the welcome has no ticket, or one without a source"))?;
        let max_batch_entries = usize::try_from(welcome.max_batch_entries).unwrap_or(usize::MAX);
        let max_batch_bytes = usize::try_from(welcome.max_batch_bytes).unwrap_or(usize::MAX);
        if max_batch_entries == 0 || max_batch_bytes < MIN_BATCH_BYTES {
            return Err(Violation::new(format!(
                "the control plane accepts batches of at most {} entries and {} bytes; expected at least 1 and \
                 {MIN_BATCH_BYTES}",
                welcome.max_batch_entries, welcome.max_batch_bytes
            )));
        }
        if let Err(violation) = self.settle(welcome.acknowledged) {
            // This source cannot be continued: the entry after its last durable one is gone, or never existed.
            self.start_new_source();
            return Err(violation);
        }
        self.hello.resume = Some(ticket);
        self.ledger = self.ledger.wrapping_add(welcome.arrived.into());
        let sending = Sending {
            in_flight: VecDeque::with_capacity(MAX_IN_FLIGHT),
            skip: Amount::default(),
            max_batch_entries: max_batch_entries.min(MAX_BATCH_ENTRIES),
            max_batch_bytes: max_batch_bytes.min(MAX_BATCH_BYTES).saturating_sub(BATCH_OVERHEAD),
        };
        self.phase = Phase::Reporting(sending);
        Ok(())
    }

    fn on_acknowledgement(&mut self, now: Monotonic, through: u64) -> Result<(), Violation> {
        let Phase::Reporting(sending) = &self.phase else {
            return Err(Violation::new("received an unexpected acknowledgement"));
        };
        // Only entries that were sent on this stream can be acknowledged on it.
        let highest = self.acknowledged.saturating_add(sending.skip.entries as u64);
        if through > highest {
            return Err(wrong_acknowledgement(through, self.acknowledged, highest));
        }
        let settled = self.settle(through)?;
        if let Phase::Reporting(sending) = &mut self.phase {
            sending.skip = sending.skip.minus(settled);
            while sending.in_flight.front().is_some_and(|last| *last <= through) {
                sending.in_flight.pop_front();
            }
        }
        self.waiting_since = now;
        if settled.entries > 0 {
            self.backoff.succeeded();
        }
        Ok(())
    }

    /// Removes all entries up to number `through`, which are on disk.
    fn settle(&mut self, through: u64) -> Result<Amount, Violation> {
        let highest = self.sent.max(self.acknowledged);
        let settled = through.checked_sub(self.acknowledged).filter(|_| through <= highest);
        let settled = settled.ok_or_else(|| wrong_acknowledgement(through, self.acknowledged, highest))?;
        let entries = usize::try_from(settled).unwrap_or(usize::MAX);
        let bytes = self.ring.drop_oldest(entries);
        self.acknowledged = through;
        self.arrivals.settle(through);
        self.counters.acknowledged = self.counters.acknowledged.saturating_add(settled);
        Ok(Amount { entries, bytes })
    }

    /// What a drained source does instead of its usual work, if anything.
    fn end(&mut self, now: Monotonic, deadline: Monotonic) -> Option<Vec<Action>> {
        if self.is_finished() {
            return Some(Vec::new());
        }
        let is_empty = self.ring.close() && self.ring.is_empty();
        if is_empty && self.hello.resume.is_none() {
            // The control plane does not know this source, so no goodbye is needed.
            return Some(self.finish());
        }
        if now >= deadline {
            let mut actions = self.finish();
            if !is_empty {
                actions.push(Action::Report(format!(
                    "the audit source ended before the control plane had everything: {} entries are lost, and the \
                     ledger records that its tail is unknown",
                    self.ring.len()
                )));
            }
            return Some(actions);
        }
        if is_empty && matches!(self.phase, Phase::Reporting(_)) {
            self.await_answer(Phase::AwaitingEnd, now);
            return Some(vec![send(report_request::Message::Bye(v1::Bye {}))]);
        }
        None
    }

    fn finish(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Finished) {
            Phase::Closed { .. } | Phase::Finished => Vec::new(),
            _ => vec![Action::Cancel],
        }
    }

    /// From now on, the control plane owes an answer.
    fn await_answer(&mut self, phase: Phase, now: Monotonic) {
        self.phase = phase;
        self.waiting_since = now;
    }

    fn reset(&mut self, now: Monotonic, wait: Duration, notice: String) -> Vec<Action> {
        self.phase = Phase::Closed {
            retry_at: now.plus(wait),
        };
        vec![Action::Cancel, Action::Report(notice)]
    }

    /// The next ticket numbers the entries in the ring from 1.
    fn start_new_source(&mut self) {
        self.hello.resume = None;
        self.arrivals.renumber(self.acknowledged);
        self.acknowledged = 0;
        self.sent = 0;
    }
}

impl StreamHandler for Reporter {
    fn on_open(&mut self, now: Monotonic) -> Vec<Action> {
        if !matches!(self.phase, Phase::Connecting) {
            // The stream was reset in the meantime.
            return vec![Action::Cancel];
        }
        self.await_answer(Phase::AwaitingWelcome, now);
        let hello = v1::ReportHello {
            acknowledged: self.acknowledged,
            ..self.hello.clone()
        };
        vec![send(report_request::Message::Hello(hello))]
    }

    fn on_message(&mut self, now: Monotonic, bytes: &[u8], random: u64) -> Vec<Action> {
        if matches!(self.phase, Phase::Closed { .. } | Phase::Finished) {
            return Vec::new();
        }
        let is_new = matches!(self.phase, Phase::AwaitingWelcome);
        match self.receive(now, bytes) {
            Ok(()) if is_new => self.send_batches(now, Least::OneEntry),
            // A batch that is not full waits for the next tick: each message costs as much as many entries.
            Ok(()) => self.flush_full(now),
            Err(violation) => {
                let wait = self.backoff.after_failure(random);
                self.reset(now, wait, format!("audit stream reset: {}", violation.what))
            }
        }
    }

    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<Action> {
        match &self.phase {
            Phase::Closed { .. } | Phase::Finished => return Vec::new(),
            Phase::AwaitingEnd => {
                self.phase = Phase::Finished;
                return Vec::new();
            }
            Phase::Connecting | Phase::AwaitingWelcome | Phase::Reporting(_) => {}
        }
        let retry_in = self.backoff.after_failure(random);
        self.phase = Phase::Closed {
            retry_at: now.plus(retry_in),
        };
        let notice = if status == UNAUTHENTICATED && self.hello.resume.is_some() {
            self.start_new_source();
            format!(
                "the control plane no longer knows this audit source (UNAUTHENTICATED): its ledger was replaced or \
                 restored. Continuing as a new source; {} waiting entries are sent again",
                self.ring.len()
            )
        } else {
            format!(
                "audit stream closed with gRPC status {status}; trying again in {} ms, entries wait in the ring",
                retry_in.as_millis()
            )
        };
        vec![Action::Report(notice)]
    }
}

// === impl Arrivals ===

impl Arrivals {
    /// Entries up to this number are in the ring.
    fn note(&mut self, last: u64, now: Monotonic) {
        if self.marks.back().map_or(0, |mark| mark.0) >= last {
            return;
        }
        if self.marks.len() >= MAX_MARKS {
            // Keep only every other one: at such an age, the precision of a tick is not needed.
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.marks.push_back((last, now));
    }

    /// Entries up to this number were removed.
    fn settle(&mut self, through: u64) {
        while self.marks.front().is_some_and(|mark| mark.0 <= through) {
            self.marks.pop_front();
        }
    }

    /// Numbers restart after this entry.
    fn renumber(&mut self, before: u64) {
        for mark in &mut self.marks {
            mark.0 = mark.0.saturating_sub(before);
        }
    }

    fn age(&self, now: Monotonic) -> Duration {
        self.marks.front().map_or(Duration::ZERO, |mark| now.since(mark.1))
    }
}

/// The most remembered arrival times.
const MAX_MARKS: usize = 128;

/// A `ReportRequest` with one `Batch`: the next encoded entries of the ring.
fn batch(first: u64, ring: &Ring, skip: Amount, bytes: usize) -> Vec<u8> {
    let length = encoded_len_varint(first).saturating_add(1).saturating_add(bytes);
    let mut request = Vec::with_capacity(framed(length));
    request.push(REQUEST_BATCH_TAG);
    encode_varint(length as u64, &mut request);
    request.push(BATCH_FIRST_SEQUENCE_TAG);
    encode_varint(first, &mut request);
    ring.copy(skip, bytes, &mut request);
    request
}

/// The control plane lost acknowledged entries, or acknowledges entries that it never received.
fn wrong_acknowledgement(found: u64, lowest: u64, highest: u64) -> Violation {
    Violation::new(format!(
        "the control plane says entries up to {found} are on disk; expected a number from {lowest} to {highest}"
    ))
}

fn send(message: report_request::Message) -> Action {
    let request = v1::ReportRequest { message: Some(message) };
    Action::Send(request.encode_to_vec())
}

#[cfg(test)]
#[path = "reporter_tests.rs"]
mod tests;
