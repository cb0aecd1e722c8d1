//! The system's clock, and times as text.

use std::time::{Duration, SystemTime};

use credence_delegation::UnixTime;

use crate::stderr;

/// The current time.
pub(crate) fn now() -> UnixTime {
    UnixTime(prost_types::Timestamp::from(SystemTime::now()).seconds)
}

/// The instant in RFC 3339, in UTC.
pub(crate) fn rfc3339(time: UnixTime) -> String {
    prost_types::Timestamp {
        seconds: time.0,
        nanos: 0,
    }
    .to_string()
}

/// How far `time` is after or before `now`, in words: `in 5 minutes`, `2 days ago`.
pub(crate) fn relative(time: UnixTime, now: UnixTime) -> String {
    let distance = time.distance(now);
    let (count, unit) = [(DAY, "day"), (3_600, "hour"), (60, "minute")]
        .into_iter()
        .find(|(seconds, _)| distance >= *seconds)
        .map_or((distance, "second"), |(seconds, unit)| (distance / seconds, unit));
    let plural = if count == 1 { "" } else { "s" };
    if time > now {
        format!("in {count} {unit}{plural}")
    } else {
        format!("{count} {unit}{plural} ago")
    }
}

/// A time option: whole seconds since the Unix epoch.
pub(crate) fn unix_seconds(text: &str) -> Result<i64, String> {
    unix_seconds_up_to(LATEST, text)
}

/// The same, at most `latest`.
pub(crate) fn unix_seconds_up_to(latest: i64, text: &str) -> Result<i64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0..=latest).contains(seconds));
    seconds.ok_or_else(|| {
        format!(
            "write whole seconds since the Unix epoch, from 0 to {latest}, which is {}",
            rfc3339(UnixTime(latest))
        )
    })
}

/// Warns if `--issued-at` is more than a day from the clock, for example because it is in milliseconds.
pub(crate) fn warn_if_far_off(issued_at: Option<i64>) {
    let now = now();
    if let Some(given) = issued_at.map(UnixTime).filter(|given| given.distance(now) > DAY) {
        stderr::print(format_args!(
            "credence: warning: --issued-at {} is {}, {} by the clock of this machine",
            given.0,
            rfc3339(given),
            relative(given, now)
        ));
    }
}

/// A duration option: a whole number and its unit, such as `90s`, `15m`, `1h` or `30d`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', DAY)];
    units
        .into_iter()
        .find_map(|(unit, seconds)| {
            let digits = text.strip_suffix(unit)?;
            let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_whole)?.checked_mul(seconds)
        })
        .map(Duration::from_secs)
        .ok_or_else(|| "write a whole number and its unit, such as 90s, 15m, 1h or 30d".to_owned())
}

/// A time option: how long ago (`1h`), RFC 3339, or a date, which is its beginning in UTC. Returns RFC 3339, in UTC.
pub(crate) fn instant(text: &str) -> Result<String, String> {
    if let Ok(ago) = span(text) {
        let past = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
        return Ok(rfc3339(UnixTime(now().0.saturating_sub(past).max(0))));
    }
    match text.parse::<prost_types::Timestamp>() {
        Ok(instant) => Ok(instant.to_string()),
        Err(_) => Err(format!(
            "write how long ago it was, such as 15m, 1h or 30d, or the instant in RFC 3339, such as {}",
            rfc3339(now())
        )),
    }
}

/// Seconds.
const DAY: u64 = 86_400;

/// The last second that RFC 3339 can express.
pub(crate) const LATEST: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_whole_number_with_its_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("30d", 2_592_000), ("0s", 0)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "s",
            "1",
            "1.5h",
            "-1h",
            "+1h",
            "1 h",
            "1w",
            "99999999999999999999d",
            "1é",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_instant_is_how_long_ago_or_rfc_3339() {
        let hour_ago = now().0 - 3_600;
        let written = instant("1h").unwrap();
        assert!(
            (hour_ago..hour_ago + 5).any(|second| written == rfc3339(UnixTime(second))),
            "{written}"
        );
        for (text, written) in [
            ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z"),
            ("2027-01-15T09:00:00.000000001+01:00", "2027-01-15T08:00:00.000000001Z"),
            ("2027-01-15", "2027-01-15T00:00:00Z"),
        ] {
            assert_eq!(instant(text).as_deref(), Ok(written));
        }
        for text in ["yesterday", "", "1 h"] {
            assert!(instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_read_as_people_write_them() {
        let now = UnixTime(1_704_067_500);
        assert_eq!(rfc3339(now), "2024-01-01T00:05:00Z");
        for (seconds, words) in [
            (0, "0 seconds ago"),
            (59, "in 59 seconds"),
            (60, "in 1 minute"),
            (-7_300, "2 hours ago"),
        ] {
            assert_eq!(relative(UnixTime(now.0 + seconds), now), words);
        }
        assert!(relative(UnixTime(i64::MAX), UnixTime(i64::MIN)).starts_with("in "));
    }
}
