//! `GET /v1/audit/events`: the evidence, newest first.
//!
//! Parameters: `limit` (1 to 1,000; default 100), `before` (the `next` of the page before), and the conditions
//! `principal_issuer`, `principal_subject`, `delegation_id`, `tool`, `decision` (`allow` or `deny`). Answer:
//! `{"events": [...], "next": n}`; `next` is null at the ledger's beginning. With conditions a page may be short or even
//! empty and still have a `next`.
//!
//! Each event has `index`, `source`, `received`, `kind` and, unless it is about the source itself, `sequence`. Kinds:
//! `decision`; `aggregate` (denials before any signature verified, counted; found by `decision=deny` too); `gap`
//! (evidence that a filter had to shed); `source` (a source started, ended, was lost or returned). A credential that is
//! bound to issuers is shown the decisions about their principals and nothing else; to ask for others' is 403.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as UrlQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as EntryKind;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::{Api, Begun};
use crate::access::Caller;
use credence_ledger::query::{self, Filter, Page, Query};
use credence_ledger::record::{LedgerRecord, RecordBody, SourceChange, StoredSourceChange};

/// Handles the request.
pub(crate) async fn events(
    State(api): State<Arc<Api>>,
    Extension(begun): Extension<Begun>,
    Extension(caller): Extension<Arc<Caller>>,
    parameters: Result<UrlQuery<Parameters>, QueryRejection>,
) -> Result<Json<PageBody>, Problem> {
    let UrlQuery(parameters) = parameters.map_err(|_| bad_request(EXPECTED_PARAMETERS))?;
    check_scope(&parameters, &caller)?;
    let query = Query {
        issuers: caller.issuers().map(<[String]>::to_vec),
        ..parameters.into_query()?
    };
    begun.note();
    let failed = |error: &dyn std::fmt::Display| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the ledger can not be read: {error}"),
        )
    };
    let _place = api.query_places.acquire().await.map_err(|error| failed(&error))?;
    let reader = api.reader.clone();
    let page = tokio::task::spawn_blocking(move || query::read(&reader, &query))
        .await
        .map_err(|error| failed(&error))?
        .map_err(|error| {
            tracing::error!(%error, "the ledger can not be read");
            failed(&error)
        })?;
    Ok(Json(page.into()))
}

const EXPECTED_PARAMETERS: &str = "the query has, each at most once: limit (a number), before (a number), \
                                   principal_issuer, principal_subject, delegation_id, tool, and decision (allow or \
                                   deny)";

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    limit: Option<usize>,
    before: Option<u64>,
    principal_issuer: Option<String>,
    principal_subject: Option<String>,
    delegation_id: Option<String>,
    tool: Option<String>,
    decision: Option<DecisionName>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct PageBody {
    events: Vec<RecordView>,
    next: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DecisionName {
    Allow,
    Deny,
    #[serde(skip_deserializing)]
    Unspecified,
}

#[derive(Debug, Serialize)]
struct RecordView {
    index: u64,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    /// When the control plane made it durable, RFC 3339.
    received: String,
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
        count: u64,
        decision: DecisionName,
        mode: &'static str,
    },
    Gap {
        shed: u64,
        first_time: String,
        last_time: String,
        shed_counts: u64,
        shed_chains: u64,
    },
    Source(SourceView),
    /// A delegation as it was presented, for the control plane to verify again.
    Chain,
    /// What the control plane has to say of the ledger.
    Note,
    /// About a principal whose evidence was erased.
    Erased,
    /// Written by a newer version.
    Unknown,
}

#[derive(Debug, Serialize)]
struct DecisionView {
    time: String,
    decision: DecisionName,
    reason: String,
    rule: String,
    tool: String,
    mode: &'static str,
    principal: Option<PrincipalView>,
    agent: String,
    proof: &'static str,
    delegation_ids: Vec<String>,
    /// Lower-case hexadecimal.
    arguments_hash: String,
    method: String,
    authority: String,
    path_template: String,
    request_id: String,
    trace_id: String,
    cache: &'static str,
    decision_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_ms: Option<u64>,
    /// Seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<i64>,
    /// Lower-case hexadecimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    chain_digest: String,
    /// Their canonical text (RFC 8785).
    #[serde(skip_serializing_if = "String::is_empty")]
    arguments: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<u32>,
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
}

// === impl Parameters ===

impl Parameters {
    fn into_query(self) -> Result<Query, Problem> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(bad_request(format!("limit is {limit}; it must be 1 to {MAX_LIMIT}")));
        }
        let decision = self.decision.map(|decision| match decision {
            DecisionName::Allow => v1::Decision::Allow,
            DecisionName::Deny => v1::Decision::Deny,
            DecisionName::Unspecified => v1::Decision::Unspecified,
        });
        let filter = Filter {
            principal_issuer: self.principal_issuer,
            principal_subject: self.principal_subject,
            delegation_id: self.delegation_id,
            tool: self.tool,
            decision,
            ..Filter::default()
        };
        Ok(Query {
            before: self.before,
            limit,
            filter,
            issuers: None,
        })
    }
}

impl From<Page> for PageBody {
    fn from(page: Page) -> Self {
        Self {
            events: page.records.into_iter().map(RecordView::from).collect(),
            next: page.next,
        }
    }
}

impl From<LedgerRecord> for RecordView {
    fn from(record: LedgerRecord) -> Self {
        let (sequence, kind) = match record.body {
            RecordBody::Entry { sequence, entry } => (Some(sequence), KindView::from(entry)),
            RecordBody::Source(change) => (None, KindView::Source(change.into())),
            RecordBody::Note(_) => (None, KindView::Note),
            RecordBody::Erased => (None, KindView::Erased),
        };
        let received = nanoseconds(record.received_unix_nano);
        Self {
            index: record.index,
            source: record.source,
            sequence,
            received,
            kind,
        }
    }
}

impl From<v1::Entry> for KindView {
    fn from(entry: v1::Entry) -> Self {
        match entry.entry {
            Some(EntryKind::Event(event)) => Self::Decision(Box::new(event.into())),
            Some(EntryKind::Aggregate(aggregate)) => Self::Aggregate {
                time: rfc3339(aggregate.second, 0),
                // Clients of an older version, which count denials only, do not say.
                decision: match aggregate.decision() {
                    v1::Decision::Allow => DecisionName::Allow,
                    v1::Decision::Deny | v1::Decision::Unspecified => DecisionName::Deny,
                },
                mode: match aggregate.mode() {
                    v1::Mode::Shadow => "shadow",
                    v1::Mode::Enforce | v1::Mode::Unspecified => "enforce",
                },
                rule: aggregate.rule,
                reason: aggregate.reason,
                count: aggregate.count,
            },
            Some(EntryKind::Gap(gap)) => Self::Gap {
                shed: gap.shed,
                first_time: nanoseconds(gap.first_time_unix_nano),
                last_time: nanoseconds(gap.last_time_unix_nano),
                shed_counts: gap.shed_counts,
                shed_chains: gap.shed_chains,
            },
            Some(EntryKind::Chain(_)) => Self::Chain,
            None => Self::Unknown,
        }
    }
}

impl From<v1::Event> for DecisionView {
    fn from(event: v1::Event) -> Self {
        Self {
            time: nanoseconds(event.time_unix_nano),
            decision: match event.decision() {
                v1::Decision::Allow => DecisionName::Allow,
                v1::Decision::Deny => DecisionName::Deny,
                v1::Decision::Unspecified => DecisionName::Unspecified,
            },
            mode: match event.mode() {
                v1::Mode::Enforce => "enforce",
                v1::Mode::Shadow => "shadow",
                v1::Mode::Unspecified => "unspecified",
            },
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
            principal: event.principal.map(|principal| PrincipalView {
                issuer: principal.issuer,
                subject: principal.subject,
            }),
            agent: event.agent,
            delegation_ids: event.delegation_ids,
            arguments_hash: hex(&event.arguments_hash),
            method: event.method,
            authority: event.authority,
            path_template: event.path_template,
            request_id: event.request_id,
            trace_id: event.trace_id,
            decision_ns: event.decision_ns,
            stale_ms: event.stale_ms,
            expires_at: (event.expires_at != 0).then_some(event.expires_at),
            chain_digest: hex(&event.chain_digest),
            arguments: String::from_utf8_lossy(&event.arguments).into_owned(),
            response_status: (event.response_status != 0).then_some(event.response_status),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<StoredSourceChange> for SourceView {
    fn from(change: StoredSourceChange) -> Self {
        Self {
            change: match change.change() {
                SourceChange::Started => "started",
                SourceChange::Ended => "ended",
                SourceChange::Lost => "ended, tail unknown",
                SourceChange::Returned => "returned",
                SourceChange::Unspecified => "unspecified",
            },
            last_sequence: change.last_sequence,
            node: change.node,
            plugin: change.plugin,
            peer: change.peer,
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

/// To ask for another issuer's principals is refused, and not answered as if there were none.
fn check_scope(parameters: &Parameters, caller: &Caller) -> Result<(), Problem> {
    if parameters
        .principal_issuer
        .as_deref()
        .is_none_or(|issuer| caller.covers(issuer))
    {
        return Ok(());
    }
    let name = &caller.name;
    let detail = format!(
        "the credential {name:?} is bound to other issuers (access: issuers), and may not read about this one's principals"
    );
    Err(Problem::new(StatusCode::FORBIDDEN, detail).challenge("Bearer error=\"insufficient_scope\""))
}

fn bad_request(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
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
            ..Default::default()
        };
        let entry = v1::Entry {
            entry: Some(EntryKind::Event(event)),
        };
        let body = RecordBody::Entry { sequence: 4, entry };
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
        ] {
            assert_eq!(json[field], expected, "{json}");
        }
        assert_eq!((json["index"].as_u64(), json["sequence"].as_u64()), (Some(9), Some(4)));
    }
}
