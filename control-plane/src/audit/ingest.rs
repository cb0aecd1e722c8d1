//! Bounds evidence before it is decoded.
//!
//! Decoding multiplies: an entry of two bytes becomes a structure of several hundred. So a batch arrives as bytes,
//! is walked once without allocating, and is decoded only if its parts are within bounds.

use std::ops::ControlFlow;

use credence_wire::v1;
use prost::bytes::{Buf, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message as _};

/// `credence.v1.ReportRequest` with the batch left encoded: on the wire a message and bytes are the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct IngestRequest {
    #[prost(oneof = "Incoming", tags = "1, 2, 3")]
    pub(crate) message: Option<Incoming>,
}

/// What a stream can say.
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

/// What one batch may hold; see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchBounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// A batch whose every part is known to be within bounds.
#[derive(Debug)]
pub(crate) struct BoundedBatch {
    encoded: Bytes,
    entries: usize,
}

/// Why a batch is not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum IngestError {
    #[error("a batch has at most {entries} entries and {bytes} bytes")]
    TooLarge { entries: usize, bytes: usize },
    #[error("entry {index} of the batch (from 1) {reason}")]
    Entry { index: usize, reason: &'static str },
    #[error("the batch can not be decoded")]
    Malformed(#[from] Malformed),
}

/// These bytes are no message of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a message of the contract")]
pub(crate) struct Malformed;

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

// === impl BoundedBatch ===

impl BoundedBatch {
    pub(crate) fn check(encoded: Bytes, bounds: BatchBounds) -> Result<Self, IngestError> {
        let too_large = || IngestError::TooLarge {
            entries: bounds.entries,
            bytes: bounds.bytes,
        };
        if encoded.len() > bounds.bytes {
            return Err(too_large());
        }
        let mut entries = 0;
        let found = walk(&encoded, |tag, value| {
            if tag != BATCH_ENTRIES {
                return ControlFlow::Continue(());
            }
            entries += 1;
            if entries > bounds.entries {
                return ControlFlow::Break(too_large());
            }
            match check_entry(value) {
                Ok(None) => ControlFlow::Continue(()),
                Ok(Some(reason)) => ControlFlow::Break(IngestError::Entry { index: entries, reason }),
                Err(error) => ControlFlow::Break(error.into()),
            }
        })?;
        match found {
            Some(refused) => Err(refused),
            None => Ok(Self { encoded, entries }),
        }
    }

    /// Memory that the batch takes once it is decoded, in bytes: an upper bound.
    pub(crate) fn cost(&self) -> usize {
        self.encoded.len() + self.entries * DECODED_ENTRY_BYTES
    }

    pub(crate) fn decode(self) -> Result<v1::Batch, IngestError> {
        v1::Batch::decode(self.encoded).map_err(|_| Malformed.into())
    }
}

/// What is wrong with an encoded entry, if anything is.
fn check_entry(entry: &[u8]) -> Result<Option<&'static str>, Malformed> {
    if entry.len() > MAX_CHAIN_ENTRY_BYTES {
        return Ok(Some("is larger than 63488 bytes"));
    }
    let mut kinds = 0;
    let refused = walk(entry, |tag, value| {
        if !(ENTRY_EVENT..=ENTRY_CHAIN).contains(&tag) {
            return ControlFlow::Continue(());
        }
        kinds += 1;
        let checked = match tag {
            ENTRY_CHAIN => check_chain(value),
            _ if entry.len() > MAX_ENTRY_BYTES => Ok(Some("is larger than 16384 bytes")),
            ENTRY_EVENT => check_event(value),
            _ => check_texts(value),
        };
        stop_at(checked)
    })?;
    match refused {
        Some(refused) => refused.map(Some),
        None if kinds == 0 => Ok(Some(
            "is of a kind that this control plane does not know; upgrade it before the filters",
        )),
        None if kinds > 1 => Ok(Some("says more than one thing")),
        None => Ok(None),
    }
}

fn check_event(event: &[u8]) -> Result<Option<&'static str>, Malformed> {
    let mut ids = 0;
    let refused = walk(event, |tag, value| match tag {
        EVENT_DELEGATION_IDS => {
            ids += 1;
            stop_at(Ok(if ids > MAX_DELEGATION_IDS {
                Some("names more than 9 delegations; a chain has at most 9 tokens")
            } else if value.len() > MAX_NAME_BYTES {
                Some("has a delegation id of more than 256 bytes")
            } else {
                None
            }))
        }
        EVENT_PRINCIPAL => stop_at(check_principal(value)),
        EVENT_ARGUMENTS => stop_at(Ok(
            (value.len() > MAX_ARGUMENTS_BYTES).then_some("has arguments of more than 4096 bytes")
        )),
        _ => stop_at(Ok(too_long(value))),
    })?;
    refused.transpose()
}

fn check_chain(chain: &[u8]) -> Result<Option<&'static str>, Malformed> {
    let refused = walk(chain, |tag, value| match tag {
        CHAIN_CHAIN => stop_at(Ok(
            (value.len() > MAX_CHAIN_BYTES).then_some("has a chain of more than 60000 bytes")
        )),
        CHAIN_PRINCIPAL => stop_at(check_principal(value)),
        _ => stop_at(Ok(too_long(value))),
    })?;
    refused.transpose()
}

fn check_principal(principal: &[u8]) -> Result<Option<&'static str>, Malformed> {
    let refused = walk(principal, |tag, value| {
        stop_at(Ok(match tag {
            PRINCIPAL_SUBJECT if value.len() > MAX_NAME_BYTES => Some("has a subject of more than 256 bytes"),
            _ => too_long(value),
        }))
    })?;
    refused.transpose()
}

fn check_texts(message: &[u8]) -> Result<Option<&'static str>, Malformed> {
    walk(message, |_, value| stop_at(Ok(too_long(value))))?.transpose()
}

fn too_long(text: &[u8]) -> Option<&'static str> {
    (text.len() > MAX_TEXT_BYTES).then_some("has a text of more than 1024 bytes")
}

/// The walk ends at the first thing that is wrong.
fn stop_at(checked: Result<Option<&'static str>, Malformed>) -> ControlFlow<Result<&'static str, Malformed>> {
    match checked.transpose() {
        Some(wrong) => ControlFlow::Break(wrong),
        None => ControlFlow::Continue(()),
    }
}

/// Calls `visit` for every length-delimited field of an encoded message, until it breaks.
fn walk<B>(mut message: &[u8], mut visit: impl FnMut(u32, &[u8]) -> ControlFlow<B>) -> Result<Option<B>, Malformed> {
    while message.has_remaining() {
        let (tag, wire_type) = decode_key(&mut message)?;
        let skipped = match wire_type {
            WireType::Varint => {
                decode_varint(&mut message)?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => decode_varint(&mut message)?,
            // No message of ours has groups.
            WireType::StartGroup | WireType::EndGroup => u64::MAX,
        };
        let length = usize::try_from(skipped).unwrap_or(usize::MAX);
        let Some((value, rest)) = message.split_at_checked(length) else {
            return Err(Malformed);
        };
        message = rest;
        if wire_type == WireType::LengthDelimited
            && let ControlFlow::Break(found) = visit(tag, value)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

// Field numbers of audit.proto and revocation.proto.
const BATCH_ENTRIES: u32 = 2;
const ENTRY_EVENT: u32 = 1;
const ENTRY_CHAIN: u32 = 4;
const CHAIN_CHAIN: u32 = 1;
const CHAIN_PRINCIPAL: u32 = 2;
const EVENT_PRINCIPAL: u32 = 9;
const EVENT_DELEGATION_IDS: u32 = 12;
const EVENT_ARGUMENTS: u32 = 22;
const PRINCIPAL_SUBJECT: u32 = 2;

/// Filters keep every entry below this; sealed, it has to fit a leaf of less than 65,535 bytes.
const MAX_ENTRY_BYTES: usize = 16 << 10;
/// An entry with a chain, which is all that is larger.
const MAX_CHAIN_ENTRY_BYTES: usize = 62 << 10;
const MAX_CHAIN_BYTES: usize = 60_000;
const MAX_ARGUMENTS_BYTES: usize = 4 << 10;
/// A root and eight derivations.
const MAX_DELEGATION_IDS: usize = 9;
/// Delegation ids and subjects, as tokens bound them.
const MAX_NAME_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 1 << 10;
/// A decoded entry with its nine ids and a dozen short texts, beyond the bytes of their contents.
const DECODED_ENTRY_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use credence_wire::v1::entry::Entry as Kind;

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
    fn what_filters_send_is_decoded_unchanged() {
        let aggregate = v1::Entry {
            entry: Some(Kind::Aggregate(v1::Aggregate {
                second: -1,
                reason: "expired".to_owned(),
                ..Default::default()
            })),
        };
        let gap = v1::Entry {
            entry: Some(Kind::Gap(v1::Gap::default())),
        };
        let entries = vec![event(|_| {}), aggregate, gap];
        let batch = check(entries.clone()).unwrap().decode().unwrap();
        assert_eq!((batch.first_sequence, batch.entries), (7, entries));
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
    fn each_part_of_an_event_is_bounded() {
        let cases: [(v1::Entry, &str); 6] = [
            (event(|event| event.delegation_ids.push(String::new())), "more than 9"),
            (event(|event| event.delegation_ids[8].push('d')), "delegation id"),
            (event(|event| event.tool = "t".repeat(1025)), "a text"),
            (
                event(|event| event.principal.get_or_insert_default().subject = Some("s".repeat(257))),
                "a subject",
            ),
            (
                event(|event| event.principal.get_or_insert_default().issuer = "i".repeat(1025)),
                "a text",
            ),
            (v1::Entry { entry: None }, "does not know"),
        ];
        for (entry, reason) in cases {
            let refused = check(vec![event(|_| {}), entry]).unwrap_err().to_string();
            assert!(refused.contains("entry 2") && refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn an_entry_of_two_kinds_is_refused() {
        let twice = [event(|_| {}).encode_to_vec(), event(|_| {}).encode_to_vec()].concat();
        assert_eq!(check_entry(&twice).unwrap(), Some("says more than one thing"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for encoded in [&[0x12, 0x05, 0x00][..], &[0x13], &[0x09, 0x00], &[0xff; 12]] {
            let refused = BoundedBatch::check(Bytes::copy_from_slice(encoded), BOUNDS);
            assert!(matches!(refused, Err(IngestError::Malformed(_))), "{encoded:?}");
        }
    }

    #[test]
    fn the_cost_covers_what_a_decoded_entry_takes() {
        let beyond_contents = size_of::<v1::Entry>() + MAX_DELEGATION_IDS * (size_of::<String>() + 16);
        assert!(beyond_contents <= DECODED_ENTRY_BYTES, "{beyond_contents}");
    }
}
