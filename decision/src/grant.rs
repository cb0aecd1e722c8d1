//! The grant of a chain under a rule: computed for the first request, and reused for the following ones.

use std::cell::OnceCell;
use std::rc::Rc;

use credence_delegation::VerifiedChain;

use crate::agent::Agent;
use crate::identity_headers::{Identity, MAX_VALUE_BYTES};

/// The common part of all allowed requests of one chain, by one agent, under one rule.
#[derive(Debug)]
pub struct Grant {
    rule_index: usize,
    agent: Agent,
    /// Unless it is the rule's.
    tool: Option<Rc<str>>,
    /// The identity that the service receives.
    pub identity: Identity,
    evidence: OnceCell<Box<[u8]>>,
}

impl Grant {
    /// The grant of `agent` under the rule with this index, for this tool unless it is the rule's.
    pub fn new(rule_index: usize, agent: Agent, tool: Option<Rc<str>>, identity: Identity) -> Self {
        Self {
            rule_index,
            agent,
            tool,
            identity,
            evidence: OnceCell::new(),
        }
    }

    /// Whether this is the grant of `agent` under the rule with this index, for this tool unless it is the rule's.
    pub fn is_of(&self, rule_index: usize, agent: Agent, tool: Option<&str>) -> bool {
        self.rule_index == rule_index && self.agent == agent && self.tool.as_deref() == tool
    }

    /// The common part of the events of these requests, encoded. `encode` runs the first time.
    pub fn evidence(&self, encode: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.evidence.get_or_init(|| {
            let mut encoded = Vec::with_capacity(USUAL_EVIDENCE_BYTES);
            encode(&mut encoded);
            encoded.into_boxed_slice()
        })
    }

    /// The memory that a grant of this chain may need, for the accounting of caches.
    pub fn bytes(chain: &VerifiedChain) -> usize {
        let principal = chain.principal();
        let subject = principal.subject.as_deref().unwrap_or_default();
        let client = chain.client().unwrap_or_default();
        let actor = chain.actors().first().map(String::as_str).unwrap_or_default();
        let ids = chain.tokens().map(|token| token.id().len());
        let users = chain.actors().iter().map(String::len).chain([client.len()]);
        let in_the_event = ids.chain(users).chain([principal.issuer.len(), subject.len()]);
        // Encoded, once in the headers and once in their joint form. Each is at most as long as an identity's value.
        let in_headers = [&principal.issuer, subject, client, actor, chain.leaf().id()]
            .map(|text| Identity::value_bytes(text).min(MAX_VALUE_BYTES).saturating_mul(2));
        in_the_event.chain(in_headers).fold(FIXED_BYTES, usize::saturating_add)
    }
}

/// The usual size of the names of an event's rule, principal and token.
const USUAL_EVIDENCE_BYTES: usize = 256;

/// The size of a grant without the names and ids of its chain: the names of rule and tool, and the allocator's share.
const FIXED_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use credence_delegation::{Limits, mint};

    use super::*;
    use crate::identity_headers::IdentityHeaders;
    use crate::samples;

    /// Includes names that percent-encoding makes three times as long.
    #[test]
    fn a_grant_takes_at_most_its_estimate() {
        let name = "\u{e9}".repeat(128);
        let root = mint::RootGrant {
            grant: samples::grant(&name, 2, "{}"),
            issuer: samples::ISSUER.into(),
            subject: Some(name),
            epoch: Some(0),
            agent_name: None,
        };
        let root = mint::root(&root, &samples::key(1), &Limits::default()).unwrap();
        let chain = samples::verified(&root);
        let identity = Identity::new(&chain, Agent::Bearer, Some("pay"), IdentityHeaders::Dictionary).unwrap();
        let parts: usize = identity.parts.iter().map(|(_, value)| value.len()).sum();
        let dictionary = identity.dictionary.map_or(0, |dictionary| dictionary.len());
        assert!(parts + dictionary > 2 * 3 * 512, "{parts} {dictionary}");
        assert!(parts + dictionary < Grant::bytes(&chain));
    }
}
