//! Compiles a configuration file to a valid policy, and collects all errors.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use credence_delegation::trust::{self, Entry};
use credence_delegation::{Algorithm, Findings, Location, Remark, TrustAnchors};

use super::arguments::arguments;
use super::authorization::AccessTokenRules;
use super::checks::{MAX_NAME_BYTES, count, each_once, header_name, listed_once, seconds, time};
use super::error::ConfigError;
use super::file::{self, Audit, Mode, Overflow, ProofKind, RecordedDecisions};
use super::mcp::mcp;
use super::policy::{Calls, ControlPlane, Limits, Policy, Requirement, Rule};
use super::ranges::*;
use super::{duration, matching};
use crate::mcp::Source;
use crate::proofs::MAX_PROOF_WINDOW;
use crate::request::target::Tolerated;
use crate::request::{HeaderIndex, HeaderNames, RemovedTrailers, folds_to};
use crate::route::{PathTemplate, Pattern, Routes, Unusable};
use crate::usage_sketch::Amount;

/// Compiles the file.
///
/// # Errors
/// Every error, in the order of the file's fields.
pub(super) fn compile(file: &file::File) -> Result<Policy, ConfigError> {
    let (policy, notes) = compiled(|at| policy(at, file))?;
    Ok(Policy { notes, ..policy })
}

/// What `compile` makes of a file, and notes about it.
///
/// # Errors
/// Every error that it reports.
pub(super) fn compiled<T>(compile: impl FnOnce(&Location<'_>) -> T) -> Result<(T, Vec<Remark>), ConfigError> {
    let findings = RefCell::new(Findings::default());
    let compiled = compile(&Location::root(&findings));
    let found = findings.into_inner();
    if found.problems.is_empty() {
        Ok((compiled, found.notes))
    } else {
        Err(ConfigError {
            problems: found.problems,
            unlisted: found.unlisted,
        })
    }
}

#[inline(never)]
fn policy(at: &Location<'_>, file: &file::File) -> Policy {
    let audience = audience(&at.field("audience"), &file.audience);
    let trust_anchors = trust_anchors(&at.field("trust_anchors"), &file.trust_anchors);
    let holder_algorithms = trust::algorithms(
        &at.field("holder_algorithms"),
        file.holder_algorithms.clone(),
        &Algorithm::ALL,
    );
    let wait_for_snapshot = time(
        &at.field("control_plane").field("wait_for_snapshot"),
        file.control_plane.wait_for_snapshot.as_deref(),
        MAX_SNAPSHOT_WAIT,
        Duration::ZERO..=MAX_SNAPSHOT_WAIT,
    );
    let control_plane = control_plane(&at.field("control_plane"), &file.control_plane);
    let headers = header_names(&at.field("headers"), &file.headers);
    let paths = matching::tolerated(&at.field("paths"), &file.paths);
    let hosts = matching::tolerated_hosts(&at.field("hosts"), &file.hosts);
    let host_counts = file.rules.iter().any(host_counts);
    let access_tokens = AccessTokenRules {
        anchors: &trust_anchors,
        algorithms: &holder_algorithms,
        is_for_agents: false,
    };
    let routes = RuleCompiler {
        access_tokens: &access_tokens,
        audience: &audience,
        headers: &headers,
        paths,
        mode: file.mode,
        max_staleness: control_plane.max_staleness,
    }
    .rules(&at.field("rules"), &file.rules);
    let resources = access_tokens.resources(&routes);
    let removed_trailers = removed_trailers(file.mode, &headers, &routes);
    each_once(&at.field("identity").field("filter_state"), &file.identity.filter_state);
    let limits = limits(at, file);
    check_audit(&at.field("audit"), &file.audit);
    Policy {
        trust_anchors,
        holder_algorithms,
        control_plane,
        wait_for_snapshot,
        unmatched: file.default,
        mode: file.mode,
        paths,
        hosts,
        resources,
        routes,
        host_counts,
        removed_trailers,
        headers,
        identity_headers: file.identity.headers,
        filter_state: file.identity.filter_state.clone(),
        limits,
        audit: file.audit.clone(),
        notes: Vec::new(),
    }
}

/// Removes no trailers if no decision is enforced.
fn removed_trailers(mode: Mode, headers: &HeaderNames, routes: &Routes<Rule>) -> RemovedTrailers {
    if mode == Mode::Shadow && routes.iter().all(|rule| rule.mode == Mode::Shadow) {
        return RemovedTrailers::default();
    }
    let mut read = HeaderIndex::default();
    routes.add_headers_to(&mut read);
    for rule in routes.iter() {
        if let Some(requirement) = &rule.requirement {
            requirement.arguments.add_headers_to(&mut read);
            if requirement.mcp().is_some() {
                MCP_HEADERS.iter().for_each(|header| _ = read.add(header));
            }
            if requirement.authorization.is_some() {
                read.add("authorization");
                read.add("dpop");
            }
        }
    }
    RemovedTrailers::new(headers.clone(), read)
}

/// What servers of MCP may read. `mcp-param-` is a prefix.
const MCP_HEADERS: [&str; 5] = [
    "mcp-session-id",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
];

fn host_counts(rule: &file::Rule) -> bool {
    let mut arguments = rule.args.iter().flat_map(|arguments| &arguments.0);
    rule.matches.hosts.is_some() || arguments.any(|(_, argument)| argument.host)
}

pub(super) fn audience(at: &Location<'_>, names: &[String]) -> Vec<String> {
    if names.is_empty() {
        at.report("no audience; name this service as delegations do, such as `https://payments.example`");
    }
    if !at.at_most(MAX_AUDIENCE, names) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let at = at.element(index);
        at.visible(name);
        listed_once(&at, name, &mut seen);
    }
    names.to_vec()
}

#[inline(never)]
fn trust_anchors(at: &Location<'_>, entries: &[file::TrustAnchor]) -> TrustAnchors {
    if entries.is_empty() {
        at.report("no trust anchor, so no delegation could ever be valid; add `{issuer, jwk}`");
    }
    let entries = entries.iter().map(|entry| Entry {
        issuer: entry.issuer.clone(),
        jwk: entry.jwk.clone(),
        jwks: entry.jwks.clone(),
        keys: entry.keys.clone(),
        same_principals_as: entry.same_principals_as.clone(),
        algorithms: entry.algorithms.clone(),
        asserts_subjects: entry.asserts_subjects,
        access_tokens: entry.access_tokens.clone(),
        delegations: entry.delegations,
    });
    trust::trust(at, entries.collect())
}

// === The control plane ===

#[inline(never)]
fn control_plane(at: &Location<'_>, settings: &file::ControlPlane) -> ControlPlane {
    at.field("cluster").visible(&settings.cluster);
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if settings.log_id.len() != LOG_ID_DIGITS || !settings.log_id.bytes().all(is_digit) {
        at.field("log_id").report(format!(
            "`{}` is not a log id of {LOG_ID_DIGITS} lower-case hexadecimal digits; copy it from the control plane",
            settings.log_id
        ));
    }
    let time =
        |name, written: &Option<String>, default, range| time(&at.field(name), written.as_deref(), default, range);
    let max_staleness = time(
        "max_staleness",
        &settings.max_staleness,
        DEFAULT_STALENESS,
        MAX_STALENESS,
    );
    let default = DEFAULT_PING_INTERVAL.min(max_staleness.checked_div(4).unwrap_or(max_staleness));
    let ping_interval = time("ping_interval", &settings.ping_interval, default, PING_INTERVAL);
    if ping_interval >= max_staleness {
        at.field("ping_interval").report(format!(
            "{} is not shorter than max_staleness ({}), so every lease would expire; write a quarter of that or less",
            duration::display(ping_interval),
            duration::display(max_staleness)
        ));
    }
    ControlPlane {
        cluster: settings.cluster.clone(),
        log_id: settings.log_id.clone(),
        max_staleness,
        ping_interval,
        max_subjects: count(&at.field("max_subjects"), settings.max_subjects),
    }
}

// === Headers ===

#[inline(never)]
pub(super) fn header_names(at: &Location<'_>, names: &file::Headers) -> HeaderNames {
    let default = HeaderNames::default();
    let compiled = HeaderNames {
        delegation: names.delegation.clone().unwrap_or(default.delegation),
        proof: names.proof.clone().unwrap_or(default.proof),
    };
    header_name(&at.field("delegation"), &compiled.delegation);
    header_name(&at.field("proof"), &compiled.proof);
    for (field, name) in [("delegation", &compiled.delegation), ("proof", &compiled.proof)] {
        if matches!(name.as_str(), "authorization" | "dpop") {
            at.field(field)
                .report(format!("`{name}` is the header of access tokens; write another name"));
        }
    }
    if folds_to(compiled.delegation.as_bytes(), compiled.proof.as_bytes()) {
        at.field("proof").report(format!(
            "`{}` is already the delegation's header; write another name",
            compiled.proof
        ));
    }
    compiled
}

// === Rules ===

pub(super) struct RuleCompiler<'a> {
    pub(super) access_tokens: &'a AccessTokenRules<'a>,
    pub(super) audience: &'a [String],
    pub(super) headers: &'a HeaderNames,
    pub(super) paths: Tolerated,
    pub(super) mode: Mode,
    pub(super) max_staleness: Duration,
}

impl RuleCompiler<'_> {
    pub(super) fn rules(&self, at: &Location<'_>, rules: &[file::Rule]) -> Routes<Rule> {
        if rules.is_empty() {
            at.report("no rule, so `default` would decide every request; add one");
        }
        let mut routes = Routes::default();
        if !at.at_most(MAX_RULES, rules) {
            return routes;
        }
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            let at = at.element(index);
            let name = rule.name.as_str();
            if let Some(earlier) = names.get(name) {
                at.field("name").report(format!(
                    "rules[{earlier}] is named `{name}` too; audit and metrics need distinct names"
                ));
            } else {
                names.insert(name, index);
            }
            let Some((pattern, rule)) = self.rule(&at, rule) else {
                continue;
            };
            if let Err(unusable) = routes.push(pattern, rule) {
                at.field("match").report(match unusable {
                    Unusable::Covered { earlier } => covered_by(routes.get(earlier)),
                    Unusable::TooManyAlike | Unusable::IndexFull => unusable.to_string(),
                });
            }
        }
        routes
    }

    #[inline(never)]
    fn rule(&self, at: &Location<'_>, rule: &file::Rule) -> Option<(Pattern, Rule)> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if rule.name.is_empty() || rule.name.len() > MAX_NAME_BYTES || !rule.name.bytes().all(is_plain) {
            at.field("name").report(format!(
                "`{}` is not a rule name; use up to {MAX_NAME_BYTES} letters, digits, `_`, `-` and `.`",
                rule.name
            ));
        }
        let pattern = matching::pattern(&at.field("match"), &rule.matches, self.paths, self.headers);
        let template = pattern.as_ref().map(|pattern| &pattern.path);
        let requirement = if rule.public {
            check_public(at, rule);
            None
        } else {
            Some(self.requirement(at, rule, template))
        };
        let rule = Rule {
            host_counts: host_counts(rule),
            name: rule.name.clone(),
            path_template: rule.matches.path.clone(),
            clusters: matching::clusters(&at.field("clusters"), rule.clusters.clone()),
            allows_upgrade: rule.upgrade,
            mode: rule.mode.unwrap_or(self.mode),
            requirement,
        };
        Some((pattern?, rule))
    }

    #[inline(never)]
    fn requirement(&self, at: &Location<'_>, rule: &file::Rule, template: Option<&PathTemplate>) -> Requirement {
        let calls = match (&rule.mcp, &rule.tool) {
            (Some(written), _) => Calls::Mcp(mcp(at, rule, written)),
            (None, Some(tool)) => {
                at.field("tool").visible(tool);
                Calls::Tool(tool.clone())
            }
            (None, None) => {
                at.report("the rule names no `tool`; add the one a delegation must grant, or `public: true`");
                Calls::Tool(String::new())
            }
        };
        let arguments = arguments(at, rule, template, self.headers);
        let audience = match &rule.audience {
            Some(names) => audience(&at.field("audience"), names),
            None => self.audience.to_vec(),
        };
        let proof = rule.proof.unwrap_or_default();
        let authorization = rule.authorization.as_ref().map(|written| {
            let tool = rule.tool.as_deref().filter(|_| rule.mcp.is_none());
            self.access_tokens
                .compile(&at.field("authorization"), written, tool, &audience)
        });
        let is_dpop = authorization.as_ref().is_some_and(|read| read.proof == ProofKind::Dpop);
        if rule.nonce == Some(true) && proof != ProofKind::Pop && !is_dpop {
            at.field("nonce")
                .report("only a signed proof carries a nonce; write `proof: pop`, or remove `nonce`");
        }
        if rule.peer_validated == Some(true) && proof != ProofKind::Mtls {
            at.field("peer_validated").report(
                "only a client certificate is validated by Envoy; write `proof: mtls`, or remove `peer_validated`",
            );
        }
        let is_in_headers = rule.mcp.as_ref().is_some_and(|mcp| mcp.source == Source::Headers);
        if is_in_headers && proof == ProofKind::Pop && authorization.is_none() {
            at.field("proof").report(
                "a proof says all arguments, which headers do not show; write `mtls` or `none`, or `source: body`",
            );
        }
        let reads_body = (rule.mcp.is_some() && !is_in_headers) || !arguments.body.is_empty();
        if rule.hold.is_some() && !reads_body {
            at.field("hold")
                .report("no argument is read from the body, so nothing waits for it; remove `hold`");
        }
        let presents = rule.mcp.as_ref().is_some_and(|mcp| mcp.delegation_in_meta);
        if rule.hold == Some(file::Hold::Body) && presents {
            at.field("hold").report(
                "the headers wait for the delegation in the body; write `hold: request`, or remove `delegation_in_meta`",
            );
        }
        Requirement {
            calls,
            arguments,
            audience,
            proof,
            authorization,
            nonce: rule.nonce.unwrap_or_default(),
            peer_validated: rule.peer_validated.unwrap_or_default(),
            stale_limit: rule.on_stale.as_ref().map(|on_stale| self.stale_limit(at, on_stale)),
            holds: rule.hold.unwrap_or_default(),
            ignore_body: rule.ignore_body.unwrap_or(is_in_headers),
            forward: rule.forward.unwrap_or_default(),
        }
    }

    fn stale_limit(&self, at: &Location<'_>, on_stale: &file::OnStale) -> Duration {
        let at = at.field("on_stale").field("allow_cached_for");
        let range = Duration::ZERO..=MAX_STALE_LIMIT;
        let limit = time(&at, Some(&on_stale.allow_cached_for), MAX_STALE_LIMIT, range);
        if limit <= self.max_staleness {
            at.report(format!(
                "{} is not more than control_plane.max_staleness ({}), so it has no effect; write more, or remove \
                 `on_stale`",
                duration::display(limit),
                duration::display(self.max_staleness)
            ));
        }
        limit
    }
}

fn check_public(at: &Location<'_>, rule: &file::Rule) {
    for (field, _) in rule.of_delegations().into_iter().filter(|(_, is_there)| *is_there) {
        at.field(field).report(format!(
            "a public rule reads no delegation, so `{field}` has no effect; remove it, or `public`"
        ));
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

#[inline(never)]
fn limits(at: &Location<'_>, file: &file::File) -> Limits {
    let limits = &file.limits;
    let default = credence_delegation::Limits::default();
    let own = |name| at.field("limits").field(name);
    let chain_bytes = count(&own("delegation_bytes"), limits.delegation_bytes);
    let proof_bytes = count(&own("proof_bytes"), limits.proof_bytes);
    let depth = count(&own("delegation_depth"), limits.delegation_depth);
    let compiled = Limits {
        proof_bytes,
        body_bytes: count(&own("body_bytes"), limits.body_bytes),
        held: Amount {
            entries: count(&own("held_requests"), limits.held_requests),
            bytes: count(&own("held_bytes"), limits.held_bytes),
        },
        cache: Amount {
            entries: count(&own("cache_entries"), limits.cache_entries),
            bytes: count(&own("cache_bytes"), limits.cache_bytes),
        },
        refused_entries: count(&own("refused_entries"), limits.refused_entries),
        repeat_entries: count(&own("repeat_entries"), limits.repeat_entries),
        hot_keys: count(&own("hot_keys"), limits.hot_keys),
        shared_cache_entries: count(&own("shared_cache_entries"), limits.shared_cache_entries),
        proof_clock_skew: 0,
        verification: default.clone(),
    };
    let seconds =
        |name, written: &Option<String>, default, range| seconds(&at.field(name), written.as_deref(), default, range);
    let proof_window = seconds(
        "pop_window",
        &file.pop_window,
        DEFAULT_PROOF_WINDOW,
        1..=MAX_PROOF_WINDOW,
    );
    let clock_skew = seconds(
        "pop_clock_skew",
        &file.pop_clock_skew,
        proof_window.min(5),
        0..=proof_window,
    );
    let iat_skew = seconds("max_iat_skew", &file.max_iat_skew, DEFAULT_IAT_SKEW, 0..=300);
    let lifetimes = 60..=366 * DAY;
    Limits {
        proof_clock_skew: clock_skew,
        verification: credence_delegation::Limits {
            token_bytes: default.token_bytes.min(chain_bytes),
            chain_bytes,
            // The range ends at 8.
            delegation_depth: u32::try_from(depth).unwrap_or(default.delegation_depth),
            iat_skew,
            token_lifetime: seconds(
                "max_token_lifetime",
                &file.max_token_lifetime,
                DEFAULT_TOKEN_LIFETIME,
                lifetimes,
            ),
            proof_window,
            ..default
        },
        ..compiled
    }
}

#[inline(never)]
fn check_audit(at: &Location<'_>, audit: &Audit) {
    if audit.record == RecordedDecisions::None && audit.on_overflow == Overflow::Deny {
        at.field("on_overflow")
            .report("`deny` refuses requests that cannot be recorded, but `record: none` records nothing; remove one");
    }
    count(&at.field("ring_entries"), Some(audit.ring_entries));
    count(&at.field("ring_bytes"), Some(audit.ring_bytes));
    count(&at.field("denials_per_second"), Some(audit.denials_per_second));
}

/// Digits of a log id.
const LOG_ID_DIGITS: usize = 32;
/// The lease expires after a minute at the latest; the control plane never grants more.
const MAX_STALENESS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
/// The longest time for which a rule may use outdated revocations.
const MAX_STALE_LIMIT: Duration = Duration::from_secs(600);
/// At most a second, so that a lost control plane is noticed within it.
const PING_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);
/// The default, unless `max_staleness` is so short that a quarter of it is less.
const DEFAULT_PING_INTERVAL: Duration = Duration::from_millis(500);
