//! Checks that several kinds of fields share.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use credence_delegation::Location;

use super::duration;
use super::file::Count;
use crate::request::{HeaderNames, folds_to, is_ours};

/// The elements of a list; an absent list matches everything.
pub(super) fn elements<'l, 'f>(
    at: &'l Location<'f>,
    limit: usize,
    list: &'l [String],
) -> impl Iterator<Item = (Location<'f>, &'l String)> {
    if list.is_empty() {
        at.report("an empty list matches nothing; leave the field out to match everything");
    }
    at.at_most(limit, list);
    (0..).map(|index| at.element(index)).zip(list).take(limit)
}

/// Reports a name that is already in its list.
pub(super) fn listed_once<'n>(at: &Location<'_>, name: &'n str, seen: &mut BTreeSet<&'n str>) {
    if !seen.insert(name) {
        at.report(format!("`{name}` is listed twice; remove one"));
    }
}

/// Reports duplicate elements of a set.
pub(super) fn each_once<T: PartialEq>(at: &Location<'_>, set: &[T]) {
    for (index, element) in set.iter().enumerate() {
        if set.iter().take(index).any(|earlier| earlier == element) {
            at.element(index).report("this is listed twice; remove one");
        }
    }
}

/// A character of a token (RFC 9110, section 5.6.2), of which methods and header names consist.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(super) fn count<const LEAST: usize, const MOST: usize, const DEFAULT: usize>(
    at: &Location<'_>,
    found: Option<Count<LEAST, MOST, DEFAULT>>,
) -> usize {
    let found = found.unwrap_or_default();
    if found.checked().is_none() {
        at.report(format!("{} is out of range; write {LEAST} to {MOST}", found.0));
    }
    found.get()
}

pub(super) fn time(
    at: &Location<'_>,
    found: Option<&str>,
    default: Duration,
    range: RangeInclusive<Duration>,
) -> Duration {
    let Some(text) = found else { return default };
    let Some(found) = at.take(duration::parse(text)) else {
        return default;
    };
    if !range.contains(&found) {
        let (start, end) = (duration::display(*range.start()), duration::display(*range.end()));
        at.report(format!("{text} is out of range; write {start} to {end}"));
        return default;
    }
    found
}

/// A duration in whole seconds, for comparison with tokens.
pub(super) fn seconds(at: &Location<'_>, found: Option<&str>, default: u64, range: RangeInclusive<u64>) -> u64 {
    let range = Duration::from_secs(*range.start())..=Duration::from_secs(*range.end());
    let found = time(at, found, Duration::from_secs(default), range);
    if found.subsec_nanos() != 0 {
        at.report(format!("{} is not a whole number of seconds", duration::display(found)));
    }
    found.as_secs()
}

/// Reports a text that cannot name a query member.
pub(super) fn query_name(at: &Location<'_>, name: &str) {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        at.report(format!(
            "`{name}` cannot name a query member; use 1 to {MAX_NAME_BYTES} bytes"
        ));
    }
}

/// Reports a name that some services confuse with another one in the rule.
pub(super) fn alike(at: &Location<'_>, name: &str, other: Option<&str>) {
    if let Some(other) = other {
        at.report(format!("many services cannot tell `{name}` from `{other}`; remove one"));
    }
}

/// Reports a header that a rule cannot read, including the carriers of delegation and proof.
pub(super) fn readable_header(at: &Location<'_>, name: &str, carriers: &HeaderNames) {
    header_name(at, name);
    if carriers.matches(name) {
        at.report(format!(
            "`{name}` carries the delegation or its proof; write another name"
        ));
    }
}

/// Reports an invalid header name, and headers whose meaning neither the filter nor a rule may change.
pub(super) fn header_name(at: &Location<'_>, name: &str) {
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
        "has its own meaning in HTTP and may change on the way; write another name"
    } else {
        return;
    };
    at.report(format!("`{name}` {fault}"));
}

/// Bytes of the name of a rule, an argument or a query member.
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
