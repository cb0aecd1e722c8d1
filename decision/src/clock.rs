//! Times in the filter. Nothing here reads a clock: time is an argument.

use std::time::Duration;

/// A time of the host's monotonic clock: nanoseconds since an arbitrary start.
///
/// The wall clock may jump, so leases, back-offs and watchdogs use this one. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

/// A time of the wall clock: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

/// Computes the wall clock's time from the monotonic clock's and a time at which both were read. It saves one host call
/// for each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    set: Option<(Monotonic, UnixNanos)>,
}

/// When the decision of a request began.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    /// By the wall clock.
    pub wall: UnixNanos,
    /// By the monotonic clock, since the last wait.
    pub monotonic: Monotonic,
    /// The time that the decision took before the wait, if there was one.
    spent: Duration,
}

// === impl WallClock ===

impl WallClock {
    /// Both clocks were read.
    pub fn set(&mut self, now: Monotonic, wall: UnixNanos) {
        self.set = Some((now, wall));
    }

    /// The wall clock's time at the last reading; 0 if it was never read.
    pub fn latest(&self) -> UnixNanos {
        self.set.map(|set| set.1).unwrap_or_default()
    }

    /// The wall clock's time, if both clocks were read at most `MAX_DRIFT` ago. So a jump of the wall clock is noticed
    /// within that time.
    pub fn at(&self, now: Monotonic) -> Option<UnixNanos> {
        let (set, wall) = self.set?;
        let passed = now.since(set);
        (passed <= MAX_DRIFT).then(|| UnixNanos(wall.0.saturating_add(saturating_nanos(passed))))
    }
}

// === impl Monotonic ===

impl Monotonic {
    /// This time plus `duration`; it saturates at the maximum (584 years).
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

// === impl UnixNanos ===

impl UnixNanos {
    /// The second of this time, since the Unix epoch: for comparison with a token's `iat` and `exp`.
    pub fn second(self) -> i64 {
        // A u64 of nanoseconds is at most 1.8e10 seconds, so the conversion always fits.
        i64::try_from(self.0 / NANOS_PER_SECOND).unwrap_or(i64::MAX)
    }
}

// === impl Began ===

impl Began {
    /// A decision that begins now.
    pub fn new(monotonic: Monotonic, wall: UnixNanos) -> Self {
        Self {
            wall,
            monotonic,
            spent: Duration::ZERO,
        }
    }

    /// How long the decision has taken by `now`, without waits of the request.
    pub fn took(self, now: Monotonic) -> Duration {
        now.since(self.monotonic).saturating_add(self.spent)
    }

    /// From `now` on the request waits, which is not the filter's time.
    pub fn paused(self, now: Monotonic) -> Self {
        Self {
            spent: self.took(now),
            ..self
        }
    }

    /// From `now` on, it no longer waits.
    pub fn resumed(self, now: Monotonic) -> Self {
        Self { monotonic: now, ..self }
    }

    /// A decision that begins now, and continues the paused one.
    pub fn after(self, paused: Self) -> Self {
        Self {
            spent: paused.spent,
            ..self
        }
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How long the wall clock's time is computed from the monotonic clock's.
const MAX_DRIFT: Duration = Duration::from_millis(100);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_since_a_future_instant_is_zero() {
        let now = Monotonic(5);
        assert_eq!(now.since(Monotonic(7)), Duration::ZERO);
        assert_eq!(now.since(Monotonic(2)), Duration::from_nanos(3));
    }

    #[test]
    fn addition_saturates() {
        assert_eq!(Monotonic(1).plus(Duration::MAX), Monotonic(u64::MAX));
    }

    #[test]
    fn the_wall_clock_follows_the_monotonic_clock_for_a_moment() {
        let mut clock = WallClock::default();
        let at = |millis: u64| Monotonic(millis * 1_000_000);
        assert_eq!(clock.at(at(0)), None, "it was never read");
        clock.set(at(1000), UnixNanos(7_000_000_000));
        assert_eq!(clock.at(at(1100)), Some(UnixNanos(7_100_000_000)));
        assert_eq!(clock.at(at(1101)), None, "too long ago");
    }

    #[test]
    fn the_wait_of_a_request_is_not_part_of_its_decision_time() {
        let at = |millis: u64| Monotonic(millis * 1_000_000);
        let paused = Began::new(at(10), UnixNanos(1)).paused(at(13));
        let later = Began::new(at(500), UnixNanos(2)).after(paused);
        assert_eq!(later.took(at(504)), Duration::from_millis(7));
        assert_eq!(later.wall, UnixNanos(2));
        assert_eq!(paused.resumed(at(900)).took(at(901)), Duration::from_millis(4));
    }

    #[test]
    fn a_unix_time_has_a_second() {
        assert_eq!(UnixNanos(1_999_999_999).second(), 1);
        assert_eq!(UnixNanos(u64::MAX).second(), 18_446_744_073);
    }
}
