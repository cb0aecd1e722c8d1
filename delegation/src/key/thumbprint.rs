//! The name of a key.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::base64url;

/// The SHA-256 thumbprint of a key (RFC 7638). It names the key as an issuer, as an agent, and in revocations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    /// The thumbprint of the key with this JWK: required members only, in the order of their names, without spaces.
    pub(super) fn of(canonical_jwk: &str) -> Self {
        Self(Sha256::digest(canonical_jwk).into())
    }

    /// Reads the base64url form.
    pub fn parse(text: &str) -> Option<Self> {
        base64url::decode_array(text).map(Self)
    }

    /// The thumbprint with this digest.
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The thumbprint URI (RFC 9278): the `iss` of a derived token (draft section 3.2).
    pub fn uri(&self) -> String {
        format!("urn:ietf:params:oauth:jwk-thumbprint:sha-256:{self}")
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url::encode(self.0))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thumbprint({self})")
    }
}
