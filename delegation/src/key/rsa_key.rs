//! RSA keys of identity providers (RFC 7518, sections 3.3, 3.5 and 6.3), for access tokens only.

use std::sync::Arc;

use rsa::traits::PublicKeyParts as _;
use rsa::{BoxedUint, RsaPublicKey};
use sha2::Sha256;
use signature::hazmat::PrehashVerifier as _;

use super::{Algorithm, KeyError, KeyType};

/// A modulus of 2048 to 4096 bits, and the exponent 65537: the only one that providers use, and small ones have helped
/// forgers (RFC 8017, section 8.2, notes).
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RsaKey(Arc<RsaPublicKey>);

impl RsaKey {
    /// The key of this modulus and exponent, big-endian.
    pub(super) fn new(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let unusable = || KeyError::Unusable(KeyType::Rsa);
        // The encodings are the shortest (RFC 7518, section 2), so that a key has one thumbprint.
        let is_shortest = modulus.first().is_some_and(|first| *first != 0);
        if exponent != EXPONENT || !is_shortest || modulus.len() > MAX_BYTES {
            return Err(unusable());
        }
        let (n, e) = (BoxedUint::from_be_slice_vartime(modulus), BoxedUint::from_be_slice_vartime(exponent));
        let key = RsaPublicKey::new(n, e).map_err(|_| unusable())?;
        if key.n().bits() < MIN_BITS {
            return Err(unusable());
        }
        Ok(Self(Arc::new(key)))
    }

    /// The modulus, big-endian, without leading zeros.
    pub(super) fn modulus(&self) -> Vec<u8> {
        self.0.n_bytes().into_vec()
    }

    /// The exponent, big-endian, without leading zeros.
    pub(super) fn exponent(&self) -> &'static [u8] {
        &EXPONENT
    }

    /// Whether this key made `signature` by this algorithm over a message with this digest.
    pub(super) fn verifies(&self, algorithm: Algorithm, digest: &[u8; 32], signature: &[u8]) -> bool {
        let key = RsaPublicKey::clone(&self.0);
        match algorithm {
            Algorithm::Rs256 => rsa::pkcs1v15::Signature::try_from(signature).is_ok_and(|signature| {
                rsa::pkcs1v15::VerifyingKey::<Sha256>::new(key).verify_prehash(digest, &signature).is_ok()
            }),
            Algorithm::Ps256 => rsa::pss::Signature::try_from(signature).is_ok_and(|signature| {
                rsa::pss::VerifyingKey::<Sha256>::new(key).verify_prehash(digest, &signature).is_ok()
            }),
            Algorithm::Ed25519 | Algorithm::EdDsa | Algorithm::Es256 | Algorithm::Es256k => false,
        }
    }
}

const EXPONENT: [u8; 3] = [1, 0, 1];
const MIN_BITS: u32 = 2048;
const MAX_BYTES: usize = 512;
