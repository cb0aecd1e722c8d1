//! Finds the rule a request falls under.

use std::fmt;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::target::{self, Ambiguity, Host, Target};

/// Rules in the order they are tried; the first that matches wins.
///
/// `T` is what a match leads to. A search looks at each pattern in turn and allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Routes<T> {
    routes: Vec<(Pattern, T)>,
}

impl<T> Routes<T> {
    /// No routes: nothing matches.
    pub fn new() -> Self {
        Self { routes: Vec::new() }
    }

    /// Appends a route, to be tried after those already there.
    ///
    /// # Errors
    /// The index of an earlier route that already takes every request this one could match.
    pub fn push(&mut self, pattern: Pattern, leads_to: T) -> Result<(), usize> {
        if let Some(earlier) = self.routes.iter().position(|(earlier, _)| earlier.covers(&pattern)) {
            return Err(earlier);
        }
        self.routes.push((pattern, leads_to));
        Ok(())
    }

    /// The first route that matches, if any.
    pub fn find<'s, 'r>(&'s self, host: Host<'_>, method: &[u8], target: &Target<'r>) -> Option<RouteMatch<'s, 'r, T>> {
        self.routes.iter().enumerate().find_map(|(index, (pattern, leads_to))| {
            let captures = pattern.matches(host, method, target)?;
            Some(RouteMatch {
                index,
                leads_to,
                captures,
            })
        })
    }

    /// What each route leads to, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().map(|(_, leads_to)| leads_to)
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route at all.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// A request's route.
#[derive(Debug)]
pub struct RouteMatch<'s, 'r, T> {
    /// The position of the route among all, from 0.
    pub index: usize,
    /// What the route leads to.
    pub leads_to: &'s T,
    /// What the path's captures took from the request.
    pub captures: Captures<'r>,
}

/// The path segments that a template's captures took, in the template's order, still percent-encoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Captures<'r> {
    segments: [&'r str; MAX_CAPTURES],
    count: usize,
}

impl<'r> Captures<'r> {
    /// The segment taken by the template's capture number `index` (from 0).
    pub fn get(&self, index: usize) -> Option<&'r str> {
        self.segments.get(..self.count)?.get(index).copied()
    }

    fn push(&mut self, segment: &'r str) -> Option<()> {
        *self.segments.get_mut(self.count)? = segment;
        self.count = self.count.checked_add(1)?;
        Some(())
    }
}

/// What a request must look like to take a route.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Any of these hosts; every host if empty.
    pub hosts: Vec<HostPattern>,
    /// Any of these methods; every method if empty.
    pub methods: Vec<String>,
    /// The path.
    pub path: PathTemplate,
}

impl Pattern {
    fn matches<'r>(&self, host: Host<'_>, method: &[u8], target: &Target<'r>) -> Option<Captures<'r>> {
        let method_fits = self.methods.is_empty() || self.methods.iter().any(|known| known.as_bytes() == method);
        let host_fits = self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host));
        if method_fits && host_fits {
            self.path.matches(target)
        } else {
            None
        }
    }

    /// Whether every request that `other` matches is matched by this pattern too.
    fn covers(&self, other: &Pattern) -> bool {
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|method| self.methods.contains(method)));
        let hosts = self.hosts.is_empty()
            || (!other.hosts.is_empty()
                && other
                    .hosts
                    .iter()
                    .all(|narrow| self.hosts.iter().any(|wide| wide.covers(narrow))));
        methods && hosts && self.path.covers(&other.path)
    }
}

/// A host as a rule writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exact(String),
    /// Every host under this suffix, which starts with a dot; the suffix's own host is not among them.
    Under(String),
}

impl HostPattern {
    /// Reads `payments.example` or `*.example`.
    ///
    /// # Errors
    /// [`HostPatternError`] for anything else, an upper-case letter or a port included.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let (name, wild) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_address = name.parse::<std::net::Ipv6Addr>().is_ok() && !wild;
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) || !(target::is_host_name(name) || is_address) {
            return Err(HostPatternError);
        }
        Ok(if wild {
            Self::Under(format!(".{name}"))
        } else {
            Self::Exact(name.to_owned())
        })
    }

    fn matches(&self, host: Host<'_>) -> bool {
        match self {
            Self::Exact(name) => host.is(name),
            Self::Under(suffix) => host.is_under(suffix),
        }
    }

    fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (Self::Exact(mine), Self::Exact(theirs)) => mine == theirs,
            (Self::Exact(_), Self::Under(_)) => false,
            (Self::Under(suffix), Self::Exact(name)) => name.len() > suffix.len() && name.ends_with(suffix),
            (Self::Under(wide), Self::Under(narrow)) => narrow.ends_with(wide),
        }
    }
}

/// A host pattern that is neither a host name nor `*.` and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a host is written in lower case without scheme, port or trailing dot, such as `payments.example` or `*.example`"
)]
pub struct HostPatternError;

/// A path as a rule writes it: literal segments, `{captures}` of one segment each, and optionally `**` at the end.
#[derive(Clone, Debug)]
pub struct PathTemplate {
    source: String,
    segments: Vec<Segment>,
    rest: bool,
}

#[derive(Clone, Debug)]
enum Segment {
    /// Percent-decoded.
    Literal(String),
    /// Takes exactly one segment, never an empty one.
    Capture(String),
}

impl PathTemplate {
    /// Reads a template such as `/v1/accounts/{account}/charges` or `/assets/**`.
    ///
    /// A trailing slash is significant. `/assets/**` also takes `/assets` and `/assets/`.
    ///
    /// # Errors
    /// [`TemplateError`] names the segment that can not stand.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
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
            let segment = Segment::parse(text)?;
            if let Segment::Capture(name) = &segment
                && segments
                    .iter()
                    .any(|earlier| matches!(earlier, Segment::Capture(taken) if taken == name))
            {
                return Err(TemplateError::DuplicateCapture(name.clone()));
            }
            segments.push(segment);
        }
        let captures = segments
            .iter()
            .filter(|segment| matches!(segment, Segment::Capture(_)))
            .count();
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
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Capture(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    fn matches<'r>(&self, target: &Target<'r>) -> Option<Captures<'r>> {
        let mut captures = Captures::default();
        let mut requested = target.segments();
        for segment in &self.segments {
            let text = requested.next()?;
            match segment {
                Segment::Literal(literal) if is_encoding_of(text, literal) => {}
                Segment::Capture(_) if !text.is_empty() => captures.push(text)?,
                Segment::Literal(_) | Segment::Capture(_) => return None,
            }
        }
        (self.rest || requested.next().is_none()).then_some(captures)
    }

    fn covers(&self, other: &PathTemplate) -> bool {
        let mut theirs = other.segments.iter();
        for mine in &self.segments {
            let covered = match (mine, theirs.next()) {
                (_, None) => false,
                (Segment::Literal(mine), Some(Segment::Literal(theirs))) => mine == theirs,
                (Segment::Literal(_), Some(Segment::Capture(_))) => false,
                (Segment::Capture(_), Some(Segment::Literal(theirs))) => !theirs.is_empty(),
                (Segment::Capture(_), Some(Segment::Capture(_))) => true,
            };
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
    fn parse(text: &str) -> Result<Self, TemplateError> {
        if let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let mut bytes = name.bytes();
            let well_formed = bytes
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
            return if well_formed {
                Ok(Self::Capture(name.to_owned()))
            } else {
                Err(TemplateError::CaptureName(name.to_owned()))
            };
        }
        if text.contains(['{', '}', '*']) {
            return Err(TemplateError::PartialSegment(text.to_owned()));
        }
        if text.contains(['?', '#']) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TemplateError::Characters(text.to_owned()));
        }
        match target::decode_segment(text) {
            Ok(decoded) => Ok(Self::Literal(decoded.into_owned())),
            Err(cause) => Err(TemplateError::Unreachable {
                segment: text.to_owned(),
                cause,
            }),
        }
    }
}

/// Whether a request's segment is some spelling of the literal.
///
/// The comparison is on decoded text: to the service behind us `%61dmin` *is* `admin`, so a rule for `admin` must take
/// it.
fn is_encoding_of(segment: &str, literal: &str) -> bool {
    if segment.contains('%') {
        percent_decode_str(segment).eq(literal.bytes())
    } else {
        segment == literal
    }
}

/// Why a path template can not stand.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// It must start with a slash.
    #[error("a path template starts with `/`")]
    NotAbsolute,
    /// Requests with `//` are refused, so this would never match.
    #[error("the template has an empty segment (`//`), and requests with one are refused; remove it")]
    EmptySegment,
    /// Part capture or wildcard, part text.
    #[error(
        "`{0}` mixes text with `{{`, `}}` or `*`; a capture `{{name}}` is a whole segment, and `**` is the last one"
    )]
    PartialSegment(String),
    /// The name between the braces.
    #[error("`{{{0}}}` is no capture name; use letters, digits, `_` and `-`, starting with a letter or `_`")]
    CaptureName(String),
    /// Two captures of one name.
    #[error("capture `{0}` appears twice; give each its own name")]
    DuplicateCapture(String),
    /// A query, a fragment or bytes that a path does not carry.
    #[error("`{0}` has a character that a path can not carry; percent-encode it, and match queries by `args`")]
    Characters(String),
    /// Requests with such a segment are refused, so this would never match.
    #[error("no request can match segment `{segment}`: {cause}")]
    Unreachable {
        /// As it was written.
        segment: String,
        /// Why requests like it are refused.
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

/// Bytes of one template: it goes into every audit event of its rule, and the ledger takes texts up to this.
pub const MAX_TEMPLATE_BYTES: usize = 1_024;

/// Captures of one path template. Captures live on the stack while a request is matched.
pub const MAX_CAPTURES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_take_the_paths_they_describe() {
        let cases: [(&str, &str, Option<&[&str]>); 24] = [
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
        ];
        for (template, path, expected) in cases {
            let found = PathTemplate::parse(template)
                .unwrap()
                .matches(&Target::parse(path.as_bytes()).unwrap());
            let found = found.map(|captures| {
                (0..MAX_CAPTURES)
                    .map_while(|index| captures.get(index))
                    .collect::<Vec<_>>()
            });
            assert_eq!(found.as_deref(), expected, "{template} against {path}");
        }
    }

    #[test]
    fn a_template_that_can_not_stand_is_refused() {
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
            ("/{a}/{a}", TemplateError::DuplicateCapture("a".into())),
            ("/a?b=c", TemplateError::Characters("a?b=c".into())),
            ("/café", TemplateError::Characters("café".into())),
            ("/a/../b", unreachable("..", Ambiguity::DotSegment)),
            ("/a%2Fb", unreachable("a%2Fb", Ambiguity::EncodedSlash)),
            ("/a%zz", unreachable("a%zz", Ambiguity::InvalidEscape)),
        ];
        for (template, expected) in cases {
            assert_eq!(PathTemplate::parse(template).unwrap_err(), expected, "{template}");
        }
        let long = "/a".repeat(MAX_SEGMENTS + 1);
        assert_eq!(PathTemplate::parse(&long).unwrap_err(), TemplateError::TooLong);
        let wide = format!("/{}", "a".repeat(1_024));
        assert_eq!(PathTemplate::parse(&wide).unwrap_err(), TemplateError::TooLong);
    }

    #[test]
    fn a_host_pattern_is_a_lower_case_name_or_a_wildcard_over_one() {
        assert_eq!(
            HostPattern::parse("a.example"),
            Ok(HostPattern::Exact("a.example".into()))
        );
        assert_eq!(
            HostPattern::parse("*.example"),
            Ok(HostPattern::Under(".example".into()))
        );
        for wrong in [
            "",
            "*",
            "*.",
            "a.*",
            "A.example",
            "a.example:80",
            "a.example.",
            "http://a",
            "*.*.a",
        ] {
            assert_eq!(HostPattern::parse(wrong), Err(HostPatternError), "{wrong}");
        }
    }

    #[test]
    fn the_first_route_that_matches_wins() {
        let mut routes = Routes::new();
        routes
            .push(pattern(&["a.example"], &["GET"], "/x"), "host and method")
            .unwrap();
        routes
            .push(pattern(&["*.example"], &[], "/x"), "wildcard host")
            .unwrap();
        routes.push(pattern(&[], &["POST"], "/{any}"), "method").unwrap();
        routes.push(pattern(&[], &[], "/**"), "everything").unwrap();
        let cases = [
            ("A.example:80", "GET", "/x", "host and method"),
            ("a.example", "PUT", "/x", "wildcard host"),
            ("b.example", "GET", "/x", "wildcard host"),
            ("example", "POST", "/x", "method"),
            ("example", "GET", "/x", "everything"),
            ("example", "post", "/x", "everything"),
        ];
        for (host, method, path, expected) in cases {
            let found = find(&routes, host, method, path);
            assert_eq!(found, Some(expected), "{method} {host}{path}");
        }
    }

    #[test]
    fn nothing_matches_without_a_fitting_route() {
        let mut routes = Routes::new();
        routes.push(pattern(&["a.example"], &["GET"], "/x"), "only").unwrap();
        assert_eq!(find(&routes, "b.example", "GET", "/x"), None);
        assert_eq!(find(&routes, "a.example", "HEAD", "/x"), None);
        assert_eq!(find(&routes, "a.example", "GET", "/y"), None);
    }

    #[test]
    fn a_route_that_an_earlier_one_always_takes_first_is_refused() {
        let cases = [
            (pattern(&[], &[], "/x"), pattern(&[], &[], "/x"), true),
            (
                pattern(&[], &[], "/{a}"),
                pattern(&["a.example"], &["GET"], "/{b}"),
                true,
            ),
            (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/x"), true),
            (pattern(&[], &[], "/**"), pattern(&[], &[], "/x/{a}"), true),
            (
                pattern(&["*.example"], &["GET", "PUT"], "/x"),
                pattern(&["a.example"], &["PUT"], "/x"),
                true,
            ),
            (
                pattern(&["*.example"], &[], "/x"),
                pattern(&["*.a.example"], &[], "/x"),
                true,
            ),
            (pattern(&[], &[], "/x"), pattern(&[], &[], "/{a}"), false),
            (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/"), false),
            (pattern(&[], &[], "/{a}"), pattern(&[], &[], "/**"), false),
            (pattern(&[], &["GET"], "/x"), pattern(&[], &[], "/x"), false),
            (
                pattern(&["a.example"], &[], "/x"),
                pattern(&["a.example", "b.example"], &[], "/x"),
                false,
            ),
            (
                pattern(&["*.example"], &[], "/x"),
                pattern(&["example"], &[], "/x"),
                false,
            ),
        ];
        for (earlier, later, refused) in cases {
            let description = format!("{earlier:?} before {later:?}");
            let mut routes = Routes::new();
            routes.push(earlier, ()).unwrap();
            assert_eq!(routes.push(later, ()).is_err(), refused, "{description}");
        }
    }

    fn pattern(hosts: &[&str], methods: &[&str], path: &str) -> Pattern {
        Pattern {
            hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            path: PathTemplate::parse(path).unwrap(),
        }
    }

    fn find(routes: &Routes<&'static str>, host: &str, method: &str, path: &str) -> Option<&'static str> {
        let target = Target::parse(path.as_bytes()).unwrap();
        let found = routes.find(Host::parse(host.as_bytes()).unwrap(), method.as_bytes(), &target);
        found.map(|found| *found.leads_to)
    }
}
