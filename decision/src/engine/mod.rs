//! The decision about one request: its checks, in a fixed order.
//!
//! | file | task |
//! |---|---|
//! | `world` | the inputs of a decision from its environment |
//! | `verdict` | a decision, and the findings on the way to it |
//! | `routing` | the rule that a request matches |
//! | `called` | what a request calls under its rule |
//! | `attempt` | one request under one rule that requires a delegation |
//! | `possession` | what proves that a client holds its credential's key |
//! | `trust` | the trust anchors that count now |
//! | `verification` | the verified chain of a request, from a cache or by verifying it |
//! | `memories` | the caches and memories that earlier requests have filled |
//! | `decision_cache` | requests equal to one that was allowed before |

mod attempt;
mod called;
pub mod decision_cache;
mod memories;
mod possession;
mod routing;
mod trust;
mod verdict;
mod verification;
mod world;

use std::rc::Rc;

use credence_delegation::{Thumbprint, UnixTime};

use crate::agent::Agent;
use crate::chains::{self, CachedChain, ChainCache};
use crate::config::{Hold, Mode, Policy, Requirement, Rule};
use crate::decision::{Allowance, Decision, Denial, Reason};
use crate::grant::Grant;
use crate::mcp::Endpoint;
use crate::mcp::presentation::{self, Presentation};
use crate::proofs::ReplayMemory;
use crate::request::{Header, Request};
use crate::revocation::{Freshness, SealKeys};
use crate::shared_store::SharedStore;
use crate::usage_sketch::Sharers;
pub(crate) use called::Called;
pub(crate) use routing::{Routed, route, unmatched};

use attempt::{Attempt, Established};
use decision_cache::RequestFingerprint;
use memories::Memories;
use routing::goes_where_expected;
use verification::check_still_valid;

pub use verdict::{Findings, Lookup, McpFindings, SessionFindings, Verdict};
pub use verification::MAX_ID_BYTES;
pub use world::World;

/// Decides requests by one configuration.
#[derive(Debug)]
pub struct Engine {
    policy: Rc<Policy>,
    memories: Memories,
}

/// The result of a request's headers.
#[derive(Debug)]
pub enum Outcome<'p> {
    /// The decision.
    Decided(Verdict<'p>),
    /// All checks passed so far, and the rule reads the body: hold the request until its body has arrived, then call
    /// [`Engine::resume`].
    NeedsBody(Held),
}

/// A request that is held for its body, with the findings from its headers.
#[derive(Debug)]
pub struct Held {
    rule_index: usize,
    /// None if the body has the credential.
    established: Option<Established>,
    findings: Findings,
}

impl Engine {
    /// An engine for one configuration. `cache_secret` is random and stays in this VM.
    pub fn new(policy: Rc<Policy>, cache_secret: [u8; 16], replay: ReplayMemory) -> Self {
        let memories = Memories::new(&policy, cache_secret, replay);
        Self { policy, memories }
    }

    /// Time has passed, and no request waits: computes tables of hot keys.
    pub fn on_tick(&self) {
        self.memories.hot_keys.prepare(TABLES_PER_TICK);
    }

    /// The configuration.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The cache, for its metrics.
    pub fn cache(&self) -> &ChainCache {
        &self.memories.cache
    }

    /// Counters of the cache that the workers share.
    pub fn shared_cache(&self) -> chains::shared::Counters {
        self.memories.shared.counters
    }

    /// Time has passed: shares the chains that were verified here with other workers. Not while a request waits.
    pub fn share_chains(&mut self, now: UnixTime, store: &mut impl SharedStore, keys: Option<&SealKeys>) {
        if let Some(keys) = keys {
            self.memories.shared.write_waiting(now, store, keys);
        }
    }

    /// Decides one request, if its headers are sufficient.
    pub fn decide(&mut self, request: &Request<'_>, world: &mut impl World) -> Outcome<'_> {
        let Self { policy, memories } = self;
        let is_remembered = !memories.decisions.is_off();
        let fingerprint = is_remembered.then(|| RequestFingerprint::of(request)).flatten();
        if let Some(fingerprint) = &fingerprint
            && let Some(verdict) = from_cache(policy, memories, fingerprint, world)
        {
            return Outcome::Decided(verdict);
        }
        if let Some(verdict) = metadata(policy, request) {
            return Outcome::Decided(verdict);
        }
        let mut findings = Findings::default();
        let routed = match route(policy.matching(), request) {
            Ok(Some(routed)) => routed,
            Ok(None) => {
                return Outcome::Decided(Verdict::without_rule(
                    policy.mode,
                    unmatched(policy.matching(), request),
                ));
            }
            Err(denial) => return Outcome::Decided(Verdict::without_rule(policy.mode, Decision::Deny(denial))),
        };
        let decision = match &routed.rule.requirement {
            _ if !goes_where_expected(routed.rule, world) => Decision::Deny(Reason::ClusterMismatch.into()),
            _ if request.leaves_http && (!routed.rule.allows_upgrade || request.drops_headers) => {
                Decision::Deny(Reason::UpgradeDenied.into())
            }
            None => Decision::Allow(Allowance::Public),
            Some(requirement) => {
                let mut attempt = Attempt {
                    policy,
                    memories,
                    requirement,
                    mode: routed.rule.mode,
                    request,
                    findings: &mut findings,
                };
                let established = match attempt.awaits_credential() {
                    true => attempt.check_unpresented(world).map(|()| None),
                    false => attempt.establish(world).map(Some),
                };
                let authorized = match established {
                    Ok(Some(established)) if !attempt.awaits_body() => {
                        attempt.authorize(&established, &routed, None, world)
                    }
                    Ok(established) => {
                        let checked = match &established {
                            Some(established) if requirement.holds == Hold::Body => {
                                attempt.check_before_body(established, &routed)
                            }
                            _ => Ok(()),
                        };
                        match checked {
                            Ok(()) => {
                                return Outcome::NeedsBody(Held {
                                    rule_index: routed.index,
                                    established,
                                    findings,
                                });
                            }
                            Err(denial) => Err(denial),
                        }
                    }
                    Err(denial) => Err(denial),
                };
                match authorized {
                    Ok(grant) => {
                        if let Some(fingerprint) = &fingerprint {
                            memories.remember(fingerprint, requirement, &findings, &grant, routed.index);
                        }
                        Decision::Allow(Allowance::Delegated(grant))
                    }
                    Err(denial) => Decision::Deny(denial),
                }
            }
        };
        Outcome::Decided(routed.verdict(decision, findings, &memories.nonces, world))
    }

    /// What becomes of the headers of a request that waits for its body, if they do not wait, too.
    pub fn let_headers_on(
        &mut self,
        held: &Held,
        request: &Request<'_>,
        world: &mut impl World,
    ) -> Option<Verdict<'_>> {
        let Self { policy, memories } = self;
        let rule = policy.routes.get(held.rule_index)?;
        let requirement = rule.requirement.as_ref().filter(|read| read.holds == Hold::Body)?;
        let established = held.established.as_ref()?;
        let mut findings = Findings::default();
        let mut attempt = Attempt {
            policy,
            memories,
            requirement,
            mode: rule.mode,
            request,
            findings: &mut findings,
        };
        let granted = attempt.grant_headers(&rule.name, held.rule_index, established, world);
        let decision = match granted {
            Ok(grant) => Decision::Allow(Allowance::Delegated(grant)),
            Err(denial) => Decision::Deny(denial),
        };
        findings.chain = Some(Rc::clone(&established.chain));
        Some(Verdict::under(rule, held.rule_index, decision, findings))
    }

    /// Decides a request that was held for its body. `body` is all of it, or more than the limit.
    ///
    /// Repeats the checks that the wait may have changed: freshness, expiry and revocation.
    pub fn resume(&mut self, held: Held, request: &Request<'_>, body: &[u8], world: &mut impl World) -> Verdict<'_> {
        let Self { policy, memories } = self;
        let Held {
            rule_index,
            established,
            mut findings,
        } = held;
        let routed = match route(policy.matching(), request) {
            Ok(Some(routed)) if routed.index == rule_index => routed,
            // The headers differ from the ones that were checked.
            Ok(_) => return Verdict::without_rule(Mode::Enforce, Decision::Deny(Reason::HostFailure.into())),
            Err(denial) => return Verdict::without_rule(policy.mode, Decision::Deny(denial)),
        };
        let decision = match &routed.rule.requirement {
            _ if !goes_where_expected(routed.rule, world) => Decision::Deny(Reason::ClusterMismatch.into()),
            None => Decision::Deny(Reason::HostFailure.into()),
            Some(requirement) => {
                let attempt = Attempt {
                    policy,
                    memories,
                    requirement,
                    mode: routed.rule.mode,
                    request,
                    findings: &mut findings,
                };
                match resumed(attempt, established, &routed, body, world) {
                    Ok(grant) => Decision::Allow(Allowance::Delegated(grant)),
                    Err(denial) => Decision::Deny(denial),
                }
            }
        };
        routed.verdict(decision, findings, &memories.nonces, world)
    }

    /// The MCP server under the rule with this index, if it is one.
    pub fn endpoint(&self, rule_index: usize) -> Option<&Endpoint> {
        self.policy
            .routes
            .get(rule_index)?
            .requirement
            .as_ref()
            .and_then(Requirement::mcp)
    }

    /// Whether a chain that allowed a request still counts. True while there is no revocation state.
    pub fn still_counts(&self, chain: &CachedChain, world: &impl World) -> bool {
        let now = UnixTime(world.now().second());
        check_still_valid(&self.policy, chain, now, world)
            .map_or_else(|denial| denial.reason == Reason::NotReady, |()| true)
    }

    /// Whether the request was denied only because there are no revocations yet, so that waiting for them helps. False
    /// for a shadow decision, which must not delay requests. False for a body that is to be read: the host cannot first
    /// hold a request without its body and then for it.
    pub fn is_unready(verdict: &Verdict<'_>, has_body: bool) -> bool {
        let is_not_ready = matches!(&verdict.decision, Decision::Deny(denial) if denial.reason == Reason::NotReady);
        let reads_body = |rule: &Rule| rule.requirement.as_ref().is_some_and(Requirement::reads_body);
        let reads_body = verdict.rule.is_none_or(reads_body);
        is_not_ready && verdict.mode == Mode::Enforce && !(has_body && reads_body)
    }

    /// Denies a request that waited for the first snapshot.
    pub fn give_up_unready(&self, rule_index: usize) -> Verdict<'_> {
        self.denied(rule_index, Reason::NotReady, Findings::default())
    }

    /// Denies a held request that is no longer held.
    pub fn turn_away(&self, held: Held, reason: Reason) -> Verdict<'_> {
        self.denied(held.rule_index, reason, held.findings)
    }

    fn denied(&self, rule_index: usize, reason: Reason, findings: Findings) -> Verdict<'_> {
        let denied = Decision::Deny(reason.into());
        match self.policy.routes.get(rule_index) {
            Some(rule) => Verdict::under(rule, rule_index, denied, findings),
            None => Verdict::without_rule(self.policy.mode, denied),
        }
    }
}

impl Held {
    /// The principal and holder of the request.
    pub fn sharers(&self) -> Option<Sharers> {
        self.established.as_ref().map(|established| established.chain.sharers)
    }

    /// Whether its credential was verified.
    pub fn is_presented(&self) -> bool {
        self.established.is_some()
    }

    /// The key that signed its proof, and the proof's id, if there is one.
    pub fn proof(&self) -> Option<(Thumbprint, &str)> {
        let Established { chain, proof, .. } = self.established.as_ref()?;
        let holder = chain.chain.leaf().holder().thumbprint()?;
        proof.as_ref().map(|proof| (holder, proof.id()))
    }
}

/// The decision on a request with its body.
fn resumed<'r>(
    mut attempt: Attempt<'_, 'r>,
    established: Option<Established>,
    routed: &Routed<'_, 'r>,
    body: &[u8],
    world: &mut impl World,
) -> Result<Rc<Grant>, Denial> {
    let Some(established) = established else {
        if body.len() > presentation::MAX_BYTES.min(attempt.policy.limits.body_bytes) {
            return Err(Reason::BodyTooLarge.into());
        }
        let mcp = attempt.findings.mcp.get_or_insert_default();
        mcp.presents = true;
        let presented = Presentation::read(body, &mut mcp.id)?;
        let proof = presented.proof.as_ref();
        let proof = proof.map_or(Header::Absent, |proof| Header::Once(proof.as_bytes()));
        let request = attempt
            .request
            .presenting(Header::Once(presented.tokens.as_bytes()), proof);
        let mut attempt = Attempt {
            request: &request,
            policy: attempt.policy,
            memories: attempt.memories,
            requirement: attempt.requirement,
            mode: attempt.mode,
            findings: attempt.findings,
        };
        let established = attempt.establish(world)?;
        let grant = attempt.resume(&established, routed, body, world)?;
        let body = presentation::removed_from(body, attempt.requirement.forward).ok_or(Reason::HostFailure)?;
        attempt.findings.mcp.get_or_insert_default().body = Some(body);
        return Ok(grant);
    };
    attempt.resume(&established, routed, body, world)
}

/// A request for the metadata of a resource.
fn metadata<'p>(policy: &'p Policy, request: &Request<'_>) -> Option<Verdict<'p>> {
    let resource = policy
        .resources
        .iter()
        .find(|resource| resource.is_enforced && resource.is_asked_for(request))?;
    let document = Allowance::ResourceMetadata(Rc::clone(&resource.document));
    Some(Verdict::without_rule(Mode::Enforce, Decision::Allow(document)))
}

/// Allows a request that equals an allowed one, if all changeable conditions still hold. Any other request takes the
/// full path, which may deny it.
fn from_cache<'p>(
    policy: &'p Policy,
    memories: &Memories,
    fingerprint: &RequestFingerprint<'_>,
    world: &impl World,
) -> Option<Verdict<'p>> {
    let now = UnixTime(world.now().second());
    let (cached, chain) = memories.decisions.find(fingerprint, now)?;
    let rule = policy.routes.get(cached.rule_index)?;
    let (_, revision) = world.revocations()?;
    let still_stands = goes_where_expected(rule, world)
        && world.can_record(Some(chain.sharers.principal))
        && world.freshness() == Freshness::Fresh
        && chain.chain.expires_at() > now
        && chain.trusted_until.get() > now
        && chain.unrevoked_at.get() == Some(revision);
    still_stands.then(|| {
        let rule_index = cached.rule_index;
        let granted = Decision::Allow(Allowance::Delegated(Rc::clone(&cached.grant)));
        let findings = Findings {
            chain: Some(chain),
            lookup: Some(Lookup::Hit),
            agent: Some(Agent::Bearer),
            arguments: cached.arguments.clone(),
            cached_decision: Some(cached),
            ..Findings::default()
        };
        Verdict::under(rule, rule_index, granted, findings)
    })
}

/// Tables of hot keys that one tick computes, at one to two milliseconds each, and once about ten for the base point.
const TABLES_PER_TICK: usize = 2;

#[cfg(test)]
mod tests;
