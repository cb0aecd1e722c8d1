//! A record of the ledger in JSON.

use credence_ledger::fields::{Value, values};
use credence_ledger::record::LedgerRecord;
use credence_runtime::text::hex;
use serde::{Serialize, Serializer};

/// Serializes a record: its fields are members of an object.
#[derive(Debug)]
pub(crate) struct RecordView(pub(crate) LedgerRecord);

/// A field's value. Bytes are lower-case hexadecimal digits, times are RFC 3339.
struct ValueView<'a>(Value<'a>);

impl Serialize for RecordView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            values(&self.0)
                .into_iter()
                .map(|(name, value)| (name, ValueView(value))),
        )
    }
}

impl Serialize for ValueView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Value::Text(text) => text.serialize(serializer),
            Value::Texts(texts) => texts.serialize(serializer),
            Value::Bytes(bytes) => hex(bytes).serialize(serializer),
            Value::Number(number) => number.serialize(serializer),
            Value::Flag(flag) => flag.serialize(serializer),
            Value::Nanoseconds(unix_nano) => nanoseconds(*unix_nano).serialize(serializer),
            Value::Seconds(seconds) => rfc3339(*seconds, 0).serialize(serializer),
            Value::Principal(principal) => principal.serialize(serializer),
        }
    }
}

fn nanoseconds(unix_nano: u64) -> String {
    rfc3339((unix_nano / 1_000_000_000) as i64, (unix_nano % 1_000_000_000) as i32)
}

fn rfc3339(seconds: i64, nanos: i32) -> String {
    prost_types::Timestamp {
        seconds: seconds.clamp(0, LATEST_SECOND),
        nanos,
    }
    .to_string()
}

/// 9999-12-31T23:59:59Z, the latest time in RFC 3339.
const LATEST_SECOND: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use credence_ledger::record::{RecordBody, StoredEntry};
    use credence_wire::v1;
    use credence_wire::v1::entry::Entry as EntryKind;
    use prost::Message as _;

    use super::*;

    #[test]
    fn times_are_rfc_3339_and_impossible_ones_do_no_harm() {
        assert_eq!(nanoseconds(1_800_000_000_500_000_000), "2027-01-15T08:00:00.500Z");
        assert_eq!(rfc3339(i64::MIN, 0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(i64::MAX, 0), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn enums_are_readable_and_kinds_are_named() {
        let event = v1::Event {
            decision: v1::Decision::Deny.into(),
            mode: v1::Mode::Shadow.into(),
            proof: v1::ProofKind::Pop.into(),
            cache: v1::CacheLevel::L1.into(),
            arguments_hash: vec![0xab, 1],
            chain_digest: vec![0xcd; 32],
            arguments: b"{\"a\":1}".to_vec(),
            response_status: 404,
            expires_at: 1_800_000_000,
            ..Default::default()
        };
        let entry = v1::Entry {
            entry: Some(EntryKind::Event(event)),
        };
        let body = RecordBody::Entry(StoredEntry {
            sequence: 4,
            entry: entry.encode_to_vec().into(),
            ..StoredEntry::default()
        });
        let record = LedgerRecord {
            index: 9,
            received_unix_nano: 0,
            source: "s".to_owned(),
            body,
        };
        let json = serde_json::to_value(RecordView(record)).unwrap();
        for (field, expected) in [
            ("kind", "decision"),
            ("decision", "deny"),
            ("mode", "shadow"),
            ("proof", "pop"),
            ("cache", "l1"),
            ("arguments_hash", "ab01"),
            ("chain_digest", &"cd".repeat(32)),
            ("arguments", "{\"a\":1}"),
            ("expires_at", "2027-01-15T08:00:00Z"),
            ("rule", ""),
        ] {
            assert_eq!(json[field], expected, "{json}");
        }
        assert_eq!(json["response_status"], 404);
        assert!(json["principal"].is_null() && json.get("stale_ms").is_none(), "{json}");
        assert!(json.get("received").is_none(), "{json}");
        assert_eq!((json["index"].as_u64(), json["sequence"].as_u64()), (Some(9), Some(4)));
    }
}
