//! Helpers for every part's settings, and the timeouts for clients.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Settings with which the control plane cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {place}: {problem}")]
pub struct SettingsError {
    /// The member, such as `access.tokens[1].roles`.
    pub place: String,
    /// The problem and the fix.
    pub problem: String,
}

/// Timeouts for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// How long the first message of a gRPC stream may take; then DEADLINE_EXCEEDED. It also limits the first bytes of
    /// a connection, and over HTTP the head of the first request; then the connection is closed. HTTP/2 pings find
    /// half-dead connections; they are sent at twice this interval.
    pub hello: Duration,
    /// How long a stream may block because its client does not read. Then it ends with RESOURCE_EXHAUSTED; over HTTP
    /// the connection is closed.
    pub send: Duration,
    /// How long a revocation stream may go without a ping or a pull before it ends with DEADLINE_EXCEEDED. Also how long
    /// sent data may stay unacknowledged by the peer's kernel before the connection is closed.
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
    /// A problem with this member.
    pub fn at(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// A member's place, and a description of its allowed values.
#[derive(Debug)]
pub struct Field(pub &'static str, pub &'static str);

// === impl Field ===

impl Field {
    /// Checks the value.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn within<T: PartialOrd + Debug>(self, value: T, allowed: impl RangeBounds<T>) -> Result<(), SettingsError> {
        let Self(place, expected) = self;
        match allowed.contains(&value) {
            true => Ok(()),
            false => Err(SettingsError::at(place, format!("{value:?} is not {expected}"))),
        }
    }
}

/// For an optional member that must not be null. A template that leaves `client_ca:` empty by accident must not mean
/// that no certificate is required.
///
/// # Errors
/// The value is null, or not a `T`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Text without control characters, as a JSON Schema pattern.
pub const NO_CONTROLS: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";
