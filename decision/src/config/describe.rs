//! What a configuration requires of requests, described for authors of agents.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compile::compile;
use super::error::ConfigError;
use super::file::{self, Mode, Place, ProofKind, Unmatched};
use super::policy::{Origin, Requirement, Rule};
use super::read::read;
use crate::arguments::ArgumentKind;
use crate::mcp::{Access, Endpoint, Tools};
use crate::route::{HeaderTest, QueryTest};

/// Everything that an agent must know. docs/reference/configuration.md documents its JSON form, to which members are
/// only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Decision when no rule matches.
    pub default: Unmatched,
    /// The header that carries the delegation.
    pub delegation_header: String,
    /// The header that carries the proof.
    pub proof_header: String,
    /// How far a proof's `iat` may be from the proxy's clock.
    pub proof_window_seconds: u64,
    /// The allowed `alg` of derived tokens and proofs.
    pub holder_algorithms: Vec<&'static str>,
    /// In the order they are tried; the first that matches decides.
    pub rules: Vec<RuleDescription>,
    /// The URLs of the metadata of its protected resources (RFC 9728), and the metadata as JSON.
    #[serde(skip)]
    pub resources: Vec<(String, String)>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleDescription {
    /// The name in audit and metrics.
    pub name: String,
    /// The requests that the rule matches.
    #[serde(rename = "match")]
    pub matches: MatchDescription,
    /// Whether its decisions are enforced.
    pub mode: Mode,
    /// Whether an upgrade is allowed.
    pub upgrade: bool,
    /// Whether it is public: then nothing is required.
    pub public: bool,
    /// The requirements, unless it is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asked>,
}

/// The requests that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchDescription {
    /// Every host if empty.
    pub hosts: Vec<String>,
    /// Every method if empty.
    pub methods: Vec<String>,
    /// The template.
    pub path: String,
    /// Conditions on headers.
    pub headers: Vec<Condition<HeaderTest>>,
    /// Conditions on query members.
    pub query: Vec<Condition<QueryTest>>,
}

/// A condition on one header or query member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition<T> {
    /// The name of the header, in lower case, or of the query member.
    pub name: String,
    /// The condition.
    #[serde(flatten)]
    pub test: T,
}

/// What a delegation must grant, and how to present it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// Tool that the delegation must grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The MCP server whose tools are called instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpDescription>,
    /// In their written order.
    pub arguments: Vec<ArgumentDescription>,
    /// Proof of possession: a signature, a client certificate, or none.
    pub proof: ProofKind,
    /// How to present an access token instead, if the rule reads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AskedOfToken>,
    /// Whether the proof must carry the nonce from the `delegation-nonce` (or `dpop-nonce`) header of a denied request.
    pub nonce: bool,
    /// Whether the delegation may name the agent's SPIFFE ID instead of one certificate; only for `mtls`.
    pub peer_validated: bool,
    /// The accepted audiences of delegation and proof; one of them suffices.
    pub audience: Vec<String>,
    /// Parts of the request that may be present without being an argument.
    pub ignored: Ignored,
    /// Whether the service receives the delegation.
    pub forward: bool,
}

/// How to present an access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedOfToken {
    /// DPoP, a client certificate, or none.
    pub proof: ProofKind,
    /// A scope that grants the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Where `htu` may place the service; where Envoy routes to if empty.
    pub origins: Vec<String>,
}

/// How an MCP server is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct McpDescription {
    /// The allowed versions.
    pub versions: Vec<&'static str>,
    /// What precedes a tool's name in delegations, unless `tools` lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_prefix: Option<String>,
    /// The tool in delegations of each of its tools.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
    /// The tool of each other method. None: any valid delegation.
    pub methods: BTreeMap<String, Option<String>>,
    /// Whether a message may have the delegation in its metadata.
    pub delegation_in_meta: bool,
    /// How long an exchange may take, with its stream.
    pub max_stream_seconds: u64,
}

/// One argument of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentDescription {
    /// The name in delegations.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ArgumentKind,
    /// Its source.
    pub from: Place,
    /// Whether the request may leave it out.
    pub optional: bool,
}

/// Ignored parts of a request. Any other part that no argument reads denies the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    /// Query members.
    pub query: Vec<String>,
    /// Members of the JSON body, by pointer.
    pub body_members: Vec<String>,
    /// The whole body, of any type.
    pub body: bool,
}

impl Description {
    /// Describes a configuration given as JSON text.
    ///
    /// # Errors
    /// [`ConfigError`] if it would not load.
    pub fn of(json: &[u8]) -> Result<Self, ConfigError> {
        let file = read(json)?;
        let policy = compile(&file)?;
        let audience = file.audience;
        let resources = policy.resources.iter();
        let resources = resources.map(|resource| (resource.metadata_url(), resource.document.to_string()));
        Ok(Self {
            resources: resources.collect(),
            default: policy.unmatched,
            delegation_header: policy.headers.delegation,
            proof_header: policy.headers.proof,
            proof_window_seconds: policy.limits.verification.proof_window,
            holder_algorithms: policy
                .holder_algorithms
                .iter()
                .map(|algorithm| algorithm.name())
                .collect(),
            rules: file
                .rules
                .into_iter()
                .zip(policy.routes.iter())
                .map(|(written, compiled)| rule(written, compiled, &audience, policy.mode))
                .collect(),
        })
    }
}

/// Names every field here, so that a new one cannot be forgotten.
fn rule(written: file::Rule, compiled: &Rule, plugin_audience: &[String], plugin_mode: Mode) -> RuleDescription {
    let file::Rule {
        name,
        matches,
        tool,
        mcp: _,
        args,
        ignore_query,
        ignore_body,
        ignore_members,
        audience,
        proof,
        // In the compiled rule.
        authorization: _,
        forward,
        nonce,
        peer_validated,
        mode,
        // Irrelevant for clients.
        on_stale: _,
        hold: _,
        clusters: _,
        public,
        upgrade,
    } = written;
    let arguments = args.map(|members| members.0).unwrap_or_default();
    let authorization = compiled.requirement.as_ref();
    let authorization = authorization.and_then(|requirement| requirement.authorization.as_ref());
    let asks = Asked {
        authorization: authorization.map(|read| AskedOfToken {
            proof: read.proof,
            scope: read.challenge.scope.clone(),
            origins: read
                .origins
                .iter()
                .map(|Origin { scheme, authority }| format!("{scheme}://{authority}"))
                .collect(),
        }),
        tool,
        mcp: compiled.requirement.as_ref().and_then(Requirement::mcp).map(mcp_server),
        arguments: arguments.into_iter().filter_map(argument).collect(),
        proof: proof.unwrap_or_default(),
        nonce: nonce.unwrap_or_default(),
        peer_validated: peer_validated.unwrap_or_default(),
        audience: audience.unwrap_or_else(|| plugin_audience.to_vec()),
        ignored: Ignored {
            query: ignore_query.unwrap_or_default(),
            body_members: ignore_members.unwrap_or_default(),
            body: ignore_body.unwrap_or_default(),
        },
        forward: forward.unwrap_or_default(),
    };
    RuleDescription {
        name,
        matches: match_description(matches),
        mode: mode.unwrap_or(plugin_mode),
        upgrade,
        public,
        asks: (!public).then_some(asks),
    }
}

fn match_description(written: file::Match) -> MatchDescription {
    let file::Match {
        hosts,
        methods,
        path,
        headers,
        query,
    } = written;
    MatchDescription {
        hosts: hosts.unwrap_or_default(),
        methods: methods.unwrap_or_default(),
        path,
        headers: conditions(headers, |written| written.tests().next()),
        query: conditions(query, |written| written.tests().next()),
    }
}

/// A valid configuration has exactly one condition for each name.
fn conditions<W, T>(written: Option<crate::members::Members<W>>, test: impl Fn(W) -> Option<T>) -> Vec<Condition<T>> {
    let members = written.map(|members| members.0).unwrap_or_default();
    let condition = |(name, written)| {
        let test = test(written)?;
        Some(Condition { name, test })
    };
    members.into_iter().filter_map(condition).collect()
}

/// `None` without a source, which no valid configuration has.
fn mcp_server(endpoint: &Endpoint) -> McpDescription {
    let (tool_prefix, tools) = match &endpoint.tools {
        Tools::Prefixed(prefix) => (Some(prefix.clone()), BTreeMap::new()),
        Tools::Named(tools) => (None, tools.clone()),
    };
    let methods = endpoint.methods.iter().map(|(name, access)| {
        let tool = match access {
            Access::Open => None,
            Access::Tool(tool) => Some(tool.clone()),
        };
        (name.clone(), tool)
    });
    McpDescription {
        versions: endpoint.versions.iter().map(|version| version.name()).collect(),
        tool_prefix,
        tools,
        methods: methods.collect(),
        delegation_in_meta: endpoint.delegation_in_meta,
        max_stream_seconds: endpoint.max_stream.as_secs(),
    }
}

fn argument((name, written): (String, file::Argument)) -> Option<ArgumentDescription> {
    Some(ArgumentDescription {
        name,
        kind: written.kind,
        from: written.places().next()?,
        optional: written.optional,
    })
}
