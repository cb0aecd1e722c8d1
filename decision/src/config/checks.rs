//! Checks that fields of several kinds share.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::Problems;
use super::{duration, file};
use crate::request::{HeaderNames, folds_to, is_ours};

pub(super) fn at_most(limit: usize, found: usize, path: &str, problems: &mut Problems) -> bool {
    if found > limit {
        problems.report(path, format!("{found} entries; at most {limit} are accepted"));
    }
    found <= limit
}

pub(super) fn not_empty(path: &str, found: usize, problems: &mut Problems) {
    if found == 0 {
        problems.report(
            path,
            "an empty list matches nothing; leave the field out to match everything",
        );
    }
}

pub(super) fn visible(path: &str, text: &str, problems: &mut Problems) {
    if text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let message = format!(
            "`{}` is not usable; write 1 to {MAX_TEXT_BYTES} bytes without white space",
            text.escape_debug()
        );
        problems.report(path, message);
    }
}

/// A character of a token (RFC 9110, section 5.6.2): what methods and header names are made of.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(super) fn count<const LEAST: usize, const MOST: usize, const DEFAULT: usize>(
    path: &str,
    found: Option<file::Count<LEAST, MOST, DEFAULT>>,
    problems: &mut Problems,
) -> usize {
    let Some(file::Count(found)) = found else {
        return DEFAULT;
    };
    match usize::try_from(found) {
        Ok(found) if (LEAST..=MOST).contains(&found) => found,
        _ => {
            problems.report(path, format!("{found} is out of range; write {LEAST} to {MOST}"));
            DEFAULT
        }
    }
}

pub(super) fn time(
    path: &str,
    found: Option<String>,
    default: Duration,
    range: RangeInclusive<Duration>,
    problems: &mut Problems,
) -> Duration {
    let Some(text) = found else { return default };
    let Some(found) = problems.take(path, duration::parse(&text)) else {
        return default;
    };
    if !range.contains(&found) {
        let (start, end) = (duration::display(*range.start()), duration::display(*range.end()));
        problems.report(path, format!("{text} is out of range; write {start} to {end}"));
        return default;
    }
    found
}

/// A time that tokens state in whole seconds.
pub(super) fn seconds(
    path: &str,
    found: Option<String>,
    default: u64,
    range: RangeInclusive<u64>,
    problems: &mut Problems,
) -> u64 {
    let range = Duration::from_secs(*range.start())..=Duration::from_secs(*range.end());
    let found = time(path, found, Duration::from_secs(default), range, problems);
    if found.subsec_nanos() != 0 {
        problems.report(
            path,
            format!("{} is not a whole number of seconds", duration::display(found)),
        );
    }
    found.as_secs()
}

/// Bytes of a single text that has no limit of its own: an audience, an issuer, a tool, a cluster.
const MAX_TEXT_BYTES: usize = 1_024;

/// Reports what can not name a member of a query.
pub(super) fn query_name(path: &str, name: &str, problems: &mut Problems) {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let message = format!("`{name}` can not name a query member; use 1 to {MAX_NAME_BYTES} bytes");
        problems.report(path, message);
    }
}

/// Reports a name that some service takes for another one that the rule has.
pub(super) fn alike(path: &str, name: &str, other: Option<&str>, problems: &mut Problems) {
    if let Some(other) = other {
        let message = format!("many services cannot tell `{name}` from `{other}`; remove one");
        problems.report(path, message);
    }
}

/// Reports a header that a rule can not read, the carriers of delegation and proof included.
pub(super) fn readable_header(path: &str, name: &str, carriers: &HeaderNames, problems: &mut Problems) {
    header_name(path, name, problems);
    if carriers.matches(name) {
        let message = format!("`{name}` carries the delegation or its proof; write another name");
        problems.report(path, message);
    }
}

/// Reports a header that does not exist, or whose meaning is not ours or a rule's to give.
pub(super) fn header_name(path: &str, name: &str, problems: &mut Problems) {
    let is_lower_case_token = |byte: u8| is_token(byte) && !byte.is_ascii_uppercase();
    let fault = if name.starts_with(':') {
        "is a pseudo-header; match it by `match`, or use a path capture or query"
    } else if name.is_empty() || !name.bytes().all(is_lower_case_token) {
        "is not a header name in lower case, such as `x-tenant`"
    } else if is_ours(name.as_bytes()) {
        "starts with `x-delegation-`, and such headers are removed from every request; write another name"
    } else if RESERVED_HEADERS
        .iter()
        .any(|reserved| folds_to(reserved.as_bytes(), name.as_bytes()))
    {
        "has a meaning of its own in HTTP and may change on the way; write another name"
    } else {
        return;
    };
    problems.report(path, format!("`{name}` {fault}"));
}

/// Bytes of a rule's, argument's or query member's name.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// Headers that describe the connection or the message itself.
const RESERVED_HEADERS: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-request-id",
];
