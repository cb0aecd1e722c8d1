//! Why a security event token is not taken (RFC 8935 section 2.4).

/// A refusal that sending the same token again will not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{err}: {description}")]
pub struct Refusal {
    /// The error code.
    pub err: &'static str,
    /// What was expected, what was found and what to do.
    pub description: String,
}

// === impl Refusal ===

impl Refusal {
    pub fn invalid_request(description: impl Into<String>) -> Self {
        Self::new("invalid_request", description)
    }

    pub(crate) fn invalid_key(description: impl Into<String>) -> Self {
        Self::new("invalid_key", description)
    }

    pub(crate) fn invalid_issuer(description: impl Into<String>) -> Self {
        Self::new("invalid_issuer", description)
    }

    pub(crate) fn invalid_audience(description: impl Into<String>) -> Self {
        Self::new("invalid_audience", description)
    }

    pub(crate) fn authentication_failed(description: impl Into<String>) -> Self {
        Self::new("authentication_failed", description)
    }

    pub fn access_denied(description: impl Into<String>) -> Self {
        Self::new("access_denied", description)
    }

    fn new(err: &'static str, description: impl Into<String>) -> Self {
        Self {
            err,
            description: description.into(),
        }
    }
}
