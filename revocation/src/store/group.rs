//! The stored form of records that become durable together.

use bytes::Bytes;
use credence_wire::v1;
use prost::Message as _;

use crate::digest::{Digest, Head};
use crate::log_id::LogId;

/// A record, with the bytes that the digest chain covers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EncodedRecord {
    pub(crate) record: v1::Record,
    pub(crate) bytes: Bytes,
}

/// A group that continues the log's history.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) first_seq: u64,
    /// The name under which the log continues from here; see [`restored`](crate::restored).
    pub(crate) renamed: Option<LogId>,
    pub(crate) records: Vec<EncodedRecord>,
    /// The digest after each record.
    pub(crate) digests: Vec<Digest>,
    /// Where each record comes from: an encoded [`Provenance`](crate::provenance::Provenance). Empty for the log's own
    /// not-before time.
    pub(crate) provenance: Vec<Bytes>,
}

// === impl Group ===

impl Group {
    /// The group that follows `after`.
    pub(crate) fn following(after: Head, records: Vec<EncodedRecord>, provenance: Vec<Bytes>) -> Self {
        Self::chained(after, None, records, provenance)
    }

    /// The group with which a restored log continues under another name.
    pub(crate) fn renaming(after: Head, log_id: LogId, record: EncodedRecord) -> Self {
        Self::chained(after, Some(log_id), vec![record], Vec::new())
    }

    fn chained(after: Head, renamed: Option<LogId>, records: Vec<EncodedRecord>, provenance: Vec<Bytes>) -> Self {
        let mut group = Self {
            first_seq: after.seq + 1,
            renamed,
            digests: Vec::with_capacity(records.len()),
            records,
            provenance,
        };
        let mut digest = group.begins_at(after).digest;
        for record in &group.records {
            digest = digest.after(&record.bytes);
            group.digests.push(digest);
        }
        group
    }

    /// The position before the first record, under the log's name from here on.
    pub(crate) fn begins_at(&self, after: Head) -> Head {
        Head {
            seq: after.seq,
            digest: match &self.renamed {
                Some(log_id) => after.digest.renamed(log_id),
                None => after.digest,
            },
        }
    }

    /// The position after the last record.
    pub(crate) fn head(&self) -> Option<Head> {
        Some(Head {
            seq: self.first_seq + self.records.len() as u64 - 1,
            digest: *self.digests.last()?,
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        StoredGroup {
            records: self.records.iter().map(|record| record.bytes.clone()).collect(),
            digest: self
                .digests
                .last()
                .map_or_else(Vec::new, |digest| digest.as_bytes().to_vec()),
            provenance: self.provenance.clone(),
            log_id: self.renamed.as_ref().map(LogId::to_string),
        }
        .encode_to_vec()
    }

    /// Reads a group, and checks that it continues `after`.
    pub(crate) fn decode(first_seq: u64, bytes: &[u8], after: Head) -> Result<Self, &'static str> {
        // Copied once, so that records and provenance share its memory.
        let stored = StoredGroup::decode(Bytes::copy_from_slice(bytes)).map_err(|_| NO_GROUP)?;
        if first_seq != after.seq + 1 {
            return Err("the records do not continue the previous ones");
        }
        let renamed = match stored.log_id {
            Some(log_id) => Some(LogId::parse(&log_id).ok_or("a log_id of impossible form")?),
            None => None,
        };
        let decoded = stored.records.into_iter().map(|bytes| {
            let record = v1::Record::decode(bytes.clone()).map_err(|_| "a record that this version cannot read")?;
            Ok(EncodedRecord { record, bytes })
        });
        let group = Self::chained(
            after,
            renamed,
            decoded.collect::<Result<_, &'static str>>()?,
            stored.provenance,
        );
        match group.digests.last() {
            Some(last) if last.as_bytes() == stored.digest => Ok(group),
            Some(_) => Err("the records do not continue this log's history"),
            None => Err("a group without a record"),
        }
    }
}

/// The last position of a stored group, without checks.
pub(crate) fn stored_head(first_seq: u64, bytes: &[u8]) -> Result<Head, &'static str> {
    let stored = StoredGroup::decode(bytes).map_err(|_| NO_GROUP)?;
    let digest = Digest::parse(&stored.digest).ok_or("a digest of impossible length")?;
    Ok(Head {
        seq: first_seq + (stored.records.len() as u64).saturating_sub(1),
        digest,
    })
}

impl From<v1::Record> for EncodedRecord {
    fn from(record: v1::Record) -> Self {
        Self {
            bytes: record.encode_to_vec().into(),
            record,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredGroup {
    /// Encoded `credence.v1.Record`s. Kept as bytes, because the digest covers them.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    records: Vec<Bytes>,
    /// The chain's digest after the last of them.
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    /// Encoded [`Provenance`](crate::provenance::Provenance)s. A start does not read them.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    provenance: Vec<Bytes>,
    #[prost(string, optional, tag = "4")]
    log_id: Option<String>,
}

const NO_GROUP: &str = "a row that does not hold a group";

#[cfg(test)]
mod tests {
    use credence_wire::v1::record::Subject;

    use super::*;

    fn key(letter: &str) -> EncodedRecord {
        let thumbprint = letter.repeat(43);
        v1::Record {
            subject: Some(Subject::Key(v1::RevokedKey { thumbprint })),
        }
        .into()
    }

    fn start() -> Head {
        Head {
            seq: 0,
            digest: Digest::start(&LogId::random().unwrap()),
        }
    }

    #[test]
    fn a_group_is_read_only_after_the_history_that_it_continues() {
        let start = start();
        let first = Group::following(start, vec![key("A"), key("E")], Vec::new());
        let after = first.head().unwrap();
        let second = Group::following(after, vec![key("I")], Vec::new());
        let bytes = second.encode();
        assert_eq!(Group::decode(3, &bytes, after), Ok(second.clone()));
        assert_eq!(stored_head(3, &bytes).ok(), second.head());
        assert!(Group::decode(2, &bytes, after).is_err(), "another number");
        let other = Head {
            digest: start.digest,
            ..after
        };
        assert!(Group::decode(3, &bytes, other).unwrap_err().contains("do not continue"));
    }

    #[test]
    fn no_position_of_the_old_name_is_one_of_the_new() {
        let start = start();
        let log_id = LogId::random().unwrap();
        let renaming = Group::renaming(start, log_id.clone(), key("A"));
        let unnamed = Group::following(start, vec![key("A")], Vec::new());
        assert_ne!(renaming.head(), unnamed.head());
        let read = Group::decode(1, &renaming.encode(), start).unwrap();
        assert_eq!(read.renamed, Some(log_id));
    }
}
