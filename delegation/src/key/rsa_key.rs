//! RSA keys of identity providers (RFC 7518, sections 3.3, 3.5 and 6.3), for access tokens only.

use std::sync::Arc;

use rsa::signature::hazmat::PrehashVerifier as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{BoxedUint, PublicKey, pkcs1v15, pss};
use sha2::Sha256;

use super::{Algorithm, KeyError, KeyType};

/// A modulus of 2048 to 4096 bits, and the exponent 65537: the only one that providers use, and small ones have helped
/// forgers (RFC 8017, section 8.2, notes).
#[derive(Clone)]
pub(super) struct RsaKey(Arc<Verifiers>);

struct Verifiers {
    modulus: Vec<u8>,
    rs256: pkcs1v15::VerifyingKey<Sha256>,
    /// The salt is as long as the digest (RFC 7518, section 3.5).
    ps256: pss::VerifyingKey<Sha256>,
}

impl RsaKey {
    /// The key of this modulus and exponent, big-endian.
    pub(super) fn new(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let unusable = || KeyError::Unusable(KeyType::Rsa);
        // The shortest encodings (RFC 7518, section 2), so that a key has one thumbprint.
        let is_shortest = modulus.first().is_some_and(|first| *first != 0);
        if exponent != EXPONENT || !is_shortest || modulus.len() > MAX_BYTES {
            return Err(unusable());
        }
        let [n, e] = [modulus, exponent].map(BoxedUint::from_be_slice_vartime);
        let key = PublicKey::new(n, e).map_err(|_| unusable())?;
        if key.n().bit_width() < MIN_BITS {
            return Err(unusable());
        }
        Ok(Self(Arc::new(Verifiers {
            modulus: modulus.to_vec(),
            rs256: pkcs1v15::VerifyingKey::new(key.clone()),
            ps256: pss::VerifyingKey::new(key),
        })))
    }

    /// The modulus, big-endian, without leading zeros.
    pub(super) fn modulus(&self) -> &[u8] {
        &self.0.modulus
    }

    /// The key as an ASN.1 `RSAPublicKey` (RFC 8017, appendix A.1.1).
    pub(super) fn to_pkcs1_der(&self) -> Vec<u8> {
        let integer = |number: &[u8]| {
            // A number with the highest bit set would be negative.
            let zero = number.first().filter(|first| **first > 0x7f).map(|_| 0);
            tagged(
                0x02,
                &zero.into_iter().chain(number.iter().copied()).collect::<Vec<_>>(),
            )
        };
        tagged(0x30, &[integer(self.modulus()), integer(self.exponent())].concat())
    }

    /// The exponent, big-endian, without leading zeros.
    pub(super) fn exponent(&self) -> &'static [u8] {
        &EXPONENT
    }

    /// Whether this key made `signature` by this algorithm over a message with this digest.
    pub(super) fn verifies(&self, algorithm: Algorithm, digest: &[u8; 32], signature: &[u8]) -> bool {
        let Verifiers { modulus, rs256, ps256 } = &*self.0;
        // As long as the modulus, and no number has two encodings (RFC 8017, sections 8.1.2 and 8.2.2).
        if signature.len() != modulus.len() {
            return false;
        }
        match algorithm {
            Algorithm::Rs256 => pkcs1v15::Signature::try_from(signature)
                .is_ok_and(|signature| rs256.verify_prehash(digest, &signature).is_ok()),
            Algorithm::Ps256 => pss::Signature::try_from(signature)
                .is_ok_and(|signature| ps256.verify_prehash(digest, &signature).is_ok()),
            Algorithm::Ed25519 | Algorithm::EdDsa | Algorithm::Es256 | Algorithm::Es256k => false,
        }
    }
}

/// A value in DER: its tag, its length, and its contents of less than 64 KiB.
fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(contents.len()).unwrap_or(u16::MAX).to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, 0..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, contents].concat()
}

impl PartialEq for RsaKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.modulus == other.0.modulus
    }
}

impl Eq for RsaKey {}

const EXPONENT: [u8; 3] = [1, 0, 1];
const MIN_BITS: u32 = 2048;
const MAX_BYTES: usize = 512;
