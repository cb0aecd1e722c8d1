//! Instants as the filter knows them. Nothing here reads a clock: time enters the core as an argument.

use std::time::Duration;

/// An instant of the host's monotonic clock: nanoseconds since an arbitrary start.
///
/// The wall clock may jump; leases, back-offs and watchdogs therefore run on this one only. All arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

/// An instant of the wall clock: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

/// Tells the wall clock's time by the monotonic clock's, from an instant at which both were read: one host call less
/// for every request.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    set: Option<(Monotonic, UnixNanos)>,
}

/// When the decision of a request was begun.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    /// By the wall clock.
    pub wall: UnixNanos,
    /// By the monotonic clock, since it last had to wait.
    pub monotonic: Monotonic,
    /// What the decision took before the request had to wait, if it had to.
    spent: Duration,
}

// === impl WallClock ===

impl WallClock {
    /// Both clocks were read.
    pub fn set(&mut self, now: Monotonic, wall: UnixNanos) {
        self.set = Some((now, wall));
    }

    /// The wall clock's time as it was read last; the beginning of time if it never was.
    pub fn latest(&self) -> UnixNanos {
        self.set.map(|set| set.1).unwrap_or_default()
    }

    /// The wall clock's time, if the clocks were both read not longer ago than `MAX_DRIFT`. A step of the wall clock is
    /// noticed no later than that.
    pub fn at(&self, now: Monotonic) -> Option<UnixNanos> {
        let (set, wall) = self.set?;
        let passed = now.since(set);
        (passed <= MAX_DRIFT).then(|| UnixNanos(wall.0.saturating_add(saturating_nanos(passed))))
    }
}

// === impl Monotonic ===

impl Monotonic {
    /// This instant moved into the future; the end of time (584 years) is sticky.
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
    /// The second this instant falls in, since the Unix epoch: what a token's `iat` and `exp` are compared with.
    pub fn second(self) -> i64 {
        // A u64 of nanoseconds is at most 1.8e10 seconds, so that the conversion always fits.
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

    /// How long the decision has taken by `now`, without what the request had to wait.
    pub fn took(self, now: Monotonic) -> Duration {
        now.since(self.monotonic).saturating_add(self.spent)
    }

    /// From `now` on the request has to wait, and that is none of the filter's time.
    pub fn paused(self, now: Monotonic) -> Self {
        Self {
            spent: self.took(now),
            ..self
        }
    }

    /// From `now` on it waits no longer.
    pub fn resumed(self, now: Monotonic) -> Self {
        Self { monotonic: now, ..self }
    }

    /// A decision that begins now, and goes on with what was paused.
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

/// How long the wall clock's time is told by the monotonic clock's.
const MAX_DRIFT: Duration = Duration::from_millis(100);

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_in_the_future_is_no_time_ago() {
        let now = Monotonic(5);
        assert_eq!(now.since(Monotonic(7)), Duration::ZERO);
        assert_eq!(now.since(Monotonic(2)), Duration::from_nanos(3));
    }

    #[test]
    fn the_end_of_time_is_sticky() {
        assert_eq!(Monotonic(1).plus(Duration::MAX), Monotonic(u64::MAX));
    }

    #[test]
    fn the_wall_clock_is_told_by_the_monotonic_clock_for_a_moment() {
        let mut clock = WallClock::default();
        let at = |millis: u64| Monotonic(millis * 1_000_000);
        assert_eq!(clock.at(at(0)), None, "it was never read");
        clock.set(at(1000), UnixNanos(7_000_000_000));
        assert_eq!(clock.at(at(1100)), Some(UnixNanos(7_100_000_000)));
        assert_eq!(clock.at(at(1101)), None, "too long ago");
    }

    #[test]
    fn the_wait_of_a_request_is_none_of_its_decisions_time() {
        let at = |millis: u64| Monotonic(millis * 1_000_000);
        let paused = Began::new(at(10), UnixNanos(1)).paused(at(13));
        let later = Began::new(at(500), UnixNanos(2)).after(paused);
        assert_eq!(later.took(at(504)), Duration::from_millis(7));
        assert_eq!(later.wall, UnixNanos(2));
        assert_eq!(paused.resumed(at(900)).took(at(901)), Duration::from_millis(4));
    }

    #[test]
    fn a_unix_instant_knows_its_second() {
        assert_eq!(UnixNanos(1_999_999_999).second(), 1);
        assert_eq!(UnixNanos(u64::MAX).second(), 18_446_744_073);
    }
}
