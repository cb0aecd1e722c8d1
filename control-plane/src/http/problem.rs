//! Errors as RFC 9457 problem details.

use std::fmt::Display;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};

use credence_runtime::caller::Caller;

/// The wait before repeating a request that may soon succeed.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);

/// JSON that is made here.
#[allow(clippy::disallowed_types, reason = "made here, never read from a client")]
pub(crate) type Output = serde_json::Value;

/// An error answer.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    member: Option<(&'static str, Output)>,
}

/// The detail of a problem response, for standards with another format.
#[derive(Debug, Clone)]
pub(crate) struct Detail(pub(crate) String);

/// An error response in the format of another standard.
pub(crate) struct Answer(Box<Response>);

// === impl Answer ===

impl Answer {
    pub(crate) fn new(response: impl IntoResponse) -> Self {
        Self(Box::new(response.into_response()))
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        Self::new(problem)
    }
}

// === impl Problem ===

impl Problem {
    /// `detail` says what was expected, what was found, and the fix.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            headers: Vec::new(),
            member: None,
        }
    }

    /// Status 400.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Closes the connection after the answer.
    pub(crate) fn closing(self) -> Self {
        self.header(header::CONNECTION, HeaderValue::from_static("close"))
    }

    /// Status 503: the same request may succeed later.
    pub(crate) fn unavailable(detail: impl Into<String>, wait: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(wait)
    }

    /// Status 500.
    pub(crate) fn unreadable_ledger(error: impl Display) -> Self {
        tracing::error!(%error, "the ledger cannot be read");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the ledger cannot be read: {error}"),
        )
    }

    /// Status 403: the credential is bound to other issuers than the request is about. `what` is the consequence.
    pub(crate) fn out_of_scope(caller: &Caller, what: &str) -> Self {
        let detail = format!(
            "the credential {:?} is bound to other issuers (access: issuers){what}",
            caller.name
        );
        Self::new(StatusCode::FORBIDDEN, detail).insufficient_scope()
    }

    /// Adds that the credential lacks the permission (RFC 6750 section 3.1).
    pub(crate) fn insufficient_scope(self) -> Self {
        self.challenge("Bearer error=\"insufficient_scope\"")
    }

    /// Adds when to try again, rounded up to whole seconds.
    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    /// Adds a member.
    pub(crate) fn with(self, name: &'static str, value: impl Into<Output>) -> Self {
        Self {
            member: Some((name, value.into())),
            ..self
        }
    }

    /// Adds the place in the request.
    pub(crate) fn within(self, place: &str) -> Self {
        Self {
            detail: format!("at {place}: {}", self.detail),
            ..self
        }
    }

    /// Adds how to authenticate (RFC 9110 section 11.6.1).
    pub(crate) fn challenge(self, challenge: &'static str) -> Self {
        self.header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = serde_json::json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some((name, value)) = self.member {
            body[name] = value;
        }
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let headers = AppendHeaders(self.headers);
        let mut response = (self.status, kind, headers, body.to_string()).into_response();
        response.extensions_mut().insert(Detail(self.detail));
        response
    }
}
