//! The metrics of evidence.

use credence_runtime::metrics::{Counters, Gauges, Group, labels};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use strum::VariantArray as _;

use crate::reverification::comparison::DifferenceKind;

/// No label holds a value that a client chose, so there are few series.
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
            ledger_entries: group.add("entries", "Entries stored since start"),
            ledger_batches: group.add("batches", "Batches stored since start"),
            ledger_duplicates: group.add("duplicate_entries", "Entries received again"),
            ledger_lost_sources: group.add("lost_sources", "Sources lost"),
            ledger_keys: group.add("data_keys", "Data keys, with erased ones"),
            ledger_keys_limit: group.add("data_keys_limit", "Limit of data keys"),
            ledger_pruned_segments: group.add("pruned_segments", "Segments removed by retention"),
            ledger_erasures: group.add("erasures", "Erased principals"),
            ledger_bytes: group.add_in(Unit::Bytes, "size", "Size of the ledger"),
            ledger_bytes_limit: group.add_in(Unit::Bytes, "limit", "Ledger size limit"),
            ledger_disk_free: group.add_in(Unit::Bytes, "disk_free", "Free disk space"),
            ledger_disk_reserve: group.add_in(Unit::Bytes, "disk_reserve", "Disk space left free"),
            ledger_writable: group.add("writable", "0 after a failed write"),
            ledger_sync_seconds: group.add_seconds("sync", "Time to store a group of batches", 0.0001, 17),
            ledger_published: group.add("published_entries", "Entries in the latest checkpoint"),
            ledger_published_time: group.add_in(Unit::Seconds, "published_time", "Unix time of the latest checkpoint"),
            ledger_publish_failures: group.add("publish_failures", "Checkpoints not published"),
            ledger_unreadable: group.add("unreadable_records", "Records that cannot be read"),
            ledger_counted: group.add("counted_entries", "Entries counted beyond a principal's share"),
            ledger_witness_requests: group.add("witness_requests", "Requests to witnesses, by witness, outcome"),
            ledger_witnessed: group.add(
                "witnessed_entries",
                "Entries in the last cosigned checkpoint, by witness",
            ),
            chains_verified: group.add("chains_verified", "Chains verified again, by outcome"),
            allows_checked: group.add("allows_checked", "Allows verified again, by outcome"),
            mismatches: group.add("mismatches", "Allows without a valid chain, by kind"),
            sources_with_other_anchors: group.add("sources_with_other_anchors", "Sources with other trust anchors"),
            unchecked_records: group.add("unchecked_records", "Records to verify again; -1: off"),
            report_streams: group.add("report_streams", "Open report streams"),
            report_ended: group.add("report_ended", "Ended report streams, by code"),
        };
        // Creates the counters at 0: `increase()` would not see a counter that appears with the first event.
        for kind in DifferenceKind::VARIANTS {
            let kind = kind.into();
            count(&metrics.mismatches, [("kind", kind)], 0);
        }
        metrics
    }
}

/// Adds to the counter with these labels, which starts at 0.
pub(crate) fn count<const N: usize>(counters: &Counters<N>, pairs: [(&'static str, &str); N], more: u64) {
    counters.get_or_create(&labels(pairs)).inc_by(more);
}
