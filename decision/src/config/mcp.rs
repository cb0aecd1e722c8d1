//! `mcp` of a rule.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use credence_delegation::Location;

use super::checks::{MAX_NAME_BYTES, each_once, elements, time};
use super::file::{self, Rule};
use super::ranges::DEFAULT_MAX_STREAM;
use crate::arguments::Pointer;
use crate::mcp::{Access, Endpoint, NO_METHODS, Source, Tools, Version};

/// Compiles the field, with `ignore_members`.
#[inline(never)]
pub(super) fn mcp(at: &Location<'_>, rule: &Rule, mcp: &file::Mcp) -> Endpoint {
    let is_in_headers = mcp.source == Source::Headers;
    let unused = [
        ("tool", rule.tool.is_some()),
        ("args", rule.args.is_some()),
        ("ignore_body", rule.ignore_body.is_some()),
        ("upgrade", rule.upgrade),
    ];
    for (field, _) in unused.into_iter().filter(|(_, is_there)| *is_there) {
        at.field(field).report(format!(
            "with `mcp`, the message says what a request calls, so `{field}` has no effect; remove it"
        ));
    }
    let own = at.field("mcp");
    if is_in_headers {
        check_headers(at, rule, mcp);
    }
    if mcp.hide_ungranted && !allows(mcp, "tools/list") {
        own.field("hide_ungranted")
            .report("no list of tools is allowed, so this has no effect; add `tools/list` to `methods`, or remove it");
    }
    let mut endpoint = Endpoint {
        source: mcp.source,
        versions: versions(&own.field("versions"), mcp.versions.as_deref()),
        tools: tools(&own.field("tools"), &mcp.tools),
        methods: methods(&own.field("methods"), mcp),
        ignored: Vec::new(),
        ignored_meta: Vec::new(),
        ignores_meta: false,
        hides_ungranted: mcp.hide_ungranted,
        delegation_in_meta: mcp.delegation_in_meta,
        max_stream: time(
            &own.field("max_stream"),
            mcp.max_stream.as_deref(),
            DEFAULT_MAX_STREAM,
            MAX_STREAM,
        ),
    };
    ignore(
        &at.field("ignore_members"),
        rule.ignore_members.as_deref(),
        &mut endpoint,
    );
    endpoint
}

/// Reports what `source: headers` rules out.
fn check_headers(at: &Location<'_>, rule: &Rule, mcp: &file::Mcp) {
    let own = at.field("mcp");
    if !mcp.server_checks_headers {
        own.field("source").report(
            "a client with other headers than its message calls what no delegation grants, unless the server compares \
             both; if it does, write `server_checks_headers: true`",
        );
    }
    let older = |name: &&String| Version::named(name).is_some_and(|version| !version.is_stateless());
    if let Some(older) = mcp.versions.iter().flatten().find(older) {
        own.field("versions").report(format!(
            "servers compare headers from 2026-07-28 on, not in {older}; remove it"
        ));
    }
    for (field, _) in [
        ("delegation_in_meta", mcp.delegation_in_meta),
        ("ignore_members", rule.ignore_members.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_there)| *is_there)
    {
        own.field("source").report(format!(
            "with `source: headers`, the message is not read; remove `{field}`"
        ));
    }
}

fn versions(at: &Location<'_>, names: Option<&[String]>) -> Vec<Version> {
    let Some(names) = names else {
        return vec![Version::V2026_07_28];
    };
    if names.is_empty() {
        at.report("no version, so every request would be denied; list one, or remove `versions`");
        return Vec::new();
    }
    each_once(at, names);
    let mut versions = Vec::new();
    for (at, name) in elements(at, Version::ALL.len(), names) {
        match Version::named(name) {
            Some(version) => versions.push(version),
            None => at.report(format!(
                "`{name}` is not a version of MCP with Streamable HTTP; write one of: {}",
                Version::ALL.map(Version::name).join(", ")
            )),
        }
    }
    versions
}

fn tools(at: &Location<'_>, tools: &file::McpTools) -> Tools {
    match (&tools.prefix, &tools.names) {
        (Some(_), Some(_)) => at.report("both `prefix` and `names`; keep one of them"),
        (None, Some(names)) if names.0.is_empty() => {
            at.field("names")
                .report("no name, so every call of a tool would be denied; add one, or write `prefix`");
        }
        _ => {}
    }
    match (&tools.prefix, &tools.names) {
        (prefix, None) => {
            let prefix = prefix.clone().unwrap_or_default();
            if !prefix.is_empty() {
                let at = at.field("prefix");
                at.visible(&prefix);
                if prefix.len() > MAX_PREFIX_BYTES {
                    at.report(format!("longer than {MAX_PREFIX_BYTES} bytes; shorten it"));
                }
            }
            Tools::Prefixed(prefix)
        }
        (_, Some(names)) => {
            let at = at.field("names");
            at.at_most(MAX_TOOLS, &names.0);
            for (name, tool) in &names.0 {
                at.field(name).visible(tool);
            }
            Tools::Named(names.0.iter().cloned().collect())
        }
    }
}

fn methods(at: &Location<'_>, mcp: &file::Mcp) -> BTreeMap<String, Access> {
    let methods = mcp.methods.as_ref().map_or(&[][..], |methods| &methods.0);
    let stateless = [Version::V2026_07_28.name().to_owned()];
    let versions = mcp.versions.as_deref().unwrap_or(&stateless);
    let has_sessions = versions
        .iter()
        .any(|name| Version::named(name).is_none_or(|version| !version.is_stateless()));
    at.at_most(MAX_METHODS, methods);
    let mut compiled = BTreeMap::new();
    for (name, method) in methods {
        let at = at.field(name);
        if name == "tools/call" {
            at.report("calls of tools always need the tool's own grant; see `tools`, and remove this");
        }
        if NO_METHODS.contains(&name.as_str()) && !has_sessions {
            at.report(
                "no version in `versions` has sessions, so this has no effect; remove it, or add an older version",
            );
        }
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            at.report(format!(
                "`{name}` is not a method's name of up to {MAX_NAME_BYTES} bytes"
            ));
        }
        let access = match (method.open, &method.tool) {
            (Some(true), None) => Access::Open,
            (None, Some(tool)) => {
                at.field("tool").visible(tool);
                Access::Tool(tool.clone())
            }
            _ => {
                at.report(
                    "write `open: true` for any valid delegation, or `tool` for one that grants it; a method that is not \
                     listed is denied",
                );
                continue;
            }
        };
        compiled.insert(name.clone(), access);
    }
    compiled
}

fn allows(mcp: &file::Mcp, method: &str) -> bool {
    let methods = mcp.methods.iter().flat_map(|methods| &methods.0);
    methods.into_iter().any(|(name, _)| name == method)
}

/// The ignored members of `params`, and of `params._meta`.
fn ignore(at: &Location<'_>, places: Option<&[String]>, endpoint: &mut Endpoint) {
    for (at, place) in places.iter().flat_map(|list| elements(at, MAX_IGNORED, list)) {
        let Some(pointer) = at.take(Pointer::parse(place)) else {
            continue;
        };
        match pointer.names() {
            [params, meta, name] if params == "params" && meta == "_meta" => endpoint.ignored_meta.push(name.clone()),
            [params, meta] if params == "params" && meta == "_meta" => endpoint.ignores_meta = true,
            [params, name] if params == "params" && !matches!(name.as_str(), "name" | "arguments") => {
                endpoint.ignored.push(name.clone());
            }
            _ => at.report(
                "with `mcp`, only a member of `params` or of its `_meta` can be ignored: write `/params/<name>`, \
                 `/params/_meta/<name>` or `/params/_meta`",
            ),
        }
    }
}

/// How long an exchange may take.
const MAX_STREAM: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

/// With a server's name, it is a tool's.
const MAX_PREFIX_BYTES: usize = 256;

/// Tools by name.
const MAX_TOOLS: usize = 1_024;

/// Methods besides `tools/call`.
const MAX_METHODS: usize = 64;

/// Ignored members of a message.
const MAX_IGNORED: usize = 64;
