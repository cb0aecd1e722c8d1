//! Whom to believe: the trust anchors, and the algorithms that signatures may use.

use credence_delegation::trust::{self, Entry, Remark};
use credence_delegation::{Algorithms, TrustAnchors};

use super::error::Problems;
use super::file;

#[cfg(test)]
pub(super) use credence_delegation::trust::MAX_KEYS_PER_ISSUER;

/// Gives the trust anchors their meaning, each key becomes one, and says what there is to know about them.
pub(super) fn trust(entries: Vec<file::TrustAnchor>, problems: &mut Problems) -> (TrustAnchors, Vec<Remark>) {
    if entries.is_empty() {
        problems.report(
            "trust_anchors",
            "no trust anchor, so no delegation could ever be valid; add `{issuer, jwk}`",
        );
    }
    let entries = entries.into_iter().map(|entry| Entry {
        issuer: entry.issuer,
        jwk: entry.jwk,
        jwks: entry.jwks,
        algorithms: entry.algorithms,
        asserts_subjects: entry.asserts_subjects,
    });
    let trust = trust::trust(entries.collect());
    report(trust.problems, problems);
    (trust.anchors, trust.notes)
}

/// Reads a list of algorithms; without one, Ed25519 alone is allowed.
pub(super) fn algorithms(path: &str, names: Option<Vec<String>>, problems: &mut Problems) -> Algorithms {
    let (algorithms, found) = trust::algorithms(path, names);
    report(found, problems);
    algorithms
}

fn report(found: Vec<Remark>, problems: &mut Problems) {
    for Remark { path, message } in found {
        problems.report(path, message);
    }
}
