//! Counts and records what was decided.

use crate::audit::events::kind;
use crate::audit::{Kind, NO_RULE, RingError, Source};
use crate::clock::{Began, Monotonic, UnixNanos};
use crate::config::{Policy, RecordedDecisions};
use crate::decision::Reason;
use crate::engine::Verdict;
use crate::metrics::{DecisionFigures, VmMetrics};
use crate::request::Request;
use credence_wire::v1;

/// The figures of one configuration's decisions, and the record of them. `K` names a request.
#[derive(Debug)]
pub struct Recorder<K> {
    figures: DecisionFigures,
    /// What is recorded, and its way to the control plane; `None` if nothing is to be.
    pub source: Option<Source<K>>,
}

impl<K: Ord + Copy> Recorder<K> {
    /// Nothing is counted or recorded yet. `salt_secret` is random.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(
        policy: &Policy,
        hello: v1::ReportHello,
        salt_secret: [u8; 16],
        metrics: &VmMetrics,
    ) -> Result<Self, RingError> {
        Ok(Self {
            figures: DecisionFigures::new(policy, metrics),
            source: match policy.audit.record {
                RecordedDecisions::All => Some(Source::new(&policy.audit, hello, salt_secret)?),
                RecordedDecisions::None => None,
            },
        })
    }

    /// Counts and records a decision, exactly once. Nothing here fails the request. `now` is asked if it is measured how long
    /// the decision took.
    pub fn record(
        &mut self,
        verdict: &Verdict<'_>,
        request: &Request<'_>,
        stream: K,
        began: Began,
        now: impl FnOnce() -> Option<Monotonic>,
    ) {
        self.figures.count(&kind(verdict), verdict.rule_index);
        let is_timed = self.figures.is_timed(&verdict.findings, self.source.is_some());
        let end = is_timed.then(now).flatten();
        let decision_ns = end.and_then(|now| u64::try_from(began.took(now).as_nanos()).ok());
        self.figures.observe(&verdict.findings, decision_ns);
        if let Some(source) = &mut self.source {
            source.record(verdict, request, stream, (began.monotonic, began.wall), decision_ns);
        }
    }

    /// Counts requests that were denied before it was known which rule covers them.
    pub fn count_denials(&mut self, reason: Reason, requests: u64, wall: UnixNanos) {
        let kind = Kind {
            rule: NO_RULE,
            reason: reason.code(),
            decision: v1::Decision::Deny,
            mode: v1::Mode::Enforce,
        };
        for _ in 0..requests {
            self.figures.count(&kind, None);
        }
        if let Some(source) = &mut self.source {
            source.count(&kind, requests, wall);
        }
    }
}
