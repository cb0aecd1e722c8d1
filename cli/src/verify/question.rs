//! One case for a verifier, and its decision: the draft's section 8 from the first step to the last.

use credence_delegation::{
    Algorithms, Arguments, AudiencePolicy, Cause, Chain, Denial, InadmissibleNumber, Limits, NoncePolicy, Proof,
    ProofContext, Step, TrustAnchors, UnixTime, VerificationContext,
};

/// A use of a chain, with its proof, service and time.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) anchors: TrustAnchors,
    /// The algorithms of derived tokens and proofs.
    pub(super) holder_algorithms: Algorithms,
    /// The tokens, root first.
    pub(super) chain: Vec<String>,
    pub(super) proof: Option<String>,
    pub(super) tool: String,
    pub(super) arguments: Result<Arguments, InadmissibleNumber>,
    pub(super) now: UnixTime,
    /// The enforcement point's own identifiers.
    pub(super) audience: Vec<String>,
    pub(super) policy: Policy,
}

/// What the draft leaves to the enforcement point.
#[derive(Debug)]
pub(super) struct Policy {
    /// Whether proofs are ignored, because the hop is authenticated otherwise.
    pub(super) ignores_proof: bool,
    /// Whether the proof must carry `aat_aud`.
    pub(super) require_proof_audience: bool,
    /// Whether some token must carry `aud`.
    pub(super) require_chain_audience: bool,
    /// The nonce that the proof must carry.
    pub(super) nonce: Option<String>,
}

impl Question {
    /// Allows, or returns the first step that failed, in the draft's order.
    ///
    /// Replay detection (step 7i) is left out: it needs memory across requests.
    pub(super) fn decide(&self) -> Result<(), Denial> {
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

        if self.policy.ignores_proof {
            return Ok(());
        }
        let proof = self
            .proof
            .as_deref()
            .ok_or_else(|| Step::S7a.deny(Cause::ProofMissing))?;
        let nonces: Vec<&str> = self.policy.nonce.iter().map(String::as_str).collect();
        let verified = Proof::parse(proof, limits)?.verify(
            &chain,
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
        verified.covers(&chain, &self.tool, arguments)
    }
}
