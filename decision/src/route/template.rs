//! Path templates of rules.

use std::fmt;

use arrayvec::ArrayVec;
use credence_delegation::{Number, Value};
use thiserror::Error;

use super::reading::Reading;
use crate::request::target::{self, Ambiguity, Segments, Tolerated};

/// A path template of a rule: literal segments, `{captures}` of one segment each, and optionally `**` at the end.
#[derive(Clone, Debug)]
pub struct PathTemplate {
    source: String,
    segments: Vec<Segment>,
    rest: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Segment {
    /// Percent-decoded.
    Literal(String),
    /// Matches exactly one segment, never an empty one.
    Capture { name: String, kind: CaptureKind },
}

/// What a capture matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureKind {
    /// Any text.
    Text,
    /// A whole number, written like an argument of `type: integer`.
    Integer,
}

impl PathTemplate {
    /// Reads a template such as `/v1/accounts/{account}/charges`, `/users/{id:integer}` or `/assets/**`.
    ///
    /// A trailing slash is significant. `/assets/**` also matches `/assets` and `/assets/`.
    ///
    /// # Errors
    /// [`TemplateError`] names the invalid segment.
    pub fn parse(source: &str, tolerated: Tolerated) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLong);
        }
        let inner = source.strip_prefix('/').ok_or(TemplateError::NotAbsolute)?;
        let (inner, rest) = match (inner, inner.strip_suffix("/**")) {
            ("**", _) => (None, true),
            (_, Some(front)) => (Some(front), true),
            (_, None) => (Some(inner), false),
        };
        let mut segments: Vec<Segment> = Vec::new();
        let mut pending = inner.into_iter().flat_map(|inner| inner.split('/')).peekable();
        while let Some(text) = pending.next() {
            if text.is_empty() && (rest || pending.peek().is_some()) {
                return Err(TemplateError::EmptySegment);
            }
            let segment = Segment::parse(text, tolerated)?;
            if let Some(name) = segment.capture()
                && segments.iter().any(|earlier| earlier.capture() == Some(name))
            {
                return Err(TemplateError::DuplicateCapture(name.to_owned()));
            }
            segments.push(segment);
        }
        let captures = segments.iter().filter(|segment| segment.capture().is_some()).count();
        if segments.len() > MAX_SEGMENTS || captures > MAX_CAPTURES {
            return Err(TemplateError::TooLong);
        }
        Ok(Self {
            source: source.to_owned(),
            segments,
            rest,
        })
    }

    /// The captures' names, in order.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::capture)
    }

    /// The template as written.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether further segments may follow.
    pub(super) fn has_rest(&self) -> bool {
        self.rest
    }

    /// The captured texts of a matching path.
    pub(super) fn take<'r>(&self, path: Segments<'r>) -> Captures<'r> {
        let segments = self.segments.iter().zip(path);
        let captured = segments.filter_map(|(segment, text)| segment.capture().map(|_| text));
        // A parsed template has at most this many captures.
        captured.take(MAX_CAPTURES).collect()
    }

    /// Whether this template is at least as specific as `other`. If this one matches a path as it is spelled, and
    /// `other` only in another spelling, then the operator distinguishes the two spellings.
    pub(super) fn is_as_specific_as(&self, other: &PathTemplate) -> bool {
        let theirs = match other.segments.split_last() {
            Some((Segment::Literal(last), front)) if last.is_empty() => front,
            _ => &other.segments,
        };
        let mut segments = theirs.iter().zip(&self.segments);
        (other.rest || !self.rest)
            && self.segments.len() >= theirs.len()
            && segments.all(|(theirs, mine)| mine.is_as_specific_as(theirs))
    }

    /// Whether this template also matches, or refuses as unclear, every path that `other` matches.
    pub(super) fn covers(&self, other: &PathTemplate) -> bool {
        let mut theirs = other.segments.iter();
        for mine in &self.segments {
            let covered = theirs.next().is_some_and(|theirs| mine.covers(theirs));
            if !covered {
                return false;
            }
        }
        self.rest || (theirs.next().is_none() && !other.rest)
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.source)
    }
}

impl Segment {
    fn parse(text: &str, tolerated: Tolerated) -> Result<Self, TemplateError> {
        if let Some(inside) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let (name, kind) = match inside.split_once(':') {
                None => (inside, CaptureKind::Text),
                Some((name, "integer")) => (name, CaptureKind::Integer),
                Some((_, kind)) => return Err(TemplateError::CaptureType(kind.to_owned())),
            };
            let mut bytes = name.bytes();
            let well_formed = bytes
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
            let name = name.to_owned();
            return if well_formed {
                Ok(Self::Capture { name, kind })
            } else {
                Err(TemplateError::CaptureName(name))
            };
        }
        if text.contains(['{', '}', '*']) {
            return Err(TemplateError::PartialSegment(text.to_owned()));
        }
        if text.contains(['?', '#']) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TemplateError::Characters(text.to_owned()));
        }
        match target::decode_segment(text, tolerated) {
            Ok(decoded) => Ok(Self::Literal(decoded.into_owned())),
            Err(cause) => Err(TemplateError::Unreachable {
                segment: text.to_owned(),
                cause,
            }),
        }
    }

    fn capture(&self) -> Option<&str> {
        match self {
            Self::Capture { name, .. } => Some(name),
            Self::Literal(_) => None,
        }
    }

    /// Whether this matches a percent-decoded segment of a request.
    ///
    /// To the service, `%61dmin` *is* `admin`, so a rule for `admin` must match it. And to some services `admin;v=1` is
    /// `admin`, so such a path must not bypass a rule for `admin`.
    pub(super) fn takes(&self, decoded: &str) -> Reading {
        let bare = target::without_parameters(decoded);
        match self {
            Self::Literal(literal) if literal == decoded => Reading::Yes,
            Self::Literal(literal) if literal == bare => Reading::Unclear,
            Self::Literal(_) => Reading::No,
            Self::Capture { kind, .. } => kind.takes(decoded),
        }
    }

    fn is_as_specific_as(&self, other: &Segment) -> bool {
        match (self, other) {
            (Self::Literal(_), _) => true,
            (Self::Capture { .. }, Self::Literal(_)) => false,
            (Self::Capture { kind: mine, .. }, Self::Capture { kind: theirs, .. }) => {
                *theirs == CaptureKind::Text || mine == theirs
            }
        }
    }

    fn covers(&self, other: &Segment) -> bool {
        match (self, other) {
            (mine, Self::Literal(theirs)) => mine.takes(theirs) != Reading::No,
            (Self::Literal(_), Self::Capture { .. }) => false,
            (Self::Capture { kind: mine, .. }, Self::Capture { kind: theirs, .. }) => {
                *mine == CaptureKind::Text || mine == theirs
            }
        }
    }
}

impl CaptureKind {
    /// Whether this matches a percent-decoded segment of a request.
    pub(super) fn takes(self, decoded: &str) -> Reading {
        match self {
            Self::Text => Reading::from(!decoded.is_empty()),
            Self::Integer => {
                if is_integer(decoded) {
                    Reading::Yes
                } else if resembles_a_number(target::without_parameters(decoded)) {
                    Reading::Unclear
                } else {
                    Reading::No
                }
            }
        }
    }
}

/// Whether the text is an integer in the spelling of arguments: one spelling for each, exact as a double.
fn is_integer(text: &str) -> bool {
    Number::parse(text)
        .is_some_and(|number| text != "-0" && number.integer().is_some() && Value::from_number(number).is_ok())
}

/// Whether some parser reads the whole text as an integer: with white space around it, a sign, leading zeros, a radix,
/// separators, a fraction or exponent, or the digits of another script.
fn resembles_a_number(text: &str) -> bool {
    let text = text.trim();
    let text = text.strip_prefix(['+', '-', '\u{2212}']).unwrap_or(text);
    let radix = ["0x", "0X", "0o", "0O", "0b", "0B"];
    if let Some(digits) = radix.iter().find_map(|radix| text.strip_prefix(radix)) {
        return digits.chars().all(|c| c.is_ascii_hexdigit() || c == '_');
    }
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let is_separator = |c: char| matches!(c, '_' | ',' | '\'' | '.') || c.is_whitespace();
    digits.chars().any(char::is_numeric)
        && digits.chars().all(|c| c.is_numeric() || is_separator(c))
        && exponent.chars().all(char::is_numeric)
}

/// The path segments that a template's captures matched, in the template's order, still percent-encoded.
pub type Captures<'r> = ArrayVec<&'r str, MAX_CAPTURES>;

/// Why a path template is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// It must start with a slash.
    #[error("a path template starts with `/`")]
    NotAbsolute,
    /// A service that merges slashes would read another path, so the template would never match.
    #[error("the template has an empty segment (`//`), which no request can match; remove it")]
    EmptySegment,
    /// A capture or wildcard mixed with text.
    #[error(
        "`{0}` mixes text with `{{`, `}}` or `*`; a capture `{{name}}` is a whole segment, and `**` is the last one"
    )]
    PartialSegment(String),
    /// An invalid name between the braces.
    #[error("`{{{0}}}` is no capture name; use letters, digits, `_` and `-`, starting with a letter or `_`")]
    CaptureName(String),
    /// An invalid type after the name between the braces.
    #[error("`{0}` is no type of a capture; write `{{name:integer}}`, or `{{name}}` for any text")]
    CaptureType(String),
    /// Two captures of one name.
    #[error("capture `{0}` appears twice; give each its own name")]
    DuplicateCapture(String),
    /// A query, a fragment, or characters that a path cannot have.
    #[error("`{0}` has a character that a path cannot carry; percent-encode it, and match queries by `query`")]
    Characters(String),
    /// Requests with such a segment are refused, so the template would never match.
    #[error("no request can match segment `{segment}`: {cause}")]
    Unreachable {
        /// The segment, as written.
        segment: String,
        /// Why such requests are refused.
        cause: Ambiguity,
    },
    /// More than [`MAX_TEMPLATE_BYTES`], [`MAX_SEGMENTS`] segments or [`MAX_CAPTURES`] captures.
    #[error(
        "the template is too long; at most {MAX_TEMPLATE_BYTES} bytes and {MAX_SEGMENTS} segments, of which \
         {MAX_CAPTURES} captures"
    )]
    TooLong,
}

/// Segments of one path template.
pub const MAX_SEGMENTS: usize = 64;

/// Bytes of one template: every audit event of its rule contains it, and the ledger accepts texts up to this length.
pub const MAX_TEMPLATE_BYTES: usize = 1_024;

/// Captures of one path template. They are on the stack while a request is matched.
pub const MAX_CAPTURES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::target::Target;

    impl PathTemplate {
        /// Whether this matches a path, segment by segment: the oracle for tests of the index.
        pub(in crate::route) fn takes(&self, mut path: Segments<'_>) -> Reading {
            let mut reading = Reading::Yes;
            for segment in &self.segments {
                let Some(text) = path.next() else { return Reading::No };
                reading = reading.and(segment.takes(&target::decode(text).unwrap()));
            }
            reading.and(Reading::from(self.rest || path.next().is_none()))
        }

        /// The same oracle for the other spellings of this path that some services accept.
        pub(in crate::route) fn takes_respelled(&self, path: Segments<'_>, tolerated: Tolerated) -> bool {
            let path: Vec<_> = path.map(|text| target::decode(text).unwrap()).collect();
            let is_bare = |text: &str, other: &str| target::without_parameters(text) == other;
            // Where a path ends, and whether a slash follows.
            let mut ends = vec![(path.len(), false)];
            if !tolerated.trailing_slash {
                ends.push((path.len(), true));
                if path.last().is_some_and(|last| is_bare(last, "")) {
                    ends.push((path.len() - 1, false));
                }
            }
            let takes = |(end, has_slash): (usize, bool), cut: Option<(usize, &str)>| {
                let mut path: Vec<_> = path[..end].iter().map(|text| text.to_string()).collect();
                if let Some((at, stem)) = cut {
                    path[at] = stem.to_owned();
                }
                let cut = cut.map(|(at, _)| at);
                path.extend(has_slash.then(String::new));
                let takes = |segment: &Segment, at: usize| {
                    let Some(text) = path.get(at) else { return false };
                    match segment {
                        Segment::Literal(literal) if tolerated.letter_case => literal == text || is_bare(text, literal),
                        Segment::Literal(literal) => {
                            let bare = target::without_parameters(text);
                            let letters = target::with_ascii_letters(bare);
                            [Some(text.as_str()), Some(bare), letters.as_deref()]
                                .into_iter()
                                .flatten()
                                .any(|text| literal.eq_ignore_ascii_case(text))
                        }
                        Segment::Capture { kind, .. } => {
                            kind.takes(text) != Reading::No && (*kind == CaptureKind::Integer || cut != Some(at))
                        }
                    }
                };
                let is_long_enough =
                    self.segments.len() == path.len() || (self.rest && self.segments.len() < path.len());
                // The part that `**` matches has no other spelling.
                let is_cut_seen = cut.is_none_or(|at| at < self.segments.len());
                let is_slash_seen = !has_slash || path.len() == self.segments.len();
                let segments = self.segments.iter().enumerate();
                is_long_enough
                    && is_cut_seen
                    && is_slash_seen
                    && segments.fold(true, |all, (at, segment)| all & takes(segment, at))
            };
            let last = match path.as_slice() {
                [.., last, slash] if slash.is_empty() => path.len().checked_sub(2).map(|at| (at, last)),
                [.., last] => Some((path.len() - 1, last)),
                [] => None,
            };
            let cuts = last
                .filter(|_| !tolerated.format_suffix)
                .into_iter()
                .flat_map(|(at, text)| {
                    target::without_format(target::without_parameters(text)).map(move |stem| Some((at, stem)))
                });
            let cuts: Vec<_> = [None].into_iter().chain(cuts).collect();
            ends.into_iter().any(|end| cuts.iter().any(|cut| takes(end, *cut)))
        }
    }

    #[test]
    fn templates_match_the_paths_they_describe() {
        let cases: [(&str, &str, Option<&[&str]>); 28] = [
            ("/", "/", Some(&[])),
            ("/", "/a", None),
            ("/healthz", "/healthz", Some(&[])),
            ("/healthz", "/healthz?verbose=1", Some(&[])),
            ("/healthz", "/healthz/", None),
            ("/healthz", "/Healthz", None),
            ("/healthz/", "/healthz/", Some(&[])),
            (
                "/v1/accounts/{account}/charges",
                "/v1/accounts/acme/charges",
                Some(&["acme"]),
            ),
            (
                "/v1/accounts/{account}/charges",
                "/v1/accounts/a%20b/charges",
                Some(&["a%20b"]),
            ),
            ("/v1/accounts/{account}/charges", "/v1/accounts/acme", None),
            ("/v1/accounts/{account}", "/v1/accounts/acme/charges", None),
            ("/v1/accounts/{account}", "/v1/accounts/", None),
            ("/{a}/{b}", "/x/y", Some(&["x", "y"])),
            ("/{a}/x/{b}", "/1/x/2", Some(&["1", "2"])),
            ("/users/{id:integer}", "/users/42", Some(&["42"])),
            ("/users/{id:integer}", "/users/ada", None),
            ("/**", "/", Some(&[])),
            ("/**", "/any/thing/", Some(&[])),
            ("/assets/**", "/assets", Some(&[])),
            ("/assets/**", "/assets/", Some(&[])),
            ("/assets/**", "/assets/css/site.css", Some(&[])),
            ("/assets/**", "/assetsx", None),
            ("/{tenant}/**", "/acme/x/y", Some(&["acme"])),
            ("/{tenant}/**", "/", None),
            ("/admin", "/%61dmin", Some(&[])),
            ("/caf%C3%A9", "/caf%c3%a9", Some(&[])),
            ("/a%20b", "/a%20b", Some(&[])),
            ("/shop.v1.Orders/Place", "/shop.v1.Orders/Place", Some(&[])),
        ];
        for (template, path, expected) in cases {
            let template = PathTemplate::parse(template, Tolerated::default()).unwrap();
            let target = Target::parse(path.as_bytes(), Tolerated::default()).unwrap();
            let found = (template.takes(target.segments()) == Reading::Yes).then(|| template.take(target.segments()));
            let found = found.as_ref().map(Captures::as_slice);
            assert_eq!(found, expected, "{template} against {path}");
        }
    }

    #[test]
    fn a_segment_that_only_some_services_match_is_unclear() {
        let tolerated = Tolerated {
            path_parameter: true,
            ..Tolerated::default()
        };
        let cases = [
            ("/admin", "/admin;v=1", Reading::Unclear),
            ("/admin", "/admin;v=1;w", Reading::Unclear),
            ("/admin", "/admin%3Bv=1", Reading::Unclear),
            ("/admin", "/%61dmin;v=1", Reading::Unclear),
            ("/admin", "/badmin;v=1", Reading::No),
            ("/admin;v=1", "/admin;v=1", Reading::Yes),
            ("/{id:integer}", "/7;v=1", Reading::Unclear),
            ("/{id:integer}/a", "/7;v=1/b", Reading::No),
            ("/{name}", "/a;v=1", Reading::Yes),
            ("/a/", "/a/%3Bv=1", Reading::Unclear),
        ];
        for (template, path, expected) in cases {
            let template = PathTemplate::parse(template, tolerated).unwrap();
            let target = Target::parse(path.as_bytes(), tolerated).unwrap();
            assert_eq!(template.takes(target.segments()), expected, "{template} against {path}");
        }
    }

    #[test]
    fn an_integer_capture_accepts_one_spelling_and_refuses_texts_that_resemble_a_number() {
        let cases: [(Reading, &[&str]); 3] = [
            (Reading::Yes, &["0", "7", "-7", "9007199254740991"]),
            (
                Reading::Unclear,
                &[
                    "007",
                    "-0",
                    "+7",
                    "7.0",
                    "7e0",
                    "7E-1",
                    " 7",
                    "7 ",
                    "1_000",
                    "1,000",
                    "0x1F",
                    "0b1",
                    "9007199254740993",
                    "99999999999999999999",
                    "\u{663}",
                    "\u{ff17}",
                    "\u{2212}7",
                    ".5",
                ],
            ),
            (
                Reading::No,
                &[
                    "",
                    "a",
                    "7a",
                    "a7",
                    "2026-11-21",
                    "3d-printer",
                    "-",
                    ".",
                    "e5",
                    "true",
                    "1e5x",
                    "--7",
                ],
            ),
        ];
        for (expected, texts) in cases {
            for text in texts {
                assert_eq!(CaptureKind::Integer.takes(text), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn an_invalid_template_is_refused() {
        let unreachable = |segment: &str, cause| TemplateError::Unreachable {
            segment: segment.to_owned(),
            cause,
        };
        let cases = [
            ("", TemplateError::NotAbsolute),
            ("v1", TemplateError::NotAbsolute),
            ("/a//b", TemplateError::EmptySegment),
            ("/a//**", TemplateError::EmptySegment),
            ("/a/{x}.json", TemplateError::PartialSegment("{x}.json".into())),
            ("/a/*", TemplateError::PartialSegment("*".into())),
            ("/a/**/b", TemplateError::PartialSegment("**".into())),
            ("/a/{}", TemplateError::CaptureName(String::new())),
            ("/a/{1}", TemplateError::CaptureName("1".into())),
            ("/a/{:integer}", TemplateError::CaptureName(String::new())),
            ("/a/{x:number}", TemplateError::CaptureType("number".into())),
            ("/{a}/{a}", TemplateError::DuplicateCapture("a".into())),
            ("/{a}/{a:integer}", TemplateError::DuplicateCapture("a".into())),
            ("/a?b=c", TemplateError::Characters("a?b=c".into())),
            ("/caf\u{e9}", TemplateError::Characters("caf\u{e9}".into())),
            ("/a/../b", unreachable("..", Ambiguity::DotSegment)),
            ("/a%2Fb", unreachable("a%2Fb", Ambiguity::EncodedSlash)),
            ("/a;b", unreachable("a;b", Ambiguity::PathParameter)),
            ("/a%zz", unreachable("a%zz", Ambiguity::InvalidEscape)),
        ];
        for (template, expected) in cases {
            let error = PathTemplate::parse(template, Tolerated::default()).unwrap_err();
            assert_eq!(error, expected, "{template}");
        }
        let long = "/a".repeat(MAX_SEGMENTS + 1);
        let wide = format!("/{}", "a".repeat(1_024));
        for template in [long, wide] {
            let error = PathTemplate::parse(&template, Tolerated::default()).unwrap_err();
            assert_eq!(error, TemplateError::TooLong);
        }
    }
}
