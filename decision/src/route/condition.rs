//! Conditions of a rule on a request's headers and query, besides host, method and path.
//!
//! A condition considers every reading of the request by the service. If some readings meet it and others do not, it is
//! unclear. Otherwise a client could choose between the rule and the ones below it, for example by sending a header
//! twice.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::reading::Reading;
use crate::request::names::{NameId, work};
use crate::request::query::{Found, QueryIndex, QueryMembers};
use crate::request::target::Target;
use crate::request::{Header, HeaderIndex, Request};
use credence_delegation::sort::{sort, sort_by};

/// A condition on a header or on a query member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// On the header with this name, in lower case.
    Header {
        /// The header's name.
        name: String,
        /// The condition.
        test: HeaderTest,
    },
    /// On the query member with this name.
    Query {
        /// The member's name, decoded.
        name: String,
        /// The condition.
        test: QueryTest,
    },
}

/// A condition on a header. It is case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
#[cfg_attr(feature = "tools", serde(rename_all = "lowercase", tag = "test", content = "value"))]
pub enum HeaderTest {
    /// Exactly this value.
    Exact(String),
    /// A value with this prefix.
    Prefix(String),
    /// A value with this suffix.
    Suffix(String),
    /// Sent, with any value.
    Present,
    /// Not sent.
    Absent,
}

/// A condition on a query member. It is case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
#[cfg_attr(feature = "tools", serde(rename_all = "lowercase", tag = "test", content = "value"))]
pub enum QueryTest {
    /// Exactly this decoded value.
    Exact(String),
    /// Sent, with any value or none.
    Present,
    /// Not sent.
    Absent,
}

impl Condition {
    fn reads(&self, id: NameId, asked: &Asked<'_, '_>) -> Reading {
        match self {
            Self::Header { test, .. } => match asked.headers().get(&id) {
                Some(found) => test.reads(found),
                None => Reading::from(*test == HeaderTest::Absent),
            },
            Self::Query { name: _, test } => match asked.query() {
                Some(members) => test.reads(asked.names.query.find(members, id).as_ref()),
                None => Reading::Unclear,
            },
        }
    }
}

impl HeaderTest {
    /// A header that is sent twice, or in another spelling, may have any of its values, or be absent.
    fn reads(&self, found: &FoundHeader<'_>) -> Reading {
        let value = match found.header {
            Header::Repeated => return Reading::Unclear,
            Header::Absent => return Reading::from(*self == Self::Absent),
            Header::Once(value) => value,
        };
        let trimmed = value.trim_ascii();
        match self {
            // Some services treat a header without a value as absent (lighttpd's CGI).
            Self::Present | Self::Absent if trimmed.is_empty() => Reading::Unclear,
            Self::Present => Reading::Yes,
            Self::Absent => Reading::No,
            // HTTP/2 delivers leading and trailing blanks to the service, and most services trim them.
            Self::Exact(_) | Self::Prefix(_) | Self::Suffix(_) if trimmed.len() != value.len() => Reading::Unclear,
            // The configured text itself is never the wrong reading.
            Self::Exact(text) if text.as_bytes() == value => Reading::Yes,
            Self::Exact(text) => found.reads_as_a_list_too(false, |elements| elements.have(text.as_bytes())),
            Self::Prefix(text) => found.reads_as_a_list_too(value.starts_with(text.as_bytes()), |elements| {
                elements.start_with(text.as_bytes())
            }),
            Self::Suffix(text) => found.reads_as_a_list_too(value.ends_with(text.as_bytes()), |elements| {
                elements.end_with(text.as_bytes())
            }),
        }
    }
}

impl QueryTest {
    fn reads(&self, found: Option<&Found<'_, '_>>) -> Reading {
        let Some(found) = found else {
            return Reading::from(*self == Self::Absent);
        };
        match (self, found.value) {
            _ if found.is_in_doubt => Reading::Unclear,
            (Self::Absent | Self::Present, Some(value)) if !value.can_be_decoded() => Reading::Unclear,
            (Self::Absent, Some(_)) => Reading::No,
            (Self::Present, Some(_)) => Reading::Yes,
            (Self::Exact(text), Some(value)) if !(found.is_repeated || found.is_spelled_otherwise) => {
                match value.decoded() {
                    Some(value) => Reading::from(value == text),
                    None => Reading::Unclear,
                }
            }
            (Self::Present | Self::Absent | Self::Exact(_), _) => Reading::Unclear,
        }
    }
}

/// The names in the conditions of all rules.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedNames {
    headers: HeaderIndex,
    query: QueryIndex,
    /// The names of each rule's conditions, in order.
    of_rules: Vec<Box<[NameId]>>,
}

impl AskedNames {
    /// Adds the conditions of the next rule.
    pub(super) fn push(&mut self, conditions: &[Condition]) {
        let ids = conditions.iter().map(|condition| match condition {
            Condition::Header { name, .. } => self.headers.add(name),
            Condition::Query { name, .. } => self.query.add(name),
        });
        self.of_rules.push(ids.collect());
    }

    /// Each of a rule's conditions with the id of its name.
    fn with<'c>(&self, rule: usize, conditions: &'c [Condition]) -> impl Iterator<Item = (&'c Condition, NameId)> {
        let ids = self.of_rules.get(rule).map(|ids| &**ids).unwrap_or_default();
        conditions.iter().zip(ids.iter().copied())
    }
}

/// A request during the search for its rule. Headers and query are each read when a condition first needs them, and
/// once for all rules.
pub(super) struct Asked<'a, 'r> {
    pub(super) request: &'a Request<'r>,
    target: &'a Target<'r>,
    names: &'a AskedNames,
    headers: OnceCell<BTreeMap<NameId, FoundHeader<'r>>>,
    query: OnceCell<Option<QueryMembers<'r>>>,
}

impl<'a, 'r> Asked<'a, 'r> {
    pub(super) fn new(names: &'a AskedNames, request: &'a Request<'r>, target: &'a Target<'r>) -> Self {
        Self {
            request,
            target,
            names,
            headers: OnceCell::new(),
            query: OnceCell::new(),
        }
    }

    /// Whether all conditions of a rule hold.
    pub(super) fn meets(&self, rule: usize, conditions: &[Condition]) -> Reading {
        let mut meets = Reading::Yes;
        for (condition, name) in self.names.with(rule, conditions) {
            meets = meets.and(condition.reads(name, self));
            if meets == Reading::No {
                break;
            }
        }
        meets
    }

    /// The first of a rule's conditions that is unclear.
    pub(super) fn first_unclear<'c>(&self, rule: usize, conditions: &'c [Condition]) -> Option<&'c Condition> {
        let mut conditions = self.names.with(rule, conditions);
        conditions
            .find(|(condition, name)| condition.reads(*name, self) == Reading::Unclear)
            .map(|(condition, _)| condition)
    }

    fn headers(&self) -> &BTreeMap<NameId, FoundHeader<'r>> {
        self.headers.get_or_init(|| {
            let headers = self.request.read_headers(&self.names.headers);
            headers.into_iter().map(|(id, header)| (id, header.into())).collect()
        })
    }

    /// The query's members; `None` if their names are ambiguous.
    fn query(&self) -> Option<&QueryMembers<'r>> {
        let read = || self.names.query.read(self.target.query().unwrap_or_default());
        self.query.get_or_init(read).as_ref()
    }
}

/// A header in a condition.
struct FoundHeader<'r> {
    header: Header<'r>,
    /// As a list; read when a condition first needs its text.
    list: OnceCell<List<'r>>,
}

/// A header's value, as a list.
enum List<'r> {
    /// It has no comma.
    None,
    Elements(Elements<'r>),
    /// It has more than [`MAX_ELEMENTS`].
    TooLong,
}

/// The elements of a list, sorted, so that a test of all of them does not visit each.
struct Elements<'r> {
    forwards: Vec<&'r [u8]>,
    /// Sorted by their ends.
    backwards: Vec<&'r [u8]>,
}

impl<'r> From<Header<'r>> for FoundHeader<'r> {
    fn from(header: Header<'r>) -> Self {
        Self {
            header,
            list: OnceCell::new(),
        }
    }
}

impl<'r> FoundHeader<'r> {
    /// Whether a value meets a test: `whole` for the whole value, and `elements` for each element of a list.
    ///
    /// A proxy that joins two fields puts a comma between them (RFC 9110, section 5.3), and a service may use only the
    /// first or the last element of a list.
    fn reads_as_a_list_too(&self, whole: bool, elements: impl FnOnce(&Elements<'r>) -> Reading) -> Reading {
        match self.list.get_or_init(|| List::read(self.header)) {
            List::None => Reading::from(whole),
            List::Elements(list) if elements(list) == Reading::from(whole) => Reading::from(whole),
            List::Elements(_) | List::TooLong => Reading::Unclear,
        }
    }
}

impl<'r> List<'r> {
    fn read(header: Header<'r>) -> Self {
        let Header::Once(value) = header else {
            return Self::None;
        };
        work::count(value.len());
        let commas = value.iter().filter(|byte| **byte == b',').count();
        if commas == 0 {
            return Self::None;
        }
        if commas >= MAX_ELEMENTS {
            return Self::TooLong;
        }
        let mut forwards: Vec<_> = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
        sort(&mut forwards);
        let mut backwards = forwards.clone();
        sort_by(&mut backwards, |one, other| one.iter().rev().cmp(other.iter().rev()));
        Self::Elements(Elements { forwards, backwards })
    }
}

impl Elements<'_> {
    /// Whether one element is this text. Even if all are, the whole value, which has a comma, is not.
    fn have(&self, text: &[u8]) -> Reading {
        Reading::from(self.forwards.binary_search(&text).is_ok())
    }

    /// Whether all, or none, start with this text.
    fn start_with(&self, text: &[u8]) -> Reading {
        let first = self.forwards.partition_point(|element| *element < text);
        all_or_none(&self.forwards, first, |element| element.starts_with(text))
    }

    /// Whether all, or none, end with this text.
    fn end_with(&self, text: &[u8]) -> Reading {
        let first = self
            .backwards
            .partition_point(|element| element.iter().rev().lt(text.iter().rev()));
        all_or_none(&self.backwards, first, |element| element.ends_with(text))
    }
}

/// Matching elements are adjacent in sorted order; `first` is where they begin, if there are any.
fn all_or_none(elements: &[&[u8]], first: usize, fits: impl Fn(&[u8]) -> bool) -> Reading {
    let ends = [elements.first(), elements.last()];
    if ends.into_iter().flatten().all(|element| fits(element)) {
        Reading::Yes
    } else if elements.get(first).is_some_and(|element| fits(element)) {
        Reading::Unclear
    } else {
        Reading::No
    }
}

/// Elements of a list in a header whose text a condition needs.
const MAX_ELEMENTS: usize = 128;

/// Conditions of one rule: on its headers, and on its query.
pub const MAX_CONDITIONS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::HeaderNames;
    use crate::request::query::MAX_QUERY_MEMBERS;
    use crate::request::target::Tolerated;
    use crate::request::tests::serialize;
    use Reading::{No, Unclear, Yes};

    #[test]
    fn every_reading_of_a_header_by_a_service_is_considered() {
        let exact = HeaderTest::Exact("prod".to_owned());
        let list = HeaderTest::Exact("a, b".to_owned());
        let prefix = HeaderTest::Prefix("v1-".to_owned());
        let suffix = HeaderTest::Suffix("+json".to_owned());
        let cases: [(&HeaderTest, Headers<'_>, Reading); 36] = [
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
            (&exact, &[("x-env", " prod")], Unclear),
            (&prefix, &[("x-env", "v1-7\t")], Unclear),
            (&suffix, &[("x-env", "a+json ")], Unclear),
            (&HeaderTest::Present, &[("x-env", " a")], Yes),
            (&HeaderTest::Present, &[("x-env", "")], Unclear),
            (&HeaderTest::Present, &[("x-env", " ")], Unclear),
            (&HeaderTest::Present, &[], No),
            (&HeaderTest::Present, &[("x_env", "")], Unclear),
            (&HeaderTest::Absent, &[], Yes),
            (&HeaderTest::Absent, &[("x-env", "")], Unclear),
            (&HeaderTest::Absent, &[("x-env", " a")], No),
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
    fn a_header_that_is_not_text_is_compared_by_its_bytes() {
        let test = HeaderTest::Prefix("a".to_owned());
        assert_eq!(test.reads(&Header::Once(b"a\xff").into()), Yes);
        assert_eq!(test.reads(&Header::Once(b"\xffa").into()), No);
    }

    #[test]
    fn every_reading_of_a_query_member_by_a_service_is_considered() {
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
            (&QueryTest::Present, "v=%zz", Unclear),
            (&QueryTest::Present, "v=a+b", Yes),
            (&QueryTest::Present, "V", Unclear),
            (&QueryTest::Present, "w=v", No),
            (&QueryTest::Absent, "", Yes),
            (&QueryTest::Absent, "w=v", Yes),
            (&QueryTest::Absent, "v=", No),
            (&QueryTest::Absent, "v=%zz", Unclear),
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
    fn a_query_name_that_some_parser_confuses_with_the_condition_s_is_unclear() {
        let cases = [
            ("full", "[full]"),
            ("full", "[full][x]"),
            ("full", "[full"),
            ("full", "full]"),
            ("full", "[[full]]"),
            ("full", ".full"),
            ("full", "full.export"),
            ("full", "%20full"),
            ("full", "full%20"),
            ("full", "full%C2%A0"),
            ("full", "%EF%BB%BFfull"),
            ("full", "options.full"),
            ("full", "options[full]"),
            ("full", "_full"),
            ("full", "!full"),
            ("full", "$full"),
            ("full", "FULL"),
            ("key", "%E2%84%AAey"),
            ("is", "%C4%B1s"),
            ("full_export", "full[export"),
            ("full_export", "full.export"),
            ("full_export", "full%20export"),
            ("full_export", "full.export[x]"),
            ("a_b_c", "a[b.c"),
            ("filter[a]", "filter.a"),
            ("filter[a]", "filter[a][b]"),
            ("filter[a]", "filter[a"),
            ("filter[a]", "filter"),
            ("filter[a]", "filter[]"),
        ];
        for (asked, sent) in cases {
            for test in [QueryTest::Present, QueryTest::Absent, QueryTest::Exact("1".to_owned())] {
                let condition = query(asked, test);
                assert_eq!(
                    reads(&condition, &format!("/?{sent}=1"), &[]),
                    Unclear,
                    "{sent}: {condition:?}"
                );
            }
        }
    }

    #[test]
    fn a_query_name_that_no_parser_confuses_with_the_condition_s_is_ignored() {
        let cases = [
            ("full", "filter[a]"),
            ("full", "fuller"),
            ("full", "full_export"),
            ("full", "full-export"),
            ("full", "export_full"),
            ("full", "is.fuller"),
            ("filter[a]", "filter[b]"),
            ("filter[a]", "a"),
            ("full_export", "full-export"),
            ("full_export", "full"),
            ("full_export", "export[full]"),
            ("id", "user_id"),
        ];
        for (asked, sent) in cases {
            let condition = query(asked, QueryTest::Absent);
            assert_eq!(
                reads(&condition, &format!("/?{sent}=1"), &[]),
                Yes,
                "{sent} for {asked}"
            );
        }
    }

    /// The `qs` of Node splits a member at the first `]=`.
    #[test]
    fn a_value_that_some_parsers_read_as_part_of_the_name_is_unclear() {
        for sent in ["full=0]=1", "full=0%5D=1", "full=[0%5d=1"] {
            for test in [
                QueryTest::Present,
                QueryTest::Absent,
                QueryTest::Exact("0]=1".to_owned()),
            ] {
                assert_eq!(
                    reads(&query("full", test), &format!("/?{sent}"), &[]),
                    Unclear,
                    "{sent}"
                );
            }
        }
        assert_eq!(reads(&query("full", QueryTest::Present), "/?full=[0]", &[]), Yes);
        assert_eq!(reads(&query("full", QueryTest::Present), "/?full=0=[1]", &[]), Yes);
    }

    #[test]
    fn a_query_name_that_is_escaped_twice_or_of_many_parts_is_unclear() {
        let absent = query("full", QueryTest::Absent);
        assert_eq!(reads(&absent, "/?%2566ull=1", &[]), Unclear);
        assert_eq!(reads(&absent, "/?a[b][c][d][e][f][g][h]=1", &[]), Yes);
        assert_eq!(reads(&absent, "/?a[b][c][d][e][f][g][h][i]=1", &[]), Unclear);
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

    #[test]
    fn a_list_of_too_many_elements_is_unclear_unless_it_equals_the_condition() {
        let list = |count| vec!["b"; count].join(",");
        let at_most = list(MAX_ELEMENTS);
        let more = list(MAX_ELEMENTS + 1);
        let condition = |test| Condition::Header {
            name: "x-env".to_owned(),
            test,
        };
        for (test, of_at_most, of_more) in [
            (HeaderTest::Prefix("b".to_owned()), Yes, Unclear),
            (HeaderTest::Suffix("a".to_owned()), No, Unclear),
            (HeaderTest::Exact("a".to_owned()), No, Unclear),
            (HeaderTest::Exact(more.clone()), No, Yes),
            (HeaderTest::Present, Yes, Yes),
        ] {
            let condition = condition(test);
            assert_eq!(
                reads(&condition, "/", &[("x-env", &at_most)]),
                of_at_most,
                "{condition:?}"
            );
            assert_eq!(reads(&condition, "/", &[("x-env", &more)]), of_more, "{condition:?}");
        }
    }

    #[test]
    fn a_list_is_tested_like_each_of_its_elements() {
        let texts = ["", "a", "ab", "b", "ba", "abb", "bb"];
        let mut unclear = 0;
        for one in texts {
            for two in texts {
                for three in texts {
                    let value = format!("{one}, {two},{three}");
                    for text in &texts[1..] {
                        let text = text.to_string();
                        for test in [
                            HeaderTest::Exact(text.clone()),
                            HeaderTest::Prefix(text.clone()),
                            HeaderTest::Suffix(text),
                        ] {
                            let fits = |value: &str| match &test {
                                HeaderTest::Exact(text) => value == text,
                                HeaderTest::Prefix(text) => value.starts_with(text),
                                HeaderTest::Suffix(text) => value.ends_with(text),
                                HeaderTest::Present | HeaderTest::Absent => panic!("reads no text"),
                            };
                            let whole = fits(&value);
                            let expected = match [one, two, three].iter().all(|element| fits(element) == whole) {
                                true => Reading::from(whole),
                                false => Unclear,
                            };
                            let found = test.reads(&Header::Once(value.as_bytes()).into());
                            assert_eq!(found, expected, "{test:?} of {value:?}");
                            unclear += usize::from(found == Unclear);
                        }
                    }
                }
            }
        }
        assert!(unclear > 1_000, "{unclear}");
    }

    type Headers<'a> = &'a [(&'a str, &'a str)];

    fn query(name: &str, test: QueryTest) -> Condition {
        let name = name.to_owned();
        Condition::Query { name, test }
    }

    fn reads(condition: &Condition, target: &str, headers: Headers<'_>) -> Reading {
        let buffer = serialize(headers);
        let request = Request::parse(&buffer, &HeaderNames::default(), false).unwrap();
        let target = Target::parse(target.as_bytes(), Tolerated::default()).unwrap();
        let conditions = std::slice::from_ref(condition);
        let mut names = AskedNames::default();
        names.push(conditions);
        Asked::new(&names, &request, &target).meets(0, conditions)
    }
}
