//! Keys and the signatures they verify.
//!
//! Every kind of key has one strict rule, so that two verifiers never disagree:
//!
//! - Ed25519 (RFC 8032): the rule of ed25519-dalek's `verify_strict`, and only canonical keys. S is below the group
//!   order, R and the key are canonical encodings of points that are not of small order, and the equation is the one
//!   without the cofactor.
//! - ECDSA with P-256 or secp256k1 (RFC 7518, section 3.4; RFC 8812): the signature is r and s, 32 bytes each, both
//!   from 1 to the group order less 1. No JOSE specification requires a low s, and half of the signatures of phones and
//!   of most libraries have a high one: both are accepted, and low ones are made. An attacker gains nothing by turning
//!   one into the other, since no token or proof is identified by its signature: `par_hash`, `aat_hash`, revocation and
//!   replay detection use the signed bytes.
//! - RSA (RFC 7518, sections 3.3 and 3.5) only for access tokens of identity providers: 2048 to 4096 bits, e = 65537.

mod algorithm;
mod coordinates;
mod did;
mod error;
mod hot;
mod jwk;
mod p256_key;
mod point;
mod rsa_key;
mod set;
mod signing;
mod thumbprint;
mod well_known;

use std::fmt;

use credence_key_tables::{is_of_small_order, verify_strict};
use sha2::{Digest as _, Sha256};

pub use algorithm::{Algorithm, Algorithms, KeyType};
pub use did::DidKeyError;
pub use error::KeyError;
pub use hot::HotKeys;
use p256_key::P256Key;
use point::Point;
use rsa_key::RsaKey;
pub use set::{IdentifiedKey, JwkSet, JwkSetError, SkippedKey};
pub use signing::SigningKey;
pub use thumbprint::Thumbprint;
pub(crate) use well_known::WellKnown;

/// A public key that verifies signatures, and its thumbprint.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: Point,
    thumbprint: Thumbprint,
}

impl PublicKey {
    /// The Ed25519 public key with this encoding (RFC 8032).
    ///
    /// # Errors
    /// [`KeyError::Unusable`] if it is not the canonical encoding of a point of the curve, or of small order.
    pub fn from_ed25519(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let unusable = || KeyError::Unusable(KeyType::Ed25519);
        // Small order: anyone can make signatures for it. Not canonical: the same key would have two thumbprints.
        if !is_sound_ed25519(bytes) {
            return Err(unusable());
        }
        ed25519_dalek::VerifyingKey::from_bytes(bytes)
            .map(|key| Self::new(Point::Ed25519(key)))
            .map_err(|_| unusable())
    }

    /// The key with these coordinates.
    fn from_coordinates(kind: KeyType, x: &[u8; 32], y: &[u8; 32]) -> Result<Self, KeyError> {
        match kind {
            KeyType::P256 => Self::of_p256(coordinates::point::<p256::NistP256>(x, y)),
            KeyType::Secp256k1 => Self::of_secp256k1(coordinates::point::<k256::Secp256k1>(x, y)),
            KeyType::Ed25519 | KeyType::Rsa => Err(KeyError::Unusable(kind)),
        }
    }

    /// The key with this x, and an odd or an even y.
    fn decompressed(kind: KeyType, x: &[u8; 32], is_odd: bool) -> Result<Self, KeyError> {
        match kind {
            KeyType::P256 => Self::of_p256(coordinates::decompressed::<p256::NistP256>(x, is_odd)),
            KeyType::Secp256k1 => Self::of_secp256k1(coordinates::decompressed::<k256::Secp256k1>(x, is_odd)),
            KeyType::Ed25519 | KeyType::Rsa => Err(KeyError::Unusable(kind)),
        }
    }

    fn of_p256(point: Option<p256::AffinePoint>) -> Result<Self, KeyError> {
        let key = point.and_then(|point| p256::ecdsa::VerifyingKey::from_affine(point).ok());
        let key = key.ok_or(KeyError::Unusable(KeyType::P256))?;
        Ok(Self::new(Point::P256(P256Key::new(key))))
    }

    fn of_secp256k1(point: Option<k256::AffinePoint>) -> Result<Self, KeyError> {
        let key = point.and_then(|point| k256::ecdsa::VerifyingKey::from_affine(point).ok());
        let key = key.ok_or(KeyError::Unusable(KeyType::Secp256k1))?;
        Ok(Self::new(Point::Secp256k1(key)))
    }

    /// The RSA key of this modulus and exponent, big-endian.
    fn from_rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        RsaKey::new(modulus, exponent).map(|key| Self::new(Point::Rsa(key)))
    }

    fn new(point: Point) -> Self {
        Self {
            thumbprint: Thumbprint::of(&point.to_jwk("")),
            point,
        }
    }

    /// The kind of key.
    pub fn key_type(&self) -> KeyType {
        match self.point {
            Point::Ed25519(_) => KeyType::Ed25519,
            Point::P256(_) => KeyType::P256,
            Point::Secp256k1(_) => KeyType::Secp256k1,
            Point::Rsa(_) => KeyType::Rsa,
        }
    }

    /// The RFC 7638 thumbprint.
    pub fn thumbprint(&self) -> Thumbprint {
        self.thumbprint
    }

    /// Whether this kind of key can make signatures of `algorithm`.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        algorithm.key_type() == self.key_type()
    }

    /// Makes this key's signatures cheaper to verify, if possible: with P-256, all except the first one then cost a
    /// third, and the key takes 3 KiB of memory.
    pub fn prepare(&mut self) {
        if let Point::P256(key) = &mut self.point {
            key.prepare();
        }
    }

    /// Whether this key made `signature` over `message` by this algorithm. The kind of the other keys implies theirs.
    #[must_use]
    pub fn verifies_by(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.point {
            Point::Rsa(key) => key.verifies(algorithm, &Sha256::digest(message).into(), signature),
            Point::Ed25519(_) | Point::P256(_) | Point::Secp256k1(_) => self.verifies(message, signature),
        }
    }

    /// Whether this key made `signature` over `message`, by the rule of the key's kind (see the module). False for RSA,
    /// whose keys have several algorithms.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.point {
            Point::Rsa(_) => false,
            Point::Ed25519(key) => verify_strict(key, message, signature),
            Point::P256(_) | Point::Secp256k1(_) => self.verifies_sha256(&Sha256::digest(message).into(), signature),
        }
    }

    /// The same for a message with this SHA-256. Only for kinds of keys that sign the SHA-256.
    pub(crate) fn verifies_sha256(&self, digest: &[u8; 32], signature: &[u8]) -> bool {
        use k256::ecdsa::signature::hazmat::PrehashVerifier as _;
        match &self.point {
            Point::Ed25519(_) | Point::Rsa(_) => false,
            Point::P256(key) => {
                p256::ecdsa::Signature::from_slice(signature).is_ok_and(|signature| key.verifies(digest, &signature))
            }
            // Of s and its negative, which are equally valid, the library requires the low one.
            Point::Secp256k1(key) => k256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_prehash(digest, &signature.normalize_s()).is_ok()),
        }
    }

    /// The key, if it is of this kind.
    pub(crate) fn ed25519(&self) -> Option<&ed25519_dalek::VerifyingKey> {
        match &self.point {
            Point::Ed25519(key) => Some(key),
            Point::P256(_) | Point::Secp256k1(_) | Point::Rsa(_) => None,
        }
    }
}

/// Whether these bytes, if they encode a point at all, are canonical and not of small order.
pub(crate) fn is_sound_ed25519(bytes: &[u8; 32]) -> bool {
    is_canonical_ed25519(bytes) && !is_of_small_order(bytes)
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({}, {})", self.key_type(), self.thumbprint)
    }
}

/// Whether the y coordinate is below 2^255-19 (RFC 8032, section 5.1.3). The sign bit needs no check: the points with
/// two signs for one x are of small order.
fn is_canonical_ed25519(bytes: &[u8; 32]) -> bool {
    let [low, middle @ .., high] = bytes;
    !(high & 0x7f == 0x7f && middle.iter().all(|&byte| byte == 0xff) && *low >= 0xed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base64url;

    /// The key of RFC 8037, appendix A.
    const SEED: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn key() -> SigningKey {
        SigningKey::from_seed(&base64url::decode_array(SEED).unwrap())
    }

    #[test]
    fn thumbprint_and_signature_are_those_of_rfc_8037_appendix_a() {
        let public = key().public();
        assert_eq!(public.to_jwk(), format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{X}"}}"#));
        assert_eq!(
            public.thumbprint().to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(base64url::encode(key().sign(message)), signature);
        assert!(public.verifies(message, &base64url::decode(signature).unwrap()));
    }

    #[test]
    fn a_jwk_must_be_a_usable_public_ed25519_key() {
        let weak = base64url::encode([0u8; 32]);
        let off_curve = base64url::encode({
            let mut bytes = [0u8; 32];
            bytes[0] = 2;
            bytes
        });
        for (jwk, error) in [
            (r#"[]"#.to_owned(), KeyError::NotAnObject),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}","d":"{SEED}"}}"#),
                KeyError::Private("d"),
            ),
            (r#"{"kty":"oct","k":"AAAA"}"#.to_owned(), KeyError::Private("k")),
            (r#"{"crv":"Ed25519"}"#.to_owned(), KeyError::Missing("kty")),
            (
                r#"{"kty":"OKP","crv":"Ed25519","x":7}"#.to_owned(),
                KeyError::Missing("x"),
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"X25519","x":"{X}"}}"#),
                KeyError::Unsupported {
                    kty: "OKP".into(),
                    crv: "X25519".into(),
                },
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{X}="}}"#),
                KeyError::Encoding("x"),
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, &X[1..]),
                KeyError::Encoding("x"),
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{weak}"}}"#),
                KeyError::Unusable(KeyType::Ed25519),
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{off_curve}"}}"#),
                KeyError::Unusable(KeyType::Ed25519),
            ),
        ] {
            assert_eq!(PublicKey::from_jwk_text(jwk.as_bytes()).unwrap_err(), error, "{jwk}");
        }
    }

    #[test]
    fn a_private_jwk_round_trips_and_its_halves_must_match() {
        let text = key().to_private_jwk();
        assert_eq!(
            SigningKey::from_jwk_text(text.as_bytes()).unwrap().public(),
            key().public()
        );
        let other = SigningKey::from_seed(&[7; 32]).public().to_jwk();
        let other = text.replace(X, other.split('"').nth(11).unwrap());
        assert_eq!(
            SigningKey::from_jwk_text(other.as_bytes()).unwrap_err(),
            KeyError::HalvesDisagree
        );
    }

    #[test]
    fn a_signature_has_one_encoding() {
        let (public, message) = (key().public(), b"message");
        let mut signature = key().sign(message);
        assert!(public.verifies(message, &signature));
        assert!(!public.verifies(b"massage", &signature));
        assert!(!public.verifies(message, &signature[..63]));
        // s + L, L the order of the group: the same point equation, but not the same bytes (RFC 8032, section 5.1.7).
        const ORDER: [u8; 32] = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
        ];
        let mut carry = 0u16;
        for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
            carry += u16::from(*byte) + u16::from(order);
            *byte = carry as u8;
            carry >>= 8;
        }
        assert!(!public.verifies(message, &signature));
    }
}
