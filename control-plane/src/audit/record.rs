//! What the ledger holds, and how a group of it is encoded as one frame.

use credence_wire::v1;

/// One thing in the ledger; its index counts everything in it from 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LedgerRecord {
    pub(crate) index: u64,
    /// When the control plane made it durable, nanoseconds since the Unix epoch.
    pub(crate) received_unix_nano: u64,
    pub(crate) source: String,
    pub(crate) body: RecordBody,
}

/// What a [`LedgerRecord`] says.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is an entry")]
pub(crate) enum RecordBody {
    /// What the source reported under this sequence number.
    Entry { sequence: u64, entry: v1::Entry },
    /// What happened to the source itself.
    Source(StoredSourceChange),
}

/// The payload of one frame: what became durable together.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredGroup {
    /// Index of the first record.
    #[prost(uint64, tag = "1")]
    pub(crate) first_index: u64,
    #[prost(fixed64, tag = "2")]
    pub(crate) received_unix_nano: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) items: Vec<StoredItem>,
}

/// One part of a group.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredItem {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(oneof = "StoredBody", tags = "2, 3")]
    pub(crate) body: Option<StoredBody>,
}

/// What a part of a group is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum StoredBody {
    /// As many records as entries.
    #[prost(message, tag = "2")]
    Batch(v1::Batch),
    /// One record.
    #[prost(message, tag = "3")]
    Change(StoredSourceChange),
}

/// A source began, went or came back.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredSourceChange {
    #[prost(enumeration = "SourceChange", tag = "1")]
    pub(crate) change: i32,
    /// The last sequence number stored when it happened.
    #[prost(uint64, tag = "2")]
    pub(crate) last_sequence: u64,
    /// What the source said of itself, and where it called from; with `Started` only.
    #[prost(string, tag = "3")]
    pub(crate) node: String,
    #[prost(string, tag = "4")]
    pub(crate) plugin: String,
    #[prost(string, tag = "5")]
    pub(crate) peer: String,
}

/// What happened to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SourceChange {
    Unspecified = 0,
    /// It was given its name.
    Started = 1,
    /// It said Bye: nothing is outstanding.
    Ended = 2,
    /// Its stream ended without Bye and it did not come back in time: what it had not yet sent is unknown.
    Lost = 3,
    /// It came back after it had been given up.
    Returned = 4,
}

// === impl StoredGroup ===

impl StoredGroup {
    /// How many records the group holds.
    pub(crate) fn records(&self) -> u64 {
        self.items.iter().map(StoredItem::records).sum()
    }

    /// The group's records in order.
    pub(crate) fn into_records(self) -> Vec<LedgerRecord> {
        let mut records = Vec::new();
        for StoredItem { source, body } in self.items {
            let bodies: Vec<RecordBody> = match body {
                Some(StoredBody::Batch(batch)) => (batch.first_sequence..)
                    .zip(batch.entries)
                    .map(|(sequence, entry)| RecordBody::Entry { sequence, entry })
                    .collect(),
                Some(StoredBody::Change(change)) => vec![RecordBody::Source(change)],
                None => Vec::new(),
            };
            for body in bodies {
                records.push(LedgerRecord {
                    index: self.first_index + records.len() as u64,
                    received_unix_nano: self.received_unix_nano,
                    source: source.clone(),
                    body,
                });
            }
        }
        records
    }
}

// === impl StoredItem ===

impl StoredItem {
    pub(crate) fn records(&self) -> u64 {
        match &self.body {
            Some(StoredBody::Batch(batch)) => batch.entries.len() as u64,
            Some(StoredBody::Change(_)) => 1,
            None => 0,
        }
    }
}
