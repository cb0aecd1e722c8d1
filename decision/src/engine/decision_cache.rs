//! The decision cache: requests equal to one that was allowed before.
//!
//! An agent that repeats a request under the same delegation needs less work: the matching rule, the arguments, and
//! whether the delegation grants them cannot have changed. The engine still checks what can change: freshness, expiry,
//! revocation, and room for the record. A request that is not found here, or fails one of those checks, is decided in
//! full, and only a full decision denies.
//!
//! Two requests are equal if their texts are. The texts are compared whole, not by a hash.

use std::cell::OnceCell;
use std::rc::{Rc, Weak};

use credence_delegation::UnixTime;

use crate::chains::CachedChain;
use crate::grant::Grant;
use crate::request::{Header, Request};

/// A fixed number of slots. A request maps to one of them. Another request takes a slot over if it is asked twice in a
/// row.
///
/// The chain itself belongs to the chain cache: a request whose chain was evicted there is not found here either.
#[derive(Debug)]
pub struct DecisionCache {
    places: Vec<Place>,
}

/// An allowed request, and the data for equal requests.
#[derive(Debug)]
pub struct CachedDecision {
    /// The request's texts.
    texts: [Box<[u8]>; 4],
    carriers: Carriers,
    chain: Weak<CachedChain>,
    /// Its grant.
    pub grant: Rc<Grant>,
    /// The index of its rule.
    pub rule_index: usize,
    /// Its arguments in canonical form, if they are recorded.
    pub arguments: Option<Rc<str>>,
    evidence: OnceCell<Box<[u8]>>,
}

/// The texts that a decision on a request depends on, if it depends on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFingerprint<'r> {
    texts: [&'r [u8]; 4],
    carriers: Carriers,
    hash: u64,
}

/// The headers with a credential: whether a delegation, and whether an `Authorization`, is there.
type Carriers = (bool, bool);

#[derive(Debug, Default)]
struct Place {
    /// The hash of the last request of this slot.
    hash: u64,
    decision: Option<Rc<CachedDecision>>,
}

// === impl DecisionCache ===

impl DecisionCache {
    /// A cache of at most `entries` requests; 0 turns it off.
    pub fn new(entries: usize) -> Self {
        let mut places = Vec::new();
        places.resize_with(entries, Place::default);
        Self { places }
    }

    /// Whether the cache is off.
    pub fn is_off(&self) -> bool {
        self.places.is_empty()
    }

    /// The equal request that was allowed, if it is cached, and its chain if that is still cached.
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

    /// Adds an allowed request, if the previous request of its slot was, judging by its hash, the same. So clients that
    /// never repeat a request do not pay for this cache.
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
            carriers: fingerprint.carriers,
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
    /// The common part of the events of equal requests, encoded. `encode` runs the first time.
    pub fn evidence(&self, encode: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.evidence.get_or_init(|| {
            let mut encoded = Vec::new();
            encode(&mut encoded);
            encoded.into_boxed_slice()
        })
    }

    fn is_like(&self, fingerprint: &RequestFingerprint<'_>) -> bool {
        let mut texts = self.texts.iter().zip(fingerprint.texts);
        self.carriers == fingerprint.carriers && texts.all(|(own, text)| is_equal(own, text))
    }
}

// === impl RequestFingerprint ===

impl<'r> RequestFingerprint<'r> {
    /// The fingerprint of a request, if a decision about it depends only on these texts, apart from a rule's conditions
    /// on other headers or on the holder.
    pub fn of(request: &Request<'r>) -> Option<Self> {
        let credential = match (request.delegation, request.authorization) {
            (Header::Once(credential), _) | (Header::Absent, Header::Once(credential)) => credential,
            (Header::Absent | Header::Repeated, _) => return None,
        };
        if request.has_body || request.leaves_http {
            return None;
        }
        // The text that differs most often first: the comparison stops at the first difference.
        let texts = [request.path, credential, request.method, request.authority];
        // A credential ends with a signature, which no two share by chance.
        let tail = credential
            .len()
            .checked_sub(TAIL_BYTES)
            .and_then(|start| credential.get(start..))
            .unwrap_or_default();
        let hash = [request.path, tail, request.method]
            .into_iter()
            .fold(request.authority.len() as u64, mix);
        let carriers = (
            request.delegation != Header::Absent,
            request.authorization != Header::Absent,
        );
        Some(Self { texts, carriers, hash })
    }
}

/// Mixes a text into a hash that only has to distribute requests among slots.
fn mix(hash: u64, text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(last, byte)| *last = *byte);
    let length = text.len() as u64;
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.chain([length]).fold(hash, |hash, word| {
        let product = (hash ^ word).wrapping_mul(SPREAD);
        // In a product alone, the high bits would not affect the low ones.
        product ^ (product >> 32)
    })
}

/// Whether two texts are equal, comparing eight bytes at a time: in Wasm, the compiler's own comparison is bytewise.
fn is_equal(own: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (own.as_chunks::<8>(), other.as_chunks::<8>());
    own.len() == other.len()
        && rest == other_rest
        && words
            .iter()
            .zip(other_words)
            .all(|(word, other)| u64::from_le_bytes(*word) == u64::from_le_bytes(*other))
}

/// Bytes of a delegation's end that determine its slot.
const TAIL_BYTES: usize = 32;

/// The most bytes of a request's path, delegation, method and host together. A longer request is not cached.
pub const MAX_TEXT_BYTES: usize = 4096;

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
