//! Proof of possession: the PoP JWT that a holder signs for each invocation (draft section 7; section 8, step 7).

use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::jws::{self, Header, Jws};
use crate::key::{Algorithms, HotKeys};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::token;
use crate::value::Arguments;
use crate::verified::VerifiedChain;

/// The media type of a proof (draft section 3.5).
pub(crate) const TYP: &str = "aat-pop+jwt";

/// A proof as presented. Nothing in it has been verified.
#[derive(Debug)]
pub struct Proof<'a> {
    jws: Jws<'a>,
    header: Header,
    payload: Vec<u8>,
}

/// The context of a proof's verification.
#[derive(Debug, Clone, Copy)]
pub struct ProofContext<'a> {
    /// The allowed algorithms of proofs.
    pub holder_algorithms: &'a Algorithms,
    /// The enforcement point's own audience identifiers.
    pub audience: &'a [String],
    /// Whether `aat_aud` must be present (draft section 9.5).
    pub require_audience: bool,
    /// Whether and which nonce is required.
    pub nonce: NoncePolicy<'a>,
    /// Limits of size and time.
    pub limits: &'a Limits,
    /// The current time.
    pub now: UnixTime,
    /// Tables of frequently used keys, which make their signatures cheaper.
    pub hot_keys: Option<&'a HotKeys>,
}

/// Whether proofs must carry a nonce (draft section 8, step 7h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoncePolicy<'a> {
    /// None is required, and a present one is ignored.
    NotRequired,
    /// It must be one of these.
    OneOf(&'a [&'a str]),
}

/// A proof that the presenter holds the leaf key of the chain it was verified with.
///
/// It names its invocation, but does not prove that the present request is that one, nor that it is the first use:
/// check [`VerifiedProof::covers`], and remember [`VerifiedProof::id`].
#[derive(Debug, Clone)]
pub struct VerifiedProof {
    id: String,
    /// The hash of the token it was made for.
    token_hash: String,
    issued_at: UnixTime,
    nonce: Option<String>,
    tool: String,
    /// `hta` in canonical form.
    arguments: String,
}

impl<'a> Proof<'a> {
    /// Reads a PoP JWT and makes the checks that need no key: its size and its header (step 7a).
    ///
    /// # Errors
    /// Step 7a.
    pub fn parse(compact: &'a str, limits: &Limits) -> Result<Self, Denial> {
        Step::S7a.check_size("the proof", compact.len(), limits.token_bytes)?;
        let deny = |cause| Step::S7a.deny(cause);
        let jws = Jws::parse(compact).map_err(deny)?;
        let header = jws.header(TYP).map_err(deny)?;
        let payload = jws.payload().map_err(deny)?;
        Ok(Self { jws, header, payload })
    }

    /// Verifies the proof under the chain's leaf key: steps 7a to 7d, 7g and 7h.
    ///
    /// # Errors
    /// The step that failed.
    pub fn verify(&self, chain: &VerifiedChain, context: &ProofContext<'_>) -> Result<VerifiedProof, Denial> {
        let leaf = chain.leaf();
        let algorithm = self.header.algorithm;
        let key = leaf
            .holder()
            .key()
            .ok_or_else(|| Step::S7b.deny(Cause::HolderUnknown))?;
        let is_allowed = context.holder_algorithms.allow(algorithm) && key.fits(algorithm);
        Step::S7a.ensure(is_allowed, Cause::AlgorithmNotAllowed)?;
        let is_signed = self.jws.verifies(key, context.hot_keys);
        Step::S7b.ensure(is_signed, Cause::SignatureInvalid)?;
        let json = Json::parse(&self.payload).map_err(|error| Step::S7b.deny(error))?;
        let claims = jws::claims(&json).map_err(|cause| Step::S7b.deny(cause))?;
        let ProofClaims {
            id,
            token_id,
            token_hash,
            tool,
            issued_at,
            arguments,
        } = ProofClaims::read(claims)?;
        let is_for_leaf = token_id == leaf.id() && token_hash == leaf.claims.hash;
        Step::S7c.ensure(is_for_leaf, ANOTHER_TOKEN)?;
        check_audience(claims, context)?;
        let is_recent = issued_at.distance(context.now) <= context.limits.proof_window;
        Step::S7g.ensure(is_recent, Cause::ProofTime)?;
        let nonce = claims.text("nonce");
        if let NoncePolicy::OneOf(accepted) = context.nonce
            && !nonce.is_some_and(|nonce| accepted.contains(&nonce))
        {
            return Err(Step::S7h.deny(Cause::Nonce));
        }
        Ok(VerifiedProof {
            id: id.to_owned(),
            token_hash: token_hash.to_owned(),
            issued_at,
            nonce: nonce.map(str::to_owned),
            tool: tool.to_owned(),
            arguments,
        })
    }
}

impl VerifiedProof {
    /// The proof's `jti`, which its holder must never use twice.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The proof's `iat`.
    pub fn issued_at(&self) -> UnixTime {
        self.issued_at
    }

    /// The proof's `nonce`, if it is a text: for callers that recognise accepted nonces instead of listing them
    /// ([`NoncePolicy::NotRequired`]).
    pub fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }

    /// Checks that the proof was made for this invocation, under the leaf of this chain: steps 7e and 7f.
    ///
    /// # Errors
    /// The step that failed; 7c if it was verified with another chain.
    pub fn covers(&self, chain: &VerifiedChain, tool: &str, arguments: &Arguments) -> Result<(), Denial> {
        Step::S7c.ensure(self.token_hash == chain.leaf().claims.hash, ANOTHER_TOKEN)?;
        Step::S7e.ensure(self.tool == tool, Cause::ProofMismatch("it is for another tool"))?;
        let is_same = self.arguments == arguments.canonical();
        Step::S7f.ensure(is_same, Cause::ProofMismatch("it is for other arguments"))
    }
}

const ANOTHER_TOKEN: Cause = Cause::ProofMismatch("it is for another token");

/// The claims that every proof has (step 7c).
struct ProofClaims<'a> {
    id: &'a str,
    token_id: &'a str,
    token_hash: &'a str,
    tool: &'a str,
    issued_at: UnixTime,
    /// `hta` in canonical form.
    arguments: String,
}

impl<'a> ProofClaims<'a> {
    fn read(claims: &'a Object<'_>) -> Result<Self, Denial> {
        let text = |name| token::text(claims, name, Step::S7c);
        Ok(Self {
            id: text("jti")?,
            token_id: text("aat_id")?,
            token_hash: text("aat_hash")?,
            tool: text("aat_tool")?,
            issued_at: token::time(claims, "iat", Step::S7c)?,
            arguments: claims
                .object("hta")
                .ok_or_else(|| Step::S7c.claim("hta", "an object"))
                .and_then(|hta| Arguments::from_json(hta).map_err(|error| Step::S7c.deny(error)))?
                .canonical(),
        })
    }
}

/// Checks the claims of a proof before it is signed.
pub(crate) fn check_claims(claims: &str) -> Result<(), Denial> {
    let json = Json::parse(claims.as_bytes()).map_err(|error| Step::S7b.deny(error))?;
    let claims = jws::claims(&json).map_err(|cause| Step::S7b.deny(cause))?;
    ProofClaims::read(claims).map(|_| ())
}

/// Step 7d. `aat_aud` has the semantics of `aud`: a string, or an array of strings.
fn check_audience(claims: &Object<'_>, context: &ProofContext<'_>) -> Result<(), Denial> {
    let is_ours = |name: &Json<'_>| {
        name.as_str()
            .is_some_and(|name| context.audience.iter().any(|ours| ours == name))
    };
    let identified = match claims.member("aat_aud") {
        None => !context.require_audience,
        Some(Json::Array(names)) => names.iter().any(is_ours),
        Some(name) => is_ours(name),
    };
    Step::S7d.ensure(identified, Cause::Audience)
}
