//! The caches and memories that earlier requests have filled.

use std::rc::Rc;

use credence_delegation::{HotKeys, UnixTime};

use super::decision_cache::{DecisionCache, RequestFingerprint};
use super::trust::Trust;
use super::verdict::{Findings, Lookup};
use super::world::World;
use crate::agent::Agent;
use crate::chains::{ChainCache, RefusedChains, SealContext, SharedChains};
use crate::config::{Policy, Requirement};
use crate::grant::Grant;
use crate::proofs::{Nonces, ReplayMemory};

/// The caches and memories that earlier requests have filled.
#[derive(Debug)]
pub(super) struct Memories {
    pub(super) trust: Trust,
    pub(super) cache: ChainCache,
    pub(super) refused: RefusedChains,
    pub(super) decisions: DecisionCache,
    pub(super) shared: SharedChains,
    pub(super) replay: ReplayMemory,
    pub(super) nonces: Nonces,
    pub(super) hot_keys: HotKeys,
}

impl Memories {
    /// Empty ones. `cache_secret` is random and stays in this VM.
    pub(super) fn new(policy: &Policy, cache_secret: [u8; 16], replay: ReplayMemory) -> Self {
        Self {
            trust: Trust::new(&policy.trust_anchors),
            cache: ChainCache::new(cache_secret, policy.limits.cache),
            refused: RefusedChains::new(policy.limits.refused_entries),
            // If rules have header conditions, equal fingerprints do not mean equal requests.
            decisions: DecisionCache::new(if policy.routes.ask_of_headers() {
                0
            } else {
                policy.limits.repeat_entries
            }),
            shared: SharedChains::new(
                *replay.secret(),
                policy.limits.shared_cache_entries,
                SealContext::new(&policy.trust_anchors, &policy.holder_algorithms),
            ),
            nonces: Nonces::new(
                replay.secret(),
                policy.limits.verification.proof_window.saturating_mul(2),
            ),
            hot_keys: HotKeys::new(policy.limits.hot_keys),
            replay,
        }
    }

    /// Follows the keys that the control plane has fetched. Chains that were refused may now be signed by a known key.
    pub(super) fn follow_keys(&mut self, policy: &Policy, now: UnixTime, world: &impl World) {
        if self.trust.follow(now, world) {
            self.refused = RefusedChains::new(policy.limits.refused_entries);
            let context = SealContext::new(self.trust.anchors(), &policy.holder_algorithms);
            self.shared.set_context(context);
        }
    }

    /// Caches an allowed request: an equal one will be allowed too, unless one of the conditions that are always
    /// checked has changed. That requires a request without a proof, which would differ each time, and without other
    /// headers.
    pub(super) fn remember(
        &mut self,
        fingerprint: &RequestFingerprint<'_>,
        requirement: &Requirement,
        findings: &Findings,
        grant: &Rc<Grant>,
        rule_index: usize,
    ) {
        let reads_more = requirement.mcp().is_some() || requirement.arguments.read_headers();
        let is_all_there_is = findings.agent == Some(Agent::Bearer) && !reads_more;
        if let Some(chain) = &findings.chain
            && is_all_there_is
            && findings.lookup == Some(Lookup::Hit)
        {
            let arguments = findings.arguments.as_ref();
            self.decisions
                .remember(fingerprint, chain, grant, rule_index, arguments);
        }
    }
}
