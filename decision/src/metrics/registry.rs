//! Counters, gauges and histograms, kept in the VM and handed to the host at its ticks. docs/metrics.md lists them.
//!
//! A host call costs about a microsecond and a decision has several things to count: requests therefore only touch
//! the VM's memory, and a tick hands over what has changed since the last.

use std::collections::BTreeMap;
use std::fmt::Display;

use credence_wire::v1;

use crate::audit::Kind;

/// Every metric of one VM.
///
/// Each name is defined once at the host, by the first hand-over after it was made, whether or not it has something to say
/// yet: what was never counted is seen as 0 and not as missing. Defining a name again would make a new metric each time.
#[derive(Debug)]
pub struct Metrics {
    cells: Vec<Cell>,
    counters: BTreeMap<String, usize>,
    gauges: BTreeMap<String, usize>,
    levels: BTreeMap<String, usize>,
    histograms: BTreeMap<String, usize>,
    changed: Vec<usize>,
}

/// A number that only grows. Valid for the registry that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(usize);

/// A number that is set. Valid for the registry that made it.
///
/// Envoy keeps one value per name for the whole process: the VM that reports last is the one that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge(usize);

/// A number of which each holder has a part: what is seen is the sum of all parts in all VMs. Valid for the registry that
/// made it.
///
/// Of a VM that traps the part stays in the sum, until Envoy is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(usize);

/// How often values fell where. Valid for the registry that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram(usize);

/// The decisions of one rule, counted by decision and reason.
#[derive(Debug)]
pub struct DecisionCounters {
    rule: String,
    /// Few: the reasons this rule has met so far.
    met: Vec<Met>,
}

/// Decisions of one kind that a rule has met.
#[derive(Debug)]
struct Met {
    mode: v1::Mode,
    decision: v1::Decision,
    reason: &'static str,
    counter: Counter,
}

/// Where metrics are handed to.
pub trait MetricSink {
    /// Why the host refused.
    type Error: Display;

    /// Makes a metric and returns its id.
    fn define(&mut self, kind: MetricKind, name: &str) -> Result<u32, Self::Error>;

    /// Adds to a counter or a level.
    fn increment(&mut self, id: u32, by: i64) -> Result<(), Self::Error>;

    /// Sets a gauge, or adds a value to a histogram.
    fn record(&mut self, id: u32, value: u64) -> Result<(), Self::Error>;
}

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Is set.
    Gauge,
    /// A gauge that is added to and taken from.
    Level,
    /// Has values added to it.
    Histogram,
}

#[derive(Debug)]
struct Cell {
    kind: MetricKind,
    name: String,
    id: Option<u32>,
    /// A counter's growth since the last hand-over, a gauge's value.
    value: u64,
    /// How a level has changed since the last hand-over.
    shift: i64,
    /// A histogram's values since the last hand-over.
    samples: Vec<u64>,
    is_changed: bool,
}

/// The most metrics of a VM. What is beyond shares one counter, or gauge, named `credence_overflow`.
pub const MAX_METRICS: usize = 4096;

/// Once there are this many metrics, what rules had not met until then is counted by decision and reason alone. The rest of
/// [`MAX_METRICS`] is enough for every reason that there is, so that nothing comes to share `credence_overflow`.
pub const MAX_BY_RULE: usize = 3584;

/// The rule in names of metrics where [`MAX_BY_RULE`] left no room for the rule's own. No rule can have this name.
const OTHER_RULES: &str = "(other)";

/// The rule in names of metrics where no rule covers the request. No rule can have this name either.
const NO_RULE: &str = "(none)";

/// The most values that a histogram keeps for a hand-over; what is beyond is left out. Far more than can be measured
/// between two ticks: it bounds what is kept if the host refuses them.
const MAX_SAMPLES: usize = 4096;

const OVERFLOW_COUNTER: &str = "credence_overflow";
const OVERFLOW_GAUGE: &str = "credence_overflow_gauge";
const OVERFLOW_LEVEL: &str = "credence_overflow_level";
const OVERFLOW_HISTOGRAM: &str = "credence_overflow_histogram";

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry without metrics.
    pub fn new() -> Self {
        Self {
            cells: Vec::new(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            levels: BTreeMap::new(),
            histograms: BTreeMap::new(),
            changed: Vec::new(),
        }
    }

    /// The counter of this name, which is made if there is none.
    pub fn counter(&mut self, name: &str) -> Counter {
        Counter(self.index_of(MetricKind::Counter, name, OVERFLOW_COUNTER))
    }

    /// The gauge of this name, which is made if there is none.
    pub fn gauge(&mut self, name: &str) -> Gauge {
        Gauge(self.index_of(MetricKind::Gauge, name, OVERFLOW_GAUGE))
    }

    /// The level of this name, which is made if there is none.
    pub fn level(&mut self, name: &str) -> Level {
        Level(self.index_of(MetricKind::Level, name, OVERFLOW_LEVEL))
    }

    /// The histogram of this name, which is made if there is none.
    pub fn histogram(&mut self, name: &str) -> Histogram {
        Histogram(self.index_of(MetricKind::Histogram, name, OVERFLOW_HISTOGRAM))
    }

    /// Adds to a counter.
    pub fn add(&mut self, counter: Counter, by: u64) {
        if by > 0 {
            self.change(counter.0, |cell| cell.value = cell.value.saturating_add(by));
        }
    }

    /// Brings a counter up to a total that is counted elsewhere; `reported` remembers how far it was brought before.
    pub fn add_up_to(&mut self, counter: Counter, total: u64, reported: &mut u64) {
        self.add(counter, total.saturating_sub(*reported));
        *reported = total.max(*reported);
    }

    /// Sets a gauge.
    pub fn set(&mut self, gauge: Gauge, value: u64) {
        let is_news = self
            .cells
            .get(gauge.0)
            .is_some_and(|cell| cell.value != value || cell.id.is_none());
        if is_news {
            self.change(gauge.0, |cell| cell.value = value);
        }
    }

    /// Brings one part of a level to `value`; `reported` remembers what that part was before.
    pub fn bring_to(&mut self, level: Level, value: u64, reported: &mut u64) {
        let shift = value.cast_signed().wrapping_sub(reported.cast_signed());
        if shift != 0 {
            self.change(level.0, |cell| cell.shift = cell.shift.wrapping_add(shift));
            *reported = value;
        }
    }

    /// Adds a value to a histogram.
    pub fn observe(&mut self, histogram: Histogram, value: u64) {
        self.change(histogram.0, |cell| {
            if cell.samples.len() < MAX_SAMPLES {
                cell.samples.push(value);
            }
        });
    }

    /// Counts one decision; the rule is that of the counters.
    pub fn count_decision(&mut self, counters: &mut DecisionCounters, kind: &Kind<'_>) {
        let met = counters.met.iter().find(|met| met.is(kind));
        let counter = match met {
            Some(met) => met.counter,
            None => {
                let rule = if self.cells.len() < MAX_BY_RULE || counters.rule == NO_RULE {
                    counters.rule.as_str()
                } else {
                    OTHER_RULES
                };
                let Kind {
                    mode, decision, reason, ..
                } = *kind;
                let way = match decision {
                    v1::Decision::Allow => "allow",
                    v1::Decision::Deny | v1::Decision::Unspecified => "deny",
                };
                let metric = match mode {
                    v1::Mode::Enforce | v1::Mode::Unspecified => "credence_decision",
                    v1::Mode::Shadow => "credence_shadow_decision",
                };
                let name = format!("{metric}.rule.{rule}.decision.{way}.reason.{reason}");
                let counter = self.counter(&name);
                counters.met.push(Met {
                    mode,
                    decision,
                    reason,
                    counter,
                });
                counter
            }
        };
        self.add(counter, 1);
    }

    /// Hands over what has changed. What the host refuses stays for the next time; the first refusal is returned.
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

    fn index_of(&mut self, kind: MetricKind, name: &str, overflow: &str) -> usize {
        let by_name = match kind {
            MetricKind::Counter => &mut self.counters,
            MetricKind::Gauge => &mut self.gauges,
            MetricKind::Level => &mut self.levels,
            MetricKind::Histogram => &mut self.histograms,
        };
        if let Some(index) = by_name.get(name) {
            return *index;
        }
        // Four more than the limit: those that everything beyond shares.
        if self.cells.len() >= MAX_METRICS && name != overflow {
            return self.index_of(kind, overflow, overflow);
        }
        let index = self.cells.len();
        self.cells.push(Cell {
            kind,
            name: name.to_owned(),
            id: None,
            value: 0,
            shift: 0,
            samples: Vec::new(),
            is_changed: true,
        });
        self.changed.push(index);
        by_name.insert(name.to_owned(), index);
        index
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut Cell)) {
        if let Some(cell) = self.cells.get_mut(index) {
            change(cell);
            if !cell.is_changed {
                cell.is_changed = true;
                self.changed.push(index);
            }
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
            MetricKind::Counter if self.value == 0 => Ok(()),
            MetricKind::Level if self.shift == 0 => Ok(()),
            MetricKind::Level => {
                sink.increment(id, self.shift)?;
                self.shift = 0;
                Ok(())
            }
            MetricKind::Counter => {
                sink.increment(id, i64::try_from(self.value).unwrap_or(i64::MAX))?;
                self.value = 0;
                Ok(())
            }
            MetricKind::Histogram => {
                // In the order they came, as long as the host takes them.
                let taken = self.samples.iter().try_for_each(|sample| sink.record(id, *sample));
                self.samples.clear();
                taken
            }
        }
    }
}

// === impl DecisionCounters ===

impl DecisionCounters {
    /// Counters of the rule with this configured name. Characters that a metrics backend would stumble over become
    /// `_`. The empty name is for requests that no rule covers; it is counted as one that no rule can have, because
    /// Envoy makes no label of nothing.
    pub fn new(rule: &str) -> Self {
        if rule.is_empty() {
            return Self::without_rule();
        }
        let plain = |character: char| {
            if character.is_ascii_alphanumeric() || matches!(character, '-' | '_') {
                character
            } else {
                '_'
            }
        };
        Self {
            rule: rule.chars().map(plain).collect(),
            met: Vec::new(),
        }
    }

    /// Counters of the requests that no rule covers.
    pub fn without_rule() -> Self {
        Self {
            rule: NO_RULE.to_owned(),
            met: Vec::new(),
        }
    }
}

// === impl Met ===

impl Met {
    fn is(&self, kind: &Kind<'_>) -> bool {
        self.mode == kind.mode && self.decision == kind.decision && self.reason == kind.reason
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

    /// Remembers every call; refuses while `is_broken`.
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
    fn a_metric_is_defined_once_whether_or_not_it_has_something_to_say() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let hits = metrics.counter("hits");
        metrics.flush(&mut host).unwrap();
        assert_eq!((host.names.len(), host.calls.len()), (1, 0));
        for _ in 0..2 {
            metrics.add(hits, 1);
            metrics.flush(&mut host).unwrap();
        }
        assert_eq!(host.names, [(MetricKind::Counter, "hits".to_owned())]);
    }

    #[test]
    fn a_flush_hands_over_what_has_changed_and_nothing_else() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let (hits, revision) = (metrics.counter("hits"), metrics.gauge("revision"));
        metrics.add(hits, 2);
        metrics.add(hits, 3);
        metrics.set(revision, 7);
        metrics.flush(&mut host).unwrap();
        metrics.set(revision, 7);
        metrics.flush(&mut host).unwrap();
        metrics.add(hits, 1);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 5), (1, 7), (0, 1)]);
    }

    #[test]
    fn a_gauge_of_zero_is_reported_too() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let gauge = metrics.gauge("ring_entries");
        metrics.set(gauge, 0);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 0)]);
    }

    #[test]
    fn a_level_is_handed_over_as_what_its_parts_have_gained_and_lost() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let waiting = metrics.level("waiting");
        let (mut one, mut other) = (0, 0);
        metrics.bring_to(waiting, 5, &mut one);
        metrics.bring_to(waiting, 2, &mut other);
        metrics.flush(&mut host).unwrap();
        metrics.bring_to(waiting, 1, &mut one);
        host.is_broken = true;
        metrics.flush(&mut host).unwrap_err();
        metrics.bring_to(waiting, 0, &mut other);
        host.is_broken = false;
        metrics.flush(&mut host).unwrap();
        metrics.bring_to(waiting, 1, &mut one);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.names, [(MetricKind::Level, "waiting".to_owned())]);
        assert_eq!(host.calls, [(0, 7), (0, (-6_i64).cast_unsigned())]);
    }

    #[test]
    fn what_the_host_refuses_is_handed_over_later() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let hits = metrics.counter("hits");
        host.is_broken = true;
        metrics.add(hits, 1);
        assert_eq!(metrics.flush(&mut host), Err("refused"));
        metrics.add(hits, 1);
        host.is_broken = false;
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.calls, [(0, 2)]);
    }

    #[test]
    fn one_name_is_one_metric() {
        let mut metrics = Metrics::new();
        assert_eq!(metrics.counter("hits"), metrics.counter("hits"));
        assert_ne!(metrics.counter("hits").0, metrics.gauge("hits").0);
    }

    #[test]
    fn a_total_counted_elsewhere_is_brought_up_to_date() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let shed = metrics.counter("shed");
        let mut reported = 0;
        for total in [3, 3, 8] {
            metrics.add_up_to(shed, total, &mut reported);
            metrics.flush(&mut host).unwrap();
        }
        assert_eq!(host.calls, [(0, 3), (0, 5)]);
    }

    #[test]
    fn decisions_are_counted_by_rule_decision_and_reason() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
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
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let mut none = DecisionCounters::new("");
        metrics.count_decision(&mut none, &kind(v1::Decision::Deny, "no_route"));
        metrics.flush(&mut host).unwrap();
        let names: Vec<&str> = host.names.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["credence_decision.rule.(none).decision.deny.reason.no_route"]);
    }

    #[test]
    fn a_histogram_is_handed_every_value_once() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
        let time = metrics.histogram("time");
        metrics.observe(time, 90);
        metrics.observe(time, 0);
        metrics.flush(&mut host).unwrap();
        metrics.observe(time, 70);
        metrics.flush(&mut host).unwrap();
        assert_eq!(host.names, [(MetricKind::Histogram, "time".to_owned())]);
        assert_eq!(host.calls, [(0, 90), (0, 0), (0, 70)]);
    }

    #[test]
    fn a_histogram_that_the_host_refuses_does_not_grow_for_ever() {
        let mut metrics = Metrics::new();
        let time = metrics.histogram("time");
        for value in 0..2 * MAX_SAMPLES as u64 {
            metrics.observe(time, value);
        }
        assert_eq!(metrics.cells[time.0].samples.len(), MAX_SAMPLES);
    }

    #[test]
    fn of_many_rules_the_last_to_meet_something_share_a_counter_for_each_reason() {
        let (mut metrics, mut host) = (Metrics::new(), Host::default());
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
        // No decision is lost, whichever counter it went to.
        for (reason, decisions) in [("allowed", 10_000), ("expired", 10_001), ("tool_not_granted", 10_000)] {
            assert_eq!(count(&format!(".reason.{reason}")), decisions);
        }
        assert_eq!(count(OVERFLOW_COUNTER), 0);
    }

    #[test]
    fn every_reason_fits_beside_the_metrics_by_rule() {
        let (reasons_to_allow, modes, rules, fixed) = (3, 2, [NO_RULE, OTHER_RULES].len(), 64);
        let reasons = crate::decision::Reason::ALL.len() + reasons_to_allow;
        assert!(MAX_BY_RULE + reasons * modes * rules + fixed <= MAX_METRICS);
    }

    #[test]
    fn the_number_of_metrics_is_bounded() {
        let mut metrics = Metrics::new();
        for number in 0..MAX_METRICS {
            metrics.counter(&format!("counter-{number}"));
        }
        let beyond = metrics.counter("one more");
        assert_eq!(beyond, metrics.counter("and another"));
        assert_eq!(metrics.gauge("a gauge"), metrics.gauge("another gauge"));
        assert_eq!(metrics.cells.len(), MAX_METRICS + 2);
    }
}
