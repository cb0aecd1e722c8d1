//! A compiled configuration.

use std::time::Duration;

use credence_delegation::Remark;
use credence_delegation::{Algorithms, TrustAnchors};

use super::file::{Audit, Hold, Mode, ProofKind, Unmatched};
use crate::arguments::ArgumentMapping;
use crate::identity_headers::{IdentityHeaders, Part};
use crate::mcp::{Endpoint, Source};
use crate::oauth::{Challenge, Resource};
use crate::request::target::{Tolerated, ToleratedHosts};
use crate::request::{HeaderNames, RemovedTrailers};
use crate::route::Routes;
use crate::usage_sketch::Amount;

/// A valid configuration, in the form that decisions use.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The issuers of root tokens, and their keys; at least one.
    pub trust_anchors: TrustAnchors,
    /// The allowed algorithms of derived tokens and proofs.
    pub holder_algorithms: Algorithms,
    /// The source of revocations and destination of evidence.
    pub control_plane: ControlPlane,
    /// Decision when no rule matches.
    pub unmatched: Unmatched,
    /// Whether decisions about requests that match no rule are enforced.
    pub mode: Mode,
    /// Ambiguous paths.
    pub paths: Tolerated,
    /// Host spellings to accept although Envoy may have routed them differently.
    pub hosts: ToleratedHosts,
    /// The resources whose metadata the filter serves.
    pub resources: Vec<Resource>,
    /// The rules, in order; at least one.
    pub routes: Routes<Rule>,
    /// Whether the host matters for a rule, by its conditions or as an argument, so that no header may name another
    /// one.
    pub host_counts: bool,
    /// The trailers to remove from a request.
    pub removed_trailers: RemovedTrailers,
    /// The headers an agent sends.
    pub headers: HeaderNames,
    /// How the service learns the caller's identity.
    pub identity_headers: IdentityHeaders,
    /// How long a request may wait for the VM's first snapshot of the revocations.
    pub wait_for_snapshot: Duration,
    /// The parts of the identity for Envoy's filter state, besides the headers.
    pub filter_state: Vec<Part>,
    /// Sizes, depths and times.
    pub limits: Limits,
    /// What is recorded, and what happens if it cannot be.
    pub audit: Audit,
    /// Notes on valid settings that may be unintended.
    pub notes: Vec<Remark>,
}

/// The source of revocations and destination of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// The Envoy cluster.
    pub cluster: String,
    /// The only revocation log to accept: 32 lower-case hexadecimal digits.
    pub log_id: String,
    /// The longest age of a lease for a decision.
    pub max_staleness: Duration,
    /// The interval of lease renewal; shorter than `max_staleness`.
    pub ping_interval: Duration,
    /// The most revoked subjects to remember.
    pub max_subjects: usize,
}

/// The requirements of a rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Unique among the rules. Names the rule in audit and metrics.
    pub name: String,
    /// The path template, as written.
    pub path_template: String,
    /// Whether it has conditions on the host, or uses the host as an argument.
    pub host_counts: bool,
    /// The clusters to which Envoy may send its requests; any cluster if empty.
    pub clusters: Vec<String>,
    /// Whether a request may leave HTTP, by an upgrade such as a WebSocket.
    pub allows_upgrade: bool,
    /// Whether decisions under this rule are enforced.
    pub mode: Mode,
    /// The requirements of a request; `None` for a public rule, which allows every request and reads nothing.
    pub requirement: Option<Requirement>,
}

/// What a delegation must grant, and how to present it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// What its requests call.
    pub calls: Calls,
    /// The sources of the tool's arguments. With MCP there are none.
    pub arguments: ArgumentMapping,
    /// The accepted audiences: the rule's own, or the plugin's; at least one.
    pub audience: Vec<String>,
    /// Proof of possession: a signature, a client certificate, or none.
    pub proof: ProofKind,
    /// How access tokens in `Authorization` are read, if they are.
    pub authorization: Option<Authorization>,
    /// Whether a proof must carry a nonce from this process.
    pub nonce: bool,
    /// Whether Envoy validates client certificates here, so that a SPIFFE ID in them counts.
    pub peer_validated: bool,
    /// Up to which age of the lease an already verified chain is accepted. `None`: only while the lease is fresh.
    pub stale_limit: Option<Duration>,
    /// What waits until a body is read.
    pub holds: Hold,
    /// Whether a request may have a body, although no delegation constrains it.
    pub ignore_body: bool,
    /// Whether the service receives the delegation (never the proof).
    pub forward: bool,
}

/// What the requests of a rule call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// This tool.
    Tool(String),
    /// What their MCP messages say.
    Mcp(Endpoint),
}

/// How a rule reads access tokens in `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// DPoP, mTLS or none.
    pub proof: ProofKind,
    /// Where clients call this service; where Envoy routes to if empty.
    pub origins: Vec<Origin>,
    /// What its challenges say.
    pub challenge: Challenge,
}

/// Scheme, host and port of a service, as its clients write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `https` or `http`.
    pub scheme: String,
    /// Host and port.
    pub authority: String,
}

/// What determines the rule of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matching<'p> {
    pub(crate) unmatched: Unmatched,
    pub(crate) paths: Tolerated,
    pub(crate) hosts: ToleratedHosts,
    pub(crate) routes: &'p Routes<Rule>,
}

impl Policy {
    /// What determines the rule of a request.
    pub(crate) fn matching(&self) -> Matching<'_> {
        Matching {
            unmatched: self.unmatched,
            paths: self.paths,
            hosts: self.hosts,
            routes: &self.routes,
        }
    }

    /// A rule for which the filter must see answers, if there is one.
    pub fn needs_answers(&self) -> Option<&Rule> {
        let needs = |requirement: &Requirement| {
            requirement.holds == Hold::Body || requirement.mcp().is_some_and(Endpoint::rewrites_answers)
        };
        self.routes
            .iter()
            .find(|rule| rule.requirement.as_ref().is_some_and(needs))
    }
}

impl Requirement {
    /// Whether arguments come from the body.
    pub fn reads_body(&self) -> bool {
        let is_in_body = |endpoint: &Endpoint| endpoint.source == Source::Body;
        self.mcp().is_some_and(is_in_body) || !self.arguments.body.is_empty()
    }

    /// Whether the whole request waits until its body is read.
    pub fn holds_for_its_body(&self) -> bool {
        self.reads_body() && self.holds == Hold::Request
    }

    /// The MCP server, if it is one.
    pub fn mcp(&self) -> Option<&Endpoint> {
        match &self.calls {
            Calls::Tool(_) => None,
            Calls::Mcp(endpoint) => Some(endpoint),
        }
    }

    /// The tool of all its requests, if there is one.
    pub fn tool(&self) -> Option<&str> {
        match &self.calls {
            Calls::Tool(tool) => Some(tool),
            Calls::Mcp(_) => None,
        }
    }
}

/// Sizes, depths and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the proof header.
    pub proof_bytes: usize,
    /// Bytes of a body that a rule reads.
    pub body_bytes: usize,
    /// The limit of requests that are held for their bodies.
    pub held: Amount,
    /// Seconds that a holder's clock may be ahead: later proofs are refused. For the same time after the start of the
    /// process every proof is refused, because it may have been used before. At most the proof window.
    pub proof_clock_skew: u64,
    /// The limit of cached verified chains; 0 turns the cache off.
    pub cache: Amount,
    /// Cached refused chains; 0 turns the cache off.
    pub refused_entries: usize,
    /// Allowed requests in the decision cache; 0 turns the cache off.
    pub repeat_entries: usize,
    /// Keys with tables in each VM, which make their signatures cheaper.
    pub hot_keys: usize,
    /// Verified chains that the workers of a process share; 0 turns sharing off.
    pub shared_cache_entries: usize,
    /// The limits of verification. `chain_bytes` is the limit of the delegation header.
    pub verification: credence_delegation::Limits,
}
