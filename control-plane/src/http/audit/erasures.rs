//! `POST /v1/audit/erasures`: makes the evidence about a principal permanently unreadable.
//!
//! ```json
//! {"principal": {"issuer": "https://id.example.com", "subject": "alice"}, "reason": "request 17"}
//! ```
//!
//! Leave out `subject` for a principal that signs for itself. The ledger notes the requester (the credential's name)
//! and the reason, but not the principal. The answer is 200 once the key is destroyed, durably: `{"erased": true,
//! "index": 17}` with the note's index, or `{"erased": false}` if there was no evidence about the principal, as after
//! an earlier erasure.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;

use super::super::api::Api;
use super::super::json;
use super::super::problem::{Output, Problem, RETRY_SOON};
use super::super::revocations::PrincipalBody;
use credence_evidence::{Erase, ReportError};
use credence_revocation::PrincipalName;
use credence_runtime::caller::Caller;

/// Erases.
pub(crate) async fn erase(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    Extension(caller): Extension<Arc<Caller>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Output>, Problem> {
    let cure = "; one request erases one principal";
    let body = json::received(body, api.limits.max_request_body, cure, "the request")?;
    json::check_media_type(&headers, "application/json")?;
    let body: Body = json::parse(&body)?;
    let reason = body
        .reason
        .filter(|reason| !reason.is_empty() && reason.len() <= MAX_REASON_BYTES)
        .ok_or_else(|| {
            Problem::bad_request(format!(
                "at reason: write 1 to {MAX_REASON_BYTES} bytes, without naming the principal: the reason stays in the \
                 ledger"
            ))
        })?;
    let principal = body
        .principal
        .ok_or_else(|| Problem::bad_request("at principal: name the principal whose evidence to erase"))?;
    let principal = PrincipalName::parse(principal.issuer, principal.subject)?;
    if !caller.covers(principal.issuer().as_str()) {
        return Err(Problem::out_of_scope(&caller, ", and may not erase this principal"));
    }
    let by = caller.name.clone();
    let erased = api.ledger.erase(Erase { principal, by, reason }).await?;
    Ok(Json(match erased {
        Some(erased) => json!({ "erased": true, "index": erased.index }),
        None => json!({ "erased": false }),
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "json::object")]
    principal: Option<PrincipalBody>,
    #[serde(default, deserialize_with = "json::present")]
    reason: Option<String>,
}

impl From<ReportError> for Problem {
    fn from(error: ReportError) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        match error {
            ReportError::Stopping => problem.retry_after(RETRY_SOON),
            _ => problem,
        }
    }
}

const MAX_REASON_BYTES: usize = 512;
