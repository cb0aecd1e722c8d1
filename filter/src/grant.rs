//! What a chain is granted under a rule: worked out for the first request, and the same for those that follow.

use std::cell::OnceCell;

use credence_delegation::VerifiedChain;

use crate::engine::Agent;
use crate::identity::Identity;

/// What every allowed request of one chain, by one agent, under one rule has in common.
#[derive(Debug)]
pub struct Grant {
    rule_index: usize,
    agent: Agent,
    identity: Identity,
    evidence: OnceCell<Box<[u8]>>,
}

impl Grant {
    /// What `agent` is granted under the rule of this number.
    pub fn new(rule_index: usize, agent: Agent, identity: Identity) -> Self {
        Self {
            rule_index,
            agent,
            identity,
            evidence: OnceCell::new(),
        }
    }

    /// Whether this is what `agent` is granted under the rule of this number.
    pub fn is_of(&self, rule_index: usize, agent: Agent) -> bool {
        self.rule_index == rule_index && self.agent == agent
    }

    /// Who the service behind us is told is asking.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the events of all these requests have in common, encoded; `encode` does it the first time.
    pub fn evidence(&self, encode: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.evidence.get_or_init(|| {
            let mut encoded = Vec::with_capacity(USUAL_EVIDENCE_BYTES);
            encode(&mut encoded);
            encoded.into_boxed_slice()
        })
    }

    /// Bytes that a grant of this chain may take in memory: what a cache has to reckon with.
    pub fn bytes(chain: &VerifiedChain) -> usize {
        let principal = chain.principal();
        let subject = principal.subject.as_deref().unwrap_or_default();
        let names = principal.issuer.len().saturating_add(subject.len());
        let ids = chain
            .tokens()
            .map(|token| token.id().len())
            .fold(0, usize::saturating_add);
        // Once in the headers, once in their joint form, once in the event.
        FIXED_BYTES.saturating_add(names.saturating_add(ids).saturating_mul(3))
    }
}

/// What an event is likely to need for the names of its rule, its principal and one token.
const USUAL_EVIDENCE_BYTES: usize = 256;

/// A grant without the names and ids of its chain: the rule's, the tool's, and what the allocator adds.
const FIXED_BYTES: usize = 512;
