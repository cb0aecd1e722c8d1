//! What a request asks for, read so that nobody further along can read it differently.
//!
//! A path or a host that two parties may understand in two ways is how a request slips past the rule meant for it. Such
//! a request is refused before any rule is looked at, whatever the rules say.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The `:path` of a request: a path in one unambiguous spelling, and the query as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    path: &'a str,
    query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    /// Splits the query off and checks the path.
    ///
    /// The query is not looked at: what it may contain is the matched rule's business (a public path takes any).
    ///
    /// # Errors
    /// [`Ambiguity`] if the path could mean something else to the service behind the proxy.
    pub fn parse(raw: &'a [u8]) -> Result<Self, Ambiguity> {
        let (path, query) = match raw.iter().position(|&byte| byte == b'?') {
            Some(at) => {
                let (path, rest) = raw.split_at_checked(at).unwrap_or((raw, b""));
                (path, rest.strip_prefix(b"?"))
            }
            None => (raw, None),
        };
        if raw.contains(&b'#') {
            return Err(Ambiguity::Fragment);
        }
        if !path.iter().all(u8::is_ascii_graphic) {
            return Err(Ambiguity::NotVisibleAscii);
        }
        let path = std::str::from_utf8(path).map_err(|_| Ambiguity::NotVisibleAscii)?;
        let segments = path.strip_prefix('/').ok_or(Ambiguity::NotAbsolute)?;
        let mut segments = segments.split('/').peekable();
        while let Some(segment) = segments.next() {
            // An empty last segment is a trailing slash, which rules tell apart; any other is a `//`.
            if segment.is_empty() && segments.peek().is_some() {
                return Err(Ambiguity::EmptySegment);
            }
            decode_segment(segment)?;
        }
        Ok(Self { path, query })
    }

    /// The path with its leading slash, still percent-encoded.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The path's segments in order, still percent-encoded; a trailing slash yields an empty last one.
    pub fn segments(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.path.strip_prefix('/').unwrap_or_default().split('/')
    }

    /// What stands behind the first `?`, unchecked; `None` without a `?`.
    pub fn query(&self) -> Option<&'a [u8]> {
        self.query
    }
}

/// Why a path was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ambiguity {
    /// Neither a path nor anything a rule could match, such as `*` or an absolute URI.
    #[error("the path does not start with `/`")]
    NotAbsolute,
    /// White space, control characters or raw bytes beyond ASCII.
    #[error("the path has a byte that is not visible ASCII")]
    NotVisibleAscii,
    /// A fragment never travels in a request.
    #[error("the path has a `#`")]
    Fragment,
    /// Some servers merge `//` into one slash, others do not.
    #[error("the path has an empty segment (`//`)")]
    EmptySegment,
    /// `.` or `..`, encoded or not.
    #[error("the path has a dot segment")]
    DotSegment,
    /// Some servers cut a segment at `;`, others do not.
    #[error("the path has a `;`")]
    PathParameter,
    /// Some servers read a backslash as a slash; encoded or not.
    #[error("the path has a backslash")]
    Backslash,
    /// `%2F`: one segment to some, two to others.
    #[error("the path has an encoded slash (`%2F`)")]
    EncodedSlash,
    /// An encoded NUL or other control character.
    #[error("the path has an encoded control character")]
    EncodedControl,
    /// A `%` without two hexadecimal digits.
    #[error("the path has an invalid percent escape")]
    InvalidEscape,
    /// `%25` in front of two hexadecimal digits: whoever decodes twice sees another path.
    #[error("the path has an escape that is itself escaped")]
    DoubleEscape,
    /// Escapes that do not decode to UTF-8.
    #[error("the path does not decode to UTF-8")]
    NotUtf8,
}

/// Decodes one path segment, once.
///
/// Borrows when there is nothing to decode. A segment of a parsed [`Target`] always decodes.
///
/// # Errors
/// [`Ambiguity`] if the segment can be read in two ways.
pub fn decode_segment(segment: &str) -> Result<Cow<'_, str>, Ambiguity> {
    if segment.contains(';') {
        return Err(Ambiguity::PathParameter);
    }
    let decoded = decode(segment)?;
    if decoded == "." || decoded == ".." {
        return Err(Ambiguity::DotSegment);
    }
    if decoded.contains('\\') {
        return Err(Ambiguity::Backslash);
    }
    if decoded.contains('/') {
        return Err(Ambiguity::EncodedSlash);
    }
    if matches!(decoded, Cow::Owned(_)) && has_escape(&decoded) {
        return Err(Ambiguity::DoubleEscape);
    }
    Ok(decoded)
}

/// Percent-decodes text once, strictly; borrows when there is nothing to decode.
///
/// # Errors
/// [`Ambiguity::InvalidEscape`], [`Ambiguity::EncodedControl`] or [`Ambiguity::NotUtf8`].
pub fn decode(text: &str) -> Result<Cow<'_, str>, Ambiguity> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    if text.split('%').skip(1).any(|after| !starts_with_two_hex_digits(after)) {
        return Err(Ambiguity::InvalidEscape);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| Ambiguity::NotUtf8)?;
    if decoded.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(Ambiguity::EncodedControl);
    }
    Ok(decoded)
}

fn has_escape(text: &str) -> bool {
    text.split('%').skip(1).any(starts_with_two_hex_digits)
}

fn starts_with_two_hex_digits(text: &str) -> bool {
    text.as_bytes()
        .first_chunk::<2>()
        .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// The host a request is for: without port or trailing dot. Compared without regard to case.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a>(&'a str);

impl<'a> Host<'a> {
    /// Reads an `:authority`.
    ///
    /// # Errors
    /// [`AuthorityError`] for anything but `host`, `host.`, `host:port` and `[ipv6]:port`. Such a request must not fall
    /// through to a rule without `hosts`.
    pub fn parse(authority: &'a [u8]) -> Result<Self, AuthorityError> {
        let authority = std::str::from_utf8(authority).map_err(|_| AuthorityError)?;
        if let Some(rest) = authority.strip_prefix('[') {
            let (inside, after) = rest.split_once(']').ok_or(AuthorityError)?;
            let address = inside.parse::<std::net::Ipv6Addr>();
            let port = after.strip_prefix(':').unwrap_or(after);
            let port_is_marked = after.is_empty() || after.starts_with(':');
            if address.is_err() || !port_is_marked || !is_port(port) {
                return Err(AuthorityError);
            }
            return Ok(Self(inside));
        }
        let (name, port) = authority.split_once(':').unwrap_or((authority, ""));
        let name = name.strip_suffix('.').unwrap_or(name);
        if !is_host_name(name) || !is_port(port) {
            return Err(AuthorityError);
        }
        Ok(Self(name))
    }

    /// Whether this is the host `name` (in lower case).
    pub fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name)
    }

    /// Whether this host lies under `suffix`, which starts with a dot and is in lower case.
    pub fn is_under(&self, suffix: &str) -> bool {
        let Some(front) = self.0.len().checked_sub(suffix.len()) else {
            return false;
        };
        // Host names are ASCII, so any position is a character boundary.
        match self.0.split_at_checked(front) {
            Some((labels, tail)) => !labels.is_empty() && tail.eq_ignore_ascii_case(suffix),
            None => false,
        }
    }
}

/// The `:authority` is missing, empty, or not a host with an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the authority is not a host with an optional port")]
pub struct AuthorityError;

/// Whether the text is a host name as rules may write it: labels of letters, digits, `-` and `_`, joined by dots.
pub fn is_host_name(text: &str) -> bool {
    text.split('.').all(|label| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    })
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_target_splits_into_path_and_query() {
        let cases: [(&str, &str, Option<&[u8]>); 7] = [
            ("/", "/", None),
            ("/v1/accounts/acme", "/v1/accounts/acme", None),
            ("/v1/accounts/", "/v1/accounts/", None),
            ("/search?q=1&r=2", "/search", Some(b"q=1&r=2")),
            ("/search?", "/search", Some(b"")),
            ("/a?b?c", "/a", Some(b"b?c")),
            ("/caf%C3%A9/100%25", "/caf%C3%A9/100%25", None),
        ];
        for (raw, path, query) in cases {
            let target = Target::parse(raw.as_bytes()).unwrap_or_else(|error| panic!("{raw}: {error}"));
            assert_eq!((target.path(), target.query()), (path, query), "{raw}");
        }
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_refused() {
        let cases: [(&[u8], Ambiguity); 28] = [
            (b"", Ambiguity::NotAbsolute),
            (b"*", Ambiguity::NotAbsolute),
            (b"?a=b", Ambiguity::NotAbsolute),
            (b"http://host/path", Ambiguity::NotAbsolute),
            (b"/a b", Ambiguity::NotVisibleAscii),
            (b"/a\tb", Ambiguity::NotVisibleAscii),
            (b"/a\0", Ambiguity::NotVisibleAscii),
            (b"/caf\xc3\xa9", Ambiguity::NotVisibleAscii),
            (b"/a#b", Ambiguity::Fragment),
            (b"/a?b#c", Ambiguity::Fragment),
            (b"//a", Ambiguity::EmptySegment),
            (b"/a//b", Ambiguity::EmptySegment),
            (b"/a//", Ambiguity::EmptySegment),
            (b"/a/./b", Ambiguity::DotSegment),
            (b"/a/..", Ambiguity::DotSegment),
            (b"/a/%2e%2E/b", Ambiguity::DotSegment),
            (b"/a/.%2e/b", Ambiguity::DotSegment),
            (b"/a/..;/b", Ambiguity::PathParameter),
            (b"/a;version=1/b", Ambiguity::PathParameter),
            (b"/a\\b", Ambiguity::Backslash),
            (b"/a%5Cb", Ambiguity::Backslash),
            (b"/a%2fb", Ambiguity::EncodedSlash),
            (b"/a%00b", Ambiguity::EncodedControl),
            (b"/a%0d%0Ab", Ambiguity::EncodedControl),
            (b"/a%7Fb", Ambiguity::EncodedControl),
            (b"/a%2", Ambiguity::InvalidEscape),
            (b"/a%252e%252e/b", Ambiguity::DoubleEscape),
            (b"/%C0%AE", Ambiguity::NotUtf8),
        ];
        for (raw, expected) in cases {
            assert_eq!(Target::parse(raw), Err(expected), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn a_host_is_read_without_port_trailing_dot_and_case() {
        let cases = [
            ("payments.example", "payments.example"),
            ("Payments.EXAMPLE", "payments.example"),
            ("payments.example:8443", "payments.example"),
            ("payments.example.", "payments.example"),
            ("payments.example.:443", "payments.example"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
        ];
        for (authority, name) in cases {
            assert!(Host::parse(authority.as_bytes()).unwrap().is(name), "{authority}");
        }
    }

    #[test]
    fn an_authority_that_is_no_host_is_refused() {
        for authority in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a..",
            "user@a",
            "a:80:90",
            "a:b",
            "a:123456",
            "a b",
            "a,b",
            "a/b",
            "a%41",
            "caf\u{e9}",
            "[::1",
            "[::1]80",
            "[a]:80",
            "[]",
        ] {
            assert!(Host::parse(authority.as_bytes()).is_err(), "{authority}");
        }
    }

    #[test]
    fn a_host_lies_under_a_suffix_only_at_a_label_boundary() {
        let under = |authority: &str| Host::parse(authority.as_bytes()).unwrap().is_under(".example");
        assert!(under("a.example"));
        assert!(under("a.B.Example:80"));
        assert!(!under("example"));
        assert!(!under("badexample"));
    }
}
