//! What every part's settings need.

use serde::{Deserialize, Deserializer};

/// Settings that no control plane can be started with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {place}: {problem}")]
pub struct SettingsError {
    /// The member, such as `access.tokens[1].roles`.
    pub place: String,
    /// What is wrong with it, and the cure.
    pub problem: String,
}

// === impl SettingsError ===

impl SettingsError {
    /// What is wrong at this member.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// For a member that may be left out but is not null where it is there: a template that was meant to fill in `client_ca:`
/// and did not must not mean that nobody is asked.
///
/// # Errors
/// The value is null, or no `T`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Text without control characters, as a pattern of JSON Schema.
pub const NO_CONTROLS: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
