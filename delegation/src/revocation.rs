//! Whether a verified chain has been revoked.
//!
//! The draft leaves revocation to deployments (section 9.8). Credence counts epochs: a root token carries the epoch of
//! its principal at the time of minting (`rev_epoch`), and raising the epoch revokes everything granted under earlier
//! ones at once. Keys, issuers and single delegations can be revoked too.

use crate::issuer_keys::IssuerKeys;
use crate::key::Thumbprint;
pub use crate::limits::EPOCH_LIMIT;
use crate::time::UnixTime;
use crate::verified::VerifiedChain;

/// The state of a chain's subjects in a revocation log.
pub trait RevocationView {
    /// The principal's state; the default state if the log does not know the principal.
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState;
    /// Whether a key, an anchor's or a holder's, is revoked.
    fn is_key_revoked(&self, key: &Thumbprint) -> bool;
    /// The time up to which every root of the issuer is revoked.
    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime>;
    /// The time up to which every root of every issuer is revoked.
    fn log_floor(&self) -> Option<UnixTime>;
    /// Whether a token of a chain of this principal is revoked: by its id, or by its id under these other ids.
    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, token: DelegationPath<'_>) -> bool;
    /// The keys that the control plane has fetched from this issuer.
    fn issuer_keys(&self, _issuer: &str) -> Option<&IssuerKeys> {
        None
    }
    /// Which tokens the log's memory covers. Default: all.
    fn memory(&self) -> Memory {
        Memory::default()
    }
}

/// The tokens whose revocation by id the log still knows. It may forget an id when no token can carry it any more. So a
/// token outside of this memory must not be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The longest lifetime, `exp` - `iat` in seconds, that the log assumes; `None` if it forgets nothing.
    pub token_lifetime: Option<u64>,
    /// Ids of tokens issued before this time may have been forgotten; `None` if none was.
    pub forgotten_before: Option<UnixTime>,
}

/// A token's position in a chain. The ids above it distinguish it from a token with the same id of another holder: a
/// holder chooses only the ids of the tokens below its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegationPath<'a> {
    /// The ids of the tokens above it, root first; none for a root.
    pub under: &'a [&'a str],
    /// Its own id.
    pub id: &'a str,
}

/// A principal's state in the revocation log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrincipalState {
    /// The epoch that root tokens must carry.
    pub epoch: u64,
    /// Whether all grants are denied, of any epoch.
    pub disabled: bool,
    /// When the epoch was last raised.
    pub raised_at: Option<UnixTime>,
}

/// Why a chain is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RevocationReason {
    /// The principal is disabled.
    #[error("the principal is disabled")]
    PrincipalDisabled,
    /// The root was granted in another epoch than the current one.
    #[error("the principal has revoked all earlier grants")]
    PrincipalRevoked,
    /// The root was issued at or before the issuer's or the log's revoked time, allowed skew included.
    #[error("everything that the issuer issued up to a certain time is revoked")]
    IssuerRevoked,
    /// A key in the chain is revoked.
    #[error("a key in the chain is revoked")]
    KeyRevoked,
    /// The key that signed the root was fetched from the issuer, which does not publish it any more.
    #[error("the issuer has withdrawn the key that signed the root")]
    KeyWithdrawn,
    /// A token of the chain is revoked by its id.
    #[error("a delegation in the chain is revoked")]
    DelegationRevoked,
    /// A token of the chain is older, or lives longer, than the log's memory of revoked delegations.
    #[error("a delegation in the chain lives longer than the log would remember its revocation")]
    BeyondMemory,
}

/// The facts about a chain that the rule needs, besides its keys and ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts<'a> {
    /// The root's issuer.
    pub(crate) issuer: &'a str,
    /// The principal's name at the issuer, if it has several principals.
    pub(crate) subject: Option<&'a str>,
    /// Whether it has several principals.
    pub(crate) asserts_subjects: bool,
    /// Issuers where the same subject is the same principal.
    pub(crate) same_principals: &'a [String],
    /// The root's `rev_epoch`.
    pub(crate) root_epoch: Option<u64>,
    /// The root's `iat`.
    pub(crate) issued_at: UnixTime,
}

/// The facts about a token that the rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedToken<'a> {
    /// `jti`.
    pub(crate) id: &'a str,
    /// `iat` and `exp`. Without them, the caller checks that the log's [`Memory`] covers the token.
    pub(crate) span: Option<(UnixTime, UnixTime)>,
}

impl RevocationReason {
    /// The reason code in enforcement points' answers (docs/reference/errors.md).
    pub fn code(self) -> &'static str {
        match self {
            Self::PrincipalDisabled => "disabled_principal",
            Self::PrincipalRevoked => "revoked_principal",
            Self::IssuerRevoked => "revoked_issuer",
            Self::KeyRevoked => "revoked_key",
            Self::KeyWithdrawn => "key_withdrawn",
            Self::DelegationRevoked => "revoked_delegation",
            Self::BeyondMemory => "lifetime_not_allowed",
        }
    }
}

/// Checks that the log does not revoke the chain. `skew` is how many seconds an issuer's clock may be ahead.
///
/// # Errors
/// The first reason found.
pub fn check_revocation(chain: &VerifiedChain, view: &impl RevocationView, skew: u64) -> Result<(), RevocationReason> {
    let principal = chain.principal();
    let facts = Facts {
        issuer: principal.issuer.as_str(),
        subject: principal.subject.as_deref(),
        asserts_subjects: chain.asserts_subjects(),
        same_principals: &chain.origin.same_principals,
        root_epoch: chain.root_epoch(),
        issued_at: chain.root().issued_at(),
    };
    let withdrawn = || {
        let keys = view.issuer_keys(&principal.issuer);
        keys.is_none_or(|keys| !keys.contain(&chain.anchor()))
    };
    if chain.has_fetched_anchor() && withdrawn() {
        return Err(RevocationReason::KeyWithdrawn);
    }
    let holders = chain.tokens().filter_map(|token| token.holder().thumbprint());
    let tokens = chain.tokens().map(|token| NamedToken {
        id: token.id(),
        span: Some((token.issued_at(), token.expires_at())),
    });
    check_facts(
        &facts,
        std::iter::once(chain.anchor()).chain(holders),
        tokens,
        view,
        skew,
    )
}

/// The same for a chain given by its facts: `keys` are the anchor's and every holder's, `tokens` come root first.
///
/// # Errors
/// The first reason found.
pub(crate) fn check_facts<'a>(
    facts: &Facts<'_>,
    keys: impl IntoIterator<Item = Thumbprint>,
    tokens: impl IntoIterator<Item = NamedToken<'a>>,
    view: &impl RevocationView,
    skew: u64,
) -> Result<(), RevocationReason> {
    let Facts {
        issuer,
        subject,
        issued_at,
        ..
    } = *facts;
    let state = view.principal(issuer, subject);
    if state.disabled {
        return Err(RevocationReason::PrincipalDisabled);
    }
    let granted_in_this_epoch = match facts.root_epoch {
        // A root with a later epoch is denied like any other; it never triggers an update.
        Some(epoch) => epoch == state.epoch,
        // Without an epoch, only the time of issue remains, which a principal that signs its own tokens controls.
        None if facts.asserts_subjects => state.raised_at.is_none_or(|raised_at| issued_at > raised_at.plus(skew)),
        None => state.epoch == 0,
    };
    if !granted_in_this_epoch {
        return Err(RevocationReason::PrincipalRevoked);
    }
    for other in facts.same_principals {
        let state = view.principal(other, subject);
        if state.disabled {
            return Err(RevocationReason::PrincipalDisabled);
        }
        // Its epoch means nothing for roots of this issuer; only the time of the last raise does.
        if state
            .raised_at
            .is_some_and(|raised_at| issued_at <= raised_at.plus(skew))
        {
            return Err(RevocationReason::PrincipalRevoked);
        }
    }
    let floor = view.issuer_floor(issuer).max(view.log_floor());
    if floor.is_some_and(|floor| issued_at <= floor.plus(skew)) {
        return Err(RevocationReason::IssuerRevoked);
    }
    if keys.into_iter().any(|key| view.is_key_revoked(&key)) {
        return Err(RevocationReason::KeyRevoked);
    }
    let memory = view.memory();
    let mut reached = true;
    let mut under = Vec::new();
    for token in tokens {
        let path = DelegationPath {
            under: &under,
            id: token.id,
        };
        if view.is_delegation_revoked(issuer, subject, path) {
            return Err(RevocationReason::DelegationRevoked);
        }
        under.push(token.id);
        reached &= token
            .span
            .is_none_or(|(issued_at, expires_at)| memory.reaches(issued_at, expires_at));
    }
    reached.then_some(()).ok_or(RevocationReason::BeyondMemory)
}

// === impl Memory ===

impl Memory {
    fn reaches(&self, issued_at: UnixTime, expires_at: UnixTime) -> bool {
        self.token_lifetime
            .is_none_or(|lifetime| expires_at <= issued_at.plus(lifetime))
            && self.forgotten_before.is_none_or(|instant| issued_at >= instant)
    }
}
