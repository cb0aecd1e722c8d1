//! Why something could not be done.

use std::fmt;

/// A sentence for whoever runs the demo or the tests: what was attempted, what came instead, what to do.
#[derive(Clone, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl Failure {
    /// A failure with these words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Puts what was attempted in front of why it failed; for `map_err`.
    pub fn of<E: fmt::Display>(attempt: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{attempt}: {error}"))
    }
}

/// The same words, so that an `unwrap` in a test reads well.
impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
