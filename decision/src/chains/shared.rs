//! The second-level cache: chains that a worker of this process has verified, so that another worker, or the same one
//! in a new VM, need not verify their signatures again.
//!
//! It is in proxy-wasm shared data, which outlives a VM, which every plugin with the same `vm_id` can write, and which
//! can never free a key. So the keys are a fixed set of buckets, and an entry is not trusted because of its place: it
//! counts only if a key that the control plane has given to this node has sealed it. Otherwise it is ignored, and the
//! chain is verified.
//!
//! An entry vouches only for signatures. Claims are parsed, and everything except signatures is checked again
//! (`Beginning::verify_vouching_for_signatures`).
//!
//! Entries are written at ticks, never while a request waits.
//!
//! ```text
//! bucket  = up to 8 entries, the oldest first
//! entry   = tag (8 bytes) | exp (8, little-endian) | anchor (32) | seal (32)
//! tag     = half of the keyed hash that also chose the bucket: where to look, nothing more
//! anchor  = thumbprint of the trust anchor that signed the root
//! seal    = HMAC-SHA256 over context | digest of the tokens | exp | anchor
//! context = SHA-256 over the version of this module and of this layout, the trust anchors and all algorithms
//! ```

use std::collections::VecDeque;
use std::hash::Hasher;

use credence_delegation::{Algorithm, Algorithms, Beginning, Chain, Thumbprint, TrustAnchors, UnixTime, VerifiedChain};
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::revocation::{SealKeys, SealedWith};
use crate::shared_store::SharedStore;
use crate::usage_sketch::{UsageSketch, UserKey};

/// One configuration's access to the chains that the process's workers share.
#[derive(Debug)]
pub struct SharedChains {
    secret: [u8; 16],
    buckets: u32,
    context: SealContext,
    waiting: VecDeque<Verified>,
    /// The number of waiting chains of each principal.
    owned: UsageSketch,
    /// The number of look-ups in a row without a result, up to [`PATIENCE`]; after that, the number of skipped
    /// look-ups.
    fruitless: u32,
    /// Counters.
    pub(crate) counters: Counters,
}

/// The context of an entry: it is only valid for the same module, trust anchors and algorithms.
///
/// Limits are not part of it. They do not affect whether a signature is valid, and all of them are checked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealContext([u8; 32]);

/// The longest part of a chain that an entry vouches for.
#[derive(Debug, Clone, Copy)]
pub struct Found<'c, 'a> {
    /// That part of the chain.
    pub beginning: Beginning<'c, 'a>,
    /// The key of the trust anchor that signed its root.
    pub anchor: Thumbprint,
    /// The key of the seal. An entry under the previous key should be written again before that key is forgotten.
    pub sealed_with: SealedWith,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Look-ups that found the whole chain.
    pub hits: u64,
    /// Look-ups that found a beginning of the chain.
    pub beginnings: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Entries written.
    pub stored: u64,
    /// Verified chains that were not shared: too many at once, a concurrent write by another worker, or a failure of
    /// the host.
    pub dropped: u64,
}

/// The properties of a verified chain that an entry needs.
#[derive(Debug, Clone, Copy)]
struct Verified {
    digest: [u8; 32],
    expires_at: UnixTime,
    anchor: Thumbprint,
    principal: UserKey,
}

impl SharedChains {
    /// From now on, entries count that were made in this context.
    pub fn set_context(&mut self, context: SealContext) {
        self.context = context;
    }

    /// Capacity for `entries` chains, rounded up to whole buckets; 0 turns it off. The workers of this process share
    /// `secret` ([`crate::proofs::ReplayMemory::secret`]). It only prevents clients from choosing the bucket of a
    /// chain.
    pub fn new(secret: [u8; 16], entries: usize, context: SealContext) -> Self {
        Self {
            secret,
            buckets: u32::try_from(entries.div_ceil(ENTRIES_PER_BUCKET)).unwrap_or(u32::MAX),
            context,
            waiting: VecDeque::new(),
            owned: UsageSketch::default(),
            fruitless: 0,
            counters: Counters::default(),
        }
    }

    /// Whether the capacity is not 0.
    pub fn is_on(&self) -> bool {
        self.buckets > 0
    }

    /// Looks up a chain, then its beginnings, the longest first. Each look-up takes the host's process-wide lock, so
    /// there are at most [`MAX_LOOKS`]. After [`PATIENCE`] fruitless look-ups in a row (a single worker, or only new
    /// chains), only one in [`ONE_IN`] is made until one finds something. A skipped look-up may cost a signature, but
    /// never changes an answer.
    pub fn find<'c, 'a>(
        &mut self,
        chain: &'c Chain<'a>,
        now: UnixTime,
        store: &mut impl SharedStore,
        keys: &SealKeys,
    ) -> Option<Found<'c, 'a>> {
        if !self.is_on() || self.is_left_out() {
            return None;
        }
        for (dropped, beginning) in chain.beginnings().into_iter().take(MAX_LOOKS).enumerate() {
            if let Some((anchor, sealed_with)) = self.look(beginning.digest(), now, store, keys) {
                let count = if dropped == 0 {
                    &mut self.counters.hits
                } else {
                    &mut self.counters.beginnings
                };
                *count = count.saturating_add(1);
                self.fruitless = 0;
                return Some(Found {
                    beginning,
                    anchor,
                    sealed_with,
                });
            }
        }
        self.counters.misses = self.counters.misses.saturating_add(1);
        self.fruitless = self.fruitless.saturating_add(1);
        None
    }

    /// Whether to skip this look-up. After [`PATIENCE`] look-ups without a result, only one in [`ONE_IN`] is made.
    fn is_left_out(&mut self) -> bool {
        if self.fruitless < PATIENCE {
            return false;
        }
        let left_out = self.fruitless.saturating_sub(PATIENCE);
        let is_its_turn = left_out >= ONE_IN.saturating_sub(1);
        self.fruitless = if is_its_turn {
            PATIENCE.saturating_sub(1)
        } else {
            self.fruitless.saturating_add(1)
        };
        !is_its_turn
    }

    /// Queues a principal's chain, which is verified and not revoked, for the next [`SharedChains::write_waiting`]. A
    /// principal may have at most as many waiting chains as there are free places.
    pub fn share(&mut self, chain: &VerifiedChain, principal: UserKey) {
        if !self.is_on() {
            return;
        }
        if self.waiting.len().saturating_add(self.owned.of(principal)) >= MAX_WAITING {
            self.counters.dropped = self.counters.dropped.saturating_add(1);
            return;
        }
        self.waiting.push_back(Verified {
            digest: chain.digest(),
            expires_at: chain.expires_at(),
            anchor: chain.anchor(),
            principal,
        });
        self.owned.add(principal, 1);
    }

    /// Writes waiting chains, at most [`MAX_WRITES`] entries.
    pub fn write_waiting(&mut self, now: UnixTime, store: &mut impl SharedStore, keys: &SealKeys) {
        for _ in 0..MAX_WRITES {
            let Some(verified) = self.waiting.pop_front() else {
                return;
            };
            self.owned.remove(verified.principal, 1);
            let count = match self.write(&verified, now, store, keys) {
                Written::Stored => &mut self.counters.stored,
                Written::NotNeeded => continue,
                Written::Lost => &mut self.counters.dropped,
            };
            *count = count.saturating_add(1);
        }
    }

    fn look(
        &self,
        digest: &[u8; 32],
        now: UnixTime,
        store: &mut impl SharedStore,
        keys: &SealKeys,
    ) -> Option<(Thumbprint, SealedWith)> {
        let place = self.place(digest)?;
        // If the host's read fails, the bucket counts as empty.
        let (bucket, _) = store.read(&place.key).ok()??;
        let candidates = entries(&bucket).filter(|entry| entry.tag == place.tag && entry.expires_at() > now);
        candidates.into_iter().find_map(|entry| {
            let parts = self.sealed_parts(digest, &entry.expires_at, &entry.anchor);
            let sealed_with = keys.check(&parts, &entry.seal)?;
            Some((Thumbprint::from_bytes(entry.anchor), sealed_with))
        })
    }

    fn write(&self, verified: &Verified, now: UnixTime, store: &mut impl SharedStore, keys: &SealKeys) -> Written {
        let Some(place) = self.place(&verified.digest) else {
            return Written::NotNeeded;
        };
        if verified.expires_at <= now {
            return Written::NotNeeded;
        }
        let expires_at = verified.expires_at.0.to_le_bytes();
        let anchor = *verified.anchor.as_bytes();
        let new = Entry {
            tag: place.tag,
            expires_at,
            anchor,
            seal: keys.seal(&self.sealed_parts(&verified.digest, &expires_at, &anchor)),
        };
        let (bucket, version) = match store.read(&place.key) {
            Ok(Some((bucket, version))) => (bucket, Some(version)),
            Ok(None) => (Vec::new(), None),
            Err(_) => return Written::Lost,
        };
        match with_entry(&bucket, &new, now) {
            None => Written::NotNeeded,
            Some(updated) => match store.write(&place.key, &updated, version) {
                Ok(true) => Written::Stored,
                Ok(false) | Err(_) => Written::Lost,
            },
        }
    }

    /// Every part has a fixed length, so that no two entries have the same sealed bytes.
    fn sealed_parts<'p>(
        &'p self,
        digest: &'p [u8; 32],
        expires_at: &'p [u8; 8],
        anchor: &'p [u8; 32],
    ) -> [&'p [u8]; 4] {
        [&self.context.0, digest, expires_at, anchor]
    }

    /// The place of a chain's entry. `None` if the capacity is 0.
    fn place(&self, digest: &[u8; 32]) -> Option<Place> {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(BUCKET_PREFIX.as_bytes());
        hasher.write(digest);
        let hash = hasher.finish128();
        let bucket = hash.h1.checked_rem(self.buckets.into())?;
        Some(Place {
            key: format!("{BUCKET_PREFIX}{bucket}"),
            tag: hash.h2.to_le_bytes(),
        })
    }
}

impl SealContext {
    /// The context of a configuration.
    pub fn new(anchors: &TrustAnchors, holder_algorithms: &Algorithms) -> Self {
        let mut hasher = Sha256::new();
        // Lengths before texts, so that the encoding is unambiguous.
        let text = |hasher: &mut Sha256, text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        let algorithms = |hasher: &mut Sha256, allowed: &Algorithms| {
            for algorithm in Algorithm::ALL {
                hasher.update([u8::from(allowed.allow(algorithm))]);
            }
        };
        text(&mut hasher, LAYOUT);
        text(&mut hasher, env!("CARGO_PKG_VERSION"));
        algorithms(&mut hasher, holder_algorithms);
        for anchor in anchors.iter() {
            text(&mut hasher, &anchor.issuer);
            hasher.update(anchor.key.thumbprint().as_bytes());
            hasher.update([u8::from(anchor.key_id.is_some()), u8::from(anchor.asserts_subjects)]);
            text(&mut hasher, anchor.key_id.as_deref().unwrap_or_default());
            algorithms(&mut hasher, &anchor.algorithms);
        }
        Self(hasher.finalize().into())
    }
}

/// The result of writing an entry.
enum Written {
    Stored,
    /// It exists already, or is useless now.
    NotNeeded,
    Lost,
}

struct Place {
    key: String,
    tag: [u8; 8],
}

/// The entry of one chain in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: [u8; 8],
    expires_at: [u8; 8],
    anchor: [u8; 32],
    seal: [u8; 32],
}

impl Entry {
    const BYTES: usize = 80;

    fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (expires_at, rest) = rest.split_first_chunk()?;
        let (anchor, seal) = rest.split_first_chunk()?;
        Some(Self {
            tag: *tag,
            expires_at: *expires_at,
            anchor: *anchor,
            seal: seal.try_into().ok()?,
        })
    }

    fn append_to(&self, bucket: &mut Vec<u8>) {
        bucket.extend_from_slice(&self.tag);
        bucket.extend_from_slice(&self.expires_at);
        bucket.extend_from_slice(&self.anchor);
        bucket.extend_from_slice(&self.seal);
    }

    fn expires_at(&self) -> UnixTime {
        UnixTime(i64::from_le_bytes(self.expires_at))
    }
}

/// The entries of a bucket; none if the data is not a bucket of this layout.
fn entries(bucket: &[u8]) -> impl Iterator<Item = Entry> {
    let (entries, rest) = bucket.as_chunks::<{ Entry::BYTES }>();
    let is_ours = rest.is_empty() && entries.len() <= ENTRIES_PER_BUCKET;
    let entries = if is_ours { entries } else { &[] };
    entries.iter().filter_map(Entry::read)
}

/// The bucket with the new entry, which replaces an expired one, one with the same tag, or else the oldest. `None` if
/// the bucket has the entry already.
fn with_entry(bucket: &[u8], new: &Entry, now: UnixTime) -> Option<Vec<u8>> {
    let mut kept: Vec<Entry> = entries(bucket).collect();
    if kept.contains(new) {
        return None;
    }
    kept.retain(|entry| entry.tag != new.tag && entry.expires_at() > now);
    let excess = kept.len().saturating_add(1).saturating_sub(ENTRIES_PER_BUCKET);
    kept.drain(..excess.min(kept.len()));
    kept.push(*new);
    let mut updated = Vec::with_capacity(kept.len().saturating_mul(Entry::BYTES));
    kept.iter().for_each(|entry| entry.append_to(&mut updated));
    Some(updated)
}

/// Change this whenever the meaning of an entry or the verification of a chain changes without a new version of the
/// module.
const LAYOUT: &str = "credence shared chains 1";

const BUCKET_PREFIX: &str = "credence/chains/1/";

/// 8 entries make 640 bytes, which each look-up copies.
const ENTRIES_PER_BUCKET: usize = 8;

/// How many parts of a chain are looked up: itself, its parent, and its parent's parent.
pub const MAX_LOOKS: usize = 3;

/// Fruitless look-ups in a row before most are skipped.
pub const PATIENCE: u32 = 256;

/// One in this many is then made: a look-up costs a sixteenth of a signature.
pub const ONE_IN: u32 = 8;

/// Verified chains that wait to be written; at most half of them are one principal's.
pub const MAX_WAITING: usize = 256;

/// Entries that one call writes. Each takes the process-wide lock twice.
pub const MAX_WRITES: usize = 16;

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
