//! Private keys.

use std::fmt;

use ed25519_dalek::Signer as _;
use zeroize::Zeroizing;

use super::p256_key::P256Key;
use super::{Algorithm, KeyError, KeyType, Point, PublicKey, jwk};
use crate::base64url;
use crate::json::Json;

/// A private key. It is erased from memory when dropped, and its `Debug` form shows only the public half.
pub struct SigningKey {
    secret: Secret,
    public: PublicKey,
}

enum Secret {
    Ed25519(ed25519_dalek::SigningKey),
    P256(p256::ecdsa::SigningKey),
    Secp256k1(k256::ecdsa::SigningKey),
}

impl SigningKey {
    /// The Ed25519 key of this RFC 8032 seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        Self {
            public: PublicKey::new(Point::Ed25519(key.verifying_key())),
            secret: Secret::Ed25519(key),
        }
    }

    /// The key of this kind with this secret: an Ed25519 seed, or an ECDSA scalar, big-endian. Random bytes are valid,
    /// except with a probability of 2^-32 (P-256) or less.
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if the scalar is 0, or not below the order of the curve's group.
    pub fn from_secret(kind: KeyType, secret: &[u8; 32]) -> Result<Self, KeyError> {
        let (secret, point) = match kind {
            KeyType::Ed25519 => return Ok(Self::from_seed(secret)),
            KeyType::Rsa => return Err(KeyError::Unusable(kind)),
            KeyType::P256 => {
                let key = p256::ecdsa::SigningKey::from_slice(secret).map_err(|_| KeyError::Unusable(kind))?;
                let point = Point::P256(P256Key::new(*key.verifying_key()));
                (Secret::P256(key), point)
            }
            KeyType::Secp256k1 => {
                let key = k256::ecdsa::SigningKey::from_slice(secret).map_err(|_| KeyError::Unusable(kind))?;
                let point = Point::Secp256k1(*key.verifying_key());
                (Secret::Secp256k1(key), point)
            }
        };
        let public = PublicKey::new(point);
        Ok(Self { secret, public })
    }

    /// Reads a private JWK: a public one, and its secret as `d` (RFC 8037, section 2; RFC 7518, section 6.2.2).
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_jwk_text(text: &[u8]) -> Result<Self, KeyError> {
        let json = Json::parse(text)?;
        let jwk = json.as_object().ok_or(KeyError::NotAnObject)?;
        let public = jwk::public_half(jwk)?;
        let secret = Zeroizing::new(jwk::coordinate(jwk, "d")?);
        let key = Self::from_secret(public.key_type(), &secret)?;
        if key.public != public {
            return Err(KeyError::HalvesDisagree);
        }
        Ok(key)
    }

    /// The private JWK. Anyone who reads it can sign.
    pub fn to_private_jwk(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(match &self.secret {
            Secret::Ed25519(key) => key.to_bytes(),
            Secret::P256(key) => key.to_bytes().into(),
            Secret::Secp256k1(key) => key.to_bytes().into(),
        });
        let d = Zeroizing::new(base64url::encode(secret.as_slice()));
        let d = Zeroizing::new(format!(r#""d":"{}","#, *d));
        Zeroizing::new(self.public.point.to_jwk(&d))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public.clone()
    }

    /// The JWS `alg` of this key's signatures.
    pub fn algorithm(&self) -> Algorithm {
        self.public.key_type().algorithm()
    }

    /// Signs `message`: 64 bytes. The signature depends only on the key and the message (RFC 8032; RFC 6979).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.secret {
            Secret::Ed25519(key) => key.sign(message).to_bytes().to_vec(),
            Secret::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.normalize_s().to_bytes().to_vec()
            }
            Secret::Secp256k1(key) => {
                let signature: k256::ecdsa::Signature = key.sign(message);
                signature.normalize_s().to_bytes().to_vec()
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, {})", self.algorithm(), self.public.thumbprint())
    }
}
