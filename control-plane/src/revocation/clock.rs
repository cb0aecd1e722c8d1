//! The log's own clock, by which revoked delegations are forgotten.
//!
//! A delegation's id may be forgotten once every token that could carry it has expired. The wall clock must not decide
//! that: set a year ahead for a minute, it would have everything forgotten that was revoked in the last 90 days. This
//! clock begins where the last process left it, advances with the monotonic clock, and by nothing else. So:
//!
//! - it never advances by more than the time that has really passed (while no process runs, it stands still);
//! - a revocation is stamped with this clock or the wall clock, whichever is later;
//! - it is forgotten when this clock has gone beyond the stamp by a lifetime and an allowance.
//!
//! Between the two, at least a lifetime and the allowance have really passed, whatever the wall clock did before,
//! between and after. What the clock loses while no process runs only lets ids be kept longer.

use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogClock {
    begun: Instant,
    /// What it showed then, seconds since the Unix epoch.
    showed: i64,
}

/// When a revoked delegation may be forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forgetting {
    pub(crate) clock: LogClock,
    /// The longest a token may live, in seconds.
    pub(crate) max_token_lifetime: u64,
}

// === impl LogClock ===

impl LogClock {
    /// A clock that shows `seconds` since the Unix epoch at `begun`.
    pub(crate) fn showing(seconds: i64, begun: Instant) -> Self {
        Self { begun, showed: seconds }
    }

    /// What a clock begins with that nobody kept: a new log's, or that of a log from before it had one. Revocations
    /// of such a log were stamped by the wall clock alone; the clock begins no later than the last of them.
    pub(crate) fn first(wall: i64, last_seen: Option<i64>) -> i64 {
        last_seen.map_or(wall, |seen| seen.min(wall))
    }

    /// Seconds since the Unix epoch, as far as they are certain to have passed.
    pub(crate) fn at(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.begun).as_secs();
        self.showed.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// What a revocation is stamped with.
    pub(crate) fn stamp(&self, wall: i64, now: Instant) -> i64 {
        self.at(now).max(wall)
    }
}

// === impl Forgetting ===

impl Forgetting {
    /// Whether a delegation that was revoked then, may be forgotten now. One without a time never is.
    pub(crate) fn is_over(&self, revoked_at: i64, now: Instant) -> bool {
        let kept = i64::try_from(self.max_token_lifetime.saturating_add(CLOCK_ALLOWANCE.as_secs())).unwrap_or(i64::MAX);
        revoked_at != 0 && self.clock.at(now) > revoked_at.saturating_add(kept)
    }
}

/// How far the clocks of those who issue and those who check tokens may be apart, on top of a token's lifetime.
const CLOCK_ALLOWANCE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: i64 = 1_800_000_000;
    const LIFETIME: u64 = 3_600;
    const YEAR: i64 = 31_536_000;

    fn after(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn a_delegation_is_forgotten_a_lifetime_and_the_allowance_after_its_revocation() {
        let begun = Instant::now();
        let clock = LogClock::showing(WALL, begun);
        let forgetting = Forgetting {
            clock,
            max_token_lifetime: LIFETIME,
        };
        let revoked_at = clock.stamp(WALL + 10, after(begun, 10));
        assert!(!forgetting.is_over(revoked_at, after(begun, 10 + LIFETIME + 300)));
        assert!(forgetting.is_over(revoked_at, after(begun, 11 + LIFETIME + 300)));
    }

    #[test]
    fn however_the_wall_clock_jumps_nothing_is_forgotten_before_its_time_has_really_passed() {
        let begun = Instant::now();
        // What the last process left, against the true time: as true, years behind and years ahead.
        for left in [WALL, WALL - 3 * YEAR, WALL + 3 * YEAR] {
            let clock = LogClock::showing(left, begun);
            let forgetting = Forgetting {
                clock,
                max_token_lifetime: LIFETIME,
            };
            for wall in [0, WALL - YEAR, WALL, WALL + YEAR] {
                let revoked_at = clock.stamp(wall, after(begun, 60));
                assert!(
                    !forgetting.is_over(revoked_at, after(begun, 60 + LIFETIME + 300)),
                    "{left} {wall}"
                );
            }
        }
    }

    #[test]
    fn what_has_no_time_is_never_forgotten() {
        let begun = Instant::now();
        let forgetting = Forgetting {
            clock: LogClock::showing(WALL, begun),
            max_token_lifetime: LIFETIME,
        };
        assert!(!forgetting.is_over(0, after(begun, u32::MAX.into())));
    }

    #[test]
    fn a_log_without_a_clock_begins_no_later_than_what_it_has_seen() {
        assert_eq!(LogClock::first(WALL, None), WALL);
        assert_eq!(LogClock::first(WALL + YEAR, Some(WALL)), WALL);
        assert_eq!(LogClock::first(WALL - YEAR, Some(WALL)), WALL - YEAR);
    }
}
