//! How a group of records is written: one frame, a head that says what follows, and the leaves.

use prost::Message;

use crate::leaf::SourceName;
use crate::record::SourceChange;

/// What a group is, in the clear: enough to go on after a restart without opening a leaf.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupHead {
    /// Index of the first record.
    #[prost(uint64, tag = "1")]
    pub(crate) first_index: u64,
    /// How many records there are.
    #[prost(uint32, tag = "2")]
    pub(crate) entries: u32,
    /// When they were taken in, nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "3")]
    pub(crate) received_unix_nano: u64,
    /// What became of the sources.
    #[prost(message, repeated, tag = "4")]
    pub(crate) sources: Vec<SourceMark>,
    /// Places, in the group, of the records that hold a chain.
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) chains: Vec<u32>,
    /// In a segment's first frame, which has nothing else.
    #[prost(message, optional, tag = "6")]
    pub(crate) beginning: Option<Beginning>,
}

/// What was so when a segment began: a start reads the last one only.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Beginning {
    /// The root of the tree of all records before the segment, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) root: Vec<u8>,
    /// The lowest index that was still held.
    #[prost(uint64, tag = "2")]
    pub(crate) first_held: u64,
    /// Every source that was known, those that were known for longer first.
    #[prost(message, repeated, tag = "3")]
    pub(crate) sources: Vec<SourceMark>,
    /// How much of the segment before is about its largest principals and, with key 0, about all of them.
    #[prost(message, repeated, tag = "4")]
    pub(crate) shares: Vec<KeyShare>,
}

/// How much of a segment is about a principal.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyShare {
    /// The name of the principal's key.
    #[prost(uint32, tag = "1")]
    pub(crate) key: u32,
    /// Of its leaves.
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
}

/// What a source is after the group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceMark {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    /// The last sequence number that is stored.
    #[prost(uint64, tag = "2")]
    pub(crate) last_sequence: u64,
    /// What happened to it, unspecified if only its number moved.
    #[prost(enumeration = "SourceChange", tag = "3")]
    pub(crate) change: i32,
}

/// A frame's payload, taken apart.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) head: GroupHead,
    /// The leaves, each behind its length.
    pub(crate) bundle: &'a [u8],
    /// Where the bundle begins in the payload.
    pub(crate) bundle_offset: usize,
}

// === impl GroupHead ===

impl GroupHead {
    /// The head as a frame has it in front of the bundle.
    pub(crate) fn to_payload(&self) -> Vec<u8> {
        let length = self.encoded_len();
        let mut payload = Vec::with_capacity(HEAD_LENGTH_BYTES + length);
        payload.extend_from_slice(&(length as u32).to_le_bytes());
        // A vector has room for everything.
        let _ = self.encode(&mut payload);
        payload
    }
}

// === impl SourceMark ===

impl SourceMark {
    pub(crate) fn name(&self) -> Option<SourceName> {
        Some(SourceName(self.name.as_slice().try_into().ok()?))
    }
}

// === impl Group ===

impl<'a> Group<'a> {
    /// Takes a frame's payload apart; `None` if it is no group.
    pub(crate) fn parse(payload: &'a [u8]) -> Option<Self> {
        let (length, rest) = payload.split_first_chunk::<HEAD_LENGTH_BYTES>()?;
        let (head, bundle) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let group = Self {
            head: GroupHead::decode(head).ok()?,
            bundle,
            bundle_offset: payload.len() - bundle.len(),
        };
        let whole = group
            .leaves()
            .fold(0, |length, (_, leaf)| length + LEAF_LENGTH_BYTES + leaf.len());
        (group.leaves().count() == group.head.entries as usize && whole == bundle.len()).then_some(group)
    }

    /// The leaves, and where each begins in the payload (its length first).
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let mut rest = self.bundle;
        let mut offset = self.bundle_offset;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LEAF_LENGTH_BYTES>()?;
            let (leaf, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let at = offset;
            offset += LEAF_LENGTH_BYTES + leaf.len();
            rest = behind;
            Some((at, leaf))
        })
    }
}

const HEAD_LENGTH_BYTES: usize = 4;
/// A mark takes at most 32 bytes: 2 and the name's 18, a number's 11 and a change's 1 or 2 (a known enumeration is small).
const _: () = assert!(
    crate::sources::MAX_KNOWN_SOURCES * 34 < credence_storage::frames::MAX_PAYLOAD,
    "one frame holds all sources"
);
/// C2SP tlog-tiles: each leaf of a bundle follows its length, big-endian.
pub(crate) const LEAF_LENGTH_BYTES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(leaves: &[&[u8]]) -> Vec<u8> {
        let head = GroupHead {
            first_index: 256,
            entries: leaves.len() as u32,
            ..Default::default()
        };
        let mut payload = head.to_payload();
        for leaf in leaves {
            payload.extend_from_slice(&(leaf.len() as u16).to_be_bytes());
            payload.extend_from_slice(leaf);
        }
        payload
    }

    #[test]
    fn leaves_are_found_where_they_lie() {
        let payload = payload(&[b"one", b"", b"three"]);
        let group = Group::parse(&payload).unwrap();
        let found: Vec<&[u8]> = group.leaves().map(|(_, leaf)| leaf).collect();
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
        for (offset, leaf) in group.leaves() {
            assert_eq!(&payload[offset + LEAF_LENGTH_BYTES..][..leaf.len()], leaf);
        }
    }

    #[test]
    fn a_group_is_whole_or_none() {
        let whole = payload(&[b"one", b"two"]);
        for length in 0..whole.len() {
            assert!(Group::parse(&whole[..length]).is_none(), "{length}");
        }
        assert!(Group::parse(&[whole, vec![0]].concat()).is_none());
    }
}
