//! What a configuration asks of requests, told to those who write agents.

use serde::Serialize;

use super::compile::compile;
use super::error::ConfigError;
use super::file::{self, Mode, Place, ProofKind, Unmatched};
use super::read::read;
use crate::arguments::ArgumentKind;
use crate::route::{HeaderTest, QueryTest};

/// Everything an agent must know to get through. docs/reference/configuration.md documents its JSON form, which only grows.
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
    /// What derived tokens and proofs may be signed with, as `alg` names it.
    pub holder_algorithms: Vec<&'static str>,
    /// In the order they are tried; the first that matches decides.
    pub rules: Vec<RuleDescription>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleDescription {
    /// As audit and metrics name it.
    pub name: String,
    /// Which requests it is for.
    #[serde(rename = "match")]
    pub matches: MatchDescription,
    /// Whether its decisions are carried out.
    pub mode: Mode,
    /// Whether an upgrade is let through.
    pub upgrade: bool,
    /// Whether it is for everybody: then nothing is asked.
    pub public: bool,
    /// What it asks for, unless it is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asked>,
}

/// Which requests a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchDescription {
    /// Every host if empty.
    pub hosts: Vec<String>,
    /// Every method if empty.
    pub methods: Vec<String>,
    /// The template.
    pub path: String,
    /// What its headers must be.
    pub headers: Vec<Condition<HeaderTest>>,
    /// What the members of its query must be.
    pub query: Vec<Condition<QueryTest>>,
}

/// What one header or query member must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition<T> {
    /// Of the header, in lower case, or of the query member.
    pub name: String,
    /// What is asked of it.
    #[serde(flatten)]
    pub test: T,
}

/// What a delegation must grant, and how it is to be presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// Tool that the delegation must grant.
    pub tool: String,
    /// In the order they are written.
    pub arguments: Vec<ArgumentDescription>,
    /// Proof of possession: a signature, a client certificate, or none.
    pub proof: ProofKind,
    /// Whether the proof must carry the nonce that a denied request is told in its `delegation-nonce` header.
    pub nonce: bool,
    /// Whether the delegation may name the agent's SPIFFE ID instead of one certificate; only for `mtls`.
    pub peer_validated: bool,
    /// The names that delegation and proof may be meant for; one of them suffices.
    pub audience: Vec<String>,
    /// What may be in the request without being an argument.
    pub ignored: Ignored,
    /// Whether the service behind gets to see the delegation.
    pub forward: bool,
}

/// One argument of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentDescription {
    /// As delegations constrain it.
    pub name: String,
    /// How it is read.
    #[serde(rename = "type")]
    pub kind: ArgumentKind,
    /// Where it is taken from.
    pub from: Place,
    /// Whether the request may leave it out.
    pub optional: bool,
}

/// What is let through unread. Anything else that no argument reads denies the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ignored {
    /// Query members.
    pub query: Vec<String>,
    /// Members of the JSON body, by pointer.
    pub body_members: Vec<String>,
    /// The whole body, of any kind.
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
        Ok(Self {
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
                .map(|written| rule(written, &audience, policy.mode))
                .collect(),
        })
    }
}

/// Every field is named here, so that a new one cannot be forgotten.
fn rule(written: file::Rule, plugin_audience: &[String], plugin_mode: Mode) -> RuleDescription {
    let file::Rule {
        name,
        matches,
        tool,
        args,
        ignore_query,
        ignore_body,
        ignore_members,
        audience,
        proof,
        forward,
        nonce,
        peer_validated,
        mode,
        // Of no concern to those who are asked for something.
        on_stale: _,
        clusters: _,
        public,
        upgrade,
    } = written;
    let arguments = args.map(|members| members.0).unwrap_or_default();
    let asks = Asked {
        tool: tool.unwrap_or_default(),
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

/// A configuration that loads asks exactly one thing of each name.
fn conditions<W, T>(written: Option<file::Members<W>>, test: impl Fn(W) -> Option<T>) -> Vec<Condition<T>> {
    let members = written.map(|members| members.0).unwrap_or_default();
    let condition = |(name, written)| {
        let test = test(written)?;
        Some(Condition { name, test })
    };
    members.into_iter().filter_map(condition).collect()
}

/// Without a source, which no configuration that loads has, there is none.
fn argument((name, written): (String, file::Argument)) -> Option<ArgumentDescription> {
    Some(ArgumentDescription {
        name,
        kind: written.kind,
        from: written.places().next()?,
        optional: written.optional,
    })
}
