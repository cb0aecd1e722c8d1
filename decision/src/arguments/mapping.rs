//! Reads a tool's arguments from a request, as the matched rule maps them.
//!
//! Closed world: a part of the request that the service would read but no rule maps denies, because the delegation
//! cannot have constrained it. Anything that two parsers could read differently also denies.

use credence_delegation::Arguments;

use super::body::BodyMapping;
use super::source::{ArgumentSource, Source, unmapped};
use crate::decision::{Denial, Reason};
use crate::request::query::{self, MAX_QUERY_MEMBERS};
use crate::request::target::{self, Host, Target};
use crate::request::{Header, HeaderIndex, Request};
use crate::route::Captures;

/// The sources of the arguments of one rule's tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentMapping {
    /// One for each argument; names and sources are distinct.
    pub arguments: Vec<ArgumentSource>,
    /// Query members that the tool does not use: allowed and ignored.
    pub ignored_query: Vec<String>,
    /// The mapping of the body.
    pub body: BodyMapping,
    /// The headers among the sources, if any.
    headers: Option<Box<HeaderIndex>>,
}

/// The parts of a request that have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a, 'r> {
    /// The headers.
    pub request: &'a Request<'r>,
    /// The request's host.
    pub host: Host<'r>,
    /// The request's path.
    pub target: &'a Target<'r>,
    /// The captures of the rule's template in the path.
    pub captures: &'a Captures<'r>,
    /// The body, if there is one.
    pub body: Option<&'a [u8]>,
    /// Whether it has not arrived yet.
    pub awaits_body: bool,
}

impl ArgumentMapping {
    /// Names and sources of the arguments are distinct.
    pub fn new(arguments: Vec<ArgumentSource>, ignored_query: Vec<String>, body: BodyMapping) -> Self {
        let mut mapping = Self {
            arguments,
            ignored_query,
            body,
            headers: None,
        };
        let mut headers = HeaderIndex::default();
        mapping.add_headers_to(&mut headers);
        mapping.headers = (!headers.is_empty()).then(|| Box::new(headers));
        mapping
    }

    /// Adds the headers that arguments come from to an index.
    pub fn add_headers_to(&self, index: &mut HeaderIndex) {
        for name in self.arguments.iter().filter_map(|argument| argument.source.header()) {
            index.add(name);
        }
    }

    /// Reads the arguments of a request that matched the rule.
    ///
    /// # Errors
    /// The request is to be denied.
    pub fn read(&self, arrived: &Arrived<'_, '_>) -> Result<Arguments, Denial> {
        let mut arguments = Arguments::new();
        self.read_query(arrived.target.query().unwrap_or_default(), &mut arguments)?;
        if let Some(body) = arrived.body {
            self.body.read(body, &self.arguments, &mut arguments)?;
        }
        let headers = self
            .headers
            .as_deref()
            .map(|index| (index, arrived.request.read_headers(index)));
        let header = |name: &str| {
            let (index, headers) = headers.as_ref()?;
            Some(headers.get(&index.id(name)?).copied().unwrap_or(Header::Absent))
        };
        for wanted in &self.arguments {
            match &wanted.source {
                Source::Path(capture) => {
                    if let Some(segment) = arrived.captures.get(*capture) {
                        let text = arrived.target.decode_segment(segment).map_err(|_| wanted.ambiguous())?;
                        wanted.put(&text, &mut arguments)?;
                    }
                }
                Source::Header(name) => match header(name).unwrap_or(Header::Repeated) {
                    Header::Absent => {}
                    Header::Repeated => return Err(wanted.denied(Reason::ArgumentRepeated)),
                    // HTTP/2 delivers leading and trailing blanks to the service, and most services trim them.
                    Header::Once(value) if value.trim_ascii().len() != value.len() => return Err(wanted.ambiguous()),
                    Header::Once(value) => {
                        let text = std::str::from_utf8(value).map_err(|_| wanted.ambiguous())?;
                        wanted.put(text, &mut arguments)?;
                    }
                },
                Source::Host => wanted.put(&arrived.host.to_lower_case(), &mut arguments)?,
                Source::Method => {
                    let method = std::str::from_utf8(arrived.request.method).map_err(|_| wanted.ambiguous())?;
                    wanted.put(method, &mut arguments)?;
                }
                // Read above.
                Source::Query(_) | Source::Body(_) => {}
            }
            let comes_later = arrived.awaits_body && matches!(wanted.source, Source::Body(_));
            if !wanted.optional && !comes_later && arguments.argument(&wanted.name).is_none() {
                return Err(wanted.denied(Reason::ArgumentMissing));
            }
        }
        Ok(arguments)
    }

    /// Whether a header other than host and method is read.
    pub fn read_headers(&self) -> bool {
        self.headers.is_some()
    }

    fn read_query(&self, query: &[u8], arguments: &mut Arguments) -> Result<(), Denial> {
        // Some parsers read `;` as `&`: then an ignored member could hide one that counts.
        if query.contains(&b';') || !query.iter().all(u8::is_ascii_graphic) {
            return Err(Reason::QueryAmbiguous.into());
        }
        let query = std::str::from_utf8(query).map_err(|_| Reason::QueryAmbiguous)?;
        let members = query.split('&').filter(|member| !member.is_empty());
        for (index, member) in members.enumerate() {
            if index >= MAX_QUERY_MEMBERS {
                return Err(Reason::QueryTooLong.into());
            }
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            if name.contains('+') {
                return Err(Reason::QueryAmbiguous.into());
            }
            let name = target::decode(name).map_err(|_| Reason::QueryAmbiguous)?;
            let of_this_name =
                |wanted: &&ArgumentSource| matches!(&wanted.source, Source::Query(query) if *query == name);
            if let Some(wanted) = self.arguments.iter().find(of_this_name) {
                if value.contains('+') || query::may_belong_to_the_name(value) {
                    return Err(wanted.ambiguous());
                }
                let value = target::decode(value).map_err(|_| wanted.ambiguous())?;
                wanted.put(&value, arguments)?;
            } else if !self.ignored_query.iter().any(|ignored| *ignored == name) {
                return Err(unmapped(&name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{ArgumentKind, MAX_NAMED_BYTES};
    use super::*;
    use crate::request::target::{Host, Tolerated};
    use crate::request::{HeaderNames, tests::serialize};
    use crate::route::{PathTemplate, Pattern, Routes};

    #[test]
    fn arguments_come_from_path_query_and_header() {
        let mapping = mapping(vec![
            argument("account", Source::Path(0), ArgumentKind::String),
            argument("amount", Source::Query("amount".into()), ArgumentKind::Number),
            argument("tenant", Source::Header("x-tenant".into()), ArgumentKind::String),
        ]);
        let found = read(&mapping, "/acme%20ltd?amount=12.50", &[("x-tenant", "north, south")]).unwrap();
        assert_eq!(
            found.canonical(),
            r#"{"account":"acme ltd","amount":12.5,"tenant":"north, south"}"#
        );
    }

    #[test]
    fn host_and_method_may_be_arguments() {
        let mapping = mapping(vec![
            argument("host", Source::Host, ArgumentKind::String),
            argument("method", Source::Method, ArgumentKind::String),
        ]);
        let found = read(&mapping, "/x", &[]).unwrap();
        assert_eq!(found.canonical(), r#"{"host":"a.example","method":"GET"}"#);
    }

    #[test]
    fn query_values_are_read_by_their_type() {
        use ArgumentKind::{Boolean, Integer, Number, String};
        let cases = [
            (String, "v=abc", Some(r#""abc""#)),
            (String, "v=", Some(r#""""#)),
            (String, "v", Some(r#""""#)),
            (String, "v=a=b", Some(r#""a=b""#)),
            (String, "v=%63af%C3%A9%26", Some(r#""café&""#)),
            (String, "v=007", Some(r#""007""#)),
            (String, "%76=x", Some(r#""x""#)),
            (Number, "v=0", Some("0")),
            (Number, "v=-1.5", Some("-1.5")),
            (Number, "v=1.5e3", None),
            (Number, "v=9900000e-5", None),
            (Number, "v=-0", None),
            (Number, "v=%31%30", Some("10")),
            (Number, "v=", None),
            (Number, "v=007", None),
            (Number, "v=1.", None),
            (Number, "v=.5", None),
            (Number, "v=0x10", None),
            (Number, "v=NaN", None),
            (Number, "v=1e999", None),
            (Number, "v=9007199254740993", None),
            (Number, "v=%201", None),
            (Integer, "v=42", Some("42")),
            (Integer, "v=-42", Some("-42")),
            (Integer, "v=42.0", None),
            (Integer, "v=4e1", None),
            (Integer, "v=9007199254740993", None),
            (Integer, "v=99999999999999999999", None),
            (Boolean, "v=true", Some("true")),
            (Boolean, "v=false", Some("false")),
            (Boolean, "v=True", None),
            (Boolean, "v=1", None),
            (Boolean, "v", None),
        ];
        for (kind, query, expected) in cases {
            let mapping = mapping(vec![argument("v", Source::Query("v".into()), kind)]);
            let found = read(&mapping, &format!("/x?{query}"), &[]);
            let expected = match expected {
                Some(value) => Ok(format!(r#"{{"v":{value}}}"#)),
                None => Err(Denial::about(Reason::ArgumentMalformed, "v")),
            };
            assert_eq!(
                found.map(|arguments| arguments.canonical()),
                expected,
                "{kind:?} {query}"
            );
        }
    }

    #[test]
    fn an_ambiguous_query_denies() {
        let ambiguous = || Denial::about(Reason::ArgumentAmbiguous, "v");
        let cases = [
            ("v=a+b", ambiguous()),
            ("v=%zz", ambiguous()),
            ("v=%", ambiguous()),
            ("v=%00", ambiguous()),
            ("v=%ff", ambiguous()),
            ("v=1;v=2", Reason::QueryAmbiguous.into()),
            ("skip=1;v=2", Reason::QueryAmbiguous.into()),
            ("v=caf\u{e9}", Reason::QueryAmbiguous.into()),
            ("+v=1", Reason::QueryAmbiguous.into()),
            ("%zz=1", Reason::QueryAmbiguous.into()),
            ("v=1&v=1", Denial::about(Reason::ArgumentRepeated, "v")),
            ("v=1&%76=2", Denial::about(Reason::ArgumentRepeated, "v")),
            // The `qs` of Node reads the name as `v=1]`.
            ("v=1]=2", ambiguous()),
            ("v=1%5d=2", ambiguous()),
        ];
        for (query, expected) in cases {
            assert_eq!(read(&string_v(), &format!("/x?{query}"), &[]), Err(expected), "{query}");
        }
        assert_eq!(
            read(&header_v(), "/x", &[("x-v", "1"), ("x-v", "1")]),
            Err(Denial::about(Reason::ArgumentRepeated, "v"))
        );
    }

    #[test]
    fn a_header_in_another_spelling_denies() {
        for other in ["x.v", "x_v", "x~v", "x$v", "X.V"] {
            for headers in [&[("x-v", "1"), (other, "2")][..], &[(other, "1")]] {
                let repeated = Err(Denial::about(Reason::ArgumentRepeated, "v"));
                assert_eq!(read(&header_v(), "/x", headers), repeated, "{headers:?}");
            }
        }
        let found = read(&header_v(), "/x", &[("x-v", "1"), ("x.trace", "2")]).unwrap();
        assert_eq!(found.canonical(), r#"{"v":"1"}"#);
    }

    #[test]
    fn a_header_with_blanks_at_its_ends_denies() {
        for value in [" 1", "1\t", " "] {
            let ambiguous = Err(Denial::about(Reason::ArgumentAmbiguous, "v"));
            assert_eq!(read(&header_v(), "/x", &[("x-v", value)]), ambiguous, "{value:?}");
        }
        let found = read(&header_v(), "/x", &[("x-v", "1 2")]).unwrap();
        assert_eq!(found.canonical(), r#"{"v":"1 2"}"#);
    }

    #[test]
    fn a_query_member_that_no_rule_maps_denies_by_name() {
        for (query, member) in [("v=1&w=2", "w"), ("V=1", "V"), ("v%5B%5D=1", "v[]"), ("=1", "")] {
            let denial = read(&string_v(), &format!("/x?{query}"), &[]).unwrap_err();
            assert_eq!(denial, Denial::about(Reason::ArgumentUnknown, member), "{query}");
        }
        let denial = read(&string_v(), &format!("/x?{}=1", "n".repeat(500)), &[]).unwrap_err();
        assert_eq!(denial.argument.unwrap().len(), MAX_NAMED_BYTES);
    }

    #[test]
    fn ignored_members_are_allowed() {
        let found = read(&string_v(), "/x?skip=a+b&v=1&skip=%zz&&", &[]).unwrap();
        assert_eq!(found.canonical(), r#"{"v":"1"}"#);
    }

    #[test]
    fn a_query_has_a_bounded_number_of_members() {
        let target = format!("/x?v=1{}", "&skip".repeat(MAX_QUERY_MEMBERS));
        assert_eq!(read(&string_v(), &target, &[]), Err(Reason::QueryTooLong.into()));
    }

    #[test]
    fn only_an_optional_argument_may_be_missing() {
        for target in ["/x", "/x?", "/x?skip=1"] {
            assert_eq!(
                read(&string_v(), target, &[]),
                Err(Denial::about(Reason::ArgumentMissing, "v")),
                "{target}"
            );
        }
        assert_eq!(
            read(&header_v(), "/x", &[]),
            Err(Denial::about(Reason::ArgumentMissing, "v"))
        );
        let mut optional = string_v();
        optional.arguments[0].optional = true;
        assert_eq!(read(&optional, "/x", &[]).unwrap(), Arguments::new());
    }

    fn argument(name: &str, source: Source, kind: ArgumentKind) -> ArgumentSource {
        ArgumentSource {
            name: name.to_owned(),
            source,
            kind,
            optional: false,
        }
    }

    fn mapping(arguments: Vec<ArgumentSource>) -> ArgumentMapping {
        ArgumentMapping::new(arguments, vec!["skip".to_owned()], BodyMapping::default())
    }

    fn string_v() -> ArgumentMapping {
        mapping(vec![argument("v", Source::Query("v".into()), ArgumentKind::String)])
    }

    fn header_v() -> ArgumentMapping {
        mapping(vec![argument("v", Source::Header("x-v".into()), ArgumentKind::String)])
    }

    fn read(mapping: &ArgumentMapping, target: &str, headers: &[(&str, &str)]) -> Result<Arguments, Denial> {
        let mut routes = Routes::default();
        let path = PathTemplate::parse("/{first}", Tolerated::default()).unwrap();
        routes
            .push(
                Pattern {
                    hosts: Vec::new(),
                    methods: Vec::new(),
                    path,
                    conditions: Vec::new(),
                },
                (),
            )
            .unwrap();
        let target = Target::parse(target.as_bytes(), Tolerated::default()).unwrap();
        let host = Host::parse(b"A.example:443").unwrap();
        let buffer = serialize(&[&[(":method", "GET")], headers].concat());
        let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
        let found = routes.find(host, &request, &target).unwrap().unwrap();
        mapping.read(&Arrived {
            request: &request,
            host,
            target: &target,
            captures: &found.captures,
            body: None,
            awaits_body: false,
        })
    }
}
