//! Audit records, as `credence audit query --json` prints them.

use serde::Deserialize;

/// One record of the ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    /// Its place in the ledger.
    pub index: u64,
    /// The name of the filter that reported it.
    pub source: String,
    /// Its number among the source's records; `None` for records about the source itself.
    pub sequence: Option<u64>,
    /// The content.
    #[serde(flatten)]
    pub kind: Kind,
}

/// The content of a record.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// One decision on a verified delegation.
    Decision(Box<Decision>),
    /// Counted decisions: on paths open to all, and denials before any signature was verified.
    Aggregate {
        /// The second they fell in, RFC 3339.
        time: String,
        /// The rule, empty if none matched.
        rule: String,
        /// The reason code.
        reason: String,
        /// `allow` or `deny`.
        decision: String,
        /// `enforce` or `shadow`.
        mode: String,
        /// How many.
        count: u64,
    },
    /// Evidence that a filter had to drop.
    Gap {
        /// How many events.
        shed: u64,
        /// How many decisions that should have been counted.
        shed_counts: u64,
        /// How many chains.
        shed_chains: u64,
    },
    /// A delegation as the agent presented it.
    Chain,
    /// A source started, ended, was lost or came back.
    Source {
        /// Which of these happened.
        change: String,
        /// At the start: the name that the source authenticated as, and its address.
        peer: Option<String>,
    },
}

/// One decision.
#[derive(Debug, Clone, Deserialize)]
pub struct Decision {
    /// RFC 3339.
    pub time: String,
    /// `allow` or `deny`.
    pub decision: String,
    /// The reason code.
    pub reason: String,
    /// The rule.
    pub rule: String,
    /// The tool.
    pub tool: String,
    /// On whose behalf the agent asked.
    pub principal: Principal,
    /// The holder's thumbprint; empty if nothing was proven.
    pub agent: String,
    /// How the holder proved possession of its key.
    pub proof: String,
    /// The ids of the chain's tokens, root first.
    pub delegation_ids: Vec<String>,
    /// Salt and digest, in hexadecimal.
    pub arguments_hash: String,
    /// The request's method.
    pub method: String,
    /// The method of its MCP message; empty if there is none.
    #[serde(default)]
    pub mcp_method: String,
    /// The rule's template, not the path itself.
    pub path_template: String,
    /// Envoy's `x-request-id`.
    pub request_id: String,
    /// `none`, `l1` or `l2`.
    pub cache: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// Nanoseconds from the request's arrival to the decision.
    pub decision_ns: u64,
    /// If the revocation data was too old: its age.
    pub stale_ms: Option<u64>,
    /// The chain's digest, in hexadecimal. Decisions of the issuer have none.
    #[serde(default)]
    pub chain_digest: String,
    /// The arguments themselves, if they are recorded.
    #[serde(default)]
    pub arguments: String,
    /// The status of the response, if it is recorded; otherwise 0.
    #[serde(default)]
    pub response_status: u32,
}

/// The principal of the delegation.
#[derive(Debug, Clone, Deserialize)]
pub struct Principal {
    /// The issuer of the root token.
    pub issuer: String,
    /// The subject's name at that issuer.
    pub subject: Option<String>,
}

impl Record {
    /// The decision, if the record is one.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.kind {
            Kind::Decision(decision) => Some(decision),
            Kind::Aggregate { .. } | Kind::Gap { .. } | Kind::Chain | Kind::Source { .. } => None,
        }
    }

    /// How many decisions the record stands for.
    pub fn decisions(&self) -> u64 {
        match &self.kind {
            Kind::Decision(_) => 1,
            Kind::Aggregate { count, .. } => *count,
            Kind::Gap { shed, shed_counts, .. } => shed + shed_counts,
            Kind::Chain | Kind::Source { .. } => 0,
        }
    }
}
