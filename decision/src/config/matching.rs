//! Which requests a rule is for: `match`, and what `paths` tolerates.

use super::checks::{alike, at_most, is_token, not_empty, query_name, readable_header, visible};
use super::error::Problems;
use super::file::{self, HostSpelling, PathSpelling};
use crate::arguments::{ArgumentSource, Source};
use crate::request::query;
use crate::request::target::{Tolerated, ToleratedHosts};
use crate::request::{HeaderNames, folds_to};
use crate::route::{Condition, HeaderTest, HostPattern, MAX_CONDITIONS, PathTemplate, Pattern, QueryTest};

/// Gives `paths` its meaning.
pub(super) fn tolerated(paths: &file::Paths, problems: &mut Problems) -> Tolerated {
    let mut tolerated = Tolerated::default();
    for (index, spelling) in paths.allow.iter().flatten().enumerate() {
        let allowed = match spelling {
            PathSpelling::EncodedSlash => &mut tolerated.encoded_slash,
            PathSpelling::PathParameter => &mut tolerated.path_parameter,
            PathSpelling::EmptySegment => &mut tolerated.empty_segment,
            PathSpelling::LetterCase => &mut tolerated.letter_case,
            PathSpelling::TrailingSlash => &mut tolerated.trailing_slash,
            PathSpelling::FormatSuffix => &mut tolerated.format_suffix,
        };
        allow(allowed, || format!("paths.allow[{index}]"), problems);
    }
    tolerated
}

/// Gives the plugin's `hosts` its meaning.
pub(super) fn tolerated_hosts(hosts: &file::Hosts, problems: &mut Problems) -> ToleratedHosts {
    let mut tolerated = ToleratedHosts::default();
    for (index, spelling) in hosts.allow.iter().flatten().enumerate() {
        let allowed = match spelling {
            HostSpelling::Port => &mut tolerated.port,
            HostSpelling::TrailingDot => &mut tolerated.trailing_dot,
        };
        allow(allowed, || format!("hosts.allow[{index}]"), problems);
    }
    tolerated
}

fn allow(spelling: &mut bool, path: impl FnOnce() -> String, problems: &mut Problems) {
    if std::mem::replace(spelling, true) {
        problems.report(path(), "this is listed twice; remove one");
    }
}

/// The clusters that a rule expects its requests to go to.
pub(super) fn clusters(path: &str, clusters: Option<&[String]>, problems: &mut Problems) -> Vec<String> {
    let Some(clusters) = clusters else { return Vec::new() };
    not_empty(path, clusters.len(), problems);
    at_most(MAX_CLUSTERS, clusters.len(), path, problems);
    for (index, cluster) in clusters.iter().enumerate() {
        visible(&format!("{path}[{index}]"), cluster, problems);
    }
    clusters.to_vec()
}

/// Gives a rule's `match` its meaning. `headers` carry the delegation, and nothing else can be asked of them.
pub(super) fn pattern(
    path: &str,
    matches: &file::Match,
    tolerated: Tolerated,
    headers: &HeaderNames,
    problems: &mut Problems,
) -> Option<Pattern> {
    let template = problems.take(format!("{path}.path"), PathTemplate::parse(&matches.path, tolerated));
    let hosts = hosts(&format!("{path}.hosts"), matches.hosts.as_deref(), problems);
    let methods = methods(&format!("{path}.methods"), matches.methods.as_deref(), problems);
    let mut conditions = Vec::new();
    if let Some(asked) = &matches.headers {
        let path = format!("{path}.headers");
        at_most(MAX_CONDITIONS, asked.0.len(), &path, problems);
        header_conditions(&path, &asked.0, headers, &mut conditions, problems);
    }
    if let Some(asked) = &matches.query {
        let path = format!("{path}.query");
        at_most(MAX_CONDITIONS, asked.0.len(), &path, problems);
        query_conditions(&path, &asked.0, &mut conditions, problems);
    }
    Some(Pattern {
        hosts: hosts?,
        methods,
        path: template?,
        conditions,
    })
}

/// Lets the query members through that `match` leaves no choice of, and reports those whose value nothing constrains:
/// they would be denied in every request that matches.
pub(super) fn account_for_query(
    path: &str,
    matches: &file::Match,
    arguments: &[ArgumentSource],
    ignored: &mut Vec<String>,
    problems: &mut Problems,
) {
    for (name, test) in matches.query.iter().flat_map(|query| &query.0) {
        let is_read = arguments
            .iter()
            .any(|argument| matches!(&argument.source, Source::Query(read) if read == name));
        if is_read || ignored.contains(name) {
            continue;
        }
        if test.exact.is_some() {
            ignored.push(name.clone());
        } else if test.present == Some(true) {
            let message = format!(
                "no argument reads query member `{name}`, so every request with it would be denied; read it in `args`, \
                 or list it in `ignore_query`"
            );
            problems.report(format!("{path}.match.query.{name}"), message);
        }
    }
}

/// A list that can not be read must not turn into the empty one, which means "any".
fn hosts(path: &str, hosts: Option<&[String]>, problems: &mut Problems) -> Option<Vec<HostPattern>> {
    let Some(hosts) = hosts else {
        return Some(Vec::new());
    };
    not_empty(path, hosts.len(), problems);
    at_most(MAX_HOSTS, hosts.len(), path, problems);
    let host = |(index, host): (usize, &String)| {
        let parsed = HostPattern::parse(host).map_err(|error| format!("`{host}` is no host pattern; {error}"));
        problems.take(format!("{path}[{index}]"), parsed)
    };
    // Every mistake is to be reported, so the collecting must not stop at the first.
    let hosts: Vec<_> = hosts.iter().enumerate().map(host).collect();
    hosts.into_iter().collect()
}

fn methods(path: &str, methods: Option<&[String]>, problems: &mut Problems) -> Vec<String> {
    let Some(methods) = methods else { return Vec::new() };
    not_empty(path, methods.len(), problems);
    at_most(MAX_METHODS, methods.len(), path, problems);
    for (index, method) in methods.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if method == "CONNECT" {
            problems.report(path, "CONNECT has no path that a rule could match; remove it");
        } else if method.is_empty() || !method.bytes().all(|byte| is_token(byte) && !byte.is_ascii_lowercase()) {
            let message = format!("`{method}` is not a method in capital letters, such as `GET`");
            problems.report(path, message);
        }
    }
    methods.to_vec()
}

fn header_conditions(
    path: &str,
    asked: &[(String, file::HeaderTest)],
    carriers: &HeaderNames,
    conditions: &mut Vec<Condition>,
    problems: &mut Problems,
) {
    for (index, (name, test)) in asked.iter().enumerate() {
        let path = format!("{path}.{name}");
        readable_header(&path, name, carriers, problems);
        let mut earlier = asked.iter().take(index).map(|(earlier, _)| earlier.as_str());
        let earlier = earlier.find(|earlier| folds_to(earlier.as_bytes(), name.as_bytes()));
        alike(&path, name, earlier, problems);
        let file::HeaderTest {
            exact,
            prefix,
            suffix,
            present,
            absent,
        } = test;
        let tests = [
            text(&format!("{path}.exact"), exact.as_ref(), true, problems).map(HeaderTest::Exact),
            text(&format!("{path}.prefix"), prefix.as_ref(), false, problems).map(HeaderTest::Prefix),
            text(&format!("{path}.suffix"), suffix.as_ref(), false, problems).map(HeaderTest::Suffix),
            flag(&format!("{path}.present"), *present, problems).map(|()| HeaderTest::Present),
            flag(&format!("{path}.absent"), *absent, problems).map(|()| HeaderTest::Absent),
        ];
        let kinds = "`exact`, `prefix`, `suffix`, `present` and `absent`";
        if let Some(test) = only(&path, tests, kinds, problems) {
            let name = name.clone();
            conditions.push(Condition::Header { name, test });
        }
    }
}

fn query_conditions(
    path: &str,
    asked: &[(String, file::QueryTest)],
    conditions: &mut Vec<Condition>,
    problems: &mut Problems,
) {
    for (index, (name, test)) in asked.iter().enumerate() {
        let path = format!("{path}.{name}");
        let mut earlier = asked.iter().take(index).map(|(earlier, _)| earlier.as_str());
        let earlier = earlier.find(|earlier| query::are_alike(earlier, name));
        alike(&path, name, earlier, problems);
        query_name(&path, name, problems);
        if query::has_too_many_parts(name) {
            let message = format!(
                "`{name}` has more than {} parts; ask about a shorter name",
                query::MAX_PARTS
            );
            problems.report(&path, message);
        }
        let file::QueryTest { exact, present, absent } = test;
        let tests = [
            text(&format!("{path}.exact"), exact.as_ref(), true, problems).map(QueryTest::Exact),
            flag(&format!("{path}.present"), *present, problems).map(|()| QueryTest::Present),
            flag(&format!("{path}.absent"), *absent, problems).map(|()| QueryTest::Absent),
        ];
        if let Some(test) = only(&path, tests, "`exact`, `present` and `absent`", problems) {
            let name = name.clone();
            conditions.push(Condition::Query { name, test });
        }
    }
}

/// The text of a test, if it has one, reporting what no value can be.
fn text(path: &str, text: Option<&String>, may_be_empty: bool, problems: &mut Problems) -> Option<String> {
    let text = text?;
    if text.is_empty() && !may_be_empty {
        problems.report(path, "every value starts and ends so; write `present: true`");
    } else if text.len() > MAX_TEST_BYTES || text.trim() != text || text.contains(char::is_control) {
        let message = format!(
            "`{}` is what no value can be; write up to {MAX_TEST_BYTES} bytes, without control characters and white \
             space at either end",
            text.escape_debug()
        );
        problems.report(path, message);
    }
    Some(text.clone())
}

fn flag(path: &str, flag: Option<bool>, problems: &mut Problems) -> Option<()> {
    if flag? {
        return Some(());
    }
    problems.report(
        path,
        "only `true` means something; ask for the opposite by the other name",
    );
    Some(())
}

fn only<T, const N: usize>(path: &str, tests: [Option<T>; N], kinds: &str, problems: &mut Problems) -> Option<T> {
    let mut tests = tests.into_iter().flatten();
    let test = tests.next();
    if test.is_none() || tests.next().is_some() {
        problems.report(path, format!("write exactly one of {kinds}"));
    }
    test
}

/// Hosts of one rule.
const MAX_HOSTS: usize = 64;

/// Clusters of one rule.
const MAX_CLUSTERS: usize = 16;

/// Methods of one rule.
const MAX_METHODS: usize = 16;

/// Bytes of a text that a header or query member is compared with.
const MAX_TEST_BYTES: usize = 1_024;
