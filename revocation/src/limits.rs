//! How a log begins, and the widest bounds of the contract with the filters.

use std::time::Duration;

/// How an empty data folder becomes a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitOptions {
    /// Whether the log starts with a floor that voids every root token issued before now. Only a first installation
    /// may do without: after a lost folder, a log without a floor would revive everything that had been revoked.
    pub floor: bool,
}

// === impl InitOptions ===

impl Default for InitOptions {
    /// With a floor: the safe choice when in doubt.
    fn default() -> Self {
        Self { floor: true }
    }
}

/// How long filters stay fresh at most after a planned stop, from the contract with the filters.
pub const MAX_DRAIN_PROMISE: Duration = Duration::from_secs(10);

/// The longest that a filter may stay fresh without an echo.
pub const MAX_STALENESS: Duration = Duration::from_secs(60);

/// The longest between two keys of the filters' shared caches.
pub const MAX_CACHE_KEY_ROTATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest life of a token that filters may be told to believe.
pub const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
