//! What a tick reports of one configuration: caches, held requests, the ring, and the streams to the control plane.

use std::time::Duration;

use super::registry::{Counter, Gauge, Histogram, Level, Metrics};
use crate::audit::Source;
use crate::clock::Monotonic;
use crate::engine::Engine;
use crate::revocation::Watch;

/// The metrics of a configuration, other than its decisions.
#[derive(Debug)]
pub struct Gauges {
    cache_evictions: Total,
    cached_chains: Part,
    cached_bytes: Part,
    memory_bytes: Gauge,
    held: Part,
    shared_cache_hits: Total,
    shared_cache_beginnings: Total,
    shared_cache_misses: Total,
    shared_cache_stored: Total,
    shared_cache_dropped: Total,
    audit_shed: Total,
    audit_shed_counts: Total,
    audit_shed_chains: Total,
    audit_acknowledged: Total,
    audit_streams: Total,
    audit_waiting: Part,
    audit_ring_bytes: Part,
    audit_unanswered: Part,
    audit_lag_ms: Gauge,
    revocation_round_trip_us: Histogram,
    revocation_streams: Total,
    revocation_violations: Total,
    revocation_forgotten: Total,
    revocation_revision: Gauge,
    revocation_subjects: Gauge,
    lease_age_ms: Gauge,
}

/// What is reported at a tick.
#[derive(Debug)]
pub struct Observed<'a, K> {
    /// The engine, with its caches.
    pub engine: &'a Engine,
    /// What is recorded; `None` if nothing is.
    pub source: Option<&'a Source<K>>,
    /// The revocation view and its stream.
    pub watch: &'a Watch,
    /// Requests that are held.
    pub held: usize,
    /// Memory that the VM has.
    pub memory_bytes: u64,
}

/// A counter that follows a total which is counted elsewhere.
#[derive(Debug)]
struct Total {
    counter: Counter,
    reported: u64,
}

/// This configuration's part, in this VM, of what the whole process has.
#[derive(Debug)]
struct Part {
    level: Level,
    reported: u64,
}

impl Gauges {
    /// Nothing is reported yet.
    pub fn new(metrics: &mut Metrics) -> Self {
        let revocation_round_trip_us = metrics.histogram("credence_revocation_round_trip_us");
        let mut total = |name| Total {
            counter: metrics.counter(name),
            reported: 0,
        };
        Self {
            cache_evictions: total("credence_cache_evictions"),
            shared_cache_hits: total("credence_shared_cache_hits"),
            shared_cache_beginnings: total("credence_shared_cache_beginnings"),
            shared_cache_misses: total("credence_shared_cache_misses"),
            shared_cache_stored: total("credence_shared_cache_stored"),
            shared_cache_dropped: total("credence_shared_cache_dropped"),
            audit_shed: total("credence_audit_shed"),
            audit_shed_counts: total("credence_audit_shed_counts"),
            audit_shed_chains: total("credence_audit_shed_chains"),
            audit_acknowledged: total("credence_audit_acknowledged"),
            audit_streams: total("credence_audit_streams"),
            revocation_round_trip_us,
            revocation_streams: total("credence_revocation_streams"),
            revocation_violations: total("credence_revocation_violations"),
            revocation_forgotten: total("credence_revocation_forgotten"),
            cached_chains: Part::new(metrics, "credence_cached_chains"),
            cached_bytes: Part::new(metrics, "credence_cached_bytes"),
            memory_bytes: metrics.gauge("credence_memory_bytes"),
            held: Part::new(metrics, "credence_held"),
            audit_waiting: Part::new(metrics, "credence_audit_waiting"),
            audit_ring_bytes: Part::new(metrics, "credence_audit_ring_bytes"),
            audit_unanswered: Part::new(metrics, "credence_audit_unanswered"),
            audit_lag_ms: metrics.gauge("credence_audit_lag_ms"),
            revocation_revision: metrics.gauge("credence_revocation_revision"),
            revocation_subjects: metrics.gauge("credence_revocation_subjects"),
            lease_age_ms: metrics.gauge("credence_lease_age_ms"),
        }
    }

    /// Reports what a tick finds.
    pub fn report<K: Ord + Copy>(&mut self, observed: &Observed<'_, K>, now: Monotonic, metrics: &mut Metrics) {
        self.held.is_now(observed.held as u64, metrics);
        metrics.set(self.memory_bytes, observed.memory_bytes);
        self.report_caches(observed.engine, metrics);
        if let Some(source) = observed.source {
            self.report_source(source, now, metrics);
        }
        self.report_revocation(observed.watch, now, metrics);
    }

    fn report_caches(&mut self, engine: &Engine, metrics: &mut Metrics) {
        self.cache_evictions.follow(engine.cache().evictions(), metrics);
        self.cached_chains.is_now(engine.cache().len() as u64, metrics);
        self.cached_bytes.is_now(engine.cache().bytes() as u64, metrics);
        let shared = engine.shared_cache();
        self.shared_cache_hits.follow(shared.hits, metrics);
        self.shared_cache_beginnings.follow(shared.beginnings, metrics);
        self.shared_cache_misses.follow(shared.misses, metrics);
        self.shared_cache_stored.follow(shared.stored, metrics);
        self.shared_cache_dropped.follow(shared.dropped, metrics);
    }

    fn report_source<K: Ord + Copy>(&mut self, source: &Source<K>, now: Monotonic, metrics: &mut Metrics) {
        let (shed, counters, (entries, bytes)) = (source.shed(), source.counters(), source.waiting());
        self.audit_shed.follow(shed.events, metrics);
        self.audit_shed_counts.follow(shed.counts, metrics);
        self.audit_shed_chains.follow(shed.chains, metrics);
        self.audit_acknowledged.follow(counters.acknowledged, metrics);
        self.audit_streams.follow(counters.opened, metrics);
        self.audit_waiting.is_now(entries as u64, metrics);
        self.audit_ring_bytes.is_now(bytes as u64, metrics);
        self.audit_unanswered.is_now(source.unanswered() as u64, metrics);
        metrics.set(self.audit_lag_ms, milliseconds(source.lag(now)));
    }

    fn report_revocation(&mut self, watch: &Watch, now: Monotonic, metrics: &mut Metrics) {
        let counters = watch.counters();
        self.revocation_streams.follow(counters.opened, metrics);
        self.revocation_violations.follow(counters.violations, metrics);
        self.revocation_forgotten.follow(counters.forgotten, metrics);
        if let Some(view) = watch.view() {
            metrics.set(self.revocation_revision, view.revision());
            metrics.set(self.revocation_subjects, view.len() as u64);
        }
        metrics.set(self.lease_age_ms, watch.lease_age(now).map_or(u64::MAX, milliseconds));
    }

    /// How long an echo took that has come behind every revocation before it.
    pub fn observe_round_trip(&self, took: Duration, metrics: &mut Metrics) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        metrics.observe(self.revocation_round_trip_us, micros);
    }

    /// The configuration has ended: it has no part any more in what the process has.
    pub fn withdraw(&mut self, metrics: &mut Metrics) {
        for part in [
            &mut self.cached_chains,
            &mut self.cached_bytes,
            &mut self.held,
            &mut self.audit_waiting,
            &mut self.audit_ring_bytes,
            &mut self.audit_unanswered,
        ] {
            part.is_now(0, metrics);
        }
        // Of a VM that ends nobody would ever say otherwise.
        metrics.set(self.audit_lag_ms, 0);
    }
}

impl Part {
    fn new(metrics: &mut Metrics, name: &str) -> Self {
        Self {
            level: metrics.level(name),
            reported: 0,
        }
    }

    fn is_now(&mut self, value: u64, metrics: &mut Metrics) {
        metrics.bring_to(self.level, value, &mut self.reported);
    }
}

impl Total {
    fn follow(&mut self, total: u64, metrics: &mut Metrics) {
        metrics.add_up_to(self.counter, total, &mut self.reported);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
