//! What an operator can graph and alert on about the OpenTelemetry collector.

use credence_runtime::metrics::Group;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Low cardinality: no label ever holds something a client chose.
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
            sent: group.add("sent", "Records that the OpenTelemetry collector has taken"),
            refused: group.add("refused", "Records that the OpenTelemetry collector refused for good"),
            missed: group.add(
                "missed",
                "Records that were removed from the ledger before the OpenTelemetry collector took them",
            ),
            failures: group.add(
                "failures",
                "Requests to the OpenTelemetry collector that have to be sent again",
            ),
            waiting: group.add("waiting", "Records that wait for the OpenTelemetry collector"),
        }
    }
}
