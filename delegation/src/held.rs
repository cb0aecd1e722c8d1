//! A delegation in its holder's hands.

use crate::chain::Chain;
use crate::denial::{Cause, Denial, Step};
use crate::json::Object;
use crate::key::PublicKey;
use crate::limits::Limits;
use crate::mint::{self, Grant, Invocation, MintError, Unsigned};
use crate::time::UnixTime;
use crate::token::{self, Claims, DerivedClaims};
use crate::value::Arguments;
use crate::verified::constraints;

/// A chain that its holder presents and derives from.
///
/// It is read, not verified: a holder needs no trust anchors, and what a wrong chain grants, no verifier allows. All other
/// checks of a verifier are made: form, sizes, linkage, attenuation, depths and lifetimes.
#[derive(Debug, Clone)]
pub struct HeldChain {
    joined: String,
    issuer: String,
    leaf: Claims,
    /// Of each token that names some.
    audiences: Vec<Vec<String>>,
}

impl HeldChain {
    /// Reads the tokens, joined by `~`, root first. The root is a delegation, not an access token.
    ///
    /// # Errors
    /// The step of section 8 of the draft that a verifier would deny at.
    pub fn read(joined: &str, now: UnixTime, limits: &Limits) -> Result<Self, Denial> {
        Chain::parse_joined(joined, limits)?;
        let mut tokens = joined.split('~');
        let root = tokens.next().ok_or_else(|| Step::S1.deny(Cause::Empty))?;
        let mut leaf = mint::read(root, now, limits)?;
        Step::S3c.ensure(leaf.depth == 0, Cause::Linkage("the first token is not a root"))?;
        let issuer = |claims: &Object<'_>| token::issuer(claims).map(str::to_owned);
        let issuer = mint::read_claims(root, token::TYP, limits, |claims, _| issuer(claims))?;
        let mut audiences: Vec<_> = leaf.audience.clone().into_iter().collect();
        for token in tokens {
            leaf = mint::read_claims(token, token::TYP, limits, |claims, hash| {
                DerivedClaims::parse(claims, hash, None)?.under(&leaf, now, limits)
            })?;
            audiences.extend(leaf.audience.clone());
        }
        Ok(Self {
            joined: joined.to_owned(),
            issuer,
            leaf,
            audiences,
        })
    }

    /// The tokens, joined by `~`, root first: the value of the `delegation` header.
    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// `iss` of the root.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The key that proves and derives.
    pub fn holder(&self) -> Option<&PublicKey> {
        self.leaf.holder.key()
    }

    /// `iat` of the leaf.
    pub fn issued_at(&self) -> UnixTime {
        self.leaf.issued_at
    }

    /// `exp` of the leaf, which no token outlives.
    pub fn expires_at(&self) -> UnixTime {
        self.leaf.expires_at
    }

    /// `jti` of the leaf.
    pub fn id(&self) -> &str {
        &self.leaf.id
    }

    /// How often it was handed on.
    pub fn depth(&self) -> u32 {
        self.leaf.depth
    }

    /// How often it may still be handed on.
    pub fn depth_left(&self) -> u32 {
        self.leaf.max_depth.saturating_sub(self.leaf.depth)
    }

    /// The names of the granted tools, sorted.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.leaf.capabilities.iter().flat_map(|granted| granted.tools())
    }

    /// Whether every token that names audiences names one of these, as a service with these names demands (step 6c).
    ///
    /// # Errors
    /// Step 6c.
    pub fn is_for(&self, names: &[String]) -> Result<(), Denial> {
        let is_for = |audience: &Vec<String>| audience.iter().any(|name| names.contains(name));
        Step::S6c.ensure(self.audiences.iter().all(is_for), Cause::Audience)
    }

    /// Checks that the leaf grants `tool` with these arguments.
    ///
    /// # Errors
    /// Step 6a or 6b; the cause names the argument.
    pub fn permits(&self, tool: &str, arguments: &Arguments) -> Result<(), Denial> {
        let grant = constraints(self.leaf.capabilities.as_ref(), tool)?;
        grant.permits(arguments).map_err(|cause| Step::S6b.deny(cause))
    }

    /// Checks that the leaf grants `tool` with any arguments.
    ///
    /// # Errors
    /// Step 6a or 6b.
    pub fn permits_all(&self, tool: &str) -> Result<(), Denial> {
        let grant = constraints(self.leaf.capabilities.as_ref(), tool)?;
        grant.permits_all().map_err(|cause| Step::S6b.deny(cause))
    }

    /// The proof of one invocation, for the holder's key to sign.
    ///
    /// # Errors
    /// See [`MintError`].
    pub fn proof(&self, invocation: &Invocation, limits: &Limits) -> Result<Unsigned, MintError> {
        mint::proof_under(&self.leaf, invocation, limits)
    }

    /// A token derived from the leaf, for the holder's key to sign.
    ///
    /// # Errors
    /// See [`MintError`].
    pub fn derivation(&self, grant: &Grant, limits: &Limits) -> Result<Unsigned, MintError> {
        mint::derivation_from(&self.leaf, grant, limits)
    }

    /// The chain with a token that was derived from its leaf.
    ///
    /// # Errors
    /// The step that a verifier would deny at.
    pub fn with(&self, derived: &str, now: UnixTime, limits: &Limits) -> Result<Self, Denial> {
        Self::read(&format!("{}~{derived}", self.joined), now, limits)
    }
}
