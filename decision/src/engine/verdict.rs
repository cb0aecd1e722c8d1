//! A decision, and the findings on the way to it.

use std::rc::Rc;
use std::time::Duration;

use super::decision_cache::CachedDecision;
use crate::agent::Agent;
use crate::chains::CachedChain;
use crate::config::{Mode, Rule};
use crate::decision::{Class, Decision, Reason};
use crate::grant::Grant;
use crate::mcp::MessageId;
use crate::mcp::session::Owner;
use crate::oauth::Needed;

/// A decision with its findings.
#[derive(Debug)]
pub struct Verdict<'p> {
    /// What happens to the request.
    pub decision: Decision<Rc<Grant>>,
    /// The rule that matched.
    pub rule: Option<&'p Rule>,
    /// The index of that rule, from 0.
    pub rule_index: Option<usize>,
    /// Whether the decision is enforced.
    pub mode: Mode,
    /// The nonce for the next proof, if this one was not sufficient and the rule requires a nonce.
    pub nonce: Option<String>,
    /// The findings on the way, for the record.
    pub findings: Findings,
}

/// The findings of a decision, for any result.
#[derive(Debug, Default)]
pub struct Findings {
    /// The chain, if one was verified, now or earlier.
    pub chain: Option<Rc<CachedChain>>,
    /// Whether the chain was looked up, and whether the cache had it.
    pub lookup: Option<Lookup>,
    /// Whether a signature of the chain or the proof was verified for this request, and was valid.
    pub verified: bool,
    /// The proven agent.
    pub agent: Option<Agent>,
    /// What an MCP message calls, as far as it was read.
    pub mcp: Option<Box<McpFindings>>,
    /// The arguments in canonical form, after they were read.
    pub arguments: Option<Rc<str>>,
    /// The equal request that was allowed before, if it decided this one.
    pub cached_decision: Option<Rc<CachedDecision>>,
    /// What another access token would need, if this one does not grant the request.
    pub needed: Option<Needed>,
    /// The age of the revocation state, if it was too old and the rule accepted that.
    pub stale: Option<Duration>,
}

/// What an MCP message calls, as far as it was read.
#[derive(Debug, Default)]
pub struct McpFindings {
    /// The id of its request.
    pub id: Option<MessageId>,
    /// The method.
    pub method: Option<Rc<str>>,
    /// The tool that a delegation must grant.
    pub tool: Option<Rc<str>>,
    /// Whether the message presents the delegation.
    pub presents: bool,
    /// The body for the server, if the client's has the delegation.
    pub body: Option<String>,
    /// The session that it may be in, in a version with sessions.
    pub session: Option<SessionFindings>,
}

/// The session that a request may be in.
#[derive(Debug)]
pub struct SessionFindings {
    /// Who owns it.
    pub owner: Owner,
    /// The server's ids of the session, and of the last event that the client has.
    pub ids: [Option<Box<str>>; 2],
}

/// The result of a cache look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The chain had been verified before.
    Hit,
    /// A beginning of it had been verified, here or by another worker; the rest had to be verified.
    Beginning,
    /// Another worker had verified it, or this one before its VM was restarted: no signature was checked.
    Shared,
    /// It had to be verified.
    Miss,
    /// It had been refused before.
    Refused,
}

impl<'p> Verdict<'p> {
    /// Whether a proof is missing, and has to carry a nonce.
    pub(super) fn asks_for_nonce(&self) -> bool {
        let requirement = self.rule.and_then(|rule| rule.requirement.as_ref());
        let of_rule = requirement.is_some_and(|requirement| requirement.nonce);
        match &self.decision {
            // With a nonce, a proof counts at once after the start of the process.
            Decision::Deny(denial) if denial.reason == Reason::ProofPredatesMemory => true,
            Decision::Deny(denial) => of_rule && denial.reason.class() == Class::Proof,
            Decision::Allow(_) => false,
        }
    }

    /// A decision under this rule.
    pub(super) fn under(rule: &'p Rule, index: usize, decision: Decision<Rc<Grant>>, findings: Findings) -> Self {
        Self {
            decision,
            rule: Some(rule),
            rule_index: Some(index),
            mode: rule.mode,
            nonce: None,
            findings,
        }
    }

    pub(super) fn without_rule(mode: Mode, decision: Decision<Rc<Grant>>) -> Self {
        Self {
            decision,
            rule: None,
            rule_index: None,
            mode,
            nonce: None,
            findings: Findings::default(),
        }
    }
}
