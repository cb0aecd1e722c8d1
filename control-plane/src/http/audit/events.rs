//! `GET /v1/audit/events`: the evidence, newest first; and `GET /v1/audit/events/{index}`: one record.
//!
//! A credential that is bound to issuers sees only records of their principals. A query for others gets 403.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use credence_ledger::query;
use credence_ledger::{Filter, LedgerReader, Query, ReadError, RecordKind};
use serde::Serialize;

use super::super::api::Api;
use super::super::problem::Problem;
use super::super::query::{once, whole};
use super::conditions::Asked;
use super::view::RecordView;
use credence_runtime::caller::Caller;
use credence_runtime::client_limits::Client;

/// Answers a query.
pub(crate) async fn events(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(client): Extension<Client>,
    RawQuery(text): RawQuery,
) -> Result<Json<PageBody>, Problem> {
    let asked = Asked::read(text.as_deref())?;
    asked.check_scope(&caller)?;
    let query = question(asked, &caller)?;
    let page = reading(&api, &client, move |reader| {
        // Counted from here, so that waiting for other queries does not lead to an empty page.
        let deadline = Some(Instant::now() + LONGEST_LOOK);
        query::read(reader, &Query { deadline, ..query })
    })
    .await?;
    Ok(Json(PageBody {
        events: page.records.into_iter().map(RecordView).collect(),
        next: page.next,
    }))
}

/// Returns one record.
pub(crate) async fn event(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(client): Extension<Client>,
    Path(index): Path<String>,
    RawQuery(text): RawQuery,
) -> Result<Json<RecordView>, Problem> {
    let index: u64 = whole("the index", &index)?;
    if !Asked::read(text.as_deref())?.is_empty() {
        return Err(Problem::bad_request(
            "one record is read by its index alone: leave out the query",
        ));
    }
    let issuers = caller.issuers.clone();
    let record = reading(&api, &client, move |reader| {
        let record = reader.held_records(index..index.saturating_add(1))?.pop();
        Ok(record.filter(|record| {
            let kind = Some(RecordKind::of(&record.body));
            let filter = Filter {
                kind,
                ..Filter::default()
            };
            let query = Query {
                issuers,
                filter,
                ..Query::default()
            };
            query.admits(record)
        }))
    })
    .await?;
    let missing = || {
        let detail = format!(
            "there is no record {index} that this credential may read: it is not written yet, was removed, or is about \
             another issuer's principal"
        );
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    record.map(|record| Json(RecordView(record))).ok_or_else(missing)
}

/// A page.
#[derive(Debug, Serialize)]
pub(crate) struct PageBody {
    events: Vec<RecordView>,
    next: Option<u64>,
}

/// Reads the ledger on a thread that may block, when it is the client's turn.
pub(super) async fn reading<T: Send + 'static>(
    api: &Api,
    client: &Client,
    read: impl FnOnce(&LedgerReader) -> Result<T, ReadError> + Send + 'static,
) -> Result<T, Problem> {
    check_readable(api)?;
    let _turn = api.query_turns.take(client, 1).await;
    let reader = api.reader.clone();
    let answer = tokio::task::spawn_blocking(move || read(&reader)).await;
    let unreadable = i64::try_from(api.reader.unreadable()).unwrap_or(i64::MAX);
    if api.metrics.evidence.ledger_unreadable.set(unreadable) < unreadable {
        tracing::error!(
            unreadable,
            "records of the ledger cannot be read: check the disk, and restore the segments from a backup; `credence \
             audit verify --data` names them"
        );
    }
    answer
        .map_err(Problem::unreadable_ledger)?
        .map_err(Problem::unreadable_ledger)
}

/// A ledger that could not be opened has unknown contents; it is not empty.
pub(super) fn check_readable(api: &Api) -> Result<(), Problem> {
    match api.reader.records(0..0) {
        Ok(_) => Ok(()),
        Err(damage) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, damage.to_string())),
    }
}

fn question(asked: Asked, caller: &Caller) -> Result<Query, Problem> {
    let (mut limit, mut before) = (None, None);
    for (name, value) in asked.rest {
        match name.as_str() {
            "limit" => once(&mut limit, &name, whole(&name, &value)?)?,
            "before" => once(&mut before, &name, whole(&name, &value)?)?,
            _ => return Err(Problem::bad_request(EXPECTED_PARAMETERS)),
        }
    }
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(Problem::bad_request(format!(
            "limit is {limit}; it must be 1 to {MAX_LIMIT}"
        )));
    }
    Ok(Query {
        before,
        limit,
        filter: asked.filter,
        issuers: caller.issuers.clone(),
        deadline: None,
    })
}

const EXPECTED_PARAMETERS: &str = "the query has, each at most once: limit and before (numbers), principal_issuer, \
                                   principal_subject, agent, delegation_id, tool, decision (allow or deny), reason, \
                                   rule, trace_id, chain_digest, kind, from and until (RFC 3339)";
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// A page ends after this time.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
