//! A record as a list of named fields, for the API, the exports and OpenTelemetry.

use std::borrow::Cow;

use credence_wire::v1;

use crate::entry::{AggregateView, EntryKind, EventView, PrincipalView};
use crate::record::{LedgerRecord, Note, RecordBody, SourceChange, StoredEntry, StoredNote, StoredSourceChange};

/// A field that some kind of record has.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in exports. The API uses the same names, except that fields with the prefix `principal_` are members of
    /// `principal` there.
    pub name: &'static str,
    /// The type of its values.
    pub kind: FieldKind,
    /// Its OpenTelemetry attribute; empty if it has none.
    pub attribute: &'static str,
}

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A text. Bytes become hexadecimal digits.
    Text,
    /// A list of texts.
    Texts,
    /// An unsigned 64-bit number.
    Number,
    /// A number that fits a signed 32-bit integer.
    SmallNumber,
    /// True or false.
    Flag,
    /// An instant, in RFC 3339.
    Time,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// Several texts.
    Texts(Vec<&'a str>),
    /// Shown as lower-case hexadecimal digits.
    Bytes(Cow<'a, [u8]>),
    /// A number.
    Number(u64),
    /// True or false.
    Flag(bool),
    /// An instant in nanoseconds since the Unix epoch.
    Nanoseconds(u64),
    /// An instant in seconds since the Unix epoch.
    Seconds(i64),
    /// The principal whose authority was used, if any.
    Principal(Option<PrincipalView<'a>>),
}

/// Every field, in the order of exports.
pub const FIELDS: &[Field] = &[
    field("index", FieldKind::Number, "credence.ledger.index"),
    field("source", FieldKind::Text, "credence.source"),
    field("sequence", FieldKind::Number, "credence.sequence"),
    field("received", FieldKind::Time, ""),
    field("kind", FieldKind::Text, ""),
    field("time", FieldKind::Time, ""),
    field("decision", FieldKind::Text, "credence.decision"),
    field("reason", FieldKind::Text, "credence.reason"),
    field("mode", FieldKind::Text, "credence.mode"),
    field("rule", FieldKind::Text, "credence.rule"),
    field("tool", FieldKind::Text, "credence.tool"),
    field("principal_issuer", FieldKind::Text, "credence.principal.issuer"),
    field("principal_subject", FieldKind::Text, "credence.principal.subject"),
    field("agent", FieldKind::Text, "credence.agent"),
    field("proof", FieldKind::Text, "credence.proof"),
    field("client", FieldKind::Text, "credence.client"),
    field("actors", FieldKind::Texts, "credence.actors"),
    field("delegation_ids", FieldKind::Texts, "credence.delegation.ids"),
    field("chain_digest", FieldKind::Text, "credence.chain.digest"),
    field("expires_at", FieldKind::Time, "credence.delegation.expires_at"),
    field("arguments_hash", FieldKind::Text, "credence.arguments.hash"),
    field("arguments", FieldKind::Text, "credence.arguments"),
    field("method", FieldKind::Text, "http.request.method"),
    field("authority", FieldKind::Text, "server.address"),
    field("path_template", FieldKind::Text, "url.template"),
    field("mcp_method", FieldKind::Text, "mcp.method.name"),
    field("response_status", FieldKind::SmallNumber, "http.response.status_code"),
    field("request_id", FieldKind::Text, "credence.request_id"),
    field("trace_id", FieldKind::Text, ""),
    field("cache", FieldKind::Text, "credence.cache"),
    field("decision_ns", FieldKind::Number, "credence.decision.duration_ns"),
    field("stale_ms", FieldKind::Number, "credence.stale_ms"),
    field("count", FieldKind::Number, "credence.count"),
    field("shed", FieldKind::Number, "credence.gap.events"),
    field("shed_counts", FieldKind::Number, "credence.gap.counts"),
    field("shed_chains", FieldKind::Number, "credence.gap.chains"),
    field("first_time", FieldKind::Time, "credence.gap.first_time_unix_nano"),
    field("last_time", FieldKind::Time, "credence.gap.last_time_unix_nano"),
    field("change", FieldKind::Text, "credence.source.change"),
    field("last_sequence", FieldKind::Number, "credence.source.last_sequence"),
    field("node", FieldKind::Text, "credence.source.node"),
    field("plugin", FieldKind::Text, "credence.source.plugin"),
    field("peer", FieldKind::Text, "credence.source.peer"),
    field("ledger", FieldKind::Text, "credence.source.ledger"),
    field("anchors_digest", FieldKind::Text, ""),
    field("chain", FieldKind::Text, ""),
    field("note", FieldKind::Text, ""),
    field("key", FieldKind::Number, "credence.erasure.key"),
    field("by", FieldKind::Text, "credence.erasure.by"),
    field("first", FieldKind::Number, "credence.pruning.first"),
    field("tree_size", FieldKind::Number, ""),
    field("root", FieldKind::Text, ""),
    field("reported_by", FieldKind::Text, "credence.mismatch.source"),
    field("step", FieldKind::Text, "credence.mismatch.step"),
    field("other_anchors", FieldKind::Flag, "credence.mismatch.other_anchors"),
];

const fn field(name: &'static str, kind: FieldKind, attribute: &'static str) -> Field {
    Field { name, kind, attribute }
}

/// The values of a record, in the order in which the API shows them.
#[must_use]
pub fn values(record: &LedgerRecord) -> Vec<(&'static str, Value<'_>)> {
    let mut values = Values(Vec::with_capacity(32));
    values.push("index", Value::Number(record.index));
    values.text("source", &record.source);
    if let RecordBody::Entry(stored) = &record.body {
        values.push("sequence", Value::Number(stored.sequence));
    }
    if record.received_unix_nano > 0 {
        values.push("received", Value::Nanoseconds(record.received_unix_nano));
    }
    match &record.body {
        RecordBody::Entry(stored) => values.entry(stored),
        RecordBody::Source(change) => values.source(change),
        RecordBody::Note(note) => values.note(note),
        RecordBody::Erased => values.text("kind", "erased"),
        RecordBody::Unreadable => values.text("kind", "unreadable"),
    }
    values.0
}

struct Values<'a>(Vec<(&'static str, Value<'a>)>);

// === impl Values ===

impl<'a> Values<'a> {
    fn push(&mut self, name: &'static str, value: Value<'a>) {
        self.0.push((name, value));
    }

    fn text(&mut self, name: &'static str, text: &'a str) {
        self.push(name, Value::Text(text.into()));
    }

    fn bytes(&mut self, name: &'static str, bytes: &'a [u8]) {
        self.push(name, Value::Bytes(bytes.into()));
    }

    fn entry(&mut self, stored: &'a StoredEntry) {
        match stored.view().map(|view| view.kind) {
            Some(EntryKind::Event(event)) => self.decision(&event),
            Some(EntryKind::Aggregate(aggregate)) => self.aggregate(&aggregate),
            Some(EntryKind::Gap(gap)) => {
                self.text("kind", "gap");
                self.push("shed", Value::Number(gap.shed));
                self.push("shed_counts", Value::Number(gap.shed_counts));
                self.push("shed_chains", Value::Number(gap.shed_chains));
                self.push("first_time", Value::Nanoseconds(gap.first_time_unix_nano));
                self.push("last_time", Value::Nanoseconds(gap.last_time_unix_nano));
            }
            Some(EntryKind::Chain(chain)) => {
                let principal = Value::Principal(chain.principal);
                self.text("kind", "chain");
                if stored.known_chain.is_empty() {
                    self.push("chain_digest", Value::Bytes(chain.digest().to_vec().into()));
                    self.push("principal", principal);
                    self.push("chain", Value::Text(String::from_utf8_lossy(chain.chain)));
                } else {
                    self.bytes("chain_digest", &stored.known_chain);
                    self.push("principal", principal);
                }
            }
            // A newer version wrote it.
            None => self.text("kind", "unknown"),
        }
    }

    fn decision(&mut self, event: &EventView<'a>) {
        self.text("kind", "decision");
        self.push("time", Value::Nanoseconds(event.time_unix_nano));
        self.text("decision", decision_name(event.decision()));
        self.text("reason", event.reason);
        self.text("rule", event.rule);
        self.text("tool", event.tool);
        self.push("mode", mode(event.mode));
        self.push("principal", Value::Principal(event.principal));
        self.text("agent", event.agent);
        let proof = v1::ProofKind::try_from(event.proof).unwrap_or_default();
        self.push("proof", last_word(proof.as_str_name()));
        if !event.client.is_empty() {
            self.text("client", event.client);
        }
        if !event.actors().is_empty() {
            self.push("actors", Value::Texts(event.actors().to_vec()));
        }
        self.push("delegation_ids", Value::Texts(event.delegation_ids().to_vec()));
        if event.expires_at != 0 {
            self.push("expires_at", Value::Seconds(event.expires_at));
        }
        if !event.chain_digest.is_empty() {
            self.bytes("chain_digest", event.chain_digest);
        }
        self.bytes("arguments_hash", event.arguments_hash);
        if !event.arguments.is_empty() {
            // Kept as text: parsing and writing it again may change it.
            self.push("arguments", Value::Text(String::from_utf8_lossy(event.arguments)));
        }
        self.text("method", event.method);
        self.text("authority", event.authority);
        self.text("path_template", event.path_template);
        if !event.mcp_method.is_empty() {
            self.text("mcp_method", event.mcp_method);
        }
        if event.response_status != 0 {
            self.push("response_status", Value::Number(event.response_status.into()));
        }
        self.text("request_id", event.request_id);
        self.text("trace_id", event.trace_id);
        let cache = v1::CacheLevel::try_from(event.cache).unwrap_or_default();
        self.push("cache", last_word(cache.as_str_name()));
        self.push("decision_ns", Value::Number(event.decision_ns));
        if let Some(stale_ms) = event.stale_ms {
            self.push("stale_ms", Value::Number(stale_ms));
        }
    }

    fn aggregate(&mut self, aggregate: &AggregateView<'a>) {
        self.text("kind", "aggregate");
        self.push("time", Value::Seconds(aggregate.second));
        self.text("rule", aggregate.rule);
        self.text("reason", aggregate.reason);
        self.text("decision", decision_name(aggregate.decision()));
        self.push("mode", mode(aggregate.mode));
        self.push("count", Value::Number(aggregate.count));
        if aggregate.principal.is_some() {
            self.push("principal", Value::Principal(aggregate.principal));
        }
    }

    fn source(&mut self, change: &'a StoredSourceChange) {
        self.text("kind", "source");
        self.text("change", change_name(change.change()));
        self.push("last_sequence", Value::Number(change.last_sequence));
        let about = [
            ("node", &change.node),
            ("plugin", &change.plugin),
            ("peer", &change.peer),
            ("ledger", &change.ledger),
        ];
        for (name, text) in about.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.text(name, text);
        }
        if !change.anchors_digest.is_empty() {
            self.bytes("anchors_digest", &change.anchors_digest);
        }
    }

    fn note(&mut self, note: &'a StoredNote) {
        self.text("kind", "note");
        match &note.note {
            Some(Note::Erasure(erasure)) => {
                self.text("note", "erasure");
                self.push("key", Value::Number(erasure.key));
                self.text("by", &erasure.by);
                self.text("reason", &erasure.reason);
            }
            Some(Note::Pruning(pruning)) => {
                self.text("note", "pruning");
                self.push("first", Value::Number(pruning.first));
                self.push("tree_size", Value::Number(pruning.tree_size));
                self.bytes("root", &pruning.root);
            }
            Some(Note::Mismatch(mismatch)) => {
                self.text("note", "mismatch");
                self.text("reported_by", &mismatch.source);
                self.bytes("chain_digest", &mismatch.chain_digest);
                self.text("step", &mismatch.step);
                self.text("reason", &mismatch.reason);
                self.push("other_anchors", Value::Flag(mismatch.other_anchors));
            }
            // A newer version wrote it.
            None => self.text("note", "unknown"),
        }
    }
}

/// A decision's name.
#[must_use]
pub fn decision_name(decision: v1::Decision) -> &'static str {
    match decision {
        v1::Decision::Allow => "allow",
        v1::Decision::Deny => "deny",
        v1::Decision::Unspecified => UNSPECIFIED,
    }
}

/// The name of a source's change.
#[must_use]
pub fn change_name(change: SourceChange) -> &'static str {
    match change {
        SourceChange::Started => "started",
        SourceChange::Ended => "ended",
        SourceChange::Lost => "ended, tail unknown",
        SourceChange::Returned => "returned",
        SourceChange::Arrived => "arrived from another replica",
        SourceChange::Moved => "moved to another replica",
        SourceChange::Unspecified => UNSPECIFIED,
    }
}

fn mode(mode: i32) -> Value<'static> {
    last_word(v1::Mode::try_from(mode).unwrap_or_default().as_str_name())
}

/// The last word of an enum value's name in the contract, in lower case: `l1` of `CACHE_LEVEL_L1`.
fn last_word(name: &'static str) -> Value<'static> {
    let word = name.rsplit('_').next().unwrap_or(name);
    Value::Text(word.to_ascii_lowercase().into())
}

/// The value if the reporter set none.
pub const UNSPECIFIED: &str = "unspecified";

#[cfg(test)]
mod tests {
    use credence_wire::v1::entry::Entry as Kind;
    use prost::Message as _;

    use super::*;
    use crate::record::{Erasure, Mismatch, Pruning};

    fn records() -> Vec<LedgerRecord> {
        let principal = || {
            Some(v1::Principal {
                issuer: "i".to_owned(),
                subject: None,
            })
        };
        let entry = |entry| {
            RecordBody::Entry(StoredEntry {
                sequence: 4,
                entry: v1::Entry { entry: Some(entry) }.encode_to_vec().into(),
                ..StoredEntry::default()
            })
        };
        let event = v1::Event {
            expires_at: 1,
            chain_digest: vec![1; 32],
            arguments: vec![b'x'],
            response_status: 200,
            mcp_method: "tools/call".to_owned(),
            client: "shop".to_owned(),
            actors: vec!["planner".to_owned()],
            stale_ms: Some(1),
            principal: principal(),
            ..v1::Event::default()
        };
        let aggregate = v1::Aggregate {
            principal: principal(),
            ..v1::Aggregate::default()
        };
        let source = StoredSourceChange {
            node: "n".to_owned(),
            plugin: "p".to_owned(),
            peer: "a".to_owned(),
            anchors_digest: vec![1],
            ledger: "l".to_owned(),
            ..StoredSourceChange::default()
        };
        let note = |note| RecordBody::Note(StoredNote { note: Some(note) });
        let bodies = [
            entry(Kind::Event(event)),
            entry(Kind::Aggregate(aggregate)),
            entry(Kind::Gap(v1::Gap::default())),
            entry(Kind::Chain(v1::PresentedChain::default())),
            RecordBody::Source(source),
            note(Note::Erasure(Erasure::default())),
            note(Note::Pruning(Pruning::default())),
            note(Note::Mismatch(Mismatch::default())),
        ];
        let record = |body| LedgerRecord {
            index: 9,
            received_unix_nano: 1,
            source: "s".to_owned(),
            body,
        };
        bodies.map(record).to_vec()
    }

    #[test]
    fn every_value_is_of_a_listed_field_of_its_type_and_every_field_has_values() {
        let mut unseen: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        for record in &records() {
            for (name, value) in values(record) {
                if let Value::Principal(_) = value {
                    unseen.retain(|other| !other.starts_with("principal_"));
                    continue;
                }
                let field = FIELDS.iter().find(|field| field.name == name);
                let kind = field.unwrap_or_else(|| panic!("{name} is not listed")).kind;
                let fits = match value {
                    Value::Text(_) | Value::Bytes(_) => kind == FieldKind::Text,
                    Value::Texts(_) => kind == FieldKind::Texts,
                    Value::Number(_) => matches!(kind, FieldKind::Number | FieldKind::SmallNumber),
                    Value::Flag(_) => kind == FieldKind::Flag,
                    Value::Nanoseconds(_) | Value::Seconds(_) => kind == FieldKind::Time,
                    Value::Principal(_) => false,
                };
                assert!(fits, "{name}: {kind:?}");
                unseen.retain(|other| *other != name);
            }
        }
        assert_eq!(unseen, Vec::<&str>::new());
    }
}
