//! Maps records of the ledger to OpenTelemetry's log data model, with the names of the semantic conventions where they
//! exist. docs/reference/evidence.md has the table.

use credence_ledger::entry::{AggregateView, EntryKind, EventView, PrincipalView};
use credence_ledger::fields::{FIELDS, UNSPECIFIED, Value as FieldValue, change_name, decision_name, values};
use credence_ledger::record::{LedgerRecord, Note, RecordBody, RecordKind, SourceChange};
use credence_runtime::text::hex;
use credence_wire::v1;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Log records with their resource, which is the same in every request. `instance` is the `log_id`, which distinguishes
/// the ledgers of control planes.
pub(crate) fn resource_logs(instance: &str, log_records: Vec<LogRecord>) -> ResourceLogs {
    let mut attributes = Attributes::default();
    attributes.text("service.name", "credence");
    attributes.text("service.version", env!("CARGO_PKG_VERSION"));
    attributes.text("service.instance.id", instance);
    ResourceLogs {
        resource: Some(Resource {
            attributes: attributes.0,
            ..Default::default()
        }),
        scope_logs: vec![ScopeLogs {
            scope: Some(InstrumentationScope {
                name: "credence.ledger".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Default::default()
            }),
            log_records,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The record as a log record. Every record has one, so that `credence.ledger.index` has no gaps.
pub(crate) fn log_record(record: &LedgerRecord) -> LogRecord {
    let described = described(record);
    LogRecord {
        time_unix_nano: match described.time_unix_nano {
            0 => record.received_unix_nano,
            time => time,
        },
        observed_time_unix_nano: record.received_unix_nano,
        attributes: Attributes::of(record).0,
        ..described
    }
}

/// The log record without its attributes. Its time is 0 if only the time of receipt is known.
fn described(record: &LedgerRecord) -> LogRecord {
    use SeverityNumber::{Debug, Error, Info, Warn};
    match &record.body {
        RecordBody::Entry(stored) => match &stored.view().map(|view| view.kind) {
            Some(EntryKind::Event(event)) => decision(event),
            Some(EntryKind::Aggregate(aggregate)) => count(aggregate),
            Some(EntryKind::Gap(gap)) => LogRecord {
                time_unix_nano: gap.first_time_unix_nano,
                ..named("credence.gap", Warn, format!("{} events were shed", gap.shed))
            },
            Some(EntryKind::Chain(_)) => named("credence.chain", Debug, "a delegation was presented"),
            None => named("credence.unknown", Info, NEWER),
        },
        RecordBody::Source(change) => {
            let severity = if change.change() == SourceChange::Lost {
                Warn
            } else {
                Info
            };
            let body = format!("an audit source: {}", change_name(change.change()));
            named("credence.source", severity, body)
        }
        RecordBody::Note(note) => match &note.note {
            Some(Note::Mismatch(_)) => {
                let body = "a filter allowed a delegation that does not verify";
                named("credence.mismatch", Error, body)
            }
            Some(Note::Erasure(_)) => named("credence.erasure", Info, "a principal's evidence was erased"),
            Some(Note::Pruning(_)) => named("credence.pruning", Info, "the oldest evidence was removed"),
            None => named("credence.unknown", Info, NEWER),
        },
        RecordBody::Erased => named("credence.erased", Info, "erased"),
        RecordBody::Unreadable => {
            let body = "the ledger's disk does not have this record as it was written";
            named("credence.unreadable", Error, body)
        }
    }
}

fn named(name: &str, severity: SeverityNumber, body: impl Into<String>) -> LogRecord {
    LogRecord {
        event_name: name.to_owned(),
        severity_number: severity.into(),
        severity_text: severity.as_str_name().replace(SEVERITY, ""),
        body: Some(text(body.into())),
        ..Default::default()
    }
}

fn decision(event: &EventView<'_>) -> LogRecord {
    let decision = event.decision();
    let body = format!("{}: {}", decision_name(decision), event.reason);
    LogRecord {
        time_unix_nano: event.time_unix_nano,
        trace_id: trace_id(event.trace_id).unwrap_or_default(),
        ..named("credence.decision", severity(decision), body)
    }
}

fn count(aggregate: &AggregateView<'_>) -> LogRecord {
    let decision = aggregate.decision();
    let (name, count, reason) = (decision_name(decision), aggregate.count, aggregate.reason);
    let seconds = u64::try_from(aggregate.second).unwrap_or(0);
    LogRecord {
        time_unix_nano: seconds.saturating_mul(1_000_000_000),
        ..named(
            "credence.count",
            severity(decision),
            format!("{name}: {count} times {reason}"),
        )
    }
}

/// Attributes without a value are left out.
#[derive(Debug, Default)]
struct Attributes(Vec<KeyValue>);

// === impl Attributes ===

impl Attributes {
    fn of(record: &LedgerRecord) -> Self {
        // The tokens of a chain are credentials, and stay in the ledger.
        let is_chain = matches!(RecordKind::of(&record.body), RecordKind::Chain);
        let mut attributes = Self::default();
        for (name, value) in values(record) {
            let attribute = attribute(name);
            match value {
                FieldValue::Principal(principal) => attributes.principal(principal),
                _ if attribute.is_empty() || is_chain && name == "chain_digest" => {}
                // Older clients do not send it.
                FieldValue::Text(text) if name == "mode" && text == UNSPECIFIED => {
                    attributes.text(attribute, "enforce")
                }
                FieldValue::Text(text) if matches!(name, "proof" | "cache") && text == UNSPECIFIED => {}
                FieldValue::Text(text) if name == "authority" => attributes.server(&text),
                FieldValue::Text(text) => attributes.text(attribute, &text),
                FieldValue::Texts(texts) => attributes.texts(attribute, texts),
                FieldValue::Bytes(bytes) => attributes.text(attribute, &hex(&bytes)),
                FieldValue::Number(number) | FieldValue::Nanoseconds(number) => attributes.number(attribute, number),
                FieldValue::Seconds(seconds) => attributes.push(attribute, Value::IntValue(seconds)),
                FieldValue::Flag(flag) => attributes.push(attribute, Value::BoolValue(flag)),
            }
        }
        attributes
    }

    fn push(&mut self, key: &str, value: Value) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..Default::default()
        });
    }

    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.push(key, Value::StringValue(value.to_owned()));
        }
    }

    fn texts(&mut self, key: &str, values: Vec<&str>) {
        if !values.is_empty() {
            let values = values.into_iter().map(str::to_owned).map(text).collect();
            self.push(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    /// OTLP has signed integers only. A larger number becomes the largest one.
    fn number(&mut self, key: &str, value: u64) {
        self.push(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn principal(&mut self, principal: Option<PrincipalView<'_>>) {
        if let Some(principal) = principal {
            let subject = principal.subject.unwrap_or_default();
            self.text(attribute("principal_issuer"), principal.issuer);
            self.text(attribute("principal_subject"), subject);
        }
    }

    /// `host`, `host:port` or `[v6]:port`.
    fn server(&mut self, authority: &str) {
        let after_host = authority.rfind(']').unwrap_or(0);
        let colon = authority.rfind(':').filter(|colon| *colon >= after_host);
        let (host, port) = match colon.and_then(|colon| authority.split_at_checked(colon)) {
            Some((host, port)) => (host, port.trim_start_matches(':').parse::<u16>().ok()),
            None => (authority, None),
        };
        match port {
            Some(port) => {
                self.text("server.address", host.trim_matches(['[', ']']));
                self.push("server.port", Value::IntValue(port.into()));
            }
            None => self.text("server.address", authority.trim_matches(['[', ']'])),
        }
    }
}

fn text(text: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text)),
    }
}

/// 32 hexadecimal digits that are not all zero (W3C Trace Context section 3.2.2.3).
fn trace_id(text: &str) -> Option<Vec<u8>> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let number = u128::from_str_radix(text, 16).ok()?;
    (number != 0).then(|| number.to_be_bytes().to_vec())
}

/// The attribute of a field; empty if there is none.
fn attribute(name: &str) -> &'static str {
    let field = FIELDS.iter().find(|field| field.name == name);
    field.map_or("", |field| field.attribute)
}

fn severity(decision: v1::Decision) -> SeverityNumber {
    match decision {
        v1::Decision::Deny => SeverityNumber::Warn,
        v1::Decision::Allow | v1::Decision::Unspecified => SeverityNumber::Info,
    }
}

/// The prefix of the severities' names.
const SEVERITY: &str = "SEVERITY_NUMBER_";
const NEWER: &str = "written by a newer version";

#[cfg(test)]
mod tests {
    use credence_ledger::record::{StoredEntry, StoredNote, StoredSourceChange};
    use credence_wire::v1::entry::Entry;
    use prost::Message as _;

    use super::*;

    fn mapped(body: RecordBody) -> LogRecord {
        log_record(&LedgerRecord {
            index: 7,
            received_unix_nano: 9,
            source: "s".to_owned(),
            body,
        })
    }

    fn entry(entry: Entry) -> RecordBody {
        RecordBody::Entry(StoredEntry {
            sequence: 3,
            entry: v1::Entry { entry: Some(entry) }.encode_to_vec().into(),
            ..StoredEntry::default()
        })
    }

    fn given<'a>(record: &'a LogRecord, key: &str) -> Option<&'a Value> {
        let found = record.attributes.iter().find(|attribute| attribute.key == key)?;
        found.value.as_ref()?.value.as_ref()
    }

    #[test]
    fn severities_follow_what_happened() {
        let event = |decision: v1::Decision| {
            entry(Entry::Event(v1::Event {
                decision: decision.into(),
                ..Default::default()
            }))
        };
        let note = |note| RecordBody::Note(StoredNote { note: Some(note) });
        let lost = StoredSourceChange {
            change: SourceChange::Lost.into(),
            ..Default::default()
        };
        for (body, name, severity) in [
            (event(v1::Decision::Allow), "credence.decision", SeverityNumber::Info),
            (event(v1::Decision::Deny), "credence.decision", SeverityNumber::Warn),
            (
                entry(Entry::Aggregate(v1::Aggregate {
                    decision: v1::Decision::Deny.into(),
                    ..Default::default()
                })),
                "credence.count",
                SeverityNumber::Warn,
            ),
            (
                entry(Entry::Gap(v1::Gap::default())),
                "credence.gap",
                SeverityNumber::Warn,
            ),
            (RecordBody::Source(lost), "credence.source", SeverityNumber::Warn),
            (
                note(Note::Mismatch(Default::default())),
                "credence.mismatch",
                SeverityNumber::Error,
            ),
            (
                note(Note::Erasure(Default::default())),
                "credence.erasure",
                SeverityNumber::Info,
            ),
            (RecordBody::Erased, "credence.erased", SeverityNumber::Info),
            (RecordBody::Unreadable, "credence.unreadable", SeverityNumber::Error),
        ] {
            let record = mapped(body);
            assert_eq!(
                (record.event_name.as_str(), record.severity_number),
                (name, severity.into())
            );
            assert_eq!(record.observed_time_unix_nano, 9);
            assert_eq!(given(&record, "credence.ledger.index"), Some(&Value::IntValue(7)));
        }
    }

    #[test]
    fn no_token_leaves_the_ledger() {
        let record = mapped(entry(Entry::Chain(v1::PresentedChain {
            chain: b"eyJ-secret".to_vec(),
            principal: None,
        })));
        assert!(!format!("{record:?}").contains("eyJ-secret"));
    }

    #[test]
    fn an_authority_is_an_address_and_a_port() {
        for (authority, address, port) in [
            ("shop.example.com", "shop.example.com", None),
            ("shop.example.com:8443", "shop.example.com", Some(8443)),
            ("[2001:db8::1]:443", "2001:db8::1", Some(443)),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("host:name", "host:name", None),
        ] {
            let mut attributes = Attributes::default();
            attributes.server(authority);
            let record = LogRecord {
                attributes: attributes.0,
                ..Default::default()
            };
            let expected = Value::StringValue(address.to_owned());
            assert_eq!(given(&record, "server.address"), Some(&expected), "{authority}");
            assert_eq!(given(&record, "server.port"), port.map(Value::IntValue).as_ref());
        }
    }

    #[test]
    fn only_a_valid_trace_id_is_sent() {
        assert_eq!(trace_id(&"0a".repeat(16)), Some(vec![10; 16]));
        for text in ["", &"0".repeat(32), &"xy".repeat(16), "0a", &"é".repeat(16)] {
            assert_eq!(trace_id(text), None, "{text}");
        }
    }
}
