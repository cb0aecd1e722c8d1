//! The metrics of the revocation log.

use credence_runtime::metrics::{Counters, Group, code_name, labels};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// No label holds a value that a client chose, so there are few series.
#[derive(Debug)]
pub struct Metrics {
    pub subscribers: Gauge,
    pub watch_ended: Counters<1>,
    pub revocation_stalls: Counter,
    pub revocation_wait_seconds: Histogram,
    pub log_seq: Gauge,
    pub log_subjects: Gauge,
    pub log_subjects_limit: Gauge,
    pub log_bytes: Gauge,
    pub log_writable: Gauge,
    pub log_sync_seconds: Histogram,
    pub revocations: Counters<3>,
    pub log_compactions: Counter,
    pub log_compaction_failures: Counter,
    pub log_compaction_seconds: Histogram,
    pub log_compaction_pause_seconds: Histogram,
    foreign_positions: Counters<1>,
    pub log_forgotten: Counter,
    pub log_clock_lag_seconds: Gauge,
    pub history_indexed_seq: Gauge,
    pub history_bytes: Gauge,
    pub history_dropped: Counter,
    pub history_failures: Counter,
    pub quorum: Gauge,
    pub replicas: Gauge,
}

// === impl Metrics ===

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "revocation");
        let metrics = Self {
            subscribers: group.add("subscribers", "Open revocation streams"),
            watch_ended: group.add("watch_ended", "Ended revocation streams, by code"),
            revocation_stalls: group.add("stalls", "Filters that delayed a revocation"),
            revocation_wait_seconds: group.add_seconds("wait", "Wait for confirmation", 0.001, 15),
            log_seq: group.add("log_seq", "Last durable entry"),
            log_subjects: group.add("log_subjects", "Subjects in the log"),
            log_subjects_limit: group.add("log_subjects_limit", "Limit of subjects"),
            log_bytes: group.add_in(Unit::Bytes, "log", "Size of the log"),
            log_writable: group.add("log_writable", "0 after a failed write"),
            log_sync_seconds: group.add_seconds("log_sync", "Time to store a group of entries", 0.0001, 17),
            revocations: group.add("requests", "Requests to revoke, by operation, source, outcome"),
            log_compactions: group.add("log_compactions", "Compactions"),
            log_compaction_failures: group.add("log_compaction_failures", "Failed compactions"),
            log_compaction_seconds: group.add_seconds("log_compaction", "Duration of a compaction", 0.01, 16),
            log_compaction_pause_seconds: group.add_seconds(
                "log_compaction_pause",
                "Longest pause in a compaction",
                0.0001,
                17,
            ),
            foreign_positions: group.add("foreign_positions", "Clients with another history, by evidence"),
            log_forgotten: group.add("log_forgotten_delegations", "Delegations forgotten after expiry"),
            log_clock_lag_seconds: group.add_in(Unit::Seconds, "log_clock_lag", "Log clock behind the wall clock"),
            history_indexed_seq: group.add("history_indexed_seq", "Entry to which histories are indexed"),
            history_bytes: group.add_in(Unit::Bytes, "history", "Size of the history index"),
            history_dropped: group.add("history_dropped", "Entries beyond --history-kept"),
            history_failures: group.add("history_failures", "Failed updates of histories"),
            quorum: group.add("quorum", "0 while no quorum of the store answers"),
            replicas: group.add("replicas", "Control planes that share the log"),
        };
        // Of a log that only this process has.
        metrics.quorum.set(1);
        metrics.replicas.set(1);
        // Creates the counters at 0: `increase()` would not see a counter that appears with the first event.
        for proven in [true, false] {
            metrics.foreign_position(proven).inc_by(0);
        }
        metrics
    }

    /// Counts a client with a position that the log does not have: `proven` if the client proved that this log gave it
    /// out.
    pub fn count_foreign_position(&self, proven: bool) {
        self.foreign_position(proven).inc();
    }

    /// Counts a watch stream that ended or was refused.
    pub fn count_watch_ended(&self, code: tonic::Code) {
        self.watch_ended
            .get_or_create(&labels([("code", code_name(code))]))
            .inc();
    }

    fn foreign_position(&self, proven: bool) -> impl std::ops::Deref<Target = Counter> {
        let evidence = if proven { "proven" } else { "claimed" };
        self.foreign_positions.get_or_create(&labels([("evidence", evidence)]))
    }
}
