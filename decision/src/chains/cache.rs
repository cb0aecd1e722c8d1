//! The first-level cache: chains that this plugin has verified, by their presented bytes.
//!
//! It also finds the beginnings of chains: a new leaf under a known parent costs one signature, not the whole chain.
//!
//! Revoked chains are not cached: only chains that passed the revocation check are inserted, so a revoked holder cannot
//! evict others.
//!
//! A hit replaces only the signatures. Freshness, expiry, revocation, audience, tool and arguments are checked on every
//! request, hit or miss.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use credence_delegation::{UnixTime, VerifiedChain};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::agent::Agent;
use crate::grant::Grant;
use crate::usage_sketch::{Amount, Sharers, Shares};

/// A bounded cache of verified chains.
///
/// The key is SipHash-2-4 with 128 bits under a secret of this VM. A client that finds two headers, or two beginnings,
/// with the same key could present one and be accepted as the other. So the hash must be a keyed cryptographic one.
///
/// Eviction is second-chance: a chain that was used since the hand last passed stays. A principal with an eighth of a
/// full cache evicts its own chains, and those of others only once they are idle: its holders can derive any number of
/// leaves without costing another principal a hit.
#[derive(Debug)]
pub struct ChainCache {
    secret: [u8; 16],
    limits: Amount,
    places: HashMap<u128, usize, BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
    /// The usage of each principal.
    owned: Shares,
    /// How many chains were evicted since the start.
    pub(crate) evictions: u64,
}

/// A verified chain, and the revision of the revocation view at which it was last found unrevoked.
#[derive(Debug)]
pub struct CachedChain {
    /// The chain.
    pub chain: VerifiedChain,
    /// The revision of the view that does not revoke it; `None` if it was not looked up yet.
    pub unrevoked_at: Cell<Option<u64>>,
    /// When the key of its issuer stops counting, if that was fetched.
    pub trusted_until: Cell<UnixTime>,
    /// Its name in the evidence ([`VerifiedChain::digest`]).
    pub digest: [u8; 32],
    /// The principal and holder whose shares it uses.
    pub sharers: Sharers,
    /// Whether the chain was sent to the control plane.
    pub reported: Cell<Reported>,
    /// Whether it was used since the cache's hand last passed.
    used: Cell<bool>,
    /// When it was used last.
    used_at: Cell<UnixTime>,
    /// Its last grant. Most chains are used under one rule, by one agent.
    granted: RefCell<Option<Rc<Grant>>>,
}

/// Whether a chain was sent to the control plane, for reverification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// Not yet: it is sent before the first event that names it.
    Not,
    /// It did not fit into the ring. It is sent with a later event, if there is one.
    Shed,
    /// It waits in the ring, or was sent. Replicas have ledgers of their own: the number counts those that this filter
    /// has reported to.
    Sent {
        /// Which one it was.
        ledger: u32,
    },
}

impl CachedChain {
    /// Marks the chain as used, so that the cache keeps it.
    pub fn use_again(&self, now: UnixTime) {
        self.used.set(true);
        self.used_at.set(now);
    }

    /// Clears the mark: the use was not a hit.
    pub fn clear_used(&self) {
        self.used.set(false);
    }

    /// Whether it is idle: it has expired, or was not used for long.
    fn is_idle(&self, now: UnixTime) -> bool {
        self.chain.expires_at() <= now || self.used_at.get().plus(IDLE_SECONDS) <= now
    }

    /// The grant of `agent` under the rule with this number, for this tool unless it is the rule's: the last one if it
    /// matches, or the result of `make`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn grant<E>(
        &self,
        rule_index: usize,
        agent: Agent,
        tool: Option<&str>,
        make: impl FnOnce() -> Result<Grant, E>,
    ) -> Result<Rc<Grant>, E> {
        // Taken out, not borrowed, so that `make` cannot find it borrowed.
        let grant = match self.granted.take() {
            Some(grant) if grant.is_of(rule_index, agent, tool) => grant,
            Some(_) | None => Rc::new(make()?),
        };
        self.granted.replace(Some(Rc::clone(&grant)));
        Ok(grant)
    }
}

/// The key of a presented chain in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheKey(u128);

impl CacheKey {
    /// 64 bits that are uniform over all keys.
    pub(crate) fn uniform(self) -> u64 {
        // Either half of a SipHash is a good hash.
        (self.0 & u128::from(u64::MAX)) as u64
    }
}

#[derive(Debug)]
struct Slot {
    key: CacheKey,
    chain: Rc<CachedChain>,
    bytes: usize,
}

impl ChainCache {
    /// An empty cache. `secret` is random and never leaves the VM.
    pub fn new(secret: [u8; 16], limits: Amount) -> Self {
        Self {
            secret,
            limits,
            places: HashMap::default(),
            slots: Vec::new(),
            hand: 0,
            bytes: 0,
            owned: Shares::default(),
            evictions: 0,
        }
    }

    /// The key of a presented chain.
    pub fn key(&self, presented: &[u8]) -> CacheKey {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(presented);
        CacheKey(hasher.finish128().as_u128())
    }

    /// The keys of the beginnings of a presented chain, one token fewer each time: first without its leaf, last only
    /// the root. Empty for a root, and for a text with more than `most` beginnings: it is too long to be a chain, and
    /// costs nothing.
    pub fn keys_of_beginnings(&self, presented: &str, most: usize) -> Vec<CacheKey> {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        let mut keys: Vec<CacheKey> = Vec::new();
        let mut tokens = presented.split('~');
        // The leaf ends no beginning.
        tokens.next_back();
        for token in tokens {
            if keys.len() >= most {
                return Vec::new();
            }
            hasher.write(token.as_bytes());
            keys.push(CacheKey(hasher.finish128().as_u128()));
            hasher.write(b"~");
        }
        keys.reverse();
        keys
    }

    /// The chain that was verified under this key.
    pub fn find(&self, key: CacheKey, now: UnixTime) -> Option<Rc<CachedChain>> {
        let slot = self.slots.get(*self.places.get(&key.0)?)?;
        slot.chain.use_again(now);
        Some(Rc::clone(&slot.chain))
    }

    /// A verified and unrevoked chain, prepared for the cache.
    pub fn prepare(&self, chain: VerifiedChain, now: UnixTime) -> Rc<CachedChain> {
        Rc::new(CachedChain {
            digest: chain.digest(),
            sharers: Sharers::new(&self.secret, chain.principal(), &chain.user()),
            chain,
            unrevoked_at: Cell::new(None),
            trusted_until: Cell::new(UnixTime(i64::MAX)),
            reported: Cell::new(Reported::Not),
            used: Cell::new(false),
            used_at: Cell::new(now),
            granted: RefCell::new(None),
        })
    }

    /// Inserts a chain, unless it is too large for the whole cache.
    pub fn insert(&mut self, key: CacheKey, chain: &Rc<CachedChain>, now: UnixTime) {
        let bytes = [chain.chain.bytes(), Grant::bytes(&chain.chain), OVERHEAD_BYTES]
            .into_iter()
            .fold(0, usize::saturating_add);
        if bytes > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        self.remove(key);
        let principal = chain.sharers.principal;
        while self.slots.len() >= self.limits.entries || self.bytes.saturating_add(bytes) > self.limits.bytes {
            let owned = self.owned.of(principal);
            let has_its_share = owned.entries >= self.limits.entries.div_ceil(PRINCIPAL_SHARE)
                || owned.bytes >= self.limits.bytes.div_ceil(PRINCIPAL_SHARE);
            let for_principal = |chain: &CachedChain| chain.sharers.principal == principal || chain.is_idle(now);
            // A principal that seems to have its share but has no chain here collides with others in the sketch.
            if !(has_its_share && self.evict_one(for_principal) || self.evict_one(|_| true)) {
                return;
            }
        }
        self.places.insert(key.0, self.slots.len());
        self.slots.push(Slot {
            key,
            chain: Rc::clone(chain),
            bytes,
        });
        self.bytes = self.bytes.saturating_add(bytes);
        self.owned.add([principal], Amount::one(bytes));
    }

    /// Removes a chain.
    pub fn remove(&mut self, key: CacheKey) {
        if let Some(place) = self.places.get(&key.0).copied() {
            self.remove_at(place);
        }
    }

    /// The number of cached chains.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no chain is cached.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of memory of the cached chains.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Evicts one of the chains for which `may_go` is true.
    fn evict_one(&mut self, may_go: impl Fn(&CachedChain) -> bool) -> bool {
        // The first round clears every mark, so the second one finds a chain.
        let turns = self.slots.len().saturating_mul(2);
        for _ in 0..turns {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let Some(slot) = self.slots.get(self.hand) else {
                return false;
            };
            if may_go(&slot.chain) && !slot.chain.used.replace(false) {
                self.remove_at(self.hand);
                // The newest chain took this slot; its turn comes after all others.
                self.hand = self.hand.saturating_add(1);
                self.evictions = self.evictions.saturating_add(1);
                return true;
            }
            self.hand = self.hand.saturating_add(1);
        }
        false
    }

    fn remove_at(&mut self, place: usize) {
        if place >= self.slots.len() {
            return;
        }
        let slot = self.slots.swap_remove(place);
        self.places.remove(&slot.key.0);
        self.bytes = self.bytes.saturating_sub(slot.bytes);
        self.owned
            .remove([slot.chain.sharers.principal], Amount::one(slot.bytes));
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.key.0, place);
        }
    }
}

/// The keys are uniform already, so no further hash is needed.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, _: &[u8]) {}

    fn write_u128(&mut self, key: u128) {
        self.0 = CacheKey(key).uniform();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A principal with one part in this many of a full cache evicts only its own chains.
const PRINCIPAL_SHARE: usize = 8;

/// A chain that was not used for this long is idle.
const IDLE_SECONDS: u64 = 60;

/// The cache's overhead for a chain: its slot, its index entry, and the allocator's share.
const OVERHEAD_BYTES: usize = 240;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    const NOW: UnixTime = UnixTime(samples::NOW);

    fn cache(entries: usize, bytes: usize) -> ChainCache {
        ChainCache::new([7; 16], Amount { entries, bytes })
    }

    fn keep(cache: &mut ChainCache, name: &str, excluded_numbers: usize) {
        let key = cache.key(name.as_bytes());
        let chain = cache.prepare(samples::chain_excluding(excluded_numbers), NOW);
        cache.insert(key, &chain, NOW);
    }

    /// Sends many one-off chains of one principal through the cache, and looks up another principal's after every few
    /// of them.
    fn hits_during_a_flood(cache: &mut ChainCache, flooder: &VerifiedChain, is_used_twice: bool) -> usize {
        let other = cache.prepare(samples::chain_for("bob"), NOW);
        let mut hits = 0;
        for number in 0..2_000 {
            let key = cache.key(format!("flood {number}").as_bytes());
            cache.insert(key, &cache.prepare(flooder.clone(), NOW), NOW);
            if is_used_twice {
                assert!(cache.find(key, NOW).is_some());
            }
            if number % 100 == 0 {
                let key = cache.key(b"other");
                match cache.find(key, NOW) {
                    Some(_) => hits += 1,
                    None => cache.insert(key, &other, NOW),
                }
            }
        }
        hits
    }

    #[test]
    fn new_chains_of_one_principal_cost_another_no_hit() {
        for is_used_twice in [false, true] {
            let mut cache = cache(64, 1 << 20);
            let flooder = samples::chain_for("mallory");
            assert_eq!(
                hits_during_a_flood(&mut cache, &flooder, is_used_twice),
                19,
                "all except the first"
            );
            assert_eq!(cache.len(), 64);
        }
    }

    #[test]
    fn one_principal_alone_has_the_whole_cache() {
        let mut cache = cache(64, 1 << 20);
        for number in 0..64 {
            keep(&mut cache, &number.to_string(), 1);
        }
        assert!((0..64).all(|number| has(&cache, &number.to_string())));
        keep(&mut cache, "more", 1);
        assert!(has(&cache, "more"));
        assert_eq!((cache.len(), cache.evictions), (64, 1));
    }

    /// A cache filled by other principals, into which one principal inserts as many chains, `seconds` later. Returns
    /// how many of those are kept.
    fn kept_among_others_after(seconds: u64) -> usize {
        let mut cache = cache(64, 1 << 20);
        for number in 0..64 {
            let key = cache.key(format!("other {number}").as_bytes());
            let chain = cache.prepare(samples::chain_for(&format!("other {number}")), NOW);
            cache.insert(key, &chain, NOW);
        }
        let later = NOW.plus(seconds);
        let keys: Vec<_> = (0..64)
            .map(|number| cache.key(format!("busy {number}").as_bytes()))
            .collect();
        for key in &keys {
            let chain = cache.prepare(samples::chain_for("busy"), later);
            cache.insert(*key, &chain, later);
        }
        keys.iter().filter(|key| cache.find(**key, later).is_some()).count()
    }

    #[test]
    fn a_busy_principal_evicts_only_idle_chains_of_others() {
        assert_eq!(kept_among_others_after(IDLE_SECONDS - 1), 64 / PRINCIPAL_SHARE);
        assert!(kept_among_others_after(IDLE_SECONDS) > 60, "nearly all of it");
    }

    #[test]
    fn a_principal_with_few_chains_evicts_those_of_one_with_many() {
        let mut cache = cache(64, 1 << 20);
        for number in 0..64 {
            keep(&mut cache, &number.to_string(), 1);
        }
        for number in 0..10 {
            let key = cache.key(format!("bob {number}").as_bytes());
            let chain = cache.prepare(samples::chain_for("bob"), NOW);
            cache.insert(key, &chain, NOW);
        }
        let kept = (0..10).filter(|number| has(&cache, &format!("bob {number}")));
        assert!(kept.count() >= 8, "an eighth at least");
    }

    fn has(cache: &ChainCache, name: &str) -> bool {
        cache.find(cache.key(name.as_bytes()), NOW).is_some()
    }

    #[test]
    fn finds_exactly_the_inserted_chains() {
        let mut cache = cache(2, 1 << 20);
        keep(&mut cache, "a", 1);
        assert!(has(&cache, "a"));
        assert!(!has(&cache, "b"));
        cache.remove(cache.key(b"a"));
        assert!(!has(&cache, "a"));
        assert_eq!((cache.len(), cache.bytes), (0, 0));
    }

    #[test]
    fn a_chain_in_use_outlives_one_that_is_not() {
        let mut cache = cache(2, 1 << 20);
        keep(&mut cache, "used", 1);
        keep(&mut cache, "unused", 1);
        assert!(has(&cache, "used"));
        keep(&mut cache, "new", 1);
        assert!(has(&cache, "used") && has(&cache, "new") && !has(&cache, "unused"));
        assert_eq!(cache.evictions, 1);
    }

    #[test]
    fn stays_within_its_entries_and_bytes() {
        let mut cache = cache(50, 64 * 1024);
        for i in 0..300 {
            keep(&mut cache, &i.to_string(), (i * 37) % 100);
            if i % 3 == 0 {
                has(&cache, &(i / 2).to_string());
            }
            assert!(cache.len() <= 50 && cache.bytes <= 64 * 1024);
            assert_eq!(cache.bytes, cache.slots.iter().map(|slot| slot.bytes).sum::<usize>());
            assert_eq!(cache.places.len(), cache.slots.len());
        }
        assert!(cache.evictions > 0);
    }

    #[test]
    fn a_chain_larger_than_the_cache_is_not_kept() {
        let mut cache = cache(10, 20_000);
        keep(&mut cache, "small", 1);
        keep(&mut cache, "huge", 2_000);
        assert!(has(&cache, "small") && !has(&cache, "huge"));
    }

    #[test]
    fn a_beginning_has_the_key_of_the_same_chain_alone() {
        let cache = cache(1, 1);
        let keys = cache.keys_of_beginnings("root~child~leaf", 2);
        assert_eq!(keys, [cache.key(b"root~child"), cache.key(b"root")]);
        assert_eq!(cache.keys_of_beginnings("root", 2), []);
        assert_eq!(cache.keys_of_beginnings("~", 2), [cache.key(b"")]);
    }

    #[test]
    fn a_text_too_long_for_a_chain_has_no_beginnings() {
        let cache = cache(1, 1);
        assert_eq!(cache.keys_of_beginnings("root~child~leaf", 1), []);
        assert_eq!(cache.keys_of_beginnings(&"~".repeat(32_768), 8), []);
        assert_eq!(cache.keys_of_beginnings("root~leaf", 0), []);
    }

    #[test]
    fn the_key_depends_on_the_secret() {
        let other = ChainCache::new([8; 16], Amount { entries: 1, bytes: 1 });
        assert_ne!(cache(1, 1).key(b"a"), other.key(b"a"));
    }
}
