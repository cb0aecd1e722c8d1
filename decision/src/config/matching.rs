//! The requests of a rule: `match`, and what `paths` and `hosts` tolerate.

use credence_delegation::Location;

use super::checks::{alike, each_once, elements, is_token, query_name, readable_header};
use super::file::{self, HostSpelling, PathSpelling};
use crate::arguments::{ArgumentSource, Source};
use crate::request::query;
use crate::request::target::{Tolerated, ToleratedHosts};
use crate::request::{HeaderNames, folds_to};
use crate::route::{Condition, HostPattern, MAX_CONDITIONS, PathTemplate, Pattern};

/// Compiles `paths`.
pub(super) fn tolerated(at: &Location<'_>, paths: &file::Paths) -> Tolerated {
    let allowed = paths.allow.as_deref().unwrap_or_default();
    each_once(&at.field("allow"), allowed);
    let allows = |spelling| allowed.contains(&spelling);
    Tolerated {
        encoded_slash: allows(PathSpelling::EncodedSlash),
        path_parameter: allows(PathSpelling::PathParameter),
        empty_segment: allows(PathSpelling::EmptySegment),
        letter_case: allows(PathSpelling::LetterCase),
        trailing_slash: allows(PathSpelling::TrailingSlash),
        format_suffix: allows(PathSpelling::FormatSuffix),
    }
}

/// Compiles the plugin's `hosts`.
pub(super) fn tolerated_hosts(at: &Location<'_>, hosts: &file::Hosts) -> ToleratedHosts {
    let allowed = hosts.allow.as_deref().unwrap_or_default();
    each_once(&at.field("allow"), allowed);
    ToleratedHosts {
        port: allowed.contains(&HostSpelling::Port),
        trailing_dot: allowed.contains(&HostSpelling::TrailingDot),
    }
}

/// The clusters to which a rule's requests may go.
pub(super) fn clusters(at: &Location<'_>, clusters: Option<Vec<String>>) -> Vec<String> {
    for (at, cluster) in clusters.iter().flat_map(|list| elements(at, MAX_CLUSTERS, list)) {
        at.visible(cluster);
    }
    clusters.unwrap_or_default()
}

/// Compiles a rule's `match`. The headers in `headers` carry the delegation, so conditions cannot name them.
#[inline(never)]
pub(super) fn pattern(
    at: &Location<'_>,
    matches: &file::Match,
    tolerated: Tolerated,
    headers: &HeaderNames,
) -> Option<Pattern> {
    let template = at.field("path").take(PathTemplate::parse(&matches.path, tolerated));
    let hosts = hosts(&at.field("hosts"), matches.hosts.as_deref());
    let methods = methods(&at.field("methods"), matches.methods.clone());
    let mut conditions = Vec::new();
    if let Some(asked) = &matches.headers {
        header_conditions(&at.field("headers"), &asked.0, headers, &mut conditions);
    }
    if let Some(asked) = &matches.query {
        query_conditions(&at.field("query"), &asked.0, &mut conditions);
    }
    Some(Pattern {
        hosts: hosts?,
        methods,
        path: template?,
        conditions,
    })
}

/// Ignores the query members whose value `match` fixes, and reports those whose value nothing constrains: they would be
/// denied in every matching request.
#[inline(never)]
pub(super) fn account_for_query(
    at: &Location<'_>,
    matches: &file::Match,
    arguments: &[ArgumentSource],
    ignored: &mut Vec<String>,
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
            at.field("query").field(name).report(format!(
                "no argument reads query member `{name}`, so every request with it would be denied; read it in `args`, \
                 or list it in `ignore_query`"
            ));
        }
    }
}

/// An invalid list must not become the empty one, which means "any".
fn hosts(at: &Location<'_>, hosts: Option<&[String]>) -> Option<Vec<HostPattern>> {
    let Some(hosts) = hosts else {
        return Some(Vec::new());
    };
    let host = |(at, host): (Location<'_>, &String)| {
        at.take(HostPattern::parse(host).map_err(|error| format!("`{host}` is not a host pattern; {error}")))
    };
    // Collecting must not stop at the first error, so that all are reported.
    let hosts: Vec<_> = elements(at, MAX_HOSTS, hosts).map(host).collect();
    hosts.into_iter().collect()
}

fn methods(at: &Location<'_>, methods: Option<Vec<String>>) -> Vec<String> {
    for (at, method) in methods.iter().flat_map(|list| elements(at, MAX_METHODS, list)) {
        if method == "CONNECT" {
            at.report("CONNECT has no path that a rule could match; remove it");
        } else if method.is_empty() || !method.bytes().all(|byte| is_token(byte) && !byte.is_ascii_lowercase()) {
            at.report(format!("`{method}` is not a method in capital letters, such as `GET`"));
        }
    }
    methods.unwrap_or_default()
}

#[inline(never)]
fn header_conditions(
    at: &Location<'_>,
    asked: &[(String, file::HeaderTest)],
    carriers: &HeaderNames,
    conditions: &mut Vec<Condition>,
) {
    at.at_most(MAX_CONDITIONS, asked);
    for (index, (name, test)) in asked.iter().enumerate() {
        let at = at.field(name);
        readable_header(&at, name, carriers);
        let mut earlier = asked.iter().take(index).map(|(earlier, _)| earlier.as_str());
        let earlier = earlier.find(|earlier| folds_to(earlier.as_bytes(), name.as_bytes()));
        alike(&at, name, earlier);
        text(&at.field("exact"), test.exact.as_deref(), true);
        text(&at.field("prefix"), test.prefix.as_deref(), false);
        text(&at.field("suffix"), test.suffix.as_deref(), false);
        flag(&at.field("present"), test.present);
        flag(&at.field("absent"), test.absent);
        let kinds = "`exact`, `prefix`, `suffix`, `present` and `absent`";
        if let Some(test) = only(&at, test.tests(), kinds) {
            let name = name.clone();
            conditions.push(Condition::Header { name, test });
        }
    }
}

#[inline(never)]
fn query_conditions(at: &Location<'_>, asked: &[(String, file::QueryTest)], conditions: &mut Vec<Condition>) {
    at.at_most(MAX_CONDITIONS, asked);
    for (index, (name, test)) in asked.iter().enumerate() {
        let at = at.field(name);
        let mut earlier = asked.iter().take(index).map(|(earlier, _)| earlier.as_str());
        let earlier = earlier.find(|earlier| query::are_alike(earlier, name));
        alike(&at, name, earlier);
        query_name(&at, name);
        if query::has_too_many_parts(name) {
            at.report(format!(
                "`{name}` has more than {} parts; use a shorter name",
                query::MAX_PARTS
            ));
        }
        text(&at.field("exact"), test.exact.as_deref(), true);
        flag(&at.field("present"), test.present);
        flag(&at.field("absent"), test.absent);
        if let Some(test) = only(&at, test.tests(), "`exact`, `present` and `absent`") {
            let name = name.clone();
            conditions.push(Condition::Query { name, test });
        }
    }
}

/// Reports a text that no value can have.
fn text(at: &Location<'_>, text: Option<&str>, may_be_empty: bool) {
    let Some(text) = text else { return };
    if text.is_empty() && !may_be_empty {
        at.report("every value matches this; write `present: true`");
    } else if text.len() > MAX_TEST_BYTES || text.trim() != text || text.contains(char::is_control) {
        at.report(format!(
            "`{}` cannot be a value; write up to {MAX_TEST_BYTES} bytes, without control characters and without white \
             space at either end",
            text.escape_debug()
        ));
    }
}

fn flag(at: &Location<'_>, flag: Option<bool>) {
    if flag == Some(false) {
        at.report("only `true` is valid; use the other field for the opposite");
    }
}

fn only<T>(at: &Location<'_>, mut tests: impl Iterator<Item = T>, kinds: &str) -> Option<T> {
    let test = tests.next();
    if test.is_none() || tests.next().is_some() {
        at.report(format!("write exactly one of {kinds}"));
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
