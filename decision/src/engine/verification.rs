//! The verified chain of a request, from a cache or by verifying it now.

use std::rc::Rc;

use credence_delegation::revocation::{self, RevocationView as _};
use credence_delegation::{Chain, UnixTime, VerificationContext, VerifiedChain};

use super::memories::Memories;
use super::verdict::{Findings, Lookup};
use super::world::{World, revision_of};
use crate::chains::{CacheKey, CachedChain};
use crate::config::Policy;
use crate::decision::{Denial, Reason};
use crate::revocation::{SealKeys, SealedWith};

/// A presented delegation.
pub(super) enum Presented<'r> {
    /// It was verified before.
    Known(Rc<CachedChain>),
    /// It was not, or was evicted.
    New { text: &'r str, key: CacheKey },
}

/// Looks up the verified chain of one request.
pub(super) struct ChainLookup<'a> {
    pub(super) policy: &'a Policy,
    pub(super) memories: &'a mut Memories,
    pub(super) findings: &'a mut Findings,
    pub(super) now: UnixTime,
}

/// A chain that the cache does not have, before any signature is checked.
struct Unverified<'r> {
    text: &'r str,
    key: CacheKey,
    /// The keys of its beginnings, the longest first.
    beginnings: Vec<CacheKey>,
    /// The longest beginning that was verified before.
    known: Option<Rc<CachedChain>>,
    /// The keys that seal this node's shared entries, if workers share chains.
    seal_keys: Option<SealKeys>,
}

/// What a shared entry vouches for.
#[derive(Clone, Copy)]
struct Vouched {
    /// Tokens of the chain, from the root.
    tokens: usize,
    sealed_with: SealedWith,
}

impl ChainLookup<'_> {
    /// The verified chain: from the cache, or verified now.
    pub(super) fn chain(
        &mut self,
        presented: Presented<'_>,
        world: &mut impl World,
    ) -> Result<Rc<CachedChain>, Denial> {
        let chain = match presented {
            Presented::Known(chain) => {
                self.findings.lookup = Some(Lookup::Hit);
                chain
            }
            // Without a fresh state, only chains that were verified in a fresh state are accepted.
            Presented::New { .. } if self.findings.stale.is_some() => return Err(Reason::Stale.into()),
            Presented::New { text, key } => {
                self.memories.follow_keys(self.policy, self.now, world);
                if let Some(denial) = self.memories.refused.find(key, revision_of(world)) {
                    self.findings.lookup = Some(Lookup::Refused);
                    return Err(denial);
                }
                self.verify(text, key, world)?
            }
        };
        self.findings.chain = Some(Rc::clone(&chain));
        Ok(chain)
    }

    /// Verifies a chain that the cache does not have, and caches the result.
    fn verify(&mut self, text: &str, key: CacheKey, world: &mut impl World) -> Result<Rc<CachedChain>, Denial> {
        let unverified = self.look_up_beginnings(text, key, world)?;
        let (chain, vouched) = self.verify_signatures(&unverified, world)?;
        self.findings.verified = self.findings.lookup != Some(Lookup::Shared);
        let ids = chain.tokens().map(|token| token.id());
        let names = chain.principal().subject.as_deref().into_iter().chain(chain.client());
        let actors = chain.actors().iter().map(String::as_str);
        if ids.chain(names).chain(actors).any(|name| name.len() > MAX_ID_BYTES) {
            let reason = Reason::DelegationTooLarge;
            self.memories.refused.remember_verified(key, reason, None);
            return Err(reason.into());
        }
        // A revoked chain uses no place in this or the shared cache.
        let verified = self.memories.cache.prepare(chain, self.now);
        if let Err(denial) = check_still_valid(self.policy, &verified, self.now, world) {
            self.remember_revoked(&verified.chain, key, &unverified.beginnings, world);
            self.findings.chain = Some(verified);
            return Err(denial);
        }
        self.keep(&verified, &unverified, vouched);
        Ok(verified)
    }

    /// Looks up the beginnings of this chain. If one of them is revoked, the rest is denied without signature checks.
    fn look_up_beginnings<'r>(
        &mut self,
        text: &'r str,
        key: CacheKey,
        world: &impl World,
    ) -> Result<Unverified<'r>, Denial> {
        let depth = self.policy.limits.verification.delegation_depth as usize;
        let cache = &mut self.memories.cache;
        let beginnings = cache.keys_of_beginnings(text, depth);
        let known = beginnings.iter().find_map(|beginning| cache.find(*beginning, self.now));
        let revision = revision_of(world);
        let refused = &self.memories.refused;
        let checked = match beginnings.iter().find_map(|key| refused.find_revoked(*key, revision)) {
            Some(denial) => Err(denial),
            None => known
                .as_deref()
                .map_or(Ok(()), |known| check_revocation(self.policy, known, world)),
        };
        if let Err(denial) = checked {
            self.findings.lookup = Some(Lookup::Refused);
            return Err(denial);
        }
        self.findings.lookup = Some(if known.is_some() {
            Lookup::Beginning
        } else {
            Lookup::Miss
        });
        let seal_keys = world.cache_keys().filter(|_| self.memories.shared.is_on()).cloned();
        Ok(Unverified {
            text,
            key,
            beginnings,
            known,
            seal_keys,
        })
    }

    /// Verifies the remaining signatures: those that neither this worker has verified for a beginning, nor another
    /// worker for any of them.
    fn verify_signatures(
        &mut self,
        unverified: &Unverified<'_>,
        world: &mut impl World,
    ) -> Result<(VerifiedChain, Option<Vouched>), Denial> {
        let Unverified {
            text,
            key,
            beginnings,
            known,
            seal_keys,
        } = unverified;
        let limits = &self.policy.limits.verification;
        let context = VerificationContext {
            anchors: self.memories.trust.anchors(),
            holder_algorithms: &self.policy.holder_algorithms,
            limits,
            now: self.now,
            hot_keys: Some(&self.memories.hot_keys),
        };
        let parsed = match known {
            // The cache's key proves that these are the chain's tokens.
            Some(known) => Chain::parse_joined_after(&known.chain, text, limits),
            None => Chain::parse_joined(text, limits),
        };
        let root = beginnings.last().copied();
        // A refused root is checked first, after the form of the tokens below it.
        if let Some(denial) = root.and_then(|root| self.memories.refused.find(root, None))
            && let Ok(chain) = &parsed
            && chain.check_before_signatures(&context).is_ok()
        {
            self.findings.lookup = Some(Lookup::Refused);
            return Err(denial);
        }
        let mut vouched = None;
        let verified = parsed.and_then(|chain| {
            let Some(keys) = seal_keys else {
                return chain.verify(&context);
            };
            // A denial without any signature must not cost a look-up in the shared cache either.
            chain.check_before_signatures(&context)?;
            let Some(found) = self.memories.shared.find(&chain, self.now, world, keys) else {
                return chain.verify(&context);
            };
            let tokens = found.beginning.tokens();
            self.findings.lookup = Some(if tokens > beginnings.len() {
                Lookup::Shared
            } else {
                Lookup::Beginning
            });
            vouched = Some(Vouched {
                tokens,
                sealed_with: found.sealed_with,
            });
            found.beginning.verify_vouching_for_signatures(found.anchor, &context)
        });
        let chain = verified.inspect_err(|denial| {
            let of_root = root.filter(|_| denial.step.is_of_root());
            self.memories.refused.remember(of_root.unwrap_or(*key), denial);
        })?;
        Ok((chain, vouched))
    }

    /// Caches a verified chain for the next request and for other workers, and its parent too: the next leaf under the
    /// same parent will be a new one.
    fn keep(&mut self, verified: &Rc<CachedChain>, unverified: &Unverified<'_>, vouched: Option<Vouched>) {
        let Memories { cache, shared, .. } = &mut *self.memories;
        let (chain, principal) = (&verified.chain, verified.sharers.principal);
        let beginnings = &unverified.beginnings;
        let shares = unverified.seal_keys.is_some();
        let vouched_tokens = vouched.map_or(0, |vouched| vouched.tokens);
        let is_sealed = vouched_tokens > beginnings.len()
            && vouched.is_some_and(|vouched| vouched.sealed_with == SealedWith::Current);
        if shares && !is_sealed {
            shared.share(chain, principal);
        }
        if let (Some(parent_key), Some(parent)) = (beginnings.first(), chain.parent())
            && cache.find(*parent_key, self.now).is_none()
        {
            if shares && vouched_tokens < beginnings.len() {
                shared.share(&parent, principal);
            }
            let parent = cache.prepare(parent, self.now);
            cache.insert(*parent_key, &parent, self.now);
        }
        cache.insert(unverified.key, verified, self.now);
    }

    /// If a verified chain is revoked, caches that for its shortest revoked beginning, so that every other chain
    /// derived from that is denied without another signature check.
    fn remember_revoked(&mut self, chain: &VerifiedChain, key: CacheKey, beginnings: &[CacheKey], world: &impl World) {
        let Some((view, revision)) = world.revocations() else {
            return;
        };
        let skew = self.policy.limits.verification.iat_skew;
        let Err(mut reason) = revocation::check_revocation(chain, view, skew) else {
            return;
        };
        let (mut revoked, mut key) = (chain.clone(), key);
        for parent_key in beginnings {
            let Some(parent) = revoked.parent() else { break };
            match revocation::check_revocation(&parent, view, skew) {
                Ok(()) => break,
                Err(of_parent) => (reason, revoked, key) = (of_parent, parent, *parent_key),
            }
        }
        let reason = Denial::from(reason).reason;
        self.memories.refused.remember_verified(key, reason, Some(revision));
    }
}

/// Expiry and revocation: checked on every request, also for a cached chain.
pub(super) fn check_still_valid(
    policy: &Policy,
    chain: &CachedChain,
    now: UnixTime,
    world: &impl World,
) -> Result<(), Denial> {
    if chain.chain.expires_at() <= now {
        return Err(Reason::Expired.into());
    }
    check_revocation(policy, chain, world)?;
    if chain.trusted_until.get() <= now {
        return Err(Reason::KeysUnavailable.into());
    }
    Ok(())
}

/// Looks up the chain's subjects, unless the view has not changed since they were last found unrevoked.
fn check_revocation(policy: &Policy, cached: &CachedChain, world: &impl World) -> Result<(), Denial> {
    let (view, revision) = world.revocations().ok_or(Reason::NotReady)?;
    if cached.unrevoked_at.get() != Some(revision) {
        let skew = policy.limits.verification.iat_skew;
        revocation::check_revocation(&cached.chain, view, skew).inspect_err(|_| cached.clear_used())?;
        if cached.chain.has_fetched_anchor()
            && let Some(keys) = view.issuer_keys(&cached.chain.principal().issuer)
        {
            cached.trusted_until.set(keys.trusted_until());
        }
        cached.unrevoked_at.set(Some(revision));
    }
    Ok(())
}

/// Bytes of a token's `jti`, and of a root's `sub`, `client_id` and actors. The audit event contains all of them, and the
/// client that mints or derives a token chooses them: even the longest chain's event must fit.
pub const MAX_ID_BYTES: usize = 256;
