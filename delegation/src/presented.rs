//! What a chain says of itself to a revocation log. Nothing of it is verified: a caller that asks whether a chain
//! is revoked verifies it itself.

use crate::anchor::TrustAnchors;
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::jws::{self, Jws};
use crate::key::{PublicKey, Thumbprint};
use crate::limits::Limits;
use crate::revocation::{Facts, NamedToken, RevocationView, Void, void_of};
use crate::time::UnixTime;
use crate::token;

/// The facts by which a presented chain may be revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedChain {
    issuer: String,
    subject: Option<String>,
    asserts_subjects: bool,
    root_epoch: Option<u64>,
    issued_at: UnixTime,
    keys: Vec<Thumbprint>,
    tokens: Vec<PresentedToken>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PresentedToken {
    id: String,
    issued_at: UnixTime,
    expires_at: UnixTime,
}

impl PresentedChain {
    /// Reads a chain whose tokens are joined by `~`, root first. Its issuer must be among the anchors, which say whether
    /// `sub` counts. Of several keys that may have signed the root, each counts as one of the chain's.
    ///
    /// # Errors
    /// The step of the draft at which the chain cannot be read.
    pub fn read(joined: &str, anchors: &TrustAnchors, limits: &Limits) -> Result<Self, Denial> {
        Step::S2b.check_size("the chain", joined.len(), limits.chain_bytes)?;
        let mut presented = joined.split('~');
        let mut read = Self::read_root(presented.next().unwrap_or_default(), anchors)?;
        let limit = (limits.delegation_depth as usize).saturating_add(1);
        for derived in presented {
            let tokens = read.tokens.len().saturating_add(1);
            Step::S2b.ensure(tokens <= limit, Cause::TooLong { tokens, limit })?;
            let payload = payload(derived)?;
            let (token, holder) = PresentedToken::read(claims(&parse(&payload)?)?)?;
            read.tokens.push(token);
            read.keys.push(holder);
        }
        Ok(read)
    }

    /// The root's issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Says whether the log voids the chain, as [`crate::revocation::void`] does for one that is verified.
    ///
    /// # Errors
    /// The first reason found.
    pub fn void(&self, view: &impl RevocationView, skew: u64) -> Result<(), Void> {
        let facts = Facts {
            issuer: &self.issuer,
            subject: self.subject.as_deref(),
            asserts_subjects: self.asserts_subjects,
            root_epoch: self.root_epoch,
            issued_at: self.issued_at,
        };
        void_of(
            &facts,
            self.keys.iter().copied(),
            self.tokens.iter().map(|token| NamedToken {
                id: &token.id,
                span: Some((token.issued_at, token.expires_at)),
            }),
            view,
            skew,
        )
    }

    fn read_root(root: &str, anchors: &TrustAnchors) -> Result<Self, Denial> {
        let jws = Jws::parse(root).map_err(|cause| Step::S2c.deny(cause))?;
        let header = jws.header(token::TYP).map_err(|cause| Step::S3a.deny(cause))?;
        let payload = payload(root)?;
        let json = parse(&payload)?;
        let claims = claims(&json)?;
        let (token, holder) = PresentedToken::read(claims)?;
        let issuer = token::issuer(claims)?;
        let subject = token::subject(claims)?;
        let root_epoch = token::epoch(claims)?;
        let candidates = anchors.candidates(Some(issuer), header.algorithm, header.key_id.as_deref())?;
        let asserts_subjects = candidates.iter().any(|anchor| anchor.asserts_subjects);
        let of_anchors = candidates.iter().map(|anchor| anchor.key.thumbprint());
        Ok(Self {
            issuer: issuer.to_owned(),
            subject: subject.filter(|_| asserts_subjects),
            asserts_subjects,
            root_epoch,
            issued_at: token.issued_at,
            keys: of_anchors.chain([holder]).collect(),
            tokens: vec![token],
        })
    }
}

impl PresentedToken {
    /// One token, and its holder.
    fn read(claims: &Object<'_>) -> Result<(Self, Thumbprint), Denial> {
        let holder = claims
            .at(&["cnf", "jwk"])
            .ok_or_else(|| malformed("a token has no cnf.jwk"))?;
        let holder = PublicKey::from_jwk(holder).map_err(|error| Step::S2c.deny(error))?;
        let token = Self {
            id: token::id(claims, Step::S2c)?,
            issued_at: token::time(claims, "iat", Step::S2c)?,
            expires_at: token::time(claims, "exp", Step::S2c)?,
        };
        Ok((token, holder.thumbprint()))
    }
}

/// A token's payload, not decoded as JSON yet.
fn payload(compact: &str) -> Result<Vec<u8>, Denial> {
    Jws::parse(compact)
        .and_then(|jws| jws.payload())
        .map_err(|cause| Step::S2c.deny(cause))
}

fn parse(payload: &[u8]) -> Result<Json<'_>, Denial> {
    Json::parse(payload).map_err(|error| Step::S2c.deny(error))
}

fn claims<'j, 'a>(json: &'j Json<'a>) -> Result<&'j Object<'a>, Denial> {
    jws::claims(json).map_err(|cause| Step::S2c.deny(cause))
}

fn malformed(what: &str) -> Denial {
    Step::S2c.malformed(what)
}
