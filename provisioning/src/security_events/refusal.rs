//! Why a security event token is refused (RFC 8935 section 2.4).

/// A permanent refusal: sending the same token again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{err}: {description}")]
pub struct Refusal {
    /// The error code.
    pub err: &'static str,
    /// What was expected, what was found, and the fix.
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
