//! What the log and the metrics say of what came of it.

use credence_ledger::record::Mismatch;

use super::checker::Findings;
use crate::metrics::Metrics;
use credence_runtime::metrics::labels;
use credence_runtime::text::hex;

/// Before mismatches are recorded.
pub(crate) fn log(mismatches: &[Mismatch]) {
    for mismatch in mismatches.iter().filter(|mismatch| !mismatch.other_anchors) {
        tracing::error!(
            source = mismatch.source,
            chain = hex(&mismatch.chain_digest),
            step = mismatch.step,
            reason = mismatch.reason,
            "a filter allowed what its delegation does not say: find out whether it still runs what you deployed"
        );
    }
}

/// Once a block was checked.
pub(crate) fn count(findings: &Findings, metrics: &Metrics) {
    for source in &findings.sources_with_other_anchors {
        tracing::warn!(
            source,
            "a filter trusts other anchors than this control plane and allows what does not verify under ours: give both \
             the same trust_anchors"
        );
    }
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
}
