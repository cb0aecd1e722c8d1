//! `POST /v1/security-events`: receives a pushed security event token (RFC 8417, RFC 8935).
//!
//! The body is the token, with `Content-Type: application/secevent+jwt`. The answer is 202 without a body once its
//! consequences are durable and sent to every connected filter; 400 with `{"err", "description"}` for a token that will
//! never be accepted; 503 or 507 for one that should be sent again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::routing::post;
use axum::{Extension, Router};

use super::api::Api;
use super::json;
use super::problem::{Answer, Problem};
use credence_provisioning::security_events::{NotTaken, Refusal};
use credence_runtime::caller::Caller;

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/v1/security-events", post(receive))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

async fn receive(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Arc<Caller>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Answer> {
    let receiver = api.receiver.as_ref().ok_or_else(|| {
        Refusal::access_denied("no transmitter is configured; see security_events in the configuration")
    })?;
    let transmitter = receiver.transmitter_of(&caller)?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Answer::from(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the token has more than {MAX_BODY} bytes"),
        )),
        _ => Refusal::invalid_request("the token did not arrive completely; send it again").into(),
    })?;
    if !json::media_type(&headers).eq_ignore_ascii_case("application/secevent+jwt") {
        return Err(Refusal::invalid_request("Content-Type must be application/secevent+jwt").into());
    }
    let text = std::str::from_utf8(&body).map_err(|_| Refusal::invalid_request("the token is not text"))?;
    receiver.receive(transmitter, text.trim_ascii()).await?;
    Ok(StatusCode::ACCEPTED)
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let body = serde_json::json!({ "err": refusal.err, "description": refusal.description });
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::CONTENT_LANGUAGE, HeaderValue::from_static("en")),
        ];
        Self::new((StatusCode::BAD_REQUEST, headers, body.to_string()))
    }
}

impl From<NotTaken> for Answer {
    fn from(not_taken: NotTaken) -> Self {
        match not_taken {
            NotTaken::Refused(refusal) => refusal.into(),
            NotTaken::Revocation(error) => Problem::from(error).into(),
            NotTaken::Unavailable(detail) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .retry_after(RETRY)
                .into(),
        }
    }
}

const MAX_BODY: usize = 64 << 10;
const RETRY: Duration = Duration::from_secs(10);
