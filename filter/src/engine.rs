//! The decision: what the design calls the filter's eight steps, in order, for one request.

use std::rc::Rc;
use std::time::Duration;

use credence_delegation::revocation::{self, RevocationView};
use credence_delegation::{
    AudiencePolicy, Chain, HotKeys, NoncePolicy, Proof, ProofContext, Thumbprint, UnixTime, VerificationContext,
    VerifiedChain, VerifiedProof, VerifiedToken,
};

use crate::arguments::Arrived;
use crate::body;
use crate::cache::{CacheKey, CacheLimits, CachedChain, ChainCache};
use crate::clock::UnixNanos;
use crate::config::{Access, Mode, Policy, ProofKind, Requirement, Rule, Unmatched};
use crate::decision::{Allowance, Class, Decision, Denial, Reason};
use crate::grant::Grant;
use crate::identity::Identity;
use crate::nonce::Nonces;
use crate::refused::RefusedChains;
use crate::repeats::{Likeness, Repeat, Repeats};
use crate::replay::{ReplayError, ReplayMemory, SharedStore, UsedProof};
use crate::request::{Field, Header, Request, is_joined};
use crate::revocation::{CacheKeys, Freshness, SealedWith};
use crate::route::{Captures, Unclear};
use crate::shared_chains::{self, SealContext, SharedChains};
use crate::target::{self, Host, Target};
use crate::usage_sketch::{Sharers, UserKey};

/// Decides requests by one configuration.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    memories: Memories,
}

/// What earlier requests have left behind.
#[derive(Debug)]
struct Memories {
    cache: ChainCache,
    refused: RefusedChains,
    repeats: Repeats,
    shared: SharedChains,
    replay: ReplayMemory,
    nonces: Nonces,
    hot_keys: HotKeys,
}

/// What a decision needs of the world: time, the revocation view, and what the host keeps.
pub trait World: SharedStore {
    /// The wall clock.
    fn now(&self) -> UnixNanos;
    /// How sure we may be of the revocation view.
    fn freshness(&self) -> Freshness;
    /// The revocation view, and the revision that moves whenever it changes. `None` before the first snapshot.
    fn revocations(&self) -> Option<(&impl RevocationView, u64)>;
    /// What the workers of this node seal with what they share; `None` if nobody has given out any keys.
    fn cache_keys(&self) -> Option<&CacheKeys>;
    /// SHA-256 of the client's certificate, if the connection shows one.
    fn client_certificate(&self) -> Option<[u8; 32]>;
    /// The URI that the client's certificate names its subject by, if it has one.
    fn client_uri(&self) -> Option<Vec<u8>>;
    /// The cluster that Envoy sends the request to, if it can tell.
    fn cluster(&self) -> Option<Vec<u8>>;
    /// Whether a decision about what this principal granted can be recorded, or may go unrecorded; `None` while it is not
    /// known whose it is.
    fn can_record(&self, principal: Option<UserKey>) -> bool;
}

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

/// What comes of a request's headers.
#[derive(Debug)]
pub enum Outcome<'p> {
    /// The decision.
    Decided(Verdict<'p>),
    /// All is well so far, and the rule reads the body: hold the request until its body has arrived, then
    /// [`Engine::resume`].
    NeedsBody(Held),
}

/// A request that is held for its body, with what its headers have established.
#[derive(Debug)]
pub struct Held {
    rule_index: usize,
    established: Established,
    findings: Findings,
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
    pub repeat: Option<Rc<Repeat>>,
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

/// Who was proven to be asking. Identity is what was proven, so a bearer has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The holder of this key signed the request's proof.
    Key(Thumbprint),
    /// The connection's client certificate, by its SHA-256.
    Certificate([u8; 32]),
    /// Nobody in particular.
    Bearer,
}

impl Engine {
    /// An engine for one configuration. `cache_secret` is random and stays in this VM.
    pub fn new(policy: Policy, cache_secret: [u8; 16], replay: ReplayMemory) -> Self {
        let limits = CacheLimits {
            entries: policy.limits.cache_entries,
            bytes: policy.limits.cache_bytes,
        };
        let memories = Memories {
            cache: ChainCache::new(cache_secret, limits),
            refused: RefusedChains::new(policy.limits.refused_entries),
            // Where rules tell requests apart by their headers, the likeness of two says nothing.
            repeats: Repeats::new(if policy.routes.ask_of_headers() {
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
        };
        Self { policy, memories }
    }

    /// Time has passed, and nobody waits: work that pays later is done now.
    pub fn on_tick(&self) {
        self.memories.hot_keys.prepare(TABLES_PER_TICK);
    }

    /// The configuration.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The cache, for its figures.
    pub fn cache(&self) -> &ChainCache {
        &self.memories.cache
    }

    /// How often chains were found that other workers had verified.
    pub fn shared_cache(&self) -> shared_chains::Counters {
        self.memories.shared.counters()
    }

    /// Time has passed: shows the other workers what was verified here. Not while a request waits.
    pub fn share_chains(&mut self, now: UnixTime, store: &mut impl SharedStore, keys: Option<&CacheKeys>) {
        if let Some(keys) = keys {
            self.memories.shared.write_waiting(now, store, keys);
        }
    }

    /// Decides one request, if its headers are enough for that.
    pub fn decide(&mut self, request: &Request<'_>, world: &mut impl World) -> Outcome<'_> {
        let Self { policy, memories } = self;
        let likeness = if memories.repeats.is_off() {
            None
        } else {
            Likeness::of(request)
        };
        if let Some(likeness) = &likeness
            && let Some(verdict) = repeat(policy, memories, likeness, world)
        {
            return Outcome::Decided(verdict);
        }
        let mut findings = Findings::default();
        let routed = match route(policy, request) {
            Ok(Some(routed)) => routed,
            Ok(None) => return Outcome::Decided(Verdict::without_rule(policy.mode, unmatched(policy, request))),
            Err(denial) => return Outcome::Decided(Verdict::without_rule(policy.mode, Decision::Deny(denial))),
        };
        let decision = match &routed.rule.access {
            _ if !goes_where_expected(routed.rule, world) => Decision::Deny(Reason::ClusterMismatch.into()),
            _ if request.leaves_http && (!routed.rule.allows_upgrade || request.drops_headers) => {
                Decision::Deny(Reason::UpgradeDenied.into())
            }
            Access::Public => Decision::Allow(Allowance::Public),
            Access::Delegated(requirement) => {
                let mut attempt = Attempt {
                    policy,
                    memories,
                    requirement,
                    mode: routed.rule.mode,
                    request,
                    findings: &mut findings,
                };
                let authorized = attempt.establish(world).and_then(|established| {
                    if request.has_body && requirement.reads_body() {
                        attempt.check_body_header()?;
                        return Ok(Err(established));
                    }
                    attempt.authorize(&established, &routed, None, world).map(Ok)
                });
                match authorized {
                    Ok(Ok(grant)) => {
                        if let Some(likeness) = &likeness {
                            memories.remember(likeness, requirement, &findings, &grant, routed.index);
                        }
                        Decision::Allow(Allowance::Delegated(grant))
                    }
                    Ok(Err(established)) => {
                        return Outcome::NeedsBody(Held {
                            rule_index: routed.index,
                            established,
                            findings,
                        });
                    }
                    Err(denial) => Decision::Deny(denial),
                }
            }
        };
        Outcome::Decided(routed.verdict(decision, findings, &memories.nonces, world))
    }

    /// Decides a request that was held for its body. `body` is all of it, or more than is read of one.
    ///
    /// What may have changed while the request was held is looked at once more: freshness, expiry and revocation.
    pub fn resume(&mut self, held: Held, request: &Request<'_>, body: &[u8], world: &mut impl World) -> Verdict<'_> {
        let Self { policy, memories } = self;
        let Held {
            rule_index,
            established,
            mut findings,
        } = held;
        let routed = match route(policy, request) {
            Ok(Some(routed)) if routed.index == rule_index => routed,
            // The headers are not those that were decided upon.
            Ok(_) => return Verdict::without_rule(Mode::Enforce, Decision::Deny(Reason::HostFailure.into())),
            Err(denial) => return Verdict::without_rule(policy.mode, Decision::Deny(denial)),
        };
        let decision = match &routed.rule.access {
            _ if !goes_where_expected(routed.rule, world) => Decision::Deny(Reason::ClusterMismatch.into()),
            Access::Public => Decision::Deny(Reason::HostFailure.into()),
            Access::Delegated(requirement) => {
                let mut attempt = Attempt {
                    policy,
                    memories,
                    requirement,
                    mode: routed.rule.mode,
                    request,
                    findings: &mut findings,
                };
                match attempt.resume(&established, &routed, body, world) {
                    Ok(grant) => Decision::Allow(Allowance::Delegated(grant)),
                    Err(denial) => Decision::Deny(denial),
                }
            }
        };
        routed.verdict(decision, findings, &memories.nonces, world)
    }

    /// Whether the request would be let through but for what is known of revocations, which is nothing yet, so that it is
    /// worth its while to wait for that. Not where a decision is not carried out: nothing may be delayed there. Nor for
    /// a body that is to be read: the host can not hold a request first without its body and then for it.
    pub fn is_unready(verdict: &Verdict<'_>, has_body: bool) -> bool {
        let is_not_ready = matches!(&verdict.decision, Decision::Deny(denial) if denial.reason == Reason::NotReady);
        let reads_body = verdict.rule.is_none_or(|rule| match &rule.access {
            Access::Delegated(requirement) => requirement.reads_body(),
            Access::Public => false,
        });
        is_not_ready && verdict.mode == Mode::Enforce && !(has_body && reads_body)
    }

    /// Denies a request that waited for the knowledge of revocations.
    pub fn give_up_unready(&self, rule_index: usize) -> Verdict<'_> {
        let rule = self.policy.routes.get(rule_index);
        Verdict {
            rule,
            rule_index: Some(rule_index),
            ..Verdict::without_rule(
                rule.map_or(self.policy.mode, |rule| rule.mode),
                Decision::Deny(Reason::NotReady.into()),
            )
        }
    }

    /// Denies a request that was held and is held no longer.
    pub fn turn_away(&self, held: Held, reason: Reason) -> Verdict<'_> {
        let rule = self.policy.routes.get(held.rule_index);
        Verdict {
            decision: Decision::Deny(reason.into()),
            rule,
            rule_index: Some(held.rule_index),
            mode: rule.map_or(self.policy.mode, |rule| rule.mode),
            nonce: None,
            findings: held.findings,
        }
    }
}

impl Held {
    /// Whose request it is.
    pub fn sharers(&self) -> Sharers {
        self.established.chain.sharers
    }

    /// The key that signed its proof, and the proof's id, if it has one.
    pub fn proof(&self) -> Option<(Thumbprint, &str)> {
        let Established { chain, proof, .. } = &self.established;
        let holder = chain.chain.leaf().holder().thumbprint();
        proof.as_ref().map(|proof| (holder, proof.id()))
    }
}

impl Verdict<'_> {
    /// Whether a proof is what is missing, and has to carry a nonce.
    fn asks_for_nonce(&self) -> bool {
        let of_rule = self.rule.is_some_and(|rule| match &rule.access {
            Access::Delegated(requirement) => requirement.nonce,
            Access::Public => false,
        });
        match &self.decision {
            Decision::Deny(denial) => of_rule && denial.reason.class() == Class::Proof,
            Decision::Allow(_) => false,
        }
    }

    fn without_rule(mode: Mode, decision: Decision<Rc<Grant>>) -> Self {
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

/// A request with the rule it falls under.
struct Routed<'p, 'r> {
    rule: &'p Rule,
    index: usize,
    host: Host<'r>,
    target: Target<'r>,
    captures: Captures<'r>,
}

impl<'p> Routed<'p, '_> {
    fn verdict(
        &self,
        decision: Decision<Rc<Grant>>,
        findings: Findings,
        nonces: &Nonces,
        world: &impl World,
    ) -> Verdict<'p> {
        let mut verdict = Verdict {
            decision,
            rule: Some(self.rule),
            rule_index: Some(self.index),
            mode: self.rule.mode,
            nonce: None,
            findings,
        };
        if verdict.asks_for_nonce() {
            verdict.nonce = Some(nonces.make(UnixTime(world.now().second())));
        }
        verdict
    }
}

/// What the headers of a request have established: all but its arguments.
#[derive(Debug)]
struct Established {
    chain: Rc<CachedChain>,
    proof: Option<VerifiedProof>,
    agent: Agent,
}

impl Memories {
    /// A request was allowed: one like it will be, as long as nothing changes that is looked at every time. That needs a rule
    /// that asks for no proof, which would be another each time, and reads no other headers.
    fn remember(
        &mut self,
        likeness: &Likeness<'_>,
        requirement: &Requirement,
        findings: &Findings,
        grant: &Rc<Grant>,
        rule_index: usize,
    ) {
        let is_all_there_is = requirement.proof == ProofKind::None && !requirement.arguments.read_headers();
        if let Some(chain) = &findings.chain
            && is_all_there_is
            && findings.lookup == Some(Lookup::Hit)
        {
            let arguments = findings.arguments.as_ref();
            self.repeats.remember(likeness, chain, grant, rule_index, arguments);
        }
    }
}

/// Allows a request that is like one that was allowed before, if all that may have changed since is as it has to be. Whatever
/// is not so goes the long way, on which it is denied.
fn repeat<'p>(
    policy: &'p Policy,
    memories: &Memories,
    likeness: &Likeness<'_>,
    world: &impl World,
) -> Option<Verdict<'p>> {
    let now = UnixTime(world.now().second());
    let (repeat, chain) = memories.repeats.find(likeness, now)?;
    let rule = policy.routes.get(repeat.rule_index)?;
    let (_, revision) = world.revocations()?;
    let still_stands = goes_where_expected(rule, world)
        && world.can_record(Some(chain.sharers.principal))
        && world.freshness() == Freshness::Fresh
        && chain.chain.expires_at() > now
        && chain.unrevoked_at.get() == Some(revision);
    still_stands.then(|| Verdict {
        decision: Decision::Allow(Allowance::Delegated(Rc::clone(&repeat.grant))),
        rule: Some(rule),
        rule_index: Some(repeat.rule_index),
        mode: rule.mode,
        nonce: None,
        findings: Findings {
            chain: Some(chain),
            lookup: Some(Lookup::Hit),
            agent: Some(Agent::Bearer),
            arguments: repeat.arguments.clone(),
            repeat: Some(repeat),
            ..Findings::default()
        },
    })
}

/// Whether Envoy sends the request where its rule says, if the rule says it. Envoy's routes may read a request differently
/// from our rules: `prefix: /admin` also takes `/adminx`.
fn goes_where_expected(rule: &Rule, world: &impl World) -> bool {
    rule.clusters.is_empty()
        || world
            .cluster()
            .is_some_and(|found| rule.clusters.iter().any(|cluster| cluster.as_bytes() == found))
}

/// Step 2.
fn route<'p, 'r>(policy: &'p Policy, request: &Request<'r>) -> Result<Option<Routed<'p, 'r>>, Denial> {
    if target::is_ambiguous_method(request.method) {
        return Err(Reason::MethodAmbiguous.into());
    }
    let target = Target::parse(request.path, policy.paths).map_err(|ambiguity| {
        // A CONNECT has no path, or one that is none: say what is wrong with the request, not with its path.
        if request.leaves_http {
            Reason::UpgradeDenied.into()
        } else {
            Denial::from(ambiguity)
        }
    })?;
    let host = Host::parse(request.authority)?;
    let found = match policy.routes.find(host, request, &target) {
        // Without a rule the request is denied anyway, and this says why more plainly.
        Err(Unclear::Spelling) if policy.unmatched == Unmatched::Deny => None,
        found => found?,
    };
    if host.is_ambiguous(policy.hosts) && found.as_ref().is_some_and(|found| found.leads_to.host_counts) {
        return Err(Reason::HostAmbiguous.into());
    }
    Ok(found.map(|found| Routed {
        rule: found.leads_to,
        index: found.index,
        host,
        target,
        captures: found.captures,
    }))
}

fn unmatched(policy: &Policy, request: &Request<'_>) -> Decision<Rc<Grant>> {
    match policy.unmatched {
        _ if request.leaves_http => Decision::Deny(Reason::UpgradeDenied.into()),
        Unmatched::Deny => Decision::Deny(Reason::NoRoute.into()),
        Unmatched::Allow => Decision::Allow(Allowance::Unmatched),
    }
}

/// One request under one rule that asks for a delegation.
struct Attempt<'a, 'r> {
    policy: &'a Policy,
    memories: &'a mut Memories,
    requirement: &'a Requirement,
    mode: Mode,
    request: &'a Request<'r>,
    findings: &'a mut Findings,
}

/// A delegation as presented.
enum Presented<'r> {
    /// It was verified before.
    Known(Rc<CachedChain>),
    /// It was not, or is forgotten.
    New { text: &'r str, key: CacheKey },
}

impl<'r> Attempt<'_, 'r> {
    /// Steps 4 and 5: what needs no arguments.
    fn establish(&mut self, world: &mut impl World) -> Result<Established, Denial> {
        let now = UnixTime(world.now().second());

        // What costs nothing first: are the pieces there, and is our own state fit to decide?
        let presented = self.presented(now)?;
        let proof = self.proof()?;
        let certificate = self.certificate(world)?;
        let takes_a_body = self.requirement.ignore_body || self.requirement.reads_body() || self.request.leaves_http;
        if self.request.has_body && !takes_a_body {
            return Err(Reason::BodyUnmapped.into());
        }
        if !world.can_record(None) {
            return Err(Reason::AuditFull.into());
        }
        self.check_freshness(world)?;

        let chain = self.chain(presented, now, world)?;
        self.check_still_valid(&chain, now, world)?;
        if !world.can_record(Some(chain.sharers.principal)) {
            return Err(Reason::AuditFull.into());
        }
        chain.chain.identifies_audience(&AudiencePolicy {
            identifiers: &self.requirement.audience,
            require_chain_audience: false,
        })?;
        chain.chain.grants(&self.requirement.tool)?;
        let proof = proof.map(|proof| self.verify_proof(&proof, &chain, now)).transpose()?;
        self.findings.verified |= proof.is_some();
        let leaf = chain.chain.leaf();
        let agent = match certificate {
            Some(certificate) => {
                self.check_certificate(leaf, &certificate, world)?;
                Agent::Certificate(certificate)
            }
            None if proof.is_some() => Agent::Key(leaf.holder().thumbprint()),
            None => Agent::Bearer,
        };
        // Who signed a proof has asked for what the proof says, which is not known yet to be what this request asks for.
        if proof.is_none() {
            self.findings.agent = Some(agent);
        }
        Ok(Established { chain, proof, agent })
    }

    /// Step 6, once the body is there: what the wait may have changed, then the rest.
    fn resume(
        &mut self,
        established: &Established,
        routed: &Routed<'_, 'r>,
        body: &[u8],
        world: &mut impl World,
    ) -> Result<Rc<Grant>, Denial> {
        if body.len() > self.policy.limits.body_bytes {
            return Err(Reason::BodyTooLarge.into());
        }
        if !world.can_record(Some(established.chain.sharers.principal)) {
            return Err(Reason::AuditFull.into());
        }
        self.check_freshness(world)?;
        let now = UnixTime(world.now().second());
        self.check_still_valid(&established.chain, now, world)?;
        // The memory of used proofs keeps none beyond its window: later ones would count as often as they were held.
        let window = self.policy.limits.verification.proof_window;
        if established
            .proof
            .as_ref()
            .is_some_and(|proof| proof.issued_at().distance(now) > window)
        {
            return Err(Reason::ProofOutsideWindow.into());
        }
        // Nothing at all is no JSON, and no body either.
        let body = (!body.is_empty()).then_some(body);
        self.authorize(established, routed, body, world)
    }

    /// Steps 7 and 8: the arguments.
    fn authorize(
        &mut self,
        established: &Established,
        routed: &Routed<'_, 'r>,
        body: Option<&[u8]>,
        world: &mut impl World,
    ) -> Result<Rc<Grant>, Denial> {
        let Requirement { tool, arguments, .. } = self.requirement;
        let Established { chain, proof, agent } = established;
        let arguments = arguments.read(&Arrived {
            request: self.request,
            host: routed.host,
            target: &routed.target,
            captures: &routed.captures,
            body,
        })?;
        if self.policy.audit.keeps_arguments() {
            self.findings.arguments = Some(arguments.canonical().into());
        }
        let covered = match proof {
            Some(proof) => proof.covers(&chain.chain, tool, &arguments),
            None => Ok(()),
        };
        if covered.is_ok() {
            self.findings.agent = Some(*agent);
        }
        chain.chain.permits(tool, &arguments)?;
        covered?;
        let grant = chain.grant(routed.index, *agent, || {
            let identity = Identity::new(&chain.chain, *agent, tool, self.policy.identity_headers)?;
            Ok::<_, Denial>(Grant::new(routed.index, *agent, identity))
        })?;
        // Last, because it is remembered: only what is otherwise allowed uses a proof up.
        if let Some(proof) = proof {
            // A decision that is not carried out uses nothing up: another filter may enforce it in a moment.
            if self.mode == Mode::Shadow {
                return Ok(grant);
            }
            self.remember(proof, chain, UnixTime(world.now().second()), world)?;
        }
        Ok(grant)
    }

    /// What the headers say of a body that is to be read.
    fn check_body_header(&self) -> Result<(), Denial> {
        body::check_media_type(self.request)?;
        let announced = match self.request.header("content-length") {
            Header::Once(length) => std::str::from_utf8(length).ok().and_then(|length| length.parse().ok()),
            Header::Absent | Header::Repeated => None,
        };
        if announced.is_some_and(|length: usize| length > self.policy.limits.body_bytes) {
            return Err(Reason::BodyTooLarge.into());
        }
        Ok(())
    }

    /// Whether we know enough of revocations, or the rule makes do with less for a chain that is known.
    fn check_freshness(&mut self, world: &impl World) -> Result<(), Denial> {
        match (world.freshness(), self.requirement.stale_limit) {
            (Freshness::Fresh, _) => {
                self.findings.stale = None;
                Ok(())
            }
            (Freshness::NeverSynced, _) => Err(Reason::NotReady.into()),
            (Freshness::Stale { age }, Some(limit)) if age <= limit => {
                self.findings.stale = Some(age);
                Ok(())
            }
            (Freshness::Stale { .. }, _) => Err(Reason::Stale.into()),
        }
    }

    /// Step 5's checks of every request, cached chain or not.
    fn check_still_valid(&self, chain: &CachedChain, now: UnixTime, world: &impl World) -> Result<(), Denial> {
        if chain.chain.expires_at() <= now {
            return Err(Reason::Expired.into());
        }
        self.check_revocation(chain, world)
    }

    /// The delegation as presented, and whether it is known. What is known needs no further look: it had one when it was
    /// not known yet.
    fn presented(&self, now: UnixTime) -> Result<Presented<'r>, Denial> {
        let presented = match self.request.delegation {
            Field::Absent => return Err(Reason::DelegationMissing.into()),
            Field::Repeated => return Err(Reason::DelegationRepeated.into()),
            Field::Once(value) => value,
        };
        if presented.len() > self.policy.limits.verification.chain_bytes {
            return Err(Reason::DelegationTooLarge.into());
        }
        let key = self.memories.cache.key(presented);
        if let Some(chain) = self.memories.cache.find(key, now) {
            return Ok(Presented::Known(chain));
        }
        if is_joined(presented) {
            return Err(Reason::DelegationRepeated.into());
        }
        let text = std::str::from_utf8(presented).map_err(|_| Reason::DelegationMalformed)?;
        Ok(Presented::New { text, key })
    }

    /// The proof, if the rule wants one; nothing in it has been verified.
    fn proof(&self) -> Result<Option<Proof<'r>>, Denial> {
        if self.requirement.proof != ProofKind::Pop {
            return Ok(None);
        }
        let presented = match self.request.proof {
            Field::Absent => return Err(Reason::ProofMissing.into()),
            Field::Repeated => return Err(Reason::ProofRepeated.into()),
            Field::Once(value) => value,
        };
        if presented.len() > self.policy.limits.proof_bytes {
            return Err(Reason::ProofTooLarge.into());
        }
        if is_joined(presented) {
            return Err(Reason::ProofRepeated.into());
        }
        let presented = std::str::from_utf8(presented).map_err(|_| Reason::ProofMalformed)?;
        Ok(Some(Proof::parse(presented, &self.policy.limits.verification)?))
    }

    /// The client's certificate, if the rule wants one.
    fn certificate(&self, world: &impl World) -> Result<Option<[u8; 32]>, Denial> {
        if self.requirement.proof != ProofKind::Mtls {
            return Ok(None);
        }
        world
            .client_certificate()
            .map(Some)
            .ok_or_else(|| Reason::CertificateMissing.into())
    }

    /// Whether the client's certificate is the one that the leaf's `cnf` names: by its digest, by the SPIFFE ID in it, or
    /// by both. A digest is that of one certificate, and TLS has proven its key; an ID is worth as much as the authority
    /// that put it there, so that it suffices only where Envoy has validated the certificate.
    fn check_certificate(
        &self,
        leaf: &VerifiedToken,
        certificate: &[u8; 32],
        world: &impl World,
    ) -> Result<(), Denial> {
        let (digest, spiffe_id) = (leaf.holder_certificate(), leaf.holder_spiffe_id());
        let is_named = digest.is_some() || (spiffe_id.is_some() && self.requirement.peer_validated);
        let is_the_one = digest.is_none_or(|digest| digest == certificate)
            && spiffe_id.is_none_or(|id| world.client_uri().is_some_and(|uri| uri == id.as_bytes()));
        if is_named && is_the_one {
            Ok(())
        } else {
            Err(Reason::CertificateMismatch.into())
        }
    }

    /// The verified chain: from the cache, or by verifying it now.
    fn chain(
        &mut self,
        presented: Presented<'_>,
        now: UnixTime,
        world: &mut impl World,
    ) -> Result<Rc<CachedChain>, Denial> {
        let chain = match presented {
            Presented::Known(chain) => {
                self.findings.lookup = Some(Lookup::Hit);
                chain
            }
            // What we have not seen while we were fresh, we do not begin to believe now.
            Presented::New { .. } if self.findings.stale.is_some() => return Err(Reason::Stale.into()),
            Presented::New { text, key } => {
                if let Some(denial) = self.memories.refused.find(key, revision_of(world)) {
                    self.findings.lookup = Some(Lookup::Refused);
                    return Err(denial);
                }
                self.verify(text, key, now, world)?
            }
        };
        self.findings.chain = Some(Rc::clone(&chain));
        Ok(chain)
    }

    /// Verifies a chain that the cache does not have, as far as nobody has verified it: neither we its beginning, nor
    /// another worker any of it.
    fn verify(
        &mut self,
        presented: &str,
        key: CacheKey,
        now: UnixTime,
        world: &mut impl World,
    ) -> Result<Rc<CachedChain>, Denial> {
        let limits = &self.policy.limits.verification;
        let context = VerificationContext {
            anchors: &self.policy.trust_anchors,
            holder_algorithms: &self.policy.holder_algorithms,
            limits,
            now,
            hot_keys: Some(&self.memories.hot_keys),
        };
        let beginnings = self
            .memories
            .cache
            .keys_of_beginnings(presented.as_bytes(), limits.delegation_depth as usize);
        let root = beginnings.last().copied();
        let known = beginnings
            .iter()
            .find_map(|beginning| self.memories.cache.find(*beginning, now));
        if let Err(denial) = self.check_beginnings(&beginnings, known.as_deref(), world) {
            self.findings.lookup = Some(Lookup::Refused);
            return Err(denial);
        }
        self.findings.lookup = Some(if known.is_some() {
            Lookup::Beginning
        } else {
            Lookup::Miss
        });
        let parsed = match &known {
            // The cache's key says that these are its tokens.
            Some(known) => Chain::parse_joined_after(&known.chain, presented, limits),
            None => Chain::parse_joined(presented, limits),
        };
        // A root that was refused is the first to be looked at, once the tokens below it have the right form.
        if let Some(denial) = root.and_then(|root| self.memories.refused.find(root, None))
            && let Ok(chain) = &parsed
            && chain.check_before_signatures(&context).is_ok()
        {
            self.findings.lookup = Some(Lookup::Refused);
            return Err(denial);
        }
        let keys = if self.memories.shared.is_on() {
            world.cache_keys().cloned()
        } else {
            None
        };
        let mut vouched = None;
        let verified = parsed.and_then(|chain| {
            let Some(keys) = &keys else {
                return chain.verify(&context);
            };
            // What costs no signature must not cost a look at what all workers share either.
            chain.check_before_signatures(&context)?;
            let Some(found) = self.memories.shared.find(&chain, now, world, keys) else {
                return chain.verify(&context);
            };
            let tokens = found.beginning.tokens();
            self.findings.lookup = Some(if tokens > beginnings.len() {
                Lookup::Shared
            } else {
                Lookup::Beginning
            });
            vouched = Some((tokens, found.sealed_with));
            found.beginning.verify_vouching_for_signatures(found.anchor, &context)
        });
        let chain = verified.inspect_err(|denial| {
            let of_root = root.filter(|_| denial.step.is_of_root());
            self.memories.refused.remember(of_root.unwrap_or(key), denial);
        })?;
        self.findings.verified = self.findings.lookup != Some(Lookup::Shared);
        let subject = chain.principal().subject.as_deref().unwrap_or_default();
        if chain.tokens().any(|token| token.id().len() > MAX_ID_BYTES) || subject.len() > MAX_ID_BYTES {
            self.memories.refused.remember_for_good(key, Reason::DelegationTooLarge);
            return Err(Reason::DelegationTooLarge.into());
        }
        // A revoked chain takes no cache place, here or among what the workers share.
        let cached = self.memories.cache.prepare(chain, now);
        if let Err(denial) = self.check_still_valid(&cached, now, world) {
            self.remember_revoked(&cached.chain, key, &beginnings, world);
            self.findings.chain = Some(cached);
            return Err(denial);
        }
        let (chain, principal) = (&cached.chain, cached.sharers.principal);
        let vouched_tokens = vouched.map_or(0, |(tokens, _)| tokens);
        let is_sealed = vouched_tokens > beginnings.len()
            && vouched.is_some_and(|(_, sealed_with)| sealed_with == SealedWith::Current);
        if keys.is_some() && !is_sealed {
            self.memories.shared.share(chain, principal);
        }
        // The next leaf under the same parent will be a new one too.
        if let (Some(parent_key), Some(parent)) = (beginnings.first(), chain.parent())
            && self.memories.cache.find(*parent_key, now).is_none()
        {
            if keys.is_some() && vouched_tokens < beginnings.len() {
                self.memories.shared.share(&parent, principal);
            }
            let parent = self.memories.cache.prepare(parent, now);
            self.memories.cache.insert(*parent_key, &parent, now);
        }
        self.memories.cache.insert(key, &cached, now);
        Ok(cached)
    }

    /// Whether what a chain begins with is known to be revoked: then what follows is not worth its signatures.
    fn check_beginnings(
        &self,
        beginnings: &[CacheKey],
        known: Option<&CachedChain>,
        world: &impl World,
    ) -> Result<(), Denial> {
        let revision = revision_of(world);
        let refused = &self.memories.refused;
        match beginnings.iter().find_map(|key| refused.find_revoked(*key, revision)) {
            Some(denial) => Err(denial),
            None => known.map_or(Ok(()), |known| self.check_revocation(known, world)),
        }
    }

    /// Remembers that a verified chain is revoked, if it is: by the shortest beginning of it that is, so that every
    /// other chain derived from that is denied without another signature.
    fn remember_revoked(&mut self, chain: &VerifiedChain, key: CacheKey, beginnings: &[CacheKey], world: &impl World) {
        let Some((view, revision)) = world.revocations() else {
            return;
        };
        let skew = self.policy.limits.verification.iat_skew;
        let Err(mut void) = revocation::void(chain, view, skew) else {
            return;
        };
        let (mut revoked, mut key) = (chain.clone(), key);
        for parent_key in beginnings {
            let Some(parent) = revoked.parent() else { break };
            match revocation::void(&parent, view, skew) {
                Ok(()) => break,
                Err(of_parent) => (void, revoked, key) = (of_parent, parent, *parent_key),
            }
        }
        let reason = Denial::from(void).reason;
        self.memories.refused.remember_revoked(key, reason, revision);
    }

    /// Looks the chain's subjects up, unless the view has not changed since they were last found unrevoked.
    fn check_revocation(&self, cached: &CachedChain, world: &impl World) -> Result<(), Denial> {
        let (view, revision) = world.revocations().ok_or(Reason::NotReady)?;
        if cached.unrevoked_at.get() != Some(revision) {
            let skew = self.policy.limits.verification.iat_skew;
            revocation::void(&cached.chain, view, skew).inspect_err(|_| cached.clear_used())?;
            cached.unrevoked_at.set(Some(revision));
        }
        Ok(())
    }

    fn verify_proof(&self, proof: &Proof<'_>, cached: &CachedChain, now: UnixTime) -> Result<VerifiedProof, Denial> {
        let context = ProofContext {
            holder_algorithms: &self.policy.holder_algorithms,
            audience: &self.requirement.audience,
            require_audience: true,
            nonce: NoncePolicy::NotRequired,
            limits: &self.policy.limits.verification,
            now,
            hot_keys: Some(&self.memories.hot_keys),
        };
        let proof = proof.verify(&cached.chain, &context)?;
        if self.requirement.nonce
            && !proof
                .nonce()
                .is_some_and(|nonce| self.memories.nonces.accept(nonce, now))
        {
            return Err(Reason::NonceRequired.into());
        }
        // The replay memory relies on it: what is used up before a restart must not look fresh after.
        if proof.issued_at() > now.plus(self.policy.limits.proof_clock_skew) {
            return Err(Reason::ProofOutsideWindow.into());
        }
        Ok(proof)
    }

    fn remember(
        &self,
        proof: &VerifiedProof,
        cached: &CachedChain,
        now: UnixTime,
        world: &mut impl World,
    ) -> Result<(), Denial> {
        let holder = cached.chain.leaf().holder().thumbprint();
        let used = UsedProof {
            holder: &holder,
            id: proof.id(),
            issued_at: proof.issued_at(),
        };
        self.memories.replay.remember(world, &used, now).map_err(|error| {
            match error {
                ReplayError::Replayed => Reason::ProofReplayed,
                ReplayError::PredatesMemory => Reason::ProofPredatesMemory,
                ReplayError::Full => Reason::ReplayMemoryFull,
                ReplayError::Store(_) => Reason::HostFailure,
            }
            .into()
        })
    }
}

/// The revision of the revocation view, if there is one yet.
fn revision_of(world: &impl World) -> Option<u64> {
    world.revocations().map(|(_, revision)| revision)
}

/// Tables of hot keys that one tick works out, at one to two milliseconds each, and once some ten for the base point.
const TABLES_PER_TICK: usize = 2;

/// Bytes of a token's `jti` and of a root's `sub`. All of them go into the audit event, and whoever mints or derives a
/// token chooses them: a chain of the longest must still leave an event that fits.
pub const MAX_ID_BYTES: usize = 256;

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
