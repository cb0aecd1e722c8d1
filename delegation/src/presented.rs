//! The claims of a chain for a query of the revocation log. Nothing is verified: the caller verifies the chain itself.

use crate::anchor::TrustAnchors;
use crate::denial::{Cause, Denial, Step};
use crate::json::Object;
use crate::jws::Jws;
use crate::key::Thumbprint;
use crate::limits::Limits;
use crate::revocation::{Facts, NamedToken, RevocationReason, RevocationView, check_facts};
use crate::time::UnixTime;
use crate::token::{self, Holder};

/// The facts by which a presented chain may be revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedChain {
    /// The root's issuer.
    pub issuer: String,
    /// The principal's name at the issuer, if it has several principals.
    pub subject: Option<String>,
    /// Whether it has several principals.
    pub asserts_subjects: bool,
    /// Other issuers where the same subject is the same principal.
    pub same_principals: Vec<String>,
    /// The root's `rev_epoch`.
    pub root_epoch: Option<u64>,
    /// The root's `iat`.
    pub issued_at: UnixTime,
    /// The keys of the anchors that may have signed the root, and of every holder.
    pub keys: Vec<Thumbprint>,
    /// The tokens, root first.
    pub tokens: Vec<PresentedToken>,
}

/// A token of such a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedToken {
    /// `jti`.
    pub id: String,
    /// `iat` and `exp`. Without them, the caller checks that the log's [`Memory`](crate::revocation::Memory) covers the
    /// token.
    pub span: Option<(UnixTime, UnixTime)>,
}

impl PresentedChain {
    /// Reads a chain whose tokens are joined by `~`, root first. Its issuer must be among the anchors, which determine
    /// whether `sub` counts. If several keys may have signed the root, each counts as a key of the chain.
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
            let (token, holder) = parse(derived)?.read_claims(Step::S2c, PresentedToken::read)?;
            read.tokens.push(token);
            read.keys.extend(holder);
        }
        Ok(read)
    }

    /// Checks that the log does not revoke the chain, as [`crate::revocation::check_revocation`] does for a verified one.
    ///
    /// # Errors
    /// The first reason found.
    pub fn check_revocation(&self, view: &impl RevocationView, skew: u64) -> Result<(), RevocationReason> {
        let facts = Facts {
            issuer: &self.issuer,
            subject: self.subject.as_deref(),
            asserts_subjects: self.asserts_subjects,
            same_principals: &self.same_principals,
            root_epoch: self.root_epoch,
            issued_at: self.issued_at,
        };
        let tokens = self.tokens.iter().map(|token| NamedToken {
            id: &token.id,
            span: token.span,
        });
        check_facts(&facts, self.keys.iter().copied(), tokens, view, skew)
    }

    fn read_root(root: &str, anchors: &TrustAnchors) -> Result<Self, Denial> {
        let jws = parse(root)?;
        let (header, token_type) = jws.header_of_token().map_err(|cause| Step::S3a.deny(cause))?;
        jws.read_claims(Step::S2c, |claims| {
            let (token, holder) = PresentedToken::read(claims)?;
            let issuer = token::issuer(claims)?;
            let subject = token::subject(claims)?;
            let root_epoch = token::epoch(claims)?;
            let candidates =
                anchors.candidates(Some(issuer), token_type, header.algorithm, header.key_id.as_deref())?;
            let asserts_subjects = candidates.iter().any(|anchor| anchor.asserts_subjects);
            let of_anchors = candidates.iter().map(|anchor| anchor.key.thumbprint());
            Ok(Self {
                issuer: issuer.to_owned(),
                subject: subject.filter(|_| asserts_subjects),
                asserts_subjects,
                same_principals: candidates
                    .first()
                    .map(|anchor| anchor.same_principals.clone())
                    .unwrap_or_default(),
                root_epoch,
                issued_at: token::time(claims, "iat", Step::S2c)?,
                keys: of_anchors.chain(holder).collect(),
                tokens: vec![token],
            })
        })
    }
}

impl PresentedToken {
    /// One token, and its holder.
    fn read(claims: &Object<'_>) -> Result<(Self, Option<Thumbprint>), Denial> {
        let holder = Holder::confirmed(claims, Step::S2c, None)?;
        let id = token::id(claims, Step::S2c)?;
        let issued_at = token::time(claims, "iat", Step::S2c)?;
        let expires_at = token::time(claims, "exp", Step::S2c)?;
        let span = Some((issued_at, expires_at));
        Ok((Self { id, span }, holder.thumbprint()))
    }
}

fn parse(compact: &str) -> Result<Jws<'_>, Denial> {
    Jws::parse(compact).map_err(|cause| Step::S2c.deny(cause))
}
