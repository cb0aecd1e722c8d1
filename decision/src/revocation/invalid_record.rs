//! How a revocation record can break the contract with the control plane.

/// How a record breaks the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// No subject that this version of the filter knows.
    #[error(
        "a revocation record names no subject of a kind this filter knows: update the filter before the control plane"
    )]
    NoSubject,
    /// A subject without its principal.
    #[error("a revocation record lacks its principal")]
    NoPrincipal,
    /// An empty issuer.
    #[error("a revocation record has an empty issuer")]
    EmptyIssuer,
    /// An empty delegation id.
    #[error("a revocation record has an empty delegation id")]
    EmptyDelegationId,
    /// More tokens above a revoked one than any chain has.
    #[error("a revocation record names {0} delegations above a revoked one; expected at most {MAX_UNDER}")]
    TooManyAbove(usize),
    /// An epoch that JSON can not carry exactly.
    #[error("a revocation record has epoch {0}; expected one below 2^53")]
    EpochTooLarge(u64),
    /// A raise before the Unix epoch.
    #[error("a revocation record says its epoch was raised at {0} seconds; expected 0 or later")]
    NegativeRaise(i64),
    /// A delegation revoked before the Unix epoch.
    #[error("a revocation record says a delegation was revoked at {0} seconds; expected 0 or later")]
    NegativeRevocation(i64),
    /// Not a SHA-256 thumbprint.
    #[error("a revocation record has a malformed key thumbprint; expected 43 characters of canonical base64url")]
    MalformedThumbprint,
}

/// A chain has at most nine tokens (`Limits::delegation_depth`).
pub(super) const MAX_UNDER: usize = 8;
