//! What a record of the ledger says in OpenTelemetry's words: the log data model, and the semantic conventions where they
//! have a name. docs/otlp.md has the table.

use credence_ledger::record::{LedgerRecord, Note, RecordBody, SourceChange, StoredNote, StoredSourceChange};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as EntryKind;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::names::{change_name, decision_name};
use credence_runtime::text::hex;

/// Who says so: the same in every request.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The log's id, which tells one control plane's ledger from another's.
    pub(crate) instance: String,
}

// === impl Origin ===

impl Origin {
    pub(crate) fn logs(&self, log_records: Vec<LogRecord>) -> ResourceLogs {
        let mut attributes = Attributes::default();
        attributes.text("service.name", "credence");
        attributes.text("service.version", env!("CARGO_PKG_VERSION"));
        attributes.text("service.instance.id", &self.instance);
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
}

/// The record as a log record. Every record has one, so that whoever counts `credence.ledger.index` finds no hole.
pub(crate) fn log_record(record: LedgerRecord) -> LogRecord {
    let mut attributes = Attributes::default();
    attributes.number("credence.ledger.index", record.index);
    attributes.text("credence.source", &record.source);
    let mut said = match record.body {
        RecordBody::Entry { sequence, entry, .. } => {
            attributes.number("credence.sequence", sequence);
            match entry.entry {
                Some(EntryKind::Event(event)) => decision(event, &mut attributes),
                Some(EntryKind::Aggregate(aggregate)) => count(aggregate, &mut attributes),
                Some(EntryKind::Gap(gap)) => shed(&gap, &mut attributes),
                Some(EntryKind::Chain(chain)) => {
                    // Its tokens are worth something to whoever has them: they stay in the ledger.
                    attributes.principal(chain.principal);
                    Said::new("credence.chain", SeverityNumber::Debug, "a delegation was presented")
                }
                None => Said::new("credence.unknown", SeverityNumber::Info, "written by a newer version"),
            }
        }
        RecordBody::Source(change) => source(change, &mut attributes),
        RecordBody::Note(note) => noted(note, &mut attributes),
        RecordBody::Erased => Said::new("credence.erased", SeverityNumber::Info, "erased"),
        RecordBody::Unreadable => Said::new(
            "credence.unreadable",
            SeverityNumber::Error,
            "the ledger's disk does not have this record as it was written",
        ),
    };
    if said.time_unix_nano == 0 {
        said.time_unix_nano = record.received_unix_nano;
    }
    LogRecord {
        time_unix_nano: said.time_unix_nano,
        observed_time_unix_nano: record.received_unix_nano,
        severity_number: said.severity.into(),
        severity_text: severity_text(said.severity).to_owned(),
        body: Some(text(said.body)),
        attributes: attributes.0,
        trace_id: said.trace_id,
        event_name: said.name.to_owned(),
        ..Default::default()
    }
}

/// What is not an attribute.
struct Said {
    name: &'static str,
    severity: SeverityNumber,
    body: String,
    /// 0 if it is when the record was received.
    time_unix_nano: u64,
    trace_id: Vec<u8>,
}

// === impl Said ===

impl Said {
    fn new(name: &'static str, severity: SeverityNumber, body: impl Into<String>) -> Self {
        Self {
            name,
            severity,
            body: body.into(),
            time_unix_nano: 0,
            trace_id: Vec::new(),
        }
    }
}

fn decision(event: v1::Event, attributes: &mut Attributes) -> Said {
    let decision = event.decision();
    attributes.text("credence.decision", decision_name(decision));
    attributes.text("credence.reason", &event.reason);
    attributes.text("credence.mode", mode_name(event.mode()));
    attributes.text("credence.rule", &event.rule);
    attributes.text("credence.tool", &event.tool);
    attributes.text("credence.agent", &event.agent);
    let proof = match event.proof() {
        v1::ProofKind::None => "none",
        v1::ProofKind::Pop => "pop",
        v1::ProofKind::Mtls => "mtls",
        v1::ProofKind::Unspecified => "",
    };
    attributes.text("credence.proof", proof);
    let cache = match event.cache() {
        v1::CacheLevel::None => "none",
        v1::CacheLevel::L1 => "l1",
        v1::CacheLevel::L2 => "l2",
        v1::CacheLevel::Unspecified => "",
    };
    attributes.text("credence.cache", cache);
    attributes.number("credence.decision.duration_ns", event.decision_ns);
    attributes.texts("credence.delegation.ids", &event.delegation_ids);
    attributes.text("credence.chain.digest", &hex(&event.chain_digest));
    if event.expires_at != 0 {
        attributes.integer("credence.delegation.expires_at", event.expires_at);
    }
    if let Some(stale_ms) = event.stale_ms {
        attributes.number("credence.stale_ms", stale_ms);
    }
    attributes.text("credence.arguments.hash", &hex(&event.arguments_hash));
    // They are there only if the filter was told to record them.
    attributes.text("credence.arguments", &String::from_utf8_lossy(&event.arguments));
    attributes.text("http.request.method", &event.method);
    attributes.text("url.template", &event.path_template);
    attributes.server(&event.authority);
    if event.response_status != 0 {
        attributes.integer("http.response.status_code", event.response_status.into());
    }
    attributes.text("credence.request_id", &event.request_id);
    attributes.principal(event.principal);
    let severity = match decision {
        v1::Decision::Deny => SeverityNumber::Warn,
        v1::Decision::Allow | v1::Decision::Unspecified => SeverityNumber::Info,
    };
    Said {
        time_unix_nano: event.time_unix_nano,
        trace_id: trace_id(&event.trace_id).unwrap_or_default(),
        ..Said::new(
            "credence.decision",
            severity,
            format!("{}: {}", decision_name(decision), event.reason),
        )
    }
}

fn count(aggregate: v1::Aggregate, attributes: &mut Attributes) -> Said {
    // Clients of an older version, which count denials only, do not say.
    let decision = match aggregate.decision() {
        v1::Decision::Allow => v1::Decision::Allow,
        v1::Decision::Deny | v1::Decision::Unspecified => v1::Decision::Deny,
    };
    attributes.text("credence.decision", decision_name(decision));
    attributes.text("credence.reason", &aggregate.reason);
    attributes.text("credence.mode", mode_name(aggregate.mode()));
    attributes.text("credence.rule", &aggregate.rule);
    attributes.number("credence.count", aggregate.count);
    attributes.principal(aggregate.principal);
    let severity = match decision {
        v1::Decision::Deny => SeverityNumber::Warn,
        v1::Decision::Allow | v1::Decision::Unspecified => SeverityNumber::Info,
    };
    Said {
        time_unix_nano: u64::try_from(aggregate.second)
            .unwrap_or(0)
            .saturating_mul(1_000_000_000),
        ..Said::new(
            "credence.count",
            severity,
            format!(
                "{}: {} times {}",
                decision_name(decision),
                aggregate.count,
                aggregate.reason
            ),
        )
    }
}

fn shed(gap: &v1::Gap, attributes: &mut Attributes) -> Said {
    attributes.number("credence.gap.events", gap.shed);
    attributes.number("credence.gap.counts", gap.shed_counts);
    attributes.number("credence.gap.chains", gap.shed_chains);
    attributes.number("credence.gap.first_time_unix_nano", gap.first_time_unix_nano);
    attributes.number("credence.gap.last_time_unix_nano", gap.last_time_unix_nano);
    Said {
        time_unix_nano: gap.first_time_unix_nano,
        ..Said::new(
            "credence.gap",
            SeverityNumber::Warn,
            format!("{} events were shed", gap.shed),
        )
    }
}

fn source(change: StoredSourceChange, attributes: &mut Attributes) -> Said {
    let name = change_name(change.change());
    let severity = match change.change() {
        SourceChange::Lost => SeverityNumber::Warn,
        _ => SeverityNumber::Info,
    };
    attributes.text("credence.source.change", name);
    attributes.number("credence.source.last_sequence", change.last_sequence);
    attributes.text("credence.source.node", &change.node);
    attributes.text("credence.source.plugin", &change.plugin);
    attributes.text("credence.source.peer", &change.peer);
    Said::new("credence.source", severity, format!("an audit source: {name}"))
}

fn noted(note: StoredNote, attributes: &mut Attributes) -> Said {
    match note.note {
        Some(Note::Mismatch(mismatch)) => {
            attributes.text("credence.mismatch.source", &mismatch.source);
            attributes.text("credence.chain.digest", &hex(&mismatch.chain_digest));
            attributes.text("credence.mismatch.step", &mismatch.step);
            attributes.text("credence.reason", &mismatch.reason);
            attributes.flag("credence.mismatch.other_anchors", mismatch.other_anchors);
            let body = "a filter allowed a delegation that does not verify";
            Said::new("credence.mismatch", SeverityNumber::Error, body)
        }
        Some(Note::Erasure(erasure)) => {
            attributes.number("credence.erasure.key", erasure.key);
            attributes.text("credence.erasure.by", &erasure.by);
            attributes.text("credence.reason", &erasure.reason);
            Said::new(
                "credence.erasure",
                SeverityNumber::Info,
                "a principal's evidence was erased",
            )
        }
        Some(Note::Pruning(pruning)) => {
            attributes.number("credence.pruning.first", pruning.first);
            Said::new(
                "credence.pruning",
                SeverityNumber::Info,
                "the oldest evidence was removed",
            )
        }
        None => Said::new("credence.unknown", SeverityNumber::Info, "written by a newer version"),
    }
}

/// What is empty is left out.
#[derive(Debug, Default)]
struct Attributes(Vec<KeyValue>);

// === impl Attributes ===

impl Attributes {
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

    fn texts(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            let values = values.iter().cloned().map(text).collect();
            self.push(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    fn integer(&mut self, key: &str, value: i64) {
        self.push(key, Value::IntValue(value));
    }

    /// OTLP has signed integers only; what does not fit is the largest.
    fn number(&mut self, key: &str, value: u64) {
        self.integer(key, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.push(key, Value::BoolValue(value));
    }

    fn principal(&mut self, principal: Option<v1::Principal>) {
        if let Some(principal) = principal {
            self.text("credence.principal.issuer", &principal.issuer);
            self.text(
                "credence.principal.subject",
                principal.subject.as_deref().unwrap_or_default(),
            );
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
                self.integer("server.port", port.into());
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

/// Of 32 hexadecimal digits that are not all zero (W3C Trace Context section 3.2.2.3).
fn trace_id(text: &str) -> Option<Vec<u8>> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let number = u128::from_str_radix(text, 16).ok()?;
    (number != 0).then(|| number.to_be_bytes().to_vec())
}

fn mode_name(mode: v1::Mode) -> &'static str {
    match mode {
        v1::Mode::Shadow => "shadow",
        v1::Mode::Enforce | v1::Mode::Unspecified => "enforce",
    }
}

fn severity_text(severity: SeverityNumber) -> &'static str {
    match severity {
        SeverityNumber::Debug => "DEBUG",
        SeverityNumber::Warn => "WARN",
        SeverityNumber::Error => "ERROR",
        _ => "INFO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(body: RecordBody) -> LogRecord {
        log_record(LedgerRecord {
            index: 7,
            received_unix_nano: 9,
            source: "s".to_owned(),
            body,
        })
    }

    fn entry(entry: EntryKind) -> RecordBody {
        RecordBody::Entry {
            sequence: 3,
            entry: v1::Entry { entry: Some(entry) },
            known_chain: Vec::new(),
        }
    }

    fn attribute<'a>(record: &'a LogRecord, key: &str) -> Option<&'a Value> {
        let found = record.attributes.iter().find(|attribute| attribute.key == key)?;
        found.value.as_ref()?.value.as_ref()
    }

    #[test]
    fn severities_follow_what_happened() {
        let event = |decision: v1::Decision| {
            entry(EntryKind::Event(v1::Event {
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
                entry(EntryKind::Aggregate(v1::Aggregate::default())),
                "credence.count",
                SeverityNumber::Warn,
            ),
            (
                entry(EntryKind::Gap(v1::Gap::default())),
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
            assert_eq!(attribute(&record, "credence.ledger.index"), Some(&Value::IntValue(7)));
        }
    }

    #[test]
    fn no_token_leaves_the_ledger() {
        let record = mapped(entry(EntryKind::Chain(v1::PresentedChain {
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
            assert_eq!(attribute(&record, "server.address"), Some(&expected), "{authority}");
            assert_eq!(attribute(&record, "server.port"), port.map(Value::IntValue).as_ref());
        }
    }

    #[test]
    fn only_a_trace_id_that_is_one_is_given() {
        assert_eq!(trace_id(&"0a".repeat(16)), Some(vec![10; 16]));
        for text in ["", &"0".repeat(32), &"xy".repeat(16), "0a", &"é".repeat(16)] {
            assert_eq!(trace_id(text), None, "{text}");
        }
    }
}
