//! The time that revocations bear.

use std::time::{Duration, Instant};

use super::log::unix_seconds;

/// A wall clock that nobody sets back while the process runs.
///
/// A token without `rev_epoch` is void if it was issued before its principal was last raised. Were that raise dated by a
/// clock that has been set back, the token that it was to take away would seem younger than it.
#[derive(Debug)]
pub(super) struct Dating {
    begun: Instant,
    /// Seconds since the Unix epoch, by the wall clock, when it was `begun`.
    begun_at: i64,
}

// === impl Dating ===

impl Dating {
    pub(super) fn since_now() -> Self {
        Self {
            begun: Instant::now(),
            begun_at: unix_seconds(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_though_the_wall_clock_is_set_back() {
        let dating = Dating {
            begun: Instant::now(),
            begun_at: 1_000_000,
        };
        let minute = Duration::from_secs(60);
        assert_eq!(dating.at(1_000_060, minute), 1_000_060);
        assert_eq!(dating.at(996_400, minute), 1_000_060, "set back by an hour");
        assert_eq!(dating.at(1_003_660, minute), 1_003_660, "set forward by an hour");
    }
}
