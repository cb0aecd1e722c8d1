//! The encoding of a group of records: one frame with a head and the leaves.

use std::path::Path;

use prost::Message;

use crate::disk_error::DiskError;
use crate::frames::{Frame, Frames, HEAD_LEN, MAX_PAYLOAD};
use crate::sources::{MAX_KNOWN_SOURCES, SourceMark};

/// A group's metadata, in the clear, so that a restart need not open leaves. In a frame it follows its length
/// (delimited, as protobuf does), and the leaves follow it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupHead {
    /// Index of the first record.
    #[prost(uint64, tag = "1")]
    pub(crate) first_index: u64,
    /// The number of records.
    #[prost(uint32, tag = "2")]
    pub(crate) entries: u32,
    /// When the control plane received them, nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "3")]
    pub(crate) received_unix_nano: u64,
    /// The new state of each source.
    #[prost(message, repeated, tag = "4")]
    pub(crate) sources: Vec<SourceMark>,
    /// Positions, in the group, of the records that hold a chain.
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) chains: Vec<u32>,
    /// Only in a segment's first frame, which has nothing else.
    #[prost(message, optional, tag = "6")]
    pub(crate) beginning: Option<Beginning>,
}

/// The state when a segment began, so that a start reads the last segment only.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Beginning {
    /// The root of the tree of all records before the segment, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) root: Vec<u8>,
    /// The lowest held index.
    #[prost(uint64, tag = "2")]
    pub(crate) first_held: u64,
    /// All known sources, the oldest first.
    #[prost(message, repeated, tag = "3")]
    pub(crate) sources: Vec<SourceMark>,
    /// The bytes of the largest principals in the previous segment and, with key 0, of all principals.
    #[prost(message, repeated, tag = "4")]
    pub(crate) shares: Vec<KeyShare>,
}

/// The size of a principal's evidence in a segment.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyShare {
    /// The name of the principal's key.
    #[prost(uint32, tag = "1")]
    pub(crate) key: u32,
    /// Bytes of its leaves.
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
}

/// A group, as read from a segment.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) head: GroupHead,
    /// The offset of its frame in the segment's file.
    pub(crate) offset: u64,
    payload: Vec<u8>,
    /// Where the leaves begin in the payload. Each follows its length.
    leaves_at: usize,
}

/// A leaf, as read from a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaf<'a> {
    /// Its record's index.
    pub(crate) index: u64,
    /// Its offset in the segment's file, at its length.
    pub(crate) offset: u32,
    pub(crate) sealed: &'a [u8],
}

/// The groups of a segment, in order.
pub(crate) fn groups_of(segment: &Path) -> Result<impl Iterator<Item = Result<Group, DiskError>>, DiskError> {
    let path = segment.to_owned();
    Ok(Frames::open(segment)?.map(move |frame| Group::read(&path, frame?)))
}

// === impl Group ===

impl Group {
    /// Decodes a segment's frame.
    pub(crate) fn read(segment: &Path, frame: Frame) -> Result<Self, DiskError> {
        let offset = frame.offset;
        let unreadable = "the frame does not hold records that this version can read";
        Self::parse(frame).ok_or_else(|| DiskError::damaged(segment, unreadable).at_byte(offset))
    }

    fn parse(frame: Frame) -> Option<Self> {
        let Frame { offset, payload } = frame;
        let mut leaves = payload.as_slice();
        let head = GroupHead::decode_length_delimited(&mut leaves).ok()?;
        u32::try_from(offset + HEAD_LEN + payload.len() as u64).ok()?;
        let group = Self {
            head,
            offset,
            leaves_at: payload.len() - leaves.len(),
            payload,
        };
        let (count, end) = group.leaves().fold((0, group.leaves_at), |(count, end), leaf| {
            (count + 1, end + LEAF_LENGTH_BYTES + leaf.sealed.len())
        });
        (count == group.head.entries && end == group.payload.len()).then_some(group)
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = Leaf<'_>> {
        let mut rest = self.payload.get(self.leaves_at..).unwrap_or_default();
        let mut offset = (self.offset + HEAD_LEN) as u32 + self.leaves_at as u32;
        let mut index = self.head.first_index;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LEAF_LENGTH_BYTES>()?;
            let (sealed, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let leaf = Leaf { index, offset, sealed };
            rest = behind;
            offset += (LEAF_LENGTH_BYTES + sealed.len()) as u32;
            index += 1;
            Some(leaf)
        })
    }
}

/// A mark takes at most 32 bytes: 2, 18 for the name, 11 for a number and 1 or 2 for a change (a small enum).
const _: () = assert!(MAX_KNOWN_SOURCES * 34 < MAX_PAYLOAD, "one frame holds all sources");
/// C2SP tlog-tiles: in a bundle, each leaf follows its length, big-endian.
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
        let mut payload = head.encode_length_delimited_to_vec();
        for leaf in leaves {
            payload.extend_from_slice(&(leaf.len() as u16).to_be_bytes());
            payload.extend_from_slice(leaf);
        }
        payload
    }

    fn parse(payload: &[u8]) -> Option<Group> {
        Group::parse(Frame {
            offset: 1000,
            payload: payload.to_vec(),
        })
    }

    #[test]
    fn leaves_are_found_at_their_offsets() {
        let payload = payload(&[b"one", b"", b"three"]);
        let group = parse(&payload).unwrap();
        let found: Vec<_> = group.leaves().map(|leaf| (leaf.index, leaf.sealed)).collect();
        assert_eq!(found, [(256, &b"one"[..]), (257, b""), (258, b"three")]);
        for leaf in group.leaves() {
            let at = leaf.offset as usize - 1000 - HEAD_LEN as usize + LEAF_LENGTH_BYTES;
            assert_eq!(&payload[at..][..leaf.sealed.len()], leaf.sealed);
        }
    }

    #[test]
    fn a_group_is_whole_or_none() {
        let whole = payload(&[b"one", b"two"]);
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_none(), "{length}");
        }
        assert!(parse(&[whole, vec![0]].concat()).is_none());
    }
}
