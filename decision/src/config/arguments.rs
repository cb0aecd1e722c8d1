//! Where a rule's arguments come from.

use std::collections::BTreeSet;

use super::checks::{MAX_NAME_BYTES, alike, at_most, query_name, readable_header};
use super::error::Problems;
use super::{file, matching};
use crate::arguments::{ArgumentKind, ArgumentMapping, ArgumentSource, BodyMapping, Pointer, Source};
use crate::request::query;
use crate::request::{HeaderNames, folds_to};
use crate::route::PathTemplate;

/// Gives a rule's `args`, and what it ignores, their meaning. `headers` carry the delegation and can be no arguments.
pub(super) fn arguments(
    path: &str,
    rule: &file::Rule,
    template: Option<&PathTemplate>,
    headers: &HeaderNames,
    problems: &mut Problems,
) -> ArgumentMapping {
    let members = rule
        .args
        .as_ref()
        .map(|members| members.0.as_slice())
        .unwrap_or_default();
    at_most(MAX_ARGUMENTS, members.len(), &format!("{path}.args"), problems);
    let mut arguments: Vec<ArgumentSource> = Vec::with_capacity(members.len());
    for (name, argument) in members {
        let path = format!("{path}.args.{name}");
        if name.is_empty() || name == "*" || name.len() > MAX_NAME_BYTES {
            let message = format!("`{name}` can not name an argument; use up to {MAX_NAME_BYTES} bytes, not `*` alone");
            problems.report(&path, message);
        }
        let Some(source) = source(&path, argument, template, headers, problems) else {
            continue;
        };
        if let Some(other) = arguments.iter().find(|other| other.source == source) {
            let message = format!("argument `{}` is taken from the same place; remove one", other.name);
            problems.report(&path, message);
        } else if let Source::Header(header) = &source {
            let mut others = arguments.iter().filter_map(|other| other.source.header());
            let other = others.find(|other| folds_to(header.as_bytes(), other.as_bytes()));
            alike(&path, header, other, problems);
        }
        check_kind(&path, argument, &source, problems);
        let (kind, optional) = (argument.kind, argument.optional);
        arguments.push(ArgumentSource {
            name: name.clone(),
            source,
            kind,
            optional,
        });
    }
    if let Some(template) = template {
        unread_captures(&format!("{path}.match.path"), template, members, problems);
    }
    let mut ignored_query = ignored_query(&format!("{path}.ignore_query"), rule, &arguments, problems);
    matching::account_for_query(path, &rule.matches, &arguments, &mut ignored_query, problems);
    check_query_names(path, rule, &arguments, &ignored_query, problems);
    let body = body(path, rule, &arguments, problems);
    ArgumentMapping::new(arguments, ignored_query, body)
}

fn source(
    path: &str,
    argument: &file::Argument,
    template: Option<&PathTemplate>,
    headers: &HeaderNames,
    problems: &mut Problems,
) -> Option<Source> {
    let file::Argument {
        path: capture,
        query,
        header,
        body,
        host,
        method,
        ..
    } = argument;
    let given = [
        capture.is_some(),
        query.is_some(),
        header.is_some(),
        body.is_some(),
        *host,
        *method,
    ];
    match given.into_iter().filter(|given| *given).count() {
        0 => {
            problems.report(
                path,
                "no source; write one of `path: <capture>`, `query: <name>`, `header: <name>`, `body: <JSON pointer>`, \
                 `host: true`, `method: true`",
            );
            None
        }
        1 if *host => Some(Source::Host),
        1 if *method => Some(Source::Method),
        1 => None
            .or_else(|| {
                capture
                    .as_ref()
                    .and_then(|name| captured(path, name, template, problems))
            })
            .or_else(|| {
                let name = query.as_ref()?;
                query_name(&format!("{path}.query"), name, problems);
                Some(Source::Query(name.clone()))
            })
            .or_else(|| {
                let name = header.as_ref()?;
                readable_header(&format!("{path}.header"), name, headers, problems);
                Some(Source::Header(name.clone()))
            })
            .or_else(|| {
                let pointer = Pointer::parse(body.as_ref()?);
                problems.take(format!("{path}.body"), pointer).map(Source::Body)
            }),
        _ => {
            problems.report(
                path,
                "more than one source; keep one of `path`, `query`, `header`, `body`, `host` and `method`",
            );
            None
        }
    }
}

fn captured(path: &str, capture: &str, template: Option<&PathTemplate>, problems: &mut Problems) -> Option<Source> {
    let template = template?;
    let index = template.captures().position(|name| name == capture);
    if index.is_none() {
        let captures: Vec<_> = template.captures().collect();
        let cure = if captures.is_empty() {
            format!("it has none; write `{{{capture}}}` into the template")
        } else {
            format!("write one of: {}", captures.join(", "))
        };
        let message = format!("capture `{capture}` is not in the path template `{template}`; {cure}");
        problems.report(format!("{path}.path"), message);
    }
    index.map(Source::Path)
}

/// Reports query members that the rule reads, or lets through, and that some service takes for another one that it reads:
/// then the one could take the other's place.
fn check_query_names(
    path: &str,
    rule: &file::Rule,
    arguments: &[ArgumentSource],
    ignored: &[String],
    problems: &mut Problems,
) {
    let conditions = rule.matches.query.iter().flat_map(|query| &query.0);
    let mut read: Vec<&str> = conditions.map(|(name, _)| name.as_str()).collect();
    for argument in arguments {
        if let Source::Query(name) = &argument.source {
            check_query_name(&format!("{path}.args.{}", argument.name), name, &read, problems);
            read.push(name);
        }
    }
    for (index, name) in ignored.iter().enumerate() {
        check_query_name(&format!("{path}.ignore_query[{index}]"), name, &read, problems);
    }
}

fn check_query_name(path: &str, name: &str, read: &[&str], problems: &mut Problems) {
    let mut others = read.iter().copied().filter(|other| *other != name);
    alike(path, name, others.find(|other| query::are_alike(other, name)), problems);
}

/// Reports what the place of an argument leaves no choice of.
fn check_kind(path: &str, argument: &file::Argument, source: &Source, problems: &mut Problems) {
    let is_always_there = match source {
        Source::Path(_) => Some("a path always has its captures"),
        Source::Host | Source::Method => Some("every request has it"),
        Source::Query(_) | Source::Header(_) | Source::Body(_) => None,
    };
    if let (Some(why), true) = (is_always_there, argument.optional) {
        problems.report(format!("{path}.optional"), format!("{why}; remove `optional`"));
    }
    let message = match (source, argument.kind) {
        (Source::Body(_), _) | (_, ArgumentKind::String) => return,
        (_, ArgumentKind::Json) => "only a body has values of any JSON type; write `body`, or another type",
        (Source::Host | Source::Method, _) => "this is always a string; remove `type`",
        (Source::Path(_) | Source::Query(_) | Source::Header(_), _) => return,
    };
    problems.report(format!("{path}.type"), message);
}

/// What of the body the arguments read, and what `ignore_members` lets through.
fn body(path: &str, rule: &file::Rule, arguments: &[ArgumentSource], problems: &mut Problems) -> BodyMapping {
    let mut body = BodyMapping::default();
    for (number, argument) in arguments.iter().enumerate() {
        if let Source::Body(place) = &argument.source {
            problems.take(format!("{path}.args.{}.body", argument.name), body.map(place, number));
        }
    }
    let is_read = !body.is_empty();
    if let Some(ignored) = &rule.ignore_members {
        let path = format!("{path}.ignore_members");
        at_most(MAX_IGNORED, ignored.len(), &path, problems);
        for (index, place) in ignored.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(place) = problems.take(&path, Pointer::parse(place)) {
                problems.take(&path, body.ignore(&place));
            }
        }
        if !is_read {
            problems.report(
                path,
                "no argument is read from the body, so that nothing in it is looked at; write `ignore_body: true`",
            );
        }
    }
    if is_read && rule.ignore_body == Some(true) {
        problems.report(
            format!("{path}.ignore_body"),
            "arguments are read from the body; remove `ignore_body`, and list what is not read in `ignore_members`",
        );
    }
    if is_read && rule.upgrade {
        problems.report(
            format!("{path}.upgrade"),
            "an upgraded connection has no body to read arguments from; remove one of the two",
        );
    }
    body
}

/// Reports captures that no argument reads: the request would choose there what the delegation never constrained.
fn unread_captures(
    path: &str,
    template: &PathTemplate,
    arguments: &[(String, file::Argument)],
    problems: &mut Problems,
) {
    let read: Vec<_> = arguments
        .iter()
        .filter_map(|(_, argument)| argument.path.as_deref())
        .collect();
    // A misspelt capture is reported where it is read; that the right one is unread is the same mistake.
    if read
        .iter()
        .any(|name| template.captures().all(|capture| capture != *name))
    {
        return;
    }
    for capture in template.captures().filter(|capture| !read.contains(capture)) {
        let message = format!("no argument reads capture `{capture}`; add `{capture}: {{path: {capture}}}` to `args`");
        problems.report(path, message);
    }
}

fn ignored_query(path: &str, rule: &file::Rule, arguments: &[ArgumentSource], problems: &mut Problems) -> Vec<String> {
    let names = rule.ignore_query.clone().unwrap_or_default();
    at_most(MAX_IGNORED, names.len(), path, problems);
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let path = format!("{path}[{index}]");
        query_name(&path, name, problems);
        if arguments
            .iter()
            .any(|argument| argument.source == Source::Query(name.clone()))
        {
            problems.report(
                &path,
                format!("`{name}` is read by an argument, so it is not ignored; remove one"),
            );
        }
        if !seen.insert(name) {
            problems.report(&path, format!("`{name}` is listed twice; remove one"));
        }
    }
    names
}

/// Arguments of one rule.
const MAX_ARGUMENTS: usize = 64;

/// Query members, or body members, that one rule ignores.
const MAX_IGNORED: usize = 64;
