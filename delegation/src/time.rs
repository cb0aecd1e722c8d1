//! Time in tokens.

use std::fmt;

/// Seconds since the Unix epoch: a NumericDate of RFC 7519 without its fraction (draft section 3.2).
///
/// Arithmetic saturates, so that no claim can make a comparison wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub i64);

impl UnixTime {
    /// This instant moved forward by `seconds`.
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add_unsigned(seconds))
    }

    /// The distance between two times, in seconds.
    pub fn distance(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
