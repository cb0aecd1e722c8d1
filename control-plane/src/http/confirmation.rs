//! The progress of a revocation: `POST /v1/revocations` waits for its confirmation, and `GET /v1/revocations/{seq}`
//! shows it.
//!
//! `{"filters": {"applied": 4812, "unknown": 1, "left_ms": 3200}}`: the number of filters that may be fresh and have
//! applied it, the number that may be fresh and may not have, and the time until none of the latter is fresh. 0 means
//! that it is confirmed: no filter allows what it forbids. Then both calls answer 200, before that 202. They wait for
//! the confirmation, unless the query has `wait=committed` or too many calls wait.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;

use super::api::Api;
use super::problem::Problem;
use super::query;
use credence_revocation::{Progress, Receipt};
use credence_runtime::client_limits::Client;

/// The answer to a revocation, and to a request for its progress.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    log_id: String,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    filters: Progress,
}

/// Handles `GET /v1/revocations/{seq}`.
pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Path(seq): Path<String>,
    RawQuery(query): RawQuery,
    Extension(client): Extension<Client>,
) -> Result<(StatusCode, Json<Answer>), Problem> {
    let seq: u64 = seq.parse().map_err(|_| {
        let detail = "the path ends with an entry's number: a decimal number";
        Problem::bad_request(detail)
    })?;
    let waits = waits(query.as_deref())?;
    let head = api.log.head();
    if seq > head {
        let detail = format!("the log ends at {head}; nothing has the number {seq} yet");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    Ok(api.answer(seq, None, waits, &client).await)
}

impl Api {
    /// Answers a revocation once it is confirmed, if the caller waits for that; at the latest after half of the request
    /// timeout.
    pub(crate) async fn answer(
        &self,
        seq: u64,
        receipt: Option<Receipt>,
        waits: bool,
        client: &Client,
    ) -> (StatusCode, Json<Answer>) {
        let leases = self.log.leases();
        if waits && let Ok(_place) = self.confirmations.try_take(client, 1) {
            let begun = Instant::now();
            let mut phase = self.phase.clone();
            tokio::select! {
                () = leases.confirmed(seq) => {}
                _ = phase.draining() => {}
                () = tokio::time::sleep(self.limits.request_timeout / 2) => {}
            }
            let took = begun.elapsed().as_secs_f64();
            self.metrics.revocation.revocation_wait_seconds.observe(took);
        }
        let filters = leases.progress(seq, Instant::now());
        let status = match filters.left.is_zero() {
            true => StatusCode::OK,
            false => StatusCode::ACCEPTED,
        };
        let answer = Answer {
            log_id: self.log.log_id().to_string(),
            seq,
            epoch: receipt.as_ref().and_then(|receipt| receipt.epoch),
            changed: receipt.map(|receipt| receipt.changed),
            filters,
        };
        (status, Json(answer))
    }
}

/// Whether a call waits until the revocation is confirmed.
pub(crate) fn waits(query: Option<&str>) -> Result<bool, Problem> {
    let mut wait = None;
    for (name, value) in query::members(query)? {
        let waits = match (name.as_str(), value.as_str()) {
            ("wait", "applied") => true,
            ("wait", "committed") => false,
            ("wait", _) => return Err(Problem::bad_request("at wait: write applied or committed")),
            _ => return Err(Problem::bad_request("the query may have wait and nothing else")),
        };
        query::once(&mut wait, "wait", waits)?;
    }
    Ok(wait.unwrap_or(true))
}
