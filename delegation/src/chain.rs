//! A delegation: the chain of tokens from the root to the leaf, and its verification (draft section 8).

use std::collections::BTreeSet;
use std::fmt;

use crate::anchor::{TrustAnchor, TrustAnchors};
use crate::denial::{Cause, Denial, Step};
use crate::glance::Glance;
use crate::json::{Json, JsonError, Object};
use crate::jws::{Header, Jws};
use crate::key::{Algorithms, Thumbprint};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::token::{self, Claims, VerifiedToken};
use crate::value::Arguments;

/// A chain as presented. Nothing in it has been verified.
#[derive(Debug)]
pub struct Chain<'a> {
    root: Token<'a>,
    derived: Vec<Token<'a>>,
}

/// What verification is done against.
#[derive(Debug, Clone, Copy)]
pub struct VerificationContext<'a> {
    /// Whose root tokens count.
    pub anchors: &'a TrustAnchors,
    /// What derived tokens may be signed with.
    pub holder_algorithms: &'a Algorithms,
    /// Limits of size, depth and time.
    pub limits: &'a Limits,
    /// The current time.
    pub now: UnixTime,
}

/// A chain that passed every step up to 5: each token is signed by the holder of the one before, the first by a trust
/// anchor, and none grants more than its parent.
///
/// It was valid at the time it was verified; [`VerifiedChain::expires_at`] and [`crate::revocation::void`] say
/// whether it still is.
#[derive(Debug, Clone)]
pub struct VerifiedChain {
    principal: Principal,
    root_epoch: Option<u64>,
    anchor: Thumbprint,
    asserts_subjects: bool,
    root: VerifiedToken,
    /// Every token after the root.
    derived: Vec<VerifiedToken>,
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

/// One token, its header read and its payload decoded.
#[derive(Debug)]
struct Token<'a> {
    jws: Jws<'a>,
    header: Result<Header, Cause>,
    payload: Vec<u8>,
}

impl<'a> Chain<'a> {
    /// Takes the tokens over, root first, and checks all that can be checked without a key: steps 1 to 2c.
    ///
    /// # Errors
    /// The step that failed.
    pub fn parse(tokens: impl IntoIterator<Item = &'a str>, limits: &Limits) -> Result<Self, Denial> {
        let max_tokens = (limits.delegation_depth as usize).saturating_add(1);
        let mut parsed = Vec::new();
        let mut chain_bytes = 0usize;
        for compact in tokens {
            if parsed.len() >= max_tokens {
                let tokens = parsed.len().saturating_add(1);
                return Err(Step::S2b.deny(Cause::TooLong {
                    tokens,
                    limit: max_tokens,
                }));
            }
            check_size("a token", compact.len(), limits.token_bytes, Step::S2a)?;
            chain_bytes = chain_bytes.saturating_add(compact.len());
            check_size("the chain", chain_bytes, limits.chain_bytes, Step::S2b)?;
            parsed.push(Token::parse(compact)?);
        }
        let mut tokens = parsed.into_iter();
        let root = tokens.next().ok_or_else(|| Step::S1.deny(Cause::Empty))?;
        let chain = Self {
            root,
            derived: tokens.collect(),
        };
        chain.check_ids()?;
        Ok(chain)
    }

    /// Splits the `delegation` header's value: tokens joined by `~`, root first.
    ///
    /// # Errors
    /// The step that failed.
    pub fn parse_joined(joined: &'a str, limits: &Limits) -> Result<Self, Denial> {
        check_size("the chain", joined.len(), limits.chain_bytes, Step::S2b)?;
        Self::parse(joined.split('~'), limits)
    }

    /// Verifies the chain: steps 3 to 5.
    ///
    /// Cheap denials come first. Before any signature is verified, every header is checked, an expired token denies,
    /// and so does a root of an issuer that is not an anchor; what the unsigned payload says is used for nothing
    /// else but to pick the anchors to try. (The draft's section 8 permits to look at `jti` alone. Trying every
    /// anchor on every piece of garbage would be the worse denial of service.)
    ///
    /// # Errors
    /// The step that failed.
    pub fn verify(&self, context: &VerificationContext<'_>) -> Result<VerifiedChain, Denial> {
        let root_header = self
            .root
            .header
            .as_ref()
            .map_err(|cause| Step::S3a.deny(cause.clone()))?;
        for token in &self.derived {
            let header = token.header.as_ref().map_err(|cause| Step::S4a.deny(cause.clone()))?;
            if !context.holder_algorithms.allow(header.algorithm) {
                return Err(Step::S4a.deny(Cause::AlgorithmNotAllowed));
            }
        }
        // Expiry before trust, so that nobody learns from an expired token whom we trust.
        let root = self.root.glance()?;
        if root.expired(context.now) {
            return Err(Step::S3e.deny(Cause::Expired));
        }
        for token in &self.derived {
            if token.glance()?.expired(context.now) {
                return Err(Step::S4i.deny(Cause::Expired));
            }
        }
        let anchors = candidates(context.anchors, root.issuer.as_deref(), root_header)?;

        let anchor = anchors
            .into_iter()
            .find(|anchor| self.root.jws.verifies(&anchor.key))
            .ok_or_else(|| Step::S3b.deny(Cause::SignatureInvalid))?;
        let mut chain = self.verify_root(anchor, context)?;
        for token in &self.derived {
            let verified = token.verify_derived(&chain.leaf().claims, context)?;
            chain.derived.push(verified);
        }
        if chain.derived.len() != chain.leaf().claims.depth as usize {
            return Err(Step::S5.deny(Cause::Linkage(
                "the chain's length is not the leaf's del_depth plus one",
            )));
        }
        Ok(chain)
    }

    /// Step 2c: no token twice.
    fn check_ids(&self) -> Result<(), Denial> {
        let mut seen = BTreeSet::new();
        for token in std::iter::once(&self.root).chain(&self.derived) {
            let id = token.glance()?.id.ok_or_else(|| {
                Step::S2c.deny(Cause::Claim {
                    claim: "jti",
                    expected: "a string",
                })
            })?;
            if !seen.insert(id) {
                return Err(Step::S2c.deny(Cause::Repeated));
            }
        }
        Ok(())
    }

    /// Steps 3b (claims) to 3n of a root whose signature `anchor` has verified.
    fn verify_root(&self, anchor: &TrustAnchor, context: &VerificationContext<'_>) -> Result<VerifiedChain, Denial> {
        let json = self.root.claims_json(Step::S3b)?;
        let object = claims_object(&json, Step::S3b)?;
        let claims = Claims::parse_root(object, self.root.jws.signing_input, context.now, context.limits)?;
        if token::issuer(object)? != anchor.issuer {
            return Err(Step::S3k.deny(Cause::IssuerUnknown));
        }
        let subject = if anchor.asserts_subjects {
            token::subject(object)?
        } else {
            None
        };
        Ok(VerifiedChain {
            principal: Principal {
                issuer: anchor.issuer.clone(),
                subject,
            },
            root_epoch: token::epoch(object)?,
            anchor: anchor.key.thumbprint(),
            asserts_subjects: anchor.asserts_subjects,
            root: VerifiedToken { claims },
            derived: Vec::with_capacity(self.derived.len()),
        })
    }
}

impl VerifiedChain {
    /// The principal whose authority this is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The root's `rev_epoch`: the principal's epoch when it was minted.
    #[must_use]
    pub fn root_epoch(&self) -> Option<u64> {
        self.root_epoch
    }

    /// The key of the trust anchor that signed the root.
    #[must_use]
    pub fn anchor(&self) -> Thumbprint {
        self.anchor
    }

    /// Whether that anchor speaks for several principals.
    #[must_use]
    pub fn asserts_subjects(&self) -> bool {
        self.asserts_subjects
    }

    /// The tokens, root first.
    pub fn tokens(&self) -> impl Iterator<Item = &VerifiedToken> {
        std::iter::once(&self.root).chain(&self.derived)
    }

    /// The first token.
    #[must_use]
    pub fn root(&self) -> &VerifiedToken {
        &self.root
    }

    /// The last token, under which the agent acts.
    #[must_use]
    pub fn leaf(&self) -> &VerifiedToken {
        self.derived.last().unwrap_or(&self.root)
    }

    /// The instant from which the chain is expired. No token outlives its parent, so it is the leaf's.
    #[must_use]
    pub fn expires_at(&self) -> UnixTime {
        self.leaf().expires_at()
    }

    /// Bytes that the chain takes in memory, tree nodes estimated: what a cache has to reckon with.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let subject = self.principal.subject.as_ref().map_or(0, String::capacity);
        self.tokens()
            .map(|token| token.claims.bytes())
            .chain([self.principal.issuer.capacity(), subject, size_of::<Self>()])
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
            if !audience.iter().any(|name| policy.identifiers.contains(name)) {
                return Err(Step::S6c.deny(Cause::Audience));
            }
        }
        if policy.require_chain_audience && !named {
            return Err(Step::S6c.deny(Cause::Audience));
        }
        Ok(())
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

    fn constraints(&self, tool: &str) -> Result<&crate::capabilities::ConstraintMap, Denial> {
        let capabilities = self
            .leaf()
            .capabilities()
            .ok_or_else(|| Step::S6a.deny(Cause::ToolNotGranted))?;
        capabilities
            .tool(tool)
            .ok_or_else(|| Step::S6b.deny(Cause::ToolNotGranted))
    }
}

impl<'a> Token<'a> {
    fn parse(compact: &'a str) -> Result<Self, Denial> {
        let malformed = |what: &str| Step::S2c.deny(Cause::Malformed(what.to_owned()));
        let jws = Jws::parse(compact).ok_or_else(|| malformed("a token is three parts joined by dots (RFC 7515)"))?;
        let payload = jws
            .payload()
            .ok_or_else(|| malformed("a token's payload is not base64url"))?;
        Ok(Self {
            header: jws.header(token::TYP),
            jws,
            payload,
        })
    }

    fn glance(&self) -> Result<Glance<'_>, Denial> {
        serde_json::from_slice(&self.payload).map_err(|error| Step::S2c.deny(JsonError::Syntax(error.to_string())))
    }

    fn claims_json(&self, step: Step) -> Result<Json<'_>, Denial> {
        Json::parse(&self.payload).map_err(|error| step.deny(error))
    }

    /// Steps 4a to 4q under a verified parent.
    fn verify_derived(&self, parent: &Claims, context: &VerificationContext<'_>) -> Result<VerifiedToken, Denial> {
        let header = self.header.as_ref().map_err(|cause| Step::S4a.deny(cause.clone()))?;
        if !parent.holder.key.fits(header.algorithm) {
            return Err(Step::S4a.deny(Cause::AlgorithmNotAllowed));
        }
        if !self.jws.verifies(&parent.holder.key) {
            return Err(Step::S4b.deny(Cause::SignatureInvalid));
        }
        let json = self.claims_json(Step::S4b)?;
        let object = claims_object(&json, Step::S4b)?;
        let (claims, link) = Claims::parse_derived(object, self.jws.signing_input)?;
        claims.check_link(&link, parent, context.now, context.limits)?;
        Ok(VerifiedToken { claims })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{subject} at {}", self.issuer),
            None => f.write_str(&self.issuer),
        }
    }
}

/// The anchors whose key a root may be signed with: step 3a, and 3k for an issuer that nobody configured.
fn candidates<'a>(
    anchors: &'a TrustAnchors,
    issuer: Option<&str>,
    header: &Header,
) -> Result<Vec<&'a TrustAnchor>, Denial> {
    let of_issuer: Vec<_> = issuer
        .map(|issuer| anchors.of_issuer(issuer).collect())
        .unwrap_or_default();
    if of_issuer.is_empty() {
        return Err(Step::S3k.deny(Cause::IssuerUnknown));
    }
    let allowed: Vec<_> = of_issuer
        .into_iter()
        .filter(|anchor| anchor.allows(header.algorithm))
        .collect();
    if allowed.is_empty() {
        return Err(Step::S3a.deny(Cause::AlgorithmNotAllowed));
    }
    let selected: Vec<_> = allowed
        .into_iter()
        .filter(|anchor| anchor.is_selected_by(header.key_id.as_deref()))
        .collect();
    if selected.is_empty() {
        return Err(Step::S3b.deny(Cause::KeyUnknown));
    }
    Ok(selected)
}

fn check_size(what: &'static str, size: usize, limit: usize, step: Step) -> Result<(), Denial> {
    if size <= limit {
        Ok(())
    } else {
        Err(step.deny(Cause::TooLarge { what, size, limit }))
    }
}

fn claims_object<'a, 'j>(json: &'j Json<'a>, step: Step) -> Result<&'j Object<'a>, Denial> {
    json.as_object()
        .ok_or_else(|| step.deny(Cause::Malformed("the claims are not a JSON object".into())))
}
