//! `POST /v1/revocations/statements`: a principal, or an issuer for its subjects, revokes with a signed statement.
//!
//! The body is the compact JWS, with the media type `application/revocation+jwt`. No credential is needed, because the
//! statement is signed. So invalid statements are refused as cheaply as possible: rate, type, size, shape, age and
//! issuer are checked before a signature is verified. The number of concurrent verifications is limited.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use credence_delegation::revocation::RevocationView as _;
use credence_delegation::{
    Cause, Limits as DelegationLimits, Revocation, Statement, StatementContext, StatementError, UnixTime,
    VerifiedStatement,
};

use super::api::Api;
use super::confirmation::{Answer, waits};
use super::json;
use super::problem::Problem;
use credence_revocation::{DelegationName, Issuer, Operation, Order, PrincipalName, Requester, Source, SubjectError};
use credence_runtime::client_limits::Client;
use credence_runtime::text::shorten;
use credence_runtime::time::unix_seconds;
use credence_server::Peer;

/// Handles the request.
pub(crate) async fn state(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Answer>), Problem> {
    let waits = waits(query.as_deref())?;
    let address = peer.address.ip();
    api.limit_statement(address)?;
    let body = json::received(body, max_body(), ", more than any statement", "the statement")?;
    json::check_media_type(&headers, MEDIA_TYPE)?;
    if api.audience.is_empty() || api.anchors.configured().iter().next().is_none() {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "this control plane accepts no statements: its configuration has no trust_anchors or no audience",
        ));
    }
    let statement =
        std::str::from_utf8(&body).map_err(|_| Problem::bad_request("a statement is a compact JWS, which is ASCII"))?;
    let verified = verify(&api, statement.trim_ascii_end().to_owned()).await?;
    check_signer(&api, &verified)?;
    let order = order(&verified)?;
    let client = Client::anonymous(Some(address));
    let _call = api
        .calls
        .take(&client)
        .map_err(|refused| Problem::unavailable(refused.to_string(), Duration::from_secs(1)))?;
    let receipt = api.log.perform(order).await?;
    Ok(api.answer(receipt.seq, Some(receipt), waits, &client).await)
}

/// The largest accepted body of a statement, in bytes.
pub(crate) fn max_body() -> usize {
    // Allows a final line break.
    DelegationLimits::default().statement_bytes + 2
}

async fn verify(api: &Arc<Api>, statement: String) -> Result<VerifiedStatement, Problem> {
    // Everything that needs no signature is checked before waiting.
    Statement::parse(&statement, &DelegationLimits::default())?;
    let place = tokio::time::timeout(LONGEST_WAIT, api.signature_places.acquire()).await;
    let Ok(Ok(_place)) = place else {
        let detail = "too many statements are being verified; send it again";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(Duration::from_secs(1)));
    };
    let api = Arc::clone(api);
    let verified = tokio::task::spawn_blocking(move || {
        let limits = DelegationLimits::default();
        Statement::parse(&statement, &limits)?.verify(&StatementContext {
            anchors: api.anchors.configured(),
            audience: &api.audience,
            limits: &limits,
            now: UnixTime(unix_seconds()),
        })
    });
    match verified.await {
        Ok(verified) => Ok(verified?),
        Err(error) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// A thief of a key must not be able to revoke the keys that replace it. But a key may revoke itself repeatedly.
fn check_signer(api: &Api, statement: &VerifiedStatement) -> Result<(), Problem> {
    let signer = statement.signed_by();
    if statement.revocation == Revocation::Key(signer) || !api.log.read(|log, _| log.is_key_revoked(&signer)) {
        return Ok(());
    }
    let detail = "the key that signed the statement is revoked; sign with another one, or ask an operator";
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn order(statement: &VerifiedStatement) -> Result<Order, SubjectError> {
    let by = statement;
    let principal = || PrincipalName::parse(by.issuer.clone(), by.subject.clone());
    let operation = match &statement.revocation {
        Revocation::Epoch(from) => Operation::Raise {
            principal: principal()?,
            from: Some(*from),
        },
        Revocation::Delegation { under, id } => {
            Operation::RevokeDelegation(DelegationName::parse(principal()?, under.clone(), id.clone())?)
        }
        Revocation::Key(key) => Operation::RevokeKey(*key),
        Revocation::IssuedUntil(until) => Operation::RaiseIssuerFloor {
            issuer: Issuer::parse(by.issuer.clone())?,
            issued_up_to: until.0,
        },
    };
    Ok(Order {
        operation,
        by: Requester {
            source: Source::Statement,
            name: statement.signed_by().to_string(),
        },
        reason: Some(shorten(format!("statement {}", statement.id))),
    })
}

impl From<StatementError> for Problem {
    fn from(error: StatementError) -> Self {
        let detail = error.to_string();
        let (status, claim) = match error {
            StatementError::Unreadable(Cause::TooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, None),
            StatementError::Unreadable(Cause::Claim { claim, .. }) => (StatusCode::BAD_REQUEST, Some(claim)),
            StatementError::Unreadable(_) => (StatusCode::BAD_REQUEST, None),
            StatementError::Untrusted(Cause::IssuerUnknown) => (StatusCode::FORBIDDEN, Some("iss")),
            StatementError::Untrusted(_) => (StatusCode::FORBIDDEN, None),
            StatementError::Expired | StatementError::Lifetime(_) => (StatusCode::BAD_REQUEST, Some("exp")),
            StatementError::IssuedInFuture => (StatusCode::BAD_REQUEST, Some("iat")),
            StatementError::Audience => (StatusCode::BAD_REQUEST, Some("aud")),
            StatementError::ForeignKey => (StatusCode::FORBIDDEN, Some("revoke.key")),
        };
        let problem = Self::new(status, detail);
        match claim {
            Some(claim) => problem.with("claim", claim),
            None => problem,
        }
    }
}

/// Concurrent verifications.
pub(crate) const SIGNATURE_PLACES: usize = 2;
const MEDIA_TYPE: &str = "application/revocation+jwt";
const LONGEST_WAIT: Duration = Duration::from_secs(1);
