//! The decision cache: requests like one that was allowed before.
//!
//! An agent that sends the same request again, under the same delegation, needs less work: the rule that covers the
//! request, its arguments, and whether the delegation grants them cannot have changed. The engine checks what can change
//! on every request: freshness, expiry, revocation, and room for the record. A request that is not found here, or fails
//! one of those checks, is decided in full, and only a full decision denies.
//!
//! Two requests are equal if their texts are: the texts are compared whole, not by a hash.

use std::cell::OnceCell;
use std::rc::{Rc, Weak};

use credence_delegation::UnixTime;

use crate::chains::CachedChain;
use crate::grant::Grant;
use crate::request::{Header, Request};

/// A fixed number of places. A request has one of them, which another takes over that is asked twice in a row.
///
/// The chain itself stays the cache's: one that the cache has let go of is not found here either.
#[derive(Debug)]
pub struct DecisionCache {
    places: Vec<Place>,
}

/// A request that was allowed, and what there is to know about the next one like it.
#[derive(Debug)]
pub struct CachedDecision {
    /// The request's texts.
    texts: [Box<[u8]>; 4],
    chain: Weak<CachedChain>,
    /// What it was granted.
    pub grant: Rc<Grant>,
    /// The place of the rule that covers it.
    pub rule_index: usize,
    /// Its arguments in canonical form, if they are recorded.
    pub arguments: Option<Rc<str>>,
    evidence: OnceCell<Box<[u8]>>,
}

/// The texts that a decision on a request depends on, where it depends on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFingerprint<'r> {
    texts: [&'r [u8]; 4],
    hash: u64,
}

#[derive(Debug, Default)]
struct Place {
    /// Of the request that had this place last.
    hash: u64,
    decision: Option<Rc<CachedDecision>>,
}

// === impl DecisionCache ===

impl DecisionCache {
    /// A memory of at most so many requests; 0 turns it off.
    pub fn new(entries: usize) -> Self {
        let mut places = Vec::new();
        places.resize_with(entries, Place::default);
        Self { places }
    }

    /// Whether nothing is ever remembered.
    pub fn is_off(&self) -> bool {
        self.places.is_empty()
    }

    /// The request like this one that was allowed, if it is remembered, and its chain if that is still kept.
    pub fn find(
        &self,
        fingerprint: &RequestFingerprint<'_>,
        now: UnixTime,
    ) -> Option<(Rc<CachedDecision>, Rc<CachedChain>)> {
        let place = self.places.get(self.index(fingerprint)?)?;
        let cached = place.decision.as_ref()?;
        if place.hash != fingerprint.hash || !cached.is_like(fingerprint) {
            return None;
        }
        let chain = cached.chain.upgrade()?;
        chain.use_again(now);
        Some((Rc::clone(cached), chain))
    }

    /// A request was allowed. It is remembered if the last one of its place was, as far as can be told, the same: who never
    /// asks for the same thing twice does not pay for this memory.
    pub fn remember(
        &mut self,
        fingerprint: &RequestFingerprint<'_>,
        chain: &Rc<CachedChain>,
        grant: &Rc<Grant>,
        rule_index: usize,
        arguments: Option<&Rc<str>>,
    ) {
        let Some(place) = self.index(fingerprint).and_then(|index| self.places.get_mut(index)) else {
            return;
        };
        if place.hash != fingerprint.hash {
            *place = Place {
                hash: fingerprint.hash,
                decision: None,
            };
            return;
        }
        let bytes = fingerprint
            .texts
            .iter()
            .map(|text| text.len())
            .fold(0, usize::saturating_add);
        if bytes > MAX_TEXT_BYTES {
            return;
        }
        place.decision = Some(Rc::new(CachedDecision {
            texts: fingerprint.texts.map(Box::from),
            chain: Rc::downgrade(chain),
            grant: Rc::clone(grant),
            rule_index,
            arguments: arguments.cloned(),
            evidence: OnceCell::new(),
        }));
    }

    fn index(&self, fingerprint: &RequestFingerprint<'_>) -> Option<usize> {
        fingerprint
            .hash
            .checked_rem(self.places.len() as u64)
            .and_then(|place| usize::try_from(place).ok())
    }
}

// === impl CachedDecision ===

impl CachedDecision {
    /// What the events of all requests like this one have in common, encoded; `encode` does it the first time.
    pub fn evidence(&self, encode: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.evidence.get_or_init(|| {
            let mut encoded = Vec::new();
            encode(&mut encoded);
            encoded.into_boxed_slice()
        })
    }

    fn is_like(&self, fingerprint: &RequestFingerprint<'_>) -> bool {
        let mut texts = self.texts.iter().zip(fingerprint.texts);
        texts.all(|(own, text)| is_equal(own, text))
    }
}

// === impl RequestFingerprint ===

impl<'r> RequestFingerprint<'r> {
    /// What tells the request from others, if these texts are all that a decision about it may depend on but for what a
    /// rule asks of its other headers or of its holder.
    pub fn of(request: &Request<'r>) -> Option<Self> {
        let Header::Once(delegation) = request.delegation else {
            return None;
        };
        if request.has_body || request.leaves_http {
            return None;
        }
        // What differs most often first: a comparison ends at the first difference.
        let texts = [request.path, delegation, request.method, request.authority];
        // The end of a delegation is its signature, which no two share by chance.
        let tail = delegation
            .len()
            .checked_sub(TAIL_BYTES)
            .and_then(|start| delegation.get(start..))
            .unwrap_or_default();
        let hash = [request.path, tail, request.method]
            .into_iter()
            .fold(request.authority.len() as u64, mix);
        Some(Self { texts, hash })
    }
}

/// Stirs a text into a hash that only has to spread, not to tell apart.
fn mix(hash: u64, text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(last, byte)| *last = *byte);
    let length = text.len() as u64;
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.chain([length]).fold(hash, |hash, word| {
        let product = (hash ^ word).wrapping_mul(SPREAD);
        // A product alone would not let what is high have a say in what is low.
        product ^ (product >> 32)
    })
}

/// Whether two texts are the same, looking at eight bytes at a time: the compiler's own comparison looks at each alone in
/// Wasm.
fn is_equal(own: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (own.as_chunks::<8>(), other.as_chunks::<8>());
    own.len() == other.len()
        && rest == other_rest
        && words
            .iter()
            .zip(other_words)
            .all(|(word, other)| u64::from_le_bytes(*word) == u64::from_le_bytes(*other))
}

/// Bytes of a delegation's end that its place depends on.
const TAIL_BYTES: usize = 32;

/// The most bytes of a request's path, delegation, method and host together: a longer one is not remembered.
pub const MAX_TEXT_BYTES: usize = 4096;

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
