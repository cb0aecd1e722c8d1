//! Metrics of the decisions of one configuration.

use std::rc::Rc;

use super::registry::MetricKind::{Counter, Histogram};
use super::registry::{DecisionCounters, Metric, VmMetrics};
use crate::audit::Kind;
use crate::config::Policy;
use crate::engine::{Findings, Lookup};

/// The metrics of one configuration's decisions.
#[derive(Debug)]
pub struct DecisionFigures {
    /// One for each rule, and the last for requests that match no rule.
    decisions: Vec<DecisionCounters>,
    cache_hits: Metric,
    cache_beginnings: Metric,
    cache_misses: Metric,
    cache_refusals: Metric,
    verification_us: Metric,
    cached_decision_us: Metric,
    /// Decisions on cached chains, which are too many to time all.
    hits: u64,
    metrics: VmMetrics,
}

impl DecisionFigures {
    /// Nothing is counted yet.
    pub fn new(policy: &Policy, metrics: &VmMetrics) -> Self {
        let define = |kind, name| metrics.borrow_mut().define(kind, name);
        let rules = policy.routes.iter().map(|rule| DecisionCounters::new(&rule.name));
        Self {
            decisions: rules.chain([DecisionCounters::new("")]).collect(),
            cache_hits: define(Counter, "credence_cache_hits"),
            cache_beginnings: define(Counter, "credence_cache_beginnings"),
            cache_misses: define(Counter, "credence_cache_misses"),
            cache_refusals: define(Counter, "credence_cache_refusals"),
            verification_us: define(Histogram, "credence_verification_us"),
            cached_decision_us: define(Histogram, "credence_cached_decision_us"),
            hits: 0,
            metrics: Rc::clone(metrics),
        }
    }

    /// Counts a decision under the rule with this index, or under none.
    pub fn count(&mut self, kind: &Kind<'_>, rule_index: Option<usize>) {
        let index = rule_index.unwrap_or(self.decisions.len().saturating_sub(1));
        if let Some(counters) = self.decisions.get_mut(index) {
            self.metrics.borrow_mut().count_decision(counters, kind);
        }
    }

    /// Whether to measure the time of this decision; called once for each. Reading the host's clock costs more than a
    /// cache hit, so only one in `TIMED_HITS` of the decisions on cached chains without a proof is timed.
    pub fn is_timed(&mut self, findings: &Findings, is_recorded: bool) -> bool {
        if !is_recorded && !findings.verified {
            return false;
        }
        if !is_cached(findings) {
            return true;
        }
        self.hits = self.hits.wrapping_add(1);
        self.hits.is_multiple_of(TIMED_HITS)
    }

    /// Counts a decision's cache look-ups, and its time, if it was measured.
    pub fn observe(&self, findings: &Findings, decision_ns: Option<u64>) {
        let mut metrics = self.metrics.borrow_mut();
        match findings.lookup {
            Some(Lookup::Hit) => metrics.count(self.cache_hits),
            Some(Lookup::Beginning) => metrics.count(self.cache_beginnings),
            Some(Lookup::Miss) => metrics.count(self.cache_misses),
            Some(Lookup::Refused) => metrics.count(self.cache_refusals),
            // The engine counts its look-ups in the shared cache.
            Some(Lookup::Shared) | None => {}
        }
        let Some(nanos) = decision_ns else { return };
        if findings.verified {
            metrics.observe(self.verification_us, nanos.div_ceil(1_000));
        } else if is_cached(findings) && self.hits.is_multiple_of(SHOWN_HITS) {
            metrics.observe(self.cached_decision_us, nanos.div_ceil(1_000));
        }
    }
}

/// Whether the chain was cached, and no signature was verified.
fn is_cached(findings: &Findings) -> bool {
    findings.lookup == Some(Lookup::Hit) && !findings.verified
}

/// One in this many decisions without a signature check is timed.
const TIMED_HITS: u64 = 16;

/// One in this many of those is in the metrics: each costs a call to the host, and a sample is sufficient. A multiple
/// of [`TIMED_HITS`].
const SHOWN_HITS: u64 = 256;
