//! One entry of a batch, in the shape in which `GET /v1/audit/events` shows it.
//!
//! What the ledger adds to an entry (`index`, `source`, `sequence`, `received`) is not said by the reporter. Every
//! member that is unknown is refused: evidence that is silently dropped would be none.

use credence_delegation::chain_digest;
use credence_wire::v1;
use credence_wire::v1::entry::Entry as EntryKind;
use serde::de::{Deserializer, Error as _, IgnoredAny};
use serde::{Deserialize, de};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::http::json;
use credence_runtime::text::hex;

/// Reads the entry at this place of the body. The error names the place and the member.
pub(super) fn read(text: &RawValue, place: &str) -> Result<v1::Entry, String> {
    let Kinded { kind } = json::part(text, place)?;
    let entry = match kind {
        Kind::Decision => EntryKind::Event(json::part::<Decision>(text, place)?.into()),
        Kind::Aggregate => EntryKind::Aggregate(json::part::<Aggregate>(text, place)?.into()),
        Kind::Gap => EntryKind::Gap(json::part::<Gap>(text, place)?.into()),
        Kind::Chain => {
            let chain: Chain = json::part(text, place)?;
            let Hex(said) = &chain.chain_digest;
            if !said.is_empty() && *said != chain_digest(chain.chain.0.as_bytes()) {
                return Err(format!(
                    "at {place}.chain_digest: it is not this chain's; leave it out, or write the SHA-256 over each token's"
                ));
            }
            EntryKind::Chain(chain.into())
        }
    };
    Ok(v1::Entry { entry: Some(entry) })
}

/// Which the entry is; its other members are read once that is known.
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    time: Instant,
    #[serde(with = "DecisionName")]
    decision: v1::Decision,
    reason: Code,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    tool: String,
    #[serde(default = "enforce", with = "ModeName")]
    mode: v1::Mode,
    #[serde(default)]
    principal: Option<json::Object<Principal>>,
    #[serde(default)]
    agent: String,
    #[serde(default, with = "ProofName")]
    proof: v1::ProofKind,
    #[serde(default)]
    delegation_ids: Vec<String>,
    #[serde(default)]
    arguments_hash: Hex<48>,
    #[serde(default)]
    arguments: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    authority: String,
    #[serde(default)]
    path_template: String,
    #[serde(default)]
    request_id: String,
    #[serde(default)]
    trace_id: TraceId,
    #[serde(default, with = "CacheName")]
    cache: v1::CacheLevel,
    #[serde(default)]
    decision_ns: u64,
    #[serde(default, deserialize_with = "json::present")]
    stale_ms: Option<u64>,
    #[serde(default, deserialize_with = "json::present")]
    expires_at: Option<Second>,
    #[serde(default)]
    chain_digest: Hex<32>,
    #[serde(default, deserialize_with = "json::present")]
    response_status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aggregate {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    time: Second,
    #[serde(default)]
    rule: String,
    reason: Code,
    count: Positive,
    #[serde(default = "deny", with = "DecisionName")]
    decision: v1::Decision,
    #[serde(default = "enforce", with = "ModeName")]
    mode: v1::Mode,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gap {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    shed: u64,
    first_time: Instant,
    last_time: Instant,
    #[serde(default)]
    shed_counts: u64,
    #[serde(default)]
    shed_chains: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chain {
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    chain: ChainText,
    #[serde(default)]
    chain_digest: Hex<32>,
    principal: json::Object<Principal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Principal {
    issuer: Code,
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
}

#[derive(Deserialize)]
#[serde(remote = "v1::CacheLevel", rename_all = "lowercase")]
enum CacheName {
    Unspecified,
    None,
    L1,
    L2,
}

/// A count is of denials unless it says otherwise.
fn deny() -> v1::Decision {
    v1::Decision::Deny
}

fn enforce() -> v1::Mode {
    v1::Mode::Enforce
}

/// A text that says something.
#[derive(Debug)]
struct Code(String);

/// RFC 3339, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct Instant(u64);

/// RFC 3339, a whole second since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct Second(i64);

#[derive(Debug, Clone, Copy)]
struct Positive(u64);

/// An HTTP status.
#[derive(Debug, Clone, Copy)]
struct Status(u32);

/// So many bytes as lower-case hexadecimal digits, or none at all.
#[derive(Debug, Default)]
struct Hex<const BYTES: usize>(Vec<u8>);

/// A W3C trace id, or none.
#[derive(Debug, Default)]
struct TraceId(String);

/// Tokens, root first, joined by `~`.
#[derive(Debug)]
struct ChainText(String);

// === what they become ===

impl From<Decision> for v1::Event {
    fn from(decision: Decision) -> Self {
        Self {
            time_unix_nano: decision.time.0,
            request_id: decision.request_id,
            trace_id: decision.trace_id.0,
            rule: decision.rule,
            tool: decision.tool,
            decision: decision.decision.into(),
            reason: decision.reason.0,
            mode: decision.mode.into(),
            principal: decision.principal.map(|json::Object(principal)| principal.into()),
            agent: decision.agent,
            proof: decision.proof.into(),
            delegation_ids: decision.delegation_ids,
            arguments_hash: decision.arguments_hash.0,
            method: decision.method,
            authority: decision.authority,
            path_template: decision.path_template,
            cache: decision.cache.into(),
            decision_ns: decision.decision_ns,
            stale_ms: decision.stale_ms,
            expires_at: decision.expires_at.map_or(0, |second| second.0),
            chain_digest: decision.chain_digest.0,
            arguments: decision.arguments.into_bytes(),
            response_status: decision.response_status.map_or(0, |status| status.0),
        }
    }
}

impl From<Aggregate> for v1::Aggregate {
    fn from(aggregate: Aggregate) -> Self {
        Self {
            second: aggregate.time.0,
            rule: aggregate.rule,
            reason: aggregate.reason.0,
            count: aggregate.count.0,
            principal: None,
            decision: aggregate.decision.into(),
            mode: aggregate.mode.into(),
        }
    }
}

impl From<Gap> for v1::Gap {
    fn from(gap: Gap) -> Self {
        Self {
            shed: gap.shed,
            first_time_unix_nano: gap.first_time.0,
            last_time_unix_nano: gap.last_time.0,
            shed_counts: gap.shed_counts,
            shed_chains: gap.shed_chains,
        }
    }
}

impl From<Chain> for v1::PresentedChain {
    fn from(chain: Chain) -> Self {
        let json::Object(principal) = chain.principal;
        Self {
            chain: chain.chain.0.into_bytes(),
            principal: Some(principal.into()),
        }
    }
}

impl From<Principal> for v1::Principal {
    fn from(principal: Principal) -> Self {
        Self {
            issuer: principal.issuer.0,
            subject: principal.subject,
        }
    }
}

// === how they are read ===

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.is_empty() {
            true => Err(D::Error::custom("it must not be empty")),
            false => Ok(Self(text)),
        }
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::try_from(instant(deserializer)?.unix_timestamp_nanos())
            .map(Self)
            .map_err(|_| D::Error::custom(TIME_EXPECTED))
    }
}

impl<'de> Deserialize<'de> for Second {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let instant = instant(deserializer)?;
        if instant.nanosecond() != 0 || instant.unix_timestamp() < 0 {
            return Err(D::Error::custom(
                "write a whole second from 1970 on, such as 2027-01-15T08:00:00Z",
            ));
        }
        Ok(Self(instant.unix_timestamp()))
    }
}

fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| D::Error::custom(TIME_EXPECTED))
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Err(D::Error::custom("write at least 1")),
            count => Ok(Self(count)),
        }
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            status @ 100..=599 => Ok(Self(status)),
            _ => Err(D::Error::custom("write 100 to 599, or leave it out")),
        }
    }
}

impl<'de, const BYTES: usize> Deserialize<'de> for Hex<BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match base16ct::lower::decode_vec(&text) {
            Ok(bytes) if bytes.is_empty() || bytes.len() == BYTES => Ok(Self(bytes)),
            _ => Err(D::Error::custom(format_args!(
                "write {} lower-case hexadecimal digits, or leave it out",
                2 * BYTES
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Hex(bytes) = Hex::<16>::deserialize(deserializer)?;
        Ok(Self(hex(&bytes)))
    }
}

impl<'de> Deserialize<'de> for ChainText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.len() {
            1..=MAX_CHAIN_BYTES => Ok(Self(text)),
            _ => Err(de::Error::custom(format_args!(
                "write the tokens, root first, joined by ~: at most {MAX_CHAIN_BYTES} bytes"
            ))),
        }
    }
}

const TIME_EXPECTED: &str = "write a time as RFC 3339 has it, such as 2027-01-15T08:00:00.5Z, from 1970 to 2554";
/// As the contract with the filters bounds it (audit.proto).
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
    fn whatever_is_wrong_is_said_with_the_entry_and_the_member() {
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
