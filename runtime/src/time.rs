//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch; 0 before it.
#[must_use]
pub fn unix_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}
