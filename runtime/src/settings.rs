//! What every part's settings need, and the time that its clients have.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::time::Duration;

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

/// How long a client may take, or say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// How long the first message of a gRPC stream may take; then DEADLINE_EXCEEDED. As long may the first bytes of a
    /// connection take, and over HTTP the first request's head; then it is closed. Half-dead connections are found by HTTP/2
    /// pings twice as far apart.
    pub hello: Duration,
    /// How long a stream whose client does not read may block before it is ended with RESOURCE_EXHAUSTED; over HTTP,
    /// before its connection is closed.
    pub send: Duration,
    /// How long a watch stream may give no sign of life (a ping or a pull) before it is ended with DEADLINE_EXCEEDED, and
    /// how long a peer's kernel may leave what was sent without an acknowledgement before its connection is closed.
    pub silence: Duration,
}

// === impl Timeouts ===

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            send: Duration::from_secs(10),
            silence: Duration::from_secs(30),
        }
    }
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

/// A member's place, and what its value has to be, in words.
#[derive(Debug)]
pub struct Field(pub &'static str, pub &'static str);

// === impl Field ===

impl Field {
    /// Checks the value.
    ///
    /// # Errors
    /// It is out of range.
    pub fn within<T: PartialOrd + Debug>(self, value: T, allowed: impl RangeBounds<T>) -> Result<(), SettingsError> {
        let Self(place, expected) = self;
        match allowed.contains(&value) {
            true => Ok(()),
            false => Err(SettingsError::at(place, format!("{value:?} is not {expected}"))),
        }
    }
}

/// For a member that may be left out but is not null where it is there: a template that was meant to fill in `client_ca:`
/// and did not must not mean that no certificate is asked for.
///
/// # Errors
/// The value is null, or no `T`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Text without control characters, as a pattern of JSON Schema.
pub const NO_CONTROLS: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
