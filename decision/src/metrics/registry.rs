//! Counters, gauges and histograms, kept in the VM and reported to the host at ticks. docs/reference/metrics.md lists
//! them.
//!
//! A host call costs about a microsecond, and a decision changes several metrics. So requests only change the VM's
//! memory, and a tick reports the changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;

use credence_wire::v1;

use crate::audit::Kind;

/// Every metric of one VM.
///
/// Each name is defined at the host once, at the first report after its creation, even without a value: a counter that
/// never counted is visible as 0, not missing. Defining a name again would create another metric.
#[derive(Debug, Default)]
pub struct Metrics {
    cells: Vec<Cell>,
    by_name: BTreeMap<String, Metric>,
    changed: Vec<usize>,
}

/// The metrics of a VM, shared by all its configurations. While they are borrowed, only the host is called, and no
/// request is handled during that call.
pub type VmMetrics = Rc<RefCell<Metrics>>;

/// One metric. Valid only for its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric(usize);

/// The decisions of one rule, counted by decision and reason.
#[derive(Debug)]
pub struct DecisionCounters {
    rule: String,
    /// The outcomes of this rule so far, which are few.
    met: Vec<(Outcome, Metric)>,
}

/// The decisions that one counter counts.
type Outcome = (v1::Mode, v1::Decision, &'static str);

/// The receiver of metrics.
pub trait MetricSink {
    /// Why the host refused.
    type Error: Display;

    /// Creates a metric and returns its id.
    fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, Self::Error>;

    /// Adds to a counter or a level.
    fn increment(&mut self, id: u32, by: i64) -> Result<(), Self::Error>;

    /// Sets a gauge, or adds a value to a histogram.
    fn record(&mut self, id: u32, value: u64) -> Result<(), Self::Error>;
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Can be set. Envoy keeps one value per name for the whole process: that of the VM that reported last.
    Gauge,
    /// A sum of parts, one for each configuration in each VM. If a VM traps, its part stays in the sum until Envoy
    /// restarts.
    Level,
    /// Collects values.
    Histogram,
}

#[derive(Debug)]
struct Cell {
    kind: MetricKind,
    name: String,
    id: Option<u32>,
    /// A gauge's value.
    value: u64,
    /// The change of a counter or a level since the last report.
    change: i64,
    /// A histogram's values since the last report.
    samples: Vec<u64>,
    is_changed: bool,
}

/// The most metrics of a VM. All others share one counter, or gauge, named `credence_overflow`.
pub const MAX_METRICS: usize = 4096;

/// When there are this many metrics, new outcomes of rules are counted only by decision and reason. The rest of
/// [`MAX_METRICS`] is enough for every reason, so that none uses `credence_overflow`.
pub const MAX_BY_RULE: usize = 3584;

/// The rule in names of metrics beyond [`MAX_BY_RULE`]. No rule can have this name.
const OTHER_RULES: &str = "(other)";

/// The rule in names of metrics for requests that match no rule. No rule can have this name either.
const NO_RULE: &str = "(none)";

/// The most values of a histogram between two reports; others are dropped. Far more than can be measured between two
/// ticks: it bounds the memory if the host refuses them.
const MAX_SAMPLES: usize = 4096;

// === impl Metrics ===

impl Metrics {
    /// The metric with this name, created if necessary. A name has one kind.
    pub fn define(&mut self, kind: MetricKind, name: &str) -> Metric {
        if let Some(metric) = self.by_name.get(name) {
            return *metric;
        }
        // Four more than the limit: the shared ones.
        if self.cells.len() >= MAX_METRICS && name != kind.overflow() {
            return self.define(kind, kind.overflow());
        }
        let metric = Metric(self.cells.len());
        self.cells.push(Cell {
            kind,
            name: name.to_owned(),
            id: None,
            value: 0,
            change: 0,
            samples: Vec::new(),
            is_changed: true,
        });
        self.changed.push(metric.0);
        self.by_name.insert(name.to_owned(), metric);
        metric
    }

    /// Whether new names are to be few: the rest is for the reasons of denials.
    pub(super) fn is_crowded(&self) -> bool {
        self.cells.len() >= MAX_BY_RULE
    }

    /// Increments a counter.
    pub fn count(&mut self, counter: Metric) {
        self.change(counter, |cell| cell.change = cell.change.saturating_add(1));
    }

    /// Sets a gauge.
    pub fn set(&mut self, gauge: Metric, value: u64) {
        if self.cells.get(gauge.0).is_some_and(|cell| cell.value != value) {
            self.change(gauge, |cell| cell.value = value);
        }
    }

    /// Sets a counter that is counted elsewhere, or one part of a level, from its value `before` to `now`.
    pub fn bring_to(&mut self, metric: Metric, before: u64, now: u64) {
        let change = now.cast_signed().wrapping_sub(before.cast_signed());
        if change != 0 {
            self.change(metric, |cell| cell.change = cell.change.wrapping_add(change));
        }
    }

    /// Adds a value to a histogram.
    pub fn observe(&mut self, histogram: Metric, value: u64) {
        self.change(histogram, |cell| {
            if cell.samples.len() < MAX_SAMPLES {
                cell.samples.push(value);
            }
        });
    }

    /// Counts one decision; the counters determine the rule.
    pub fn count_decision(&mut self, counters: &mut DecisionCounters, kind: &Kind<'_>) {
        let outcome @ (mode, decision, reason) = (kind.mode, kind.decision, kind.reason);
        let counter = match counters.met.iter().find(|(met, _)| *met == outcome) {
            Some((_, counter)) => *counter,
            None => {
                let rule = if !self.is_crowded() || counters.rule == NO_RULE {
                    counters.rule.as_str()
                } else {
                    OTHER_RULES
                };
                let way = match decision {
                    v1::Decision::Allow => "allow",
                    v1::Decision::Deny | v1::Decision::Unspecified => "deny",
                };
                let metric = match mode {
                    v1::Mode::Enforce | v1::Mode::Unspecified => "credence_decision",
                    v1::Mode::Shadow => "credence_shadow_decision",
                };
                let name = format!("{metric}.rule.{rule}.decision.{way}.reason.{reason}");
                let counter = self.define(MetricKind::Counter, &name);
                counters.met.push((outcome, counter));
                counter
            }
        };
        self.count(counter);
    }

    /// Reports the changes. A change that the host refuses is reported the next time; the first error is returned.
    pub fn flush<S: MetricSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let mut outcome = Ok(());
        let changed = std::mem::take(&mut self.changed);
        for index in changed {
            let Some(cell) = self.cells.get_mut(index) else {
                continue;
            };
            match cell.hand_over(sink) {
                Ok(()) => cell.is_changed = false,
                Err(error) => {
                    self.changed.push(index);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    fn change(&mut self, metric: Metric, change: impl FnOnce(&mut Cell)) {
        if let Some(cell) = self.cells.get_mut(metric.0) {
            change(cell);
            if !cell.is_changed {
                cell.is_changed = true;
                self.changed.push(metric.0);
            }
        }
    }
}

// === impl MetricKind ===

impl MetricKind {
    /// The metric that all others of this kind share beyond [`MAX_METRICS`].
    fn overflow(self) -> &'static str {
        match self {
            Self::Counter => "credence_overflow",
            Self::Gauge => "credence_overflow_gauge",
            Self::Level => "credence_overflow_level",
            Self::Histogram => "credence_overflow_histogram",
        }
    }
}

// === impl Cell ===

impl Cell {
    fn hand_over<S: MetricSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let id = match self.id {
            Some(id) => id,
            None => {
                let id = sink.define(self.kind, &self.name)?;
                self.id = Some(id);
                id
            }
        };
        match self.kind {
            MetricKind::Gauge => sink.record(id, self.value),
            MetricKind::Counter | MetricKind::Level if self.change == 0 => Ok(()),
            MetricKind::Counter | MetricKind::Level => {
                sink.increment(id, self.change)?;
                self.change = 0;
                Ok(())
            }
            MetricKind::Histogram => {
                // In their order, until the host refuses one.
                let taken = self.samples.iter().try_for_each(|sample| sink.record(id, *sample));
                self.samples.clear();
                taken
            }
        }
    }
}

// === impl DecisionCounters ===

impl DecisionCounters {
    /// Counters of the rule with this configured name. Characters that metrics backends do not allow become `_`. An
    /// empty name is for requests that match no rule; they are counted under a name that no rule can have, because
    /// Envoy makes no label of an empty text.
    pub fn new(rule: &str) -> Self {
        let plain = |character: char| {
            if character.is_ascii_alphanumeric() || matches!(character, '-' | '_') {
                character
            } else {
                '_'
            }
        };
        let rule = match rule {
            "" => NO_RULE.to_owned(),
            rule => rule.chars().map(plain).collect(),
        };
        Self { rule, met: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(decision: v1::Decision, reason: &'static str) -> Kind<'static> {
        Kind {
            rule: "",
            reason,
            decision,
            mode: v1::Mode::Enforce,
        }
    }

    /// Records every call; fails while `is_broken`.
    #[derive(Default)]
    struct Host {
        names: Vec<(MetricKind, String)>,
        calls: Vec<(u32, u64)>,
        is_broken: bool,
    }

    impl MetricSink for Host {
        type Error = &'static str;

        fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, Self::Error> {
            if self.is_broken {
                return Err("refused");
            }
            self.names.push((kind, name.to_owned()));
            Ok(u32::try_from(self.names.len() - 1).unwrap())
        }

        fn increment(&mut self, id: u32, by: i64) -> Result<(), Self::Error> {
            if by < 0 {
                assert_eq!(
                    self.names[id as usize].0,
                    MetricKind::Level,
                    "{}",
                    self.names[id as usize].1
                );
            }
            self.record(id, by.cast_unsigned())
        }

        fn record(&mut self, id: u32, value: u64) -> Result<(), Self::Error> {
            if self.is_broken {
                return Err("refused");
            }
            self.calls.push((id, value));
            Ok(())
        }
    }

    #[test]
    fn a_metric_is_defined_once_with_or_without_a_value() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let hits = metrics.define(MetricKind::Counter, "hits");
        metrics.flush(&mut host).unwrap();
        assert_eq!((host.names.len(), host.calls.len()), (1, 0));
        for _ in 0..2 {
            metrics.count(hits);
            metrics.flush(&mut host).unwrap();
        }
        assert_eq!(host.names, [(MetricKind::Counter, "hits".to_owned())]);
    }

    #[test]
    fn a_flush_reports_exactly_the_changes() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let (hits, revision) = (
            metrics.define(MetricKind::Counter, "hits"),
            metrics.define(MetricKind::Gauge, "revision"),
        );
        metrics.count(hits);
        metrics.count(hits);
        metrics.set(revision, 7);
        metrics.flush(&mut host).unwrap();
        metrics.set(revision, 7);
        metrics.flush(&mut host).unwrap();
        metrics.count(hits);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 2), (1, 7), (0, 1)]);
    }

    #[test]
    fn a_gauge_of_zero_is_reported_too() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let gauge = metrics.define(MetricKind::Gauge, "ring_entries");
        metrics.set(gauge, 0);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 0)]);
    }

    #[test]
    fn a_level_is_reported_as_the_changes_of_its_parts() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let waiting = metrics.define(MetricKind::Level, "waiting");
        metrics.bring_to(waiting, 0, 5);
        metrics.bring_to(waiting, 0, 2);
        metrics.flush(&mut host).unwrap();
        metrics.bring_to(waiting, 5, 1);
        host.is_broken = true;
        metrics.flush(&mut host).unwrap_err();
        metrics.bring_to(waiting, 2, 0);
        host.is_broken = false;
        metrics.flush(&mut host).unwrap();
        metrics.bring_to(waiting, 1, 1);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.names, [(MetricKind::Level, "waiting".to_owned())]);
        assert_eq!(host.calls, [(0, 7), (0, (-6_i64).cast_unsigned())]);
    }

    #[test]
    fn a_refused_change_is_reported_later() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let hits = metrics.define(MetricKind::Counter, "hits");
        host.is_broken = true;
        metrics.count(hits);
        assert_eq!(metrics.flush(&mut host), Err("refused"));
        metrics.count(hits);
        host.is_broken = false;
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 2)]);
    }

    #[test]
    fn one_name_is_one_metric() {
        let mut metrics = Metrics::default();
        assert_eq!(
            metrics.define(MetricKind::Counter, "hits"),
            metrics.define(MetricKind::Counter, "hits")
        );
    }

    #[test]
    fn a_total_counted_elsewhere_is_brought_up_to_date() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let shed = metrics.define(MetricKind::Counter, "shed");
        for (before, now) in [(0, 3), (3, 3), (3, 8)] {
            metrics.bring_to(shed, before, now);
            metrics.flush(&mut host).unwrap();
        }
        assert_eq!(host.calls, [(0, 3), (0, 5)]);
    }

    #[test]
    fn decisions_are_counted_by_rule_decision_and_reason() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let mut charge = DecisionCounters::new("charge v1.2");
        metrics.count_decision(&mut charge, &kind(v1::Decision::Allow, "allowed"));
        metrics.count_decision(&mut charge, &kind(v1::Decision::Deny, "expired"));
        metrics.count_decision(&mut charge, &kind(v1::Decision::Deny, "expired"));
        metrics.flush(&mut host).unwrap();
        let names: Vec<&str> = host.names.iter().map(|(_, name)| name.as_str()).collect();
        let expected = [
            "credence_decision.rule.charge_v1_2.decision.allow.reason.allowed",
            "credence_decision.rule.charge_v1_2.decision.deny.reason.expired",
        ];
        assert_eq!(names, expected);
        assert_eq!(host.calls, [(0, 1), (1, 2)]);
    }

    #[test]
    fn decisions_without_a_rule_are_counted_under_a_name_that_no_rule_has() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let mut none = DecisionCounters::new("");
        metrics.count_decision(&mut none, &kind(v1::Decision::Deny, "no_route"));
        metrics.flush(&mut host).unwrap();
        let names: Vec<&str> = host.names.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["credence_decision.rule.(none).decision.deny.reason.no_route"]);
    }

    #[test]
    fn every_value_of_a_histogram_is_reported_once() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let time = metrics.define(MetricKind::Histogram, "time");
        metrics.observe(time, 90);
        metrics.observe(time, 0);
        metrics.flush(&mut host).unwrap();
        metrics.observe(time, 70);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.names, [(MetricKind::Histogram, "time".to_owned())]);
        assert_eq!(host.calls, [(0, 90), (0, 0), (0, 70)]);
    }

    #[test]
    fn a_refused_histogram_is_bounded() {
        let mut metrics = Metrics::default();
        let time = metrics.define(MetricKind::Histogram, "time");
        for value in 0..2 * MAX_SAMPLES as u64 {
            metrics.observe(time, value);
        }
        assert_eq!(metrics.cells[time.0].samples.len(), MAX_SAMPLES);
    }

    #[test]
    fn beyond_the_limit_rules_share_a_counter_for_each_reason() {
        let (mut metrics, mut host) = (Metrics::default(), Host::default());
        let mut rules: Vec<_> = (0..10_000)
            .map(|number| DecisionCounters::new(&format!("r{number}")))
            .collect();
        let reasons = ["allowed", "expired", "tool_not_granted"];
        for rule in &mut rules {
            for reason in reasons {
                metrics.count_decision(rule, &kind(v1::Decision::Deny, reason));
            }
        }
        // A rule that has its own counter keeps it.
        metrics.count_decision(&mut rules[0], &kind(v1::Decision::Deny, "expired"));
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.names.len(), MAX_BY_RULE + reasons.len());
        let count = |wanted: &str| {
            let of_name = |(id, _): &&(u32, u64)| host.names[*id as usize].1.ends_with(wanted);
            host.calls.iter().filter(of_name).map(|(_, by)| by).sum::<u64>()
        };
        assert_eq!(count("rule.r0.decision.deny.reason.expired"), 2);
        let by_rule = (MAX_BY_RULE / 3) as u64;
        assert_eq!(
            count("rule.(other).decision.deny.reason.tool_not_granted"),
            10_000 - by_rule
        );
        // Every decision is in one of the counters.
        for (reason, decisions) in [("allowed", 10_000), ("expired", 10_001), ("tool_not_granted", 10_000)] {
            assert_eq!(count(&format!(".reason.{reason}")), decisions);
        }
        assert_eq!(count(MetricKind::Counter.overflow()), 0);
    }

    #[test]
    fn every_reason_fits_beside_the_metrics_by_rule() {
        let (reasons_to_allow, modes, rules, fixed) = (3, 2, [NO_RULE, OTHER_RULES].len(), 64);
        let reasons = crate::decision::Reason::ALL.len() + reasons_to_allow;
        assert!(MAX_BY_RULE + reasons * modes * rules + fixed <= MAX_METRICS);
    }

    #[test]
    fn the_number_of_metrics_is_bounded() {
        let mut metrics = Metrics::default();
        for number in 0..MAX_METRICS {
            metrics.define(MetricKind::Counter, &format!("counter-{number}"));
        }
        let beyond = metrics.define(MetricKind::Counter, "one more");
        assert_eq!(beyond, metrics.define(MetricKind::Counter, "and another"));
        assert_eq!(
            metrics.define(MetricKind::Gauge, "a gauge"),
            metrics.define(MetricKind::Gauge, "another gauge")
        );
        assert_eq!(metrics.cells.len(), MAX_METRICS + 2);
    }
}
