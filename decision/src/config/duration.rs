//! Durations in a configuration.

use std::time::Duration;

/// Reads a whole number and its unit: `500ms`, `30s`, `10m`, `24h` or `90d`.
///
/// # Errors
/// A message with the found text and the expected form.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    number
        .zip(milliseconds)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a duration; write a whole number and a unit (ms, s, m, h, d): `30s`"))
}

/// Formats a duration for [`parse`], in the largest exact unit.
pub(super) fn display(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
        .into_iter()
        .find(|(_, size)| milliseconds > 0 && milliseconds.checked_rem(*size) == Some(0))
        .and_then(|(unit, size)| Some(format!("{}{unit}", milliseconds.checked_div(size)?)))
        .unwrap_or_else(|| format!("{milliseconds}ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("90d", 7_776_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "5sec",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(parse(text).unwrap_err().contains(&format!("`{text}`")), "{text}");
        }
    }

    #[test]
    fn a_duration_is_written_in_its_largest_exact_unit() {
        for text in ["0ms", "500ms", "5s", "90s", "10m", "25h", "90d"] {
            assert_eq!(display(parse(text).unwrap()), text);
        }
    }
}
