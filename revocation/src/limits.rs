//! How a log is initialised, and the limits of the contract with the filters.

use std::time::Duration;

/// How an empty data folder is initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitOptions {
    /// Whether the log starts with a not-before time that revokes every root token issued before now. Only a first
    /// installation may do without it: after the loss of a folder, all earlier revocations would be undone.
    pub floor: bool,
}

// === impl InitOptions ===

impl Default for InitOptions {
    /// With the not-before time, which is always safe.
    fn default() -> Self {
        Self { floor: true }
    }
}

/// The longest time that filters may stay fresh after a planned stop, from the contract with the filters.
pub const MAX_DRAIN_PROMISE: Duration = Duration::from_secs(10);

/// The longest time that a filter may stay fresh without an echo.
pub const MAX_STALENESS: Duration = Duration::from_secs(60);

/// The longest time between two keys of the filters' shared caches.
pub const MAX_CACHE_KEY_ROTATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest lifetime of tokens that filters may be told to accept.
pub const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
