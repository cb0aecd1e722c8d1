//! The configuration file: names and JSON types only. `super::compile` interprets it.
//!
//! Unknown and duplicate fields are refused everywhere. `super::read` also refuses `null`: if a template fails to fill
//! in `hosts:`, that must not mean "every host".

#[cfg(feature = "tools")]
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;

#[cfg(feature = "tools")]
use super::keywords::*;
use crate::arguments::ArgumentKind;
use crate::identity_headers::{IdentityHeaders, Part};
use crate::mcp;
use crate::members::Members;
use crate::route;

/// What Envoy hands to the plugin. docs/reference/configuration.md explains every field.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(title = "Configuration of Credence's filter"))]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Names of this service in delegations and proofs, such as `https://payments.example`.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_AUDIENCE), extend("uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) audience: Vec<String>,
    /// Who may sign root tokens. An issuer may have several entries.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 256)))]
    pub(super) trust_anchors: Vec<TrustAnchor>,
    /// Accepted `alg` of derived tokens and proofs.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    #[cfg_attr(feature = "tools", schemars(extend("items" = {"enum": algorithms()}, "uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = ["Ed25519"])))]
    pub(super) holder_algorithms: Option<Vec<String>>,
    /// Where revocations come from and evidence goes to.
    pub(super) control_plane: ControlPlane,
    /// Decision when no rule matches.
    #[serde(default)]
    pub(super) default: Unmatched,
    /// `shadow` decides, counts and records, but denies nothing.
    #[serde(default)]
    pub(super) mode: Mode,
    /// Ambiguous paths.
    #[serde(default)]
    pub(super) paths: Paths,
    /// Ambiguous hosts.
    #[serde(default)]
    pub(super) hosts: Hosts,
    /// Tried in order: the first that matches decides.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_RULES)))]
    pub(super) rules: Vec<Rule>,
    /// The headers an agent sends; two distinct names.
    #[serde(default)]
    pub(super) headers: Headers,
    /// What Envoy and the service learn about the caller.
    #[serde(default)]
    pub(super) identity: Identity,
    /// Sizes and counts.
    #[serde(default)]
    pub(super) limits: Limits,
    /// Accepted difference between a proof's `iat` and the proxy's clock: 1s to 1m.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = seconds(DEFAULT_PROOF_WINDOW))))]
    pub(super) pop_window: Option<String>,
    /// How far a proof's `iat` may be in the future: up to `pop_window`. Default: 5s, or `pop_window` if that is less.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    pub(super) pop_clock_skew: Option<String>,
    /// How far a token's `iat` may be in the future: 0s to 5m.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION), extend("default" = seconds(DEFAULT_IAT_SKEW))))]
    pub(super) max_iat_skew: Option<String>,
    /// Longest time from `iat` to `exp`: 1m to 366d.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = seconds(DEFAULT_TOKEN_LIFETIME))))]
    pub(super) max_token_lifetime: Option<String>,
    /// What is recorded of decisions.
    #[serde(default)]
    pub(super) audit: Audit,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("if" = {"properties": {"issuer": {"pattern": "^did:key:"}}})))]
#[cfg_attr(feature = "tools", schemars(extend("then" = {"properties": {"jwks": false}})))]
#[cfg_attr(feature = "tools", schemars(extend("else" = {"oneOf": one_source_of_keys()})))]
#[serde(deny_unknown_fields)]
pub(super) struct TrustAnchor {
    /// The `iss` of root tokens, compared exactly.
    #[cfg_attr(
        feature = "tools",
        schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$"), length(max = 1024))
    )]
    pub(super) issuer: String,
    /// One public key.
    // Read by the protocol's own parser, like the set below.
    #[cfg_attr(feature = "tools", schemars(extend("type" = "object", "required" = ["kty"])))]
    #[cfg_attr(feature = "tools", schemars(extend("properties" = key_members(), "anyOf" = key_shapes())))]
    pub(super) jwk: Option<Box<RawValue>>,
    /// Several public keys; `kid` selects one.
    #[cfg_attr(feature = "tools", schemars(extend("type" = "object", "required" = ["keys"])))]
    #[cfg_attr(feature = "tools", schemars(extend("properties" = {"keys": keys()})))]
    pub(super) jwks: Option<Box<RawValue>>,
    /// Instead: the keys that the control plane fetches.
    #[cfg_attr(feature = "tools", schemars(extend("const" = "control_plane")))]
    pub(super) keys: Option<String>,
    /// Accepted `alg` of root tokens.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    #[cfg_attr(feature = "tools", schemars(extend("items" = {"enum": issuer_algorithms()}, "uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = ["Ed25519"])))]
    pub(super) algorithms: Option<Vec<String>>,
    /// Whether `sub` names the principal. Equal in all entries of an issuer.
    #[serde(default)]
    pub(super) asserts_subjects: bool,
    /// What its JWT access tokens grant.
    #[serde(default)]
    #[cfg_attr(feature = "tools", schemars(schema_with = "access_tokens"))]
    pub(super) access_tokens: Option<Box<RawValue>>,
    /// Whether it signs delegations. Default: without `access_tokens`.
    pub(super) delegations: Option<bool>,
    /// Another issuer with the same principals by `sub`: a revocation stops both.
    pub(super) same_principals_as: Option<String>,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ControlPlane {
    /// Envoy cluster of the control plane.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = VISIBLE), length(max = 1024)))]
    pub(super) cluster: String,
    /// The only revocation log to accept; `credence serve --init` prints it.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = "^[0-9a-f]{32}$")))]
    pub(super) log_id: String,
    /// Age at which revocation state is stale (503): 500ms to 1m.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = duration::display(DEFAULT_STALENESS))))]
    pub(super) max_staleness: Option<String>,
    /// Interval of lease renewal: 50ms to 1s. Default: 500ms, or a quarter of `max_staleness` if that is less.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    pub(super) ping_interval: Option<String>,
    /// How long a request waits for a new worker's first revocations: 0ms to 500ms.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = duration::display(MAX_SNAPSHOT_WAIT))))]
    pub(super) wait_for_snapshot: Option<String>,
    /// Revoked subjects that a worker can hold. It rejects a larger log.
    pub(super) max_subjects: Option<Count<1_000, 10_000_000, 5_000_000>>,
}

/// Decision when no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// It is denied.
    #[default]
    Deny,
    /// It goes on, as if the filter were not there; forged `x-delegation-*` headers are removed all the same.
    Allow,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("if" = is_public(), "then" = {"properties": Rule::absent_if_public()})))]
#[cfg_attr(feature = "tools", schemars(extend("else" = {"oneOf": one_call()})))]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Unique name for evidence and metrics.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,128}$")))]
    pub(super) name: String,
    /// Which requests the rule is for.
    #[serde(rename = "match")]
    pub(super) matches: Match,
    /// Tool that the delegation must grant.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = VISIBLE), length(max = 1024)))]
    pub(super) tool: Option<String>,
    /// Instead: an MCP server, whose messages name tool and arguments.
    pub(super) mcp: Option<Mcp>,
    /// The tool's arguments by name. Every capture of the path must be read by one.
    #[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 64, "propertyNames" = argument_name())))]
    pub(super) args: Option<Members<Argument>>,
    /// Query members to accept unread.
    #[cfg_attr(feature = "tools", schemars(length(max = 64), inner(length(min = 1, max = 128))))]
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) ignore_query: Option<Vec<String>>,
    /// Whether to accept a body without reading it.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) ignore_body: Option<bool>,
    /// What waits until the body is read.
    #[cfg_attr(feature = "tools", schemars(extend("default" = "request")))]
    pub(super) hold: Option<Hold>,
    /// JSON pointers of body members to accept unread.
    #[cfg_attr(feature = "tools", schemars(length(max = 64), inner(regex(pattern = POINTER))))]
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) ignore_members: Option<Vec<String>>,
    /// Replaces the top-level `audience`.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_AUDIENCE), extend("uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) audience: Option<Vec<String>>,
    /// Proof of possession: a signature, a client certificate, or none.
    #[cfg_attr(feature = "tools", schemars(extend("default" = "pop")))]
    pub(super) proof: Option<ProofKind>,
    /// Whether to read access tokens in `Authorization`, too.
    pub(super) authorization: Option<Authorization>,
    /// Whether a proof needs a nonce from this Envoy process.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) nonce: Option<bool>,
    /// Asserts that Envoy validates client certificates, so that `cnf.spiffe` counts.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) peer_validated: Option<bool>,
    /// Replaces the top-level `mode`.
    pub(super) mode: Option<Mode>,
    /// What happens while the revocation state is stale. Default: 503.
    pub(super) on_stale: Option<OnStale>,
    /// Whether the service receives the delegation. It never receives the proof.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) forward: Option<bool>,
    /// Whether requests need no delegation.
    #[serde(default)]
    pub(super) public: bool,
    /// Envoy clusters that the route may select. Default: all.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 16)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) clusters: Option<Vec<String>>,
    /// Whether upgrades, such as WebSocket, pass unchecked.
    #[serde(default)]
    pub(super) upgrade: bool,
}

impl Rule {
    /// Fields about delegations, which a public rule may not have: their names, and whether they are set.
    pub(super) fn of_delegations(&self) -> [(&'static str, bool); 15] {
        [
            ("tool", self.tool.is_some()),
            ("mcp", self.mcp.is_some()),
            ("args", self.args.is_some()),
            ("ignore_query", self.ignore_query.is_some()),
            ("ignore_body", self.ignore_body.is_some()),
            ("hold", self.hold.is_some()),
            ("ignore_members", self.ignore_members.is_some()),
            ("audience", self.audience.is_some()),
            ("proof", self.proof.is_some()),
            ("authorization", self.authorization.is_some()),
            ("forward", self.forward.is_some()),
            ("nonce", self.nonce.is_some()),
            ("peer_validated", self.peer_validated.is_some()),
            ("mode", self.mode.is_some()),
            ("on_stale", self.on_stale.is_some()),
        ]
    }

    #[cfg(feature = "tools")]
    fn absent_if_public() -> BTreeMap<&'static str, bool> {
        let fields = Self::default().of_delegations();
        fields.into_iter().map(|(field, _)| (field, false)).collect()
    }
}

/// An MCP server over Streamable HTTP.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Mcp {
    /// Versions of MCP to allow.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    #[cfg_attr(feature = "tools", schemars(extend("items" = {"enum": versions()}, "uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = ["2026-07-28"])))]
    pub(super) versions: Option<Vec<String>>,
    /// The delegations' tools for the server's tools. Default: those of the same name.
    #[serde(default)]
    pub(super) tools: McpTools,
    /// Methods to allow besides `tools/call`; `GET`, `DELETE` and `responses` for sessions of older versions.
    #[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 64)))]
    #[cfg_attr(feature = "tools", schemars(extend("propertyNames" = method_of_mcp())))]
    pub(super) methods: Option<Members<McpMethod>>,
    /// Where a request says what it calls. `headers` needs `server_checks_headers`.
    #[serde(default)]
    #[cfg_attr(feature = "tools", schemars(extend("default" = "body")))]
    pub(super) source: mcp::Source,
    /// Whether the server denies a request whose headers differ from its message.
    #[serde(default)]
    pub(super) server_checks_headers: bool,
    /// Whether lists of tools show only those that the delegation grants.
    #[serde(default)]
    pub(super) hide_ungranted: bool,
    /// Whether a message of up to 64 KiB may have the delegation in `params._meta`.
    #[serde(default)]
    pub(super) delegation_in_meta: bool,
    /// How long a request may take, with the stream that answers it: 1s to 24h.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = duration::display(DEFAULT_MAX_STREAM))))]
    pub(super) max_stream: Option<String>,
}

/// The delegations' tools for the server's tools.
#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub(super) struct McpTools {
    /// This text, followed by the server's name.
    pub(super) prefix: Option<String>,
    /// Only these, by the server's names.
    #[cfg_attr(feature = "tools", schemars(extend("minProperties" = 1, "maxProperties" = 1024)))]
    pub(super) names: Option<Members<String>>,
}

/// What a method needs.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub(super) struct McpMethod {
    /// Any valid delegation.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) open: Option<bool>,
    /// One that grants this tool; the method's parameters are its arguments.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = VISIBLE), length(max = 1024)))]
    pub(super) tool: Option<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    /// `payments.example`, or `*.example` for every host below. Default: all.
    #[cfg_attr(
        feature = "tools",
        schemars(length(min = 1, max = 64), inner(regex(pattern = r"^[^A-Z/\s]+$")))
    )]
    pub(super) hosts: Option<Vec<String>>,
    /// In capitals. Default: all.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 16), extend("items" = method())))]
    pub(super) methods: Option<Vec<String>>,
    /// Literal segments, `{name}` for one segment, `{name:integer}` for a whole number, final `**` for the rest.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = "^/"), length(max = 1024)))]
    pub(super) path: String,
    /// What the request's headers must be, by their names in lower case.
    #[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 16, "propertyNames" = header())))]
    pub(super) headers: Option<Members<HeaderTest>>,
    /// What the members of its query must be, by their names.
    #[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 16)))]
    #[cfg_attr(feature = "tools", schemars(extend("propertyNames" = {"minLength": 1, "maxLength": 128})))]
    pub(super) query: Option<Members<QueryTest>>,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderTest {
    /// The whole value.
    pub(super) exact: Option<String>,
    /// What the value starts with.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    pub(super) prefix: Option<String>,
    /// What the value ends with.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    pub(super) suffix: Option<String>,
    /// It is sent, with any value.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) present: Option<bool>,
    /// It is not sent.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) absent: Option<bool>,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(deny_unknown_fields)]
pub(super) struct QueryTest {
    /// The whole value, decoded.
    pub(super) exact: Option<String>,
    /// It is sent, with any value or none.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) present: Option<bool>,
    /// It is not sent.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) absent: Option<bool>,
}

impl HeaderTest {
    /// The set conditions: exactly one, if the configuration is valid.
    pub(super) fn tests(&self) -> impl Iterator<Item = route::HeaderTest> {
        let tests = [
            self.exact.clone().map(route::HeaderTest::Exact),
            self.prefix.clone().map(route::HeaderTest::Prefix),
            self.suffix.clone().map(route::HeaderTest::Suffix),
            self.present.map(|_| route::HeaderTest::Present),
            self.absent.map(|_| route::HeaderTest::Absent),
        ];
        tests.into_iter().flatten()
    }
}

impl QueryTest {
    /// The set conditions: exactly one, if the configuration is valid.
    pub(super) fn tests(&self) -> impl Iterator<Item = route::QueryTest> {
        let tests = [
            self.exact.clone().map(route::QueryTest::Exact),
            self.present.map(|_| route::QueryTest::Present),
            self.absent.map(|_| route::QueryTest::Absent),
        ];
        tests.into_iter().flatten()
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Paths {
    /// Ambiguous path spellings to accept.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) allow: Option<Vec<PathSpelling>>,
}

/// A spelling of a path that servers read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum PathSpelling {
    /// `%2F`, which belongs to its segment and is decoded with it.
    EncodedSlash,
    /// `;` and what follows it in a segment.
    PathParameter,
    /// `//`, save at the start.
    EmptySegment,
    /// Letters in another case than a rule's path has them: for services that tell such paths apart.
    LetterCase,
    /// A slash at the end that a rule's path lacks, or the lack of one that it has: for services that tell them apart.
    TrailingSlash,
    /// `.json` and the like behind what a rule's path ends in: for services that do not cut it off.
    FormatSuffix,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Hosts {
    /// Ambiguous host spellings to accept.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) allow: Option<Vec<HostSpelling>>,
}

/// A spelling of a host that Envoy's virtual hosts may take for another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum HostSpelling {
    /// A port: for routes with `ignore_port_in_host_matching`.
    Port,
    /// A dot at the end of the name.
    TrailingDot,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(extend("oneOf" = one_source())))]
#[serde(
    deny_unknown_fields,
    expecting = "a mapping with one of path, query, header, body, host and method"
)]
pub(super) struct Argument {
    /// From this capture of the path.
    pub(super) path: Option<String>,
    /// From this query member.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 128)))]
    pub(super) query: Option<String>,
    /// From this header, in lower case.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) header: Option<String>,
    /// From the JSON body, at this pointer (RFC 6901).
    #[cfg_attr(feature = "tools", schemars(regex(pattern = POINTER)))]
    pub(super) body: Option<String>,
    /// The host, in lower case, without port.
    #[serde(default)]
    pub(super) host: bool,
    /// The method.
    #[serde(default)]
    pub(super) method: bool,
    /// Type of the value.
    #[serde(default, rename = "type")]
    pub(super) kind: ArgumentKind,
    /// Whether it may be missing. Not for `path`.
    #[serde(default)]
    pub(super) optional: bool,
}

/// Where in a request an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
#[cfg_attr(feature = "tools", serde(rename_all = "lowercase", tag = "place", content = "name"))]
pub enum Place {
    /// The capture of this name in the path template.
    Path(String),
    /// The query member of this name.
    Query(String),
    /// The header of this name.
    Header(String),
    /// The part of the JSON body at this pointer (RFC 6901).
    Body(String),
    /// The host itself.
    Host,
    /// The method itself.
    Method,
}

impl Argument {
    /// The set sources: exactly one, if the configuration is valid.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let places = [
            self.path.clone().map(Place::Path),
            self.query.clone().map(Place::Query),
            self.header.clone().map(Place::Header),
            self.body.clone().map(Place::Body),
            self.host.then_some(Place::Host),
            self.method.then_some(Place::Method),
        ];
        places.into_iter().flatten()
    }
}

/// What waits until a body is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// The whole request. Envoy must allow it: `allow_on_headers_stop_iteration`.
    #[default]
    Request,
    /// Only the body: the service receives the headers before the decision.
    Body,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A denied request is answered.
    #[default]
    Enforce,
    /// Every request goes on as it came, but for forged `x-delegation-*` headers; decisions are counted and recorded.
    Shadow,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct OnStale {
    /// Accept cached delegations until the state is this old: more than `max_staleness`, at most 10m.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    pub(super) allow_cached_for: String,
}

/// How an agent proves that it is the holder of the delegation it presents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// A signed proof with each request.
    #[default]
    Pop,
    /// A DPoP proof (RFC 9449) with each request: for access tokens.
    #[serde(skip_deserializing)]
    Dpop,
    /// The client certificate that the proxy verified.
    Mtls,
    /// Nothing: any client that has the delegation can use it. Only for hops that are authenticated otherwise.
    None,
}

/// How a rule reads access tokens.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Authorization {
    /// What binds an access token to its client: a DPoP proof, a client certificate, or nothing.
    pub(super) proof: TokenProof,
    /// Where clients call this service, such as `https://api.example`: for `htu`. Default: as Envoy routes.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 16), inner(regex(pattern = ORIGIN))))]
    pub(super) origins: Option<Vec<String>>,
}

/// What binds an access token to its client.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum TokenProof {
    /// A DPoP proof with each request (RFC 9449).
    Dpop,
    /// The client's certificate (RFC 8705).
    Mtls,
    /// Nothing: any client that has the token may use it (RFC 6750).
    None,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Headers {
    /// Header of the chain: tokens joined by `~`, root first.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("default" = "delegation")))]
    #[cfg_attr(feature = "tools", schemars(extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) delegation: Option<String>,
    /// Header of the proof.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("default" = "delegation-proof")))]
    #[cfg_attr(feature = "tools", schemars(extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) proof: Option<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct Identity {
    /// Identity headers for the service: one for each part, or one for all.
    pub(super) headers: IdentityHeaders,
    /// Identity parts to put into Envoy's filter state.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) filter_state: Vec<Part>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    // Every byte of a delegation and of a proof is read before it is known who sends it. With a signature to check that
    // stays below a millisecond (`make bench BENCH=cost`).
    /// Delegation header, in bytes. Beyond: 401.
    pub(super) delegation_bytes: Option<Count<1_024, 16_384, 16_384>>,
    /// Proof header, in bytes. Beyond: 401.
    pub(super) proof_bytes: Option<Count<512, 4_096, 4_096>>,
    /// Times that a delegation was handed on. Beyond: 401.
    pub(super) delegation_depth: Option<Count<0, 8, 8>>,
    /// Body that a rule reads, in bytes. Beyond: 413.
    pub(super) body_bytes: Option<Count<0, { 1 << 20 }, 65_536>>,
    /// Requests held for their bodies, per worker. Beyond: 503.
    pub(super) held_requests: Option<Count<16, 65_536, 1_024>>,
    /// Memory of held requests per worker, in bytes. Beyond: 503.
    pub(super) held_bytes: Option<Count<{ 4 << 20 }, { 1 << 30 }, { 64 << 20 }>>,
    /// Verified chains cached per worker.
    pub(super) cache_entries: Option<Count<0, 1_000_000, 4_096>>,
    /// Memory per worker, in bytes.
    pub(super) cache_bytes: Option<Count<0, { 256 << 20 }, { 32 << 20 }>>,
    /// Invalid chains remembered per worker.
    pub(super) refused_entries: Option<Count<0, 1_000_000, 4_096>>,
    /// Repeated requests cached per worker.
    pub(super) repeat_entries: Option<Count<0, 65_536, 1_024>>,
    /// Keys with precomputed tables per worker.
    pub(super) hot_keys: Option<Count<0, 1_024, 64>>,
    /// Verified chains that all workers share.
    pub(super) shared_cache_entries: Option<Count<0, 262_144, 4_096>>,
}

/// What is recorded, and what happens if it cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Whether to record decisions.
    pub record: RecordedDecisions,
    /// Unacknowledged entries per worker.
    pub ring_entries: Count<64, 1_048_576, 16_384>,
    /// Memory per worker, in bytes.
    pub ring_bytes: Count<65_536, { 256 << 20 }, { 16 << 20 }>,
    /// When the ring is full: record a gap, or answer 503.
    pub on_overflow: Overflow,
    /// How arguments are recorded: salted hash, in full, or not.
    pub arguments: RecordedArguments,
    /// Whether events include the response status.
    pub response_status: bool,
    /// Denials of one holder recorded as events per second and worker; four times as many of a principal. The rest is
    /// counted.
    pub denials_per_second: Count<1, 1_000_000, 100>,
}

impl Audit {
    /// Whether events include a request's arguments in any form.
    pub fn keeps_arguments(&self) -> bool {
        self.record == RecordedDecisions::All && self.arguments != RecordedArguments::None
    }
}

/// Which decisions are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum RecordedDecisions {
    /// All, as events or counts.
    #[default]
    All,
    /// None: there is no evidence, only metrics.
    None,
}

/// When the ring is full: record a gap, or answer 503.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// Decisions go on; those not recorded are counted, and the gap is itself recorded.
    #[default]
    Shed,
    /// Requests are denied until there is room.
    Deny,
}

/// How arguments are recorded: salted hash, in full, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum RecordedArguments {
    /// A salted SHA-256 of their canonical form.
    #[default]
    Hash,
    /// Their canonical form itself, up to 4096 bytes, and of longer ones the hash.
    Full,
    /// Nothing.
    None,
}

/// A number of things or bytes, with its minimum, maximum and default. The proxy keeps its configuration's numbers as
/// doubles, so `5.0` is 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const LEAST: usize, const MOST: usize, const DEFAULT: usize>(pub(crate) u64);

impl<const LEAST: usize, const MOST: usize, const DEFAULT: usize> Count<LEAST, MOST, DEFAULT> {
    /// The number, if it is accepted.
    pub(super) fn checked(self) -> Option<usize> {
        usize::try_from(self.0)
            .ok()
            .filter(|found| (LEAST..=MOST).contains(found))
    }

    /// The number, which is within its range once the configuration has loaded.
    pub fn get(self) -> usize {
        self.checked().unwrap_or(DEFAULT)
    }
}

impl<const LEAST: usize, const MOST: usize, const DEFAULT: usize> Default for Count<LEAST, MOST, DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT as u64)
    }
}

impl<'de, const LEAST: usize, const MOST: usize, const DEFAULT: usize> Deserialize<'de>
    for Count<LEAST, MOST, DEFAULT>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl Visitor<'_> for CountVisitor {
            type Value = u64;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number, not negative")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
                Ok(value)
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
                // Up to 2^53, a double without fraction is exactly the written number.
                if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
                    Ok(value as u64)
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Float(value), &self))
                }
            }
        }
        deserializer.deserialize_any(CountVisitor).map(Self)
    }
}
