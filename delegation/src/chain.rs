//! A delegation as presented: the chain of tokens from the root to the leaf, and its verification (draft section 8).

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use crate::access_token::Users;
use crate::anchor::{TrustAnchor, TrustAnchors};
use crate::base64url;
use crate::batch::Batch;
use crate::denial::{Cause, Denial, Step};
use crate::json::Json;
use crate::jws::{self, Header, Jws, TokenType};
use crate::key::{Algorithms, HotKeys, KeyType, PublicKey, Thumbprint};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::token::{self, Claims, DerivedClaims, VerifiedToken};
use crate::unverified_claims::UnverifiedClaims;
use crate::verified::{Origin, Principal, VerifiedChain};

/// A chain as presented. Nothing in it has been verified, except the tokens that it shares with a known chain.
#[derive(Debug)]
pub struct Chain<'a> {
    head: Head<'a>,
    derived: Vec<Token<'a>>,
}

/// The context of a chain's verification.
#[derive(Debug, Clone, Copy)]
pub struct VerificationContext<'a> {
    /// The accepted issuers of root tokens.
    pub anchors: &'a TrustAnchors,
    /// The allowed algorithms of derived tokens.
    pub holder_algorithms: &'a Algorithms,
    /// Limits of size, depth and time.
    pub limits: &'a Limits,
    /// The current time.
    pub now: UnixTime,
    /// Tables of frequently used keys, which make their signatures cheaper.
    pub hot_keys: Option<&'a HotKeys>,
}

/// The first tokens of a presented chain, or all of them: a part that may have been verified before.
///
/// A digest identifies the tokens. Signatures that another worker has verified are vouched for here, and only here, so
/// that a statement about one chain cannot be used for another.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'c, 'a> {
    chain: &'c Chain<'a>,
    tokens: usize,
    digest: [u8; 32],
}

/// How to verify the signatures of the tokens that are not part of a known chain.
enum Signatures<'s> {
    /// Each one as soon as its key is known.
    Verified,
    /// The caller states that it has verified the first ones.
    Vouched {
        /// How many of the chain's tokens, from the root.
        tokens: usize,
        /// The key of the trust anchor that signed the root.
        anchor: Thumbprint,
    },
    /// Later, in this batch. The verified chain is valid only if all of its signatures verify.
    Deferred(&'s mut Batch),
}

/// The beginning of a chain.
#[derive(Debug)]
enum Head<'a> {
    /// A root token, which has to be verified.
    Root(Box<Token<'a>>),
    /// All tokens of an already verified chain.
    Known(Known<'a>),
}

/// A chain that was verified before.
#[derive(Debug, Clone, Copy)]
struct Known<'a>(&'a VerifiedChain);

/// One token, its header read and its payload decoded.
#[derive(Debug)]
struct Token<'a> {
    jws: Jws<'a>,
    header: Result<(Header, TokenType), Cause>,
    payload: Vec<u8>,
    unverified: UnverifiedClaims,
    /// The result of [`Jws::hash_and_digest`], once computed: a hash over the whole token.
    names: OnceLock<(String, [u8; 32])>,
}

impl<'a> Chain<'a> {
    /// Reads the tokens, root first, and makes all checks that need no key: steps 1 to 2c.
    ///
    /// # Errors
    /// The step that failed.
    pub fn parse(tokens: impl IntoIterator<Item = &'a str>, limits: &Limits) -> Result<Self, Denial> {
        let mut parsed = parse_all(&within_limits(tokens, limits)?)?.into_iter();
        let root = parsed.next().ok_or_else(|| Step::S1.deny(Cause::Empty))?;
        Self::of(Head::Root(Box::new(root)), parsed.collect())
    }

    /// Splits the `delegation` header's value: tokens joined by `~`, root first.
    ///
    /// # Errors
    /// The step that failed.
    pub fn parse_joined(joined: &'a str, limits: &Limits) -> Result<Self, Denial> {
        Step::S2b.check_size("the chain", joined.len(), limits.chain_bytes)?;
        Self::parse(joined.split('~'), limits)
    }

    /// The same for a chain that begins with all tokens of `known`, an already verified chain: for example a cached
    /// one, from which a new leaf was derived.
    ///
    /// Those tokens are neither decoded nor verified again. Checks that depend on time and configuration are repeated:
    /// expiry, dates, lifetimes, depths, and whether the trust anchor and the algorithms still allow them. The result
    /// is that of [`Chain::parse_joined`].
    ///
    /// The caller states that the tokens are the same byte for byte, signatures included; this function cannot detect a
    /// wrong statement. A cache that finds chains by a keyed hash of them can make it. `known` is only used if a token
    /// follows it, which its holder has signed.
    ///
    /// # Errors
    /// The step that failed.
    pub fn parse_joined_after(known: &'a VerifiedChain, joined: &'a str, limits: &Limits) -> Result<Self, Denial> {
        Step::S2b.check_size("the chain", joined.len(), limits.chain_bytes)?;
        let tokens = within_limits(joined.split('~'), limits)?;
        match tokens.split_at_checked(known.tokens().count()) {
            Some((shared, new @ [_, ..])) => {
                debug_assert!(
                    known
                        .tokens()
                        .zip(shared)
                        .all(|(token, compact)| token.digest == jws::digest(compact)),
                    "the chain does not begin with the stated tokens"
                );
                Self::of(Head::Known(Known(known)), parse_all(new)?)
            }
            _ => Self::parse(tokens, limits),
        }
    }

    fn of(head: Head<'a>, derived: Vec<Token<'a>>) -> Result<Self, Denial> {
        let chain = Self { head, derived };
        chain.check_ids()?;
        Ok(chain)
    }

    /// Verifies the chain: steps 3 to 5.
    ///
    /// Cheap denials come first. Before any signature is verified, every header is checked, and a chain with an expired
    /// token or a root of an unknown issuer is denied. Otherwise, the unsigned payload only selects the anchors to try.
    /// (The draft's section 8 permits to look at `jti` only. But trying every anchor on garbage would be the worse
    /// denial of service.)
    ///
    /// # Errors
    /// The step that failed.
    pub fn verify(&self, context: &VerificationContext<'_>) -> Result<VerifiedChain, Denial> {
        self.check_before_signatures(context)?;
        self.verify_signatures(Signatures::Verified, context)
    }

    /// The result of [`Chain::verify`] if all signatures in the batch verify. A signature that several keys of an
    /// issuer may have made is verified at once, to find the key.
    ///
    /// # Errors
    /// The step that failed. If a signature fails earlier in [`Chain::verify`], that one may fail first.
    pub(crate) fn verify_deferring_signatures(
        &self,
        context: &VerificationContext<'_>,
        batch: &mut Batch,
    ) -> Result<VerifiedChain, Denial> {
        self.check_before_signatures(context)?;
        self.verify_signatures(Signatures::Deferred(batch), context)
    }

    /// The last second in which no token has expired, according to the unsigned claims.
    pub(crate) fn last_second(&self) -> Option<UnixTime> {
        let root = match &self.head {
            Head::Root(root) => Some(root.as_ref()),
            Head::Known(_) => None,
        };
        let tokens = root.into_iter().chain(&self.derived);
        let earliest = tokens.filter_map(|token| token.unverified.expires_at()).min()?;
        earliest.0.checked_sub(1).map(UnixTime)
    }

    /// The checks of [`Chain::verify`] before the first signature. A chain that fails them is not worth a look-up.
    ///
    /// # Errors
    /// The step that failed, the same as in [`Chain::verify`].
    pub fn check_before_signatures(&self, context: &VerificationContext<'_>) -> Result<(), Denial> {
        match &self.head {
            Head::Root(root) => {
                let (_, token_type) = root.typed_header(Step::S3a)?;
                // Whether the type of an access token is accepted depends on its issuer.
                if token_type != TokenType::Delegation {
                    root.candidates(context)?;
                }
            }
            Head::Known(known) => known.check_algorithms(context)?,
        }
        for token in &self.derived {
            let algorithm = token.header(Step::S4a)?.algorithm;
            Step::S4a.ensure(context.holder_algorithms.allow(algorithm), Cause::AlgorithmNotAllowed)?;
        }
        // Expiry before trust, so that an expired token does not reveal the trusted issuers to its sender.
        match &self.head {
            Head::Root(root) => Step::S3e.ensure(!root.unverified.expired(context.now), Cause::Expired)?,
            Head::Known(known) => known.check_expiry(context)?,
        }
        let has_expired = self.derived.iter().any(|token| token.unverified.expired(context.now));
        Step::S4i.ensure(!has_expired, Cause::Expired)?;
        match &self.head {
            Head::Root(root) => root.candidates(context).map(|_| ()),
            Head::Known(known) => known.anchor(context).map(|_| ()),
        }
    }

    /// The parts of this chain that may have been verified before: all of it first, then one token fewer each time, as
    /// long as a token remains that is not part of a known chain ([`Chain::parse_joined_after`]).
    pub fn beginnings(&self) -> Vec<Beginning<'_, 'a>> {
        let (known, root) = match &self.head {
            Head::Root(root) => (None, Some(root.as_ref())),
            Head::Known(known) => (Some(known), None),
        };
        let mut digest = Sha256::new();
        let mut tokens = 0usize;
        for token in known.into_iter().flat_map(|known| known.0.tokens()) {
            digest.update(token.digest);
            tokens = tokens.saturating_add(1);
        }
        let mut beginnings = Vec::with_capacity(self.derived.len().saturating_add(1));
        for token in root.into_iter().chain(&self.derived) {
            digest.update(token.names().1);
            tokens = tokens.saturating_add(1);
            beginnings.push(Beginning {
                chain: self,
                tokens,
                digest: digest.clone().finalize().into(),
            });
        }
        beginnings.reverse();
        beginnings
    }

    /// The second part of [`Chain::verify`].
    fn verify_signatures(
        &self,
        mut signatures: Signatures<'_>,
        context: &VerificationContext<'_>,
    ) -> Result<VerifiedChain, Denial> {
        let mut chain = match &self.head {
            Head::Root(root) => root.verify_root(&mut signatures, context)?,
            Head::Known(known) => known.verify(context)?,
        };
        for token in &self.derived {
            let place = chain.derived.len().saturating_add(1);
            let verified = token.verify_derived(&chain.leaf().claims, place, &mut signatures, context)?;
            chain.derived.push(verified);
        }
        let is_as_long = chain.derived.len() == chain.leaf().claims.depth as usize;
        let cause = Cause::Linkage("the chain's length is not the leaf's del_depth plus one");
        Step::S5.ensure(is_as_long, cause)?;
        Ok(chain)
    }

    /// Step 2c: every token has an id, and no two have the same. The hash of an access token without `jti` is its id.
    fn check_ids(&self) -> Result<(), Denial> {
        let (root, known) = match &self.head {
            Head::Root(root) => (Some(root.as_ref()), None),
            Head::Known(known) => (None, Some(known)),
        };
        let mut seen: Vec<&str> = known
            .into_iter()
            .flat_map(|known| known.0.tokens())
            .map(VerifiedToken::id)
            .collect();
        for token in root.into_iter().chain(&self.derived) {
            let is_untyped = matches!(token.header, Ok((_, TokenType::Untyped)));
            let id = match &token.unverified.id {
                Some(id) => Some(id.as_str()),
                None => is_untyped.then(|| token.names().0.as_str()),
            };
            let id = id.ok_or_else(|| Step::S2c.claim("jti", "a string"))?;
            Step::S2c.ensure(!seen.contains(&id), Cause::Repeated)?;
            seen.push(id);
        }
        Ok(())
    }
}

impl Beginning<'_, '_> {
    /// The digest of these tokens, byte for byte, signatures included. It is also the digest of their verified chain
    /// ([`VerifiedChain::digest`]).
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The number of tokens; at least one.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Verifies the whole chain as [`Chain::verify`] does, except for the signatures of these first tokens: the caller
    /// vouches for them, and this function cannot detect a wrong statement.
    ///
    /// The caller states that [`Chain::verify`] has returned a chain with exactly this [`VerifiedChain::digest`], and
    /// that `anchor` was its [`VerifiedChain::anchor`]. Every other check of the draft's section 8 is made now: that
    /// `anchor` is configured for the issuer and the algorithm, the algorithms, the claims, the linkage, the
    /// attenuation, and all times. The signatures of later tokens are verified.
    ///
    /// For the tokens of a known chain ([`Chain::parse_joined_after`]), that chain's anchor counts.
    ///
    /// # Errors
    /// The step that failed. If the statement is true, the same as in [`Chain::verify`].
    pub fn verify_vouching_for_signatures(
        &self,
        anchor: Thumbprint,
        context: &VerificationContext<'_>,
    ) -> Result<VerifiedChain, Denial> {
        self.chain.check_before_signatures(context)?;
        let tokens = self.tokens;
        self.chain
            .verify_signatures(Signatures::Vouched { tokens, anchor }, context)
    }
}

impl Known<'_> {
    /// Step 4a for the derived tokens.
    fn check_algorithms(&self, context: &VerificationContext<'_>) -> Result<(), Denial> {
        let mut algorithms = self.0.derived.iter().map(|token| token.algorithm);
        let are_allowed = algorithms.all(|algorithm| context.holder_algorithms.allow(algorithm));
        Step::S4a.ensure(are_allowed, Cause::AlgorithmNotAllowed)
    }

    /// Steps 3e and 4i.
    fn check_expiry(&self, context: &VerificationContext<'_>) -> Result<(), Denial> {
        token::check_not_expired(self.0.root.expires_at(), context.now, Step::S3e)?;
        let mut derived = self.0.derived.iter();
        derived.try_for_each(|token| token::check_not_expired(token.expires_at(), context.now, Step::S4i))
    }

    /// The trust anchor that signed the root, if it is still allowed to.
    fn anchor<'c>(&self, context: &VerificationContext<'c>) -> Result<&'c TrustAnchor, Denial> {
        let (origin, root) = (&self.0.origin, &self.0.root);
        context
            .anchors
            .candidates(
                Some(&origin.principal.issuer),
                origin.token_type,
                root.algorithm,
                origin.key_id.as_deref(),
            )?
            .into_iter()
            .find(|anchor| anchor.key.thumbprint() == origin.anchor)
            .ok_or_else(|| Step::S3b.deny(Cause::SignatureInvalid))
    }

    /// The chain of these tokens, if it is still valid at this time and with this configuration.
    fn verify(&self, context: &VerificationContext<'_>) -> Result<VerifiedChain, Denial> {
        let (origin, root) = (&self.0.origin, &self.0.root);
        let anchor = self.anchor(context)?;
        root.claims.recheck_root(context.now, context.limits)?;
        let origin = if anchor.asserts_subjects == origin.asserts_subjects {
            Arc::clone(origin)
        } else {
            Arc::new(Origin {
                principal: principal(anchor, &origin.subject_claim)?,
                asserts_subjects: anchor.asserts_subjects,
                ..Origin::clone(origin)
            })
        };
        for token in &self.0.derived {
            token.claims.recheck_derived(context.now, context.limits)?;
        }
        Ok(VerifiedChain {
            origin,
            ..self.0.clone()
        })
    }
}

impl<'a> Token<'a> {
    fn parse(compact: &'a str) -> Result<Self, Denial> {
        let deny = |cause| Step::S2c.deny(cause);
        let jws = Jws::parse(compact).map_err(deny)?;
        let payload = jws.payload().map_err(deny)?;
        Ok(Self {
            header: jws.header_of_token(),
            jws,
            unverified: UnverifiedClaims::of(&payload).map_err(|error| Step::S2c.deny(error))?,
            payload,
            names: OnceLock::new(),
        })
    }

    /// The hash that names the token, and the digest of the whole token.
    fn names(&self) -> &(String, [u8; 32]) {
        self.names.get_or_init(|| self.jws.hash_and_digest())
    }

    /// Whether `key` made the signature. Hashing a large token costs as much as some signatures, so ECDSA reuses the
    /// hash that names the token.
    fn is_signed_by(&self, key: &PublicKey, hot_keys: Option<&HotKeys>) -> bool {
        match key.key_type() {
            KeyType::Ed25519 => self.jws.verifies(key, hot_keys),
            KeyType::Rsa => {
                let algorithm = self.header.as_ref().map(|(header, _)| header.algorithm);
                algorithm.is_ok_and(|algorithm| self.jws.verifies_by(key, algorithm))
            }
            KeyType::P256 | KeyType::Secp256k1 => {
                base64url::decode_array(&self.names().0).is_some_and(|hash| self.jws.verifies_hash_with(key, &hash))
            }
        }
    }

    /// The header of a token that may begin a chain.
    fn typed_header(&self, step: Step) -> Result<(&Header, TokenType), Denial> {
        match &self.header {
            Ok((header, token_type)) => Ok((header, *token_type)),
            Err(cause) => Err(step.deny(cause.clone())),
        }
    }

    /// The header of a derived token.
    fn header(&self, step: Step) -> Result<&Header, Denial> {
        let (header, token_type) = self.typed_header(step)?;
        let is_delegation = token_type == TokenType::Delegation;
        step.ensure(is_delegation, Cause::WrongType { expected: token::TYP })?;
        Ok(header)
    }

    fn claims_json(&self, step: Step) -> Result<Json<'_>, Denial> {
        Json::parse(&self.payload).map_err(|error| step.deny(error))
    }

    /// The trust anchors that may have signed this root.
    fn candidates<'c>(&self, context: &VerificationContext<'c>) -> Result<Vec<&'c TrustAnchor>, Denial> {
        let (header, token_type) = self.typed_header(Step::S3a)?;
        let issuer = self.unverified.issuer.as_deref();
        context
            .anchors
            .candidates(issuer, token_type, header.algorithm, header.key_id.as_deref())
    }

    /// Steps 3a to 3n: the signature of one of the issuer's anchors, or of the vouched one, then the claims.
    fn verify_root(
        &self,
        signatures: &mut Signatures<'_>,
        context: &VerificationContext<'_>,
    ) -> Result<VerifiedChain, Denial> {
        let (header, token_type) = self.typed_header(Step::S3a)?;
        let mut candidates = self.candidates(context)?.into_iter();
        let anchor = match signatures {
            Signatures::Vouched { anchor: vouched, .. } => {
                candidates.find(|anchor| anchor.key.thumbprint() == *vouched)
            }
            Signatures::Deferred(batch) if candidates.len() == 1 => candidates
                .next()
                .filter(|anchor| self.jws.is_deferred(&anchor.key, batch)),
            Signatures::Verified | Signatures::Deferred(_) => {
                candidates.find(|anchor| self.is_signed_by(&anchor.key, context.hot_keys))
            }
        }
        .ok_or_else(|| Step::S3b.deny(Cause::SignatureInvalid))?;
        let json = self.claims_json(Step::S3b)?;
        let object = jws::claims(&json).map_err(|cause| Step::S3b.deny(cause))?;
        let (hash, digest) = self.names().clone();
        let (now, limits, hot_keys) = (context.now, context.limits, context.hot_keys);
        let (claims, users) = match &anchor.access_tokens {
            Some(access_tokens) if token_type != TokenType::Delegation => {
                access_tokens.read(token_type, object, hash, now, limits, hot_keys)?
            }
            _ => (
                Claims::parse_root(object, hash, now, limits, hot_keys)?,
                Users::default(),
            ),
        };
        Step::S3k.ensure(token::issuer(object)? == anchor.issuer, Cause::IssuerUnknown)?;
        let subject_claim = token::subject(object);
        Ok(VerifiedChain {
            origin: Arc::new(Origin {
                principal: principal(anchor, &subject_claim)?,
                root_epoch: token::epoch(object)?,
                anchor: anchor.key.thumbprint(),
                asserts_subjects: anchor.asserts_subjects,
                same_principals: anchor.same_principals.clone(),
                is_fetched: anchor.is_fetched,
                token_type,
                key_id: header.key_id.clone(),
                users,
                subject_claim,
            }),
            root: VerifiedToken {
                claims: Arc::new(claims),
                algorithm: header.algorithm,
                digest,
            },
            derived: Vec::new(),
        })
    }

    /// Steps 4a to 4q under a verified parent, except for the signature (4b) if the caller vouches for it. `place` is
    /// the token's index in the chain, from 0.
    fn verify_derived(
        &self,
        parent: &Claims,
        place: usize,
        signatures: &mut Signatures<'_>,
        context: &VerificationContext<'_>,
    ) -> Result<VerifiedToken, Denial> {
        let header = self.header(Step::S4a)?;
        let key = parent
            .holder
            .key()
            .ok_or_else(|| Step::S4b.deny(Cause::HolderUnknown))?;
        Step::S4a.ensure(key.fits(header.algorithm), Cause::AlgorithmNotAllowed)?;
        let is_answered_for = match signatures {
            Signatures::Vouched { tokens, .. } if place < *tokens => true,
            Signatures::Verified | Signatures::Vouched { .. } => self.is_signed_by(key, context.hot_keys),
            Signatures::Deferred(batch) => self.jws.is_deferred(key, batch),
        };
        Step::S4b.ensure(is_answered_for, Cause::SignatureInvalid)?;
        let json = self.claims_json(Step::S4b)?;
        let object = jws::claims(&json).map_err(|cause| Step::S4b.deny(cause))?;
        let (hash, digest) = self.names().clone();
        let claims =
            DerivedClaims::parse(object, hash, context.hot_keys)?.under(parent, context.now, context.limits)?;
        Ok(VerifiedToken {
            claims: Arc::new(claims),
            algorithm: header.algorithm,
            digest,
        })
    }
}

/// The principal of a root that this anchor signed.
fn principal(anchor: &TrustAnchor, subject_claim: &Result<Option<String>, Denial>) -> Result<Principal, Denial> {
    Ok(Principal {
        issuer: anchor.issuer.clone(),
        subject: if anchor.asserts_subjects {
            subject_claim.clone()?
        } else {
            None
        },
    })
}

fn parse_all<'a>(tokens: &[&'a str]) -> Result<Vec<Token<'a>>, Denial> {
    tokens.iter().map(|compact| Token::parse(compact)).collect()
}

/// The tokens, if they and the chain are within the limits: steps 2a and 2b.
fn within_limits<'a>(tokens: impl IntoIterator<Item = &'a str>, limits: &Limits) -> Result<Vec<&'a str>, Denial> {
    let max_tokens = (limits.delegation_depth as usize).saturating_add(1);
    let mut taken = Vec::with_capacity(max_tokens);
    let mut chain_bytes = 0usize;
    for compact in tokens {
        Step::S2a.check_size("a token", compact.len(), limits.token_bytes)?;
        chain_bytes = chain_bytes.saturating_add(compact.len());
        Step::S2b.check_size("the chain", chain_bytes, limits.chain_bytes)?;
        if taken.len() >= max_tokens {
            let tokens = taken.len().saturating_add(1);
            return Err(Step::S2b.deny(Cause::TooLong {
                tokens,
                limit: max_tokens,
            }));
        }
        taken.push(compact);
    }
    Ok(taken)
}
