//! Limits of lists, and defaults of durations. The accepted ranges of durations are in `compile`, because they may
//! depend on other fields. Counts have their ranges in their types.

use std::time::Duration;

pub(super) const MAX_AUDIENCE: usize = 32;
pub(super) const MAX_RULES: usize = 10_000;

pub(super) const DEFAULT_STALENESS: Duration = Duration::from_secs(5);
pub(super) const DEFAULT_PROOF_WINDOW: u64 = 30;
pub(super) const DEFAULT_IAT_SKEW: u64 = 30;
pub(super) const DEFAULT_TOKEN_LIFETIME: u64 = 90 * DAY;
pub(super) const DAY: u64 = 24 * 60 * 60;
/// A request must not wait so long that the client takes it for a failure.
pub(super) const MAX_SNAPSHOT_WAIT: Duration = Duration::from_millis(500);

/// How long a request to an MCP server may take.
pub(super) const DEFAULT_MAX_STREAM: Duration = Duration::from_secs(3_600);
