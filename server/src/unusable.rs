//! Why something that the operator has configured cannot be used.

use std::fmt::Display;

/// The place, the problem and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub String);

// === impl Unusable ===

impl Unusable {
    /// A problem of the configuration.
    pub fn configuration(problem: impl Display) -> Self {
        Self(format!("configuration: {problem}"))
    }
}
