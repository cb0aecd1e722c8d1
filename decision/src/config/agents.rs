//! The rules of a service as its agents read them: the part of the filter's configuration that says what a request needs,
//! in the same words.

use std::collections::BTreeSet;
use std::time::Duration;

use credence_delegation::{Algorithm, Algorithms, Location, TrustAnchors, trust};
use serde_json::value::RawValue;

use super::authorization::AccessTokenRules;
use super::checks::{count, seconds};
use super::compile::{RuleCompiler, audience, compiled, header_names};
use super::error::ConfigError;
use super::file::{self, Count, Mode, Unmatched};
use super::matching;
use super::policy::{Matching, Rule};
use super::ranges::DEFAULT_PROOF_WINDOW;
use super::read::{read, read_as};
use crate::members::{Written, rewritten};
use crate::proofs::MAX_PROOF_WINDOW;
use crate::request::HeaderNames;
use crate::request::target::{Tolerated, ToleratedHosts};
use crate::route::Routes;

/// What a service asks of its agents. docs/start/proxy.md says how to publish it.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "tools",
    schemars(title = "What a service behind Credence's filter asks of its agents")
)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Version of this document: 1.
    #[cfg_attr(feature = "tools", schemars(extend("const" = 1)))]
    credence_agent_rules: Count<1, 1, 1>,
    /// `iss` of the accepted delegations and access tokens.
    issuers: Vec<String>,
    /// Names of the service. Proofs name the first; delegations with audiences name one of them.
    audience: Vec<String>,
    /// Accepted `alg` of derived tokens and proofs.
    holder_algorithms: Option<Vec<String>>,
    /// What happens to a request that matches no rule.
    #[serde(default)]
    default: Unmatched,
    /// Ambiguous paths that are accepted.
    #[serde(default)]
    paths: file::Paths,
    /// Ambiguous hosts that are accepted.
    #[serde(default)]
    hosts: file::Hosts,
    /// In order: the first that matches counts.
    rules: Vec<file::Rule>,
    /// The headers that carry delegation and proof.
    #[serde(default)]
    headers: file::Headers,
    /// Accepted difference between a proof's `iat` and the service's clock.
    pop_window: Option<String>,
    /// Sizes and counts.
    #[serde(default)]
    limits: Limits,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Delegation header, in bytes.
    delegation_bytes: Option<Count<1_024, 16_384, 16_384>>,
    /// Proof header, in bytes.
    proof_bytes: Option<Count<512, 4_096, 4_096>>,
    /// Times that a delegation was handed on.
    delegation_depth: Option<Count<0, 8, 8>>,
    /// Body that a rule reads, in bytes.
    body_bytes: Option<Count<0, { 1 << 20 }, 65_536>>,
}

/// Valid rules for agents.
#[derive(Debug, Clone)]
pub struct AgentRules {
    /// `iss` of the accepted delegations and access tokens.
    pub issuers: Vec<String>,
    /// Names of the service, unless a rule has others.
    pub audience: Vec<String>,
    /// The accepted algorithms of derived tokens and proofs.
    pub holder_algorithms: Algorithms,
    /// The headers that carry delegation and proof.
    pub headers: HeaderNames,
    /// Bytes of a proof.
    pub proof_bytes: usize,
    /// Bytes of a body that a rule reads.
    pub body_bytes: usize,
    /// Limits of the delegation, and the window of its proofs.
    pub limits: credence_delegation::Limits,
    unmatched: Unmatched,
    paths: Tolerated,
    hosts: ToleratedHosts,
    routes: Routes<Rule>,
}

/// The rules for agents of a configuration: JSON, with the texts of the configuration.
///
/// # Errors
/// [`ConfigError`] if the configuration would not load.
pub fn for_agents(json: &[u8]) -> Result<String, ConfigError> {
    let file = read(json)?;
    super::compile::compile(&file)?;
    let issuers: BTreeSet<_> = file.trust_anchors.iter().map(|anchor| &anchor.issuer).collect();
    let projected = std::str::from_utf8(json).ok().and_then(projected);
    // What was read as a configuration has these members.
    let members = projected.ok_or_else(|| ConfigError::one(".", "the configuration cannot be rewritten"))?;
    let issuers = serde_json::to_string(&issuers).unwrap_or_default();
    Ok(format!(
        r#"{{"credence_agent_rules":1,"issuers":{issuers},{}"#,
        members.trim_start_matches('{')
    ))
}

/// The members that agents need.
fn projected(json: &str) -> Option<String> {
    rewritten(json, |name, value| match name {
        "rules" => {
            let rules: Vec<&RawValue> = serde_json::from_str(value).ok()?;
            let rules = rules.into_iter().map(|rule| only(rule.get(), &RULE_MEMBERS));
            Some(Written::As(format!(
                "[{}]",
                rules.collect::<Option<Vec<_>>>()?.join(",")
            )))
        }
        "limits" => only(value, &LIMITS).map(Written::As),
        _ if MEMBERS.contains(&name) => Some(Written::Same),
        _ => Some(Written::Gone),
    })
}

/// The members of an object that are listed.
fn only(json: &str, listed: &[&str]) -> Option<String> {
    rewritten(json, |name, _| match listed.contains(&name) {
        true => Some(Written::Same),
        false => Some(Written::Gone),
    })
}

impl AgentRules {
    /// Reads the document that [`for_agents`] makes.
    ///
    /// # Errors
    /// [`ConfigError`] lists what is wrong, with its place.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let file: File = read_as(json)?;
        compiled(|at| Self::compile(at, file)).map(|(rules, _)| rules)
    }

    /// What determines the rule of a request.
    pub(crate) fn matching(&self) -> Matching<'_> {
        Matching {
            unmatched: self.unmatched,
            paths: self.paths,
            hosts: self.hosts,
            routes: &self.routes,
        }
    }

    fn compile(at: &Location<'_>, file: File) -> Self {
        count(&at.field("credence_agent_rules"), Some(file.credence_agent_rules));
        let audience = audience(&at.field("audience"), &file.audience);
        let algorithms = at.field("holder_algorithms");
        let holder_algorithms = trust::algorithms(&algorithms, file.holder_algorithms, &Algorithm::ALL);
        let headers = header_names(&at.field("headers"), &file.headers);
        let paths = matching::tolerated(&at.field("paths"), &file.paths);
        let hosts = matching::tolerated_hosts(&at.field("hosts"), &file.hosts);
        let no_anchors = TrustAnchors::new(Vec::new());
        let routes = RuleCompiler {
            access_tokens: &AccessTokenRules {
                anchors: &no_anchors,
                algorithms: &holder_algorithms,
                is_for_agents: true,
            },
            audience: &audience,
            headers: &headers,
            paths,
            mode: Mode::Enforce,
            max_staleness: Duration::ZERO,
        }
        .rules(&at.field("rules"), &file.rules);
        let limit = at.field("limits");
        let chain_bytes = count(&limit.field("delegation_bytes"), file.limits.delegation_bytes);
        let depth = count(&limit.field("delegation_depth"), file.limits.delegation_depth);
        let window = at.field("pop_window");
        let default = credence_delegation::Limits::default();
        Self {
            issuers: file.issuers,
            audience,
            holder_algorithms,
            headers,
            proof_bytes: count(&limit.field("proof_bytes"), file.limits.proof_bytes),
            body_bytes: count(&limit.field("body_bytes"), file.limits.body_bytes),
            limits: credence_delegation::Limits {
                token_bytes: default.token_bytes.min(chain_bytes),
                chain_bytes,
                // The range ends at 8.
                delegation_depth: u32::try_from(depth).unwrap_or(default.delegation_depth),
                proof_window: seconds(
                    &window,
                    file.pop_window.as_deref(),
                    DEFAULT_PROOF_WINDOW,
                    1..=MAX_PROOF_WINDOW,
                ),
                ..default
            },
            unmatched: file.default,
            paths,
            hosts,
            routes,
        }
    }
}

/// Members of a configuration that agents need.
const MEMBERS: [&str; 8] = [
    "audience",
    "holder_algorithms",
    "default",
    "paths",
    "hosts",
    "headers",
    "pop_window",
    "rules",
];
/// Members of a rule that agents need.
const RULE_MEMBERS: [&str; 15] = [
    "name",
    "match",
    "tool",
    "mcp",
    "args",
    "ignore_query",
    "ignore_body",
    "ignore_members",
    "audience",
    "proof",
    "authorization",
    "nonce",
    "peer_validated",
    "public",
    "upgrade",
];
/// Limits that agents need.
const LIMITS: [&str; 4] = ["delegation_bytes", "proof_bytes", "delegation_depth", "body_bytes"];
