//! The sources of a rule's arguments.

use std::collections::BTreeSet;

use credence_delegation::Location;

use super::checks::{MAX_NAME_BYTES, alike, listed_once, query_name, readable_header};
use super::file::{self, Place};
use super::matching;
use crate::arguments::{ArgumentKind, ArgumentMapping, ArgumentSource, BodyMapping, Pointer, Source};
use crate::request::query;
use crate::request::{HeaderNames, folds_to};
use crate::route::PathTemplate;

/// Compiles a rule's `args` and its ignored members. The headers in `headers` carry the delegation and cannot be
/// arguments.
#[inline(never)]
pub(super) fn arguments(
    at: &Location<'_>,
    rule: &file::Rule,
    template: Option<&PathTemplate>,
    headers: &HeaderNames,
) -> ArgumentMapping {
    let members = rule.args.as_ref().map_or(&[][..], |members| &members.0);
    let args = at.field("args");
    args.at_most(MAX_ARGUMENTS, members);
    let mut arguments: Vec<ArgumentSource> = Vec::with_capacity(members.len());
    for (name, argument) in members {
        let at = args.field(name);
        if name.is_empty() || name == "*" || name.len() > MAX_NAME_BYTES {
            at.report(format!(
                "`{name}` cannot name an argument; use up to {MAX_NAME_BYTES} bytes, not `*` alone"
            ));
        }
        let Some(source) = source(&at, argument, template, headers) else {
            continue;
        };
        if let Some(other) = arguments.iter().find(|other| other.source == source) {
            at.report(format!(
                "argument `{}` is taken from the same place; remove one",
                other.name
            ));
        } else if let Source::Header(header) = &source {
            let mut others = arguments.iter().filter_map(|other| other.source.header());
            let other = others.find(|other| folds_to(header.as_bytes(), other.as_bytes()));
            alike(&at, header, other);
        }
        check_kind(&at, argument, &source);
        let (kind, optional) = (argument.kind, argument.optional);
        arguments.push(ArgumentSource {
            name: name.clone(),
            source,
            kind,
            optional,
        });
    }
    let matches = at.field("match");
    if let Some(template) = template {
        unread_captures(&matches.field("path"), template, members, rule.mcp.is_some());
    }
    let mut ignored_query = ignored_query(&at.field("ignore_query"), rule, &arguments);
    matching::account_for_query(&matches, &rule.matches, &arguments, &mut ignored_query);
    check_query_names(at, rule, &arguments, &ignored_query);
    let body = body(at, rule, &arguments);
    ArgumentMapping::new(arguments, ignored_query, body)
}

#[inline(never)]
fn source(
    at: &Location<'_>,
    argument: &file::Argument,
    template: Option<&PathTemplate>,
    headers: &HeaderNames,
) -> Option<Source> {
    let mut places = argument.places();
    let (place, another) = (places.next(), places.next());
    if another.is_some() {
        at.report("more than one source; keep one of `path`, `query`, `header`, `body`, `host` and `method`");
        return None;
    }
    match place {
        None => {
            at.report(
                "no source; write one of `path: <capture>`, `query: <name>`, `header: <name>`, `body: <JSON pointer>`, \
                 `host: true`, `method: true`",
            );
            None
        }
        Some(Place::Path(capture)) => captured(&at.field("path"), &capture, template?),
        Some(Place::Query(name)) => {
            query_name(&at.field("query"), &name);
            Some(Source::Query(name))
        }
        Some(Place::Header(name)) => {
            readable_header(&at.field("header"), &name, headers);
            Some(Source::Header(name))
        }
        Some(Place::Body(pointer)) => at.field("body").take(Pointer::parse(&pointer)).map(Source::Body),
        Some(Place::Host) => Some(Source::Host),
        Some(Place::Method) => Some(Source::Method),
    }
}

fn captured(at: &Location<'_>, capture: &str, template: &PathTemplate) -> Option<Source> {
    let index = template.captures().position(|name| name == capture);
    if index.is_none() {
        let captures: Vec<_> = template.captures().collect();
        let cure = if captures.is_empty() {
            format!("it has none; write `{{{capture}}}` into the template")
        } else {
            format!("write one of: {}", captures.join(", "))
        };
        at.report(format!(
            "capture `{capture}` is not in the path template `{template}`; {cure}"
        ));
    }
    index.map(Source::Path)
}

/// Reports query members that the rule reads or ignores, and that some services confuse with another one that it reads:
/// one could then replace the other.
fn check_query_names(at: &Location<'_>, rule: &file::Rule, arguments: &[ArgumentSource], ignored: &[String]) {
    let conditions = rule.matches.query.iter().flat_map(|query| &query.0);
    let mut read: Vec<&str> = conditions.map(|(name, _)| name.as_str()).collect();
    let (args, ignore) = (at.field("args"), at.field("ignore_query"));
    for argument in arguments {
        if let Source::Query(name) = &argument.source {
            check_query_name(&args.field(&argument.name), name, &read);
            read.push(name);
        }
    }
    for (index, name) in ignored.iter().enumerate() {
        check_query_name(&ignore.element(index), name, &read);
    }
}

fn check_query_name(at: &Location<'_>, name: &str, read: &[&str]) {
    let mut others = read.iter().copied().filter(|other| *other != name);
    alike(at, name, others.find(|other| query::are_alike(other, name)));
}

/// Reports settings that contradict an argument's source.
fn check_kind(at: &Location<'_>, argument: &file::Argument, source: &Source) {
    let is_always_there = match source {
        Source::Path(_) => Some("a path always has its captures"),
        Source::Host | Source::Method => Some("every request has it"),
        Source::Query(_) | Source::Header(_) | Source::Body(_) => None,
    };
    if let (Some(why), true) = (is_always_there, argument.optional) {
        at.field("optional").report(format!("{why}; remove `optional`"));
    }
    let message = match (source, argument.kind) {
        (Source::Body(_), _) | (_, ArgumentKind::String) => return,
        (_, ArgumentKind::Json) => "only a body has values of any JSON type; write `body`, or another type",
        (Source::Host | Source::Method, _) => "this is always a string; remove `type`",
        (Source::Path(_) | Source::Query(_) | Source::Header(_), _) => return,
    };
    at.field("type").report(message);
}

/// The body mapping of the arguments and `ignore_members`.
#[inline(never)]
fn body(at: &Location<'_>, rule: &file::Rule, arguments: &[ArgumentSource]) -> BodyMapping {
    let mut body = BodyMapping::default();
    for (number, argument) in arguments.iter().enumerate() {
        if let Source::Body(place) = &argument.source {
            let at = at.field("args").field(&argument.name).field("body");
            at.take(body.map(place, number));
        }
    }
    let is_read = !body.is_empty();
    if let Some(ignored) = rule.ignore_members.as_ref().filter(|_| rule.mcp.is_none()) {
        let at = at.field("ignore_members");
        at.at_most(MAX_IGNORED, ignored);
        for (index, place) in ignored.iter().enumerate() {
            let at = at.element(index);
            if let Some(place) = at.take(Pointer::parse(place)) {
                at.take(body.ignore(&place));
            }
        }
        if !is_read {
            at.report("no argument is read from the body, so the filter ignores it; write `ignore_body: true`");
        }
    }
    if is_read && rule.ignore_body == Some(true) {
        at.field("ignore_body").report(
            "arguments are read from the body; remove `ignore_body`, and list unread members in `ignore_members`",
        );
    }
    if is_read && rule.upgrade {
        at.field("upgrade")
            .report("an upgraded connection has no body to read arguments from; remove one of the two");
    }
    body
}

/// Reports captures that no argument reads: a request could choose a value there that no delegation constrains.
fn unread_captures(at: &Location<'_>, template: &PathTemplate, arguments: &[(String, file::Argument)], is_mcp: bool) {
    let read = arguments.iter().filter_map(|(_, argument)| argument.path.as_deref());
    let read: Vec<_> = read.collect();
    let is_misspelt = |name: &&str| template.captures().all(|capture| capture != *name);
    // A misspelt capture is reported at its argument. That the right one is unused is the same error.
    if read.iter().any(is_misspelt) {
        return;
    }
    for capture in template.captures().filter(|capture| !read.contains(capture)) {
        at.report(match is_mcp {
            true => format!("with `mcp`, nothing reads capture `{capture}`; write a rule for each path"),
            false => format!("no argument reads capture `{capture}`; add `{capture}: {{path: {capture}}}` to `args`"),
        });
    }
}

#[inline(never)]
fn ignored_query(at: &Location<'_>, rule: &file::Rule, arguments: &[ArgumentSource]) -> Vec<String> {
    let names = rule.ignore_query.clone().unwrap_or_default();
    at.at_most(MAX_IGNORED, &names);
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let at = at.element(index);
        query_name(&at, name);
        let is_it = |argument: &ArgumentSource| matches!(&argument.source, Source::Query(read) if read == name);
        if arguments.iter().any(is_it) {
            at.report(format!(
                "`{name}` is read by an argument, so it is not ignored; remove one"
            ));
        }
        listed_once(&at, name, &mut seen);
    }
    names
}

/// Arguments of one rule.
const MAX_ARGUMENTS: usize = 64;

/// Query members, or body members, that one rule ignores.
const MAX_IGNORED: usize = 64;
