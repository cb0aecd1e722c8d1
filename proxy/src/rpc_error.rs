//! JSON-RPC errors of filters, which decide before they have read the message.

use std::time::Duration;

use bytes::Bytes;
use credence_decision::mcp::MessageId;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::outbound::{Body, whole};

#[derive(Deserialize)]
struct RpcError<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    error: &'a RawValue,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// Gives a JSON-RPC error without an id the id of its request, without which clients do not show it.
pub(crate) async fn with_id(response: Response<Body>, id: &MessageId, limit: Duration) -> Response<Body> {
    if !may_be_error(response.status(), response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // It was announced as short. If it ends early or comes late, so does what the client gets.
    let collected = tokio::time::timeout(limit, body.collect()).await;
    let collected = collected.ok().and_then(Result::ok);
    let body = collected.map(|collected| collected.to_bytes()).unwrap_or_default();
    let completed = match serde_json::from_slice::<RpcError<'_>>(&body) {
        Ok(RpcError {
            jsonrpc,
            error,
            id: None,
        }) => Bytes::from(format!(
            r#"{{"jsonrpc":"{jsonrpc}","id":{},"error":{error}}}"#,
            id.json()
        )),
        Ok(_) | Err(_) => body,
    };
    parts.headers.insert(CONTENT_LENGTH, completed.len().into());
    Response::from_parts(parts, whole(completed))
}

fn may_be_error(status: StatusCode, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_short = text(CONTENT_LENGTH)
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: usize| length <= MAX_BYTES);
    !status.is_success() && text(CONTENT_TYPE) == Some("application/json") && is_short
}

const MAX_BYTES: usize = 64 << 10;
