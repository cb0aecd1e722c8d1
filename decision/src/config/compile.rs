//! Turns a configuration as it is written into one that can not be wrong, collecting every mistake on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::arguments::arguments;
use super::checks::{MAX_NAME_BYTES, at_most, count, header_name, seconds, time, visible};
use super::error::{ConfigError, Problems};
use super::file::{self, Mode, Overflow, ProofKind, RecordedDecisions};
use super::policy::{Access, Audit, ControlPlane, Limits, Policy, Requirement, Rule};
use super::{duration, matching, ranges, trust};
use crate::held::PlaceLimits;
use crate::identity_headers::Part;
use crate::proofs::MAX_PROOF_WINDOW;
use crate::request::target::Tolerated;
use crate::request::{HeaderIndex, HeaderNames, RemovedTrailers, folds_to};
use crate::route::{PathTemplate, Pattern, Routes, Unusable};

/// Gives the file its meaning.
///
/// # Errors
/// Every mistake, in the order of the file's fields.
pub(super) fn compile(file: file::File) -> Result<Policy, ConfigError> {
    let mut problems = Problems::default();
    let audience = audience("audience", file.audience, &mut problems);
    let (trust_anchors, notes) = trust::trust(file.trust_anchors, &mut problems);
    let holder_algorithms = trust::algorithms("holder_algorithms", file.holder_algorithms, &mut problems);
    let wait_for_snapshot = time(
        "control_plane.wait_for_snapshot",
        file.control_plane.wait_for_snapshot.clone(),
        ranges::MAX_SNAPSHOT_WAIT,
        Duration::ZERO..=ranges::MAX_SNAPSHOT_WAIT,
        &mut problems,
    );
    let control_plane = control_plane(file.control_plane, &mut problems);
    let headers = header_names(file.headers, &mut problems);
    let paths = matching::tolerated(&file.paths, &mut problems);
    let hosts = matching::tolerated_hosts(&file.hosts, &mut problems);
    let host_counts = file.rules.iter().any(host_counts);
    let routes = RuleCompiler {
        audience: &audience,
        headers: &headers,
        paths,
        mode: file.mode,
        max_staleness: control_plane.max_staleness,
    }
    .rules(file.rules, &mut problems);
    let removed_trailers = removed_trailers(file.mode, &headers, &routes);
    let filter_state = filter_state(file.identity.filter_state, &mut problems);
    let times = Times {
        pop_window: file.pop_window,
        pop_clock_skew: file.pop_clock_skew,
        max_iat_skew: file.max_iat_skew,
        lifetime: file.max_token_lifetime,
    };
    let limits = limits(file.limits, times, &mut problems);
    let audit = audit(file.audit, &mut problems);
    problems.finish(Policy {
        trust_anchors,
        holder_algorithms,
        control_plane,
        wait_for_snapshot,
        unmatched: file.default,
        mode: file.mode,
        paths,
        hosts,
        routes,
        host_counts,
        removed_trailers,
        headers,
        identity_headers: file.identity.headers,
        filter_state,
        limits,
        audit,
        notes,
    })
}

/// Nothing is removed for decisions of which none is carried out.
fn removed_trailers(mode: Mode, headers: &HeaderNames, routes: &Routes<Rule>) -> RemovedTrailers {
    if mode == Mode::Shadow && routes.iter().all(|rule| rule.mode == Mode::Shadow) {
        return RemovedTrailers::default();
    }
    let mut read = HeaderIndex::default();
    routes.add_headers_to(&mut read);
    for rule in routes.iter() {
        if let Access::Delegated(requirement) = &rule.access {
            requirement.arguments.add_headers_to(&mut read);
        }
    }
    RemovedTrailers::new(headers.clone(), read)
}

fn host_counts(rule: &file::Rule) -> bool {
    let mut arguments = rule.args.iter().flat_map(|arguments| &arguments.0);
    rule.matches.hosts.is_some() || arguments.any(|(_, argument)| argument.host)
}

fn audience(path: &str, names: Vec<String>, problems: &mut Problems) -> Vec<String> {
    if names.is_empty() {
        problems.report(
            path,
            "no audience; name this service as delegations do, such as `https://payments.example`",
        );
    }
    at_most(ranges::MAX_AUDIENCE, names.len(), path, problems);
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
        ranges::DEFAULT_STALENESS,
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
    let max_subjects = count("control_plane.max_subjects", settings.max_subjects, problems);
    ControlPlane {
        cluster: settings.cluster,
        log_id: settings.log_id,
        max_staleness,
        ping_interval,
        max_subjects,
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

fn filter_state(parts: Vec<Part>, problems: &mut Problems) -> Vec<Part> {
    for (index, part) in parts.iter().enumerate() {
        if parts.iter().take(index).any(|earlier| earlier == part) {
            problems.report(
                format!("identity.filter_state[{index}]"),
                "this part is listed twice; remove one",
            );
        }
    }
    parts
}

// === Rules ===

struct RuleCompiler<'a> {
    audience: &'a [String],
    headers: &'a HeaderNames,
    paths: Tolerated,
    mode: Mode,
    max_staleness: Duration,
}

impl RuleCompiler<'_> {
    fn rules(&self, rules: Vec<file::Rule>, problems: &mut Problems) -> Routes<Rule> {
        const PATH: &str = "rules";
        if rules.is_empty() {
            problems.report(PATH, "no rule, so `default` would decide every request; add one");
        }
        let mut routes = Routes::default();
        if !at_most(ranges::MAX_RULES, rules.len(), PATH, problems) {
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
            if let Err(unusable) = routes.push(pattern, rule) {
                let message = match unusable {
                    Unusable::Covered { earlier } => covered_by(routes.iter().nth(earlier)),
                    Unusable::TooManyAlike | Unusable::IndexFull => unusable.to_string(),
                };
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
        let pattern = matching::pattern(
            &format!("{path}.match"),
            &rule.matches,
            self.paths,
            self.headers,
            problems,
        );
        let template = pattern.as_ref().map(|pattern| &pattern.path);
        let access = if rule.public {
            self.public(path, &rule, problems);
            Access::Public
        } else {
            Access::Delegated(self.requirement(path, &rule, template, problems))
        };
        let clusters = matching::clusters(&format!("{path}.clusters"), rule.clusters.as_deref(), problems);
        let host_counts = host_counts(&rule);
        let path_template = rule.matches.path;
        let rule = Rule {
            name: rule.name,
            path_template,
            host_counts,
            clusters,
            allows_upgrade: rule.upgrade,
            mode: rule.mode.unwrap_or(self.mode),
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
            ("ignore_members", rule.ignore_members.is_some()),
            ("audience", rule.audience.is_some()),
            ("proof", rule.proof.is_some()),
            ("forward", rule.forward.is_some()),
            ("nonce", rule.nonce.is_some()),
            ("peer_validated", rule.peer_validated.is_some()),
            ("mode", rule.mode.is_some()),
            ("on_stale", rule.on_stale.is_some()),
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
        let arguments = arguments(path, rule, template, self.headers, problems);
        let audience = match &rule.audience {
            Some(names) => audience(&format!("{path}.audience"), names.clone(), problems),
            None => self.audience.to_vec(),
        };
        let proof = rule.proof.unwrap_or_default();
        if rule.nonce == Some(true) && proof != ProofKind::Pop {
            problems.report(
                format!("{path}.nonce"),
                "only a signed proof carries a nonce; write `proof: pop`, or remove `nonce`",
            );
        }
        if rule.peer_validated == Some(true) && proof != ProofKind::Mtls {
            problems.report(
                format!("{path}.peer_validated"),
                "only a client certificate is validated by Envoy; write `proof: mtls`, or remove `peer_validated`",
            );
        }
        let stale_limit = rule.on_stale.as_ref().map(|on_stale| {
            let path = format!("{path}.on_stale.allow_cached_for");
            let written = Some(on_stale.allow_cached_for.clone());
            let limit = time(
                &path,
                written,
                MAX_STALE_LIMIT,
                Duration::ZERO..=MAX_STALE_LIMIT,
                problems,
            );
            if limit <= self.max_staleness {
                let message = format!(
                    "{} is not more than control_plane.max_staleness ({}), so that it has no effect; write more, or \
                     remove `on_stale`",
                    duration::display(limit),
                    duration::display(self.max_staleness)
                );
                problems.report(path, message);
            }
            limit
        });
        Requirement {
            tool,
            arguments,
            audience,
            proof,
            nonce: rule.nonce.unwrap_or_default(),
            peer_validated: rule.peer_validated.unwrap_or_default(),
            stale_limit,
            ignore_body: rule.ignore_body.unwrap_or_default(),
            forward: rule.forward.unwrap_or_default(),
        }
    }
}

fn covered_by(earlier: Option<&Rule>) -> String {
    let earlier = earlier.map(|rule| rule.name.as_str()).unwrap_or_default();
    format!(
        "rule `{earlier}` comes first and takes every request that this one could match; remove one, narrow `{earlier}`, \
         or move this rule before it"
    )
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
    let chain_bytes = count("limits.delegation_bytes", limits.delegation_bytes, problems);
    let proof_bytes = count("limits.proof_bytes", limits.proof_bytes, problems);
    let depth = count("limits.delegation_depth", limits.delegation_depth, problems);
    let compiled = Limits {
        proof_bytes,
        body_bytes: count("limits.body_bytes", limits.body_bytes, problems),
        held: PlaceLimits {
            requests: count("limits.held_requests", limits.held_requests, problems),
            bytes: count("limits.held_bytes", limits.held_bytes, problems),
        },
        cache_entries: count("limits.cache_entries", limits.cache_entries, problems),
        cache_bytes: count("limits.cache_bytes", limits.cache_bytes, problems),
        refused_entries: count("limits.refused_entries", limits.refused_entries, problems),
        repeat_entries: count("limits.repeat_entries", limits.repeat_entries, problems),
        hot_keys: count("limits.hot_keys", limits.hot_keys, problems),
        shared_cache_entries: count("limits.shared_cache_entries", limits.shared_cache_entries, problems),
        proof_clock_skew: 0,
        verification: default.clone(),
    };
    let proof_window = seconds(
        "pop_window",
        times.pop_window,
        ranges::DEFAULT_PROOF_WINDOW,
        1..=MAX_PROOF_WINDOW,
        problems,
    );
    let skew = proof_window.min(5);
    let token_lifetime = 60..=366 * ranges::DAY;
    Limits {
        proof_clock_skew: seconds("pop_clock_skew", times.pop_clock_skew, skew, 0..=proof_window, problems),
        verification: credence_delegation::Limits {
            token_bytes: default.token_bytes.min(chain_bytes),
            chain_bytes,
            // The range ends at 8.
            delegation_depth: u32::try_from(depth).unwrap_or(default.delegation_depth),
            iat_skew: seconds(
                "max_iat_skew",
                times.max_iat_skew,
                ranges::DEFAULT_IAT_SKEW,
                0..=300,
                problems,
            ),
            token_lifetime: seconds(
                "max_token_lifetime",
                times.lifetime,
                ranges::DEFAULT_TOKEN_LIFETIME,
                token_lifetime,
                problems,
            ),
            proof_window,
            ..default
        },
        ..compiled
    }
}

fn audit(audit: file::Audit, problems: &mut Problems) -> Audit {
    if audit.record == RecordedDecisions::None && audit.on_overflow == Overflow::Deny {
        problems.report(
            "audit.on_overflow",
            "`deny` refuses what can not be recorded, and `record: none` records nothing; remove one",
        );
    }
    Audit {
        record: audit.record,
        ring_entries: count("audit.ring_entries", audit.ring_entries, problems),
        ring_bytes: count("audit.ring_bytes", audit.ring_bytes, problems),
        on_overflow: audit.on_overflow,
        arguments: audit.arguments,
        response_status: audit.response_status,
        denials_per_second: count("audit.denials_per_second", audit.denials_per_second, problems),
    }
}

/// Digits of a log id.
const LOG_ID_DIGITS: usize = 32;
/// The lease runs out at the latest after a minute; the control plane never promises more either.
const MAX_STALENESS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
/// For how long at most a rule may go by revocations that are too old.
const MAX_STALE_LIMIT: Duration = Duration::from_secs(600);
/// At most a second, so that news of a lost control plane is never older.
const PING_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);
/// Used unless `max_staleness` is so short that a quarter of it is less.
const DEFAULT_PING_INTERVAL: Duration = Duration::from_millis(500);
