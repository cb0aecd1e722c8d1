//! What an operator can graph and alert on about evidence.

use credence_runtime::metrics::{Counters, Gauges, Group, labels};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use strum::VariantArray as _;

use crate::reverification::comparison::DifferenceKind;

/// Low cardinality: no label ever holds something a client chose.
#[derive(Debug)]
pub struct Metrics {
    pub ledger_entries: Counter,
    pub ledger_batches: Counter,
    pub ledger_duplicates: Counter,
    pub ledger_lost_sources: Counter,
    pub ledger_keys: Gauge,
    pub ledger_keys_limit: Gauge,
    pub ledger_pruned_segments: Counter,
    pub ledger_erasures: Counter,
    pub ledger_bytes: Gauge,
    pub ledger_bytes_limit: Gauge,
    pub ledger_disk_free: Gauge,
    pub ledger_disk_reserve: Gauge,
    pub ledger_writable: Gauge,
    pub ledger_sync_seconds: Histogram,
    pub ledger_published: Gauge,
    pub ledger_published_time: Gauge,
    pub ledger_publish_failures: Counter,
    pub ledger_unreadable: Gauge,
    pub ledger_counted: Counter,
    pub ledger_witness_requests: Counters<2>,
    pub ledger_witnessed: Gauges<1>,
    pub chains_verified: Counters<1>,
    pub allows_checked: Counters<1>,
    pub mismatches: Counters<1>,
    pub sources_with_other_anchors: Counter,
    pub unchecked_records: Gauge,
    pub report_streams: Gauge,
    pub report_ended: Counters<1>,
}

// === impl Metrics ===

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "ledger");
        let metrics = Self {
            ledger_entries: group.add("entries", "Entries made durable since the start"),
            ledger_batches: group.add("batches", "Batches made durable since the start"),
            ledger_duplicates: group.add("duplicate_entries", "Entries sent again and already stored"),
            ledger_lost_sources: group.add("lost_sources", "Sources that ended with their tail unknown"),
            ledger_keys: group.add("data_keys", "Data keys that entries are sealed with, erased ones included"),
            ledger_keys_limit: group.add("data_keys_limit", "Data keys that the ledger may have"),
            ledger_pruned_segments: group.add("pruned_segments", "Segments that the retention removed"),
            ledger_erasures: group.add("erasures", "Principals whose evidence was erased"),
            ledger_bytes: group.add_in(Unit::Bytes, "size", "Size of the ledger on disk"),
            ledger_bytes_limit: group.add_in(Unit::Bytes, "limit", "Size that the ledger may have on disk"),
            ledger_disk_free: group.add_in(Unit::Bytes, "disk_free", "What is free on the ledger's file system"),
            ledger_disk_reserve: group.add_in(Unit::Bytes, "disk_reserve", "What of that the ledger leaves to revocations and others"),
            ledger_writable: group.add("writable", "1 unless the last write failed"),
            ledger_sync_seconds: group.add_seconds("sync", "Time to write and fdatasync a group of batches", 0.0001, 17),
            ledger_published: group.add("published_entries", "Entries that the latest checkpoint commits to"),
            ledger_published_time: group.add_in(Unit::Seconds, "published_time", "When the latest checkpoint was published, in seconds since the Unix epoch; 0 if none was since the start"),
            ledger_publish_failures: group.add("publish_failures", "Checkpoints that could not be signed or written"),
            ledger_unreadable: group.add("unreadable_records", "Records that were asked for and cannot be read as they were written"),
            ledger_counted: group.add("counted_entries", "Entries that were counted, since their principals hold more than their share of the ledger"),
            ledger_witness_requests: group.add("witness_requests", "Checkpoints that a witness was asked to cosign, by witness and outcome"),
            ledger_witnessed: group.add("witnessed_entries", "Entries that the last checkpoint commits to which a witness cosigned"),
            chains_verified: group.add("chains_verified", "Recorded chains verified again under the control plane's trust anchors"),
            allows_checked: group.add("allows_checked", "Allows compared with the chain that they name"),
            mismatches: group.add("mismatches", "Allows that are not what their chain says, by how"),
            sources_with_other_anchors: group.add("sources_with_other_anchors", "Sources that were found to trust other anchors and to allow by them"),
            unchecked_records: group.add("unchecked_records", "Records that are durable and not yet verified again; -1 if nothing is, as no trust_anchors are configured"),
            report_streams: group.add("report_streams", "Audit streams that are open"),
            report_ended: group.add("report_ended", "Audit streams that ended, by gRPC status"),
        };
        // A counter that appears with the first of its kind hides it from `increase()`.
        for kind in DifferenceKind::VARIANTS {
            let kind = kind.into();
            count(&metrics.mismatches, [("kind", kind)], 0);
        }
        metrics
    }
}

/// Adds to the counter with these labels, which begins at 0.
pub(crate) fn count<const N: usize>(counters: &Counters<N>, pairs: [(&'static str, &str); N], more: u64) {
    counters.get_or_create(&labels(pairs)).inc_by(more);
}
