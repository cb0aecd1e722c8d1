//! A decision with what was established on the way to it.

use std::rc::Rc;
use std::time::Duration;

use super::decision_cache::CachedDecision;
use crate::agent::Agent;
use crate::chains::CachedChain;
use crate::config::{Mode, Rule};
use crate::decision::{Class, Decision};
use crate::grant::Grant;

/// A decision, and what there is to say about it.
#[derive(Debug)]
pub struct Verdict<'p> {
    /// What happens to the request.
    pub decision: Decision<Rc<Grant>>,
    /// The rule that matched, and its place among all.
    pub rule: Option<&'p Rule>,
    /// The place of that rule, from 0.
    pub rule_index: Option<usize>,
    /// Whether the decision is carried out.
    pub mode: Mode,
    /// What the next proof may carry, if this one was not good enough and the rule asks for a nonce.
    pub nonce: Option<String>,
    /// What was established on the way, for the record.
    pub findings: Findings,
}

/// What a decision established on its way, however it ended.
#[derive(Debug, Default)]
pub struct Findings {
    /// The chain, if one was verified, now or earlier.
    pub chain: Option<Rc<CachedChain>>,
    /// Whether the chain was looked up, and whether the cache had it.
    pub lookup: Option<Lookup>,
    /// Whether a signature was verified for this request, the chain's or the proof's, and found right.
    pub verified: bool,
    /// Who was proven to be asking.
    pub agent: Option<Agent>,
    /// The arguments in canonical form, once they were read.
    pub arguments: Option<Rc<str>>,
    /// The request like this one that was allowed before, if that is what decided.
    pub cached_decision: Option<Rc<CachedDecision>>,
    /// How old the knowledge of revocations was, if it was too old and the rule tolerated that.
    pub stale: Option<Duration>,
}

/// How a look-up in the cache went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The chain had been verified before.
    Hit,
    /// A chain that it begins with had been, here or by another worker; the rest had to be verified.
    Beginning,
    /// Another worker had verified it, or this one before its VM was restarted: no signature had to be.
    Shared,
    /// It had to be verified.
    Miss,
    /// It had been refused before.
    Refused,
}

impl<'p> Verdict<'p> {
    /// Whether a proof is what is missing, and has to carry a nonce.
    pub(super) fn asks_for_nonce(&self) -> bool {
        let requirement = self.rule.and_then(|rule| rule.requirement.as_ref());
        let of_rule = requirement.is_some_and(|requirement| requirement.nonce);
        match &self.decision {
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
