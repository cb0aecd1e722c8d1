//! Forgets revoked delegations whose ids no token can carry any more.
//!
//! A token that was issued before the revocation of its id expires at most the longest accepted lifetime after it. The
//! log announces that lifetime (`Welcome.max_token_lifetime_s`), and tokens that live longer are denied. After that
//! time, `exp` denies the token without the record. A filter that stays connected for years would otherwise fill up
//! with such records.
//!
//! Time here is Envoy's wall clock, which is also compared with `exp`: a clock that is wrong by the same amount for
//! both forgets nothing that a token could still carry. The danger is a clock that runs ahead *for a while*: the record
//! is forgotten, the clock is corrected, and the token is valid again. There are three measures against that:
//! 1. time is that of the slowest wall clock that this VM has seen (`SlowestClock`), so a forward jump has no effect;
//! 2. forgotten tokens are denied by their age: no token is accepted that was issued before the time up to which this
//!    view has forgotten revocations (`Memory::forgotten_before`). All older tokens have expired, unless the clock was
//!    set back;
//! 3. if an older token may still be valid, because the clock was set back or the log now allows longer lifetimes, the
//!    view is requested again.

use std::time::Duration;

use credence_delegation::UnixTime;

use super::subject_table::{Cursor, SubjectTable};
use crate::clock::{Monotonic, UnixNanos};

/// When a delegation was revoked: seconds since the Unix epoch, in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RevokedAt(u32);

/// Computes the time from the monotonic clock and the least observed lead of the wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowestClock {
    /// Seconds.
    least_ahead: Option<i64>,
}

/// A walk through the revoked delegations, started from time to time, which handles a few of them at each tick.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The position of the present walk.
    under_way: Option<Cursor>,
    /// The present or last walk forgets delegations that were revoked before this time.
    cutoff: Option<UnixTime>,
}

// === impl RevokedAt ===

impl RevokedAt {
    /// It is never forgotten. Later than any other.
    const NEVER_FORGOTTEN: Self = Self(u32::MAX);

    /// The time in the record; `None` if it is before the Unix epoch.
    pub(super) fn parse(seconds: i64) -> Option<Self> {
        match seconds {
            0 => Some(Self::NEVER_FORGOTTEN),
            ..0 => None,
            _ => Some(Self::at(UnixTime(seconds))),
        }
    }

    pub(super) fn at(instant: UnixTime) -> Self {
        u32::try_from(instant.0).map_or(Self::NEVER_FORGOTTEN, Self)
    }

    fn is_before(self, instant: UnixTime) -> bool {
        self != Self::NEVER_FORGOTTEN && i64::from(self.0) < instant.0
    }
}

// === impl SlowestClock ===

impl SlowestClock {
    /// Both clocks were read.
    pub(super) fn observe(&mut self, now: Monotonic, wall: UnixNanos) {
        let ahead = wall.second().saturating_sub(seconds(now));
        self.least_ahead = Some(self.least_ahead.map_or(ahead, |least| least.min(ahead)));
    }

    /// The time, at most a second before that of the slowest wall clock; `None` before the first reading.
    pub(super) fn at(&self, now: Monotonic) -> Option<UnixTime> {
        self.least_ahead
            .map(|ahead| UnixTime(seconds(now).saturating_add(ahead)))
    }
}

fn seconds(now: Monotonic) -> i64 {
    i64::try_from(now.since(Monotonic::default()).as_secs()).unwrap_or(i64::MAX)
}

// === impl Sweep ===

impl Sweep {
    /// Makes a step. If it has forgotten something, returns a time: all records that were revoked before it may be
    /// gone.
    pub(super) fn step(
        &mut self,
        delegations: &mut SubjectTable<RevokedAt>,
        now: UnixTime,
        token_lifetime: u64,
    ) -> Option<UnixTime> {
        let from = match self.under_way {
            Some(cursor) => cursor,
            None => {
                let age = token_lifetime.saturating_add(ALLOWANCE.as_secs());
                let cutoff = UnixTime(now.0.saturating_sub_unsigned(age));
                if self.cutoff.is_some_and(|last| cutoff < last.plus(PAUSE.as_secs())) {
                    return None;
                }
                self.cutoff = Some(cutoff);
                Cursor::default()
            }
        };
        let cutoff = self.cutoff?;
        let count = delegations.len();
        self.under_way = delegations.retain_in_next(from, BUCKETS_PER_STEP, |revoked_at| !revoked_at.is_before(cutoff));
        (delegations.len() < count).then_some(cutoff)
    }
}

/// Longer than the differences between the clocks of issuers, control plane and proxies.
const ALLOWANCE: Duration = Duration::from_secs(300);

/// Between two walks. Short compared with a lifetime.
const PAUSE: Duration = Duration::from_secs(3_600);

/// About 2,000 delegations in a step, so a million in half a minute of ticks.
const BUCKETS_PER_STEP: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revocation::subject_hash::SubjectHasher;

    const DAY: u64 = 86_400;
    const NOW: i64 = 1_700_000_000;

    fn monotonic(seconds: u64) -> Monotonic {
        Monotonic::default().plus(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    /// Delegations that were revoked this many days before `NOW`; those with `None` are never forgotten.
    fn revoked(days_ago: &[Option<i64>]) -> SubjectTable<RevokedAt> {
        let mut table = SubjectTable::new();
        for (number, days) in days_ago.iter().enumerate() {
            let revoked_at = days.map_or(0, |days| NOW - days * DAY as i64);
            let hash = SubjectHasher::new(&[7; 16]).delegation("issuer", None, &number.to_string());
            table.insert(hash, RevokedAt::parse(revoked_at).unwrap()).unwrap();
        }
        table
    }

    #[test]
    fn the_time_of_a_revocation_fits_or_it_is_never_forgotten() {
        assert_eq!(RevokedAt::parse(0), Some(RevokedAt::NEVER_FORGOTTEN));
        assert_eq!(RevokedAt::parse(i64::MAX), Some(RevokedAt::NEVER_FORGOTTEN));
        assert_eq!(RevokedAt::parse(1 << 32), Some(RevokedAt::NEVER_FORGOTTEN));
        assert_eq!(RevokedAt::parse(-1), None);
        assert!(!RevokedAt::NEVER_FORGOTTEN.is_before(UnixTime(i64::MAX)));
        assert!(RevokedAt::at(UnixTime(5)).is_before(UnixTime(6)));
        assert!(!RevokedAt::at(UnixTime(5)).is_before(UnixTime(5)));
        let later = RevokedAt::at(UnixTime(5)).max(RevokedAt::NEVER_FORGOTTEN);
        assert_eq!(later, RevokedAt::NEVER_FORGOTTEN);
    }

    #[test]
    fn a_forward_jump_of_the_clock_is_ignored() {
        let mut clock = SlowestClock::default();
        assert_eq!(clock.at(monotonic(1)), None);
        clock.observe(monotonic(10), wall(1_000));
        clock.observe(monotonic(11), wall(90_000));
        assert_eq!(clock.at(monotonic(12)), Some(UnixTime(1_002)));
    }

    #[test]
    fn a_clock_that_is_set_back_is_used() {
        let mut clock = SlowestClock::default();
        clock.observe(monotonic(10), wall(1_000));
        clock.observe(monotonic(11), wall(500));
        assert_eq!(clock.at(monotonic(12)), Some(UnixTime(501)));
    }

    #[test]
    fn ids_that_no_token_can_carry_are_forgotten() {
        let mut delegations = revoked(&[Some(91), Some(90), Some(1), None]);
        let mut sweep = Sweep::default();
        let cutoff = UnixTime(NOW - 90 * DAY as i64 - 300);
        assert_eq!(sweep.step(&mut delegations, UnixTime(NOW), 90 * DAY), Some(cutoff));
        assert_eq!(delegations.len(), 3);
    }

    #[test]
    fn between_two_walks_is_an_hour() {
        let mut delegations = revoked(&[Some(91), Some(90)]);
        let mut sweep = Sweep::default();
        sweep.step(&mut delegations, UnixTime(NOW), 90 * DAY).unwrap();
        assert_eq!(sweep.step(&mut delegations, UnixTime(NOW + 3_599), 90 * DAY), None);
        assert_eq!(delegations.len(), 1);
        assert!(sweep.step(&mut delegations, UnixTime(NOW + 3_600), 90 * DAY).is_some());
        assert_eq!(delegations.len(), 0);
    }

    #[test]
    fn a_walk_handles_a_few_at_a_time() {
        let mut delegations = revoked(&vec![Some(100); 50_000]);
        let mut sweep = Sweep::default();
        let mut steps = 0;
        while delegations.len() > 0 {
            let before = delegations.len();
            sweep.step(&mut delegations, UnixTime(NOW), 90 * DAY).unwrap();
            assert!(
                before - delegations.len() < 50_000 / 4,
                "{}",
                before - delegations.len()
            );
            steps += 1;
        }
        assert!(steps > 4);
        assert_eq!(sweep.step(&mut delegations, UnixTime(NOW), 90 * DAY), None);
    }

    #[test]
    fn absurd_lifetimes_and_times_forget_nothing() {
        for (now, lifetime) in [(NOW, u64::MAX), (i64::MIN, 0), (0, i64::MAX as u64)] {
            let mut delegations = revoked(&[Some(1), Some(15_000)]);
            assert_eq!(Sweep::default().step(&mut delegations, UnixTime(now), lifetime), None);
            assert_eq!(delegations.len(), 2);
        }
    }
}
