//! A configuration in the form decisions are made with.

use std::time::Duration;

use credence_delegation::Remark;
use credence_delegation::{Algorithms, TrustAnchors};

use super::file::{Audit, Mode, ProofKind, Unmatched};
use crate::arguments::ArgumentMapping;
use crate::identity_headers::{IdentityHeaders, Part};
use crate::request::target::{Tolerated, ToleratedHosts};
use crate::request::{HeaderNames, RemovedTrailers};
use crate::route::Routes;
use crate::usage_sketch::Amount;

/// A configuration without errors, in the form decisions are made with.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Who may sign root tokens; at least one.
    pub trust_anchors: TrustAnchors,
    /// What derived tokens and proofs may be signed with.
    pub holder_algorithms: Algorithms,
    /// Where revocations come from and evidence goes to.
    pub control_plane: ControlPlane,
    /// Decision when no rule matches.
    pub unmatched: Unmatched,
    /// Whether decisions about requests that no rule matches are carried out.
    pub mode: Mode,
    /// Ambiguous paths.
    pub paths: Tolerated,
    /// What is let through of hosts that Envoy may have routed as others.
    pub hosts: ToleratedHosts,
    /// The rules, in order; at least one.
    pub routes: Routes<Rule>,
    /// Whether a rule tells hosts apart or takes the host as an argument, so that no header may name another one.
    pub host_counts: bool,
    /// What of a request's trailers does not reach the service.
    pub removed_trailers: RemovedTrailers,
    /// The headers an agent sends.
    pub headers: HeaderNames,
    /// How the service behind us is told who is asking.
    pub identity_headers: IdentityHeaders,
    /// How long a request may wait for the VM's first snapshot of the revocations.
    pub wait_for_snapshot: Duration,
    /// What of the identity goes into Envoy's filter state, besides the headers.
    pub filter_state: Vec<Part>,
    /// Sizes, depths and times.
    pub limits: Limits,
    /// What is recorded, and what happens if it cannot be.
    pub audit: Audit,
    /// Notes on what is valid, but may not be what was meant.
    pub notes: Vec<Remark>,
}

/// Where revocations come from and evidence goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// The Envoy cluster.
    pub cluster: String,
    /// The revocation log; no other is believed. 32 lower-case hexadecimal digits.
    pub log_id: String,
    /// How old a lease may be for a decision to be made.
    pub max_staleness: Duration,
    /// How often a lease is renewed; shorter than `max_staleness`.
    pub ping_interval: Duration,
    /// The most subjects with revocations that are remembered.
    pub max_subjects: usize,
}

/// What a rule asks of the requests that match it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Unique among the rules; names the rule in audit and metrics.
    pub name: String,
    /// The path template, as it was written.
    pub path_template: String,
    /// Whether it is for some hosts only, or takes the host as an argument.
    pub host_counts: bool,
    /// The clusters that Envoy must send its requests to, one of them; any cluster if empty.
    pub clusters: Vec<String>,
    /// Whether a request may leave HTTP here (an upgrade such as a WebSocket).
    pub allows_upgrade: bool,
    /// Whether decisions under this rule are carried out.
    pub mode: Mode,
    /// What a request must show; `None` for a public rule, which lets every request pass and reads nothing.
    pub requirement: Option<Requirement>,
}

/// What a delegation must grant, and how it is to be presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Tool that the delegation must grant.
    pub tool: String,
    /// Where the tool's arguments come from.
    pub arguments: ArgumentMapping,
    /// Our names as an audience: the rule's own, else the plugin's; at least one.
    pub audience: Vec<String>,
    /// Proof of possession: a signature, a client certificate, or none.
    pub proof: ProofKind,
    /// Whether a proof must carry a nonce of this process.
    pub nonce: bool,
    /// Whether Envoy validates client certificates here, so that a SPIFFE ID in one counts.
    pub peer_validated: bool,
    /// Up to what age of the lease a chain that was verified before still counts; `None` as long as it is fresh.
    pub stale_limit: Option<Duration>,
    /// Whether a request may have a body, which no delegation constrains.
    pub ignore_body: bool,
    /// Whether the service behind us gets to see the delegation (never the proof).
    pub forward: bool,
}

impl Requirement {
    /// Whether arguments come from the body.
    pub fn reads_body(&self) -> bool {
        !self.arguments.body.is_empty()
    }
}

/// Sizes, depths and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the proof header.
    pub proof_bytes: usize,
    /// Bytes of a body that a rule reads.
    pub body_bytes: usize,
    /// Requests that are held for their bodies.
    pub held: Amount,
    /// Seconds that a holder's clock may be ahead of ours: later proofs are refused, and for so long after the start of
    /// the process every proof is, because it may have been used before. At most the proof window.
    pub proof_clock_skew: u64,
    /// Verified chains that the cache keeps; 0 turns it off.
    pub cache: Amount,
    /// Refused chains that are remembered; 0 turns that off.
    pub refused_entries: usize,
    /// Allowed requests that are remembered, to decide those like them with less work; 0 turns that off.
    pub repeat_entries: usize,
    /// Keys that each VM keeps tables for, so that their signatures cost less.
    pub hot_keys: usize,
    /// Verified chains that the workers of a process share; 0 turns that off.
    pub shared_cache_entries: usize,
    /// What verification is bounded by: `chain_bytes` is the limit of the delegation header.
    pub verification: credence_delegation::Limits,
}
