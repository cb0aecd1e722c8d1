//! `POST /v1/revocations`: an operator revokes.
//!
//! The body names exactly one subject:
//!
//! ```json
//! {"principal": {"issuer": "https://id.example.com", "subject": "alice"}, "action": "raise"}
//! {"key": {"thumbprint": "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"}}
//! {"issuer": {"issuer": "https://id.example.com", "issued_up_to": 1800000000}}
//! {"delegation": {"issuer": "https://id.example.com", "subject": "alice", "id": "leaf-7", "under": ["root-1"]}}
//! ```
//!
//! Leave out `subject` for a principal that signs for itself. `id` is a token's `jti`, and `under` has those of the
//! tokens above it, root first. Without `under`, the id is revoked wherever it occurs in a chain of the principal.
//! `action` is `raise` (the default: revokes everything granted so far), `disable` (also everything granted later) or
//! `enable`. `reason`, up to 512 bytes, is optional and goes into the history. The answer is `{"log_id", "seq",
//! "changed", "filters"}` and, for a principal, `"epoch"`. It is 200 once every filter that may be fresh has applied
//! the revocation ([`confirmation`](super::confirmation)). Repeating a revocation that is in force answers `"changed":
//! false` (a `raise` always raises).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;

use super::api::Api;
use super::confirmation::{Answer, waits};
use super::json;
use super::problem::{Problem, RETRY_SOON};
use credence_revocation::{
    DelegationName, Issuer, Operation, Order, PlanError, PrincipalName, Requester, RevokeError, Source, SubjectError,
    Thumbprint,
};
use credence_runtime::caller::Caller;
use credence_runtime::client_limits::Client;

/// Handles the request.
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    Extension(caller): Extension<Arc<Caller>>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Answer>), Problem> {
    let waits = waits(query.as_deref())?;
    let cure = "; one request revokes one subject";
    let body = json::received(body, api.limits.max_request_body, cure, "the request")?;
    json::check_media_type(&headers, "application/json")?;
    let body: Body = json::parse(&body)?;
    let reason = body.reason()?;
    let operation = body.into_operation()?;
    check_scope(&operation, &caller)?;
    let by = Requester {
        source: Source::Operator,
        name: caller.name.clone(),
    };
    let receipt = api.log.perform(Order { operation, by, reason }).await?;
    Ok(api.answer(receipt.seq, Some(receipt), waits, &client).await)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "json::object")]
    principal: Option<PrincipalBody>,
    #[serde(default, deserialize_with = "json::present")]
    action: Option<String>,
    #[serde(default, deserialize_with = "json::object")]
    key: Option<KeyBody>,
    #[serde(default, deserialize_with = "json::object")]
    issuer: Option<IssuerBody>,
    #[serde(default, deserialize_with = "json::object")]
    delegation: Option<DelegationBody>,
    #[serde(default, deserialize_with = "json::present")]
    reason: Option<String>,
}

/// A principal in a request body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrincipalBody {
    pub(super) issuer: String,
    #[serde(default, deserialize_with = "json::present")]
    pub(super) subject: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    thumbprint: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerBody {
    issuer: String,
    #[serde(deserialize_with = "json::seconds")]
    issued_up_to: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegationBody {
    issuer: String,
    #[serde(default, deserialize_with = "json::present")]
    subject: Option<String>,
    id: String,
    #[serde(default)]
    under: Vec<String>,
}

// === impl Body ===

impl Body {
    /// The reason for the history.
    fn reason(&self) -> Result<Option<String>, Problem> {
        match &self.reason {
            Some(reason) if reason.is_empty() || reason.len() > MAX_REASON_BYTES => Err(Problem::bad_request(format!(
                "at reason: write 1 to {MAX_REASON_BYTES} bytes, or leave it out"
            ))),
            reason => Ok(reason.clone()),
        }
    }

    fn into_operation(self) -> Result<Operation, Problem> {
        match (self.principal, self.key, self.issuer, self.delegation, self.action) {
            (Some(principal), None, None, None, action) => {
                let principal = PrincipalName::parse(principal.issuer, principal.subject)?;
                match action.as_deref() {
                    None | Some("raise") => Ok(Operation::Raise { principal, from: None }),
                    Some("disable") => Ok(Operation::Disable(principal)),
                    Some("enable") => Ok(Operation::Enable(principal)),
                    Some(_) => Err(Problem::bad_request(
                        "at action: write \"raise\", \"disable\" or \"enable\"",
                    )),
                }
            }
            (.., Some(_)) => Err(Problem::bad_request("action goes with a principal and nothing else")),
            (None, Some(key), None, None, None) => Ok(Operation::RevokeKey(
                Thumbprint::parse(&key.thumbprint).ok_or(SubjectError::Thumbprint)?,
            )),
            (None, None, Some(floor), None, None) => Ok(Operation::RaiseIssuerFloor {
                issuer: Issuer::parse(floor.issuer)?,
                issued_up_to: floor.issued_up_to,
            }),
            (None, None, None, Some(delegation), None) => {
                let principal = PrincipalName::parse(delegation.issuer, delegation.subject)?;
                let name = DelegationName::parse(principal, delegation.under, delegation.id)?;
                Ok(Operation::RevokeDelegation(name))
            }
            _ => Err(Problem::bad_request(
                "name exactly one of principal, key, issuer and delegation",
            )),
        }
    }
}

impl From<SubjectError> for Problem {
    fn from(error: SubjectError) -> Self {
        Problem::bad_request(error.to_string())
    }
}

impl From<RevokeError> for Problem {
    fn from(error: RevokeError) -> Self {
        let detail = error.to_string();
        let unavailable = |detail| Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        match error {
            RevokeError::Stopping | RevokeError::Unknown | RevokeError::Busy => {
                unavailable(detail).retry_after(RETRY_SOON)
            }
            RevokeError::Storage(_) | RevokeError::FolderLost(_) | RevokeError::Random(_) => unavailable(detail),
            RevokeError::Plan(PlanError::FloorInFuture { .. }) => Problem::bad_request(detail),
            RevokeError::Plan(
                PlanError::NothingToEnable | PlanError::EpochExhausted | PlanError::OtherEpoch { .. },
            ) => Self::new(StatusCode::CONFLICT, detail),
            RevokeError::Plan(PlanError::TooManySingles { .. } | PlanError::TooManySubjects { .. }) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, detail)
            }
        }
    }
}

/// A caller that is bound to issuers may revoke their principals, delegations and root tokens. Keys belong to no
/// issuer, so revoking one needs a caller without issuers.
fn check_scope(operation: &Operation, caller: &Caller) -> Result<(), Problem> {
    let covered = match operation.issuer() {
        Some(issuer) => caller.covers(issuer.as_str()),
        None => caller.covers_everything(),
    };
    match covered {
        true => Ok(()),
        false => Err(Problem::out_of_scope(caller, ", and may not revoke this")),
    }
}

const MAX_REASON_BYTES: usize = 512;
