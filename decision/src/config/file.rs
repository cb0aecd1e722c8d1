//! The configuration as it is written: names and JSON types, nothing else. `super::compile` gives it meaning.
//!
//! Unknown and repeated fields are refused everywhere. So is `null`, by `super::read`: a template that was meant to fill in
//! `hosts:` and did not must not mean "every host".

#[cfg(feature = "tools")]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

#[cfg(feature = "tools")]
use super::keywords::*;
use crate::arguments::ArgumentKind;
use crate::identity_headers::{IdentityHeaders, Part};
use crate::route;

/// What Envoy hands to the plugin. docs/reference/configuration.md explains every field.
#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "tools", schemars(title = "Configuration of Credence's filter"))]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The names under which delegations and proofs address this service, such as `https://payments.example`.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_AUDIENCE), extend("uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) audience: Vec<String>,
    /// Who may sign root tokens. An issuer may have several entries.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 256)))]
    pub(super) trust_anchors: Vec<TrustAnchor>,
    /// What derived tokens and proofs may name in `alg`; without it, Ed25519 alone.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    #[cfg_attr(feature = "tools", schemars(extend("items" = {"enum": algorithms()}, "uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = ["Ed25519"])))]
    pub(super) holder_algorithms: Option<Vec<String>>,
    /// Where revocations come from and evidence goes to.
    pub(super) control_plane: ControlPlane,
    /// What happens to a request that no rule matches.
    #[serde(default)]
    pub(super) default: Unmatched,
    /// Whether decisions are carried out, or only made, counted and recorded. A rule may say otherwise for itself.
    #[serde(default)]
    pub(super) mode: Mode,
    /// What is let through of paths that can be read in more than one way.
    #[serde(default)]
    pub(super) paths: Paths,
    /// What is let through of hosts that Envoy's virtual hosts may read as other hosts.
    #[serde(default)]
    pub(super) hosts: Hosts,
    /// Tried in order: the first that matches decides.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_RULES)))]
    pub(super) rules: Vec<Rule>,
    /// The headers an agent sends; two distinct names.
    #[serde(default)]
    pub(super) headers: Headers,
    /// What Envoy itself is told of who is asking.
    #[serde(default)]
    pub(super) identity: Identity,
    /// Sizes and counts.
    #[serde(default)]
    pub(super) limits: Limits,
    /// How far a proof's `iat` may be from the proxy's clock, either way: 1s to 1m, whole seconds.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = seconds(DEFAULT_PROOF_WINDOW))))]
    pub(super) pop_window: Option<String>,
    /// How far ahead of the proxy's clock an agent's may be: 0s to `pop_window`, whole seconds. For this long after
    /// Envoy has started, proofs are refused. Without it, 5s, or `pop_window` if that is less.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    pub(super) pop_clock_skew: Option<String>,
    /// How far a token's `iat` may be in the future: 0s to 5m, whole seconds.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION), extend("default" = seconds(DEFAULT_IAT_SKEW))))]
    pub(super) max_iat_skew: Option<String>,
    /// The longest accepted time between `iat` and `exp`: 1m to 366d, whole seconds.
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
#[cfg_attr(feature = "tools", schemars(extend("else" = {"oneOf": [{"required": ["jwk"]}, {"required": ["jwks"]}]})))]
#[serde(deny_unknown_fields)]
pub(super) struct TrustAnchor {
    /// A URI, compared exactly with the root token's `iss`.
    #[cfg_attr(
        feature = "tools",
        schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$"), length(max = 1024))
    )]
    pub(super) issuer: String,
    /// One public key of the issuer.
    // Read by the protocol's own parser, like the set below.
    #[cfg_attr(feature = "tools", schemars(extend("type" = "object", "required" = ["kty", "crv", "x"])))]
    #[cfg_attr(feature = "tools", schemars(extend("properties" = key_members())))]
    pub(super) jwk: Option<Box<RawValue>>,
    /// Several public keys of the issuer, among which a root token's `kid` selects.
    #[cfg_attr(feature = "tools", schemars(extend("type" = "object", "required" = ["keys"])))]
    #[cfg_attr(feature = "tools", schemars(extend("properties" = {"keys": keys()})))]
    pub(super) jwks: Option<Box<RawValue>>,
    /// What its root tokens may name in `alg`; without it, Ed25519 alone. Each of its keys must fit one.
    #[cfg_attr(feature = "tools", schemars(length(min = 1)))]
    #[cfg_attr(feature = "tools", schemars(extend("items" = {"enum": algorithms()}, "uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = ["Ed25519"])))]
    pub(super) algorithms: Option<Vec<String>>,
    /// Whether the issuer speaks for several people, so that `sub` names the principal. The same in every entry of an
    /// issuer.
    #[serde(default)]
    pub(super) asserts_subjects: bool,
}

#[derive(Debug, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ControlPlane {
    /// The Envoy cluster of the control plane.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = VISIBLE), length(max = 1024)))]
    pub(super) cluster: String,
    /// The revocation log; no other is ever believed. `credence serve --init` prints it.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = "^[0-9a-f]{32}$")))]
    pub(super) log_id: String,
    /// Without a lease younger than this, requests that need a delegation get 503: 500ms to 1m.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = duration::display(DEFAULT_STALENESS))))]
    pub(super) max_staleness: Option<String>,
    /// How often the lease is renewed: 50ms to 1s, and shorter than `max_staleness`. Without it, 500ms, or a quarter of
    /// `max_staleness` if that is less.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    pub(super) ping_interval: Option<String>,
    /// How long a request waits while a new worker has no revocations yet, before it is answered 503: 0ms to 500ms.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = DURATION)))]
    #[cfg_attr(feature = "tools", schemars(extend("default" = duration::display(MAX_SNAPSHOT_WAIT))))]
    pub(super) wait_for_snapshot: Option<String>,
    /// The most subjects with revocations that each worker remembers; of a log with more, nothing is believed.
    pub(super) max_subjects: Option<Count<1_000, 10_000_000, 5_000_000>>,
}

/// What happens to a request that no rule matches.
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
#[cfg_attr(feature = "tools", schemars(extend("else" = {"required": ["tool"]})))]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Names the rule in audit and metrics; unique.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,128}$")))]
    pub(super) name: String,
    /// Which requests the rule is for.
    #[serde(rename = "match")]
    pub(super) matches: Match,
    /// The tool that the delegation must grant.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = VISIBLE), length(max = 1024)))]
    pub(super) tool: Option<String>,
    /// The tool's arguments by name. Every capture of the path must be read by one.
    #[cfg_attr(feature = "tools", schemars(extend("maxProperties" = 64, "propertyNames" = argument_name())))]
    pub(super) args: Option<Members<Argument>>,
    /// Query members that are let through unread. Any other that no argument reads denies the request.
    #[cfg_attr(feature = "tools", schemars(length(max = 64), inner(length(min = 1, max = 128))))]
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) ignore_query: Option<Vec<String>>,
    /// Whether the request may have a body, which the filter then does not read and no delegation constrains.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) ignore_body: Option<bool>,
    /// Members of the JSON body, as JSON pointers, that are let through unread. Any other that no argument reads denies
    /// the request.
    #[cfg_attr(feature = "tools", schemars(length(max = 64), inner(regex(pattern = POINTER))))]
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) ignore_members: Option<Vec<String>>,
    /// Replaces the plugin's `audience` for this rule.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = MAX_AUDIENCE), extend("uniqueItems" = true)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) audience: Option<Vec<String>>,
    /// How the agent proves that it is the holder.
    #[cfg_attr(feature = "tools", schemars(extend("default" = "pop")))]
    pub(super) proof: Option<ProofKind>,
    /// Whether a proof must carry a nonce that this Envoy process has handed out.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) nonce: Option<bool>,
    /// Whether Envoy validates client certificates wherever this rule is reached: then a delegation may name the agent's
    /// SPIFFE ID (`cnf.spiffe`) instead of one certificate. Only with `proof: mtls`.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) peer_validated: Option<bool>,
    /// Replaces the plugin's `mode` for this rule.
    pub(super) mode: Option<Mode>,
    /// What happens while the revocations that are known are too old. Without it, requests are answered 503.
    pub(super) on_stale: Option<OnStale>,
    /// Whether the service gets to see the delegation header. The proof is always removed.
    #[cfg_attr(feature = "tools", schemars(extend("default" = false)))]
    pub(super) forward: Option<bool>,
    /// Nothing is asked of the request, and the rule has no `tool` nor anything that goes with one.
    #[serde(default)]
    pub(super) public: bool,
    /// The Envoy clusters that this rule's requests may go to; any other denies the request. Without it, every cluster.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 16)))]
    #[cfg_attr(feature = "tools", schemars(inner(regex(pattern = VISIBLE), length(max = 1024))))]
    pub(super) clusters: Option<Vec<String>>,
    /// Whether an upgrade, such as a WebSocket, is let through here. No delegation constrains what then flows.
    #[serde(default)]
    pub(super) upgrade: bool,
}

impl Rule {
    /// What reads a delegation, so that a public rule may not have it: names, and whether they are written.
    pub(super) fn of_delegations(&self) -> [(&'static str, bool); 12] {
        [
            ("tool", self.tool.is_some()),
            ("args", self.args.is_some()),
            ("ignore_query", self.ignore_query.is_some()),
            ("ignore_body", self.ignore_body.is_some()),
            ("ignore_members", self.ignore_members.is_some()),
            ("audience", self.audience.is_some()),
            ("proof", self.proof.is_some()),
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

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Match {
    /// `payments.example`, or `*.example` for every host under `example`. Without it, every host.
    #[cfg_attr(
        feature = "tools",
        schemars(length(min = 1, max = 64), inner(regex(pattern = r"^[^A-Z/\s]+$")))
    )]
    pub(super) hosts: Option<Vec<String>>,
    /// In capital letters. Without it, every method.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 16), extend("items" = method())))]
    pub(super) methods: Option<Vec<String>>,
    /// Literal segments, `{name}` for exactly one non-empty segment, `{name:integer}` for one that is a whole number,
    /// `**` at the end for any rest.
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
    /// It is sent, with whatever value.
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
    /// It is sent, with whatever value, or none.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) present: Option<bool>,
    /// It is not sent.
    #[cfg_attr(feature = "tools", schemars(extend("const" = true)))]
    pub(super) absent: Option<bool>,
}

impl HeaderTest {
    /// What is asked: one of these, if the configuration loads.
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
    /// What is asked: one of these, if the configuration loads.
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
    /// Spellings that are otherwise refused. Dot segments always are.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) allow: Option<Vec<PathSpelling>>,
}

/// A way of writing paths that not everybody reads alike.
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
    /// Spellings that are otherwise refused where a rule has `hosts` or takes the host as an argument.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) allow: Option<Vec<HostSpelling>>,
}

/// A way of writing a host that Envoy's virtual hosts may not read as that host.
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
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    /// Takes the argument from this capture of the path.
    pub(super) path: Option<String>,
    /// Takes it from the query member of this name.
    #[cfg_attr(feature = "tools", schemars(length(min = 1, max = 128)))]
    pub(super) query: Option<String>,
    /// Takes it from the header of this name, in lower case.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) header: Option<String>,
    /// Takes it from the JSON body, at this JSON pointer (RFC 6901).
    #[cfg_attr(feature = "tools", schemars(regex(pattern = POINTER)))]
    pub(super) body: Option<String>,
    /// Takes the host: lower case, without port.
    #[serde(default)]
    pub(super) host: bool,
    /// Takes the method.
    #[serde(default)]
    pub(super) method: bool,
    /// How the text is read.
    #[serde(default, rename = "type")]
    pub(super) kind: ArgumentKind,
    /// Whether the request may leave it out. Not for `path`.
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
    /// Where it is taken from: one of these, if the configuration loads.
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
    /// Up to what age of the revocations a delegation that this worker has verified before still counts: more than
    /// `control_plane.max_staleness`, at most 10m.
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
    /// The client certificate that the proxy verified.
    Mtls,
    /// Nothing: whoever has the delegation may use it. For hops that are authenticated otherwise.
    None,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Headers {
    /// Carries the chain: tokens joined by `~`, root first.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("default" = "delegation")))]
    #[cfg_attr(feature = "tools", schemars(extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) delegation: Option<String>,
    /// Carries the proof.
    #[cfg_attr(feature = "tools", schemars(regex(pattern = HEADER_NAME), extend("default" = "delegation-proof")))]
    #[cfg_attr(feature = "tools", schemars(extend("not" = {"pattern": OUR_HEADER})))]
    pub(super) proof: Option<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(super) struct Identity {
    /// How the service behind the filter is told.
    pub(super) headers: IdentityHeaders,
    /// What of an allowed request's identity is put into the filter state, for access logs, RBAC and rate limits.
    #[cfg_attr(feature = "tools", schemars(extend("uniqueItems" = true)))]
    pub(super) filter_state: Vec<Part>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    // Every byte of a delegation and of a proof is read before it is known who sends it. With a signature to check that
    // stays below a millisecond (`make bench BENCH=cost`).
    /// Of the delegation header.
    pub(super) delegation_bytes: Option<Count<1_024, 16_384, 16_384>>,
    /// Of the proof header.
    pub(super) proof_bytes: Option<Count<512, 4_096, 4_096>>,
    /// How often a delegation may have been passed on. A chain has one token more.
    pub(super) delegation_depth: Option<Count<0, 8, 8>>,
    /// Of a body that a rule reads; a larger one gets 413.
    pub(super) body_bytes: Option<Count<0, { 1 << 20 }, 65_536>>,
    /// Requests that each worker holds for their bodies.
    pub(super) held_requests: Option<Count<16, 65_536, 1_024>>,
    /// What they may take in memory: their headers, and what has arrived of their bodies.
    pub(super) held_bytes: Option<Count<{ 4 << 20 }, { 1 << 30 }, { 64 << 20 }>>,
    /// Verified chains that each worker remembers; 0 turns the cache off.
    pub(super) cache_entries: Option<Count<0, 1_000_000, 4_096>>,
    /// What they may take in memory.
    pub(super) cache_bytes: Option<Count<0, { 256 << 20 }, { 32 << 20 }>>,
    /// Chains refused for good, such as for a wrong signature, that each worker remembers, so that they are not verified
    /// again; 0 turns that off.
    pub(super) refused_entries: Option<Count<0, 1_000_000, 4_096>>,
    /// Allowed requests that each worker remembers, so that one like it is decided with less work; 0 turns that off.
    pub(super) repeat_entries: Option<Count<0, 65_536, 1_024>>,
    /// Keys whose signatures each worker verifies so often that it keeps tables for them; 0 turns that off.
    pub(super) hot_keys: Option<Count<0, 1_024, 64>>,
    /// Verified chains that all workers of the Envoy process share in Envoy's shared data, so that they outlive a worker's
    /// VM; 0 turns that off.
    pub(super) shared_cache_entries: Option<Count<0, 262_144, 4_096>>,
}

/// What is recorded, and what happens if it cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Whether decisions are recorded.
    pub record: RecordedDecisions,
    /// Entries of each worker that wait for the control plane's acknowledgement.
    pub ring_entries: Count<64, 1_048_576, 16_384>,
    /// What they may take in memory.
    pub ring_bytes: Count<65_536, { 256 << 20 }, { 16 << 20 }>,
    /// What happens when decisions are made faster than they can be recorded.
    pub on_overflow: Overflow,
    /// What is recorded of a request's arguments.
    pub arguments: RecordedArguments,
    /// Whether an event says what the client was answered: it is then recorded when that is known.
    pub response_status: bool,
    /// Denials of one holder that are recorded one by one in a second, and of one principal four times as many; further ones
    /// are counted.
    pub denials_per_second: Count<1, 1_000_000, 100>,
}

impl Audit {
    /// Whether anything is recorded of a request's arguments.
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

/// What happens when decisions are made faster than they can be recorded.
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

/// What is recorded of a request's arguments.
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

/// A number of things or bytes: the least and the most that are accepted, and what is meant without one. The proxy keeps its
/// configuration's numbers as doubles, so `5.0` is 5.
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
                // Up to 2^53 a double without fraction is exactly the number that was written.
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

/// The members of an object in the order they were written; a repeated name is refused.
#[derive(Debug)]
pub(super) struct Members<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersVisitor<T> {
            type Value = Members<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members: Vec<(String, T)> = Vec::new();
                let mut taken = BTreeSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !taken.insert(name.clone()) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}
