//! SCIM's errors (RFC 7644 section 3.12).

use http::StatusCode;

/// Why a SCIM request is refused, for the operator of the identity provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ScimError {
    pub status: StatusCode,
    /// The keyword of table 9, if it has one for this error.
    pub(crate) kind: Option<&'static str>,
    /// What was expected, what was found, and the fix.
    pub(crate) detail: String,
}

// === impl ScimError ===

impl ScimError {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind: None,
            detail: detail.into(),
        }
    }

    /// Status 400, with a keyword of table 9.
    pub fn bad(kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: Some(kind),
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    pub fn invalid_value(detail: impl Into<String>) -> Self {
        Self::bad("invalidValue", detail)
    }

    pub fn invalid_syntax(detail: impl Into<String>) -> Self {
        Self::bad("invalidSyntax", detail)
    }

    pub(crate) fn invalid_path(detail: impl Into<String>) -> Self {
        Self::bad("invalidPath", detail)
    }

    /// The body. In it, the status is a string.
    pub fn body(&self) -> String {
        let mut body = serde_json::json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
            "status": self.status.as_u16().to_string(),
            "detail": self.detail,
        });
        if let Some(kind) = self.kind {
            body["scimType"] = kind.into();
        }
        body.to_string()
    }
}
