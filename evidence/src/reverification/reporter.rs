//! Who hears of what came of it: the metrics, the log, and the ledger.

use std::sync::Arc;

use credence_ledger::record::Mismatch;

use super::checker::Findings;
use super::follower::Findable;
use crate::metrics::Metrics;
use crate::writer::ReportError;
use credence_runtime::metrics::labels;
use credence_runtime::text::hex;

/// Appends mismatches to the ledger as notes; they are durable on return.
pub(crate) type Record<'a> = &'a mut dyn FnMut(Vec<Mismatch>) -> Result<(), ReportError>;

/// Tells everybody.
pub(crate) struct Reporter<'a> {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) record: Record<'a>,
    /// Whether mismatches were recorded: whoever begins before them once more would record them once more.
    pub(crate) has_recorded: bool,
}

// === impl Reporter ===

impl Findable for Reporter<'_> {
    type Error = ReportError;

    fn record(&mut self, mismatches: Vec<Mismatch>) -> Result<(), ReportError> {
        for mismatch in mismatches.iter().filter(|mismatch| !mismatch.other_anchors) {
            tracing::error!(
                source = mismatch.source,
                chain = hex(&mismatch.chain_digest),
                step = mismatch.step,
                reason = mismatch.reason,
                "a filter allowed what its delegation does not say: find out whether it still runs what you deployed"
            );
        }
        (self.record)(mismatches)?;
        self.has_recorded = true;
        Ok(())
    }

    fn checked(&mut self, findings: &Findings, through: u64, size: u64) {
        for source in &findings.sources_with_other_anchors {
            tracing::warn!(
                source,
                "a filter trusts other anchors than this control plane and allows what does not verify under ours: give \
                 both the same trust_anchors"
            );
        }
        let metrics = &self.metrics;
        for (outcome, count) in [("verified", findings.verified), ("refused", findings.refused)] {
            metrics
                .chains_verified
                .get_or_create(&labels([("outcome", outcome)]))
                .inc_by(count);
        }
        let mismatched = findings.differences.values().sum();
        for (outcome, count) in [
            ("matched", findings.matched),
            ("unchecked", findings.unchecked),
            ("other_anchors", findings.other_anchors),
            ("mismatched", mismatched),
        ] {
            metrics
                .allows_checked
                .get_or_create(&labels([("outcome", outcome)]))
                .inc_by(count);
        }
        for (kind, count) in &findings.differences {
            let kind = kind.name();
            metrics
                .mismatches
                .get_or_create(&labels([("kind", kind)]))
                .inc_by(*count);
        }
        metrics
            .sources_with_other_anchors
            .inc_by(findings.sources_with_other_anchors.len() as u64);
        let lag = i64::try_from(size.saturating_sub(through)).unwrap_or(i64::MAX);
        metrics.unchecked_records.set(lag);
    }
}
