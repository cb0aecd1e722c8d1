//! What an operator can graph and alert on. Low cardinality: no label ever holds something a client chose.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Every metric, and the registry that `/metrics` encodes.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) subscribers: Gauge,
    pub(crate) watch_ended: Family<Outcome, Counter>,
    pub(crate) log_seq: Gauge,
    pub(crate) log_subjects: Gauge,
    pub(crate) log_bytes: Gauge,
    pub(crate) log_writable: Gauge,
    pub(crate) log_sync_seconds: Histogram,
    pub(crate) revocations: Family<Revocation, Counter>,
    pub(crate) ledger_entries: Counter,
    pub(crate) ledger_batches: Counter,
    pub(crate) ledger_duplicates: Counter,
    pub(crate) ledger_lost_sources: Counter,
    pub(crate) ledger_bytes: Gauge,
    pub(crate) ledger_writable: Gauge,
    pub(crate) ledger_sync_seconds: Histogram,
    pub(crate) report_streams: Gauge,
    pub(crate) report_ended: Family<Outcome, Counter>,
    pub(crate) http_requests: Family<HttpRequest, Counter>,
    pub(crate) rate_limited: Family<RateLimited, Counter>,
    pub(crate) http_subscribers: Gauge,
    pub(crate) http_streams_ended: Family<StreamEnd, Counter>,
}

/// How a stream ended: the gRPC status code's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub(crate) code: &'static str,
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

/// How an event stream ended: `closed`, `drained`, `slow`, `expired` or `failed`.
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
            log_seq: Gauge::default(),
            log_subjects: Gauge::default(),
            log_bytes: Gauge::default(),
            log_writable: Gauge::default(),
            log_sync_seconds: sync_histogram(),
            revocations: Family::default(),
            ledger_entries: Counter::default(),
            ledger_batches: Counter::default(),
            ledger_duplicates: Counter::default(),
            ledger_lost_sources: Counter::default(),
            ledger_bytes: Gauge::default(),
            ledger_writable: Gauge::default(),
            ledger_sync_seconds: sync_histogram(),
            report_streams: Gauge::default(),
            report_ended: Family::default(),
            http_requests: Family::default(),
            rate_limited: Family::default(),
            http_subscribers: Gauge::default(),
            http_streams_ended: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let log = registry.sub_registry_with_prefix("revocation");
        log.register("subscribers", "Watch streams that are open", self.subscribers.clone());
        log.register(
            "watch_ended",
            "Watch streams that ended, by gRPC status",
            self.watch_ended.clone(),
        );
        log.register(
            "log_seq",
            "Sequence number of the last durable record",
            self.log_seq.clone(),
        );
        log.register("log_subjects", "Subjects in the log", self.log_subjects.clone());
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
        ledger.register_with_unit(
            "size",
            "Size of the ledger on disk",
            Unit::Bytes,
            self.ledger_bytes.clone(),
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
