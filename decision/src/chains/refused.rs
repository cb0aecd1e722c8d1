//! The negative memory: chains that were refused for what they are, so that the same bad chain does not buy a second
//! verification.
//!
//! What no other time and no revocation could change is remembered for good: a signature that does not verify, a token
//! that is not linked to its parent or grants more. That a chain is revoked is remembered until the revocations change,
//! and of its shortest beginning that is: so that the leaves which a revoked holder derives buy no signature either. A
//! configuration keeps its own memory, so that a new one starts afresh.

use credence_delegation::{Cause, Denial, Step};

use super::cache::CacheKey;
use crate::decision;

/// A fixed number of places; each chain has one, which the next chain of that place takes over.
///
/// A flood of different bad chains can make it forget, and that is all it can do: an entry is found only under the
/// whole key, which is the chain's keyed hash under a secret of this VM.
#[derive(Debug)]
pub struct RefusedChains {
    places: Vec<Option<(CacheKey, Refusal)>>,
}

/// Why a chain is refused, without the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    reason: decision::Reason,
    step: Option<Step>,
    /// The revision of the revocation view that it depends on.
    revision: Option<u64>,
}

impl RefusedChains {
    /// A memory of at most so many chains; 0 turns it off. A place takes 64 bytes at most.
    pub fn new(entries: usize) -> Self {
        Self {
            places: vec![None; entries],
        }
    }

    /// Why the chain of this key was refused, if that is remembered and still so at this revision.
    pub fn find(&self, key: CacheKey, revision: Option<u64>) -> Option<decision::Denial> {
        self.look_up(key)
            .filter(|refusal| refusal.revision.is_none() || refusal.revision == revision)
            .map(Refusal::denial)
    }

    /// Why the chain of this key, with which another begins, is revoked, if that is remembered and still so.
    pub fn find_revoked(&self, key: CacheKey, revision: Option<u64>) -> Option<decision::Denial> {
        self.look_up(key)
            .filter(|refusal| refusal.revision.is_some() && refusal.revision == revision)
            .map(Refusal::denial)
    }

    /// Remembers a chain that was refused, if it will be refused again for sure, and had cost a signature. Where its root was
    /// refused, that is what to remember: every chain derived from it is refused too.
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

    /// Remembers a verified chain that is refused: at any time, or at this revision alone.
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
        if let Some(place) = self.place(key).and_then(|place| self.places.get_mut(place)) {
            *place = Some((key, refusal));
        }
    }

    fn place(&self, key: CacheKey) -> Option<usize> {
        key.uniform()
            .checked_rem(self.places.len() as u64)
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

/// Whether the cause is in the chain alone, and is not found before a signature is paid for. Another time decides otherwise
/// about some of the others; the rest are cheaper to find again than to look up, or are not of chains.
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
    fn a_chain_that_is_wrong_for_good_is_remembered_with_its_reason() {
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
    fn a_chain_that_another_time_could_allow_is_not() {
        let mut refused = RefusedChains::new(8);
        for cause in [Cause::Expired, Cause::IssuedInFuture, Cause::IssuerUnknown] {
            refused.remember(key("a"), &denial(cause));
        }
        assert_eq!(refused.find(key("a"), Some(1)), None);
    }

    #[test]
    fn that_a_chain_is_revoked_is_remembered_until_the_revocations_change() {
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
            "a chain that begins so may be good"
        );
    }

    #[test]
    fn it_never_holds_more_than_it_may() {
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
