//! Reads a request's target in a way that no service behind the proxy can read differently.
//!
//! A path or host that two parties read differently could bypass the rule for it. So such a request is refused before
//! any rule is tried.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The `:path` of a request: a path in one unambiguous spelling, and the query as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    path: &'a str,
    query: Option<&'a [u8]>,
    /// Which other spellings of the path are accepted as distinct paths.
    pub(crate) tolerated: Tolerated,
    has_empty_segment: bool,
}

impl<'a> Target<'a> {
    /// Splits the query off and checks the path.
    ///
    /// The query is not checked: its contents depend on the matched rule (a public path accepts any).
    ///
    /// # Errors
    /// [`Ambiguity`] if the service behind the proxy could read the path differently.
    pub fn parse(raw: &'a [u8], tolerated: Tolerated) -> Result<Self, Ambiguity> {
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
        let mut segments = Segments {
            rest: Some(path.strip_prefix('/').ok_or(Ambiguity::NotAbsolute)?),
            skips_empty: false,
        };
        let (mut is_first, mut has_empty_segment) = (true, false);
        while let Some(segment) = segments.next() {
            // An empty last segment is a trailing slash, which rules distinguish; any other is a `//`. At the start, a
            // service that reads the path as a URI reference (RFC 3986, section 4.2) reads a host after it.
            if segment.is_empty() && segments.rest.is_some() {
                if !tolerated.empty_segment || is_first {
                    return Err(Ambiguity::EmptySegment);
                }
                has_empty_segment = true;
            }
            is_first = false;
            decode_segment(segment, tolerated)?;
        }
        Ok(Self {
            path,
            query,
            tolerated,
            has_empty_segment,
        })
    }

    /// The path with its leading slash, still percent-encoded.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The path's segments in order, still percent-encoded; a trailing slash yields an empty last one.
    pub fn segments(&self) -> Segments<'a> {
        Segments {
            rest: self.path.strip_prefix('/'),
            skips_empty: false,
        }
    }

    /// The segments for services that merge slashes, if they differ.
    pub fn merged_segments(&self) -> Option<Segments<'a>> {
        self.has_empty_segment.then(|| Segments {
            rest: self.path.strip_prefix('/'),
            skips_empty: true,
        })
    }

    /// Decodes one of the path's segments, once. Borrows if there is nothing to decode. A segment of this target always
    /// decodes.
    ///
    /// # Errors
    /// [`Ambiguity`] if the segment is ambiguous.
    pub fn decode_segment<'s>(&self, segment: &'s str) -> Result<Cow<'s, str>, Ambiguity> {
        decode_segment(segment, self.tolerated)
    }

    /// The text after the first `?`, unchecked; `None` without a `?`.
    pub fn query(&self) -> Option<&'a [u8]> {
        self.query
    }
}

/// The segments of a path, in order.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    /// The rest; `None` after the last segment.
    rest: Option<&'a str>,
    /// Skips empty segments except the last.
    skips_empty: bool,
}

impl Segments<'_> {
    /// Whether at most a trailing slash is left.
    pub fn is_at_end(&self) -> bool {
        self.rest
            .is_none_or(|rest| rest.is_empty() || (self.skips_empty && rest.bytes().all(|byte| byte == b'/')))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none()
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let rest = self.rest?;
            let Some((segment, rest)) = split_at(rest, b'/') else {
                self.rest = None;
                return Some(rest);
            };
            self.rest = Some(rest);
            if !(self.skips_empty && segment.is_empty()) {
                return Some(segment);
            }
        }
    }
}

/// Ambiguous spellings of paths that the operator accepts; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerated {
    /// `%2F` within a segment.
    pub encoded_slash: bool,
    /// `;` within a segment.
    pub path_parameter: bool,
    /// `//`, except at the start.
    pub empty_segment: bool,
    /// Letters with another case than in a rule's literal segment.
    pub letter_case: bool,
    /// An additional or missing trailing slash, compared with a rule's path.
    pub trailing_slash: bool,
    /// A [format suffix](without_format) after a rule's path.
    pub format_suffix: bool,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ambiguity {
    /// Not a path that a rule could match, such as `*` or an absolute URI.
    #[error("the path does not start with `/`")]
    NotAbsolute,
    /// White space, control characters or raw bytes beyond ASCII.
    #[error("the path has a byte that is not visible ASCII")]
    NotVisibleAscii,
    /// A fragment never belongs into a request.
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
    /// `%2F`: one segment to some servers, two to others.
    #[error("the path has an encoded slash (`%2F`)")]
    EncodedSlash,
    /// An encoded NUL or other control character.
    #[error("the path has an encoded control character")]
    EncodedControl,
    /// A `%` without two hexadecimal digits.
    #[error("the path has an invalid percent escape")]
    InvalidEscape,
    /// `%25` before two hexadecimal digits: a service that decodes twice reads another path.
    #[error("the path has an escape that is itself escaped")]
    DoubleEscape,
    /// Escapes that do not decode to UTF-8.
    #[error("the path does not decode to UTF-8")]
    NotUtf8,
}

/// Decodes one path segment, once.
///
/// Borrows if there is nothing to decode.
///
/// # Errors
/// [`Ambiguity`] if the segment is ambiguous in a way that is not tolerated.
pub fn decode_segment(segment: &str, tolerated: Tolerated) -> Result<Cow<'_, str>, Ambiguity> {
    // Most segments have only unambiguous characters, which one test shows.
    if segment
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~'))
    {
        return Ok(Cow::Borrowed(segment));
    }
    if segment.contains(';') {
        if !tolerated.path_parameter {
            return Err(Ambiguity::PathParameter);
        }
        if without_parameters(segment).is_empty() {
            return Err(Ambiguity::EmptySegment);
        }
    }
    let decoded = decode(segment)?;
    // A service that decodes the path before splitting it finds separate segments between encoded slashes.
    let mut parts = decoded.split('/').map(without_parameters);
    if parts.any(|part| part == "." || part == "..") {
        return Err(Ambiguity::DotSegment);
    }
    if decoded.contains('\\') {
        return Err(Ambiguity::Backslash);
    }
    if decoded.contains('/') {
        if !tolerated.encoded_slash {
            return Err(Ambiguity::EncodedSlash);
        }
        if decoded.split('/').any(|part| without_parameters(part).is_empty()) {
            return Err(Ambiguity::EmptySegment);
        }
    }
    if matches!(decoded, Cow::Owned(_)) && has_escape(&decoded) {
        return Err(Ambiguity::DoubleEscape);
    }
    Ok(decoded)
}

/// The texts before and after the first of these ASCII characters. For short texts such as segments, cheaper than
/// `split_once`.
fn split_at(text: &str, separator: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == separator)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.get(1..)?))
}

/// A segment as services read it that cut it at its first `;`.
pub fn without_parameters(segment: &str) -> &str {
    split_at(segment, b';').map_or(segment, |(name, _)| name)
}

/// The text as frameworks read it that convert letters one by one and map these to ASCII letters: Java's
/// `Character.toLowerCase` and `toUpperCase`, and Unicode's simple case folding. `None` if it has none of them.
pub fn with_ascii_letters(text: &str) -> Option<String> {
    let letter = |character| match character {
        '\u{130}' | '\u{131}' => 'i',
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other,
    };
    let is_plain = text.is_ascii() || text.chars().all(|character| letter(character) == character);
    (!is_plain).then(|| text.chars().map(letter).collect())
}

/// The readings of a path's last segment by frameworks that treat `.json` and the like as the format of the answer: the
/// text before each dot. Spring before 5.3 accepts any text after the dot, chi also an empty one.
pub fn without_format(segment: &str) -> impl Iterator<Item = &str> {
    let dots = segment.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
    dots.filter_map(|(at, _)| segment.get(..at))
        .filter(|stem| !stem.is_empty())
}

/// Percent-decodes text once, strictly. Borrows if there is nothing to decode.
///
/// # Errors
/// [`Ambiguity::InvalidEscape`], [`Ambiguity::EncodedControl`] or [`Ambiguity::NotUtf8`].
pub fn decode(text: &str) -> Result<Cow<'_, str>, Ambiguity> {
    if text.bytes().all(|byte| byte != b'%') {
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

/// Whether a decoded text changes if it is decoded again.
pub fn has_escape(text: &str) -> bool {
    text.split('%').skip(1).any(starts_with_two_hex_digits)
}

fn starts_with_two_hex_digits(text: &str) -> bool {
    text.as_bytes()
        .first_chunk::<2>()
        .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// The host of a request, without port or trailing dot. Compared without regard to case.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    name: &'a str,
    has_port: bool,
    has_trailing_dot: bool,
    /// An IPv6 address in another spelling than that of RFC 5952.
    is_respelled: bool,
}

/// Spellings of an authority that the operator accepts although Envoy's virtual hosts may read another host; none by
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToleratedHosts {
    /// A port after the host.
    pub port: bool,
    /// A trailing dot of the host's name.
    pub trailing_dot: bool,
}

impl<'a> Host<'a> {
    /// Reads an `:authority`.
    ///
    /// `None` for anything except `host`, `host.`, `host:port` and `[ipv6]:port`. Such a request must not reach a rule
    /// without `hosts`.
    pub fn parse(authority: &'a [u8]) -> Option<Self> {
        let authority = std::str::from_utf8(authority).ok()?;
        let (name, port, is_address) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (inside, after) = rest.split_once(']')?;
                let port = match after.strip_prefix(':') {
                    None if after.is_empty() => None,
                    None => return None,
                    port => port,
                };
                (inside, port, true)
            }
            None => match split_at(authority, b':') {
                Some((name, port)) => (name, Some(port), false),
                None => (authority, None, false),
            },
        };
        if !port.is_none_or(is_port) {
            return None;
        }
        let mut host = Self {
            name,
            has_port: port.is_some(),
            has_trailing_dot: false,
            is_respelled: false,
        };
        if is_address {
            let address: std::net::Ipv6Addr = name.parse().ok()?;
            host.is_respelled = !address.to_string().eq_ignore_ascii_case(name);
        } else if let Some(name) = name.strip_suffix('.') {
            host.name = name;
            host.has_trailing_dot = true;
        }
        (is_address || is_host_name(host.name)).then_some(host)
    }

    /// Whether the authority contains more than the host, so that Envoy may have routed the request as another host's:
    /// its virtual hosts compare the authority with its port and trailing dot.
    pub fn is_ambiguous(self, tolerated: ToleratedHosts) -> bool {
        (self.has_port && !tolerated.port) || (self.has_trailing_dot && !tolerated.trailing_dot) || self.is_respelled
    }

    /// The host in lower case; an IPv6 address in the form of RFC 5952.
    pub fn to_lower_case(self) -> Cow<'a, str> {
        if self.is_respelled
            && let Ok(address) = self.name.parse::<std::net::Ipv6Addr>()
        {
            return Cow::Owned(address.to_string());
        }
        if self.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(self.name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(self.name)
        }
    }
}

/// Whether the text is a host name in the form that rules use: labels of letters, digits, `-` and `_`, joined by dots.
pub fn is_host_name(text: &str) -> bool {
    text.as_bytes().split(|byte| *byte == b'.').all(|label| {
        !label.is_empty()
            && label
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    })
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Whether services may confuse the method with another one. Methods are case-sensitive (RFC 9110, section 9.1), and
/// registered ones are in capitals; but many frameworks convert them to capitals before they compare.
pub fn is_ambiguous_method(method: &[u8]) -> bool {
    method
        .iter()
        .any(|byte| byte.is_ascii_lowercase() || !byte.is_ascii_graphic())
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
            let target =
                Target::parse(raw.as_bytes(), Tolerated::default()).unwrap_or_else(|error| panic!("{raw}: {error}"));
            assert_eq!((target.path(), target.query()), (path, query), "{raw}");
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
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
            assert_eq!(
                Target::parse(raw, Tolerated::default()),
                Err(expected),
                "{}",
                raw.escape_ascii()
            );
        }
    }

    #[test]
    fn only_tolerated_spellings_are_accepted() {
        let encoded_slash = Tolerated {
            encoded_slash: true,
            ..Tolerated::default()
        };
        let path_parameter = Tolerated {
            path_parameter: true,
            ..Tolerated::default()
        };
        let empty_segment = Tolerated {
            empty_segment: true,
            ..Tolerated::default()
        };
        let cases = [
            (encoded_slash, "/a%2Fb", Ok(())),
            (encoded_slash, "/a%2fb%2Fc/d", Ok(())),
            (encoded_slash, "/a%2F..%2Fb", Err(Ambiguity::DotSegment)),
            (encoded_slash, "/%2e%2E%2Fb", Err(Ambiguity::DotSegment)),
            (encoded_slash, "/a%2F.;x", Err(Ambiguity::PathParameter)),
            (encoded_slash, "/a%2F.%3Bx", Err(Ambiguity::DotSegment)),
            (encoded_slash, "/a%2F%2Fb", Err(Ambiguity::EmptySegment)),
            (encoded_slash, "/%2Fb", Err(Ambiguity::EmptySegment)),
            (encoded_slash, "/a%2F", Err(Ambiguity::EmptySegment)),
            (encoded_slash, "/a%252Fb", Err(Ambiguity::DoubleEscape)),
            (encoded_slash, "/a%5Cb", Err(Ambiguity::Backslash)),
            (encoded_slash, "/a//b", Err(Ambiguity::EmptySegment)),
            (path_parameter, "/a;v=1/b", Ok(())),
            (path_parameter, "/..;/b", Err(Ambiguity::DotSegment)),
            (path_parameter, "/.;v=1/b", Err(Ambiguity::DotSegment)),
            (path_parameter, "/%2e.;/b", Err(Ambiguity::DotSegment)),
            (path_parameter, "/..%3B/b", Err(Ambiguity::DotSegment)),
            (path_parameter, "/;v=1/b", Err(Ambiguity::EmptySegment)),
            (path_parameter, "/a%2Fb;v=1", Err(Ambiguity::EncodedSlash)),
            (empty_segment, "/a//b", Ok(())),
            (empty_segment, "/a///", Ok(())),
            (empty_segment, "//a/b", Err(Ambiguity::EmptySegment)),
            (empty_segment, "//", Err(Ambiguity::EmptySegment)),
            (empty_segment, "/a/..//b", Err(Ambiguity::DotSegment)),
        ];
        for (tolerated, raw, expected) in cases {
            let found = Target::parse(raw.as_bytes(), tolerated).map(|_| ());
            assert_eq!(found, expected, "{raw} with {tolerated:?}");
        }
    }

    #[test]
    fn services_that_merge_slashes_see_other_segments() {
        let tolerated = Tolerated {
            empty_segment: true,
            ..Tolerated::default()
        };
        let segments = |raw: &'static str| {
            let target = Target::parse(raw.as_bytes(), tolerated).unwrap();
            let merged = target.merged_segments().map(Iterator::collect::<Vec<_>>);
            (target.segments().collect::<Vec<_>>(), merged)
        };
        assert_eq!(segments("/a/b/"), (vec!["a", "b", ""], None));
        assert_eq!(segments("/a//b"), (vec!["a", "", "b"], Some(vec!["a", "b"])));
        assert_eq!(segments("/a//"), (vec!["a", "", ""], Some(vec!["a", ""])));
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
            ("[0:0::0:1]", "::1"),
            ("xn--caf-dma.example", "xn--caf-dma.example"),
            ("a_b.example", "a_b.example"),
        ];
        for (authority, name) in cases {
            let host = Host::parse(authority.as_bytes()).unwrap();
            assert_eq!(host.to_lower_case(), name, "{authority}");
        }
    }

    #[test]
    fn a_host_with_a_port_a_trailing_dot_or_another_address_is_ambiguous() {
        let (port, dot) = (
            ToleratedHosts {
                port: true,
                trailing_dot: false,
            },
            ToleratedHosts {
                port: false,
                trailing_dot: true,
            },
        );
        let both = ToleratedHosts {
            port: true,
            trailing_dot: true,
        };
        // Strictly, with a port allowed, with a trailing dot, with both.
        let cases = [
            ("shop.example", [false; 4]),
            ("SHOP.Example", [false; 4]),
            ("127.0.0.1", [false; 4]),
            ("[::1]", [false; 4]),
            ("[2001:DB8::1]", [false; 4]),
            ("xn--caf-dma.example", [false; 4]),
            ("shop.example:80", [true, false, true, false]),
            ("[::1]:80", [true, false, true, false]),
            ("shop.example.", [true, true, false, false]),
            ("shop.example.:80", [true, true, true, false]),
            ("[0:0::1]", [true; 4]),
            ("[::ffff:7f00:1]", [true; 4]),
        ];
        for (authority, expected) in cases {
            let host = Host::parse(authority.as_bytes()).unwrap();
            let found = [ToleratedHosts::default(), port, dot, both].map(|tolerated| host.is_ambiguous(tolerated));
            assert_eq!(found, expected, "{authority}");
        }
    }

    #[test]
    fn a_method_is_ambiguous_unless_it_is_in_capitals() {
        for method in ["GET", "POST", "PURGE", "M-SEARCH", "BASELINE-CONTROL", "X_1"] {
            assert!(!is_ambiguous_method(method.as_bytes()), "{method}");
        }
        for method in [
            "get",
            "Post",
            "purge",
            "PURGe",
            "connect",
            "POST ",
            " POST",
            "POST\t",
            "POST\0",
            "P\u{d6}ST",
        ] {
            assert!(is_ambiguous_method(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn a_format_is_a_dot_and_anything() {
        let cases: [(&str, &[&str]); 8] = [
            ("a.json", &["a"]),
            ("a.123456789", &["a"]),
            ("a.js-on@", &["a"]),
            ("a.tar.gz", &["a", "a.tar"]),
            ("a..", &["a", "a."]),
            (".json", &[]),
            ("a", &[]),
            ("", &[]),
        ];
        for (segment, stems) in cases {
            assert_eq!(without_format(segment).collect::<Vec<_>>(), stems, "{segment}");
        }
    }

    #[test]
    fn an_authority_that_is_not_a_host_is_refused() {
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
            "a:65536",
            "a:",
            "a.:",
            "a:+80",
            "[::1]:",
            "[::1%25eth0]",
            "%61.example",
            "a.example.:",
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
            assert!(Host::parse(authority.as_bytes()).is_none(), "{authority}");
        }
    }
}
