//! Parses one entry of a batch, in the format of `GET /v1/audit/events`.
//!
//! The reporter must leave out the members that the ledger adds (`index`, `source`, `sequence`, `received`). Every
//! unknown member is refused, because evidence must not be dropped silently.

use std::fmt;

use credence_delegation::chain_digest;
use credence_wire::v1;
use credence_wire::v1::entry::Entry as EntryKind;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_path_to_error::Track;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::http::json;
use credence_runtime::text::hex;

/// Parses the entry at this place of the body. An error names the place and the member.
pub(super) fn read(text: &RawValue, place: &str) -> Result<v1::Entry, String> {
    let Members(members) = json::part(text, place)?;
    let (kind, others): (Vec<_>, Vec<_>) = members.into_iter().partition(|(name, _)| name == "kind");
    let Kinded { kind } = json::part(MapDeserializer::new(kind.into_iter()), place)?;
    let mut track = Track::new();
    let others = MapDeserializer::new(others.into_iter());
    let others = serde_path_to_error::Deserializer::new(others, &mut track);
    let mut said_digest = Vec::new();
    let entry = match kind {
        Kind::Decision => Decision::deserialize(others).map(EntryKind::Event),
        Kind::Aggregate => Aggregate::deserialize(others).map(EntryKind::Aggregate),
        Kind::Gap => Gap::deserialize(others).map(EntryKind::Gap),
        Kind::Chain => Chain::deserialize(others).map(|said| {
            said_digest = said.chain_digest;
            EntryKind::Chain(v1::PresentedChain {
                chain: said.chain,
                principal: said.principal,
            })
        }),
    };
    let entry = entry.map_err(|error| json::explain_part(place, &track.path(), &error))?;
    if let EntryKind::Chain(chain) = &entry
        && !said_digest.is_empty()
        && said_digest != chain_digest(&chain.chain)
    {
        return Err(format!(
            "at {place}.chain_digest: it does not match the chain; leave it out, or write the SHA-256 over each token's"
        ));
    }
    Ok(v1::Entry { entry: Some(entry) })
}

/// The members of an entry, by name. Their values are parsed once its kind is known.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// The kind of the entry.
#[derive(Debug, Deserialize)]
struct Kinded {
    kind: Kind,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Decision,
    Aggregate,
    Gap,
    Chain,
}

#[derive(Deserialize)]
#[serde(remote = "v1::Event", deny_unknown_fields)]
struct Decision {
    #[serde(rename = "time", deserialize_with = "nanoseconds")]
    time_unix_nano: u64,
    #[serde(deserialize_with = "decision")]
    decision: i32,
    #[serde(deserialize_with = "not_empty")]
    reason: String,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    tool: String,
    #[serde(default = "enforce", deserialize_with = "mode")]
    mode: i32,
    #[serde(default, deserialize_with = "any_principal")]
    principal: Option<v1::Principal>,
    #[serde(default)]
    agent: String,
    #[serde(default, deserialize_with = "proof")]
    proof: i32,
    #[serde(default)]
    delegation_ids: Vec<String>,
    #[serde(default, deserialize_with = "digits::<48, _>")]
    arguments_hash: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    arguments: Vec<u8>,
    #[serde(default)]
    method: String,
    #[serde(default)]
    authority: String,
    #[serde(default)]
    path_template: String,
    #[serde(default)]
    request_id: String,
    #[serde(default, deserialize_with = "trace_id")]
    trace_id: String,
    #[serde(default, deserialize_with = "cache")]
    cache: i32,
    #[serde(default)]
    decision_ns: u64,
    #[serde(default, deserialize_with = "json::present")]
    stale_ms: Option<u64>,
    #[serde(default, deserialize_with = "second")]
    expires_at: i64,
    #[serde(default, deserialize_with = "digits::<32, _>")]
    chain_digest: Vec<u8>,
    #[serde(default, deserialize_with = "status")]
    response_status: u32,
    #[serde(default)]
    client: String,
    #[serde(default)]
    actors: Vec<String>,
    #[serde(default)]
    mcp_method: String,
}

#[derive(Deserialize)]
#[serde(remote = "v1::Aggregate", deny_unknown_fields)]
struct Aggregate {
    #[serde(rename = "time", deserialize_with = "second")]
    second: i64,
    #[serde(default)]
    rule: String,
    #[serde(deserialize_with = "not_empty")]
    reason: String,
    #[serde(deserialize_with = "positive")]
    count: u64,
    #[serde(skip)]
    principal: Option<v1::Principal>,
    #[serde(default = "deny", deserialize_with = "decision")]
    decision: i32,
    #[serde(default = "enforce", deserialize_with = "mode")]
    mode: i32,
}

#[derive(Deserialize)]
#[serde(remote = "v1::Gap", deny_unknown_fields)]
struct Gap {
    shed: u64,
    #[serde(rename = "first_time", deserialize_with = "nanoseconds")]
    first_time_unix_nano: u64,
    #[serde(rename = "last_time", deserialize_with = "nanoseconds")]
    last_time_unix_nano: u64,
    #[serde(default)]
    shed_counts: u64,
    #[serde(default)]
    shed_chains: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    #[serde(deserialize_with = "chain_text")]
    chain: Vec<u8>,
    #[serde(default, deserialize_with = "digits::<32, _>")]
    chain_digest: Vec<u8>,
    #[serde(deserialize_with = "principal")]
    principal: Option<v1::Principal>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Principal {
    #[serde(deserialize_with = "not_empty")]
    issuer: String,
    #[serde(default)]
    subject: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "v1::Decision", rename_all = "lowercase")]
enum DecisionName {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(remote = "v1::Mode", rename_all = "lowercase")]
enum ModeName {
    Enforce,
    Shadow,
    Unspecified,
}

#[derive(Deserialize)]
#[serde(remote = "v1::ProofKind", rename_all = "lowercase")]
enum ProofName {
    Unspecified,
    None,
    Pop,
    Mtls,
    Dpop,
}

#[derive(Deserialize)]
#[serde(remote = "v1::CacheLevel", rename_all = "lowercase")]
enum CacheName {
    Unspecified,
    None,
    L1,
    L2,
}

/// A count is of denials by default.
fn deny() -> i32 {
    v1::Decision::Deny.into()
}

fn enforce() -> i32 {
    v1::Mode::Enforce.into()
}

// === impl Members ===

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            if members.len() == MOST_MEMBERS {
                return Err(A::Error::custom(format_args!(
                    "an entry has at most {MOST_MEMBERS} members"
                )));
            }
            members.push(member);
        }
        Ok(Members(members))
    }
}

// === parsing members ===

fn decision<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    DecisionName::deserialize(deserializer).map(i32::from)
}

fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    ModeName::deserialize(deserializer).map(i32::from)
}

fn proof<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    ProofName::deserialize(deserializer).map(i32::from)
}

fn cache<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    CacheName::deserialize(deserializer).map(i32::from)
}

fn principal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<v1::Principal>, D::Error> {
    let json::Object(Principal { issuer, subject }) = json::Object::deserialize(deserializer)?;
    Ok(Some(v1::Principal { issuer, subject }))
}

/// Or null, which the API shows for entries without a principal.
fn any_principal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<v1::Principal>, D::Error> {
    let principal = Option::<json::Object<Principal>>::deserialize(deserializer)?;
    Ok(principal.map(|json::Object(Principal { issuer, subject })| v1::Principal { issuer, subject }))
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match String::deserialize(deserializer)? {
        text if text.is_empty() => Err(D::Error::custom("it must not be empty")),
        text => Ok(text),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(deserializer).map(String::into_bytes)
}

/// RFC 3339, in nanoseconds since the Unix epoch.
fn nanoseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let nanoseconds = instant(deserializer)?.unix_timestamp_nanos();
    u64::try_from(nanoseconds).map_err(|_| D::Error::custom(TIME_EXPECTED))
}

/// RFC 3339, a whole second since the Unix epoch.
fn second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let instant = instant(deserializer)?;
    if instant.nanosecond() != 0 || instant.unix_timestamp() < 0 {
        return Err(D::Error::custom(
            "write a whole second from 1970 on, such as 2027-01-15T08:00:00Z",
        ));
    }
    Ok(instant.unix_timestamp())
}

fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| D::Error::custom(TIME_EXPECTED))
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("write at least 1")),
        count => Ok(count),
    }
}

/// An HTTP status.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        status @ 100..=599 => Ok(status),
        _ => Err(D::Error::custom("write 100 to 599, or leave it out")),
    }
}

/// This many bytes as lower-case hexadecimal digits, or empty.
fn digits<'de, const BYTES: usize, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match base16ct::lower::decode_vec(&text) {
        Ok(bytes) if bytes.is_empty() || bytes.len() == BYTES => Ok(bytes),
        _ => Err(D::Error::custom(format_args!(
            "write {} lower-case hexadecimal digits, or leave it out",
            2 * BYTES
        ))),
    }
}

/// A W3C trace id, or none.
fn trace_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    digits::<16, _>(deserializer).map(|bytes| hex(&bytes))
}

/// Tokens, root first, joined by `~`.
fn chain_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.len() {
        1..=MAX_CHAIN_BYTES => Ok(text.into_bytes()),
        _ => Err(D::Error::custom(format_args!(
            "write the tokens, root first, joined by ~: at most {MAX_CHAIN_BYTES} bytes"
        ))),
    }
}

const TIME_EXPECTED: &str = "write a time as RFC 3339 has it, such as 2027-01-15T08:00:00.5Z, from 1970 to 2554";
/// More than any kind has. It limits the memory before the kind is known.
const MOST_MEMBERS: usize = 32;
/// The limit of the contract with the filters (audit.proto).
const MAX_CHAIN_BYTES: usize = 60_000;

#[cfg(test)]
mod tests {
    use credence_ledger::fields::{Value, values};
    use credence_ledger::record::{LedgerRecord, RecordBody, StoredEntry};
    use prost::Message as _;

    use super::*;

    fn read_text(text: &str) -> Result<v1::Entry, String> {
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        read(&raw, "entries[3]")
    }

    #[test]
    fn a_decision_needs_only_its_time_outcome_and_reason() {
        let text = r#"{"kind": "decision", "time": "2027-01-15T08:00:00.5Z", "decision": "deny", "reason": "expired"}"#;
        let expected = v1::Event {
            time_unix_nano: 1_800_000_000_500_000_000,
            decision: v1::Decision::Deny.into(),
            reason: "expired".to_owned(),
            mode: v1::Mode::Enforce.into(),
            ..Default::default()
        };
        assert_eq!(read_text(text).unwrap().entry, Some(EntryKind::Event(expected)));
    }

    #[test]
    fn every_field_that_the_api_shows_of_an_entry_is_read() {
        let decision = v1::Event {
            expires_at: 1,
            chain_digest: vec![0; 32],
            arguments: vec![b'x'],
            response_status: 200,
            stale_ms: Some(1),
            ..v1::Event::default()
        };
        for entry in [
            EntryKind::Event(decision),
            EntryKind::Aggregate(v1::Aggregate::default()),
            EntryKind::Gap(v1::Gap::default()),
            EntryKind::Chain(v1::PresentedChain::default()),
        ] {
            let record = LedgerRecord {
                index: 0,
                received_unix_nano: 0,
                source: String::new(),
                body: RecordBody::Entry(StoredEntry {
                    entry: v1::Entry { entry: Some(entry) }.encode_to_vec().into(),
                    ..StoredEntry::default()
                }),
            };
            let mut fields = values(&record).into_iter().skip_while(|(name, _)| *name != "kind");
            let Some((_, Value::Text(kind))) = fields.next() else {
                panic!("an entry has a kind");
            };
            for (name, _) in fields {
                let refused = read_text(&format!(r#"{{"kind": "{kind}", "{name}": []}}"#)).unwrap_err();
                assert!(!refused.contains("unknown field"), "{kind}: {refused}");
            }
        }
    }

    #[test]
    fn a_chain_is_read_with_the_principal_that_it_is_of() {
        let text = r#"{"kind": "chain", "chain": "a~b", "principal": {"issuer": "i", "subject": "s"}}"#;
        let expected = v1::PresentedChain {
            chain: b"a~b".to_vec(),
            principal: Some(v1::Principal {
                issuer: "i".to_owned(),
                subject: Some("s".to_owned()),
            }),
        };
        assert_eq!(read_text(text).unwrap().entry, Some(EntryKind::Chain(expected)));
    }

    #[test]
    fn errors_name_the_entry_and_the_member() {
        let decision = |members: &str| {
            format!(
                r#"{{"kind": "decision", "time": "2027-01-15T08:00:00Z", "decision": "allow", "reason": "ok", {members}}}"#
            )
        };
        let count = |members: &str| format!(r#"{{"kind": "aggregate", "reason": "r", {members}}}"#);
        for (text, expected) in [
            ("7".to_owned(), "at entries[3]: "),
            ("{}".to_owned(), "missing field `kind`"),
            (r#"{"kind": "source"}"#.to_owned(), "at entries[3].kind: "),
            (r#"{"kind": "gap", "shed": 1}"#.to_owned(), "missing field `first_time`"),
            (decision(r#""index": 4"#), "at entries[3].index: unknown field"),
            (decision(r#""reason": "r""#), "duplicate field `reason`"),
            (decision(r#""tool": null"#), "at entries[3].tool: "),
            (decision(r#""decision_ns": -1"#), "at entries[3].decision_ns: "),
            (
                decision(r#""trace_id": "4BF9""#),
                "at entries[3].trace_id: write 32 lower-case",
            ),
            (
                decision(r#""arguments_hash": "ab""#),
                "at entries[3].arguments_hash: write 96",
            ),
            (
                decision(r#""response_status": 0"#),
                "at entries[3].response_status: write 100",
            ),
            (
                decision(r#""principal": {"issuer": ""}"#),
                "at entries[3].principal.issuer: it must",
            ),
            (decision(r#""principal": ["i"]"#), "at entries[3].principal: "),
            (
                count(r#""count": 0, "time": "2027-01-15T08:00:00Z""#),
                "at entries[3].count: write at least 1",
            ),
            (
                count(r#""count": 1, "time": "2027-01-15T08:00:00.1Z""#),
                "at entries[3].time: write a whole second",
            ),
            (
                count(r#""count": 1, "time": "1969-12-31T23:59:59Z""#),
                "at entries[3].time: ",
            ),
            (
                r#"{"kind": "chain", "chain": "", "principal": {"issuer": "i"}}"#.to_owned(),
                "at entries[3].chain: ",
            ),
        ] {
            let refused = read_text(&text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
            assert!(
                refused.starts_with("at entries[3]") && !refused.contains("line"),
                "{refused}"
            );
        }
    }
}
