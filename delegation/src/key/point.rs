//! The points and moduli of keys, and their JWKs.

use super::KeyType;
use super::p256_key::P256Key;
use super::rsa_key::RsaKey;
use crate::base64url;

/// A point of its curve, or an RSA modulus, that is a valid key.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Point {
    Ed25519(ed25519_dalek::VerifyingKey),
    P256(P256Key),
    Secp256k1(k256::ecdsa::VerifyingKey),
    Rsa(RsaKey),
}

impl Point {
    /// The JWK with only the required members, in the order of RFC 7638 and RFC 8785. `d` is the private member of that
    /// name, with its comma; empty for a public key.
    pub(super) fn to_jwk(&self, d: &str) -> String {
        match self {
            Self::Ed25519(key) => {
                let x = base64url::encode(key.as_bytes());
                format!(r#"{{"crv":"Ed25519",{d}"kty":"OKP","x":"{x}"}}"#)
            }
            Self::P256(key) => elliptic(KeyType::P256, key.as_library().to_sec1_point(false).as_bytes(), d),
            Self::Rsa(key) => {
                let (e, n) = (base64url::encode(key.exponent()), base64url::encode(key.modulus()));
                format!(r#"{{{d}"e":"{e}","kty":"RSA","n":"{n}"}}"#)
            }
            Self::Secp256k1(key) => elliptic(KeyType::Secp256k1, key.to_sec1_point(false).as_bytes(), d),
        }
    }
}

/// A JWK from an uncompressed point in SEC 1 form.
fn elliptic(kind: KeyType, sec1: &[u8], d: &str) -> String {
    let coordinates = sec1.get(1..).unwrap_or_default();
    let (x, y) = coordinates.split_at(coordinates.len() / 2);
    let (x, y) = (base64url::encode(x), base64url::encode(y));
    format!(r#"{{"crv":"{kind}",{d}"kty":"EC","x":"{x}","y":"{y}"}}"#)
}
