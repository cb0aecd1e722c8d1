//! The time that revocations bear.

use std::time::{Duration, Instant};

use crate::clock::LogClock;
use credence_runtime::time::unix_seconds;

/// A wall clock that does not go back while the process runs.
///
/// A token without `rev_epoch` is invalid if it was issued before its principal was last raised. Were that raise dated by a
/// clock that has been set back, the token that it was to take away would seem younger than it.
///
/// A process that is *started* with a slow clock would do the same. So time begins no earlier than the log's own clock
/// shows, which is time that is certain to have passed: such a clock can date a raise too early only by as long as no
/// control plane ran since the log was begun. The latest stamp in the log would be nearer, and is not believed: a wall
/// clock that was years ahead for a minute would have every later raise void fresh tokens for years. The log's own clock
/// cannot be led astray like that, except by the wall clock that it first began with.
#[derive(Debug)]
pub(super) struct Timestamps {
    begun: Instant,
    /// Seconds since the Unix epoch when it was `begun`, by the wall clock or the log's own.
    begun_at: i64,
}

// === impl Timestamps ===

impl Timestamps {
    pub(super) fn since_now(clock: &LogClock) -> Self {
        let begun = Instant::now();
        let wall = unix_seconds();
        let shown = clock.at(begun);
        if shown.saturating_sub(wall) > NOTEWORTHY {
            tracing::warn!(
                behind_s = shown.saturating_sub(wall),
                "the wall clock is behind the log's own, by which revocations are dated until it has caught up. Set the \
                 wall clock right; if it is, the log was begun with a clock that was ahead: start once with --reset-clock"
            );
        }
        Self {
            begun,
            begun_at: wall.max(shown),
        }
    }

    /// Seconds since the Unix epoch. A clock that is set forward is believed: what is void too early is minted anew.
    pub(super) fn now(&self) -> i64 {
        self.at(unix_seconds(), self.begun.elapsed())
    }

    fn at(&self, wall: i64, since_begun: Duration) -> i64 {
        let passed = i64::try_from(since_begun.as_secs()).unwrap_or(i64::MAX);
        wall.max(self.begun_at.saturating_add(passed))
    }
}

/// Seconds by which clocks differ that are kept right.
const NOTEWORTHY: i64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_no_earlier_than_the_logs_own_clock() {
        let shown = unix_seconds() + 3_600;
        let ahead = Timestamps::since_now(&LogClock::showing(shown, Instant::now()));
        assert!((shown..shown + 60).contains(&ahead.now()));
        let wall = unix_seconds();
        let behind = Timestamps::since_now(&LogClock::showing(wall - 3_600, Instant::now()));
        assert!((wall..wall + 60).contains(&behind.now()));
    }

    #[test]
    fn time_goes_on_though_the_wall_clock_is_set_back() {
        let dating = Timestamps {
            begun: Instant::now(),
            begun_at: 1_000_000,
        };
        let minute = Duration::from_secs(60);
        assert_eq!(dating.at(1_000_060, minute), 1_000_060);
        assert_eq!(dating.at(996_400, minute), 1_000_060, "set back by an hour");
        assert_eq!(dating.at(1_003_660, minute), 1_003_660, "set forward by an hour");
    }
}
