//! The evidence, as `credence audit query --json` prints it.

use serde::Deserialize;

/// One record of the ledger.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    /// Its place in the ledger.
    pub index: u64,
    /// Which filter reported it, by the name it was given.
    pub source: String,
    /// Its number among the source's records; `None` for records about the source itself.
    pub sequence: Option<u64>,
    /// What it says.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What a record says.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// One decision on a verified delegation.
    Decision(Box<Decision>),
    /// Decisions that are counted: what nothing was asked for, and what was denied before any signature had verified.
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
    /// A delegation as it was presented.
    Chain,
    /// A source began, ended, was lost or came back.
    Source {
        /// Which of it.
        change: String,
        /// What it is permitted as, and where it called from; when it began.
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
    /// On whose behalf.
    pub principal: Principal,
    /// The holder's thumbprint; empty if nothing was proven.
    pub agent: String,
    /// How the holder proved to be the holder.
    pub proof: String,
    /// The ids of the chain's tokens, root first.
    pub delegation_ids: Vec<String>,
    /// Salt and digest, in hexadecimal.
    pub arguments_hash: String,
    /// The request's method.
    pub method: String,
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
    /// How old the knowledge of revocations was, where it was too old.
    pub stale_ms: Option<u64>,
    /// What the chain is known by, in hexadecimal.
    pub chain_digest: String,
    /// The arguments themselves, where they are recorded.
    #[serde(default)]
    pub arguments: String,
    /// What the client was answered, where that is recorded; 0 if it was not.
    #[serde(default)]
    pub response_status: u32,
}

/// On whose behalf.
#[derive(Debug, Clone, Deserialize)]
pub struct Principal {
    /// The issuer of the root token.
    pub issuer: String,
    /// The person's name there.
    pub subject: Option<String>,
}

impl Record {
    /// The decision, if it is one.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.kind {
            Kind::Decision(decision) => Some(decision),
            Kind::Aggregate { .. } | Kind::Gap { .. } | Kind::Chain | Kind::Source { .. } => None,
        }
    }

    /// How many decisions it accounts for.
    pub fn decisions(&self) -> u64 {
        match &self.kind {
            Kind::Decision(_) => 1,
            Kind::Aggregate { count, .. } => *count,
            Kind::Gap { shed, shed_counts, .. } => shed + shed_counts,
            Kind::Chain | Kind::Source { .. } => 0,
        }
    }
}
