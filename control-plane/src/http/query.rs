//! Parses query strings strictly. Common parsers replace names that cannot be decoded by U+FFFD: a query about such a
//! name would be answered "not revoked".

use super::problem::Problem;

/// The members of a query string in order, with names and values percent-decoded once, and `+` read as a space
/// (application/x-www-form-urlencoded).
pub(crate) fn members(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    query
        .unwrap_or_default()
        .split('&')
        .filter(|member| !member.is_empty())
        .map(|member| {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            match (decoded(name), decoded(value)) {
                (Some(name), Some(value)) => Ok((name, value)),
                _ => Err(Problem::bad_request(format!(
                    "in the query, at {:?}: not UTF-8 in percent-encoding (RFC 3986 section 2.1)",
                    name.chars().take(SHOWN_CHARACTERS).collect::<String>()
                ))),
            }
        })
        .collect()
}

/// Sets a value that must not be set yet.
pub(crate) fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), Problem> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::bad_request(format!(
            "{name} is in the query twice; write it once"
        ))),
    }
}

/// Parses a number in decimal digits.
pub(crate) fn whole<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, Problem> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    value
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| Problem::bad_request(format!("{name} is a whole number of at most 20 digits")))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

const SHOWN_CHARACTERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_may_repeat() {
        let expected = [("key", "a b"), ("key", "é&="), ("flag", ""), ("", "x")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(members(Some("key=a+b&&key=%C3%a9%26=&flag&=x")).unwrap(), expected);
        assert!(members(None).unwrap().is_empty());
    }

    #[test]
    fn names_that_cannot_be_decoded_are_refused_and_never_replaced() {
        for query in ["a=%", "a=%4", "a=%zz", "a=%ff", "%c3=a", "a=%+1"] {
            assert!(members(Some(query)).is_err(), "{query}");
        }
    }
}
