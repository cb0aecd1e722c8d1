//! The metrics of the OpenTelemetry export.

use credence_runtime::metrics::Group;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// No label holds a value that a client chose, so there are few series.
#[derive(Debug)]
pub struct Metrics {
    pub sent: Counter,
    pub refused: Counter,
    pub missed: Counter,
    pub failures: Counter,
    pub waiting: Gauge,
}

// === impl Metrics ===

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "otlp");
        Self {
            sent: group.add("sent", "Records sent"),
            refused: group.add("refused", "Records refused"),
            missed: group.add("missed", "Records removed before they were sent"),
            failures: group.add("failures", "Requests to repeat"),
            waiting: group.add("waiting", "Records to send"),
        }
    }
}
