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

    pub fn access_denied(description: impl Into<String>) -> Self {
        Self::new("access_denied", description)
    }

    pub(crate) fn new(err: &'static str, description: impl Into<String>) -> Self {
        Self {
            err,
            description: description.into(),
        }
    }
}
