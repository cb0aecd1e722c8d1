//! Forgetting revoked delegations whose ids no token can carry any more.
//!
//! A token that was issued before its id was revoked expires at most the longest accepted lifetime after that; the log
//! says which lifetime that is (`Welcome.max_token_lifetime_s`), and tokens that live longer are denied. From then on the
//! record says nothing that `exp` does not say too, and a filter that stays connected for years would fill up with them.
//!
//! Time here is Envoy's wall clock, which is also what `exp` is compared with: a clock that is wrong by the same amount
//! for both forgets nothing that a token could still carry. What would be fatal is a clock that runs ahead *for a while*:
//! the record is gone, the clock is put right, and the token lives again. So three things are done about it:
//! 1. time is told by the slowest wall clock that this VM has seen (`SlowestClock`): a jump forward changes nothing;
//! 2. what was forgotten is denied by its age: no token counts that was issued before the instant up to which this view
//!    has forgotten revocations (`Memory::forgotten_before`). None that is older lives, unless the clock was put back;
//! 3. if one could, because the clock was put back or the log now reckons with longer lifetimes, the view is pulled anew.

use std::time::Duration;

use credence_delegation::UnixTime;

use super::table::{Cursor, Table};
use super::view::InvalidRecord;
use crate::clock::{Monotonic, UnixNanos};

/// When a delegation was revoked: seconds since the Unix epoch, in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RevokedAt(u32);

/// Tells the time by the monotonic clock and the least that the wall clock was ever ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowestClock {
    /// Seconds.
    least_ahead: Option<i64>,
}

/// A walk through the revoked delegations that is begun from time to time and takes a few of them with each tick.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Where the present walk goes on.
    under_way: Option<Cursor>,
    /// What was revoked before this instant goes, or went with the last walk.
    cutoff: Option<UnixTime>,
}

// === impl RevokedAt ===

impl RevokedAt {
    /// It is never forgotten. Later than any other.
    const NEVER_FORGOTTEN: Self = Self(u32::MAX);

    /// As the record has it.
    pub(super) fn parse(seconds: i64) -> Result<Self, InvalidRecord> {
        match seconds {
            0 => Ok(Self::NEVER_FORGOTTEN),
            ..0 => Err(InvalidRecord::NegativeRevocation(seconds)),
            _ => Ok(Self::at(UnixTime(seconds))),
        }
    }

    pub(super) fn at(instant: UnixTime) -> Self {
        u32::try_from(instant.0).map_or(Self::NEVER_FORGOTTEN, Self)
    }

    pub(super) fn later(self, other: Self) -> Self {
        self.max(other)
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

    /// The time, which is at most a second before that of the slowest wall clock; `None` before any was read.
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
    /// Goes a step further. If it has forgotten something, says what: all that was revoked before this instant may be
    /// gone.
    pub(super) fn step(
        &mut self,
        delegations: &mut Table<RevokedAt>,
        now: UnixTime,
        token_lifetime: u64,
    ) -> Option<UnixTime> {
        let from = match self.under_way {
            Some(cursor) => cursor,
            None => {
                let cutoff = before(now, token_lifetime.saturating_add(ALLOWANCE.as_secs()));
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

fn before(now: UnixTime, seconds: u64) -> UnixTime {
    UnixTime(now.0.saturating_sub_unsigned(seconds))
}

/// Longer than the clocks of issuers, control plane and proxies may differ.
const ALLOWANCE: Duration = Duration::from_secs(300);

/// Between two walks: what could have been forgotten earlier by this is small beside a lifetime.
const PAUSE: Duration = Duration::from_secs(3_600);

/// Some 4,000 delegations in a step, which takes some 20 microseconds: a million in a quarter of a minute.
const BUCKETS_PER_STEP: usize = 128;
