//! RSA keys of identity providers (RFC 7518, sections 3.3, 3.5 and 6.3), for access tokens only.

use std::sync::Arc;

use credence_key_tables::RsaKey as Verifier;

use super::{Algorithm, KeyError, KeyType};

/// A modulus of 2048 to 4096 bits, and the exponent 65537: the only one that providers use, and small ones have helped
/// forgers.
#[derive(Clone)]
pub(super) struct RsaKey(Arc<Verifier>);

impl RsaKey {
    /// The key of this modulus and exponent, big-endian. Only the shortest encodings (RFC 7518, section 2), so that a key
    /// has one thumbprint.
    pub(super) fn new(modulus: &[u8], exponent: &[u8]) -> Result<Self, KeyError> {
        let verifier = Verifier::new(modulus).filter(|_| exponent == EXPONENT);
        verifier
            .map(|verifier| Self(Arc::new(verifier)))
            .ok_or(KeyError::Unusable(KeyType::Rsa))
    }

    /// The modulus, big-endian, without leading zeros.
    pub(super) fn modulus(&self) -> &[u8] {
        self.0.modulus()
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
        match algorithm {
            Algorithm::Rs256 => self.0.verify_rs256(digest, signature),
            Algorithm::Ps256 => self.0.verify_ps256(digest, signature),
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
        self.modulus() == other.modulus()
    }
}

impl Eq for RsaKey {}

const EXPONENT: [u8; 3] = [1, 0, 1];
