//! What can be asked for, and its keyed hash.

use std::fmt;

use siphasher::sip::SipHasher24;

/// Keeps to ourselves what an index file is about: 32 random bytes.
#[derive(Clone)]
pub struct IndexSecret(pub [u8; 32]);

/// A value by which records can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKey<'a> {
    /// The principal's issuer.
    Issuer(&'a str),
    /// The principal's name, at whatever issuer.
    Subject(&'a str),
    /// What was proven: a thumbprint.
    Agent(&'a str),
    /// The id of any token in the chain.
    Delegation(&'a str),
    /// The tool that was called.
    Tool(&'a str),
    /// What was decided: the number of a `v1::Decision`.
    Decision(i32),
    /// The reason code.
    Reason(&'a str),
    /// The configured rule.
    Rule(&'a str),
    /// The W3C trace id.
    Trace(&'a str),
    /// The digest of a chain, of the record that holds it.
    Chain(&'a [u8]),
    /// What kind of record it is, of all kinds but decisions.
    Kind(u8),
}

/// Hashes keys.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    /// One for each kind, so that the same text under two kinds has nothing in common.
    kinds: [SipHasher24; KINDS],
    /// Tells whether two indexes were made with the same secret, and nothing else.
    pub(super) check: u64,
}

// === impl IndexSecret ===

impl fmt::Debug for IndexSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IndexSecret")
    }
}

// === impl IndexKey ===

impl<'a> IndexKey<'a> {
    /// The narrowest key that finds everything about a principal: its name, or its issuer if it has none.
    pub fn principal(issuer: &'a str, subject: Option<&'a str>) -> Self {
        subject
            .filter(|subject| !subject.is_empty())
            .map_or(Self::Issuer(issuer), Self::Subject)
    }

    /// Whether records are indexed by it: what is not there (an event without a trace id, say) is not.
    pub fn is_indexed(&self) -> bool {
        !self.parts().1.is_empty()
    }

    /// The number of its kind, and its bytes. Numbers are part of the format.
    fn parts(&self) -> (usize, Bytes<'a>) {
        match *self {
            Self::Issuer(text) => (0, Bytes::Borrowed(text.as_bytes())),
            Self::Subject(text) => (1, Bytes::Borrowed(text.as_bytes())),
            Self::Agent(text) => (2, Bytes::Borrowed(text.as_bytes())),
            Self::Delegation(text) => (3, Bytes::Borrowed(text.as_bytes())),
            Self::Tool(text) => (4, Bytes::Borrowed(text.as_bytes())),
            Self::Decision(number) => (5, Bytes::Number(number.to_le_bytes())),
            Self::Reason(text) => (6, Bytes::Borrowed(text.as_bytes())),
            Self::Rule(text) => (7, Bytes::Borrowed(text.as_bytes())),
            Self::Trace(text) => (8, Bytes::Borrowed(text.as_bytes())),
            Self::Chain(digest) => (9, Bytes::Borrowed(digest)),
            Self::Kind(kind) => (10, Bytes::Number([kind, 0, 0, 0])),
        }
    }
}

enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Number([u8; 4]),
}

impl Bytes<'_> {
    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Number(bytes) => bytes,
        }
    }
}

// === impl KeyHasher ===

impl KeyHasher {
    pub(crate) fn new(secret: &IndexSecret) -> Self {
        let [low, high] = [0, 16].map(|at| {
            let mut key = [0; 16];
            key.copy_from_slice(&secret.0[at..at + 16]);
            SipHasher24::new_with_key(&key)
        });
        let derived = |label: u8| (low.hash(&[label]), high.hash(&[label]));
        let (first, second) = derived(CHECK);
        Self {
            kinds: std::array::from_fn(|kind| {
                let (first, second) = derived(kind as u8);
                SipHasher24::new_with_keys(first, second)
            }),
            // Of both halves: whatever bit of the secret is another, so is this.
            check: SipHasher24::new_with_keys(first, second).hash(&[CHECK]),
        }
    }

    /// 40 bits, at the top of the number.
    pub(crate) fn hash(&self, key: &IndexKey<'_>) -> u64 {
        let (kind, bytes) = key.parts();
        self.kinds[kind].hash(bytes.as_slice()) & HASH_MASK
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyHasher")
    }
}

const KINDS: usize = 11;
/// No kind's number.
const CHECK: u8 = 255;
/// Bits of the hash in a row; below them is the place.
pub(super) const HASH_BITS: u32 = 40;
pub(super) const PLACE_BITS: u32 = 64 - HASH_BITS;
const HASH_MASK: u64 = !0 << PLACE_BITS;
