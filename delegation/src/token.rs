//! One token: its claims, and the relation of a derived token to its parent (draft section 8, steps 3c to 3n and 4b1 to
//! 4q).

use std::sync::Arc;

use crate::base64url;
use crate::capabilities::{self, Capabilities, ONE_ENTRY};
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::key::{Algorithm, HotKeys, PublicKey, Thumbprint};
use crate::limits::{EPOCH_LIMIT, Limits};
use crate::spiffe;
use crate::time::UnixTime;

/// The media type of a token (draft section 3.5).
pub(crate) const TYP: &str = "aat+jwt";

/// A token whose signature and place in the chain are verified. Only chain verification creates one. A clone shares the
/// claims with the original.
#[derive(Debug, Clone)]
pub struct VerifiedToken {
    pub(crate) claims: Arc<Claims>,
    /// The algorithm of its signature.
    pub(crate) algorithm: Algorithm,
    /// SHA-256 of the whole token, signature included: a token with the same digest is verified too.
    pub(crate) digest: [u8; 32],
}

/// The claims that verification needs, not related to another token yet.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    pub(crate) id: String,
    pub(crate) issued_at: UnixTime,
    pub(crate) expires_at: UnixTime,
    pub(crate) holder: Holder,
    /// `None` if the token has no `aud`. An `aud` that is not a string or an array of strings names no audience.
    pub(crate) audience: Option<Vec<String>>,
    pub(crate) depth: u32,
    pub(crate) max_depth: u32,
    /// `None` is the empty capability set, which only a token between root and leaf may have.
    pub(crate) capabilities: Option<Capabilities>,
    /// base64url(SHA-256(signing input)): the hash of the token in `par_hash` and `aat_hash`.
    pub(crate) hash: String,
}

/// The holder of a token (`cnf`; RFC 7800). That of a delegation has a key; an access token may name only the key's
/// thumbprint or a certificate, or have none.
#[derive(Debug, Clone, Default)]
pub struct Holder {
    key: Option<PublicKey>,
    /// `jkt` (RFC 9449, section 6.1), if there is no key.
    thumbprint: Option<Thumbprint>,
    certificate: Option<[u8; 32]>,
    spiffe_id: Option<Box<str>>,
}

/// A derived token's claims, not compared with its parent yet.
pub(crate) struct DerivedClaims<'a> {
    /// Without its capabilities.
    claims: Claims,
    /// `iss`
    issuer: String,
    /// `par_hash`
    parent_hash: String,
    details: &'a [Json<'a>],
}

impl VerifiedToken {
    /// The token's `jti`.
    pub fn id(&self) -> &str {
        &self.claims.id
    }

    /// The token's `iat`.
    pub fn issued_at(&self) -> UnixTime {
        self.claims.issued_at
    }

    /// The token's `exp`.
    pub fn expires_at(&self) -> UnixTime {
        self.claims.expires_at
    }

    /// The token's holder.
    pub fn holder(&self) -> &Holder {
        &self.claims.holder
    }

    /// The memory of the token, shared or not, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.claims.bytes())
    }

    /// The capabilities of the token, if it has any.
    pub fn capabilities(&self) -> Option<&Capabilities> {
        self.claims.capabilities.as_ref()
    }
}

impl Claims {
    /// Reads a root token's claims: steps 3b (its second half) to 3j, 3l to 3n. Step 3k needs the anchor. `hash` is the
    /// token's.
    pub(crate) fn parse_root(
        claims: &Object<'_>,
        hash: String,
        now: UnixTime,
        limits: &Limits,
        hot_keys: Option<&HotKeys>,
    ) -> Result<Self, Denial> {
        let issued_at = time(claims, "iat", Step::S3b)?;
        let expires_at = time(claims, "exp", Step::S3b)?;
        match claims.integer("del_depth") {
            Some(0) => {}
            _ => return Err(Step::S3c.claim("del_depth", "the integer 0 in a root token")),
        }
        if claims.member("par_hash").is_some() {
            return Err(Step::S3d.claim("par_hash", "absent in a root token"));
        }
        check_root_times(issued_at, expires_at, now, limits)?;
        let max_depth = depth(claims, "del_max_depth");
        let max_depth = check_depth_limit(max_depth, limits)?;
        let id = id(claims, Step::S3j)?;
        let holder = Holder::parse(claims, Step::S3l, hot_keys)?;
        let capabilities = details(claims)
            .ok_or_else(|| Step::S3m.claim("authorization_details", "an array"))
            .and_then(|details| capabilities::find(details, Step::S3m, Step::S3n))?
            .ok_or_else(|| Step::S3m.claim("authorization_details", ONE_ENTRY))?;
        Ok(Self {
            id,
            issued_at,
            expires_at,
            holder,
            audience: audience(claims),
            depth: 0,
            max_depth,
            capabilities: Some(capabilities),
            hash,
        })
    }

    /// Repeats the checks of [`Claims::parse_root`] that depend on time and limits.
    pub(crate) fn recheck_root(&self, now: UnixTime, limits: &Limits) -> Result<(), Denial> {
        check_not_expired(self.expires_at, now, Step::S3e)?;
        check_not_from_future(self.issued_at, now, limits, Step::S3f)?;
        check_lifetime_limit(self.issued_at, self.expires_at, limits)?;
        check_depth_limit(Some(self.max_depth), limits).map(|_| ())
    }

    /// Repeats the checks of [`DerivedClaims::under`] that depend on time and limits.
    pub(crate) fn recheck_derived(&self, now: UnixTime, limits: &Limits) -> Result<(), Denial> {
        let is_within_limit = self.depth <= limits.delegation_depth;
        Step::S4f.ensure(is_within_limit, Cause::Linkage(OVER_DEPTH_LIMIT))?;
        check_not_expired(self.expires_at, now, Step::S4i)?;
        check_not_from_future(self.issued_at, now, limits, Step::S4k)
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let audience = self
            .audience
            .iter()
            .flatten()
            .map(|name| size_of::<String>().saturating_add(name.capacity()));
        audience
            .chain([self.id.capacity(), self.hash.capacity(), ALLOCATOR_BYTES])
            .chain(self.holder.spiffe_id.as_ref().map(|id| id.len()))
            .chain(self.capabilities.as_ref().map(Capabilities::heap_bytes))
            .fold(size_of::<Self>(), usize::saturating_add)
    }
}

impl<'a> DerivedClaims<'a> {
    /// Reads the claims: steps 4b1 to 4b5. `hash` is the token's.
    pub(crate) fn parse(claims: &'a Object<'_>, hash: String, hot_keys: Option<&HotKeys>) -> Result<Self, Denial> {
        let id = id(claims, Step::S4b1)?;
        let holder = Holder::parse(claims, Step::S4b2, hot_keys)?;
        let details = details(claims).ok_or_else(|| Step::S4b3.claim("authorization_details", "an array"))?;
        let integer =
            |name| depth(claims, name).ok_or_else(|| Step::S4b4.claim(name, "an integer that is not negative"));
        let (depth, max_depth) = (integer("del_depth")?, integer("del_max_depth")?);
        let string = |name: &'static str| {
            claims
                .text(name)
                .map(str::to_owned)
                .ok_or_else(|| Step::S4b5.claim(name, "a string"))
        };
        let (issuer, parent_hash) = (string("iss")?, string("par_hash")?);
        let issued_at = time(claims, "iat", Step::S4b5)?;
        let expires_at = time(claims, "exp", Step::S4b5)?;
        Ok(Self {
            claims: Claims {
                id,
                issued_at,
                expires_at,
                holder,
                audience: audience(claims),
                depth,
                max_depth,
                capabilities: None,
                hash,
            },
            issuer,
            parent_hash,
            details,
        })
    }

    /// The claims of a token without comparing them with a parent: steps 4i, 4n and 4o.
    pub(crate) fn alone(self, now: UnixTime) -> Result<Claims, Denial> {
        check_not_expired(self.claims.expires_at, now, Step::S4i)?;
        self.with_capabilities()
    }

    /// The claims of a token under its parent: steps 4c to 4q.
    pub(crate) fn under(self, parent: &Claims, now: UnixTime, limits: &Limits) -> Result<Claims, Denial> {
        let is_of_parent = self.parent_hash == parent.hash;
        self.check_link(parent, now, limits)?;
        let claims = self.with_capabilities()?;
        if let Some(granted) = &claims.capabilities {
            let nothing = Capabilities::default();
            parent
                .capabilities
                .as_ref()
                .unwrap_or(&nothing)
                .check_attenuation(granted)?;
        }
        Step::S4q.ensure(is_of_parent, Cause::Linkage("par_hash is not the parent's hash"))?;
        Ok(claims)
    }

    /// Steps 4n and 4o.
    fn with_capabilities(self) -> Result<Claims, Denial> {
        Ok(Claims {
            capabilities: capabilities::find(self.details, Step::S4n, Step::S4o)?,
            ..self.claims
        })
    }

    /// Steps 4c to 4m.
    fn check_link(&self, parent: &Claims, now: UnixTime, limits: &Limits) -> Result<(), Denial> {
        let claims = &self.claims;
        let ensure = |step: Step, holds, what| step.ensure(holds, Cause::Linkage(what));
        let is_by_holder = parent
            .holder
            .key()
            .is_some_and(|key| self.issuer == key.thumbprint().uri());
        let by_holder = "iss is not the thumbprint URI of the parent's holder key";
        ensure(Step::S4c, is_by_holder, by_holder)?;
        let is_next = Some(claims.depth) == parent.depth.checked_add(1);
        ensure(Step::S4d, is_next, "del_depth is not the parent's plus one")?;
        let is_allowed = claims.depth <= parent.max_depth;
        ensure(Step::S4e, is_allowed, "del_depth is over the parent's del_max_depth")?;
        ensure(Step::S4f, claims.depth <= limits.delegation_depth, OVER_DEPTH_LIMIT)?;
        let is_no_deeper = claims.max_depth <= parent.max_depth;
        ensure(Step::S4g, is_no_deeper, "del_max_depth is over the parent's")?;
        let ends_with_parent = claims.expires_at <= parent.expires_at;
        ensure(Step::S4h, ends_with_parent, "exp is after the parent's")?;
        check_not_expired(claims.expires_at, now, Step::S4i)?;
        let begins_with_parent = claims.issued_at >= parent.issued_at;
        ensure(Step::S4j, begins_with_parent, "iat is before the parent's")?;
        check_not_from_future(claims.issued_at, now, limits, Step::S4k)?;
        check_lifetime(claims.issued_at, claims.expires_at, Step::S4l)?;
        let is_within_own = claims.depth <= claims.max_depth;
        ensure(Step::S4m, is_within_own, "del_depth is over del_max_depth")
    }
}

impl Holder {
    /// The holder's key, `cnf.jwk`.
    pub fn key(&self) -> Option<&PublicKey> {
        self.key.as_ref()
    }

    /// The thumbprint of the holder's key, whether the token has the key or only this.
    pub fn thumbprint(&self) -> Option<Thumbprint> {
        self.key.as_ref().map(PublicKey::thumbprint).or(self.thumbprint)
    }

    /// The SHA-256 digest of the holder's certificate for mutual TLS, `cnf["x5t#S256"]` (RFC 8705, section 3.1).
    pub fn certificate(&self) -> Option<&[u8; 32]> {
        self.certificate.as_ref()
    }

    /// The SPIFFE ID in the holder's certificate, `cnf["spiffe"]`; not part of the draft. Its syntax has been checked.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.spiffe_id.as_deref()
    }

    /// Reads the holder of an access token. A `cnf` without a confirmation that is known here is refused: a bearer must not
    /// count as the holder.
    pub(crate) fn confirmed(claims: &Object<'_>, step: Step, hot_keys: Option<&HotKeys>) -> Result<Self, Denial> {
        let Some(cnf) = claims.member("cnf") else {
            return Ok(Self::default());
        };
        let unknown = || step.claim("cnf", "an object with \"jkt\", \"jwk\" or \"x5t#S256\"");
        let names = |name| cnf.as_object().is_some_and(|cnf| cnf.member(name).is_some());
        if names("jwk") {
            return Self::parse(claims, step, hot_keys);
        }
        let text = |name| {
            cnf.as_object()
                .and_then(|cnf| cnf.text(name))
                .and_then(base64url::decode_array)
        };
        let read = |name| {
            if names(name) {
                text(name).map(Some).ok_or_else(unknown)
            } else {
                Ok(None)
            }
        };
        let holder = Self {
            thumbprint: read("jkt")?.map(Thumbprint::from_bytes),
            certificate: read("x5t#S256")?,
            ..Self::default()
        };
        if holder.thumbprint.is_none() && holder.certificate.is_none() {
            return Err(unknown());
        }
        Ok(holder)
    }

    fn parse(claims: &Object<'_>, step: Step, hot_keys: Option<&HotKeys>) -> Result<Self, Denial> {
        let cnf = claims
            .object("cnf")
            .ok_or_else(|| step.claim("cnf", "an object with a public key as \"jwk\""))?;
        let jwk = cnf
            .member("jwk")
            .ok_or_else(|| step.claim("cnf", "an object with a public key as \"jwk\""))?;
        let key = match hot_keys {
            Some(hot_keys) => PublicKey::from_jwk_by(jwk, |bytes| hot_keys.decode(bytes)),
            None => PublicKey::from_jwk(jwk),
        };
        let key = key.map_err(|error| step.deny(error))?;
        let certificate = cnf
            .member("x5t#S256")
            .map(|digest| {
                digest
                    .as_str()
                    .and_then(base64url::decode_array)
                    .ok_or_else(|| step.claim("cnf", "\"x5t#S256\" as 32 bytes in base64url"))
            })
            .transpose()?;
        let spiffe_id = cnf
            .member("spiffe")
            .map(|id| {
                id.as_str()
                    .filter(|id| spiffe::is_workload_id(id))
                    .map(Box::from)
                    .ok_or_else(|| step.claim("cnf", "\"spiffe\" as a workload's SPIFFE ID"))
            })
            .transpose()?;
        Ok(Self {
            key: Some(key),
            thumbprint: None,
            certificate,
            spiffe_id,
        })
    }
}

/// `iss` of a root: a URI (step 3k), that is, a scheme and something after it.
pub(crate) fn issuer<'a>(claims: &'a Object<'_>) -> Result<&'a str, Denial> {
    claims
        .text("iss")
        .filter(|text| has_scheme(text))
        .ok_or_else(|| Step::S3k.claim("iss", "the issuer's URI"))
}

/// Whether a text has the form of a URI: a scheme, and something after it.
pub(crate) fn has_scheme(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    })
}

/// `sub`, which the draft does not define: absent, or a string that is not empty.
pub(crate) fn subject(claims: &Object<'_>) -> Result<Option<String>, Denial> {
    match claims.member("sub") {
        None => Ok(None),
        Some(Json::String(text)) if !text.is_empty() => Ok(Some(text.clone().into_owned())),
        Some(_) => Err(Step::S3b.claim("sub", "a string that is not empty")),
    }
}

/// `rev_epoch`, which the draft does not define: absent, or a whole number below 2^53, so that every JSON library
/// preserves it.
pub(crate) fn epoch(claims: &Object<'_>) -> Result<Option<u64>, Denial> {
    let Some(json) = claims.member("rev_epoch") else {
        return Ok(None);
    };
    json.as_integer()
        .and_then(|epoch| u64::try_from(epoch).ok())
        .filter(|&epoch| epoch < EPOCH_LIMIT)
        .map(Some)
        .ok_or_else(|| Step::S3b.claim("rev_epoch", "an integer from 0 to 2^53-1"))
}

/// The allocator's share of a token's allocations: a header and rounding for each of about ten.
const ALLOCATOR_BYTES: usize = 96;

const OVER_DEPTH_LIMIT: &str = "del_depth is over the configured depth limit";

pub(crate) fn time(claims: &Object<'_>, name: &'static str, step: Step) -> Result<UnixTime, Denial> {
    claims
        .integer(name)
        .map(UnixTime)
        .ok_or_else(|| step.claim(name, "whole seconds since the Unix epoch"))
}

fn depth(claims: &Object<'_>, name: &str) -> Option<u32> {
    claims.integer(name).and_then(|depth| u32::try_from(depth).ok())
}

pub(crate) fn id(claims: &Object<'_>, step: Step) -> Result<String, Denial> {
    text(claims, "jti", step).map(str::to_owned)
}

pub(crate) fn text<'a>(claims: &'a Object<'_>, name: &'static str, step: Step) -> Result<&'a str, Denial> {
    claims
        .text(name)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| step.claim(name, "a string that is not empty"))
}

fn details<'a>(claims: &'a Object<'_>) -> Option<&'a [Json<'a>]> {
    claims.array("authorization_details")
}

/// `aud`, if present. A value that is neither a string nor an array of strings names no audience.
pub(crate) fn audience(claims: &Object<'_>) -> Option<Vec<String>> {
    claims.member("aud").map(|aud| match aud {
        Json::String(one) => vec![one.clone().into_owned()],
        Json::Array(several) => several
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .unwrap_or_default(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => Vec::new(),
    })
}

pub(crate) fn check_not_expired(expires_at: UnixTime, now: UnixTime, step: Step) -> Result<(), Denial> {
    step.ensure(expires_at > now, Cause::Expired)
}

/// Steps 3e to 3h.
pub(crate) fn check_root_times(
    issued_at: UnixTime,
    expires_at: UnixTime,
    now: UnixTime,
    limits: &Limits,
) -> Result<(), Denial> {
    check_not_expired(expires_at, now, Step::S3e)?;
    check_not_from_future(issued_at, now, limits, Step::S3f)?;
    check_lifetime(issued_at, expires_at, Step::S3g)?;
    check_lifetime_limit(issued_at, expires_at, limits)
}

fn check_not_from_future(issued_at: UnixTime, now: UnixTime, limits: &Limits, step: Step) -> Result<(), Denial> {
    step.ensure(issued_at <= now.plus(limits.iat_skew), Cause::IssuedInFuture)
}

fn check_lifetime(issued_at: UnixTime, expires_at: UnixTime, step: Step) -> Result<(), Denial> {
    step.ensure(expires_at > issued_at, Cause::Lifetime)
}

fn check_lifetime_limit(issued_at: UnixTime, expires_at: UnixTime, limits: &Limits) -> Result<(), Denial> {
    Step::S3h.ensure(expires_at <= issued_at.plus(limits.token_lifetime), Cause::Lifetime)
}

fn check_depth_limit(max_depth: Option<u32>, limits: &Limits) -> Result<u32, Denial> {
    max_depth
        .filter(|&max_depth| max_depth <= limits.delegation_depth)
        .ok_or_else(|| Step::S3i.claim("del_max_depth", "an integer from 0 to the configured depth limit"))
}
