//! Turns a configuration as it is written into one that can not be wrong, collecting every mistake on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::checks::{at_most, count, is_token, not_empty, seconds, time, visible};
use super::error::Problems;
use super::{Access, Audit, ConfigError, ControlPlane, Limits, Policy, Requirement, Rule, duration, file, trust};
use crate::arguments::{ArgumentMapping, ArgumentSource, Source};
use crate::replay::MAX_PROOF_WINDOW;
use crate::request::{HeaderNames, folds_to, is_ours};
use crate::route::{HostPattern, PathTemplate, Pattern, Routes};

/// Gives the file its meaning.
///
/// # Errors
/// Every mistake, in the order of the file's fields.
pub(super) fn compile(file: file::File) -> Result<Policy, ConfigError> {
    let mut problems = Problems::default();
    let audience = audience("audience", file.audience, &mut problems);
    let trust = trust::trust(file.trust_anchors, &mut problems);
    let holder_algorithms = trust::algorithms("holder_algorithms", file.holder_algorithms, &mut problems);
    let control_plane = control_plane(file.control_plane, &mut problems);
    let headers = header_names(file.headers, &mut problems);
    let routes = RuleCompiler {
        audience: &audience,
        headers: &headers,
    }
    .rules(file.rules, &mut problems);
    let times = Times {
        pop_window: file.pop_window,
        pop_clock_skew: file.pop_clock_skew,
        max_iat_skew: file.max_iat_skew,
        lifetime: file.max_token_lifetime,
    };
    let limits = limits(file.limits, times, &mut problems);
    let audit = audit(file.audit, &mut problems);
    problems.finish(Policy {
        trust_anchors: trust.anchors,
        holder_algorithms,
        control_plane,
        unmatched: file.default,
        routes,
        headers,
        limits,
        audit,
        notes: trust.notes,
    })
}

fn audience(path: &str, names: Vec<String>, problems: &mut Problems) -> Vec<String> {
    if names.is_empty() {
        problems.report(
            path,
            "no audience; name this service as delegations do, such as `https://payments.example`",
        );
    }
    at_most(MAX_AUDIENCE, names.len(), path, problems);
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let path = format!("{path}[{index}]");
        visible(&path, name, problems);
        if !seen.insert(name) {
            problems.report(path, format!("`{name}` is listed twice; remove one"));
        }
    }
    names
}

// === The control plane ===

fn control_plane(settings: file::ControlPlane, problems: &mut Problems) -> ControlPlane {
    const PATH: &str = "control_plane";
    visible(&format!("{PATH}.cluster"), &settings.cluster, problems);
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if settings.log_id.len() != LOG_ID_DIGITS || !settings.log_id.bytes().all(is_digit) {
        let message = format!(
            "`{}` is not a log id of {LOG_ID_DIGITS} lower-case hexadecimal digits; copy it from the control plane",
            settings.log_id
        );
        problems.report(format!("{PATH}.log_id"), message);
    }
    let path = format!("{PATH}.max_staleness");
    let max_staleness = time(
        &path,
        settings.max_staleness,
        Duration::from_secs(5),
        MAX_STALENESS,
        problems,
    );
    let path = format!("{PATH}.ping_interval");
    let default = DEFAULT_PING_INTERVAL.min(max_staleness.checked_div(4).unwrap_or(max_staleness));
    let ping_interval = time(&path, settings.ping_interval, default, PING_INTERVAL, problems);
    if ping_interval >= max_staleness {
        let message = format!(
            "{} is not shorter than max_staleness ({}), so every lease would run out; write a quarter of that or less",
            duration::display(ping_interval),
            duration::display(max_staleness)
        );
        problems.report(path, message);
    }
    ControlPlane {
        cluster: settings.cluster,
        log_id: settings.log_id,
        max_staleness,
        ping_interval,
    }
}

// === Headers ===

fn header_names(names: file::Headers, problems: &mut Problems) -> HeaderNames {
    let default = HeaderNames::default();
    let compiled = HeaderNames {
        delegation: names.delegation.unwrap_or(default.delegation),
        proof: names.proof.unwrap_or(default.proof),
    };
    header_name("headers.delegation", &compiled.delegation, problems);
    header_name("headers.proof", &compiled.proof, problems);
    if folds_to(compiled.delegation.as_bytes(), compiled.proof.as_bytes()) {
        let message = format!(
            "`{}` is the delegation's header already; write another name",
            compiled.proof
        );
        problems.report("headers.proof", message);
    }
    compiled
}

/// Reports a header that does not exist, or whose meaning is not ours or a rule's to give.
fn header_name(path: &str, name: &str, problems: &mut Problems) {
    let is_lower_case_token = |byte: u8| is_token(byte) && !byte.is_ascii_uppercase();
    let fault = if name.starts_with(':') {
        "is a pseudo-header; match it by `match`, or use a path capture or query"
    } else if name.is_empty() || !name.bytes().all(is_lower_case_token) {
        "is not a header name in lower case, such as `x-tenant`"
    } else if is_ours(name.as_bytes()) {
        "starts with `x-delegation-`, and such headers are removed from every request; write another name"
    } else if RESERVED_HEADERS.contains(&name) {
        "has a meaning of its own in HTTP and may change on the way; write another name"
    } else {
        return;
    };
    problems.report(path, format!("`{name}` {fault}"));
}

// === Rules ===

struct RuleCompiler<'a> {
    audience: &'a [String],
    headers: &'a HeaderNames,
}

impl RuleCompiler<'_> {
    fn rules(&self, rules: Vec<file::Rule>, problems: &mut Problems) -> Routes<Rule> {
        const PATH: &str = "rules";
        if rules.is_empty() {
            problems.report(PATH, "no rule, so `default` would decide every request; add one");
        }
        let mut routes = Routes::new();
        if !at_most(MAX_RULES, rules.len(), PATH, problems) {
            return routes;
        }
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for (index, rule) in rules.into_iter().enumerate() {
            let path = format!("{PATH}[{index}]");
            let name = rule.name.clone();
            if let Some(earlier) = names.get(&name) {
                let message = format!("rules[{earlier}] is named `{name}` too; audit and metrics need distinct names");
                problems.report(format!("{path}.name"), message);
            } else {
                names.insert(name, index);
            }
            let Some((pattern, rule)) = self.rule(&path, rule, problems) else {
                continue;
            };
            if let Err(earlier) = routes.push(pattern, rule) {
                let earlier = routes
                    .iter()
                    .nth(earlier)
                    .map(|rule: &Rule| rule.name.as_str())
                    .unwrap_or_default();
                let message = format!(
                    "rule `{earlier}` comes first and takes every request that this one could match; remove one, \
                     narrow `{earlier}`, or move this rule before it"
                );
                problems.report(format!("{path}.match"), message);
            }
        }
        routes
    }

    fn rule(&self, path: &str, rule: file::Rule, problems: &mut Problems) -> Option<(Pattern, Rule)> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if rule.name.is_empty() || rule.name.len() > MAX_NAME_BYTES || !rule.name.bytes().all(is_plain) {
            let message = format!(
                "`{}` is no rule name; use up to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`",
                rule.name
            );
            problems.report(format!("{path}.name"), message);
        }
        let pattern = pattern(&format!("{path}.match"), &rule.matches, problems);
        let template = pattern.as_ref().map(|pattern| &pattern.path);
        let access = if rule.public {
            self.public(path, &rule, problems);
            Access::Public
        } else {
            Access::Delegated(self.requirement(path, &rule, template, problems))
        };
        let path_template = rule.matches.path;
        let rule = Rule {
            name: rule.name,
            path_template,
            allows_upgrade: rule.upgrade,
            access,
        };
        Some((pattern?, rule))
    }

    fn public(&self, path: &str, rule: &file::Rule, problems: &mut Problems) {
        let meaningless = [
            ("tool", rule.tool.is_some()),
            ("args", rule.args.is_some()),
            ("ignore_query", rule.ignore_query.is_some()),
            ("ignore_body", rule.ignore_body.is_some()),
            ("audience", rule.audience.is_some()),
            ("proof", rule.proof.is_some()),
            ("forward", rule.forward.is_some()),
        ];
        for (field, _) in meaningless.into_iter().filter(|(_, is_there)| *is_there) {
            let message =
                format!("a public rule reads no delegation, so `{field}` has no effect; remove it, or `public`");
            problems.report(format!("{path}.{field}"), message);
        }
    }

    fn requirement(
        &self,
        path: &str,
        rule: &file::Rule,
        template: Option<&PathTemplate>,
        problems: &mut Problems,
    ) -> Requirement {
        let tool = rule.tool.clone().unwrap_or_default();
        match &rule.tool {
            Some(tool) => {
                visible(&format!("{path}.tool"), tool, problems);
            }
            None => problems.report(
                path,
                "the rule names no `tool`; add the one a delegation must grant, or `public: true`",
            ),
        }
        let arguments = self.arguments(path, rule, template, problems);
        let audience = match &rule.audience {
            Some(names) => audience(&format!("{path}.audience"), names.clone(), problems),
            None => self.audience.to_vec(),
        };
        let proof = rule.proof.unwrap_or_default();
        Requirement {
            tool,
            arguments,
            audience,
            proof,
            ignore_body: rule.ignore_body.unwrap_or_default(),
            forward: rule.forward.unwrap_or_default(),
        }
    }

    fn arguments(
        &self,
        path: &str,
        rule: &file::Rule,
        template: Option<&PathTemplate>,
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
                let message =
                    format!("`{name}` can not name an argument; use up to {MAX_NAME_BYTES} bytes, not `*` alone");
                problems.report(&path, message);
            }
            let Some(source) = self.source(&path, argument, template, problems) else {
                continue;
            };
            if let Some(other) = arguments.iter().find(|other| other.source == source) {
                let message = format!("argument `{}` is taken from the same place; remove one", other.name);
                problems.report(&path, message);
            }
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
        let ignored_query = ignored_query(&format!("{path}.ignore_query"), rule, &arguments, problems);
        ArgumentMapping {
            arguments,
            ignored_query,
        }
    }

    fn source(
        &self,
        path: &str,
        argument: &file::Argument,
        template: Option<&PathTemplate>,
        problems: &mut Problems,
    ) -> Option<Source> {
        match (&argument.path, &argument.query, &argument.header) {
            (Some(capture), None, None) => {
                if argument.optional {
                    let message = "a path always has its captures; remove `optional`";
                    problems.report(format!("{path}.optional"), message);
                }
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
            (None, Some(name), None) => {
                if name.is_empty() || name.len() > MAX_NAME_BYTES {
                    let message = format!("`{name}` can not name a query member; use 1 to {MAX_NAME_BYTES} bytes");
                    problems.report(format!("{path}.query"), message);
                }
                Some(Source::Query(name.clone()))
            }
            (None, None, Some(name)) => {
                let path = format!("{path}.header");
                header_name(&path, name, problems);
                if name == &self.headers.delegation || name == &self.headers.proof {
                    problems.report(
                        path,
                        format!("`{name}` carries the delegation or its proof; write another name"),
                    );
                }
                Some(Source::Header(name.clone()))
            }
            (None, None, None) => {
                problems.report(
                    path,
                    "no source; write one of `path: <capture>`, `query: <name>`, `header: <name>`",
                );
                None
            }
            _ => {
                problems.report(path, "more than one source; keep one of `path`, `query` and `header`");
                None
            }
        }
    }
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
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            problems.report(
                &path,
                format!("`{name}` can not name a query member; use 1 to {MAX_NAME_BYTES} bytes"),
            );
        }
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

fn pattern(path: &str, matches: &file::Match, problems: &mut Problems) -> Option<Pattern> {
    let template = problems.take(format!("{path}.path"), PathTemplate::parse(&matches.path));
    let hosts = matches.hosts.as_deref().map(|hosts| {
        let path = format!("{path}.hosts");
        not_empty(&path, hosts.len(), problems);
        at_most(MAX_HOSTS, hosts.len(), &path, problems);
        let host = |(index, host): (usize, &String)| {
            let parsed = HostPattern::parse(host).map_err(|error| format!("`{host}` is no host pattern; {error}"));
            problems.take(format!("{path}[{index}]"), parsed)
        };
        // Every mistake is to be reported, so the collecting must not stop at the first.
        let hosts: Vec<_> = hosts.iter().enumerate().map(host).collect();
        hosts.into_iter().collect::<Option<Vec<_>>>()
    });
    let methods = matches.methods.clone();
    if let Some(methods) = &methods {
        let path = format!("{path}.methods");
        not_empty(&path, methods.len(), problems);
        at_most(MAX_METHODS, methods.len(), &path, problems);
        for (index, method) in methods.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if method == "CONNECT" {
                problems.report(path, "CONNECT has no path that a rule could match; remove it");
            } else if method.is_empty() || !method.bytes().all(|byte| is_token(byte) && !byte.is_ascii_lowercase()) {
                let message = format!("`{method}` is not a method in capital letters, such as `GET`");
                problems.report(path, message);
            }
        }
    }
    // A list that can not be read must not turn into the empty one, which means "any".
    let hosts = match hosts {
        None => Vec::new(),
        Some(hosts) => hosts?,
    };
    Some(Pattern {
        hosts,
        methods: methods.unwrap_or_default(),
        path: template?,
    })
}

// === Limits ===

struct Times {
    pop_window: Option<String>,
    pop_clock_skew: Option<String>,
    max_iat_skew: Option<String>,
    lifetime: Option<String>,
}

fn limits(limits: file::Limits, times: Times, problems: &mut Problems) -> Limits {
    let default = credence_delegation::Limits::default();
    let chain_bytes = count(
        "limits.delegation_bytes",
        limits.delegation_bytes,
        32_768,
        1_024..=262_144,
        problems,
    );
    let proof_bytes = count("limits.proof_bytes", limits.proof_bytes, 8_192, 512..=65_536, problems);
    let depth = count("limits.delegation_depth", limits.delegation_depth, 8, 0..=8, problems);
    let cache_entries = count(
        "limits.cache_entries",
        limits.cache_entries,
        4_096,
        0..=1_000_000,
        problems,
    );
    let cache_bytes = count(
        "limits.cache_bytes",
        limits.cache_bytes,
        32 << 20,
        0..=(256 << 20),
        problems,
    );
    let pop_window = seconds("pop_window", times.pop_window, 30, 1..=MAX_PROOF_WINDOW, problems);
    let proof_clock_skew = seconds(
        "pop_clock_skew",
        times.pop_clock_skew,
        pop_window.min(5),
        0..=pop_window,
        problems,
    );
    let iat_skew = seconds("max_iat_skew", times.max_iat_skew, 30, 0..=300, problems);
    let token_lifetime = seconds("max_token_lifetime", times.lifetime, 90 * DAY, 60..=366 * DAY, problems);
    let verification = credence_delegation::Limits {
        token_bytes: default.token_bytes.min(chain_bytes),
        chain_bytes,
        // The range ends at 8.
        delegation_depth: u32::try_from(depth).unwrap_or(default.delegation_depth),
        token_lifetime,
        iat_skew,
        proof_window: pop_window,
        ..default
    };
    Limits {
        proof_bytes,
        proof_clock_skew,
        cache_entries,
        cache_bytes,
        verification,
    }
}

fn audit(audit: file::Audit, problems: &mut Problems) -> Audit {
    Audit {
        ring_entries: count(
            "audit.ring_entries",
            audit.ring_entries,
            16_384,
            64..=1_048_576,
            problems,
        ),
        ring_bytes: count(
            "audit.ring_bytes",
            audit.ring_bytes,
            16 << 20,
            65_536..=(256 << 20),
            problems,
        ),
        on_overflow: audit.on_overflow,
        arguments: audit.arguments,
    }
}

const DAY: u64 = 24 * 60 * 60;

/// Audiences of the plugin or of one rule.
const MAX_AUDIENCE: usize = 32;
/// Rules; each is looked at in turn for a request.
const MAX_RULES: usize = 1_000;
/// Hosts of one rule.
const MAX_HOSTS: usize = 64;
/// Methods of one rule.
const MAX_METHODS: usize = 16;
/// Arguments of one rule.
const MAX_ARGUMENTS: usize = 64;
/// Ignored query members of one rule.
const MAX_IGNORED: usize = 64;
/// Bytes of a rule's, argument's or query member's name.
const MAX_NAME_BYTES: usize = 128;
/// Digits of a log id.
const LOG_ID_DIGITS: usize = 32;
/// The lease runs out at the latest after a minute; the control plane never promises more either.
const MAX_STALENESS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
/// At most a second, so that news of a lost control plane is never older.
const PING_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);
/// Used unless `max_staleness` is so short that a quarter of it is less.
const DEFAULT_PING_INTERVAL: Duration = Duration::from_millis(500);

/// Headers that describe the connection or the message itself.
const RESERVED_HEADERS: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-request-id",
];
