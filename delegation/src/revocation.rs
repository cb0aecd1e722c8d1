//! Whether a verified chain has been revoked.
//!
//! The draft leaves revocation to deployments (section 9.8). Ours counts epochs: a root token carries the epoch its
//! principal was in when it was minted (`rev_epoch`), and raising the epoch voids everything granted under earlier
//! ones at once. Keys, issuers and single delegations can be revoked too.

use crate::key::Thumbprint;
use crate::time::UnixTime;
use crate::token::VerifiedToken;
use crate::verified::VerifiedChain;

/// Epochs stay below 2^53, so that every JSON library keeps them.
pub const EPOCH_LIMIT: u64 = 1 << 53;

/// What a revocation log says about the subjects of a chain.
pub trait RevocationView {
    /// The principal's state; the default state if the log has never heard of him.
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState;
    /// Whether a key, an anchor's or a holder's, is revoked.
    fn is_key_revoked(&self, key: &Thumbprint) -> bool;
    /// The instant up to which every root of the issuer is void.
    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime>;
    /// The instant up to which every root of every issuer is void.
    fn log_floor(&self) -> Option<UnixTime>;
    /// Whether the token `id`, somewhere in a chain of this principal, is revoked.
    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, id: &str) -> bool;
    /// Of which tokens the log knows whether they are revoked. Unless it says otherwise, of all.
    fn memory(&self) -> Memory {
        Memory::default()
    }
}

/// Of which tokens a log knows whether they are revoked by their ids. It may forget such an id once no token can carry it
/// any more, and so nobody may believe a token that could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The longest lifetime, `exp` - `iat` in seconds, that the log reckons with; `None` if it forgets nothing.
    pub token_lifetime: Option<u64>,
    /// Ids of tokens that were issued before this instant may have been forgotten; `None` if none was.
    pub forgotten_before: Option<UnixTime>,
}

/// A principal's state in the revocation log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrincipalState {
    /// The epoch that root tokens must carry.
    pub epoch: u64,
    /// Whether nothing that is granted counts, whatever its epoch.
    pub disabled: bool,
    /// When the epoch was last raised.
    pub raised_at: Option<UnixTime>,
}

/// Why a chain is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// The principal is disabled.
    #[error("the principal is disabled")]
    PrincipalDisabled,
    /// The root was granted in another epoch than the current one.
    #[error("the principal has revoked what was granted before")]
    PrincipalRevoked,
    /// The root is not younger than the issuer's or the log's floor.
    #[error("everything the issuer issued up to some time is revoked")]
    IssuerRevoked,
    /// A key in the chain is revoked.
    #[error("a key in the chain is revoked")]
    KeyRevoked,
    /// A token of the chain is revoked by its id.
    #[error("a delegation in the chain is revoked")]
    DelegationRevoked,
    /// A token of the chain is older, or lives longer, than the log remembers revoked delegations.
    #[error("a delegation in the chain lives longer than its revocation would be remembered")]
    BeyondMemory,
}

/// Says whether the log voids the chain; `skew` is how many seconds an issuer's clock may be ahead of ours.
///
/// # Errors
/// The first reason found.
pub fn void(chain: &VerifiedChain, view: &impl RevocationView, skew: u64) -> Result<(), Void> {
    let principal = chain.principal();
    let (issuer, subject) = (principal.issuer.as_str(), principal.subject.as_deref());
    let issued_at = chain.root().issued_at();

    let state = view.principal(issuer, subject);
    if state.disabled {
        return Err(Void::PrincipalDisabled);
    }
    let granted_in_this_epoch = match chain.root_epoch() {
        // A root from a later epoch than ours is denied like any other; it never makes us look for news.
        Some(epoch) => epoch == state.epoch,
        // Without an epoch only the time of issue is left, and a principal who signs for himself controls that.
        None if chain.asserts_subjects() => state.raised_at.is_none_or(|raised_at| issued_at > raised_at.plus(skew)),
        None => state.epoch == 0,
    };
    if !granted_in_this_epoch {
        return Err(Void::PrincipalRevoked);
    }
    let floor = view.issuer_floor(issuer).max(view.log_floor());
    if floor.is_some_and(|floor| issued_at <= floor) {
        return Err(Void::IssuerRevoked);
    }
    if view.is_key_revoked(&chain.anchor())
        || chain
            .tokens()
            .any(|token| view.is_key_revoked(&token.holder().thumbprint()))
    {
        return Err(Void::KeyRevoked);
    }
    if chain
        .tokens()
        .any(|token| view.is_delegation_revoked(issuer, subject, token.id()))
    {
        return Err(Void::DelegationRevoked);
    }
    let memory = view.memory();
    if chain.tokens().any(|token| !memory.reaches(token)) {
        return Err(Void::BeyondMemory);
    }
    Ok(())
}

// === impl Memory ===

impl Memory {
    fn reaches(&self, token: &VerifiedToken) -> bool {
        let (issued_at, expires_at) = (token.issued_at(), token.expires_at());
        self.token_lifetime
            .is_none_or(|lifetime| expires_at <= issued_at.plus(lifetime))
            && self.forgotten_before.is_none_or(|instant| issued_at >= instant)
    }
}
