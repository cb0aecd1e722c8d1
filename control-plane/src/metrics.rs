//! What an operator can graph and alert on. Low cardinality: no label ever holds something a client chose.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::audit::reverification::comparison::DifferenceKind;
use crate::client_limits::ShareMetrics;
use crate::tls::TlsMetrics;

/// Every metric, and the registry that `/metrics` encodes.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) subscribers: Gauge,
    pub(crate) watch_ended: Family<Outcome, Counter>,
    pub(crate) revocation_stalls: Counter,
    pub(crate) revocation_wait_seconds: Histogram,
    pub(crate) log_seq: Gauge,
    pub(crate) log_subjects: Gauge,
    pub(crate) log_subjects_limit: Gauge,
    pub(crate) log_bytes: Gauge,
    pub(crate) log_writable: Gauge,
    pub(crate) log_sync_seconds: Histogram,
    pub(crate) revocations: Family<Revocation, Counter>,
    pub(crate) log_compactions: Counter,
    pub(crate) log_compaction_failures: Counter,
    pub(crate) log_compaction_seconds: Histogram,
    pub(crate) log_compaction_pause_seconds: Histogram,
    pub(crate) log_forgotten: Counter,
    foreign_positions: Family<ForeignPosition, Counter>,
    pub(crate) log_clock_lag_seconds: Gauge,
    pub(crate) history_indexed_seq: Gauge,
    pub(crate) history_bytes: Gauge,
    pub(crate) history_dropped: Counter,
    pub(crate) history_failures: Counter,
    pub(crate) ledger_entries: Counter,
    pub(crate) ledger_batches: Counter,
    pub(crate) ledger_duplicates: Counter,
    pub(crate) ledger_lost_sources: Counter,
    pub(crate) ledger_bytes: Gauge,
    pub(crate) ledger_bytes_limit: Gauge,
    pub(crate) ledger_disk_free: Gauge,
    pub(crate) ledger_disk_reserve: Gauge,
    pub(crate) ledger_keys: Gauge,
    pub(crate) ledger_keys_limit: Gauge,
    pub(crate) ledger_pruned_segments: Counter,
    pub(crate) ledger_erasures: Counter,
    pub(crate) ledger_writable: Gauge,
    pub(crate) ledger_sync_seconds: Histogram,
    pub(crate) ledger_published: Gauge,
    pub(crate) ledger_published_time: Gauge,
    pub(crate) ledger_publish_failures: Counter,
    pub(crate) ledger_unreadable: Gauge,
    pub(crate) ledger_counted: Counter,
    pub(crate) ledger_witness_requests: Family<WitnessRequest, Counter>,
    pub(crate) ledger_witnessed: Family<WitnessName, Gauge>,
    pub(crate) chains_verified: Family<ChainVerified, Counter>,
    pub(crate) allows_checked: Family<AllowChecked, Counter>,
    pub(crate) mismatches: Family<Mismatched, Counter>,
    pub(crate) sources_with_other_anchors: Counter,
    pub(crate) unchecked_records: Gauge,
    pub(crate) report_streams: Gauge,
    pub(crate) report_ended: Family<Outcome, Counter>,
    pub(crate) http_requests: Family<HttpRequest, Counter>,
    pub(crate) grpc_refusals: Family<Outcome, Counter>,
    pub(crate) shares: ShareMetrics,
    pub(crate) tls: TlsMetrics,
    pub(crate) rate_limited: Family<RateLimited, Counter>,
    pub(crate) http_subscribers: Gauge,
    pub(crate) http_streams_ended: Family<StreamEnd, Counter>,
    pub(crate) scim_users: Family<ScimRealm, Gauge>,
    pub(crate) scim_changes: Family<ScimChange, Counter>,
    pub(crate) security_events: Family<SecurityEvent, Counter>,
    pub(crate) security_event_ids: Gauge,
    pub(crate) jwks_reads: Family<JwksRead, Counter>,
    pub(crate) otlp_sent: Counter,
    pub(crate) otlp_refused: Counter,
    pub(crate) otlp_missed: Counter,
    pub(crate) otlp_failures: Counter,
    pub(crate) otlp_waiting: Gauge,
}

/// How a stream ended: the gRPC status code's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub(crate) code: &'static str,
}

/// A recorded chain that was verified again: `verified` or `refused`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ChainVerified {
    pub(crate) outcome: &'static str,
}

/// An allow that was compared with its chain: `matched`, `mismatched`, `other_anchors` or `unchecked`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AllowChecked {
    pub(crate) outcome: &'static str,
}

/// How an allow differs from its chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Mismatched {
    pub(crate) kind: &'static str,
}

/// What came of a request to revoke.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Revocation {
    pub(crate) operation: &'static str,
    /// `operator`, `statement`, `provisioning` or `security_event`.
    pub(crate) source: &'static str,
    /// `changed`, `unchanged` or `refused`.
    pub(crate) outcome: &'static str,
}

/// A position that a client knows and the log does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForeignPosition {
    /// `proven` if the client proved that this log gave it out, else `claimed`.
    evidence: &'static str,
}

/// A realm of SCIM users, by its configured name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ScimRealm {
    pub(crate) realm: String,
}

/// What became of a SCIM user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ScimChange {
    pub(crate) realm: String,
    /// `created`, `updated` or `deleted`.
    pub(crate) change: &'static str,
}

/// What became of a security event token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SecurityEvent {
    /// The configured name.
    pub(crate) transmitter: String,
    /// `performed`, `acknowledged`, `ignored`, `repeated`, `outdated`, `unavailable`, or the `err` of a refusal.
    pub(crate) outcome: &'static str,
}

/// An attempt to read a transmitter's keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct JwksRead {
    pub(crate) transmitter: String,
    /// `read` or `failed`.
    pub(crate) outcome: &'static str,
}

/// A checkpoint that a witness was asked to cosign.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WitnessRequest {
    /// The name of its key.
    pub(crate) witness: String,
    /// `cosigned`, `unreachable`, `refused`, `false` or `ahead`.
    pub(crate) outcome: &'static str,
}

/// A witness, by the name of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WitnessName {
    pub(crate) witness: String,
}

/// An answered HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct HttpRequest {
    /// The route's template, or `none`.
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// A request that came too soon: after others of its `credential` or `address`, or too many `statements`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RateLimited {
    pub(crate) by: &'static str,
}

/// How an event stream ended: `closed`, `drained`, `slow`, `expired`, `withdrawn` or `failed`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StreamEnd {
    pub(crate) outcome: &'static str,
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("credence"),
            subscribers: Gauge::default(),
            watch_ended: Family::default(),
            revocation_stalls: Counter::default(),
            revocation_wait_seconds: wait_histogram(),
            log_seq: Gauge::default(),
            log_subjects: Gauge::default(),
            log_subjects_limit: Gauge::default(),
            log_bytes: Gauge::default(),
            log_writable: Gauge::default(),
            log_sync_seconds: sync_histogram(),
            revocations: Family::default(),
            log_compactions: Counter::default(),
            log_compaction_failures: Counter::default(),
            log_compaction_seconds: work_histogram(),
            log_compaction_pause_seconds: sync_histogram(),
            log_forgotten: Counter::default(),
            foreign_positions: Family::default(),
            log_clock_lag_seconds: Gauge::default(),
            history_indexed_seq: Gauge::default(),
            history_bytes: Gauge::default(),
            history_dropped: Counter::default(),
            history_failures: Counter::default(),
            ledger_entries: Counter::default(),
            ledger_batches: Counter::default(),
            ledger_duplicates: Counter::default(),
            ledger_lost_sources: Counter::default(),
            ledger_bytes: Gauge::default(),
            ledger_bytes_limit: Gauge::default(),
            ledger_disk_free: Gauge::default(),
            ledger_disk_reserve: Gauge::default(),
            ledger_keys: Gauge::default(),
            ledger_keys_limit: Gauge::default(),
            ledger_pruned_segments: Counter::default(),
            ledger_erasures: Counter::default(),
            ledger_writable: Gauge::default(),
            ledger_sync_seconds: sync_histogram(),
            ledger_published: Gauge::default(),
            ledger_published_time: Gauge::default(),
            ledger_publish_failures: Counter::default(),
            ledger_unreadable: Gauge::default(),
            ledger_counted: Counter::default(),
            ledger_witness_requests: Family::default(),
            ledger_witnessed: Family::default(),
            chains_verified: Family::default(),
            allows_checked: Family::default(),
            mismatches: Family::default(),
            sources_with_other_anchors: Counter::default(),
            unchecked_records: Gauge::default(),
            report_streams: Gauge::default(),
            report_ended: Family::default(),
            http_requests: Family::default(),
            grpc_refusals: Family::default(),
            shares: ShareMetrics::default(),
            tls: TlsMetrics::default(),
            rate_limited: Family::default(),
            http_subscribers: Gauge::default(),
            http_streams_ended: Family::default(),
            scim_users: Family::default(),
            scim_changes: Family::default(),
            security_events: Family::default(),
            security_event_ids: Gauge::default(),
            jwks_reads: Family::default(),
            otlp_sent: Counter::default(),
            otlp_refused: Counter::default(),
            otlp_missed: Counter::default(),
            otlp_failures: Counter::default(),
            otlp_waiting: Gauge::default(),
        };
        metrics.register();
        metrics.initialise_labels();
        metrics
    }

    /// A counter that appears with the first of its kind hides it from `increase()`: these have to be seen
    /// with the first.
    fn initialise_labels(&self) {
        for kind in DifferenceKind::ALL.map(DifferenceKind::name) {
            self.mismatches.get_or_create(&Mismatched { kind }).inc_by(0);
        }
        for proven in [true, false] {
            self.foreign_position(proven).inc_by(0);
        }
    }

    /// Counts a client that knows a position which the log does not.
    pub(crate) fn note_foreign_position(&self, proven: bool) {
        self.foreign_position(proven).inc();
    }

    /// Counts a watch stream that has ended, or that was refused.
    pub(crate) fn note_watch_ended(&self, code: tonic::Code) {
        let code = code_name(code);
        self.watch_ended.get_or_create(&Outcome { code }).inc();
    }

    fn foreign_position(&self, proven: bool) -> impl std::ops::Deref<Target = Counter> {
        let evidence = if proven { "proven" } else { "claimed" };
        self.foreign_positions.get_or_create(&ForeignPosition { evidence })
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        self.tls.register(registry);
        self.shares.register(registry);
        registry.register(
            "grpc_refusals",
            "Streams refused or ended for want of a credential, by gRPC status",
            self.grpc_refusals.clone(),
        );
        let log = registry.sub_registry_with_prefix("revocation");
        log.register("subscribers", "Watch streams that are open", self.subscribers.clone());
        log.register(
            "watch_ended",
            "Watch streams that ended, by gRPC status",
            self.watch_ended.clone(),
        );
        log.register(
            "stalls",
            "Filters that left a revocation unapplied for half a second, so that it was confirmed late",
            self.revocation_stalls.clone(),
        );
        log.register_with_unit(
            "wait",
            "Time that calls with wait=applied waited, whether the revocation was confirmed meanwhile or not",
            Unit::Seconds,
            self.revocation_wait_seconds.clone(),
        );
        log.register(
            "log_seq",
            "Sequence number of the last durable record",
            self.log_seq.clone(),
        );
        log.register("log_subjects", "Subjects in the log", self.log_subjects.clone());
        log.register(
            "log_subjects_limit",
            "Subjects that the log may hold",
            self.log_subjects_limit.clone(),
        );
        log.register_with_unit("log", "Size of the log's file", Unit::Bytes, self.log_bytes.clone());
        log.register(
            "log_writable",
            "1 unless the last write failed",
            self.log_writable.clone(),
        );
        log.register_with_unit(
            "log_sync",
            "Time to write and fdatasync a group of records",
            Unit::Seconds,
            self.log_sync_seconds.clone(),
        );
        log.register(
            "requests",
            "Requests to revoke, by operation, source and outcome",
            self.revocations.clone(),
        );
        log.register(
            "log_compactions",
            "Compacted files that took the place of the log's file",
            self.log_compactions.clone(),
        );
        log.register(
            "log_compaction_failures",
            "Compactions that failed; the log went on in the file it had",
            self.log_compaction_failures.clone(),
        );
        log.register_with_unit(
            "log_compaction",
            "Time to make a compacted file, in the background",
            Unit::Seconds,
            self.log_compaction_seconds.clone(),
        );
        log.register_with_unit(
            "log_compaction_pause",
            "Time to go on in the compacted file, in which no revocation is acknowledged",
            Unit::Seconds,
            self.log_compaction_pause_seconds.clone(),
        );
        log.register(
            "foreign_positions",
            "Streams refused because the client knows this log by another history, or a longer one, by whether it can prove that \
             this log gave it out",
            self.foreign_positions.clone(),
        );
        log.register(
            "log_forgotten_delegations",
            "Revoked delegations forgotten because every token that could carry them has expired",
            self.log_forgotten.clone(),
        );
        log.register_with_unit(
            "log_clock_lag",
            "How far the log's own clock, by which delegations are forgotten, is behind the wall clock",
            Unit::Seconds,
            self.log_clock_lag_seconds.clone(),
        );
        log.register(
            "history_indexed_seq",
            "Sequence number up to which the index of histories goes",
            self.history_indexed_seq.clone(),
        );
        log.register_with_unit(
            "history",
            "Size of the index of histories",
            Unit::Bytes,
            self.history_bytes.clone(),
        );
        log.register(
            "history_dropped",
            "Entries beyond what is kept of one principal's history",
            self.history_dropped.clone(),
        );
        log.register(
            "history_failures",
            "Times that the index of histories could not be kept",
            self.history_failures.clone(),
        );

        let ledger = registry.sub_registry_with_prefix("ledger");
        ledger.register(
            "entries",
            "Entries made durable since the start",
            self.ledger_entries.clone(),
        );
        ledger.register(
            "batches",
            "Batches made durable since the start",
            self.ledger_batches.clone(),
        );
        ledger.register(
            "duplicate_entries",
            "Entries sent again and already stored",
            self.ledger_duplicates.clone(),
        );
        ledger.register(
            "lost_sources",
            "Sources that ended with their tail unknown",
            self.ledger_lost_sources.clone(),
        );
        ledger.register(
            "data_keys",
            "Data keys that entries are sealed with, erased ones included",
            self.ledger_keys.clone(),
        );
        ledger.register(
            "data_keys_limit",
            "Data keys that the ledger may have",
            self.ledger_keys_limit.clone(),
        );
        ledger.register(
            "pruned_segments",
            "Segments that the retention removed",
            self.ledger_pruned_segments.clone(),
        );
        ledger.register(
            "erasures",
            "Principals whose evidence was erased",
            self.ledger_erasures.clone(),
        );
        ledger.register_with_unit(
            "size",
            "Size of the ledger on disk",
            Unit::Bytes,
            self.ledger_bytes.clone(),
        );
        ledger.register_with_unit(
            "limit",
            "Size that the ledger may have on disk",
            Unit::Bytes,
            self.ledger_bytes_limit.clone(),
        );
        ledger.register_with_unit(
            "disk_free",
            "What is free on the ledger's file system",
            Unit::Bytes,
            self.ledger_disk_free.clone(),
        );
        ledger.register_with_unit(
            "disk_reserve",
            "What of that the ledger leaves to revocations and others",
            Unit::Bytes,
            self.ledger_disk_reserve.clone(),
        );
        ledger.register(
            "writable",
            "1 unless the last write failed",
            self.ledger_writable.clone(),
        );
        ledger.register_with_unit(
            "sync",
            "Time to write and fdatasync a group of batches",
            Unit::Seconds,
            self.ledger_sync_seconds.clone(),
        );
        ledger.register(
            "published_entries",
            "Entries that the latest checkpoint commits to",
            self.ledger_published.clone(),
        );
        ledger.register_with_unit(
            "published_time",
            "When the latest checkpoint was published, in seconds since the Unix epoch; 0 if none was since the start",
            Unit::Seconds,
            self.ledger_published_time.clone(),
        );
        ledger.register(
            "publish_failures",
            "Checkpoints that could not be signed or written",
            self.ledger_publish_failures.clone(),
        );
        ledger.register(
            "unreadable_records",
            "Records that were asked for and cannot be read as they were written",
            self.ledger_unreadable.clone(),
        );
        ledger.register(
            "counted_entries",
            "Entries that were counted, since their principals hold more than their share of the ledger",
            self.ledger_counted.clone(),
        );
        ledger.register(
            "witness_requests",
            "Checkpoints that a witness was asked to cosign, by witness and outcome",
            self.ledger_witness_requests.clone(),
        );
        ledger.register(
            "witnessed_entries",
            "Entries that the last checkpoint commits to which a witness cosigned",
            self.ledger_witnessed.clone(),
        );
        ledger.register(
            "chains_verified",
            "Recorded chains verified again under the control plane's trust anchors",
            self.chains_verified.clone(),
        );
        ledger.register(
            "allows_checked",
            "Allows compared with the chain that they name",
            self.allows_checked.clone(),
        );
        ledger.register(
            "mismatches",
            "Allows that are not what their chain says, by how",
            self.mismatches.clone(),
        );
        ledger.register(
            "sources_with_other_anchors",
            "Sources that were found to trust other anchors and to allow by them",
            self.sources_with_other_anchors.clone(),
        );
        ledger.register(
            "unchecked_records",
            "Records that are durable and not yet verified again; -1 if nothing is, as no trust_anchors are configured",
            self.unchecked_records.clone(),
        );
        ledger.register(
            "report_streams",
            "Audit streams that are open",
            self.report_streams.clone(),
        );
        ledger.register(
            "report_ended",
            "Audit streams that ended, by gRPC status",
            self.report_ended.clone(),
        );

        registry.register(
            "http_requests",
            "HTTP requests answered, by route and status",
            self.http_requests.clone(),
        );
        registry.register(
            "http_rate_limited",
            "HTTP requests answered 429, by whose rate was exceeded",
            self.rate_limited.clone(),
        );
        registry.register(
            "http_subscribers",
            "Event streams that are open",
            self.http_subscribers.clone(),
        );
        registry.register(
            "http_streams_ended",
            "Event streams that ended, by outcome",
            self.http_streams_ended.clone(),
        );
        registry.register("scim_users", "Users, by SCIM realm", self.scim_users.clone());
        registry.register(
            "scim_changes",
            "Users created, updated and deleted by SCIM, by realm",
            self.scim_changes.clone(),
        );
        registry.register(
            "security_events",
            "Security event tokens received, by transmitter and outcome",
            self.security_events.clone(),
        );
        registry.register(
            "security_event_ids",
            "Security event tokens that are remembered",
            self.security_event_ids.clone(),
        );
        registry.register(
            "jwks_reads",
            "Attempts to read the keys of a transmitter of security events, by outcome",
            self.jwks_reads.clone(),
        );
        let otlp = registry.sub_registry_with_prefix("otlp");
        otlp.register(
            "sent",
            "Records that the OpenTelemetry collector has taken",
            self.otlp_sent.clone(),
        );
        otlp.register(
            "refused",
            "Records that the OpenTelemetry collector refused for good",
            self.otlp_refused.clone(),
        );
        otlp.register(
            "missed",
            "Records that were removed from the ledger before the OpenTelemetry collector took them",
            self.otlp_missed.clone(),
        );
        otlp.register(
            "failures",
            "Requests to the OpenTelemetry collector that have to be sent again",
            self.otlp_failures.clone(),
        );
        otlp.register(
            "waiting",
            "Records that wait for the OpenTelemetry collector",
            self.otlp_waiting.clone(),
        );
    }
}

/// Counts a stream for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

// === impl Counted ===

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The name of a gRPC status code, as the specification spells it.
pub(crate) fn code_name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "CANCELLED",
        tonic::Code::Unknown => "UNKNOWN",
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        tonic::Code::PermissionDenied => "PERMISSION_DENIED",
        tonic::Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        tonic::Code::FailedPrecondition => "FAILED_PRECONDITION",
        tonic::Code::Aborted => "ABORTED",
        tonic::Code::OutOfRange => "OUT_OF_RANGE",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DataLoss => "DATA_LOSS",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// 0.1 ms to 6.5 s: from a good NVMe drive to a volume in trouble.
fn sync_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 17))
}

/// 1 ms to 16 s: from filters that are healthy to the longest that a call waits.
fn wait_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// 10 ms to 5 min: what is done in the background in proportion to the size of the log.
fn work_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 16))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::client_limits::SharedLimit;

    /// With something to count for each that has labels, for without they are not shown.
    fn shown() -> String {
        let metrics = Metrics::new();
        let code = "OK";
        let outcome = "success";
        let (realm, transmitter) = ("staff".to_owned(), "okta".to_owned());
        metrics.watch_ended.get_or_create(&Outcome { code }).inc();
        metrics.report_ended.get_or_create(&Outcome { code }).inc();
        metrics.grpc_refusals.get_or_create(&Outcome { code }).inc();
        let revocation = Revocation {
            operation: "raise",
            source: "operator",
            outcome,
        };
        metrics.revocations.get_or_create(&revocation).inc();
        let request = HttpRequest {
            route: "none".to_owned(),
            status: 404,
        };
        metrics.http_requests.get_or_create(&request).inc();
        metrics.rate_limited.get_or_create(&RateLimited { by: "address" }).inc();
        metrics.http_streams_ended.get_or_create(&StreamEnd { outcome }).inc();
        metrics
            .scim_users
            .get_or_create(&ScimRealm { realm: realm.clone() })
            .inc();
        let change = ScimChange {
            realm,
            change: "created",
        };
        metrics.scim_changes.get_or_create(&change).inc();
        let event = SecurityEvent {
            transmitter: transmitter.clone(),
            outcome,
        };
        metrics.security_events.get_or_create(&event).inc();
        let read = JwksRead { transmitter, outcome };
        metrics.jwks_reads.get_or_create(&read).inc();
        let witness = "witness.example".to_owned();
        metrics
            .ledger_witnessed
            .get_or_create(&WitnessName {
                witness: witness.clone(),
            })
            .set(1);
        metrics
            .ledger_witness_requests
            .get_or_create(&WitnessRequest { witness, outcome })
            .inc();
        metrics.chains_verified.get_or_create(&ChainVerified { outcome }).inc();
        metrics.allows_checked.get_or_create(&AllowChecked { outcome }).inc();
        metrics.mismatches.get_or_create(&Mismatched { kind: "tool" }).inc();
        metrics.tls.count_one_of_each();
        metrics.shares.announce(SharedLimit::Calls, 1);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics.registry).unwrap();
        text
    }

    #[test]
    fn the_guide_has_every_metric_with_its_kind_and_no_other() {
        let text = shown();
        let shown: BTreeSet<(String, String)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| {
                let suffix = if kind == "counter" { "_total" } else { "" };
                (format!("{name}{suffix}"), kind.to_owned())
            })
            .collect();
        let guide = include_str!("../../docs/control-plane.md");
        let documented: BTreeSet<(String, String)> = guide
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `credence_")?.split('|').map(str::trim);
                let name = cells.next()?.strip_suffix('`')?;
                Some((format!("credence_{name}"), cells.next()?.to_owned()))
            })
            .collect();
        assert_eq!(shown, documented);
    }
}
