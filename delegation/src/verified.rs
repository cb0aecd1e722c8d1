//! A verified delegation: its grants, its holder, and its principal (draft section 8, step 6).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::access_token::Users;
use crate::capabilities::{Capabilities, ToolGrant};
use crate::denial::{Cause, Denial, Step};
use crate::jws::{self, TokenType};
use crate::key::Thumbprint;
use crate::time::UnixTime;
use crate::token::VerifiedToken;
use crate::value::Arguments;

/// A chain that passed every step up to 5: each token is signed by the holder of the previous one, the first by a trust
/// anchor, and none grants more than its parent.
///
/// It was valid at the time of verification. [`VerifiedChain::expires_at`] and [`crate::revocation::check_revocation`]
/// tell whether it still is.
///
/// A clone shares the tokens with the original.
#[derive(Debug, Clone)]
pub struct VerifiedChain {
    pub(crate) origin: Arc<Origin>,
    pub(crate) root: VerifiedToken,
    /// Every token after the root.
    pub(crate) derived: Vec<VerifiedToken>,
}

/// The origin of a chain's authority.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) principal: Principal,
    pub(crate) root_epoch: Option<u64>,
    pub(crate) anchor: Thumbprint,
    pub(crate) asserts_subjects: bool,
    /// Issuers where the same `sub` names the same principal.
    pub(crate) same_principals: Vec<String>,
    /// Whether the anchor's key was fetched from its issuer.
    pub(crate) is_fetched: bool,
    /// The type of the root.
    pub(crate) token_type: TokenType,
    /// The `kid` of the root's header.
    pub(crate) key_id: Option<String>,
    /// Who used the root, if it is an access token.
    pub(crate) users: Users,
    /// The root's `sub` claim, even if the anchor may not assert it.
    pub(crate) subject_claim: Result<Option<String>, Denial>,
}

/// The principal whose authority is delegated: the root's `iss`, and its `sub` if the trust anchor asserts subjects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The issuer's URI.
    pub issuer: String,
    /// The subject's name at that issuer.
    pub subject: Option<String>,
}

/// The audience checks of an enforcement point on a chain (draft section 8, step 6c).
#[derive(Debug, Clone, Copy)]
pub struct AudiencePolicy<'a> {
    /// The enforcement point's own audience identifiers.
    pub identifiers: &'a [String],
    /// Whether some token of the chain must carry `aud`.
    pub require_chain_audience: bool,
}

impl VerifiedChain {
    /// The principal of the chain.
    pub fn principal(&self) -> &Principal {
        &self.origin.principal
    }

    /// The root's `rev_epoch`: the principal's epoch at the time of minting.
    pub fn root_epoch(&self) -> Option<u64> {
        self.origin.root_epoch
    }

    /// The key of the trust anchor that signed the root.
    pub fn anchor(&self) -> Thumbprint {
        self.origin.anchor
    }

    /// Whether that key was fetched from the issuer, so that it counts only while the revocation log has it.
    #[must_use]
    pub fn has_fetched_anchor(&self) -> bool {
        self.origin.is_fetched
    }

    /// Who uses the leaf, for shares of limits: its holder, or else the root's client.
    pub fn user(&self) -> Cow<'_, [u8]> {
        let holder = self.leaf().holder();
        match (holder.thumbprint(), holder.certificate(), self.client()) {
            (Some(thumbprint), ..) => Cow::Owned(thumbprint.as_bytes().to_vec()),
            (None, Some(certificate), _) => Cow::Borrowed(certificate),
            (None, None, Some(client)) => Cow::Borrowed(client.as_bytes()),
            (None, None, None) => Cow::Borrowed(b""),
        }
    }

    /// Whether the leaf is an access token that only its holder may use (RFC 9449, section 7.1; RFC 8705, section 3).
    #[must_use]
    pub fn is_bound_access_token(&self) -> bool {
        let holder = self.leaf().holder();
        let is_bound = holder.thumbprint().is_some() || holder.certificate().is_some();
        self.is_access_token() && is_bound
    }

    /// Whether the chain is one access token.
    #[must_use]
    pub fn is_access_token(&self) -> bool {
        self.derived.is_empty() && self.origin.token_type != TokenType::Delegation
    }

    /// The OAuth client that the root was issued to, if it is an access token that names it (`client_id`).
    pub fn client(&self) -> Option<&str> {
        self.origin.users.client.as_deref()
    }

    /// The actors of the root, if it is an access token that names them (`act`), the present one first.
    pub fn actors(&self) -> &[String] {
        &self.origin.users.actors
    }

    /// Whether that anchor has several principals.
    #[must_use]
    pub fn asserts_subjects(&self) -> bool {
        self.origin.asserts_subjects
    }

    /// The tokens, root first.
    pub fn tokens(&self) -> impl Iterator<Item = &VerifiedToken> {
        std::iter::once(&self.root).chain(&self.derived)
    }

    /// The first token.
    pub fn root(&self) -> &VerifiedToken {
        &self.root
    }

    /// The last token, under which the agent acts.
    pub fn leaf(&self) -> &VerifiedToken {
        self.derived.last().unwrap_or(&self.root)
    }

    /// The chain that the leaf was derived from; `None` if the leaf is the root.
    pub fn parent(&self) -> Option<Self> {
        let mut parent = self.clone();
        parent.derived.pop().map(|_| parent)
    }

    /// The digest of these tokens, signatures included: SHA-256 over the SHA-256 of each, root first. A presented chain
    /// has the same digest before it is verified ([`Chain::beginnings`](crate::Chain::beginnings)).
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        self.tokens().for_each(|token| digest.update(token.digest));
        digest.finalize().into()
    }

    /// The time at which the chain expires. No token outlives its parent, so it is the leaf's.
    pub fn expires_at(&self) -> UnixTime {
        self.leaf().expires_at()
    }

    /// The beginning of the chain's validity for a verifier with a correct clock: the last `iat`. It ends just before
    /// [`VerifiedChain::expires_at`].
    pub fn issued_at(&self) -> UnixTime {
        // No token is older than its parent.
        self.leaf().issued_at()
    }

    /// Bytes of the chain in memory, including the allocator's share, for the accounting of caches. It is never less
    /// than the real size, and rarely much more: `make bench BENCH=memory` compares the two.
    pub fn bytes(&self) -> usize {
        let Principal { issuer, subject } = self.principal();
        let claimed = self.origin.subject_claim.as_ref().ok().and_then(Option::as_ref);
        let Users { client, actors } = &self.origin.users;
        let texts = [
            Some(issuer),
            subject.as_ref(),
            claimed,
            self.origin.key_id.as_ref(),
            client.as_ref(),
        ];
        let actors = actors
            .iter()
            .map(|actor| size_of::<String>().saturating_add(actor.capacity()));
        let same_principals = self.origin.same_principals.iter();
        let same_principals = same_principals.map(|other| size_of::<String>().saturating_add(other.capacity()));
        let fixed = size_of::<Self>()
            .saturating_add(size_of::<Origin>())
            .saturating_add(ALLOCATOR_BYTES);
        self.tokens()
            .map(VerifiedToken::bytes)
            .chain(texts.into_iter().flatten().map(String::capacity))
            .chain(actors)
            .chain(same_principals)
            .chain([fixed])
            .fold(0, usize::saturating_add)
    }

    /// Checks that every token with an audience names this enforcement point (step 6c).
    ///
    /// # Errors
    /// Step 6c.
    pub fn identifies_audience(&self, policy: &AudiencePolicy<'_>) -> Result<(), Denial> {
        let mut named = false;
        for audience in self.tokens().filter_map(|token| token.claims.audience.as_ref()) {
            named = true;
            let is_ours = audience.iter().any(|name| policy.identifiers.contains(name));
            Step::S6c.ensure(is_ours, Cause::Audience)?;
        }
        Step::S6c.ensure(named || !policy.require_chain_audience, Cause::Audience)
    }

    /// Checks that the leaf grants `tool` at all (steps 6a and 6b), before its arguments are known.
    ///
    /// # Errors
    /// Step 6a or 6b.
    pub fn grants(&self, tool: &str) -> Result<(), Denial> {
        self.constraints(tool).map(|_| ())
    }

    /// Checks that the leaf grants `tool` with these arguments (steps 6a and 6b).
    ///
    /// # Errors
    /// Step 6a or 6b; the cause names the argument.
    pub fn permits(&self, tool: &str, arguments: &Arguments) -> Result<(), Denial> {
        self.constraints(tool)?
            .permits(arguments)
            .map_err(|cause| Step::S6b.deny(cause))
    }

    /// Checks that the leaf grants `tool` with any arguments, since they are not known.
    ///
    /// # Errors
    /// Step 6a or 6b; the cause names an argument that is constrained, or `*` if not all are granted.
    pub fn permits_all(&self, tool: &str) -> Result<(), Denial> {
        let constraints = self.constraints(tool)?;
        constraints.permits_all().map_err(|cause| Step::S6b.deny(cause))
    }

    /// Checks some of the arguments, before the others are known.
    ///
    /// # Errors
    /// Step 6a or 6b; the cause names the argument.
    pub fn permits_so_far(&self, tool: &str, arguments: &Arguments) -> Result<(), Denial> {
        let constraints = self.constraints(tool)?;
        constraints
            .permits_so_far(arguments)
            .map_err(|cause| Step::S6b.deny(cause))
    }

    fn constraints(&self, tool: &str) -> Result<&ToolGrant, Denial> {
        constraints(self.leaf().capabilities(), tool)
    }
}

/// What a leaf with these capabilities grants of a tool (steps 6a and 6b).
pub(crate) fn constraints<'c>(capabilities: Option<&'c Capabilities>, tool: &str) -> Result<&'c ToolGrant, Denial> {
    let capabilities = capabilities.ok_or_else(|| Step::S6a.deny(Cause::ToolNotGranted))?;
    let grant = capabilities.tool(tool);
    grant.ok_or_else(|| Step::S6b.deny(Cause::ToolNotGranted))
}

/// The digest of a presented chain, its tokens joined by `~`: the same as [`VerifiedChain::digest`] after verification.
/// Verifies nothing.
pub fn chain_digest(joined: impl AsRef<[u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    let tokens = joined.as_ref().split(|byte| *byte == b'~');
    tokens.for_each(|token| digest.update(jws::digest(token)));
    digest.finalize().into()
}

/// The allocator's share of a chain's own allocations: a header and rounding for each.
const ALLOCATOR_BYTES: usize = 64;

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{subject} at {}", self.issuer),
            None => f.write_str(&self.issuer),
        }
    }
}
