//! What a chain says of itself to a revocation log. Nothing of it is verified: whoever asks whether a chain is revoked
//! has verified it, or does not believe it for other reasons.

use crate::anchor::TrustAnchors;
use crate::chain::no_candidate;
use crate::denial::{Cause, Denial, Step};
use crate::json::Json;
use crate::jws::Jws;
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
    /// The step of the draft at which the chain can not be read.
    pub fn read(joined: &str, anchors: &TrustAnchors, limits: &Limits) -> Result<Self, Denial> {
        Step::S2b.check_size("the chain", joined.len(), limits.chain_bytes)?;
        let (mut read, rest) = match joined.split_once('~') {
            Some((root, rest)) => (Self::read_root(root, anchors)?, Some(rest)),
            None => (Self::read_root(joined, anchors)?, None),
        };
        let depth = usize::try_from(limits.delegation_depth).unwrap_or(usize::MAX);
        for derived in rest.into_iter().flat_map(|rest| rest.split('~')) {
            let (tokens, limit) = (read.tokens.len().saturating_add(1), depth.saturating_add(1));
            Step::S2b.ensure(tokens <= limit, Cause::TooLong { tokens, limit })?;
            read.add(derived, |_| Ok(()))?;
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
        let mut read = Self {
            issuer: String::new(),
            subject: None,
            asserts_subjects: false,
            root_epoch: None,
            issued_at: UnixTime(0),
            keys: Vec::new(),
            tokens: Vec::new(),
        };
        let header = jws(root)?.header(token::TYP).map_err(|cause| Step::S3a.deny(cause))?;
        let mut found = None;
        read.add(root, |claims| {
            let issuer = token::issuer(claims)?.to_owned();
            let issued_at = claims.integer("iat").map(UnixTime);
            let issued_at = issued_at.ok_or_else(|| malformed("iat is not whole seconds since the Unix epoch"))?;
            found = Some((issuer, token::subject(claims)?, token::epoch(claims)?, issued_at));
            Ok(())
        })?;
        let Some((issuer, subject, root_epoch, issued_at)) = found else {
            return Err(malformed("the root can not be read"));
        };
        let candidates = anchors
            .candidates(Some(&issuer), header.algorithm, header.key_id.as_deref())
            .map_err(no_candidate)?;
        read.keys
            .extend(candidates.iter().map(|anchor| anchor.key.thumbprint()));
        read.asserts_subjects = candidates.iter().any(|anchor| anchor.asserts_subjects);
        read.subject = subject.filter(|_| read.asserts_subjects);
        read.issuer = issuer;
        read.root_epoch = root_epoch;
        read.issued_at = issued_at;
        Ok(read)
    }

    /// Takes one more token in: its holder, its id, and what else its reader wants of it.
    fn add(
        &mut self,
        compact: &str,
        also: impl FnOnce(&crate::json::Object<'_>) -> Result<(), Denial>,
    ) -> Result<(), Denial> {
        let payload = jws(compact)?
            .payload()
            .ok_or_else(|| malformed("a token's payload is not base64url"))?;
        let json = Json::parse(&payload).map_err(|error| Step::S2c.deny(error))?;
        let claims = json
            .as_object()
            .ok_or_else(|| malformed("a token's claims are not a JSON object"))?;
        let id = claims.text("jti").filter(|id| !id.is_empty());
        let holder = claims
            .object("cnf")
            .and_then(|cnf| cnf.member("jwk"))
            .ok_or_else(|| malformed("a token has no cnf.jwk"))?;
        let holder = PublicKey::from_jwk(holder).map_err(|error| Step::S2c.deny(error))?;
        also(claims)?;
        let instant = |name| claims.integer(name).map(UnixTime);
        self.tokens.push(PresentedToken {
            id: id.ok_or_else(|| malformed("a token has no jti"))?.to_owned(),
            issued_at: instant("iat").ok_or_else(|| malformed("a token has no iat in whole seconds"))?,
            expires_at: instant("exp").ok_or_else(|| malformed("a token has no exp in whole seconds"))?,
        });
        self.keys.push(holder.thumbprint());
        Ok(())
    }
}

fn jws(compact: &str) -> Result<Jws<'_>, Denial> {
    Jws::parse(compact).ok_or_else(|| malformed("a token is three parts joined by dots (RFC 7515)"))
}

fn malformed(what: &str) -> Denial {
    Step::S2c.malformed(what)
}
