//! The numbers that a configuration may choose: what is accepted, and what is meant without one.

use std::time::Duration;

/// A number of things or bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) default: usize,
}

const fn range(least: usize, most: usize, default: usize) -> Range {
    Range { least, most, default }
}

/// Fields of `control_plane`.
pub(super) const MAX_SUBJECTS: Range = range(1_000, 10_000_000, 5_000_000);

/// Fields of `limits`. Every byte of a delegation and of a proof is read before it is known who sends it. With a signature
/// to check that stays below a millisecond (`make bench BENCH=cost`).
pub(super) const DELEGATION_BYTES: Range = range(1_024, 16_384, 16_384);
pub(super) const PROOF_BYTES: Range = range(512, 4_096, 4_096);
pub(super) const BODY_BYTES: Range = range(0, 1 << 20, 65_536);
pub(super) const HELD_REQUESTS: Range = range(16, 65_536, 1_024);
pub(super) const HELD_BYTES: Range = range(4 << 20, 1 << 30, 64 << 20);
pub(super) const DELEGATION_DEPTH: Range = range(0, 8, 8);
pub(super) const CACHE_ENTRIES: Range = range(0, 1_000_000, 4_096);
pub(super) const CACHE_BYTES: Range = range(0, 256 << 20, 32 << 20);
pub(super) const REFUSED_ENTRIES: Range = range(0, 1_000_000, 4_096);
pub(super) const REPEAT_ENTRIES: Range = range(0, 65_536, 1_024);
pub(super) const HOT_KEYS: Range = range(0, 1_024, 64);
pub(super) const SHARED_CACHE_ENTRIES: Range = range(0, 262_144, 4_096);

/// Fields of `audit`.
pub(super) const RING_ENTRIES: Range = range(64, 1_048_576, 16_384);
pub(super) const RING_BYTES: Range = range(65_536, 256 << 20, 16 << 20);
pub(super) const DENIALS_PER_SECOND: Range = range(1, 1_000_000, 100);

/// Lengths of lists.
pub(super) const MAX_AUDIENCE: usize = 32;
pub(super) const MAX_RULES: usize = 10_000;

/// Defaults of times; what is accepted is in `compile`, because it may depend on other fields.
pub(super) const DEFAULT_STALENESS: Duration = Duration::from_secs(5);
pub(super) const DEFAULT_PROOF_WINDOW: u64 = 30;
pub(super) const DEFAULT_IAT_SKEW: u64 = 30;
pub(super) const DEFAULT_TOKEN_LIFETIME: u64 = 90 * DAY;
pub(super) const DAY: u64 = 24 * 60 * 60;
/// A request is not to wait longer than a client takes for a fault.
pub(super) const MAX_SNAPSHOT_WAIT: Duration = Duration::from_millis(500);
