//! Issuing, deriving, proving and revoking: the operations of issuers, delegating holders and agents (draft sections 6
//! and 7).
//!
//! Every result is first read back as a verifier would, so that no token is handed out that verifiers would deny.
//! Payloads are canonical JSON (RFC 8785). Ids and times are arguments: the crate has neither randomness nor a clock.

use sha2::{Digest as _, Sha256};

use crate::access_token::AccessTokens;
use crate::base64url;
use crate::denial::{Cause, Denial, Step};
use crate::dpop;
use crate::json::{Json, JsonError, Object};
pub use crate::jws::Signer;
pub use crate::jws::Unsigned;
use crate::jws::{self, Jws, TokenType};
use crate::key::{PublicKey, SigningKey, Thumbprint};
use crate::limits::Limits;
use crate::number::Number;
use crate::proof::{self, Proof};
pub use crate::statement::RevocationOrder;
use crate::statement::{self, Revocation, StatementError};
use crate::time::UnixTime;
use crate::token::{self, Claims, DerivedClaims};
use crate::value::{Arguments, Value};

/// The contents of every token.
#[derive(Debug, Clone)]
pub struct Grant {
    /// `jti`: unique; a UUIDv7 is recommended.
    pub id: String,
    /// `iat`.
    pub issued_at: UnixTime,
    /// `exp`.
    pub expires_at: UnixTime,
    /// `cnf.jwk`: the key of the token's future holder.
    pub holder: PublicKey,
    /// `cnf["x5t#S256"]`: SHA-256 of the holder's certificate for mutual TLS (RFC 8705).
    pub holder_certificate: Option<[u8; 32]>,
    /// `cnf["spiffe"]`: the SPIFFE ID in the holder's certificate for mutual TLS.
    pub holder_spiffe_id: Option<String>,
    /// `aud`; empty for none.
    pub audience: Vec<String>,
    /// `del_max_depth`.
    pub max_depth: u32,
    /// The `tools` object: tool names to constraint maps (draft section 3.3).
    pub tools: Value,
}

/// The contents of a root token.
#[derive(Debug, Clone)]
pub struct RootGrant {
    /// The capabilities and their holder.
    pub grant: Grant,
    /// `iss`: the issuer's URI.
    pub issuer: String,
    /// `sub`: the principal's name at the issuer.
    pub subject: Option<String>,
    /// `rev_epoch`: the principal's epoch.
    pub epoch: Option<u64>,
    /// `agent_name`: for display only.
    pub agent_name: Option<String>,
}

/// The contents of an access token (RFC 9068, section 2.2). It has no `scope`: what a verifier lets a scope grant would
/// add to the tools.
#[derive(Debug, Clone)]
pub struct AccessTokenGrant {
    /// `jti`: unique; a UUIDv7 is recommended.
    pub id: String,
    /// `iat`.
    pub issued_at: UnixTime,
    /// `exp`.
    pub expires_at: UnixTime,
    /// `iss`: the issuer's URI.
    pub issuer: String,
    /// `sub`: the principal's name at the issuer.
    pub subject: String,
    /// `client_id`: the OAuth client.
    pub client: String,
    /// `aud`; at least one.
    pub audience: Vec<String>,
    /// `rev_epoch`: the principal's epoch.
    pub epoch: Option<u64>,
    /// The `tools` object of its one entry of `authorization_details` (draft section 3.3).
    pub tools: Value,
    /// `cnf`.
    pub binding: Binding,
}

/// Who may use an access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The holder of the key with this thumbprint, who proves it by DPoP (RFC 9449, section 6.1).
    Jkt(Thumbprint),
    /// The client with the certificate that has this SHA-256, by mutual TLS (RFC 8705, section 3.1).
    Certificate([u8; 32]),
    /// Anyone who has it.
    Bearer,
}

/// One invocation to prove.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// `jti`: never used twice.
    pub id: String,
    /// `iat`.
    pub issued_at: UnixTime,
    /// `aat_tool`.
    pub tool: String,
    /// `hta`.
    pub arguments: Arguments,
    /// `aat_aud`.
    pub audience: Option<String>,
    /// `nonce`.
    pub nonce: Option<String>,
}

/// One request to prove by DPoP.
#[derive(Debug, Clone, Copy)]
pub struct DpopRequest<'a> {
    /// `jti`: never used twice.
    pub id: &'a str,
    /// `iat`.
    pub issued_at: UnixTime,
    /// `htm`: the method.
    pub method: &'a str,
    /// `htu`: the request's URI, whose query and fragment are left out.
    pub uri: &'a str,
    /// The access token that comes with it; none at a token endpoint.
    pub access_token: Option<&'a str>,
    /// `nonce`.
    pub nonce: Option<&'a str>,
}

/// Why nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The token to derive from or to prove cannot be read.
    #[error("the given token cannot be read: {0}")]
    Parent(Denial),
    /// The token names another key as its holder's.
    #[error("the key is not the holder's: the token is held by {holder}, the key is {key}")]
    NotTheHolder {
        /// Thumbprint of `cnf.jwk`.
        holder: String,
        /// Thumbprint of the key given.
        key: String,
    },
    /// A verifier would deny the result.
    #[error("the token would be denied: {0}")]
    WouldBeDenied(Denial),
    /// The result would not be JSON that verifiers accept.
    #[error("the token would be denied: {0}")]
    Json(#[from] JsonError),
}

/// Issues a root token.
///
/// # Errors
/// [`MintError::WouldBeDenied`] with the step at which a verifier would deny.
pub fn root<'k>(root: &RootGrant, signer: impl Into<Signer<'k>>, limits: &Limits) -> Result<String, MintError> {
    let mut claims = root.grant.claims(0);
    claims.push(text("iss", &root.issuer));
    claims.extend(optional("sub", &root.subject));
    claims.extend(root.epoch.map(|epoch| number("rev_epoch", epoch)));
    claims.extend(optional("agent_name", &root.agent_name));
    let token = jws::sign(signer, token::TYP, Value::object(claims).canonical());
    read(&token, root.grant.issued_at, limits).map_err(MintError::WouldBeDenied)?;
    Ok(token)
}

/// Issues an access token.
///
/// # Errors
/// [`MintError::WouldBeDenied`] with the step at which a verifier would deny.
pub fn access_token<'k>(
    grant: &AccessTokenGrant,
    signer: impl Into<Signer<'k>>,
    limits: &Limits,
) -> Result<String, MintError> {
    let mut claims = vec![
        text("iss", &grant.issuer),
        text("sub", &grant.subject),
        text("client_id", &grant.client),
        text("jti", &grant.id),
        number("iat", grant.issued_at.0),
        number("exp", grant.expires_at.0),
        details(&grant.tools),
    ];
    claims.extend(audience(&grant.audience));
    claims.extend(grant.epoch.map(|epoch| number("rev_epoch", epoch)));
    let confirmation = match grant.binding {
        Binding::Jkt(key) => Some(text("jkt", &key.to_string())),
        Binding::Certificate(digest) => Some(text("x5t#S256", &base64url::encode(digest))),
        Binding::Bearer => None,
    };
    claims.extend(confirmation.map(|confirmation| ("cnf".to_owned(), Value::object([confirmation]))));
    let token = jws::sign(signer, jws::ACCESS_TOKEN_TYP, Value::object(claims).canonical());
    read_claims(&token, jws::ACCESS_TOKEN_TYP, limits, |claims, hash| {
        let (typ, now) = (TokenType::AccessToken, grant.issued_at);
        AccessTokens::default().read(typ, claims, hash, now, limits, None)?;
        check_root_names(claims)
    })
    .map_err(MintError::WouldBeDenied)?;
    Ok(token)
}

/// Derives a token from `parent`, signed by the parent's holder.
///
/// The parent is not verified, since a holder needs no trust anchors; it is its own token. The attenuation is checked.
///
/// # Errors
/// See [`MintError`].
pub fn derive(parent: &str, grant: &Grant, key: &SigningKey, limits: &Limits) -> Result<String, MintError> {
    let parent = read(parent, grant.issued_at, limits).map_err(MintError::Parent)?;
    check_holder(&parent, key)?;
    Ok(derivation_from(&parent, grant, limits)?.sign(key))
}

/// The token that [`derive()`] signs, for the key of the parent's holder, wherever it is.
pub(crate) fn derivation_from(parent: &Claims, grant: &Grant, limits: &Limits) -> Result<Unsigned, MintError> {
    let key = holder_key(parent)?;
    if grant.id == parent.id {
        // A verifier checks the size first (step 2c).
        return Err(MintError::WouldBeDenied(Step::S2c.deny(Cause::Repeated)));
    }
    let mut claims = grant.claims(parent.depth.saturating_add(1));
    claims.push(text("iss", &key.thumbprint().uri()));
    claims.push(text("par_hash", &parent.hash));
    let token = unsigned(key, token::TYP, claims);
    read_claims(&token.unsigned(), token::TYP, limits, |claims, hash| {
        DerivedClaims::parse(claims, hash, None)?.under(parent, grant.issued_at, limits)
    })
    .map_err(MintError::WouldBeDenied)?;
    Ok(token)
}

/// Proves one invocation under `leaf`, signed by its holder.
///
/// # Errors
/// See [`MintError`]. The verifier decides whether the leaf grants the invocation.
pub fn prove(leaf: &str, invocation: &Invocation, key: &SigningKey, limits: &Limits) -> Result<String, MintError> {
    let leaf = read(leaf, invocation.issued_at, limits).map_err(MintError::Parent)?;
    check_holder(&leaf, key)?;
    Ok(proof_under(&leaf, invocation, limits)?.sign(key))
}

/// The proof that [`prove`] signs, for the key of the leaf's holder, wherever it is.
pub(crate) fn proof_under(leaf: &Claims, invocation: &Invocation, limits: &Limits) -> Result<Unsigned, MintError> {
    let arguments = invocation
        .arguments
        .iter()
        .map(|(name, value)| (name.to_owned(), value.clone()));
    let mut claims = vec![
        text("jti", &invocation.id),
        number("iat", invocation.issued_at.0),
        text("aat_id", &leaf.id),
        text("aat_hash", &leaf.hash),
        text("aat_tool", &invocation.tool),
        ("hta".to_owned(), Value::object(arguments)),
    ];
    claims.extend(optional("aat_aud", &invocation.audience));
    claims.extend(optional("nonce", &invocation.nonce));
    let proof = unsigned(holder_key(leaf)?, proof::TYP, claims);
    proof::check_claims(proof.payload()).map_err(MintError::WouldBeDenied)?;
    Proof::parse(&proof.unsigned(), limits).map_err(MintError::WouldBeDenied)?;
    Ok(proof)
}

/// A DPoP proof (RFC 9449, section 4.2) for this request, to be signed with this key.
pub fn dpop(request: &DpopRequest<'_>, key: &PublicKey) -> Unsigned {
    let uri = request.uri.split(['?', '#']).next().unwrap_or_default();
    let mut claims = vec![
        text("jti", request.id),
        number("iat", request.issued_at.0),
        text("htm", request.method),
        text("htu", uri),
    ];
    let hash = request
        .access_token
        .map(|token| base64url::encode(Sha256::digest(token)));
    claims.extend(optional("ath", &hash));
    claims.extend(request.nonce.map(|nonce| text("nonce", nonce)));
    let payload = Value::object(claims).canonical();
    Unsigned::new(key.key_type().algorithm(), dpop::TYP, [jwk(key)], payload)
}

/// Signs a revocation statement with the issuer's key.
///
/// # Errors
/// Any reason for which a verifier would refuse it, except that it may not trust the issuer.
pub fn revocation<'k>(
    order: &RevocationOrder,
    signer: impl Into<Signer<'k>>,
    limits: &Limits,
) -> Result<String, StatementError> {
    let revoked = match &order.revocation {
        Revocation::Epoch(epoch) => number("epoch", *epoch),
        Revocation::Delegation { under, id } if under.is_empty() => text("delegation", id),
        Revocation::Delegation { under, id } => {
            let path = under.iter().chain([id]);
            let path = Value::Array(path.map(|id| id.as_str().into()).collect());
            ("delegation".to_owned(), path)
        }
        Revocation::Key(key) => text("key", &key.to_string()),
        Revocation::IssuedUntil(until) => number("issued_until", until.0),
    };
    let mut claims = vec![
        text("jti", &order.id),
        text("iss", &order.issuer),
        number("iat", order.issued_at.0),
        number("exp", order.expires_at.0),
        ("revoke".to_owned(), Value::object([revoked])),
    ];
    claims.extend(optional("sub", &order.subject));
    claims.extend(audience(&order.audience));
    let statement = jws::sign(signer, statement::TYP, Value::object(claims).canonical());
    statement::check(&statement, order.issued_at, limits)?;
    Ok(statement)
}

impl Grant {
    fn claims(&self, depth: u32) -> Vec<(String, Value)> {
        let mut cnf = vec![jwk(&self.holder)];
        let certificate = self.holder_certificate.map(base64url::encode);
        cnf.extend(optional("x5t#S256", &certificate));
        cnf.extend(optional("spiffe", &self.holder_spiffe_id));
        let mut claims = vec![
            text("jti", &self.id),
            number("iat", self.issued_at.0),
            number("exp", self.expires_at.0),
            ("cnf".to_owned(), Value::object(cnf)),
            number("del_depth", depth),
            number("del_max_depth", self.max_depth),
            details(&self.tools),
        ];
        claims.extend(audience(&self.audience));
        claims
    }
}

/// `authorization_details` with its one entry.
fn details(tools: &Value) -> (String, Value) {
    let entry = Value::object([
        text("type", "attenuating_agent_token"),
        ("tools".to_owned(), tools.clone()),
    ]);
    ("authorization_details".to_owned(), Value::Array(vec![entry]))
}

/// `aud`, if an audience is given.
fn audience(names: &[String]) -> Option<(String, Value)> {
    let value = match names {
        [] => return None,
        [one] => one.as_str().into(),
        several => Value::Array(several.iter().map(|name| name.as_str().into()).collect()),
    };
    Some(("aud".to_owned(), value))
}

/// Reads a token as a verifier would after verifying its signature, without relating it to a parent.
pub(crate) fn read(compact: &str, now: UnixTime, limits: &Limits) -> Result<Claims, Denial> {
    read_claims(compact, token::TYP, limits, |claims, hash| {
        if claims.member("par_hash").is_some() {
            return DerivedClaims::parse(claims, hash, None)?.alone(now);
        }
        let root = Claims::parse_root(claims, hash, now, limits, None)?;
        check_root_names(claims)?;
        Ok(root)
    })
}

/// The checks of a root, or of an access token, that need its trust anchor or are not part of the draft.
fn check_root_names(claims: &Object<'_>) -> Result<(), Denial> {
    token::issuer(claims)?;
    token::subject(claims)?;
    token::epoch(claims)?;
    Ok(())
}

/// Reads the claims of a token of this media type, given as JSON with the token's hash.
pub(crate) fn read_claims<R>(
    compact: &str,
    typ: &'static str,
    limits: &Limits,
    read: impl FnOnce(&Object<'_>, String) -> Result<R, Denial>,
) -> Result<R, Denial> {
    Step::S2a.check_size("a token", compact.len(), limits.token_bytes)?;
    let jws = Jws::parse(compact).map_err(|cause| Step::S2c.deny(cause))?;
    jws.header(typ).map_err(|cause| Step::S3a.deny(cause))?;
    jws.read_claims(Step::S2c, |claims| read(claims, jws.hash()))
}

fn holder_key(token: &Claims) -> Result<&PublicKey, MintError> {
    let unknown = || Step::S3l.claim("cnf", "an object with \"jwk\"");
    token.holder.key().ok_or_else(|| MintError::Parent(unknown()))
}

fn unsigned(key: &PublicKey, typ: &str, claims: Vec<(String, Value)>) -> Unsigned {
    Unsigned::new(key.key_type().algorithm(), typ, [], Value::object(claims).canonical())
}

fn jwk(key: &PublicKey) -> (String, Value) {
    let text = key.to_jwk();
    let jwk = Json::parse(text.as_bytes()).ok();
    let jwk = jwk.and_then(|jwk| Value::from_json(&jwk).ok());
    ("jwk".to_owned(), jwk.unwrap_or(Value::Null))
}

fn check_holder(token: &Claims, key: &SigningKey) -> Result<(), MintError> {
    let (holder, key) = (token.holder.thumbprint(), key.public().thumbprint());
    if holder == Some(key) {
        Ok(())
    } else {
        Err(MintError::NotTheHolder {
            holder: holder.map(|holder| holder.to_string()).unwrap_or_default(),
            key: key.to_string(),
        })
    }
}

fn text(claim: &str, text: &str) -> (String, Value) {
    (claim.to_owned(), text.into())
}

fn optional(claim: &str, value: &Option<String>) -> Option<(String, Value)> {
    value.as_ref().map(|value| text(claim, value))
}

/// A whole number. If JCS cannot represent it, it becomes a string, which no verifier accepts as a number.
fn number(claim: &str, value: impl Into<i128>) -> (String, Value) {
    let text = value.into().to_string();
    let number = Number::parse(&text).and_then(|number| number.admissible());
    (claim.to_owned(), number.map_or(Value::String(text), Value::Number))
}
