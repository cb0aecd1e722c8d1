//! Building blocks for the metrics of all parts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};

/// Label names with their values. Clients cannot choose values, so there are few.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// One counter for each combination of labels.
pub type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// One gauge for each combination of labels.
pub type Gauges<const N: usize> = Family<Labels<N>, Gauge>;

/// Registers metrics with a common prefix.
pub struct Group<'a>(&'a mut Registry);

// === impl Group ===

impl<'a> Group<'a> {
    /// Metrics named `credence_PREFIX_…`.
    pub fn new(registry: &'a mut Registry, prefix: &str) -> Self {
        Self(registry.sub_registry_with_prefix(prefix))
    }

    /// Metrics named `credence_…`.
    pub fn without_prefix(registry: &'a mut Registry) -> Self {
        Self(registry)
    }

    pub fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    /// Adds a metric whose name ends in the unit.
    pub fn add_in<M: Metric + Clone + Default>(&mut self, unit: Unit, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }

    /// Adds a histogram in seconds. It has this number of buckets, each twice as wide as the one before, starting at
    /// this width.
    pub fn add_seconds(&mut self, name: &str, help: &str, from: f64, buckets: u16) -> Histogram {
        let histogram = Histogram::new(exponential_buckets(from, 2.0, buckets));
        self.0.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        histogram
    }
}

pub fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels<N> {
    pairs.map(|(name, value)| (name, value.to_owned()))
}

/// Adds one to the counter with these labels.
pub fn count<const N: usize>(counters: &Counters<N>, pairs: [(&'static str, &str); N]) {
    counters.get_or_create(&labels(pairs)).inc();
}

/// Counts a stream until it is dropped.
#[derive(Debug)]
pub struct Counted(Gauge);

// === impl Counted ===

impl Counted {
    pub fn new(gauge: &Gauge) -> Self {
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
pub fn code_name(code: tonic::Code) -> &'static str {
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
