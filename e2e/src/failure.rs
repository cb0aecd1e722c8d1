//! The error type of the harness.

use std::fmt;

/// An error message: what was attempted, what happened, and the cure.
#[derive(Clone, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Prefixes an error with what was attempted; for `map_err`.
    pub fn of<E: fmt::Display>(attempt: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{attempt}: {error}"))
    }
}

/// The same text, so that a failed `unwrap` in a test is readable.
impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
