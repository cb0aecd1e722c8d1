//! The log's own clock, which decides when revoked delegations are forgotten.
//!
//! A delegation's id may be forgotten once every token that could carry it has expired. The wall clock must not decide
//! this: one minute with a clock that is a year ahead would forget all delegations. This clock starts where the last
//! process left it, and advances only with the monotonic clock. So:
//!
//! - It never advances by more than the time that has really passed. It stands still while no process runs.
//! - A revocation is stamped with this clock or the wall clock, whichever is later.
//! - It is forgotten when this clock has passed the stamp by a lifetime and an allowance.
//!
//! Between the two, at least a lifetime and the allowance have really passed, for any reading of the wall clock at any
//! time. Time that the clock loses while no process runs only keeps ids longer.
//!
//! **The lifetime may be raised** from one run to the next. Then a token that lives longer, and was refused until now,
//! could carry an id that was forgotten under the shorter lifetime. So before the log forgets anything, it notes the
//! latest stamp of the ids to be forgotten. All of them were revoked before that stamp, and a token that carries one
//! was issued at most the allowance after it. Such a token has expired if it lives no longer than the time that has
//! passed since the stamp. So filters are told at most that lifetime ([`Forgetting::announced`]): first the shorter
//! one, then more every second, up to the configured one.

//!
//! **Dates of raises**: a token without `rev_epoch` is invalid if it was issued before the last raise of its principal.
//! If a wall clock that was set back dated the raise, the token would seem newer than the raise. So revocations are
//! dated by a clock that starts at the wall clock's time, but not before this clock ([`LogClock::timestamps`]), and
//! never goes back while the process runs. A process that *starts* with a slow wall clock can date a raise too early,
//! but only by the total time in which no control plane ran. The latest stamp in the log would be a closer bound, but
//! is not used: if the wall clock was years ahead for a minute, every later raise would revoke fresh tokens for years.

use std::time::Instant;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogClock {
    begun: Instant,
    /// The time that it showed then, seconds since the Unix epoch.
    showed: i64,
}

/// When a revoked delegation may be forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forgetting {
    pub clock: LogClock,
    /// The longest configured lifetime of a token, in seconds.
    pub max_token_lifetime: u64,
    /// The note of earlier runs; none if this log has never forgotten anything.
    pub forgotten: Option<Forgotten>,
}

/// The note of what may be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Forgotten {
    /// Every delegation with an earlier stamp, seconds since the Unix epoch.
    #[prost(int64, tag = "1")]
    pub(crate) before: i64,
    /// The log's clock at that time.
    #[prost(int64, tag = "2")]
    pub(crate) clock: i64,
}

// === impl LogClock ===

impl LogClock {
    /// A clock that shows `seconds` since the Unix epoch at `begun`.
    pub(crate) fn showing(seconds: i64, begun: Instant) -> Self {
        Self { begun, showed: seconds }
    }

    /// The time at which a clock starts, in seconds since the Unix epoch: the noted time, if there is one.
    ///
    /// Revocations before the first note were stamped by the wall clock alone. `last_seen` is the latest time in the
    /// log; the clock starts at that time or earlier.
    pub(crate) fn beginning(noted: Option<i64>, wall: i64, last_seen: Option<i64>) -> i64 {
        noted.unwrap_or_else(|| last_seen.map_or(wall, |seen| seen.min(wall)))
    }

    /// Seconds since the Unix epoch: a time that has certainly passed.
    pub(crate) fn at(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.begun).as_secs();
        self.showed.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
    }

    /// The clock that dates revocations. It starts at the wall clock's time, or at this clock's if that is later.
    pub(crate) fn timestamps(self, wall: i64, now: Instant) -> Self {
        let behind = self.at(now).saturating_sub(wall);
        if behind > NOTEWORTHY {
            tracing::warn!(
                behind_s = behind,
                "the wall clock is behind the log's own clock, which dates revocations until the wall clock catches \
                 up. Set the wall clock; if it is right, the log was created with a clock that was ahead: start once \
                 with --reset-clock"
            );
        }
        Self {
            showed: self.showed.saturating_sub(behind.min(0)),
            ..self
        }
    }

    /// The stamp of a revocation. A wall clock that is ahead is used: tokens that become invalid too early can be
    /// minted again.
    pub(crate) fn stamp(&self, wall: i64, now: Instant) -> i64 {
        self.at(now).max(wall)
    }
}

// === impl Forgetting ===

impl Forgetting {
    /// What may be forgotten now. It must be noted first.
    pub(crate) fn due(&self, now: Instant) -> Forgotten {
        let clock = self.clock.at(now);
        Forgotten {
            before: clock
                .saturating_sub(seconds(self.max_token_lifetime))
                .saturating_sub(CLOCK_ALLOWANCE),
            clock,
        }
    }

    /// The longest lifetime, in seconds, of accepted tokens: no token of this lifetime can carry a forgotten id. Never
    /// 0, which would mean that nothing is forgotten.
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
    /// Whether a delegation that was revoked at this time may be forgotten. One without a time is never forgotten.
    pub(crate) fn covers(&self, revoked_at: i64) -> bool {
        revoked_at != 0 && revoked_at < self.before
    }
}

fn seconds(lifetime: u64) -> i64 {
    i64::try_from(lifetime).unwrap_or(i64::MAX)
}

/// The largest difference, in seconds, between the clocks of issuers and verifiers. Added to a token's lifetime.
const CLOCK_ALLOWANCE: i64 = 300;

/// A difference, in seconds, at which a warning is logged.
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
        // The time at which the last process stopped: correct, years behind and years ahead.
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
    fn a_revocation_without_a_time_is_never_forgotten() {
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
        // The last forgotten id, in a token from before its revocation with the longest accepted lifetime.
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
    fn a_log_without_a_clock_starts_at_its_latest_time_or_earlier() {
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
    fn time_continues_if_the_wall_clock_is_set_back() {
        let begun = Instant::now();
        let dates = LogClock::showing(0, begun).timestamps(1_000_000, begun);
        let minute = after(begun, 60);
        assert_eq!(dates.stamp(1_000_060, minute), 1_000_060);
        assert_eq!(dates.stamp(996_400, minute), 1_000_060, "set back by an hour");
        assert_eq!(dates.stamp(1_003_660, minute), 1_003_660, "set forward by an hour");
    }
}
