//! Index keys, and their keyed hashes.

use std::fmt;

use siphasher::sip::SipHasher24;

/// A value by which records can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKey<'a> {
    /// The principal's issuer.
    Issuer(&'a str),
    /// The principal's name, with any issuer.
    Subject(&'a str),
    /// The proven agent: a thumbprint.
    Agent(&'a str),
    /// The id of any token in the chain.
    Delegation(&'a str),
    /// The tool that was called.
    Tool(&'a str),
    /// The decision, as the number of a `v1::Decision`.
    Decision(i32),
    /// The reason code.
    Reason(&'a str),
    /// The configured rule.
    Rule(&'a str),
    /// The W3C trace id.
    Trace(&'a str),
    /// The digest of a chain, for the record that holds it.
    Chain([u8; 32]),
    /// The kind of a record, for all kinds but decisions.
    Kind(u8),
}

/// Hashes keys under 32 random bytes, so that an index file does not reveal names.
#[derive(Clone)]
pub struct IndexSecret {
    /// One hasher for each kind, so that equal texts of two kinds have different hashes.
    kinds: [SipHasher24; KINDS],
    /// Shows whether two indexes were made with the same secret, and nothing else.
    pub(super) check: u64,
}

// === impl IndexKey ===

impl<'a> IndexKey<'a> {
    /// The narrowest key that finds everything about a principal: its name, or its issuer if it has none.
    pub fn principal(issuer: &'a str, subject: Option<&'a str>) -> Self {
        subject
            .filter(|subject| !subject.is_empty())
            .map_or(Self::Issuer(issuer), Self::Subject)
    }

    /// Whether records have a row for it. Absent values (an event without a trace id, say) have none.
    pub fn is_indexed(&self) -> bool {
        self.with_parts(|_, bytes| !bytes.is_empty())
    }

    /// Passes on the number of its kind, and its bytes. Numbers are part of the format.
    fn with_parts<T>(&self, then: impl FnOnce(usize, &[u8]) -> T) -> T {
        match self {
            Self::Issuer(text) => then(0, text.as_bytes()),
            Self::Subject(text) => then(1, text.as_bytes()),
            Self::Agent(text) => then(2, text.as_bytes()),
            Self::Delegation(text) => then(3, text.as_bytes()),
            Self::Tool(text) => then(4, text.as_bytes()),
            Self::Decision(number) => then(5, &number.to_le_bytes()),
            Self::Reason(text) => then(6, text.as_bytes()),
            Self::Rule(text) => then(7, text.as_bytes()),
            Self::Trace(text) => then(8, text.as_bytes()),
            Self::Chain(digest) => then(9, digest),
            Self::Kind(kind) => then(10, &[*kind]),
        }
    }
}

// === impl IndexSecret ===

impl IndexSecret {
    /// A secret from these random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        let [low, high] = [0, 16].map(|at| {
            let mut key = [0; 16];
            key.copy_from_slice(&secret[at..at + 16]);
            SipHasher24::new_with_key(&key)
        });
        let derived = |label: u8| SipHasher24::new_with_keys(low.hash(&[label]), high.hash(&[label]));
        Self {
            kinds: std::array::from_fn(|kind| derived(kind as u8)),
            // Depends on both halves: changing any bit of the secret changes it.
            check: derived(CHECK).hash(&[CHECK]),
        }
    }

    /// 32 bits, above the bits of a place.
    pub(crate) fn hash(&self, key: &IndexKey<'_>) -> u64 {
        let hash = key.with_parts(|kind, bytes| self.kinds[kind].hash(bytes));
        hash >> (u64::BITS - HASH_BITS) << PLACE_BITS
    }
}

/// The place in the low bits of a row.
pub(super) fn place_of(row: u64) -> u32 {
    row as u32 & (MAX_PLACES - 1)
}

impl fmt::Debug for IndexSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IndexSecret")
    }
}

const KINDS: usize = 11;
/// Not the number of any kind.
const CHECK: u8 = 255;
/// Bits of the hash in a row. In the largest segment, looking up an absent value finds something once in hundreds of
/// times.
pub(super) const HASH_BITS: u32 = 32;
/// Bits of the place, below those of the hash.
pub(super) const PLACE_BITS: u32 = 24;
pub(super) const ROW_BITS: u32 = HASH_BITS + PLACE_BITS;
/// The largest number of records in a segment.
pub const MAX_PLACES: u32 = 1 << PLACE_BITS;
/// Places whose leaf offsets and times are kept together.
pub const RUN_PLACES: u32 = 256;
