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
//! Between the two, at least a lifetime and the allowance have really passed, independently of the wall clock before,
//! between and after. What the clock loses while no process runs only lets ids be kept longer.
//!
//! **The lifetime may be raised** from one run to the next. An id that was forgotten under the shorter one could then
//! be carried again, by a token that lives longer and was refused until now. So it is noted, before anything is
//! forgotten, up to which stamp ids may be. All that was forgotten had been revoked before that stamp, and a token that
//! carries it issued no later than the allowance after: one that lives no longer than what has really passed since then
//! has expired. Filters are therefore told no longer lifetime than that ([`Forgetting::announced`]): at first the shorter one, then, second by
//! second, more, up to the one that was configured.

//!
//! **What else is dated**: a token without `rev_epoch` is invalid if it was issued before its principal was last raised.
//! Were that raise dated by a wall clock that has been set back, the token that it was to take away would seem younger
//! than it. So revocations are dated by a clock that begins at the wall clock's time, but no earlier than this clock shows
//! ([`LogClock::timestamps`]), and does not go back while the process runs. A process that is *started* with a slow wall
//! clock can therefore date a raise too early only by as long as no control plane ran since the log was begun. The latest
//! stamp in the log would be nearer, and is not believed: a wall clock that was years ahead for a minute would have every
//! later raise revoke fresh tokens for years.

use std::time::Instant;

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
    pub clock: LogClock,
    /// The longest a token may live, in seconds, as it is configured.
    pub max_token_lifetime: u64,
    /// What is noted of earlier runs; nothing in a log of which nothing was ever forgotten.
    pub forgotten: Option<Forgotten>,
}

/// What may be forgotten, as it is noted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Forgotten {
    /// Every delegation that was stamped before this, seconds since the Unix epoch.
    #[prost(int64, tag = "1")]
    pub(crate) before: i64,
    /// What the log's clock showed then.
    #[prost(int64, tag = "2")]
    pub(crate) clock: i64,
}

// === impl LogClock ===

impl LogClock {
    /// A clock that shows `seconds` since the Unix epoch at `begun`.
    pub(crate) fn showing(seconds: i64, begun: Instant) -> Self {
        Self { begun, showed: seconds }
    }

    /// What a clock begins with, in seconds since the Unix epoch: with what was noted of it, if anything was.
    ///
    /// Revocations before the first note were stamped by the wall clock alone. `last_seen` is the latest time in the log:
    /// the clock begins no later than that.
    pub(crate) fn beginning(noted: Option<i64>, wall: i64, last_seen: Option<i64>) -> i64 {
        noted.unwrap_or_else(|| last_seen.map_or(wall, |seen| seen.min(wall)))
    }

    /// Seconds since the Unix epoch, as far as they are certain to have passed.
    pub(crate) fn at(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.begun).as_secs();
        self.showed.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// The clock by which revocations are dated: it shows the wall clock's time now, or this one's if that is later.
    pub(crate) fn timestamps(self, wall: i64, now: Instant) -> Self {
        let behind = self.at(now).saturating_sub(wall);
        if behind > NOTEWORTHY {
            tracing::warn!(
                behind_s = behind,
                "the wall clock is behind the log's own, by which revocations are dated until it has caught up. Set the \
                 wall clock right; if it is, the log was begun with a clock that was ahead: start once with --reset-clock"
            );
        }
        Self {
            showed: self.showed.saturating_sub(behind.min(0)),
            ..self
        }
    }

    /// What a revocation is stamped with. A wall clock that is set forward is believed: what is invalid too early is minted
    /// anew.
    pub(crate) fn stamp(&self, wall: i64, now: Instant) -> i64 {
        self.at(now).max(wall)
    }
}

// === impl Forgetting ===

impl Forgetting {
    /// What may be forgotten now, to be noted before it is.
    pub(crate) fn due(&self, now: Instant) -> Forgotten {
        let clock = self.clock.at(now);
        Forgotten {
            before: clock
                .saturating_sub(seconds(self.max_token_lifetime))
                .saturating_sub(CLOCK_ALLOWANCE),
            clock,
        }
    }

    /// The longest lifetime, in seconds, of tokens that may be believed: no id that is forgotten could be carried by a
    /// token that lives no longer. Never 0, which would say that nothing is forgotten.
    pub(crate) fn announced(&self, now: Instant) -> u64 {
        let Some(forgotten) = self.forgotten else {
            return self.max_token_lifetime;
        };
        let passed = self
            .clock
            .at(now)
            .saturating_sub(forgotten.before)
            .saturating_sub(CLOCK_ALLOWANCE);
        self.max_token_lifetime.min(u64::try_from(passed).unwrap_or(0).max(1))
    }
}

// === impl Forgotten ===

impl Forgotten {
    /// Whether a delegation that was revoked then may be forgotten. One without a time never is.
    pub(crate) fn covers(&self, revoked_at: i64) -> bool {
        revoked_at != 0 && revoked_at < self.before
    }
}

fn seconds(lifetime: u64) -> i64 {
    i64::try_from(lifetime).unwrap_or(i64::MAX)
}

/// How far the clocks of those who issue and those who check tokens may be apart, on top of a token's lifetime, in
/// seconds.
const CLOCK_ALLOWANCE: i64 = 300;

/// Seconds by which clocks differ that are kept right.
const NOTEWORTHY: i64 = 300;

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            forgotten: None,
        };
        let revoked_at = clock.stamp(WALL + 10, after(begun, 10));
        assert!(!forgetting.due(after(begun, 10 + LIFETIME + 300)).covers(revoked_at));
        assert!(forgetting.due(after(begun, 11 + LIFETIME + 300)).covers(revoked_at));
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
                forgotten: None,
            };
            for wall in [0, WALL - YEAR, WALL, WALL + YEAR] {
                let revoked_at = clock.stamp(wall, after(begun, 60));
                assert!(
                    !forgetting.due(after(begun, 60 + LIFETIME + 300)).covers(revoked_at),
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
            forgotten: None,
        };
        assert!(!forgetting.due(after(begun, u32::MAX.into())).covers(0));
    }

    #[test]
    fn after_the_lifetime_was_raised_no_token_is_believed_that_could_carry_what_was_forgotten() {
        let begun = Instant::now();
        let short = Forgetting {
            clock: LogClock::showing(WALL, begun),
            max_token_lifetime: LIFETIME,
            forgotten: None,
        };
        let forgotten = short.due(begun);
        let long = Forgetting {
            max_token_lifetime: 10 * LIFETIME,
            forgotten: Some(forgotten),
            ..short
        };
        assert_eq!(long.announced(begun), LIFETIME);
        // The last that was forgotten, in a token from before its revocation that lives for as long as is believed.
        let revoked_at = forgotten.before - 1;
        for passed in [0, 1, LIFETIME, 9 * LIFETIME, 20 * LIFETIME] {
            let now = after(begun, passed);
            assert!(
                revoked_at + (long.announced(now) as i64) < long.clock.at(now),
                "{passed}"
            );
        }
        assert_eq!(long.announced(after(begun, 9 * LIFETIME - 1)), 10 * LIFETIME - 1);
        assert_eq!(long.announced(after(begun, 9 * LIFETIME)), 10 * LIFETIME);
        // Nothing more is forgotten until then.
        assert!(long.due(after(begun, 9 * LIFETIME)).before <= forgotten.before);
    }

    #[test]
    fn a_lower_lifetime_counts_at_once() {
        let begun = Instant::now();
        let long = Forgetting {
            clock: LogClock::showing(WALL, begun),
            max_token_lifetime: 10 * LIFETIME,
            forgotten: None,
        };
        let short = Forgetting {
            max_token_lifetime: LIFETIME,
            forgotten: Some(long.due(begun)),
            ..long
        };
        assert_eq!(short.announced(begun), LIFETIME);
    }

    #[test]
    fn a_log_without_a_clock_begins_no_later_than_what_it_has_seen() {
        assert_eq!(LogClock::beginning(None, WALL, None), WALL);
        assert_eq!(LogClock::beginning(None, WALL + YEAR, Some(WALL)), WALL);
        assert_eq!(LogClock::beginning(None, WALL - YEAR, Some(WALL)), WALL - YEAR);
        let noted = WALL + 3 * YEAR;
        assert_eq!(LogClock::beginning(Some(noted), WALL, Some(WALL)), noted);
    }

    #[test]
    fn time_begins_no_earlier_than_the_logs_own_clock() {
        let begun = Instant::now();
        let clock = LogClock::showing(WALL, begun);
        assert_eq!(clock.timestamps(WALL - 3_600, begun).stamp(WALL - 3_600, begun), WALL);
        assert_eq!(clock.timestamps(WALL + 3_600, begun).stamp(WALL, begun), WALL + 3_600);
    }

    #[test]
    fn time_goes_on_though_the_wall_clock_is_set_back() {
        let begun = Instant::now();
        let dates = LogClock::showing(0, begun).timestamps(1_000_000, begun);
        let minute = after(begun, 60);
        assert_eq!(dates.stamp(1_000_060, minute), 1_000_060);
        assert_eq!(dates.stamp(996_400, minute), 1_000_060, "set back by an hour");
        assert_eq!(dates.stamp(1_003_660, minute), 1_003_660, "set forward by an hour");
    }
}
