//! How records are encoded on disk: a group of them is one frame.

use credence_wire::v1;

use crate::record::{LedgerRecord, RecordBody, StoredSourceChange};

/// The payload of one frame: what became durable together.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredGroup {
    /// Index of the first record.
    #[prost(uint64, tag = "1")]
    pub first_index: u64,
    /// When it became durable.
    #[prost(fixed64, tag = "2")]
    pub received_unix_nano: u64,
    /// What it consists of.
    #[prost(message, repeated, tag = "3")]
    pub items: Vec<StoredItem>,
}

/// One part of a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StoredItem {
    /// Who reported it.
    #[prost(string, tag = "1")]
    pub source: String,
    /// What was reported.
    #[prost(oneof = "StoredBody", tags = "2, 3")]
    pub body: Option<StoredBody>,
}

/// What a part of a group is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StoredBody {
    /// As many records as entries.
    #[prost(message, tag = "2")]
    Batch(v1::Batch),
    /// One record.
    #[prost(message, tag = "3")]
    Change(StoredSourceChange),
}

// === impl StoredGroup ===

impl StoredGroup {
    /// How many records the group holds.
    pub fn records(&self) -> u64 {
        self.items.iter().map(StoredItem::records).sum()
    }

    /// The group's records in order.
    pub fn into_records(self) -> Vec<LedgerRecord> {
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
    /// How many records the part holds.
    pub fn records(&self) -> u64 {
        match &self.body {
            Some(StoredBody::Batch(batch)) => batch.entries.len() as u64,
            Some(StoredBody::Change(_)) => 1,
            None => 0,
        }
    }
}
