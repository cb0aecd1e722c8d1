//! DPoP: the JWT by which a client proves, for one request, that it holds the key of its access token (RFC 9449).
//!
//! The checks are those of section 4.3, in its numbering. They are denied at the steps of the draft's own proofs (section
//! 8, step 7) that ask the same: 7a header, 7b signature, 7c claims and token, 7e method and URI, 7g time, 7h nonce.

use sha2::{Digest as _, Sha256};

use crate::base64url;
use crate::denial::{Cause, Denial, Step};
use crate::json::Json;
use crate::jws::{self, Jws};
use crate::key::{Algorithms, HotKeys, PublicKey, Thumbprint};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::token;
use crate::uri::HttpUri;

/// The media type of a DPoP proof (RFC 9449, section 4.2).
pub(crate) const TYP: &str = "dpop+jwt";

/// A DPoP proof as presented. Nothing in it has been verified.
#[derive(Debug)]
pub struct DpopProof<'a> {
    jws: Jws<'a>,
    key: PublicKey,
    payload: Vec<u8>,
}

/// The request that a proof must be for.
#[derive(Debug, Clone, Copy)]
pub struct DpopContext<'a> {
    /// The request's method.
    pub method: &'a str,
    /// The request's URI, in every form in which its client may have written scheme and host; query and fragment do not
    /// count.
    pub uris: &'a [HttpUri],
    /// The access token that comes with it. There is none at a token endpoint (RFC 9449, section 5): then any key is
    /// accepted, and `ath` is not read.
    pub access_token: Option<BoundToken<'a>>,
    /// Limits of time.
    pub limits: &'a Limits,
    /// The current time.
    pub now: UnixTime,
    /// Tables of frequently used keys, which make their signatures cheaper.
    pub hot_keys: Option<&'a HotKeys>,
}

/// An access token that only the holder of a key may use.
#[derive(Debug, Clone, Copy)]
pub struct BoundToken<'a> {
    /// The token as presented.
    pub text: &'a str,
    /// The key's thumbprint (`cnf.jkt`; RFC 9449, section 6.1).
    pub holder: Thumbprint,
}

/// A proof by the holder of a key, for one request. Whether it was used before is not known.
#[derive(Debug, Clone)]
pub struct VerifiedDpop {
    id: String,
    issued_at: UnixTime,
    nonce: Option<String>,
}

impl<'a> DpopProof<'a> {
    /// Reads a proof and makes the checks that need no signature: 2 to 5 and 7 of RFC 9449, section 4.3.
    ///
    /// # Errors
    /// Step 7a.
    pub fn parse(
        compact: &'a str,
        algorithms: &Algorithms,
        limits: &Limits,
        hot_keys: Option<&HotKeys>,
    ) -> Result<Self, Denial> {
        Step::S7a.check_size("the proof", compact.len(), limits.token_bytes)?;
        let deny = |cause| Step::S7a.deny(cause);
        let jws = Jws::parse(compact).map_err(deny)?;
        let (header, key) = jws.header_with_key(TYP, hot_keys).map_err(deny)?;
        let is_allowed = algorithms.allow(header.algorithm) && key.fits(header.algorithm);
        Step::S7a.ensure(is_allowed, Cause::AlgorithmNotAllowed)?;
        let payload = jws.payload().map_err(deny)?;
        Ok(Self { jws, key, payload })
    }

    /// The key in the proof's header. That the client holds it is not verified yet.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Verifies the proof for this request and its access token: checks 6 and 8 to 12, except that a nonce is ours.
    ///
    /// # Errors
    /// The step that failed.
    pub fn verify(&self, context: &DpopContext<'_>) -> Result<VerifiedDpop, Denial> {
        // Check 12, its second half, before the signature: it is cheaper.
        let is_bound = context
            .access_token
            .is_none_or(|token| token.holder == self.key.thumbprint());
        Step::S7c.ensure(is_bound, Cause::ProofMismatch("its key is not the access token's"))?;
        let is_signed = self.jws.verifies(&self.key, context.hot_keys);
        Step::S7b.ensure(is_signed, Cause::SignatureInvalid)?;
        let json = Json::parse(&self.payload).map_err(|error| Step::S7b.deny(error))?;
        let claims = jws::claims(&json).map_err(|cause| Step::S7b.deny(cause))?;
        let text = |name| token::text(claims, name, Step::S7c);
        let (id, method, uri) = (text("jti")?, text("htm")?, text("htu")?);
        let issued_at = token::time(claims, "iat", Step::S7c)?;
        if let Some(token) = context.access_token {
            let is_of_token = text("ath")? == base64url::encode(Sha256::digest(token.text));
            Step::S7c.ensure(is_of_token, Cause::ProofMismatch("ath is another access token's"))?;
        }
        let is_method = method == context.method;
        Step::S7e.ensure(is_method, Cause::ProofMismatch("htm is another method"))?;
        let is_uri = HttpUri::parse(uri).is_some_and(|uri| context.uris.contains(&uri));
        Step::S7e.ensure(is_uri, Cause::ProofMismatch("htu is another URI"))?;
        let is_recent = issued_at.distance(context.now) <= context.limits.proof_window;
        Step::S7g.ensure(is_recent, Cause::ProofTime)?;
        Ok(VerifiedDpop {
            id: id.to_owned(),
            issued_at,
            nonce: claims.text("nonce").map(str::to_owned),
        })
    }
}

impl VerifiedDpop {
    /// The proof's `jti`, which its holder must never use twice.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The proof's `iat`.
    pub fn issued_at(&self) -> UnixTime {
        self.issued_at
    }

    /// The proof's `nonce`, if it has one.
    pub fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }
}
