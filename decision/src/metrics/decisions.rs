//! Metrics of the decisions of one configuration.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::registry::MetricKind::{Counter, Histogram};
use super::registry::{DecisionCounters, Metric, VmMetrics};
use crate::audit::Kind;
use crate::config::{Mode, Policy};
use crate::decision::Decision;
use crate::engine::{Findings, Lookup, Verdict};

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
    /// Decisions on messages to MCP servers, by their names.
    mcp: BTreeMap<String, Metric>,
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
            mcp: BTreeMap::new(),
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

    /// Counts an enforced decision on a message to an MCP server, by its method and tool.
    pub fn count_mcp(&mut self, verdict: &Verdict<'_>) {
        let Some(found) = verdict
            .findings
            .mcp
            .as_deref()
            .filter(|_| verdict.mode == Mode::Enforce)
        else {
            return;
        };
        let way = match verdict.decision {
            Decision::Allow(_) => "allow",
            Decision::Deny(_) => "deny",
        };
        // Clients choose the names of tools, so only granted ones count.
        let chain = verdict.findings.chain.as_ref();
        let is_granted = |tool: &str| chain.is_some_and(|chain| chain.chain.grants(tool).is_ok());
        let tool = match found.tool.as_deref() {
            Some(tool) if is_granted(tool) && is_plain(tool) => tool,
            Some(_) => OTHER,
            None => NONE,
        };
        let method = found.method.as_deref().unwrap_or(NONE);
        let mut name = named(way, method, tool);
        let mut metrics = self.metrics.borrow_mut();
        if !self.mcp.contains_key(&name) && (self.mcp.len() >= MAX_MCP || metrics.is_crowded()) {
            name = named(way, OTHER, OTHER);
        }
        let counter = match self.mcp.get(&name) {
            Some(counter) => *counter,
            None => {
                let counter = metrics.define(Counter, &name);
                self.mcp.insert(name, counter);
                counter
            }
        };
        metrics.count(counter);
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

fn named(way: &str, method: &str, tool: &str) -> String {
    format!("credence_mcp_decision.decision.{way}.method.{method}.tool.{tool}")
}

/// Whether a name can be a part of a metric's.
fn is_plain(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
    name.len() <= MAX_PLAIN_BYTES && name.bytes().all(is_part)
}

/// Whether the chain was cached, and no signature was verified.
fn is_cached(findings: &Findings) -> bool {
    findings.lookup == Some(Lookup::Hit) && !findings.verified
}

/// A tool or a method that is not counted by its name.
const OTHER: &str = "(other)";
/// No tool, or a method that was not read.
const NONE: &str = "(none)";
/// Counters of messages to MCP servers. Further ones are counted as others.
const MAX_MCP: usize = 256;
const MAX_PLAIN_BYTES: usize = 128;

/// One in this many decisions without a signature check is timed.
const TIMED_HITS: u64 = 16;

/// One in this many of those is in the metrics: each costs a call to the host, and a sample is sufficient. A multiple
/// of [`TIMED_HITS`].
const SHOWN_HITS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Allowance;
    use crate::engine::McpFindings;
    use crate::samples;

    #[test]
    fn names_of_methods_and_tools_are_limited() {
        let key = samples::key(1).public().to_jwk();
        let policy = format!(
            r#"{{"audience": ["{}"], "trust_anchors": [{{"issuer": "{}", "jwk": {key}}}],
                "control_plane": {{"cluster": "credence", "log_id": "0123456789abcdef0123456789abcdef"}},
                "rules": [{{"name": "health", "match": {{"path": "/healthz"}}, "public": true}}]}}"#,
            samples::AUDIENCE,
            samples::ISSUER
        );
        let policy = Policy::parse(policy.as_bytes()).unwrap();
        let mut figures = DecisionFigures::new(&policy, &VmMetrics::default());
        for number in 0..1_000 {
            let found = McpFindings {
                method: Some(format!("method{number}").into()),
                ..McpFindings::default()
            };
            figures.count_mcp(&Verdict {
                decision: Decision::Allow(Allowance::Public),
                rule: None,
                rule_index: None,
                mode: Mode::Enforce,
                nonce: None,
                findings: Findings {
                    mcp: Some(Box::new(found)),
                    ..Findings::default()
                },
            });
        }
        assert_eq!(figures.mcp.len(), MAX_MCP + 1, "and one for all others");
        assert!(figures.mcp.contains_key(&named("allow", OTHER, OTHER)));
    }
}
