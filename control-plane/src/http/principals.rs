//! `GET /v1/principals/{id}` and `GET /v1/principals?issuer=…&subject=…`: a principal's state and history.
//!
//! `{id}` is base64url without padding of the compact JSON array `["issuer","subject"]`, or `["issuer"]` for an issuer
//! that signs for itself: one spelling for each principal. Answer:
//!
//! ```json
//! {"id": "WyJodHRwczovL2lkLmV4YW1wbGUuY29tIiwiYWxpY2UiXQ", "issuer": "https://id.example.com", "subject": "alice",
//!  "epoch": 7, "disabled": true, "disabled_by": ["operator"], "raised_at": 1800000000, "seq": 12,
//!  "history": [{"seq": 12, "at": 1800000000, "operation": "disable", "epoch": 7, "disabled": true,
//!               "source": "operator", "by": "ci", "reason": "laptop lost"}],
//!  "live_delegations": [{"ids": ["root-1", "leaf-7"], "agent": "NzbLsXh8…", "tool": "payments.charge",
//!                        "last_seen": 1800000100, "expires_at": 1800003600}]}
//! ```
//!
//! Times are seconds since the Unix epoch. The history is newest first, and limited in length. `subject`, `raised_at`
//! and `seq` are absent if there is none; `operation`, `source`, `by` and `reason` are absent if they were not
//! recorded. `live_delegations` are those with a reported allow since the last raise that have neither expired nor been
//! revoked by an id, the most recently seen first; `seen_delegations` limits their number. `history_complete_from` is
//! present only if older entries are missing because the index of histories was rebuilt: it is the first number of the
//! log in the index. A principal that is unknown to the log is at epoch 0 without history, which is not an error.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::revocation::{DelegationPath, RevocationView as _};
use serde::{Deserialize, Serialize};

use super::api::Api;
use super::problem::{Problem, RETRY_SOON};
use credence_evidence::SeenDelegation;
use credence_revocation::{History, HistoryEntry, HistoryError, NoQuorum, PrincipalName, Source, SubjectState};
use credence_runtime::caller::Caller;
use credence_runtime::time::unix_seconds;

/// Handles the request by id.
pub(crate) async fn by_id(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<PrincipalBody>, Problem> {
    let name = id
        .ok()
        .and_then(|Path(id)| parse_id(&id))
        .ok_or_else(|| Problem::bad_request(EXPECTED_ID))?;
    look_up(&api, &caller, name).await
}

/// Handles the request by issuer and subject.
pub(crate) async fn by_name(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Json<PrincipalBody>, Problem> {
    let Query(Parameters { issuer, subject }) = parameters.map_err(|_| Problem::bad_request(EXPECTED_PARAMETERS))?;
    let name = PrincipalName::parse(issuer, subject)?;
    look_up(&api, &caller, name).await
}

async fn look_up(api: &Api, caller: &Caller, name: PrincipalName) -> Result<Json<PrincipalBody>, Problem> {
    if !caller.covers(name.issuer().as_str()) {
        let what = ", and may not read about this one's principals";
        return Err(Problem::out_of_scope(caller, what));
    }
    api.log.up_to_date().await?;
    let history = api.log.history(&name, usize::MAX).await?;
    let state = api.log.principal(&name);
    let live = live(api, &name, state);
    Ok(Json(PrincipalBody::of(&name, state, history, live)))
}

/// The live delegations among those that were seen.
fn live(api: &Api, name: &PrincipalName, state: SubjectState) -> Vec<SeenDelegation> {
    if state.disabled_by != 0 {
        return Vec::new();
    }
    let mut live = api.seen.live(name, unix_seconds());
    // A delegation that was seen before the raise was granted before it. One that was granted in the same second, after
    // the raise, reappears with its next use.
    live.retain(|seen| state.time == 0 || seen.last_seen > state.time);
    api.log.read(|log, _| {
        live.retain(|seen| {
            let ids: Vec<_> = seen.ids.iter().map(String::as_str).collect();
            !(0..ids.len()).any(|place| {
                let (under, rest) = ids.split_at(place);
                rest.first().is_some_and(|id| {
                    let token = DelegationPath { under, id };
                    log.is_delegation_revoked(name.issuer().as_str(), name.subject(), token)
                })
            })
        });
    });
    live
}

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    issuer: String,
    subject: Option<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct PrincipalBody {
    id: String,
    issuer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    epoch: u64,
    disabled: bool,
    disabled_by: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raised_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    history: Vec<HistoryEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_complete_from: Option<u64>,
    live_delegations: Vec<SeenDelegation>,
}

// === impl PrincipalBody ===

impl PrincipalBody {
    fn of(name: &PrincipalName, state: SubjectState, history: History, live: Vec<SeenDelegation>) -> Self {
        Self {
            id: id_of(name),
            issuer: name.issuer().as_str().to_owned(),
            subject: name.subject().map(str::to_owned),
            epoch: state.epoch,
            disabled: state.disabled_by != 0,
            disabled_by: Source::disablers(state.disabled_by),
            raised_at: Some(state.time).filter(|time| *time != 0),
            seq: Some(state.seq).filter(|seq| *seq != 0),
            history: history.entries,
            history_complete_from: history.complete_from,
            live_delegations: live,
        }
    }
}

impl From<NoQuorum> for Problem {
    fn from(error: NoQuorum) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).retry_after(RETRY_SOON)
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        let answer = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        match error {
            HistoryError::Behind => answer.retry_after(RETRY_SOON),
            HistoryError::Unreadable(_) => answer,
        }
    }
}

/// The only spelling of a principal's id.
fn id_of(name: &PrincipalName) -> String {
    let parts: Vec<&str> = [Some(name.issuer().as_str()), name.subject()]
        .into_iter()
        .flatten()
        .collect();
    // Serializing strings cannot fail.
    URL_SAFE_NO_PAD.encode(serde_json::to_string(&parts).unwrap_or_default())
}

fn parse_id(id: &str) -> Option<PrincipalName> {
    let text = URL_SAFE_NO_PAD.decode(id).ok()?;
    let mut parts = serde_json::from_slice::<Vec<String>>(&text).ok()?.into_iter();
    let name = PrincipalName::parse(parts.next()?, parts.next()).ok()?;
    (parts.next().is_none() && id_of(&name) == id).then_some(name)
}

const EXPECTED_ID: &str = "a principal's id is base64url without padding of the JSON array [\"issuer\",\"subject\"], \
                           or [\"issuer\"], without spaces and with no more escapes than JSON needs; or ask with \
                           ?issuer=…&subject=…";
const EXPECTED_PARAMETERS: &str = "the query has issuer and, unless the issuer signs for itself, subject, each once";

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    #[test]
    fn a_principal_has_one_id() {
        for (issuer, subject) in [
            ("https://id.example.com", Some("alice")),
            ("i", None),
            ("\"é\n", Some("\u{1}/\\")),
        ] {
            let name = PrincipalName::parse(issuer.to_owned(), subject.map(str::to_owned)).unwrap();
            assert_eq!(parse_id(&id_of(&name)), Some(name));
        }
        assert_eq!(id_of(&parse_id(&id(r#"["i","s"]"#)).unwrap()), id(r#"["i","s"]"#));
    }

    #[test]
    fn any_other_spelling_is_refused() {
        for text in [
            r#"["i", "s"]"#,
            r#"["\u0069"]"#,
            r#"["i","s","t"]"#,
            r#"["i",null]"#,
            r#"["i",""]"#,
            "[]",
            r#""i""#,
            r#"["i"] "#,
        ] {
            assert_eq!(parse_id(&id(text)), None, "{text}");
        }
        assert_eq!(parse_id(&format!("{}=", id(r#"["i","s"]"#))), None);
        assert_eq!(parse_id(""), None);
    }
}
