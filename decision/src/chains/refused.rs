//! The negative cache: refused chains, so that the same bad chain does not cost a second verification.
//!
//! A reason that neither time nor revocations can change is cached permanently: an invalid signature, a token that is
//! not linked to its parent or grants more. A revoked chain is cached until the revocations change, under its shortest
//! revoked beginning: so leaves that a revoked holder derives cost no signature either. Each configuration has its own
//! cache, so that a new one starts empty.

use credence_delegation::{Cause, Denial, Step};

use super::cache::CacheKey;
use crate::decision;

/// A fixed number of slots. Each chain maps to one slot, which the next chain of that slot overwrites.
///
/// A flood of different bad chains can only make it forget: an entry is found only under the whole key, which is the
/// chain's keyed hash under a secret of this VM.
#[derive(Debug)]
pub struct RefusedChains {
    /// Empty until the first chain is refused.
    places: Vec<Option<(CacheKey, Refusal)>>,
    entries: usize,
}

/// Why a chain is refused, without its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    reason: decision::Reason,
    step: Option<Step>,
    /// The revision of the revocation view that the refusal depends on.
    revision: Option<u64>,
}

impl RefusedChains {
    /// A cache of at most `entries` chains; 0 turns it off. A slot takes at most 64 bytes.
    pub fn new(entries: usize) -> Self {
        Self {
            places: Vec::new(),
            entries,
        }
    }

    /// Why the chain with this key was refused, if that is cached and still valid at this revision.
    pub fn find(&self, key: CacheKey, revision: Option<u64>) -> Option<decision::Denial> {
        self.look_up(key)
            .filter(|refusal| refusal.revision.is_none() || refusal.revision == revision)
            .map(Refusal::denial)
    }

    /// Why the beginning with this key is revoked, if that is cached and still valid at this revision.
    pub fn find_revoked(&self, key: CacheKey, revision: Option<u64>) -> Option<decision::Denial> {
        self.look_up(key)
            .filter(|refusal| refusal.revision.is_some() && refusal.revision == revision)
            .map(Refusal::denial)
    }

    /// Caches a refused chain, if it will certainly be refused again and cost a signature. If its root was refused,
    /// pass the root's key: every chain derived from it is refused too.
    pub fn remember(&mut self, key: CacheKey, denial: &Denial) {
        if !is_for_good(&denial.cause) {
            return;
        }
        let refusal = Refusal {
            reason: decision::Denial::from(denial.clone()).reason,
            step: Some(denial.step),
            revision: None,
        };
        self.put(key, refusal);
    }

    /// Caches a verified chain that is refused: permanently, or at this revision only.
    pub fn remember_verified(&mut self, key: CacheKey, reason: decision::Reason, revision: Option<u64>) {
        let refusal = Refusal {
            reason,
            step: None,
            revision,
        };
        self.put(key, refusal);
    }

    fn look_up(&self, key: CacheKey) -> Option<Refusal> {
        let (taken, refusal) = self.places.get(self.place(key)?)?.as_ref()?;
        (*taken == key).then_some(*refusal)
    }

    fn put(&mut self, key: CacheKey, refusal: Refusal) {
        // Without memory for it, nothing is remembered.
        if self.places.is_empty() && self.places.try_reserve_exact(self.entries).is_ok() {
            self.places.resize(self.entries, None);
        }
        if let Some(place) = self.place(key).and_then(|place| self.places.get_mut(place)) {
            *place = Some((key, refusal));
        }
    }

    fn place(&self, key: CacheKey) -> Option<usize> {
        key.uniform()
            .checked_rem(self.entries as u64)
            .and_then(|place| usize::try_from(place).ok())
    }
}

impl Refusal {
    fn denial(self) -> decision::Denial {
        decision::Denial {
            reason: self.reason,
            argument: None,
            step: self.step,
        }
    }
}

/// Whether the cause depends only on the chain, and is found after a signature check. Some other causes depend on the
/// time; the rest are cheaper to find again than to look up, or do not concern chains.
fn is_for_good(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::SignatureInvalid
            | Cause::Linkage(_)
            | Cause::Attenuation(_)
            | Cause::Constraint(_)
            | Cause::Claim { .. }
            | Cause::Key(_)
            | Cause::Json(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chains::ChainCache;
    use crate::usage_sketch::Amount;

    fn key(name: &str) -> CacheKey {
        ChainCache::new([7; 16], Amount { entries: 1, bytes: 1 }).key(name.as_bytes())
    }

    fn denial(cause: Cause) -> Denial {
        Denial { step: Step::S4b, cause }
    }

    #[test]
    fn a_permanently_invalid_chain_is_cached_with_its_reason() {
        let mut refused = RefusedChains::new(8);
        refused.remember(key("a"), &denial(Cause::SignatureInvalid));
        let found = refused.find(key("a"), Some(1)).unwrap();
        assert_eq!(
            (found.reason, found.step),
            (decision::Reason::SignatureInvalid, Some(Step::S4b))
        );
        assert_eq!(refused.find(key("b"), Some(1)), None);
    }

    #[test]
    fn a_chain_that_may_be_valid_at_another_time_is_not_cached() {
        let mut refused = RefusedChains::new(8);
        for cause in [Cause::Expired, Cause::IssuedInFuture, Cause::IssuerUnknown] {
            refused.remember(key("a"), &denial(cause));
        }
        assert_eq!(refused.find(key("a"), Some(1)), None);
    }

    #[test]
    fn a_revoked_chain_is_cached_until_the_revocations_change() {
        let mut refused = RefusedChains::new(8);
        refused.remember_verified(key("a"), decision::Reason::RevokedPrincipal, Some(7));
        for find in [RefusedChains::find, RefusedChains::find_revoked] {
            let found = find(&refused, key("a"), Some(7)).map(|denial| denial.reason);
            assert_eq!(found, Some(decision::Reason::RevokedPrincipal));
            assert_eq!(find(&refused, key("a"), Some(8)), None);
            assert_eq!(find(&refused, key("a"), None), None);
        }
        refused.remember(key("b"), &denial(Cause::SignatureInvalid));
        assert_eq!(
            refused.find_revoked(key("b"), Some(7)),
            None,
            "a chain with this beginning may be valid"
        );
    }

    #[test]
    fn it_never_exceeds_its_limit() {
        let mut refused = RefusedChains::new(8);
        for number in 0..100 {
            refused.remember(key(&number.to_string()), &denial(Cause::SignatureInvalid));
        }
        let remembered = (0..100).filter(|number| refused.find(key(&number.to_string()), Some(1)).is_some());
        assert!((1..=8).contains(&remembered.count()));
        let mut off = RefusedChains::new(0);
        off.remember(key("a"), &denial(Cause::SignatureInvalid));
        assert_eq!(off.find(key("a"), Some(1)), None);
    }
}
