//! How far a revocation has come: what `POST /v1/revocations` waits for, and `GET /v1/revocations/{seq}` tells.
//!
//! `{"filters": {"applied": 4812, "unknown": 1, "left_ms": 3200}}`: so many filters that may be fresh have applied it, of so
//! many it is not known, and after so many milliseconds at the most none of these is fresh any more. 0 says that it is
//! confirmed: from then on no filter allows what it forbids. Both calls answer 200 then, and 202 before. They wait for it
//! unless `wait=committed` is asked for, or too many calls wait.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;

use super::problem::Problem;
use super::rates::ClientAddress;
use super::{Api, query};
use crate::access::Caller;
use crate::client_limits::Client;
use crate::revocation::leases::Progress;

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Every filter that may be fresh has applied it.
    Applied,
    /// It is durable.
    Committed,
}

/// The filters' part of an answer.
#[derive(Debug, Serialize)]
pub(crate) struct Filters {
    applied: usize,
    unknown: usize,
    left_ms: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    log_id: String,
    seq: u64,
    filters: Filters,
}

/// Handles `GET /v1/revocations/{seq}`.
pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Path(seq): Path<String>,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Arc<Caller>>,
    address: Option<Extension<ClientAddress>>,
) -> Result<(StatusCode, Json<Standing>), Problem> {
    let seq: u64 = seq.parse().map_err(|_| {
        let detail = "the path ends with an entry's number: a decimal number";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let wait = Wait::parse(query.as_deref())?;
    let head = api.log.head();
    if seq > head {
        let detail = format!("the log ends at {head}; nothing has the number {seq} yet");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    let filters = api.filters(seq, wait, &client(&caller, address)).await;
    let standing = Standing {
        log_id: api.log.log_id().to_string(),
        seq,
        filters,
    };
    Ok((standing.filters.status(), Json(standing)))
}

/// Who calls, as far as shares are concerned.
pub(crate) fn client(caller: &Caller, address: Option<Extension<ClientAddress>>) -> Client {
    Client::new(Some(&caller.name), address.map(|Extension(address)| address.0))
}

impl Api {
    /// Waits until the revocation is confirmed, if it is asked for, for at most half of the time that a request has.
    pub(crate) async fn filters(&self, seq: u64, wait: Wait, client: &Client) -> Filters {
        let leases = self.log.leases();
        if wait == Wait::Applied
            && let Ok(_place) = self.confirmations.try_take(client, 1)
        {
            let begun = Instant::now();
            let mut phase = self.phase.clone();
            tokio::select! {
                () = leases.confirmed(seq) => {}
                _ = phase.draining() => {}
                () = tokio::time::sleep(self.limits.request_timeout / 2) => {}
            }
            let took = begun.elapsed().as_secs_f64();
            self.metrics.revocation_wait_seconds.observe(took);
        }
        Filters::from(leases.progress(seq, Instant::now()))
    }
}

// === impl Wait ===

impl Wait {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let mut wait = None;
        for (name, value) in query::members(query)? {
            let parsed = match (name.as_str(), value.as_str()) {
                ("wait", "applied") => Self::Applied,
                ("wait", "committed") => Self::Committed,
                ("wait", _) => return Err(Problem::from("at wait: write applied or committed".to_owned())),
                _ => return Err(Problem::from("the query may have wait and nothing else".to_owned())),
            };
            query::once(&mut wait, "wait", parsed)?;
        }
        Ok(wait.unwrap_or(Self::Applied))
    }
}

// === impl Filters ===

impl Filters {
    pub(crate) fn status(&self) -> StatusCode {
        match self.left_ms {
            0 => StatusCode::OK,
            _ => StatusCode::ACCEPTED,
        }
    }
}

impl From<Progress> for Filters {
    fn from(progress: Progress) -> Self {
        Self {
            applied: progress.applied,
            unknown: progress.unknown,
            left_ms: progress.left.as_millis().try_into().unwrap_or(u64::MAX),
        }
    }
}
