//! Until when a certificate is good. The TLS library checks that, but does not say it.

use rustls::pki_types::CertificateDer;
use time::{Date, Month, PrimitiveDateTime, Time};

/// `notAfter` (RFC 5280 section 4.1.2.5) in seconds since the Unix epoch; nothing if the certificate is none.
pub(crate) fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let mut outer = Reader(certificate);
    let mut certificate = Reader(outer.expect(SEQUENCE)?);
    let mut to_be_signed = Reader(certificate.expect(SEQUENCE)?);
    let (tag, _) = to_be_signed.next()?;
    // The version is left out of certificates of version 1; otherwise the serial number comes behind it.
    if tag == EXPLICIT_VERSION {
        to_be_signed.next()?;
    }
    let _signature_algorithm = to_be_signed.expect(SEQUENCE)?;
    let _issuer = to_be_signed.expect(SEQUENCE)?;
    let mut validity = Reader(to_be_signed.expect(SEQUENCE)?);
    let _not_before = validity.next()?;
    let (tag, text) = validity.next()?;
    instant(tag, std::str::from_utf8(text).ok()?)
}

/// Takes DER values (ITU-T X.690) one after the other.
struct Reader<'a>(&'a [u8]);

// === impl Reader ===

impl<'a> Reader<'a> {
    /// The next value's tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=127 => (usize::from(first), rest),
            // No certificate is longer than what three bytes of length can say.
            129..=131 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first - 128))?;
                let length = digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, content)| content)
    }
}

/// RFC 5280 sections 4.1.2.5.1 and 4.1.2.5.2: always UTC, always with seconds.
fn instant(tag: u8, text: &str) -> Option<i64> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i32 = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let digits = rest.strip_suffix('Z').filter(|digits| digits.len() == 10)?;
    let part = |at: usize| digits.get(at..at + 2).and_then(number::<u8>);
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(2)?).ok()?;
    let time = Time::from_hms(part(4)?, part(6)?, part(8)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
}

fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn certificate(version: &[u8], not_after: Vec<u8>) -> CertificateDer<'static> {
        let validity = value(SEQUENCE, &[value(UTC_TIME, b"260101000000Z"), not_after].concat());
        let body = [
            version,
            &value(2, &[1]),
            &value(SEQUENCE, &[]),
            &value(SEQUENCE, &[]),
            &validity,
        ];
        CertificateDer::from(value(SEQUENCE, &value(SEQUENCE, &body.concat())))
    }

    #[test]
    fn both_spellings_of_a_time_are_read_with_and_without_a_version() {
        let version = value(EXPLICIT_VERSION, &value(2, &[2]));
        for version in [&version[..], &[]] {
            for (tag, text, expected) in [
                (UTC_TIME, &b"270101000000Z"[..], 1_798_761_600),
                (UTC_TIME, b"491231235959Z", 2_524_607_999),
                (UTC_TIME, b"500101000000Z", -631_152_000),
                (GENERALIZED_TIME, b"20500101000000Z", 2_524_608_000),
            ] {
                assert_eq!(not_after(&certificate(version, value(tag, text))), Some(expected));
            }
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for text in [&b"271301000000Z"[..], b"2701010000Z", b"27010100000+Z", b""] {
            assert_eq!(not_after(&certificate(&[], value(UTC_TIME, text))), None);
        }
        let whole = certificate(&[], value(UTC_TIME, b"270101000000Z"));
        for end in 0..whole.len() {
            assert_eq!(not_after(&CertificateDer::from(&whole[..end])), None);
        }
    }
}
