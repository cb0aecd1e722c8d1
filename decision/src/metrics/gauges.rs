//! The metrics that a tick reports: of a configuration (caches, held requests, the ring, its stream to the control plane),
//! and of a revocation view, which configurations share.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::registry::MetricKind::{Counter, Gauge, Histogram, Level};
use super::registry::{Metric, MetricKind, Metrics, VmMetrics};
use crate::audit::SourceFigures;
use crate::clock::Monotonic;
use crate::engine::Engine;
use crate::revocation::Watch;

/// The metrics of a configuration, other than its decisions.
#[derive(Debug)]
pub struct Gauges(Reported);

/// The metrics of a revocation view and its stream. Configurations that share them count nothing twice.
#[derive(Debug)]
pub struct WatchGauges {
    reported: Reported,
    round_trip_us: Metric,
}

/// Metrics, and what was last reported of each.
#[derive(Debug)]
struct Reported {
    told: BTreeMap<&'static str, Told>,
    metrics: VmMetrics,
}

/// A metric, and its last reported value.
#[derive(Debug)]
struct Told {
    kind: MetricKind,
    metric: Metric,
    value: u64,
}

/// The values of a configuration to report at a tick.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The engine, with its caches.
    pub engine: &'a Engine,
    /// The evidence; `None` if none is recorded.
    pub source: Option<SourceFigures>,
    /// Held requests.
    pub held: usize,
    /// Open exchanges with MCP servers, and how many were ended before their time.
    pub exchanges: (usize, u64),
    /// The VM's memory.
    pub memory_bytes: u64,
}

impl Gauges {
    /// Nothing is reported yet.
    pub fn new(metrics: &VmMetrics) -> Self {
        // Not every tick has a value for it.
        metrics.borrow_mut().define(Gauge, AUDIT_LAG);
        Self(Reported::new(metrics))
    }

    /// Reports the values of a tick.
    pub fn report(&mut self, observed: &Observed<'_>) {
        let mut tell = |kind, name, value| self.0.tell(kind, name, value);
        tell(Level, "credence_held", observed.held as u64);
        let (exchanges, cut) = observed.exchanges;
        tell(Level, "credence_mcp_exchanges", exchanges as u64);
        tell(Counter, "credence_mcp_exchanges_cut", cut);
        tell(Gauge, "credence_memory_bytes", observed.memory_bytes);

        let cache = observed.engine.cache();
        tell(Counter, "credence_cache_evictions", cache.evictions);
        tell(Level, "credence_cached_chains", cache.len() as u64);
        tell(Level, "credence_cached_bytes", cache.bytes() as u64);
        let shared = observed.engine.shared_cache();
        tell(Counter, "credence_shared_cache_hits", shared.hits);
        tell(Counter, "credence_shared_cache_beginnings", shared.beginnings);
        tell(Counter, "credence_shared_cache_misses", shared.misses);
        tell(Counter, "credence_shared_cache_stored", shared.stored);
        tell(Counter, "credence_shared_cache_dropped", shared.dropped);

        let source = observed.source.unwrap_or_default();
        tell(Counter, "credence_audit_shed", source.shed.events);
        tell(Counter, "credence_audit_shed_counts", source.shed.counts);
        tell(Counter, "credence_audit_shed_chains", source.shed.chains);
        tell(Counter, "credence_audit_acknowledged", source.stream.acknowledged);
        tell(Counter, "credence_audit_streams", source.stream.opened);
        tell(Level, "credence_audit_waiting", source.waiting as u64);
        tell(Level, "credence_audit_ring_bytes", source.ring_bytes as u64);
        tell(Level, "credence_audit_unanswered", source.unanswered as u64);
        if observed.source.is_some() {
            tell(Gauge, AUDIT_LAG, milliseconds(source.lag));
        }
    }

    /// The configuration has ended: subtracts its part from the process-wide levels.
    pub fn withdraw(&mut self) {
        let mut metrics = self.0.metrics.borrow_mut();
        // Otherwise the lag of an ended VM would stay.
        let ends = |name, told: &Told| told.kind == Level || name == AUDIT_LAG;
        for (_, told) in self.0.told.iter_mut().filter(|(name, told)| ends(**name, told)) {
            told.is_now(0, &mut metrics);
        }
    }
}

impl WatchGauges {
    /// Nothing is reported yet.
    pub fn new(metrics: &VmMetrics) -> Self {
        let define = |kind, name| metrics.borrow_mut().define(kind, name);
        // Not every tick has a value for these.
        for name in [REVISION, SUBJECTS] {
            define(Gauge, name);
        }
        Self {
            round_trip_us: define(Histogram, "credence_revocation_round_trip_us"),
            reported: Reported::new(metrics),
        }
    }

    /// Reports the values of a tick.
    pub fn report(&mut self, watch: &Watch, now: Monotonic) {
        let mut tell = |kind, name, value| self.reported.tell(kind, name, value);
        tell(Counter, "credence_revocation_streams", watch.counters.opened);
        tell(Counter, "credence_revocation_violations", watch.counters.violations);
        tell(Counter, "credence_revocation_forgotten", watch.counters.forgotten);
        if let Some(view) = watch.view() {
            tell(Gauge, REVISION, view.revision());
            tell(Gauge, SUBJECTS, view.len() as u64);
        }
        let lease_age = watch.lease_age(now).map_or(u64::MAX, milliseconds);
        tell(Gauge, "credence_lease_age_ms", lease_age);
    }

    /// Reports the time of an echo, which comes after every earlier revocation.
    pub fn observe_round_trip(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.reported.metrics.borrow_mut().observe(self.round_trip_us, micros);
    }
}

impl Reported {
    fn new(metrics: &VmMetrics) -> Self {
        Self {
            told: BTreeMap::new(),
            metrics: Rc::clone(metrics),
        }
    }

    fn tell(&mut self, kind: MetricKind, name: &'static str, value: u64) {
        let mut metrics = self.metrics.borrow_mut();
        let told = self.told.entry(name).or_insert_with(|| Told {
            kind,
            metric: metrics.define(kind, name),
            value: 0,
        });
        told.is_now(value, &mut metrics);
    }
}

impl Told {
    fn is_now(&mut self, value: u64, metrics: &mut Metrics) {
        match self.kind {
            Gauge => metrics.set(self.metric, value),
            Counter | Level => metrics.bring_to(self.metric, self.value, value),
            Histogram => metrics.observe(self.metric, value),
        }
        self.value = value;
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const AUDIT_LAG: &str = "credence_audit_lag_ms";
const REVISION: &str = "credence_revocation_revision";
const SUBJECTS: &str = "credence_revocation_subjects";
