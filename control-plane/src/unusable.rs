//! Why something that the operator has named cannot be used.

use std::fmt::Display;

/// What it is, what is wrong with it, and the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);

// === impl Unusable ===

impl Unusable {
    pub(crate) fn configuration(problem: impl Display) -> Self {
        Self(format!("configuration: {problem}"))
    }
}
