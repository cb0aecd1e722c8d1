//! The plaintext of a leaf, and the record that it becomes.

use prost::Message;
use prost::bytes::Bytes;

use crate::record::{LedgerRecord, RecordBody, StoredEntry, StoredNote, StoredSourceChange};

/// A leaf's plaintext.
#[derive(Clone, PartialEq, Message)]
pub struct StoredRecord {
    /// When the control plane received it, nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "1")]
    pub received_unix_nano: u64,
    /// The source: 16 bytes; empty for records of the control plane itself.
    #[prost(bytes = "bytes", tag = "2")]
    pub source: Bytes,
    /// The contents; absent if a newer version wrote them.
    #[prost(oneof = "StoredBody", tags = "3, 4, 5")]
    pub body: Option<StoredBody>,
}

/// The contents of a leaf.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StoredBody {
    /// An entry that a source reported.
    #[prost(message, tag = "3")]
    Entry(StoredEntry),
    /// A change of a source.
    #[prost(message, tag = "4")]
    Change(StoredSourceChange),
    /// A note of the control plane.
    #[prost(message, tag = "5")]
    Note(StoredNote),
}

/// The control plane's name for a source: 16 random bytes, or 32 hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceName(pub [u8; 16]);

// === impl StoredRecord ===

impl StoredRecord {
    /// Reads a leaf's plaintext as the record with this index. None if this version cannot read it.
    pub fn into_record(self, index: u64) -> Option<LedgerRecord> {
        let source = match self.source.as_ref() {
            [] => String::new(),
            name => SourceName(name.try_into().ok()?).to_string(),
        };
        let body = match self.body? {
            StoredBody::Entry(stored) => RecordBody::Entry(stored),
            StoredBody::Change(change) => RecordBody::Source(change),
            StoredBody::Note(note) => RecordBody::Note(note),
        };
        Some(LedgerRecord {
            index,
            received_unix_nano: self.received_unix_nano,
            source,
            body,
        })
    }
}

// === impl SourceName ===

impl SourceName {
    /// As in a record.
    pub(crate) fn to_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    /// Parses 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let name = Self(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
        (name.to_string() == text).then_some(name)
    }
}

impl std::fmt::Display for SourceName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for SourceName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SourceName({self})")
    }
}

/// How much larger than its entry a plaintext can be.
pub(crate) const RECORD_OVERHEAD: usize = 9 + 18 + 4 + 11 + 4 + 34;

#[cfg(test)]
mod tests {
    use credence_wire::v1;
    use credence_wire::v1::entry::Entry as Kind;
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Erasure, Note, SourceChange};

    fn gap() -> v1::Entry {
        let gap = v1::Gap {
            shed: 3,
            ..Default::default()
        };
        v1::Entry {
            entry: Some(Kind::Gap(gap)),
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_stored() {
        let name = SourceName([0xab; 16]);
        let note = StoredNote {
            note: Some(Note::Erasure(Erasure {
                key: 7,
                ..Default::default()
            })),
        };
        let change = StoredSourceChange {
            change: SourceChange::Lost.into(),
            ..Default::default()
        };
        let entry = StoredEntry {
            sequence: 9,
            entry: gap().encode_to_vec().into(),
            known_chain: Bytes::new(),
        };
        let cases = [
            (StoredBody::Entry(entry.clone()), RecordBody::Entry(entry)),
            (StoredBody::Change(change.clone()), RecordBody::Source(change)),
            (StoredBody::Note(note.clone()), RecordBody::Note(note)),
        ];
        for (stored, body) in cases {
            let stored = StoredRecord {
                received_unix_nano: 5,
                source: Bytes::copy_from_slice(&name.0),
                body: Some(stored),
            };
            let read = StoredRecord::decode(stored.encode_to_vec().as_slice()).unwrap();
            let expected = LedgerRecord {
                index: 3,
                received_unix_nano: 5,
                source: "ab".repeat(16),
                body,
            };
            assert_eq!(read.into_record(3), Some(expected));
        }
    }

    #[test]
    fn a_record_of_a_newer_version_is_not_misread() {
        assert_eq!(StoredRecord::default().into_record(0), None);
    }

    proptest! {
        #[test]
        fn a_record_is_little_larger_than_its_entry(
            received_unix_nano: u64,
            source in prop::option::of(any::<[u8; 16]>()),
            sequence: u64,
            entry in prop::collection::vec(any::<u8>(), 0..300),
            known_chain in prop_oneof![Just(Vec::new()), Just(vec![7; 32])],
        ) {
            let bytes = entry.len();
            let record = StoredRecord {
                received_unix_nano,
                source: source.map(|source| SourceName(source).to_bytes()).unwrap_or_default(),
                body: Some(StoredBody::Entry(StoredEntry {
                    sequence,
                    entry: entry.into(),
                    known_chain: known_chain.into(),
                })),
            };
            prop_assert!(record.encoded_len() <= bytes + RECORD_OVERHEAD);
        }
    }

    #[test]
    fn a_source_has_one_text() {
        let text = "00ff10ab".repeat(4);
        assert_eq!(SourceName::parse(&text).unwrap().to_string(), text);
        for wrong in ["", "00ff", &text.to_uppercase(), &"g".repeat(32)] {
            assert_eq!(SourceName::parse(wrong), None, "{wrong}");
        }
    }
}
