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
//!
//! **The lifetime may be raised** from one run to the next. An id that was forgotten under the shorter one could then
//! be carried again, by a token that lives longer and was refused until now. So it is noted, before anything is
//! forgotten, up to which stamp ids may be. Whatever was forgotten had been revoked before that stamp, and a token that
//! carries it issued no later than the allowance after: one that lives no longer than what has really passed since then
//! has expired. Filters are therefore told no longer lifetime than that ([`Forgetting::announced`]): at first the shorter one, then, second by
//! second, more, up to the one that was configured.

use std::time::Instant;

use crate::data_folder::{DataFolderError, LogNotes};
use crate::limits::MAX_TOKEN_LIFETIME;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct LogClock {
    begun: Instant,
    /// What it showed then, seconds since the Unix epoch.
    showed: i64,
}

/// When a revoked delegation may be forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Forgetting {
    pub clock: LogClock,
    /// The longest a token may live, in seconds, as it is configured.
    pub max_token_lifetime: u64,
    /// What is noted of earlier runs; nothing in a log of which nothing was ever forgotten.
    pub forgotten: Option<Forgotten>,
}

/// What may be forgotten, as it is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Every delegation that was stamped before this, seconds since the Unix epoch.
    pub(crate) before: i64,
    /// What the log's clock showed then.
    pub(crate) clock: i64,
}

/// What the clock begins with and what is noted as forgotten, as far as both can be true. `last_seen` is the latest time
/// in the log.
///
/// A clock that is ahead has ids forgotten whose tokens still live, so a damaged file is refused. What an older version
/// wrote has no checksum: it is believed if it is no further than [`PLAUSIBLY_AHEAD`] ahead of the later of the wall
/// clock and the log's latest entry.
pub fn read_clock(
    notes: &LogNotes,
    wall: i64,
    last_seen: Option<i64>,
) -> Result<(i64, Option<Forgotten>), DataFolderError> {
    let forgotten = notes.forgotten()?;
    let clock = notes.clock()?;
    let latest = wall.max(last_seen.unwrap_or(wall)).saturating_add(PLAUSIBLY_AHEAD);
    if clock.is_some_and(|clock| !clock.is_checked && clock.value > latest) {
        return Err(notes.implausible_clock());
    }
    let shows = match (clock, forgotten) {
        // Noting the clock may have failed; what both say under a checksum was so.
        (Some(clock), Some(forgotten)) if clock.is_checked && forgotten.is_checked => {
            clock.value.max(forgotten.value.clock)
        }
        (Some(clock), _) => clock.value,
        (None, Some(forgotten)) => forgotten.value.clock,
        (None, None) => LogClock::first(wall, last_seen),
    };
    if let Some(forgotten) = forgotten {
        let is_behind_clock = forgotten.value.clock <= shows.saturating_add(NOTED_EARLIER);
        let is_plausible = forgotten.is_checked || forgotten.value.clock <= latest;
        if !forgotten.value.fits_together() || !is_behind_clock || !is_plausible {
            return Err(notes.implausible_forgotten());
        }
        if !forgotten.is_checked {
            notes.give_forgotten_a_checksum(forgotten.value)?;
        }
    }
    Ok((shows, forgotten.map(|forgotten| forgotten.value)))
}

// === impl LogClock ===

impl LogClock {
    /// A clock that shows `seconds` since the Unix epoch at `begun`.
    pub fn showing(seconds: i64, begun: Instant) -> Self {
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

    /// Whether some lifetime that can be configured leads from one time to the other.
    fn fits_together(&self) -> bool {
        let lifetime = self.clock.saturating_sub(self.before).saturating_sub(CLOCK_ALLOWANCE);
        u64::try_from(lifetime).is_ok_and(|lifetime| lifetime <= MAX_TOKEN_LIFETIME.as_secs())
    }
}

fn seconds(lifetime: u64) -> i64 {
    i64::try_from(lifetime).unwrap_or(i64::MAX)
}

/// How far the clocks of those who issue and those who check tokens may be apart, on top of a token's lifetime, in
/// seconds.
const CLOCK_ALLOWANCE: i64 = 300;
/// How far a clock without a checksum may be ahead of the later of the wall clock and the latest entry, in
/// seconds: as far as the clocks
/// of two machines may be apart on which an older version has run.
const PLAUSIBLY_AHEAD: i64 = 3_600;
/// What is forgotten is noted up to a minute before the clock is noted once more, in seconds.
const NOTED_EARLIER: i64 = 300;

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
    fn only_a_checksum_or_plausible_times_are_believed() {
        use crate::data_folder::{DataFolder, take_lock};
        use crate::limits::InitOptions;
        let folder = tempfile::tempdir().unwrap();
        let lock = take_lock(folder.path(), true, None).unwrap();
        let file = DataFolder::open(lock, Some(InitOptions { floor: false }), WALL)
            .unwrap()
            .notes();
        let read = |last_seen| read_clock(&file, WALL, last_seen).map_err(|error| error.to_string());
        let plain = |name: &str, text: String| std::fs::write(folder.path().join("log").join(name), text).unwrap();
        assert_eq!(read(None), Ok((WALL, None)));

        // Written by us: also far ahead, as where the log was begun with a wall clock that was.
        file.write_clock(WALL + 3 * YEAR).unwrap();
        assert_eq!(read(None), Ok((WALL + 3 * YEAR, None)));
        // Written by an older version.
        plain("clock", format!("{}\n", WALL + YEAR));
        assert!(read(Some(WALL)).unwrap_err().contains("log/clock is damaged"));
        assert_eq!(
            read(Some(WALL + YEAR)),
            Ok((WALL + YEAR, None)),
            "the log has seen as much"
        );
        plain("clock", format!("{}\n", WALL - YEAR));
        assert_eq!(read(Some(WALL)), Ok((WALL - YEAR, None)), "ids are kept longer");

        file.write_clock(WALL).unwrap();
        let due = |before, clock| Forgotten { before, clock };
        let lifetime = LIFETIME as i64 + CLOCK_ALLOWANCE;
        let good = due(WALL - lifetime, WALL);
        file.note_forgotten(good).unwrap();
        assert_eq!(read(None), Ok((WALL, Some(good))));
        plain("forgotten", format!("{} {}\n", good.before, good.clock));
        assert_eq!(read(None), Ok((WALL, Some(good))));
        assert!(file.forgotten().unwrap().unwrap().is_checked);
        for wrong in [
            due(WALL, WALL),
            due(WALL - 2 * YEAR, WALL),
            due(WALL + YEAR - lifetime, WALL + YEAR),
        ] {
            plain("forgotten", format!("{} {}\n", wrong.before, wrong.clock));
            assert!(
                read(None).unwrap_err().contains("log/forgotten is damaged"),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_log_without_a_clock_begins_no_later_than_what_it_has_seen() {
        assert_eq!(LogClock::first(WALL, None), WALL);
        assert_eq!(LogClock::first(WALL + YEAR, Some(WALL)), WALL);
        assert_eq!(LogClock::first(WALL - YEAR, Some(WALL)), WALL - YEAR);
    }
}
