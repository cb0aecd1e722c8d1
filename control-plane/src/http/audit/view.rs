//! A record of the ledger in JSON.

use credence_ledger::query::chain_digest;
use credence_ledger::record::{LedgerRecord, Note, RecordBody, StoredNote, StoredSourceChange};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as EntryKind;
use serde::Serialize;

use credence_evidence::{change_name, decision_name};
use credence_runtime::text::hex;

/// A record, to be written.
#[derive(Debug, Serialize)]
pub(crate) struct RecordView {
    index: u64,
    /// Empty if the control plane itself has it to say.
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    /// When the control plane made it durable; absent if that can not be read any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<String>,
    #[serde(flatten)]
    kind: KindView,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum KindView {
    Decision(Box<DecisionView>),
    Aggregate {
        time: String,
        rule: String,
        reason: String,
        decision: &'static str,
        mode: &'static str,
        count: u64,
        /// Whose decisions they are, if the ledger counted them because the principal holds more than its share.
        #[serde(skip_serializing_if = "Option::is_none")]
        principal: Option<PrincipalView>,
    },
    Gap {
        shed: u64,
        shed_counts: u64,
        shed_chains: u64,
        first_time: String,
        last_time: String,
    },
    Source(SourceView),
    /// A delegation as it was presented, for the control plane to verify again.
    Chain {
        chain_digest: String,
        principal: Option<PrincipalView>,
        /// The tokens, root first, joined by `~`; absent if another record has them, which is found by the digest.
        #[serde(skip_serializing_if = "Option::is_none")]
        chain: Option<String>,
    },
    /// What the control plane has to say of the ledger.
    Note(NoteView),
    /// About a principal whose evidence was erased.
    Erased,
    /// The disk does not have it any more as it was written.
    Unreadable,
    /// Written by a newer version.
    Unknown,
}

#[derive(Debug, Serialize)]
#[serde(tag = "note", rename_all = "lowercase")]
enum NoteView {
    Erasure {
        key: u64,
        by: String,
        reason: String,
    },
    Pruning {
        first: u64,
        tree_size: u64,
        root: String,
    },
    Mismatch {
        reported_by: String,
        chain_digest: String,
        step: String,
        reason: String,
        other_anchors: bool,
    },
    /// Written by a newer version.
    Unknown,
}

#[derive(Debug, Serialize)]
struct DecisionView {
    time: String,
    decision: &'static str,
    reason: String,
    rule: String,
    tool: String,
    mode: &'static str,
    principal: Option<PrincipalView>,
    agent: String,
    proof: &'static str,
    delegation_ids: Vec<String>,
    /// When the chain expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// Bytes here and below are in lower-case hexadecimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    chain_digest: String,
    arguments_hash: String,
    /// The canonical text, as a text: to parse it and write it again may change it.
    #[serde(skip_serializing_if = "String::is_empty")]
    arguments: String,
    method: String,
    authority: String,
    path_template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<u32>,
    request_id: String,
    trace_id: String,
    cache: &'static str,
    decision_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct PrincipalView {
    issuer: String,
    subject: Option<String>,
}

#[derive(Debug, Serialize)]
struct SourceView {
    change: &'static str,
    last_sequence: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    plugin: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    peer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    anchors_digest: String,
}

impl From<LedgerRecord> for RecordView {
    fn from(record: LedgerRecord) -> Self {
        let (sequence, kind) = match record.body {
            RecordBody::Entry {
                sequence,
                entry,
                known_chain,
            } => (Some(sequence), KindView::of(entry, &known_chain)),
            RecordBody::Source(change) => (None, KindView::Source(change.into())),
            RecordBody::Note(note) => (None, KindView::Note(note.into())),
            RecordBody::Erased => (None, KindView::Erased),
            RecordBody::Unreadable => (None, KindView::Unreadable),
        };
        Self {
            index: record.index,
            source: record.source,
            sequence,
            received: (record.received_unix_nano > 0).then(|| nanoseconds(record.received_unix_nano)),
            kind,
        }
    }
}

// === impl KindView ===

impl KindView {
    /// `known_chain` is the digest of a chain that the entry is about without having it.
    fn of(entry: v1::Entry, known_chain: &[u8]) -> Self {
        match entry.entry {
            Some(EntryKind::Event(event)) => Self::Decision(Box::new(event.into())),
            Some(EntryKind::Aggregate(aggregate)) => Self::Aggregate {
                time: rfc3339(aggregate.second, 0),
                // Clients of an older version count denials only, and do not say so.
                decision: match aggregate.decision() {
                    v1::Decision::Unspecified => "deny",
                    said => decision_name(said),
                },
                mode: match aggregate.mode() {
                    v1::Mode::Unspecified => "enforce",
                    said => mode_name(said),
                },
                rule: aggregate.rule,
                reason: aggregate.reason,
                count: aggregate.count,
                principal: aggregate.principal.map(PrincipalView::from),
            },
            Some(EntryKind::Gap(gap)) => Self::Gap {
                shed: gap.shed,
                shed_counts: gap.shed_counts,
                shed_chains: gap.shed_chains,
                first_time: nanoseconds(gap.first_time_unix_nano),
                last_time: nanoseconds(gap.last_time_unix_nano),
            },
            Some(EntryKind::Chain(chain)) if known_chain.is_empty() => Self::Chain {
                chain_digest: hex(&chain_digest(&chain.chain)),
                principal: chain.principal.map(PrincipalView::from),
                chain: Some(String::from_utf8_lossy(&chain.chain).into_owned()),
            },
            Some(EntryKind::Chain(chain)) => Self::Chain {
                chain_digest: hex(known_chain),
                principal: chain.principal.map(PrincipalView::from),
                chain: None,
            },
            None => Self::Unknown,
        }
    }
}

impl From<StoredNote> for NoteView {
    fn from(note: StoredNote) -> Self {
        match note.note {
            Some(Note::Erasure(erasure)) => Self::Erasure {
                key: erasure.key,
                by: erasure.by,
                reason: erasure.reason,
            },
            Some(Note::Pruning(pruning)) => Self::Pruning {
                first: pruning.first,
                tree_size: pruning.tree_size,
                root: hex(&pruning.root),
            },
            Some(Note::Mismatch(mismatch)) => Self::Mismatch {
                reported_by: mismatch.source,
                chain_digest: hex(&mismatch.chain_digest),
                step: mismatch.step,
                reason: mismatch.reason,
                other_anchors: mismatch.other_anchors,
            },
            None => Self::Unknown,
        }
    }
}

impl From<v1::Principal> for PrincipalView {
    fn from(principal: v1::Principal) -> Self {
        Self {
            issuer: principal.issuer,
            subject: principal.subject,
        }
    }
}

impl From<v1::Event> for DecisionView {
    fn from(event: v1::Event) -> Self {
        Self {
            time: nanoseconds(event.time_unix_nano),
            decision: decision_name(event.decision()),
            mode: mode_name(event.mode()),
            proof: match event.proof() {
                v1::ProofKind::None => "none",
                v1::ProofKind::Pop => "pop",
                v1::ProofKind::Mtls => "mtls",
                v1::ProofKind::Unspecified => "unspecified",
            },
            cache: match event.cache() {
                v1::CacheLevel::None => "none",
                v1::CacheLevel::L1 => "l1",
                v1::CacheLevel::L2 => "l2",
                v1::CacheLevel::Unspecified => "unspecified",
            },
            reason: event.reason,
            rule: event.rule,
            tool: event.tool,
            principal: event.principal.map(PrincipalView::from),
            agent: event.agent,
            delegation_ids: event.delegation_ids,
            expires_at: (event.expires_at != 0).then(|| rfc3339(event.expires_at, 0)),
            chain_digest: hex(&event.chain_digest),
            arguments_hash: hex(&event.arguments_hash),
            arguments: String::from_utf8_lossy(&event.arguments).into_owned(),
            method: event.method,
            authority: event.authority,
            path_template: event.path_template,
            response_status: (event.response_status != 0).then_some(event.response_status),
            request_id: event.request_id,
            trace_id: event.trace_id,
            decision_ns: event.decision_ns,
            stale_ms: event.stale_ms,
        }
    }
}

impl From<StoredSourceChange> for SourceView {
    fn from(change: StoredSourceChange) -> Self {
        Self {
            change: change_name(change.change()),
            last_sequence: change.last_sequence,
            node: change.node,
            plugin: change.plugin,
            peer: change.peer,
            anchors_digest: hex(&change.anchors_digest),
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

fn mode_name(mode: v1::Mode) -> &'static str {
    match mode {
        v1::Mode::Enforce => "enforce",
        v1::Mode::Shadow => "shadow",
        v1::Mode::Unspecified => "unspecified",
    }
}

/// 9999-12-31T23:59:59Z, the last that RFC 3339 can write.
const LATEST_SECOND: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
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
            chain_digest: vec![0xcd],
            arguments: b"{\"a\":1}".to_vec(),
            response_status: 404,
            expires_at: 1_800_000_000,
            ..Default::default()
        };
        let entry = v1::Entry {
            entry: Some(EntryKind::Event(event)),
        };
        let body = RecordBody::Entry {
            sequence: 4,
            entry,
            known_chain: Vec::new(),
        };
        let record = LedgerRecord {
            index: 9,
            received_unix_nano: 0,
            source: "s".to_owned(),
            body,
        };
        let json = serde_json::to_value(RecordView::from(record)).unwrap();
        for (field, expected) in [
            ("kind", "decision"),
            ("decision", "deny"),
            ("mode", "shadow"),
            ("proof", "pop"),
            ("cache", "l1"),
            ("arguments_hash", "ab01"),
            ("chain_digest", "cd"),
            ("arguments", "{\"a\":1}"),
            ("expires_at", "2027-01-15T08:00:00Z"),
        ] {
            assert_eq!(json[field], expected, "{json}");
        }
        assert_eq!(json["response_status"], 404);
        assert!(json.get("received").is_none(), "{json}");
        assert_eq!((json["index"].as_u64(), json["sequence"].as_u64()), (Some(9), Some(4)));
    }
}
