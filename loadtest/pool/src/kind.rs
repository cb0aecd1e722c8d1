//! The kinds of delegations in a pool: the request, the expected answer, and the share of each.

use std::collections::BTreeMap;

use serde::Serialize;

/// The special property of a delegation, or of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Valid, under the rule that needs no proof.
    Delegated,
    /// Valid, under the rule that needs one.
    Proven,
    /// The request has none.
    Missing,
    /// It is not a chain of tokens.
    Malformed,
    /// Its last signature was changed.
    Signature,
    /// Its issuer is not a trust anchor.
    Issuer,
    /// Its last token was derived from another parent.
    Linkage,
    /// It has expired.
    Expired,
    /// It is for another service.
    Audience,
    /// It grants another tool.
    Tool,
    /// It grants another value of the argument.
    Argument,
    /// It is revoked by its root's id.
    RevokedDelegation,
    /// It is revoked by its principal's epoch.
    RevokedPrincipal,
    /// The proof is missing.
    ProofMissing,
    /// The proof is signed with another key than the holder's.
    ProofSignature,
    /// The proof is for another value of the argument.
    ProofMismatch,
    /// The proof was made too long ago.
    ProofOld,
    /// The proof has been used before. The first time, it is `Proven`.
    ProofReplayed,
}

/// The rule that a delegation is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// Without a proof.
    Bearer,
    /// With one.
    Proof,
}

/// The filter's expected decision on every request of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Expectation {
    pub(crate) rule: Rule,
    pub(crate) status: u16,
    /// The reason that the client gets; empty for an allowed request.
    pub(crate) reason: &'static str,
    /// The reason in the evidence.
    pub(crate) recorded: &'static str,
}

impl Kind {
    const INVALID: [Self; 16] = [
        Self::Missing,
        Self::Malformed,
        Self::Signature,
        Self::Issuer,
        Self::Linkage,
        Self::Expired,
        Self::Audience,
        Self::Tool,
        Self::Argument,
        Self::RevokedDelegation,
        Self::RevokedPrincipal,
        Self::ProofMissing,
        Self::ProofSignature,
        Self::ProofMismatch,
        Self::ProofOld,
        Self::ProofReplayed,
    ];

    /// docs/reference/errors.md has the codes.
    pub(crate) fn expectation(self) -> Expectation {
        use Rule::{Bearer, Proof};
        let (rule, status, reason, recorded) = match self {
            Self::Delegated => (Bearer, 200, "delegated", "delegated"),
            Self::Proven => (Proof, 200, "delegated", "delegated"),
            Self::Missing => (Bearer, 401, "delegation_missing", "delegation_missing"),
            Self::Malformed => (Bearer, 401, "delegation_malformed", "delegation_malformed"),
            Self::Signature => (Bearer, 401, "delegation_invalid", "signature_invalid"),
            Self::Issuer => (Bearer, 401, "delegation_invalid", "issuer_unknown"),
            Self::Linkage => (Bearer, 401, "delegation_invalid", "linkage_invalid"),
            Self::Expired => (Bearer, 401, "expired", "expired"),
            Self::Audience => (Bearer, 401, "audience_mismatch", "audience_mismatch"),
            Self::Tool => (Bearer, 403, "tool_not_granted", "tool_not_granted"),
            Self::Argument => (Bearer, 403, "argument_not_allowed", "argument_not_allowed"),
            Self::RevokedDelegation => (Bearer, 401, "revoked_delegation", "revoked_delegation"),
            Self::RevokedPrincipal => (Bearer, 401, "revoked_principal", "revoked_principal"),
            Self::ProofMissing => (Proof, 401, "proof_missing", "proof_missing"),
            Self::ProofSignature => (Proof, 401, "proof_invalid", "proof_signature_invalid"),
            Self::ProofMismatch => (Proof, 401, "proof_mismatch", "proof_mismatch"),
            Self::ProofOld => (Proof, 401, "proof_outside_window", "proof_outside_window"),
            Self::ProofReplayed => (Proof, 401, "proof_replayed", "proof_replayed"),
        };
        Expectation {
            rule,
            status,
            reason,
            recorded,
        }
    }
}

/// The kind of each delegation. It repeats every thousand, so that every part of a pool is a pool.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Vec<Kind>);

impl Pattern {
    /// The length of the pattern.
    pub(crate) const LENGTH: u64 = 1_000;

    /// Of each hundred, this many with a proof and this many invalid, in equal parts of every kind; `None` if these are
    /// more than a hundred together.
    pub(crate) fn new(proof_percent: u8, invalid_percent: u8) -> Option<Self> {
        let (proven, invalid) = (u64::from(proof_percent) * 10, u64::from(invalid_percent) * 10);
        let delegated = Self::LENGTH.checked_sub(proven + invalid)?;
        let kinds = std::iter::repeat_n(Kind::Delegated, usize::try_from(delegated).ok()?)
            .chain(std::iter::repeat_n(Kind::Proven, usize::try_from(proven).ok()?))
            .chain(Kind::INVALID.into_iter().cycle().take(usize::try_from(invalid).ok()?))
            .collect();
        Some(Self(kinds))
    }

    /// The kind of the delegation of this number.
    pub(crate) fn kind(&self, number: u64) -> Kind {
        let place = usize::try_from(number % Self::LENGTH).unwrap_or_default();
        self.0.get(place).copied().unwrap_or(Kind::Delegated)
    }

    /// The positions of each kind in the pattern.
    pub(crate) fn places(&self) -> BTreeMap<Kind, Vec<usize>> {
        let mut places: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
        for (place, kind) in self.0.iter().enumerate() {
            places.entry(*kind).or_default().push(place);
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thousand_has_the_given_shares() {
        let pattern = Pattern::new(30, 16).unwrap();
        let counts: BTreeMap<Kind, usize> = pattern
            .places()
            .into_iter()
            .map(|(kind, places)| (kind, places.len()))
            .collect();
        assert_eq!(counts[&Kind::Delegated], 540);
        assert_eq!(counts[&Kind::Proven], 300);
        assert!(Kind::INVALID.iter().all(|kind| counts[kind] == 10), "{counts:?}");
        assert_eq!(pattern.kind(0), pattern.kind(1_000));
    }

    #[test]
    fn shares_of_more_than_a_hundred_are_no_pattern() {
        assert!(Pattern::new(60, 40).is_some());
        assert!(Pattern::new(60, 41).is_none());
    }
}
