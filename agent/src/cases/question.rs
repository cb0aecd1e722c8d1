//! One case for a verifier, and its decision: the draft's section 8 from the first step to the last.

use credence_delegation::{
    Algorithms, Arguments, AudiencePolicy, BoundToken, Cause, Chain, Denial, DpopContext, DpopProof, HttpUri,
    InadmissibleNumber, Limits, NoncePolicy, Proof, ProofContext, Step, TrustAnchors, UnixTime, VerificationContext,
    VerifiedChain,
};

/// A use of a chain, with its proof, service and time.
#[derive(Debug)]
pub struct Question {
    /// The accepted issuers of root tokens.
    pub anchors: TrustAnchors,
    /// The algorithms of derived tokens and proofs.
    pub holder_algorithms: Algorithms,
    /// The tokens, root first.
    pub chain: Vec<String>,
    /// The proof, if one is presented.
    pub proof: Option<String>,
    /// The tool.
    pub tool: String,
    /// The tool's arguments, unless one is a number that canonical JSON cannot represent.
    pub arguments: Result<Arguments, InadmissibleNumber>,
    /// The time of the decision.
    pub now: UnixTime,
    /// The enforcement point's own identifiers.
    pub audience: Vec<String>,
    /// What the enforcement point asks besides.
    pub policy: Policy,
}

/// What the draft leaves to the enforcement point.
#[derive(Debug)]
pub struct Policy {
    /// The proof that comes with the chain.
    pub proof: RequiredProof,
    /// Whether the proof must carry `aat_aud`.
    pub require_proof_audience: bool,
    /// Whether some token must carry `aud`.
    pub require_chain_audience: bool,
    /// The nonce that the proof must carry.
    pub nonce: Option<String>,
}

/// The proof that the enforcement point requires.
#[derive(Debug)]
pub enum RequiredProof {
    /// None: proofs are ignored, because the hop is authenticated otherwise.
    None,
    /// A proof of the draft.
    Pop,
    /// A DPoP proof (RFC 9449) for this request.
    Dpop {
        /// Its method.
        method: String,
        /// Its URI.
        uri: HttpUri,
    },
}

impl Question {
    /// Allows, or returns the first step that failed, in the draft's order.
    ///
    /// Replay detection (step 7i) is left out: it needs memory across requests.
    pub fn decide(&self) -> Result<(), Denial> {
        let limits = &Limits::default();
        let chain = Chain::parse(self.chain.iter().map(String::as_str), limits)?.verify(&VerificationContext {
            anchors: &self.anchors,
            holder_algorithms: &self.holder_algorithms,
            limits,
            now: self.now,
            hot_keys: None,
        })?;

        chain.grants(&self.tool)?;
        let arguments = self.arguments.as_ref().map_err(|error| Step::S6b.deny(error.clone()))?;
        chain.permits(&self.tool, arguments)?;
        chain.identifies_audience(&AudiencePolicy {
            identifiers: &self.audience,
            require_chain_audience: self.policy.require_chain_audience,
        })?;

        match &self.policy.proof {
            // RFC 9449, section 7.2; RFC 8705, section 3.
            RequiredProof::None if chain.is_bound_access_token() => Err(Step::S7a.deny(Cause::ProofMissing)),
            RequiredProof::None => Ok(()),
            RequiredProof::Pop => self.check_pop(&chain, arguments, limits),
            RequiredProof::Dpop { method, uri } => self.check_dpop(&chain, method, uri, limits),
        }
    }

    fn check_pop(&self, chain: &VerifiedChain, arguments: &Arguments, limits: &Limits) -> Result<(), Denial> {
        let nonces: Vec<&str> = self.policy.nonce.iter().map(String::as_str).collect();
        let verified = Proof::parse(self.presented_proof()?, limits)?.verify(
            chain,
            &ProofContext {
                holder_algorithms: &self.holder_algorithms,
                audience: &self.audience,
                require_audience: self.policy.require_proof_audience,
                nonce: if nonces.is_empty() {
                    NoncePolicy::NotRequired
                } else {
                    NoncePolicy::OneOf(&nonces)
                },
                limits,
                now: self.now,
                hot_keys: None,
            },
        )?;
        verified.covers(chain, &self.tool, arguments)
    }

    fn check_dpop(&self, chain: &VerifiedChain, method: &str, uri: &HttpUri, limits: &Limits) -> Result<(), Denial> {
        let proof = DpopProof::parse(self.presented_proof()?, &self.holder_algorithms, limits, None)?;
        let holder = chain.leaf().holder().thumbprint();
        let verified = proof.verify(&DpopContext {
            method,
            uris: std::slice::from_ref(uri),
            access_token: Some(BoundToken {
                text: &self.chain.join("~"),
                holder: holder.ok_or_else(|| Step::S7c.deny(Cause::HolderUnknown))?,
            }),
            limits,
            now: self.now,
            hot_keys: None,
        })?;
        match &self.policy.nonce {
            Some(nonce) if verified.nonce() != Some(nonce) => Err(Step::S7h.deny(Cause::Nonce)),
            Some(_) | None => Ok(()),
        }
    }

    fn presented_proof(&self) -> Result<&str, Denial> {
        let proof = self.proof.as_deref();
        proof.ok_or_else(|| Step::S7a.deny(Cause::ProofMissing))
    }
}
