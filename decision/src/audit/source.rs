//! One source of the ledger: the evidence of one configuration, until the control plane has it.

use std::time::Duration;

use credence_wire::v1;

use super::counts::Kind;
use super::events::{Record, Recorder, kind, presented_tokens};
use super::pending::Pending;
use super::reporter::{Counters, Reporter};
use super::ring::{Ring, RingError, Shed};
use crate::chains::{CachedChain, Reported};
use crate::clock::{Monotonic, UnixNanos};
use crate::config::{self, Overflow};
use crate::engine::Verdict;
use crate::request::Request;
use crate::usage_sketch::Amount;

/// Records decisions and reports them to the control plane. `K` names a request.
#[derive(Debug)]
pub struct Source<K> {
    recorder: Recorder,
    /// The evidence, and its stream to the control plane.
    pub reporter: Reporter,
    /// Events that wait for the answer to their request; `None` if none needs to.
    pending: Option<Pending<K>>,
}

/// Gauges and counters of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceFigures {
    /// Entries that wait for the control plane.
    pub waiting: usize,
    /// Their bytes.
    pub ring_bytes: usize,
    /// Events that wait for the answer to their request.
    pub unanswered: usize,
    /// Entries that did not fit.
    pub shed: Shed,
    /// How long the oldest entry has waited.
    pub lag: Duration,
    /// Counters of the stream.
    pub stream: Counters,
}

impl<K: Ord + Copy> Source<K> {
    /// A source without evidence. `salt_secret` is random.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(audit: &config::Audit, hello: v1::ReportHello, salt_secret: [u8; 16]) -> Result<Self, RingError> {
        let limit = Amount {
            entries: audit.ring_entries.get(),
            bytes: audit.ring_bytes.get(),
        };
        Ok(Self {
            recorder: Recorder::new(audit, salt_secret),
            reporter: Reporter::new(hello, Ring::new(limit, audit.on_overflow)?),
            pending: audit.response_status.then(Pending::default),
        })
    }

    /// Records a decision that began at `began` and took `decision_ns`, if that was measured. Never fails the request.
    pub fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        stream: K,
        began: (Monotonic, UnixNanos),
        decision_ns: Option<u64>,
    ) {
        let (now, wall) = began;
        let ledger = self.reporter.ledger;
        self.recorder.ledger = ledger;
        match self.recorder.record(verdict, request, wall, decision_ns) {
            Some(Record {
                event,
                owner,
                with_chain,
            }) => {
                if with_chain
                    && let Some(chain) = &verdict.findings.chain
                    && chain.reported.get() != (Reported::Sent { ledger })
                    && let Some(presented) = verdict.rule.and_then(|rule| presented_tokens(rule, request))
                {
                    report_chain(&mut self.reporter, chain, presented, wall);
                }
                match &mut self.pending {
                    Some(pending) => pending.hold(stream, event, owner, &mut self.reporter.ring, now, wall),
                    None => _ = self.reporter.ring.push(event, owner, wall),
                }
            }
            None => self.reporter.ring.count(&kind(verdict), 1, wall),
        }
    }

    /// Counts requests that were denied before a rule matched.
    pub fn count(&mut self, kind: &Kind<'_>, requests: u64, wall: UnixNanos) {
        self.reporter.ring.count(kind, requests, wall);
    }

    /// Whether the event of this request waits for the request's end.
    pub fn is_pending(&self, stream: K) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_waiting(stream))
    }

    /// The request was answered with this status; 0 if it was not.
    pub fn complete(&mut self, stream: K, status: u32, wall: UnixNanos) {
        if let Some(pending) = &mut self.pending {
            pending.complete(stream, status, &mut self.reporter.ring, wall);
        }
    }

    /// Requests whose status to query. Events of requests that continue, such as streams, are then completed without
    /// waiting for the end.
    pub fn asked_after(&mut self, now: Monotonic) -> Vec<K> {
        self.pending
            .as_mut()
            .map_or_else(Vec::new, |pending| pending.asked_after(now, MAX_ASKED_AFTER))
    }

    /// Stops recording. The remaining evidence is still sent, until `deadline`.
    pub fn drain(&mut self, deadline: Monotonic, wall: UnixNanos) {
        if let Some(pending) = &mut self.pending {
            pending.complete_all(&mut self.reporter.ring, wall);
        }
        self.reporter.ring.close();
        self.reporter.drain(deadline);
    }

    /// The ring, if a full ring denies requests.
    pub fn ring_that_denies(&self) -> Option<&Ring> {
        Some(&self.reporter.ring).filter(|ring| ring.overflow == Overflow::Deny)
    }

    /// How many events wait for the answer to their request.
    pub fn unanswered(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::len)
    }

    /// The gauges and counters.
    pub fn figures(&self, now: Monotonic) -> SourceFigures {
        SourceFigures {
            waiting: self.reporter.ring.len(),
            ring_bytes: self.reporter.ring.bytes(),
            unanswered: self.unanswered(),
            shed: self.reporter.ring.shed,
            lag: self.reporter.lag(now),
            stream: self.reporter.counters,
        }
    }
}

/// Adds a chain before the first event that names it. If it does not fit, it is counted as missing, once, and added
/// before a later event.
fn report_chain(reporter: &mut Reporter, chain: &CachedChain, presented: &[u8], wall: UnixNanos) {
    let (ring, ledger) = (&mut reporter.ring, reporter.ledger);
    let share = Some(chain.sharers.principal);
    let is_stored = (chain.reported.get() != Reported::Shed || ring.has_room_for_chain(presented.len(), share))
        && ring.push_chain(&Recorder::presented(chain, presented), presented.len(), share, wall);
    chain.reported.set(match is_stored {
        true => Reported::Sent { ledger },
        false => Reported::Shed,
    });
}

/// Unfinished requests whose status one tick queries.
const MAX_ASKED_AFTER: usize = 256;
