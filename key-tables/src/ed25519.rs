//! Ed25519 signatures, verified by the rule of ed25519-dalek's `verify_strict`, with and without a table of the key.
//!
//! That rule is RFC 8032, section 5.1.7, with these choices: S is below the group order L, R is a canonical encoding,
//! neither R nor the key is of small order, and the equation is the one without the cofactor, S·B = R + k·A. Both
//! functions here compute S·B - k·A and compare its encoding with R. So they never decompress R, and they refuse an R that
//! is not canonical.
//!
//! Keys, messages and signatures are public. Nothing here is constant-time.

use std::sync::LazyLock;

use curve25519_dalek::{Scalar, constants::ED25519_BASEPOINT_COMPRESSED};
use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};
use sha2::{Digest as _, Sha512};

use crate::edwards::{Point, sum};
use crate::fixed_base::{FixedBaseTable, places};

/// Whether `signature` is the key's, without a table. The answer is that of [`VerifyingKey::verify_strict`], for a key
/// that is not of small order.
///
/// `verify_strict` decompresses R only to see whether it is of small order. Looking its bytes up in a list of the eight
/// such points answers the same question and saves 12 % of a verification.
#[must_use]
pub fn verify_strict(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
    Signature::from_slice(signature).is_ok_and(|signature| {
        // `verify` refuses an S that is not below the group order, and an R that is not canonical.
        !is_of_small_order(signature.r_bytes()) && key.verify(message, &signature).is_ok()
    })
}

/// The table of one Ed25519 public key: 162 KiB, and 480 KiB once for the base point.
pub struct Ed25519Table {
    key: [u8; 32],
    base: &'static FixedBaseTable<BASE_WINDOW>,
    negated_key: FixedBaseTable<KEY_WINDOW>,
}

impl Ed25519Table {
    /// Computes the table of a key that is not of small order. The first call computes the base point's as well, which
    /// takes three times as long.
    ///
    /// `None` never happens for a key that ed25519-dalek has decoded.
    #[must_use]
    pub fn new(key: &VerifyingKey) -> Option<Self> {
        let key = key.to_bytes();
        Some(Self {
            key,
            base: BASE.as_ref()?,
            // Of -A, for k·(-A). A may have a part of small order, and (L - k)·A would then be another point.
            negated_key: FixedBaseTable::new(Point::decode(&key)?.negate()),
        })
    }

    /// Whether `signature` is the key's. The answer is that of [`VerifyingKey::verify_strict`].
    #[must_use]
    pub fn verify_strict(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = Signature::from_slice(signature) else {
            return false;
        };
        let Some(s) = Option::<Scalar>::from(Scalar::from_canonical_bytes(*signature.s_bytes())) else {
            return false;
        };
        if is_of_small_order(signature.r_bytes()) {
            return false;
        }
        let challenge = Sha512::new()
            .chain_update(signature.r_bytes())
            .chain_update(self.key)
            .chain_update(message)
            .finalize();
        let k = Scalar::from_bytes_mod_order_wide(&challenge.into());
        let mut addends = Vec::with_capacity(const { places(BASE_WINDOW) + places(KEY_WINDOW) });
        addends.extend(self.base.addends(&s));
        addends.extend(self.negated_key.addends(&k));
        sum(&addends).encode() == *signature.r_bytes()
    }
}

/// Whether these bytes are the canonical encoding of one of the eight points whose order divides 8.
#[must_use]
pub fn is_of_small_order(point: &[u8; 32]) -> bool {
    let [rest @ .., last] = point;
    SMALL_ORDER
        .iter()
        .any(|[small @ .., small_last]| rest == small && last & 0x7f == *small_last)
}

static BASE: LazyLock<Option<FixedBaseTable<BASE_WINDOW>>> =
    LazyLock::new(|| Point::decode(ED25519_BASEPOINT_COMPRESSED.as_bytes()).map(FixedBaseTable::new));

/// Bits of a digit: 43 places of 32 multiples.
const KEY_WINDOW: usize = 6;

/// 32 places of 128 multiples.
const BASE_WINDOW: usize = 8;

/// The y coordinates of the points of small order, least significant byte first. Each stands for two points that differ
/// in the sign of x, or for one with x = 0. The latter with the sign bit set is no canonical encoding, and never verifies.
const SMALL_ORDER: [[u8; 32]; 5] = [
    // y = 1, the neutral element.
    [
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
    // y = -1, of order 2.
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
    // y = 0, of order 4.
    [0; 32],
    // Of order 8.
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT as BASE, EIGHT_TORSION};
    use curve25519_dalek::{EdwardsPoint, Scalar};
    use sha2::{Digest, Sha512};

    #[test]
    fn the_eight_points_of_small_order_are_known_and_no_others() {
        for point in EIGHT_TORSION {
            assert!(is_of_small_order(point.compress().as_bytes()));
        }
        let mut point = BASE;
        for _ in 0..1000 {
            assert!(!is_of_small_order(point.compress().as_bytes()));
            point += BASE;
        }
    }

    /// Keys and commitments with every torsion component, with right and wrong equations, S in and out of range, and
    /// encodings that are canonical or not.
    #[test]
    fn the_answer_is_that_of_the_library_s_verify_strict() {
        let (mut accepted, mut compared) = (0, 0);
        for round in 0..20u64 {
            let (secret, nonce) = (scalar(b"secret", round), scalar(b"nonce", round % 3));
            for of_key in EIGHT_TORSION {
                let point = BASE * secret + of_key;
                let Ok(key) = VerifyingKey::from_bytes(point.compress().as_bytes()) else {
                    continue;
                };
                if key.is_weak() {
                    continue;
                }
                let table = Ed25519Table::new(&key).unwrap();
                for of_commitment in EIGHT_TORSION {
                    for (nonce, flip) in [(nonce, false), (nonce, true), (Scalar::ZERO, false)] {
                        let commitment = BASE * nonce + of_commitment;
                        for encoded in encodings(&commitment) {
                            let mut signature = sign(&key, &encoded, secret, nonce, round);
                            if flip {
                                signature[40] ^= 1;
                            }
                            for signature in [signature, plus_order(signature)] {
                                accepted += u32::from(agreed(&key, &table, &message(round), &signature));
                                compared += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(accepted >= 100 && compared >= 5_000, "{accepted} of {compared}");
    }

    /// R and -R have the same y; only one bit differs.
    #[test]
    fn a_commitment_with_the_other_sign_is_refused() {
        let (secret, nonce) = (scalar(b"secret", 0), scalar(b"nonce", 0));
        let key = VerifyingKey::from(BASE * secret);
        let table = Ed25519Table::new(&key).unwrap();
        for (of_commitment, is_right) in [(nonce, true), (-nonce, false)] {
            let commitment = (BASE * of_commitment).compress().to_bytes();
            let signature = sign(&key, &commitment, secret, nonce, 0);
            assert_eq!(agreed(&key, &table, &message(0), &signature), is_right);
        }
    }

    #[test]
    fn a_signature_has_64_bytes() {
        let (secret, nonce) = (scalar(b"secret", 0), scalar(b"nonce", 0));
        let key = VerifyingKey::from(BASE * secret);
        let table = Ed25519Table::new(&key).unwrap();
        let signature = sign(&key, (BASE * nonce).compress().as_bytes(), secret, nonce, 0);
        let longer = [&signature[..], &[0]].concat();
        for length in 0..=65 {
            assert_eq!(agreed(&key, &table, &message(0), &longer[..length]), length == 64);
        }
    }

    /// The library's answer, which both functions here must give.
    fn agreed(key: &VerifyingKey, table: &Ed25519Table, message: &[u8], signature: &[u8]) -> bool {
        let theirs =
            Signature::from_slice(signature).is_ok_and(|signature| key.verify_strict(message, &signature).is_ok());
        assert_eq!(verify_strict(key, message, signature), theirs);
        assert_eq!(table.verify_strict(message, signature), theirs);
        theirs
    }

    fn scalar(label: &[u8], number: u64) -> Scalar {
        Scalar::from_bytes_mod_order_wide(
            &Sha512::new_with_prefix(label)
                .chain_update(number.to_le_bytes())
                .finalize()
                .into(),
        )
    }

    fn message(round: u64) -> [u8; 8] {
        round.to_le_bytes()
    }

    /// The canonical encoding, and the other one if the point has one.
    fn encodings(point: &EdwardsPoint) -> Vec<[u8; 32]> {
        let canonical = point.compress().to_bytes();
        let mut encodings = vec![canonical];
        if canonical[1..31] == [0; 30] && canonical[0] < 19 && canonical[31] & 0x7f == 0 {
            let mut other = [0xff; 32];
            other[0] = canonical[0] + 0xed;
            other[31] = 0x7f | canonical[31];
            encodings.push(other);
        }
        encodings
    }

    fn sign(key: &VerifyingKey, commitment: &[u8; 32], secret: Scalar, nonce: Scalar, round: u64) -> [u8; 64] {
        let challenge = Sha512::new()
            .chain_update(commitment)
            .chain_update(key.as_bytes())
            .chain_update(message(round))
            .finalize();
        let challenge = Scalar::from_bytes_mod_order_wide(&challenge.into());
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(commitment);
        signature[32..].copy_from_slice((nonce + challenge * secret).as_bytes());
        signature
    }

    /// The same with S + L, which must not be accepted (RFC 8032, section 5.1.7).
    fn plus_order(mut signature: [u8; 64]) -> [u8; 64] {
        let order = (-Scalar::ONE).to_bytes();
        let mut carry = 1u16;
        for (byte, order) in signature[32..].iter_mut().zip(order) {
            carry += u16::from(*byte) + u16::from(order);
            *byte = carry as u8;
            carry >>= 8;
        }
        signature
    }
}
