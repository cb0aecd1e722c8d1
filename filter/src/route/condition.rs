//! What a rule asks of a request's headers and query, besides host, method and path.
//!
//! A condition answers for every reading that the service behind us might make of the request: one that some readings
//! meet and others do not neither holds nor fails. Were it taken for either, a client could choose between the rule and
//! the ones below it by sending a header twice.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::reading::Reading;
use crate::arguments::MAX_QUERY_MEMBERS;
use crate::request::{Header, Request};
use crate::target::{self, Target};

/// One thing that a rule asks of a header or of a member of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Of the header of this name, in lower case.
    Header {
        /// The header's name.
        name: String,
        /// What it must be.
        test: HeaderTest,
    },
    /// Of the query member of this name.
    Query {
        /// The member's name, decoded.
        name: String,
        /// What it must be.
        test: QueryTest,
    },
}

/// What a header must be. Letter case counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// This and nothing else.
    Exact(String),
    /// Something that starts so.
    Prefix(String),
    /// Something that ends so.
    Suffix(String),
    /// Sent, with whatever value.
    Present,
    /// Not sent.
    Absent,
}

/// What a query member must be. Letter case counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryTest {
    /// This, decoded, and nothing else.
    Exact(String),
    /// Sent, with whatever value, or none.
    Present,
    /// Not sent.
    Absent,
}

impl Condition {
    pub(super) fn reads(&self, asked: &Asked<'_, '_>) -> Reading {
        match self {
            Self::Header { name, test } => test.reads(asked.request.header(name)),
            Self::Query { name, test } => match asked.query() {
                Some(members) => test.reads(name, members),
                None => Reading::Unclear,
            },
        }
    }
}

impl HeaderTest {
    /// A header that is sent twice, or in another spelling, may be any of its values or none.
    fn reads(&self, header: Header<'_>) -> Reading {
        let value = match header {
            Header::Repeated => return Reading::Unclear,
            Header::Absent => return Reading::from(matches!(self, Self::Absent)),
            Header::Once(value) => value,
        };
        match self {
            Self::Present => Reading::Yes,
            Self::Absent => Reading::No,
            // What the operator wrote is never the wrong reading of itself.
            Self::Exact(text) if text.as_bytes() == value => Reading::Yes,
            Self::Exact(text) => as_a_list_too(value, |value| value == text.as_bytes()),
            Self::Prefix(text) => as_a_list_too(value, |value| value.starts_with(text.as_bytes())),
            Self::Suffix(text) => as_a_list_too(value, |value| value.ends_with(text.as_bytes())),
        }
    }
}

/// Whether a header's value fits: as a whole, and as any one of a list's elements.
///
/// Whoever joined two fields into one put a comma between them (RFC 9110, section 5.3), and a service may well use the
/// first, or the last, of what it takes for a list.
fn as_a_list_too(value: &[u8], fits: impl Fn(&[u8]) -> bool) -> Reading {
    let whole = fits(value);
    let is_list = value.contains(&b',');
    if is_list
        && value
            .split(|&byte| byte == b',')
            .any(|element| fits(element.trim_ascii()) != whole)
    {
        Reading::Unclear
    } else {
        Reading::from(whole)
    }
}

impl QueryTest {
    fn reads(&self, name: &str, members: &[Member<'_>]) -> Reading {
        let mut named_so = members.iter().filter(|member| member.name == name);
        let (first, repeated) = (named_so.next(), named_so.next().is_some());
        let spelled_otherwise = || {
            let is_variant = |member: &Member<'_>| member.name != name && is_variant(&member.name, name);
            members.iter().any(is_variant)
        };
        match (self, first) {
            (Self::Absent, Some(_)) => Reading::No,
            (Self::Present, Some(_)) => Reading::Yes,
            (Self::Absent | Self::Present | Self::Exact(_), None) if spelled_otherwise() => Reading::Unclear,
            (Self::Absent, None) => Reading::Yes,
            (Self::Present | Self::Exact(_), None) => Reading::No,
            (Self::Exact(_), Some(_)) if repeated || spelled_otherwise() => Reading::Unclear,
            (Self::Exact(text), Some(member)) => match target::decode(member.value) {
                // A `+` is a space to some.
                Ok(value) if !member.value.contains('+') => Reading::from(value == text.as_str()),
                _ => Reading::Unclear,
            },
        }
    }
}

/// Whether some framework takes the member `found` for one of the name `asked`: without regard to case (ASP.NET), with
/// `.` and spaces as `_` (PHP), or as an element of an array or object (PHP, Rails, the `qs` of Node).
fn is_variant(found: &str, asked: &str) -> bool {
    let found = match found.split_once('[') {
        Some((name, _)) if !asked.contains('[') => name,
        _ => found,
    };
    folded(found).eq(folded(asked))
}

fn folded(name: &str) -> impl Iterator<Item = char> {
    let fold = |c| if matches!(c, '.' | ' ') { '_' } else { c };
    name.trim_start().chars().map(fold).flat_map(char::to_lowercase)
}

/// What is asked about a request: its query is read when the first condition asks for it, and once.
pub(super) struct Asked<'a, 'r> {
    pub(super) request: &'a Request<'r>,
    pub(super) target: &'a Target<'r>,
    query: OnceCell<Option<Vec<Member<'r>>>>,
}

/// A member of the query.
struct Member<'r> {
    name: Cow<'r, str>,
    /// Still percent-encoded.
    value: &'r str,
}

impl<'a, 'r> Asked<'a, 'r> {
    pub(super) fn new(request: &'a Request<'r>, target: &'a Target<'r>) -> Self {
        Self {
            request,
            target,
            query: OnceCell::new(),
        }
    }

    /// The query's members in order, or nothing if their names can be read in more than one way.
    fn query(&self) -> Option<&[Member<'r>]> {
        let read = || members(self.target.query().unwrap_or_default());
        self.query.get_or_init(read).as_deref()
    }
}

/// As strict about names as `ArgumentMapping::read`, and with the same limit.
fn members(query: &[u8]) -> Option<Vec<Member<'_>>> {
    // Some parsers take `;` for `&`: then any member could hide another.
    if query.contains(&b';') || !query.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut members = Vec::new();
    for member in std::str::from_utf8(query)
        .ok()?
        .split('&')
        .filter(|member| !member.is_empty())
    {
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        if name.contains('+') || members.len() >= MAX_QUERY_MEMBERS {
            return None;
        }
        let name = target::decode(name).ok()?;
        members.push(Member { name, value });
    }
    Some(members)
}

/// Conditions of one rule, of its headers and of its query each.
pub const MAX_CONDITIONS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::HeaderNames;
    use crate::request::tests::serialize;
    use crate::target::Tolerated;
    use Reading::{No, Unclear, Yes};

    #[test]
    fn a_header_is_read_in_every_way_that_a_service_might() {
        let exact = HeaderTest::Exact("prod".to_owned());
        let list = HeaderTest::Exact("a, b".to_owned());
        let prefix = HeaderTest::Prefix("v1-".to_owned());
        let suffix = HeaderTest::Suffix("+json".to_owned());
        let cases: [(&HeaderTest, Headers<'_>, Reading); 30] = [
            (&exact, &[("x-env", "prod")], Yes),
            (&exact, &[("x-env", "Prod")], No),
            (&exact, &[("x-env", "production")], No),
            (&exact, &[("x-env", "")], No),
            (&exact, &[], No),
            (&exact, &[("x-env", "prod"), ("x-env", "prod")], Unclear),
            (&exact, &[("x-env", "test"), ("x-env", "prod")], Unclear),
            (&exact, &[("x-env", "prod"), ("x_env", "test")], Unclear),
            (&exact, &[("x_env", "prod")], Unclear),
            (&exact, &[("x-env", "test,prod")], Unclear),
            (&exact, &[("x-env", "prod , test")], Unclear),
            (&exact, &[("x-env", "prod,prod")], Unclear),
            (&exact, &[("x-env", "test,beta")], No),
            (&list, &[("x-env", "a, b")], Yes),
            (&list, &[("x-env", "a,b")], No),
            (&prefix, &[("x-env", "v1-7")], Yes),
            (&prefix, &[("x-env", "v2-7")], No),
            (&prefix, &[("x-env", "v1-7, v1-8")], Yes),
            (&prefix, &[("x-env", "v1-7, v2-8")], Unclear),
            (&prefix, &[("x-env", "v2-7, v1-8")], Unclear),
            (&suffix, &[("x-env", "a+json")], Yes),
            (&suffix, &[("x-env", "a+json, b+xml")], Unclear),
            (&suffix, &[], No),
            (&HeaderTest::Present, &[("x-env", "")], Yes),
            (&HeaderTest::Present, &[], No),
            (&HeaderTest::Present, &[("x_env", "")], Unclear),
            (&HeaderTest::Absent, &[], Yes),
            (&HeaderTest::Absent, &[("x-env", "")], No),
            (&HeaderTest::Absent, &[("x_env", "")], Unclear),
            (&HeaderTest::Absent, &[("x-env", "a"), ("x-env", "b")], Unclear),
        ];
        for (test, headers, expected) in cases {
            let condition = Condition::Header {
                name: "x-env".to_owned(),
                test: test.clone(),
            };
            assert_eq!(reads(&condition, "/", headers), expected, "{test:?} of {headers:?}");
        }
    }

    #[test]
    fn a_header_that_is_no_text_fits_by_its_bytes() {
        let test = HeaderTest::Prefix("a".to_owned());
        assert_eq!(test.reads(Header::Once(b"a\xff")), Yes);
        assert_eq!(test.reads(Header::Once(b"\xffa")), No);
    }

    #[test]
    fn a_query_member_is_read_in_every_way_that_a_service_might() {
        let exact = QueryTest::Exact("a b".to_owned());
        let cases = [
            (&exact, "v=a%20b", Yes),
            (&exact, "%76=%61%20b&w=1", Yes),
            (&exact, "v=A%20b", No),
            (&exact, "v", No),
            (&exact, "", No),
            (&exact, "w=a%20b", No),
            (&exact, "v=a+b", Unclear),
            (&exact, "v=a%2Bb", No),
            (&exact, "v=%zz", Unclear),
            (&exact, "v=%ff", Unclear),
            (&exact, "v=a%20b&v=a%20b", Unclear),
            (&exact, "v=a%20b&%76=c", Unclear),
            (&exact, "v=a%20b&V=c", Unclear),
            (&exact, "v=a%20b&v%5B%5D=c", Unclear),
            (&exact, "v[0]=a%20b", Unclear),
            (&exact, "w=1;v=a%20b", Unclear),
            (&exact, "%zz=1", Unclear),
            (&exact, "+v=1", Unclear),
            (&QueryTest::Present, "v=1", Yes),
            (&QueryTest::Present, "v", Yes),
            (&QueryTest::Present, "v=%zz&v", Yes),
            (&QueryTest::Present, "V", Unclear),
            (&QueryTest::Present, "w=v", No),
            (&QueryTest::Absent, "", Yes),
            (&QueryTest::Absent, "w=v", Yes),
            (&QueryTest::Absent, "v=", No),
            (&QueryTest::Absent, "V=1", Unclear),
            (&QueryTest::Absent, "%20v=1", Unclear),
            (&QueryTest::Absent, "v[x]=1", Unclear),
            (&QueryTest::Absent, "w;v=1", Unclear),
        ];
        for (test, query, expected) in cases {
            let condition = Condition::Query {
                name: "v".to_owned(),
                test: test.clone(),
            };
            assert_eq!(
                reads(&condition, &format!("/?{query}"), &[]),
                expected,
                "{test:?} of {query}"
            );
        }
        let condition = Condition::Query {
            name: "a_b[c]".to_owned(),
            test: QueryTest::Absent,
        };
        for (query, expected) in [("a_b[d]=1", Yes), ("a.b[C]=1", Unclear), ("a_b%5Bc%5D=1", No)] {
            assert_eq!(reads(&condition, &format!("/?{query}"), &[]), expected, "{query}");
        }
    }

    #[test]
    fn a_query_of_too_many_members_is_unclear() {
        let condition = Condition::Query {
            name: "v".to_owned(),
            test: QueryTest::Absent,
        };
        let members = |count| format!("/?{}", "w&".repeat(count));
        assert_eq!(reads(&condition, &members(MAX_QUERY_MEMBERS), &[]), Yes);
        assert_eq!(reads(&condition, &members(MAX_QUERY_MEMBERS + 1), &[]), Unclear);
    }

    type Headers<'a> = &'a [(&'a str, &'a str)];

    fn reads(condition: &Condition, target: &str, headers: Headers<'_>) -> Reading {
        let buffer = serialize(headers);
        let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
        let target = Target::parse(target.as_bytes(), Tolerated::default()).unwrap();
        condition.reads(&Asked::new(&request, &target))
    }
}
