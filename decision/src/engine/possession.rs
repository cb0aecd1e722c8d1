//! What a client shows besides its credential: that it holds the credential's key.

use credence_delegation::{
    BoundToken, DpopContext, DpopProof, HttpUri, NoncePolicy, Proof, ProofContext, UnixTime, VerifiedDpop,
    VerifiedProof, VerifiedToken,
};

use super::memories::Memories;
use super::world::World;
use crate::agent::Agent;
use crate::chains::CachedChain;
use crate::config::{Origin, Policy, ProofKind, Requirement};
use crate::decision::{Denial, Reason};
use crate::request::{Header, Request, is_joined};

/// One request, whose client must prove that it holds its credential's key.
pub(super) struct Possession<'a, 'r> {
    pub(super) policy: &'a Policy,
    pub(super) memories: &'a Memories,
    pub(super) requirement: &'a Requirement,
    pub(super) request: &'a Request<'r>,
}

/// A proof as presented. Nothing in it is verified.
#[derive(Debug)]
pub(super) enum PresentedProof<'r> {
    /// A proof of the draft.
    Pop(Proof<'r>),
    /// A DPoP proof.
    Dpop(Box<DpopProof<'r>>),
    /// The client's certificate, by its SHA-256. TLS has proven its key.
    Certificate([u8; 32]),
    /// The rule requires none.
    None,
}

/// A signed proof of this credential's holder.
#[derive(Debug)]
pub(super) enum SignedProof {
    /// It names an invocation, which is compared once the arguments are read.
    Pop(VerifiedProof),
    /// It is for this request's method and URI.
    Dpop(VerifiedDpop),
}

impl SignedProof {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Pop(proof) => proof.id(),
            Self::Dpop(proof) => proof.id(),
        }
    }

    pub(super) fn issued_at(&self) -> UnixTime {
        match self {
            Self::Pop(proof) => proof.issued_at(),
            Self::Dpop(proof) => proof.issued_at(),
        }
    }

    pub(super) fn nonce(&self) -> Option<&str> {
        match self {
            Self::Pop(proof) => proof.nonce(),
            Self::Dpop(proof) => proof.nonce(),
        }
    }
}

impl<'r> Possession<'_, 'r> {
    /// Reads the proof that the rule requires of this credential.
    pub(super) fn presented(&self, kind: ProofKind, world: &impl World) -> Result<PresentedProof<'r>, Denial> {
        let limits = &self.policy.limits.verification;
        Ok(match kind {
            ProofKind::Pop => PresentedProof::Pop(Proof::parse(self.proof_in(self.request.proof)?, limits)?),
            ProofKind::Dpop => {
                let compact = self.proof_in(self.request.header("dpop"))?;
                let algorithms = &self.policy.holder_algorithms;
                let proof = DpopProof::parse(compact, algorithms, limits, Some(&self.memories.hot_keys))?;
                PresentedProof::Dpop(Box::new(proof))
            }
            ProofKind::Mtls => {
                let certificate = world.client_certificate();
                PresentedProof::Certificate(certificate.ok_or(Reason::CertificateMissing)?)
            }
            ProofKind::None => PresentedProof::None,
        })
    }

    /// Verifies the proof for this chain: the agent, and the signed proof if it is one. `tokens` are the chain's, as
    /// presented.
    pub(super) fn verify(
        &self,
        presented: &PresentedProof<'_>,
        cached: &CachedChain,
        tokens: &[u8],
        now: UnixTime,
        world: &impl World,
    ) -> Result<(Agent, Option<SignedProof>), Denial> {
        let leaf = cached.chain.leaf();
        let signed = match presented {
            PresentedProof::Pop(proof) => SignedProof::Pop(self.verify_pop(proof, cached, now)?),
            PresentedProof::Dpop(proof) => SignedProof::Dpop(self.verify_dpop(proof, leaf, tokens, now)?),
            PresentedProof::Certificate(certificate) => {
                self.check_certificate(leaf, certificate, world)?;
                return Ok((Agent::Certificate(*certificate), None));
            }
            // RFC 9449, section 7.2; RFC 8705, section 3.
            PresentedProof::None if cached.chain.is_bound_access_token() => return Err(Reason::ProofMissing.into()),
            PresentedProof::None => return Ok((Agent::Bearer, None)),
        };
        let has_nonce = || {
            signed
                .nonce()
                .is_some_and(|nonce| self.memories.nonces.accept(nonce, now))
        };
        if self.requirement.nonce && !has_nonce() {
            return Err(Reason::NonceRequired.into());
        }
        // The replay memory relies on this: a proof that was used before a restart must not look fresh after it.
        if signed.issued_at() > now.plus(self.policy.limits.proof_clock_skew) {
            return Err(Reason::ProofOutsideWindow.into());
        }
        let holder = leaf.holder().thumbprint().ok_or(Reason::ProofSignatureInvalid)?;
        let agent = match signed {
            SignedProof::Pop(_) => Agent::Key(holder),
            SignedProof::Dpop(_) => Agent::DpopKey(holder),
        };
        Ok((agent, Some(signed)))
    }

    fn proof_in(&self, header: Header<'r>) -> Result<&'r str, Denial> {
        let presented = match header {
            Header::Absent => return Err(Reason::ProofMissing.into()),
            Header::Repeated => return Err(Reason::ProofRepeated.into()),
            Header::Once(value) => value,
        };
        if presented.len() > self.policy.limits.proof_bytes {
            return Err(Reason::ProofTooLarge.into());
        }
        if is_joined(presented) {
            return Err(Reason::ProofRepeated.into());
        }
        std::str::from_utf8(presented).map_err(|_| Reason::ProofMalformed.into())
    }

    fn verify_pop(&self, proof: &Proof<'_>, cached: &CachedChain, now: UnixTime) -> Result<VerifiedProof, Denial> {
        let context = ProofContext {
            holder_algorithms: &self.policy.holder_algorithms,
            audience: &self.requirement.audience,
            require_audience: true,
            nonce: NoncePolicy::NotRequired,
            limits: &self.policy.limits.verification,
            now,
            hot_keys: Some(&self.memories.hot_keys),
        };
        Ok(proof.verify(&cached.chain, &context)?)
    }

    fn verify_dpop(
        &self,
        proof: &DpopProof<'_>,
        leaf: &VerifiedToken,
        tokens: &[u8],
        now: UnixTime,
    ) -> Result<VerifiedDpop, Denial> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Reason::RequestMalformed);
        let origins = self
            .requirement
            .authorization
            .as_ref()
            .map(|read| read.origins.as_slice());
        let context = DpopContext {
            method: text(self.request.method)?,
            uris: &uris(self.request, origins.unwrap_or_default()),
            access_token: Some(BoundToken {
                text: text(tokens)?,
                holder: leaf.holder().thumbprint().ok_or(Reason::ProofMismatch)?,
            }),
            limits: &self.policy.limits.verification,
            now,
            hot_keys: Some(&self.memories.hot_keys),
        };
        Ok(proof.verify(&context)?)
    }

    /// Checks the client's certificate against the leaf's `cnf`: by its digest, by its SPIFFE ID, or by both. A digest
    /// names one certificate, and TLS has proven its key. An ID is only as trustworthy as the authority that signed it,
    /// so it suffices only if Envoy has validated the certificate.
    fn check_certificate(
        &self,
        leaf: &VerifiedToken,
        certificate: &[u8; 32],
        world: &impl World,
    ) -> Result<(), Denial> {
        let (digest, spiffe_id) = (leaf.holder().certificate(), leaf.holder().spiffe_id());
        let is_named = digest.is_some() || (spiffe_id.is_some() && self.requirement.peer_validated);
        let is_the_one = digest.is_none_or(|digest| digest == certificate)
            && spiffe_id.is_none_or(|id| world.client_uri().is_some_and(|uri| uri == id.as_bytes()));
        if is_named && is_the_one {
            Ok(())
        } else {
            Err(Reason::CertificateMismatch.into())
        }
    }
}

/// The URIs by which the client may have named this request: at the configured origins, or else as Envoy routes it.
fn uris(request: &Request<'_>, origins: &[Origin]) -> Vec<HttpUri> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let path = text(request.path).split(['?', '#']).next().unwrap_or_default();
    if !origins.is_empty() {
        let at = |origin: &Origin| HttpUri::new(&origin.scheme, &origin.authority, path);
        return origins.iter().filter_map(at).collect();
    }
    let scheme = match request.header(":scheme") {
        Header::Once(scheme) => text(scheme),
        Header::Absent | Header::Repeated => "",
    };
    HttpUri::new(scheme, text(request.authority), path)
        .into_iter()
        .collect()
}
