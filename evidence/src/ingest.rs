//! Checks the limits of incoming evidence.
//!
//! Decoding multiplies memory: an entry of two bytes becomes a structure of several hundred. So a batch arrives as
//! bytes, is read once in place, and goes to the ledger as the same bytes.

use credence_ledger::entry::{BatchView, EntryError, EntryKind, EntryView};
use credence_wire::v1;
use prost::bytes::Bytes;

use super::seen::{SeenOfLate, Sightings};
use credence_runtime::caller::Caller;

/// `credence.v1.ReportRequest` with an encoded batch: on the wire, messages and bytes are the same.
#[derive(Clone, PartialEq, prost::Message)]
pub struct IngestRequest {
    #[prost(oneof = "Incoming", tags = "1, 2, 3")]
    pub(crate) message: Option<Incoming>,
}

/// A message of a stream.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Incoming {
    #[prost(message, tag = "1")]
    Hello(v1::ReportHello),
    /// An encoded `credence.v1.Batch`.
    #[prost(bytes = "bytes", tag = "2")]
    Batch(Bytes),
    #[prost(message, tag = "3")]
    Bye(v1::Bye),
}

/// The limits of one batch; see [`EvidenceLimits`](crate::EvidenceLimits).
#[derive(Debug, Clone, Copy)]
pub struct BatchBounds {
    pub entries: usize,
    pub bytes: usize,
}

/// A batch whose parts are all within their limits. Its bytes are checked and not decoded, and the ledger keeps them.
#[derive(Debug)]
pub(crate) struct BoundedBatch {
    pub(crate) encoded: Bytes,
    pub(crate) entries: usize,
    /// The sequence number of the first entry.
    pub(crate) first_sequence: u64,
    /// What to note about principals once it is durable.
    pub(crate) sightings: Sightings,
}

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum IngestError {
    #[error("a batch has at most {entries} entries and {bytes} bytes")]
    TooLarge { entries: usize, bytes: usize },
    #[error("entry {index} of the batch (from 1) {reason}")]
    Entry { index: usize, reason: &'static str },
    #[error(
        "entry {index} of the batch (from 1): the credential {name:?} is bound to issuers (access: issuers), and may \
         report decisions about their principals only; no entry of the batch was stored"
    )]
    OtherIssuer { index: usize, name: String },
    #[error("the batch cannot be decoded")]
    Malformed,
}

// === impl BatchBounds ===

impl BatchBounds {
    pub(crate) fn too_large(self) -> IngestError {
        let Self { entries, bytes } = self;
        IngestError::TooLarge { entries, bytes }
    }
}

// === impl BoundedBatch ===

impl BoundedBatch {
    #[cfg(test)]
    pub(crate) fn check(encoded: Bytes, bounds: BatchBounds) -> Result<Self, IngestError> {
        Self::check_seen(encoded, bounds, None, &mut SeenOfLate::default())
    }

    /// `reporter` sent the batch, if a credential was required. `seen` is what recent batches of the same client said:
    /// repetitions need not be noted again.
    pub(crate) fn check_seen(
        encoded: Bytes,
        bounds: BatchBounds,
        reporter: Option<&Caller>,
        seen: &mut SeenOfLate,
    ) -> Result<Self, IngestError> {
        if encoded.len() > bounds.bytes {
            return Err(bounds.too_large());
        }
        let batch = BatchView::of(&encoded);
        let first_sequence = batch.first_sequence().map_err(|_| IngestError::Malformed)?;
        let mut entries = 0;
        let mut sightings = Sightings::default();
        for entry in batch.entries() {
            entries += 1;
            if entries > bounds.entries {
                return Err(bounds.too_large());
            }
            match EntryView::parse(entry.map_err(|_| IngestError::Malformed)?) {
                Ok(entry) => {
                    check_scope(&entry, entries, reporter)?;
                    sightings.add(&encoded, &entry, seen);
                }
                Err(EntryError::Malformed) => return Err(IngestError::Malformed),
                Err(EntryError::Refused(reason)) => return Err(IngestError::Entry { index: entries, reason }),
            }
        }
        Ok(Self {
            encoded,
            entries,
            first_sequence,
            sightings,
        })
    }

    /// The memory that the batch takes until it is on disk, in bytes: an upper bound.
    pub(crate) fn cost(&self) -> usize {
        2 * self.encoded.len() + self.sightings.cost()
    }
}

/// A credential that is bound to issuers may not report on principals of other issuers. Counts and gaps are about no
/// principal.
fn check_scope(entry: &EntryView<'_>, index: usize, reporter: Option<&Caller>) -> Result<(), IngestError> {
    // Only the ledger counts the entries of a principal beyond its share.
    if let EntryKind::Aggregate(aggregate) = &entry.kind
        && aggregate.principal.is_some()
    {
        let reason = "counts decisions of one principal, which only the ledger does: leave `principal` out";
        return Err(IngestError::Entry { index, reason });
    }
    let Some(reporter) = reporter else {
        return Ok(());
    };
    let may = match &entry.kind {
        EntryKind::Event(_) | EntryKind::Chain(_) => reporter.may_report(entry.principal().map(|of| of.issuer)),
        EntryKind::Aggregate(_) | EntryKind::Gap(_) => true,
    };
    match may {
        true => Ok(()),
        false => Err(IngestError::OtherIssuer {
            index,
            name: reporter.name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use credence_wire::v1::entry::Entry as Kind;
    use prost::Message as _;

    use super::*;

    const BOUNDS: BatchBounds = BatchBounds {
        entries: 100,
        bytes: 100_000,
    };

    fn check(entries: Vec<v1::Entry>) -> Result<BoundedBatch, IngestError> {
        let batch = v1::Batch {
            first_sequence: 7,
            entries,
        };
        BoundedBatch::check(batch.encode_to_vec().into(), BOUNDS)
    }

    fn event(change: impl FnOnce(&mut v1::Event)) -> v1::Entry {
        let mut event = v1::Event {
            time_unix_nano: 1,
            decision_ns: 300,
            stale_ms: None,
            expires_at: 0,
            principal: Some(v1::Principal {
                issuer: "i".repeat(1024),
                subject: Some("s".repeat(256)),
            }),
            delegation_ids: vec!["d".repeat(256); 9],
            ..Default::default()
        };
        change(&mut event);
        v1::Entry {
            entry: Some(Kind::Event(event)),
        }
    }

    #[test]
    fn the_bytes_of_a_batch_do_not_change() {
        let entries = vec![event(|_| {}); 2];
        let batch = v1::Batch {
            first_sequence: 7,
            entries: entries.clone(),
        };
        let checked = check(entries).unwrap();
        assert_eq!((checked.first_sequence, checked.entries), (7, 2));
        assert_eq!(checked.encoded, batch.encode_to_vec());
    }

    #[test]
    fn a_message_of_the_contract_is_read_as_the_same_message_with_its_batch_encoded() {
        let batch = v1::Batch {
            first_sequence: 3,
            entries: vec![event(|_| {})],
        };
        let sent = v1::ReportRequest {
            message: Some(v1::report_request::Message::Batch(batch.clone())),
        };
        let read = IngestRequest::decode(sent.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read.message, Some(Incoming::Batch(batch.encode_to_vec().into())));
    }

    #[test]
    fn too_many_entries_are_refused_however_small() {
        let encoded = [0x12, 0x00].repeat(50_000);
        let refused = BoundedBatch::check(encoded.into(), BOUNDS).unwrap_err();
        assert!(matches!(refused, IngestError::Entry { index: 1, .. }), "{refused}");
        assert!(matches!(
            check(vec![event(|event| event.delegation_ids.clear()); 101]).unwrap_err(),
            IngestError::TooLarge { .. }
        ));
    }

    #[test]
    fn an_entry_out_of_bounds_is_named_by_its_place() {
        let long = event(|event| event.tool = "t".repeat(1025));
        let refused = check(vec![event(|_| {}), long]).unwrap_err().to_string();
        assert!(refused.contains("entry 2") && refused.contains("a text"), "{refused}");
    }

    #[test]
    fn bytes_that_are_not_a_message_are_refused() {
        for encoded in [&[0x12, 0x05, 0x00][..], &[0x13], &[0x09, 0x00], &[0xff; 12]] {
            let refused = BoundedBatch::check(Bytes::copy_from_slice(encoded), BOUNDS);
            assert!(matches!(refused, Err(IngestError::Malformed)), "{encoded:?}");
        }
    }

    #[test]
    fn the_cost_covers_the_bytes_and_the_notes_about_them() {
        let seen = event(|event| {
            event.decision = v1::Decision::Allow.into();
            event.expires_at = 1;
        });
        let bytes = seen.encoded_len();
        assert!(check(vec![seen]).unwrap().cost() > 2 * bytes);
    }
}
