//! The proxy's own answers: problem documents (RFC 9457).

use credence_agent::terminal::{printable, shortened};
use credence_decision::answer::Answer;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::outbound::{Body, whole};

/// A request that the proxy does not send.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) response: Box<Response<Body>>,
}

// === impl Refusal ===

impl Refusal {
    /// A refusal for a reason of the proxy itself.
    pub(crate) fn new(status: StatusCode, reason: &'static str, title: &str) -> Self {
        Self::with_detail(status, reason, title, None)
    }

    /// The detail may quote foreign text.
    pub(crate) fn with_detail(status: StatusCode, reason: &'static str, title: &str, detail: Option<&str>) -> Self {
        let mut problem = json!({
            "type": format!("urn:credence:proxy:{reason}"),
            "title": title,
            "status": status.as_u16(),
            "reason": reason,
        });
        if let Some(detail) = detail {
            problem["detail"] = printable(&shortened(detail)).into();
        }
        let mut response = marked(status, problem.to_string().into());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self {
            reason,
            response: Box::new(response),
        }
    }

    /// The answer that the filter would give.
    pub(crate) fn of(reason: &'static str, answer: Answer) -> Self {
        let (status, body) = match answer.grpc_status {
            // A gRPC client reads the status in headers.
            Some(_) => (StatusCode::OK, Vec::new()),
            None => (
                StatusCode::from_u16(answer.status).unwrap_or(StatusCode::FORBIDDEN),
                answer.body.clone(),
            ),
        };
        let mut response = marked(status, body);
        let headers = response.headers_mut();
        for (name, value) in &answer.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(*name, value);
            }
        }
        if let Some(code) = answer.grpc_status {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert("grpc-status", code.into());
            if let Ok(message) = HeaderValue::from_bytes(&answer.body) {
                headers.insert("grpc-message", message);
            }
        }
        Self {
            reason,
            response: Box::new(response),
        }
    }
}

/// An answer that is known to be the proxy's, not the service's.
fn marked(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(ANSWERED_BY, HeaderValue::from_static("credence-proxy"));
    response
}

/// Only in the proxy's own answers.
pub(crate) const ANSWERED_BY: &str = "x-answered-by";
