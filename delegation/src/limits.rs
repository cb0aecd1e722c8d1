//! The limits that the draft leaves to implementations.

/// Limits of verification. [`Limits::default`] has the draft's recommended values, and Credence's own where it has
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// MAX_TOKEN_SIZE: bytes of one encoded token or proof (draft section 4.3.1).
    pub token_bytes: usize,
    /// MAX_CHAIN_SIZE: bytes of all encoded tokens together (draft section 4.3.1).
    pub chain_bytes: usize,
    /// MAX_DELEGATION_DEPTH: the greatest `del_depth` and `del_max_depth` (draft section 4.3); a chain has one token
    /// more.
    pub delegation_depth: u32,
    /// MAX_TOKEN_LIFETIME: seconds between `iat` and `exp` (draft section 4.4).
    pub token_lifetime: u64,
    /// MAX_IAT_SKEW: seconds that `iat` may be in the future (draft section 4.4).
    pub iat_skew: u64,
    /// Seconds that a proof's `iat` may differ from the clock, in either direction (draft section 9.10).
    pub proof_window: u64,
    /// Bytes of one encoded revocation statement.
    pub statement_bytes: usize,
    /// Seconds between `iat` and `exp` of a revocation statement.
    pub statement_lifetime: u64,
}

/// Epochs are below 2^53, so that every JSON library preserves them.
pub const EPOCH_LIMIT: u64 = 1 << 53;

/// MAX_CONSTRAINT_DEPTH: nesting of `all` and `any` (draft section 3.4).
pub(crate) const CONSTRAINT_DEPTH: u32 = 32;

/// Nesting of any JSON text. The deepest token has `CONSTRAINT_DEPTH` constraints of two levels each, inside six levels
/// of claims.
pub(crate) const JSON_DEPTH: u32 = 80;

impl Limits {
    /// The maximum of every enforcement point's configuration: evidence of all of them is verified with these.
    pub const WIDEST: Self = Self {
        token_bytes: 65_536,
        chain_bytes: 262_144,
        delegation_depth: 8,
        token_lifetime: 366 * 24 * 60 * 60,
        iat_skew: 300,
        proof_window: 600,
        statement_bytes: 8_192,
        statement_lifetime: 24 * 60 * 60,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            token_lifetime: 90 * 24 * 60 * 60,
            iat_skew: 30,
            proof_window: 30,
            ..Self::WIDEST
        }
    }
}
