//! One request under one rule that requires a delegation.

use std::rc::Rc;

use credence_delegation::{Arguments, AudiencePolicy, UnixTime, VerifiedChain};

use super::called::Called;
use super::memories::Memories;
use super::possession::{Possession, PresentedProof, SignedProof};
use super::routing::Routed;
use super::verdict::{Findings, SessionFindings};
use super::verification::{ChainLookup, Presented, check_still_valid};
use super::world::World;
use crate::agent::Agent;
use crate::arguments::{Arrived, body};
use crate::chains::CachedChain;
use crate::config::{Mode, Policy, Requirement};
use crate::credential::Credential;
use crate::decision::{Denial, Reason};
use crate::grant::Grant;
use crate::identity_headers::Identity;
use crate::mcp::session::{Owner, SESSION_HEADERS};
use crate::mcp::{self, presentation};
use crate::mcp::{SessionUse, Source};
use crate::oauth::Needed;
use crate::proofs::UsedProof;
use crate::request::{Header, Request, is_joined};
use crate::revocation::Freshness;

/// One request under one rule that requires a delegation.
pub(super) struct Attempt<'a, 'r> {
    pub(super) policy: &'a Policy,
    pub(super) memories: &'a mut Memories,
    pub(super) requirement: &'a Requirement,
    pub(super) mode: Mode,
    pub(super) request: &'a Request<'r>,
    pub(super) findings: &'a mut Findings,
}

/// The checked properties of a request's headers: everything except its arguments.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) chain: Rc<CachedChain>,
    pub(super) proof: Option<SignedProof>,
    pub(super) agent: Agent,
}

impl<'a, 'r> Attempt<'a, 'r> {
    /// Makes all checks that need no arguments.
    pub(super) fn establish(&mut self, world: &mut impl World) -> Result<Established, Denial> {
        let now = UnixTime(world.now().second());

        // Cheap checks first: are all parts present, and does the filter's own state permit a decision?
        let credential = Credential::of(self.request, self.requirement)?;
        let presented = self.presented(credential, now)?;
        let proof = self
            .possession()
            .presented(credential.proof(self.requirement)?, world)?;
        let takes_a_body = self.requirement.ignore_body || self.requirement.reads_body() || self.request.leaves_http;
        if self.request.has_body && !takes_a_body {
            return Err(Reason::BodyUnmapped.into());
        }
        if !world.can_record(None) {
            return Err(Reason::AuditFull.into());
        }
        self.check_freshness(world)?;

        let mut lookup = ChainLookup {
            policy: self.policy,
            memories: self.memories,
            findings: self.findings,
            now,
        };
        let chain = lookup.chain(presented, world)?;
        check_still_valid(self.policy, &chain, now, world)?;
        if !world.can_record(Some(chain.sharers.principal)) {
            return Err(Reason::AuditFull.into());
        }
        chain.chain.identifies_audience(&AudiencePolicy {
            identifiers: &self.requirement.audience,
            require_chain_audience: false,
        })?;
        // A delegation is no access token. An access token alone is a delegation only for the holder of its key.
        let is_bearer = matches!(proof, PresentedProof::None);
        let is_token = chain.chain.is_access_token();
        if credential.is_access_token() != is_token && (credential.is_access_token() || is_bearer) {
            return Err(Reason::DelegationMalformed.into());
        }
        if let Some(tool) = self.requirement.tool() {
            let granted = chain.chain.grants(tool);
            granted.map_err(|denial| self.not_granted(denial, &chain.chain, tool, None))?;
        }
        let (agent, proof) = self
            .possession()
            .verify(&proof, &chain, credential.tokens, now, world)?;
        self.findings.verified |= proof.is_some();
        // The signer of a proof requested what the proof says. Whether that is this request is not known yet.
        if !matches!(proof, Some(SignedProof::Pop(_))) {
            self.findings.agent = Some(agent);
        }
        if self.awaits_body() {
            body::check_headers(self.request, self.policy.limits.body_bytes)?;
        }
        Ok(Established { chain, proof, agent })
    }

    /// After the body has arrived: repeats the checks that the wait may have changed, then authorizes.
    pub(super) fn resume(
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
        check_still_valid(self.policy, &established.chain, now, world)?;
        // The replay memory forgets proofs after their window: without this check, a held proof could count twice.
        let window = self.policy.limits.verification.proof_window;
        if established
            .proof
            .as_ref()
            .is_some_and(|proof| proof.issued_at().distance(now) > window)
        {
            return Err(Reason::ProofOutsideWindow.into());
        }
        // An empty body is not JSON, and counts as absent.
        let body = (!body.is_empty()).then_some(body);
        self.authorize(established, routed, body, world)
    }

    /// Checks the arguments against the proof and the chain's constraints, then marks the proof as used.
    pub(super) fn authorize(
        &mut self,
        established: &Established,
        routed: &Routed<'_, 'r>,
        body: Option<&[u8]>,
        world: &mut impl World,
    ) -> Result<Rc<Grant>, Denial> {
        let Established { chain, proof, agent } = established;
        let called = self.called(routed, body)?;
        if let Called::Mcp(call) = &called {
            self.find_session(call.session, Owner::new(&routed.rule.name, &chain.chain), world)?;
        }
        let (needed, proven, arguments) = (called.needed(), called.proven(), called.arguments());
        if self.policy.audit.keeps_arguments() {
            self.findings.arguments = Some(arguments.canonical().into());
        }
        let covered = match proof {
            Some(SignedProof::Pop(proof)) => proof.covers(&chain.chain, proven, arguments),
            Some(SignedProof::Dpop(_)) | None => Ok(()),
        };
        if covered.is_ok() {
            self.findings.agent = Some(*agent);
        }
        if let Some(tool) = needed {
            let permitted = match self.requirement.mcp() {
                Some(endpoint) if endpoint.source == Source::Headers => chain.chain.permits_all(tool),
                _ => chain.chain.permits(tool, arguments),
            };
            permitted.map_err(|denial| self.not_granted(denial, &chain.chain, tool, Some(arguments)))?;
        }
        covered?;
        let own_tool = match &called {
            Called::Tool(..) => None,
            Called::Mcp(call) => call.tool.clone(),
        };
        let grant = chain.grant(routed.index, *agent, own_tool.as_deref(), || {
            let identity = Identity::new(&chain.chain, *agent, needed, self.policy.identity_headers)?;
            Ok::<_, Denial>(Grant::new(routed.index, *agent, own_tool.clone(), identity))
        })?;
        // Last, because it is remembered: only a request that is otherwise allowed uses its proof up.
        if let Some(proof) = proof {
            // A shadow decision uses no proof up: another filter may enforce the same request.
            if self.mode == Mode::Shadow {
                return Ok(grant);
            }
            self.remember(proof, chain, UnixTime(world.now().second()), world)?;
        }
        Ok(grant)
    }

    /// What the request calls.
    fn called(&mut self, routed: &Routed<'_, 'r>, body: Option<&[u8]>) -> Result<Called<'a>, Denial> {
        if self.requirement.mcp().is_none() {
            return Called::read(self.requirement, routed, self.request, body, &mut None);
        }
        let findings = self.findings.mcp.get_or_insert_default();
        let called = Called::read(self.requirement, routed, self.request, body, &mut findings.id)?;
        if let Called::Mcp(call) = &called {
            if call.presents && !findings.presents {
                return Err(Reason::CredentialsAmbiguous.into());
            }
            findings.method = Some(Rc::clone(&call.method));
            findings.tool.clone_from(&call.tool);
        }
        Ok(called)
    }

    /// Checks the arguments that a request has before its body: its headers go on.
    pub(super) fn check_before_body(&self, established: &Established, routed: &Routed<'_, 'r>) -> Result<(), Denial> {
        let read = self.requirement.arguments.read(&Arrived {
            request: self.request,
            host: routed.host,
            target: &routed.target,
            captures: &routed.captures,
            body: None,
            awaits_body: true,
        })?;
        match self.requirement.tool() {
            Some(tool) => Ok(established.chain.chain.permits_so_far(tool, &read)?),
            None => Ok(()),
        }
    }

    /// The grant of headers that go on before their body is read: the tool is known only if it is the rule's.
    pub(super) fn grant_headers(
        &mut self,
        rule: &str,
        rule_index: usize,
        established: &Established,
        world: &impl World,
    ) -> Result<Rc<Grant>, Denial> {
        let Established { chain, agent, .. } = established;
        if self.requirement.mcp().is_some() {
            let uses = match mcp::is_stateless(self.request) {
                true => SessionUse::None,
                false => SessionUse::Possible,
            };
            self.find_session(uses, Owner::new(rule, &chain.chain), world)?;
        }
        let identity = Identity::new(
            &chain.chain,
            *agent,
            self.requirement.tool(),
            self.policy.identity_headers,
        )?;
        Ok(Rc::new(Grant::new(rule_index, *agent, None, identity)))
    }

    /// Finds the session that the request is in, unless it is in none. A shadow decision seals no ids, so it opens none.
    fn find_session(&mut self, uses: SessionUse, owner: Owner, world: &impl World) -> Result<(), Denial> {
        if uses == SessionUse::None || self.mode == Mode::Shadow {
            return Ok(());
        }
        let opened = SESSION_HEADERS.map(|(header, named)| match self.request.header(header) {
            Header::Absent => Ok(None),
            Header::Repeated => Err(Reason::McpSessionInvalid),
            Header::Once(presented) => {
                let keys = world.session_keys().ok_or(Reason::NotReady)?;
                let presented = std::str::from_utf8(presented).ok();
                let id = presented.and_then(|presented| owner.open(keys, named, presented));
                id.map(|id| Some(Box::from(id))).ok_or(Reason::McpSessionInvalid)
            }
        });
        let [session, event] = opened;
        let (session, event) = (session?, event?);
        if uses == SessionUse::Required && session.is_none() {
            return Err(Reason::McpSessionInvalid.into());
        }
        self.findings.mcp.get_or_insert_default().session = Some(SessionFindings {
            owner,
            ids: [session, event],
        });
        Ok(())
    }

    /// Whether the rule reads the request's body.
    pub(super) fn awaits_body(&self) -> bool {
        self.request.has_body && self.requirement.reads_body()
    }

    /// Whether the request's body may have its credential, since its headers have none.
    pub(super) fn awaits_credential(&self) -> bool {
        let Request {
            delegation,
            proof,
            authorization,
            ..
        } = self.request;
        let has_none = *delegation == Header::Absent && *proof == Header::Absent && *authorization == Header::Absent;
        let may_present = self
            .requirement
            .mcp()
            .is_some_and(|endpoint| endpoint.delegation_in_meta);
        may_present && has_none && self.request.has_body && self.request.method == b"POST"
    }

    /// Makes the checks that need no credential.
    pub(super) fn check_unpresented(&mut self, world: &mut impl World) -> Result<(), Denial> {
        if !world.can_record(None) {
            return Err(Reason::AuditFull.into());
        }
        self.check_freshness(world)?;
        body::check_headers(self.request, self.policy.limits.body_bytes.min(presentation::MAX_BYTES))
    }

    /// Whether the revocation state is fresh enough, or the rule accepts an older one for a known chain.
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

    /// The presented delegation, and whether it is known. A known one needs no further check: it passed them when it
    /// was new.
    fn presented(&self, credential: Credential<'r>, now: UnixTime) -> Result<Presented<'r>, Denial> {
        let presented = credential.tokens;
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

    fn possession(&self) -> Possession<'_, 'r> {
        Possession {
            policy: self.policy,
            memories: self.memories,
            requirement: self.requirement,
            request: self.request,
        }
    }

    /// The denial of a call that the chain does not grant. Notes what another access token of this issuer would need,
    /// for the challenge.
    fn not_granted(
        &mut self,
        denial: credence_delegation::Denial,
        chain: &VerifiedChain,
        tool: &str,
        arguments: Option<&Arguments>,
    ) -> Denial {
        let mut denial = Denial::from(denial);
        if denial.reason == Reason::ToolNotGranted {
            denial.argument = Some(tool.to_owned());
        }
        if self.requirement.authorization.is_some() && chain.is_access_token() {
            let (anchors, issuer) = (&self.policy.trust_anchors, Some(&*chain.principal().issuer));
            self.findings.needed = Needed::find(anchors, issuer, tool, arguments);
        }
        denial
    }

    fn remember(
        &self,
        proof: &SignedProof,
        cached: &CachedChain,
        now: UnixTime,
        world: &mut impl World,
    ) -> Result<(), Denial> {
        let holder = cached
            .chain
            .leaf()
            .holder()
            .thumbprint()
            .ok_or(Reason::ProofSignatureInvalid)?;
        let used = UsedProof {
            holder: &holder,
            id: proof.id(),
            issued_at: proof.issued_at(),
            has_nonce: proof
                .nonce()
                .is_some_and(|nonce| self.memories.nonces.accept(nonce, now)),
        };
        Ok(self.memories.replay.remember(world, &used, now)?)
    }
}
