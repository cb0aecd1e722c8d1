//! A delegation that has been verified: what it grants, to whom, and on whose behalf (draft section 8, step 6).

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::capabilities::ConstraintMap;
use crate::denial::{Cause, Denial, Step};
use crate::jws;
use crate::key::Thumbprint;
use crate::time::UnixTime;
use crate::token::VerifiedToken;
use crate::value::Arguments;

/// A chain that passed every step up to 5: each token is signed by the holder of the one before, the first by a trust
/// anchor, and none grants more than its parent.
///
/// It was valid at the time it was verified; [`VerifiedChain::expires_at`] and [`crate::revocation::check_revocation`] say
/// whether it still is.
///
/// A clone shares the tokens with the original.
#[derive(Debug, Clone)]
pub struct VerifiedChain {
    pub(crate) origin: Arc<Origin>,
    pub(crate) root: VerifiedToken,
    /// Every token after the root.
    pub(crate) derived: Vec<VerifiedToken>,
}

/// Where a chain's authority comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) principal: Principal,
    pub(crate) root_epoch: Option<u64>,
    pub(crate) anchor: Thumbprint,
    pub(crate) asserts_subjects: bool,
    /// The `kid` of the root's header.
    pub(crate) key_id: Option<String>,
    /// What the root says of its `sub`, whether or not the anchor may say it.
    pub(crate) subject_claim: Result<Option<String>, Denial>,
}

/// Whose authority is delegated: the root's `iss`, and its `sub` where the trust anchor asserts subjects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The issuer's URI.
    pub issuer: String,
    /// The person's name at that issuer.
    pub subject: Option<String>,
}

/// Which audience checks an enforcement point makes on a chain (draft section 8, step 6c).
#[derive(Debug, Clone, Copy)]
pub struct AudiencePolicy<'a> {
    /// Our own audience identifiers.
    pub identifiers: &'a [String],
    /// Whether some token of the chain must carry `aud`.
    pub require_chain_audience: bool,
}

impl VerifiedChain {
    /// The principal whose authority this is.
    pub fn principal(&self) -> &Principal {
        &self.origin.principal
    }

    /// The root's `rev_epoch`: the principal's epoch when it was minted.
    pub fn root_epoch(&self) -> Option<u64> {
        self.origin.root_epoch
    }

    /// The key of the trust anchor that signed the root.
    pub fn anchor(&self) -> Thumbprint {
        self.origin.anchor
    }

    /// Whether that anchor speaks for several principals.
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

    /// The chain that the leaf was derived from; none if it is the root itself.
    pub fn parent(&self) -> Option<Self> {
        let mut parent = self.clone();
        parent.derived.pop().map(|_| parent)
    }

    /// What names these very tokens, signatures included: SHA-256 over the SHA-256 of each, root first. A presented
    /// chain has the same ([`Chain::beginnings`](crate::Chain::beginnings)), before it is verified.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        self.tokens().for_each(|token| digest.update(token.digest));
        digest.finalize().into()
    }

    /// The instant from which the chain is expired. No token outlives its parent, so it is the leaf's.
    pub fn expires_at(&self) -> UnixTime {
        self.leaf().expires_at()
    }

    /// When the chain is valid for a verifier whose clock is right: from this instant on, the last `iat`, until just before
    /// [`VerifiedChain::expires_at`].
    pub fn issued_at(&self) -> UnixTime {
        // No token is older than its parent.
        self.leaf().issued_at()
    }

    /// Bytes that the chain takes in memory, the allocator's share included: what a cache has to reckon with. It is never
    /// less than what is taken, and rarely much more: `make bench BENCH=memory` compares the two.
    pub fn bytes(&self) -> usize {
        let Principal { issuer, subject } = self.principal();
        let claimed = self.origin.subject_claim.as_ref().ok().and_then(Option::as_ref);
        let texts = [Some(issuer), subject.as_ref(), claimed, self.origin.key_id.as_ref()];
        let fixed = size_of::<Self>()
            .saturating_add(size_of::<Origin>())
            .saturating_add(ALLOCATOR_BYTES);
        self.tokens()
            .map(VerifiedToken::bytes)
            .chain(texts.into_iter().flatten().map(String::capacity))
            .chain([fixed])
            .fold(0, usize::saturating_add)
    }

    /// Checks that every token that names an audience names us (step 6c).
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

    fn constraints(&self, tool: &str) -> Result<&ConstraintMap, Denial> {
        let capabilities = self
            .leaf()
            .capabilities()
            .ok_or_else(|| Step::S6a.deny(Cause::ToolNotGranted))?;
        capabilities
            .tool(tool)
            .ok_or_else(|| Step::S6b.deny(Cause::ToolNotGranted))
    }
}

/// What a chain as presented, its tokens joined by `~`, is known by: the same as [`VerifiedChain::digest`] once it is
/// verified. Nothing of it is verified here.
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
