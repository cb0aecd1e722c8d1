//! `GET` and `POST /v1/delegations/status`: whether a delegation is revoked, for relying parties without Envoy.
//!
//! A request gives the facts of a delegation that the filters' rule needs. For missing facts, the answer assumes the
//! worst case: without `issued_at` every not-before time revokes it. Without `epoch` every raise does, unless the
//! issuer is known to sign for several people and the root is newer. docs/reference/api.md has the members.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State as AxumState};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use credence_delegation::revocation::{EPOCH_LIMIT, RevocationReason};
use credence_delegation::{
    Limits as DelegationLimits, PresentedChain, PresentedToken, Thumbprint, TrustAnchors, UnixTime,
};
use serde::Deserialize;
use serde_json::json;

use super::api::Api;
use super::problem::{Output, Problem};
use super::{etags, json, query};
use credence_revocation::{DelegationName, Issuer, PrincipalName};
use credence_runtime::caller::Caller;
use credence_runtime::time::unix_seconds;

/// `GET`: one delegation, in the query.
pub(crate) async fn one(
    AxumState(api): AxumState<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let asked = Asked::from_query(query.as_deref())?;
    let question = asked.into_facts(&api.anchors.now())?;
    check_scope(&question, &caller)?;
    api.log.up_to_date().await?;
    let skew = u64::from(api.status.max_iat_skew);
    let present = check_keys(&api, &question);
    let (verdict, seq) = api.log.read(|log, seq| (question.check_revocation(&log, skew), seq));
    let verdict = verdict.and(present);
    let log_id = api.log.log_id().as_str();
    let tag = entity_tag(log_id, verdict);
    let response = if etags::names(&headers, header::IF_NONE_MATCH, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut body = view(verdict);
        body["log_id"] = log_id.into();
        body["seq"] = seq.into();
        Json(body).into_response()
    };
    let fresh = format!("private, max-age={}", api.status.max_age);
    let headers = [(header::ETAG, tag), (header::CACHE_CONTROL, fresh)];
    Ok((headers, response).into_response())
}

/// `POST`: up to a thousand, in the body.
pub(crate) async fn several(
    AxumState(api): AxumState<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let cure = " (max_status_body); ask about fewer delegations at once";
    let body = json::received(body, api.limits.max_status_body, cure, "the request")?;
    json::check_media_type(&headers, "application/json")?;
    let Batch { delegations } = json::parse(&body)?;
    if delegations.is_empty() || delegations.len() > MAX_BATCH {
        return Err(Problem::bad_request(format!(
            "at delegations: ask about 1 to {MAX_BATCH}"
        )));
    }
    let mut questions = Vec::with_capacity(delegations.len());
    let anchors = api.anchors.now();
    for (index, json::Object(item)) in delegations.into_iter().enumerate() {
        let question = item.into_question(&anchors).and_then(|question| {
            check_scope(&question, &caller)?;
            Ok(question)
        });
        questions.push(question.map_err(|problem| problem.within(&format!("delegations[{index}]")))?);
        if index % QUESTIONS_AT_A_TIME == 0 {
            tokio::task::yield_now().await;
        }
    }
    api.log.up_to_date().await?;
    let skew = u64::from(api.status.max_iat_skew);
    let present: Vec<_> = questions.iter().map(|chain| check_keys(&api, chain)).collect();
    let (results, seq) = api.log.read(|log, seq| {
        let verdicts = questions.iter().map(|chain| chain.check_revocation(&log, skew));
        let results = verdicts
            .zip(present)
            .map(|(verdict, present)| view(verdict.and(present)));
        (Vec::from_iter(results), seq)
    });
    let log_id = api.log.log_id().as_str();
    Ok(Json(json!({ "log_id": log_id, "seq": seq, "results": results })).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    delegations: Vec<json::Object<Asked>>,
}

/// A query about one delegation: its facts or, in a body, the chain itself.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default, deserialize_with = "json::present")]
    chain: Option<String>,
    #[serde(default, deserialize_with = "json::present")]
    issuer: Option<String>,
    #[serde(default, deserialize_with = "json::present")]
    subject: Option<String>,
    #[serde(default, deserialize_with = "json::present")]
    epoch: Option<u64>,
    #[serde(default, deserialize_with = "json::present")]
    issued_at: Option<i64>,
    #[serde(default, deserialize_with = "json::present")]
    asserts_subjects: Option<bool>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    ids: Vec<String>,
}

// === impl Asked ===

impl Asked {
    fn from_query(query: Option<&str>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (name, value) in query::members(query)? {
            match name.as_str() {
                "issuer" => query::once(&mut asked.issuer, &name, value)?,
                "subject" => query::once(&mut asked.subject, &name, value)?,
                "epoch" => query::once(&mut asked.epoch, &name, query::whole(&name, &value)?)?,
                "issued_at" => query::once(&mut asked.issued_at, &name, query::whole(&name, &value)?)?,
                "asserts_subjects" => query::once(&mut asked.asserts_subjects, &name, truth(&name, &value)?)?,
                "key" => asked.keys.push(value),
                "id" => asked.ids.push(value),
                _ => {
                    return Err(Problem::bad_request(
                        "the query has issuer, key and id (both as often as needed), and if they are known subject, \
                         epoch, issued_at and asserts_subjects",
                    ));
                }
            }
        }
        Ok(asked)
    }

    fn into_question(mut self, anchors: &TrustAnchors) -> Result<PresentedChain, Problem> {
        match self.chain.take() {
            None => self.into_facts(anchors),
            Some(chain) if self == Self::default() => {
                PresentedChain::read(&chain, anchors, &DelegationLimits::default())
                    .map_err(|denial| Problem::bad_request(format!("at chain: {denial}")))
            }
            Some(_) => Err(Problem::bad_request("write either chain or the facts, not both")),
        }
    }

    fn into_facts(self, anchors: &TrustAnchors) -> Result<PresentedChain, Problem> {
        let missing = |name: &str, why: &str| Problem::bad_request(format!("{name} is missing: {why}"));
        let issuer = self.issuer.ok_or_else(|| missing("issuer", "the root token's iss"))?;
        if self.keys.is_empty() {
            return Err(missing(
                "key",
                "the thumbprints of the root's signing key and of every holder's key; a revoked one cannot be found \
                 otherwise",
            ));
        }
        if self.ids.is_empty() {
            return Err(missing(
                "id",
                "the jti of every token of the chain, root first; a revoked one cannot be found otherwise",
            ));
        }
        if self.keys.len() > MAX_NAMES || self.ids.len() > MAX_NAMES {
            return Err(Problem::bad_request(format!(
                "at most {MAX_NAMES} keys and as many ids of one chain"
            )));
        }
        // The configuration of an issuer takes precedence.
        let configured = anchors.principals_of(&issuer);
        let same_principals = configured.map(|(_, others)| others.to_vec()).unwrap_or_default();
        let asserts_subjects = configured.map(|(asserts, _)| asserts).or(self.asserts_subjects);
        let principal = PrincipalName::parse(issuer.clone(), self.subject.clone())?;
        let subject = self.subject.filter(|_| asserts_subjects != Some(false));
        for id in &self.ids {
            DelegationName::parse(principal.clone(), Vec::new(), id.clone())?;
        }
        if self.epoch.is_some_and(|epoch| epoch >= EPOCH_LIMIT) {
            return Err(Problem::bad_request("epoch is below 2^53"));
        }
        if self
            .issued_at
            .is_some_and(|issued_at| !(0..=LATEST).contains(&issued_at))
        {
            return Err(Problem::bad_request(format!(
                "issued_at is seconds since the Unix epoch, 0 to {LATEST}"
            )));
        }
        let keys = self.keys.iter().map(|key| {
            Thumbprint::parse(key).ok_or_else(|| {
                Problem::bad_request("a key is its RFC 7638 SHA-256 thumbprint in base64url: 43 characters")
            })
        });
        Ok(PresentedChain {
            issuer,
            subject,
            asserts_subjects: asserts_subjects.unwrap_or(false),
            same_principals,
            root_epoch: self.epoch,
            issued_at: UnixTime(self.issued_at.unwrap_or(i64::MIN)),
            keys: keys.collect::<Result<_, _>>()?,
            // The relying party must check the lifetime of the tokens; docs/reference/api.md explains how.
            tokens: Vec::from_iter(self.ids.into_iter().map(|id| PresentedToken { id, span: None })),
        })
    }
}

fn check_scope(question: &PresentedChain, caller: &Caller) -> Result<(), Problem> {
    // A name that no log can hold is not secret.
    if caller.covers(&question.issuer) || Issuer::parse(question.issuer.clone()).is_err() {
        return Ok(());
    }
    Err(Problem::out_of_scope(caller, ""))
}

/// Whether one of the chain's keys is a present one of its issuer, if those are fetched.
fn check_keys(api: &Api, chain: &PresentedChain) -> Result<(), RevocationReason> {
    let is_present = api.anchors.has_present_key(&chain.issuer, &chain.keys, unix_seconds());
    is_present.then_some(()).ok_or(RevocationReason::KeyWithdrawn)
}

/// Weak: the position in the answer changes with every revocation, but the status of the delegation does not.
fn entity_tag(log_id: &str, verdict: Result<(), RevocationReason>) -> String {
    let code = verdict.map_or_else(RevocationReason::code, |()| ACTIVE);
    format!("W/\"{log_id}.{code}\"")
}

/// A delegation's status in an answer.
fn view(verdict: Result<(), RevocationReason>) -> Output {
    match verdict {
        Ok(()) => json!({ "status": ACTIVE }),
        Err(reason) => json!({ "status": "revoked", "reason": reason.code() }),
    }
}

fn truth(name: &str, value: &str) -> Result<bool, Problem> {
    value
        .parse()
        .map_err(|_| Problem::bad_request(format!("{name} is true or false")))
}

const ACTIVE: &str = "active";
/// The largest number of delegations in one `POST`.
const MAX_BATCH: usize = 1_000;
/// The largest number of keys, and of ids, of one chain. Chains have at most nine tokens.
const MAX_NAMES: usize = 32;
/// 9999-12-31T23:59:59Z, the latest time in RFC 3339.
const LATEST: i64 = 253_402_300_799;
/// Chains that are read before other tasks may run.
const QUESTIONS_AT_A_TIME: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_depends_on_the_status_only() {
        let active = entity_tag("log", Ok(()));
        assert_eq!(active, "W/\"log.active\"");
        assert_eq!(
            entity_tag("log", Err(RevocationReason::KeyRevoked)),
            "W/\"log.revoked_key\""
        );
        let known = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            etags::names(&headers, header::IF_NONE_MATCH, &active)
        };
        for value in ["*", "W/\"log.active\"", "\"log.active\"", "\"other\", W/\"log.active\""] {
            assert!(known(value), "{value}");
        }
        assert!(!known("W/\"log.revoked_key\""));
    }
}
