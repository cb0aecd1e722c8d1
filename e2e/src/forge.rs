//! A signer that uses none of the product's code: it makes tokens that the product's tools refuse to make, and reads
//! the format independently. If the filter allows a token from here, both read the format alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::Failure;

/// A key that signs any input.
#[derive(Debug, Clone)]
pub struct Forger(SigningKey);

/// The claims of a token. A test may set any field wrong.
#[derive(Debug, Clone, Serialize)]
pub struct Claims {
    /// The token's id.
    pub jti: String,
    /// When it was issued, Unix seconds.
    pub iat: i64,
    /// When it expires, Unix seconds.
    pub exp: i64,
    /// A root's issuer URI, or the key thumbprint URI of the parent's holder.
    pub iss: String,
    /// The principal, in a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// The services that may accept it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<String>,
    /// The holder's key.
    pub cnf: Confirmation,
    /// How often it was derived.
    pub del_depth: u32,
    /// How often it may be derived.
    pub del_max_depth: u32,
    /// The parent's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub par_hash: Option<String>,
    /// The tools that it grants.
    pub authorization_details: Vec<Details>,
}

/// The holder's key.
#[derive(Debug, Clone, Serialize)]
pub struct Confirmation {
    /// As a JWK.
    pub jwk: Jwk,
}

/// A public Ed25519 key.
#[derive(Debug, Clone, Serialize)]
pub struct Jwk {
    kty: &'static str,
    crv: &'static str,
    x: String,
}

/// The tools that a token grants.
#[derive(Debug, Clone, Serialize)]
pub struct Details {
    /// `attenuating_agent_token`.
    pub r#type: &'static str,
    /// Tool names to constraints, as JSON.
    pub tools: Box<RawValue>,
}

impl Forger {
    /// The key of a private JWK file.
    ///
    /// # Errors
    /// If the file has no private JWK.
    pub fn from_file(file: &Path) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct PrivateJwk {
            d: String,
        }
        let place = || format!("the key file {}", file.display());
        let text = fs::read(file).map_err(Failure::of(place()))?;
        let jwk: PrivateJwk = serde_json::from_slice(&text).map_err(Failure::of(place()))?;
        let seed = URL_SAFE_NO_PAD.decode(jwk.d).map_err(Failure::of(place()))?;
        let seed = seed
            .try_into()
            .map_err(|_| Failure::new(format!("{}: \"d\" has not 32 bytes", place())))?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The key of these 32 secret bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// The public key.
    pub fn jwk(&self) -> Jwk {
        Jwk {
            kty: "OKP",
            crv: "Ed25519",
            x: encode(self.0.verifying_key().as_bytes()),
        }
    }

    /// The key's RFC 7638 thumbprint as a URI (RFC 9278). Derived tokens name their issuer by it.
    pub fn thumbprint_uri(&self) -> String {
        let Jwk { kty, crv, x } = self.jwk();
        let canonical = format!(r#"{{"crv":"{crv}","kty":"{kty}","x":"{x}"}}"#);
        format!(
            "urn:ietf:params:oauth:jwk-thumbprint:sha-256:{}",
            encode(Sha256::digest(canonical))
        )
    }

    /// Signs a token.
    ///
    /// # Errors
    /// If the claims cannot be written as JSON.
    pub fn token(&self, claims: &Claims) -> Result<String, Failure> {
        self.sign("aat+jwt", claims)
    }

    /// Signs a token with this header (JSON).
    ///
    /// # Errors
    /// If the claims cannot be written as JSON.
    pub fn token_under(&self, header: &str, claims: &Claims) -> Result<String, Failure> {
        self.sign_under(header, claims)
    }

    /// Signs any claims (JWS compact serialisation, RFC 7515).
    ///
    /// # Errors
    /// If the claims cannot be written as JSON.
    pub fn sign(&self, typ: &str, claims: &impl Serialize) -> Result<String, Failure> {
        self.sign_under(&json!({"alg": "Ed25519", "typ": typ}).to_string(), claims)
    }

    /// Signs any claims with this header (JSON).
    ///
    /// # Errors
    /// If the claims cannot be written as JSON.
    pub fn sign_under(&self, header: &str, claims: &impl Serialize) -> Result<String, Failure> {
        let claims = serde_json::to_vec(claims).map_err(Failure::of("writing claims"))?;
        let input = format!("{}.{}", encode(header), encode(claims));
        let signature = self.0.sign(input.as_bytes()).to_bytes();
        Ok(format!("{input}.{}", encode(signature)))
    }
}

impl Claims {
    /// A valid root: for `subject` at `issuer`, held by `holder`, valid for an hour, granting `tools` (JSON).
    ///
    /// # Errors
    /// If `tools` is not JSON.
    pub fn root(issuer: &str, subject: &str, holder: &Forger, tools: &str) -> Result<Self, Failure> {
        let now = now();
        Ok(Self {
            jti: fresh_id(),
            iat: now,
            exp: now + 3_600,
            iss: issuer.to_owned(),
            sub: Some(subject.to_owned()),
            aud: Some(crate::AUDIENCE.to_owned()),
            cnf: Confirmation { jwk: holder.jwk() },
            del_depth: 0,
            del_max_depth: 3,
            par_hash: None,
            authorization_details: vec![Details::of(tools)?],
        })
    }

    /// A valid token derived from `parent` (the token and its claims) by `parent_holder`, for `holder`, granting
    /// `tools` (JSON).
    ///
    /// # Errors
    /// If `tools` is not JSON.
    pub fn derived(
        parent: (&str, &Self),
        parent_holder: &Forger,
        holder: &Forger,
        tools: &str,
    ) -> Result<Self, Failure> {
        let (token, claims) = parent;
        let signing_input = token.rsplit_once('.').map_or(token, |(input, _)| input);
        Ok(Self {
            jti: fresh_id(),
            iss: parent_holder.thumbprint_uri(),
            sub: None,
            cnf: Confirmation { jwk: holder.jwk() },
            del_depth: claims.del_depth + 1,
            par_hash: Some(digest(signing_input)),
            authorization_details: vec![Details::of(tools)?],
            ..claims.clone()
        })
    }
}

impl Details {
    /// These tools, in JSON.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn of(tools: &str) -> Result<Self, Failure> {
        let tools = serde_json::from_str(tools).map_err(Failure::of("reading the tools of a forged token"))?;
        Ok(Self {
            r#type: "attenuating_agent_token",
            tools,
        })
    }
}

/// base64url(SHA-256) of a token's signing input (all before its last dot). Derived tokens and proofs name a token by
/// it.
pub fn digest(signing_input: &str) -> String {
    encode(Sha256::digest(signing_input))
}

/// The claims of a signed token or proof, to be changed and signed again.
///
/// # Errors
/// If `token` is not one.
pub fn claims_of(token: &str) -> Result<BTreeMap<String, Box<RawValue>>, Failure> {
    let attempt = || format!("reading the claims of {token}");
    let payload = token.split('.').nth(1).unwrap_or_default();
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(Failure::of(attempt()))?;
    serde_json::from_slice(&payload).map_err(Failure::of(attempt()))
}

/// The current time, Unix seconds.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn fresh_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(
        "forged-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
