//! Revocation statements: a principal, or an issuer for its subjects, revokes with only its key.
//!
//! The draft leaves revocation to deployments (section 9.8). A statement is a JWS of media type `revocation+jwt` (RFC
//! 7519, explicitly typed after RFC 8725, section 3.11, so that tokens and statements cannot be confused), in the
//! compact form, signed with the key of a trust anchor:
//!
//! | claim | | meaning |
//! |---|---|---|
//! | `iss` | required | the anchor's issuer, whose key signs |
//! | `sub` | optional | the principal's name at that issuer; only from an anchor that asserts subjects. Without it the principal is the issuer itself |
//! | `aud` | required | the audience of the statement; one of the verifier's own identifiers must be among them |
//! | `iat`, `exp` | required | whole seconds; `exp` is at most [`Limits::statement_lifetime`] after `iat` |
//! | `jti` | required | names the statement in the evidence |
//! | `revoke` | required | an object of exactly one member, below |
//!
//! | member of `revoke` | value | revokes |
//! |---|---|---|
//! | `epoch` | integer from 0 to 2^53-1 | everything granted in this epoch of the principal and before. It is the epoch to raise *from*: a captured statement has no second effect |
//! | `delegation` | the `jti` of every token from the root to the revoked one, 2 to 9 of them; or one `jti` | that token and everything derived from it, among the principal's. A single `jti` counts wherever it occurs |
//! | `key` | RFC 7638 thumbprint | everything that the key signs. The key must belong only to this issuer, without `sub`: an issuer cannot revoke the keys of another |
//! | `issued_until` | whole seconds | every root that the issuer issued up to then. Without `sub`, and not in the future, except for [`Limits::iat_skew`] |
//!
//! Any key of an issuer revokes for the whole issuer, including its other keys.
//!
//! Unlike in a token, a `sub` that the anchor may not assert is refused instead of ignored: a statement about one
//! subject must not become one about the issuer. Repeating a statement has no further effect, so a verifier needs no
//! memory of `jti`.

use std::ops::Deref;

use crate::anchor::{TrustAnchor, TrustAnchors};
use crate::denial::Cause;
use crate::json::{Json, Object};
use crate::jws::{self, Header, Jws, TokenType};
use crate::key::Thumbprint;
use crate::limits::{EPOCH_LIMIT, Limits};
use crate::time::UnixTime;
use crate::token;
use crate::unverified_claims::UnverifiedClaims;

/// The media type of a statement.
pub(crate) const TYP: &str = "revocation+jwt";

/// A statement as presented. Nothing in it has been verified.
#[derive(Debug)]
pub struct Statement<'a> {
    jws: Jws<'a>,
    header: Header,
    payload: Vec<u8>,
    unverified: UnverifiedClaims,
}

/// The context of a statement's verification.
#[derive(Debug, Clone, Copy)]
pub struct StatementContext<'a> {
    /// The anchors whose statements are accepted.
    pub anchors: &'a TrustAnchors,
    /// The verifier's own audience identifiers, such as the revocation log's.
    pub audience: &'a [String],
    /// Limits of size and time.
    pub limits: &'a Limits,
    /// The current time.
    pub now: UnixTime,
}

/// A revocation by a principal, or by an issuer for its subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationOrder {
    /// `jti`: unique; a UUIDv7 is recommended.
    pub id: String,
    /// `iss`: the issuer's URI.
    pub issuer: String,
    /// `sub`: the principal's name at the issuer; none if it is the issuer.
    pub subject: Option<String>,
    /// `aud`: the recipients; at least one.
    pub audience: Vec<String>,
    /// `iat`.
    pub issued_at: UnixTime,
    /// `exp`: from then on, the statement is refused.
    pub expires_at: UnixTime,
    /// `revoke`.
    pub revocation: Revocation,
}

/// An order with a verified signature. Only verification creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedStatement {
    order: RevocationOrder,
    signed_by: Thumbprint,
}

/// What a statement revokes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    /// Everything that the principal granted in this epoch and before. It raises the epoch if this is still the present
    /// one.
    Epoch(u64),
    /// One token, among the principal's, and everything derived from it.
    Delegation {
        /// The ids of the tokens above it, root first, at most 8. If empty, the id counts wherever it occurs.
        under: Vec<String>,
        /// Its id.
        id: String,
    },
    /// Everything that this key of the issuer signs.
    Key(Thumbprint),
    /// Every root token that the issuer issued up to this time.
    IssuedUntil(UnixTime),
}

/// Why a statement is refused. The texts are for its sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// It cannot be read: its size, its form, its header, or a claim that is missing or invalid. A member of `revoke`
    /// is written like the claim `revoke.key`.
    #[error("{0}")]
    Unreadable(#[from] Cause),
    /// No trust anchor has signed it.
    #[error("{0}")]
    Untrusted(Cause),
    /// `exp` has passed.
    #[error("the statement has expired: sign a new one")]
    Expired,
    /// `iat` is in the future.
    #[error("the statement's iat is in the future: set the clock of its signer")]
    IssuedInFuture,
    /// `exp` is not after `iat`, or too long after it.
    #[error("the statement's lifetime is empty or longer than {0} seconds")]
    Lifetime(u64),
    /// The statement is addressed to another audience.
    #[error("the statement is for another audience (aud)")]
    Audience,
    /// The issuer does not own the key to revoke, or not alone.
    #[error("the configured trust anchors do not give the key to this issuer alone; let an operator revoke it")]
    ForeignKey,
}

impl<'a> Statement<'a> {
    /// Reads a statement and makes the checks that need no key: its size, its form and its header.
    ///
    /// # Errors
    /// See [`StatementError`].
    pub fn parse(compact: &'a str, limits: &Limits) -> Result<Self, StatementError> {
        let (size, limit) = (compact.len(), limits.statement_bytes);
        if size > limit {
            let what = "the statement";
            return Err(Cause::TooLarge { what, size, limit }.into());
        }
        let jws = Jws::parse(compact)?;
        let header = jws.header(TYP)?;
        let payload = jws.payload()?;
        let unverified = UnverifiedClaims::of(&payload).map_err(Cause::from)?;
        Ok(Self {
            jws,
            header,
            payload,
            unverified,
        })
    }

    /// Verifies the statement. The checks of its age, issuer and algorithm come before any signature.
    ///
    /// # Errors
    /// See [`StatementError`].
    pub fn verify(&self, context: &StatementContext<'_>) -> Result<VerifiedStatement, StatementError> {
        if self.unverified.expired(context.now) {
            return Err(StatementError::Expired);
        }
        let Header { algorithm, key_id } = &self.header;
        let anchor = context
            .anchors
            .candidates(
                self.unverified.issuer.as_deref(),
                TokenType::Delegation,
                *algorithm,
                key_id.as_deref(),
            )
            .map_err(|denial| StatementError::Untrusted(denial.cause))?
            .into_iter()
            .find(|anchor| self.jws.verifies(&anchor.key, None))
            .ok_or(StatementError::Untrusted(Cause::SignatureInvalid))?;
        let order = RevocationOrder::parse(&self.payload)?;
        order.check(context.now, context.limits)?;
        if order.issuer != anchor.issuer {
            return Err(StatementError::Untrusted(Cause::IssuerUnknown));
        }
        if !order.audience.iter().any(|name| context.audience.contains(name)) {
            return Err(StatementError::Audience);
        }
        order.check_authority(anchor, context.anchors)?;
        let signed_by = anchor.key.thumbprint();
        Ok(VerifiedStatement { order, signed_by })
    }
}

impl VerifiedStatement {
    /// The issuer's key that signed it.
    pub fn signed_by(&self) -> Thumbprint {
        self.signed_by
    }
}

impl Deref for VerifiedStatement {
    type Target = RevocationOrder;

    fn deref(&self) -> &RevocationOrder {
        &self.order
    }
}

/// Reads a statement as a verifier that trusts its signer would.
pub(crate) fn check(compact: &str, now: UnixTime, limits: &Limits) -> Result<(), StatementError> {
    let statement = Statement::parse(compact, limits)?;
    RevocationOrder::parse(&statement.payload)?.check(now, limits)
}

impl RevocationOrder {
    /// Reads all claims without checking them.
    fn parse(payload: &[u8]) -> Result<Self, StatementError> {
        let json = Json::parse(payload).map_err(Cause::from)?;
        let claims = jws::claims(&json)?;
        let text = |name| {
            let text = claims.text(name);
            text.filter(|text| !text.is_empty())
                .map(str::to_owned)
                .ok_or_else(|| wrong(name, "a string that is not empty"))
        };
        let time = |name| time(claims, name).ok_or_else(|| wrong(name, "whole seconds since the Unix epoch"));
        Ok(Self {
            issuer: text("iss")?,
            subject: claims.member("sub").map(|_| text("sub")).transpose()?,
            audience: token::audience(claims)
                .filter(|names| !names.is_empty())
                .ok_or_else(|| wrong("aud", "a string, or an array of strings"))?,
            id: text("jti")?,
            issued_at: time("iat")?,
            expires_at: time("exp")?,
            revocation: Revocation::parse(claims)?,
        })
    }

    /// Checks the times, which do not depend on trust.
    fn check(&self, now: UnixTime, limits: &Limits) -> Result<(), StatementError> {
        if self.expires_at <= now {
            return Err(StatementError::Expired);
        }
        if self.issued_at > now.plus(limits.iat_skew) {
            return Err(StatementError::IssuedInFuture);
        }
        if self.expires_at <= self.issued_at || self.expires_at > self.issued_at.plus(limits.statement_lifetime) {
            return Err(StatementError::Lifetime(limits.statement_lifetime));
        }
        let of_one_subject = self.subject.is_some();
        match self.revocation {
            Revocation::Epoch(_) | Revocation::Delegation { .. } => Ok(()),
            Revocation::Key(_) | Revocation::IssuedUntil(_) if of_one_subject => Err(wrong(
                "sub",
                "absent if a key or a time is revoked, because these affect all subjects of the issuer",
            )),
            // A time in the future would permanently revoke tokens that are not issued yet.
            Revocation::IssuedUntil(until) if until > now.plus(limits.iat_skew) => {
                Err(wrong("revoke.issued_until", "not in the future"))
            }
            Revocation::Key(_) | Revocation::IssuedUntil(_) => Ok(()),
        }
    }

    /// Checks that the anchor has the authority for this.
    fn check_authority(&self, anchor: &TrustAnchor, anchors: &TrustAnchors) -> Result<(), StatementError> {
        if self.subject.is_some() && !anchor.asserts_subjects {
            return Err(wrong("sub", "absent: this issuer has no subjects"));
        }
        // An issuer cannot revoke a key that it shares with another issuer, since that would revoke the other one's
        // tokens.
        let is_own = |key: Thumbprint| {
            let mut issuers = anchors
                .iter()
                .filter(|anchor| anchor.key.thumbprint() == key)
                .peekable();
            issuers.peek().is_some() && issuers.all(|owner| owner.issuer == anchor.issuer)
        };
        match self.revocation {
            Revocation::Key(key) if !is_own(key) => Err(StatementError::ForeignKey),
            Revocation::Key(_) | Revocation::Epoch(_) | Revocation::Delegation { .. } | Revocation::IssuedUntil(_) => {
                Ok(())
            }
        }
    }
}

impl Revocation {
    fn parse(claims: &Object<'_>) -> Result<Self, StatementError> {
        let revoke = claims.object("revoke").ok_or_else(|| wrong("revoke", ONE_MEMBER))?;
        let mut members = revoke.iter();
        let (Some((name, value)), None) = (members.next(), members.next()) else {
            return Err(wrong("revoke", ONE_MEMBER));
        };
        match name {
            "epoch" => value
                .as_integer()
                .and_then(|epoch| u64::try_from(epoch).ok())
                .filter(|&epoch| epoch < EPOCH_LIMIT)
                .map(Self::Epoch)
                .ok_or_else(|| wrong("revoke.epoch", "the epoch to raise from, an integer from 0 to 2^53-1")),
            "delegation" => Self::parse_delegation(value).ok_or_else(|| {
                wrong(
                    "revoke.delegation",
                    "a token's jti, or those of 2 to 9 tokens from the root to the revoked one: strings that are not \
                     empty",
                )
            }),
            "key" => value
                .as_str()
                .and_then(Thumbprint::parse)
                .map(Self::Key)
                .ok_or_else(|| wrong("revoke.key", "a key's SHA-256 thumbprint in base64url (RFC 7638)")),
            "issued_until" => time(revoke, "issued_until")
                .map(Self::IssuedUntil)
                .ok_or_else(|| wrong("revoke.issued_until", "whole seconds since the Unix epoch")),
            _ => Err(wrong("revoke", ONE_MEMBER)),
        }
    }

    fn parse_delegation(value: &Json<'_>) -> Option<Self> {
        let id = |value: &Json<'_>| value.as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        match value.as_array() {
            None => id(value).map(|id| Self::Delegation { under: Vec::new(), id }),
            Some(path) => {
                let mut under = path.iter().map(id).collect::<Option<Vec<_>>>()?;
                let last = under.pop()?;
                (1..=MAX_UNDER)
                    .contains(&under.len())
                    .then_some(Self::Delegation { under, id: last })
            }
        }
    }
}

fn time(claims: &Object<'_>, name: &str) -> Option<UnixTime> {
    claims.integer(name).map(UnixTime)
}

fn wrong(claim: &'static str, expected: &'static str) -> StatementError {
    Cause::Claim { claim, expected }.into()
}

/// A chain has at most nine tokens ([`Limits::delegation_depth`]).
const MAX_UNDER: usize = 8;

const ONE_MEMBER: &str = "an object of exactly one member: epoch, delegation, key or issued_until";
