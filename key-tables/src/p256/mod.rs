//! ECDSA signatures with P-256, verified with a table of the key.
//!
//! ECDSA compares the x coordinate of u1·G + u2·Q with r (FIPS 186-5, section 6.4.2). Both scalars are cut into four
//! parts of 64 bits, and the table holds odd multiples of 2^(64·i)·Q for each of the four. All eight products then
//! share 64 doublings; two whole scalars take 256. The parts are in non-adjacent form.
//!
//! Keys, digests and signatures are public. Nothing here is constant-time.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "points and scalars have no overflow; digits are below their width, and places below a constant length"
)]

pub(super) mod field;
mod point;

use std::sync::LazyLock;

use crypto_bigint::U256;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::ops::{Invert as _, Reduce as _};
use p256::elliptic_curve::point::AffineCoordinates as _;
use p256::{FieldBytes, Scalar};

use self::field::P;
use self::point::{AffinePoint, Point, affine};

/// The table of one P-256 public key: 2.5 KiB, and as much once for the generator.
pub struct P256Table([[AffinePoint; MULTIPLES]; PARTS]);

impl P256Table {
    /// Computes the table, which takes about twice as long as verifying a signature with it.
    #[must_use]
    pub fn new(key: &VerifyingKey) -> Self {
        Self::of(key.as_affine())
    }

    /// Whether `signature` is the key's over a message with this SHA-256 digest. Both s and -s are accepted.
    #[must_use]
    pub fn verify(&self, digest: &[u8; 32], signature: &Signature) -> bool {
        let (r, s) = signature.split_scalars();
        let digest = Scalar::reduce(&FieldBytes::from(*digest));
        let inverse = *s.invert_vartime();
        let sum = sum([(&*GENERATOR, digest * inverse), (self, *r * inverse)]);
        // r is x modulo the order, which is a little less than p: x may be r, or r and the order.
        let r = U256::from_be_slice(&r.to_bytes());
        let above = r.wrapping_add(&ORDER);
        sum.has_x(&r) || ((r..*P.as_ref()).contains(&above) && sum.has_x(&above))
    }

    fn of(point: &p256::AffinePoint) -> Self {
        let number = |bytes: FieldBytes| U256::from_be_slice(&bytes);
        let first = AffinePoint::new(&number(point.x()), &number(point.y()));
        let mut power = first.to_projective();
        // The first point of each part, and its double.
        let mut points = Vec::with_capacity(2 * PARTS);
        for part in 0..PARTS {
            if part > 0 {
                power = (0..PART_BITS).fold(power, |power, _| power.double());
            }
            points.extend([power, power.double()]);
        }
        let mut multiples = Vec::with_capacity(PARTS * MULTIPLES);
        for pair in affine(&points).as_chunks().0 {
            let [point, twice] = pair;
            let next = |multiple: &Point| Some(multiple.add(twice));
            multiples.extend(std::iter::successors(Some(point.to_projective()), next).take(MULTIPLES));
        }
        let multiples = affine(&multiples);
        Self(std::array::from_fn(|part| {
            std::array::from_fn(|index| multiples[part * MULTIPLES + index])
        }))
    }
}

/// The sum of the tables' points, each times its scalar.
fn sum(terms: [(&P256Table, Scalar); 2]) -> Point {
    let terms = terms.map(|(table, scalar)| (table, digits(&scalar)));
    let mut sum = Point::NEUTRAL;
    for place in (0..=PART_BITS).rev() {
        sum = sum.double();
        for (table, digits) in &terms {
            for (multiples, digits) in table.0.iter().zip(digits) {
                let digit = digits[place];
                let multiple = &multiples[usize::from(digit.unsigned_abs() / 2) % MULTIPLES];
                match digit.signum() {
                    1 => sum = sum.add(multiple),
                    -1 => sum = sum.add(&multiple.negated()),
                    _ => {}
                }
            }
        }
    }
    sum
}

/// The parts of a scalar in base 2, the lowest first. Their digits are odd and between -16 and 16, or 0, as at least four
/// of five are.
fn digits(scalar: &Scalar) -> [[i8; PART_BITS + 1]; PARTS] {
    let mut bytes: [u8; 32] = scalar.to_bytes().into();
    bytes.reverse();
    let (parts, _) = bytes.as_chunks();
    std::array::from_fn(|part| {
        let mut rest = i128::from(u64::from_le_bytes(parts[part]));
        std::array::from_fn(|_| {
            let low = (rest & 31) as i8;
            let digit = match low {
                _ if low % 2 == 0 => 0,
                17.. => low - 32,
                _ => low,
            };
            rest = (rest - i128::from(digit)) >> 1;
            digit
        })
    })
}

static GENERATOR: LazyLock<P256Table> = LazyLock::new(|| P256Table::of(&p256::AffinePoint::GENERATOR));

const PARTS: usize = 4;
const PART_BITS: usize = 64;
/// The odd multiples below 16.
const MULTIPLES: usize = 8;

/// The group's order.
const ORDER: U256 = U256::from_be_hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");

#[cfg(test)]
mod tests {
    use p256::ecdsa::SigningKey;
    use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
    use p256::elliptic_curve::point::DecompressPoint as _;
    use p256::{AffinePoint as TheirPoint, NonZeroScalar, ProjectivePoint};
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn scalar(seed: &[u8]) -> Scalar {
        Scalar::reduce(&FieldBytes::from(<[u8; 32]>::from(Sha256::digest(seed))))
    }

    fn extremes() -> Vec<Scalar> {
        let mut extremes = vec![
            Scalar::ZERO,
            Scalar::ONE,
            -Scalar::ONE,
            Scalar::from(2_u64).invert().unwrap(),
        ];
        for bit in [15, 16, 31, 63, 64, 65, 127, 128, 191, 192, 255] {
            let power = (0..bit).fold(Scalar::ONE, |power, _| power.double());
            extremes.extend([power, power - Scalar::ONE, -power]);
        }
        extremes
    }

    fn coordinates(point: ProjectivePoint) -> Option<[U256; 2]> {
        let point = point.to_affine();
        let is_neutral = point == TheirPoint::IDENTITY;
        (!is_neutral).then(|| [point.x(), point.y()].map(|bytes| U256::from_be_slice(&bytes)))
    }

    #[test]
    fn the_sum_is_that_of_the_library() {
        let point = ProjectivePoint::GENERATOR * scalar(b"a point");
        let multiples = P256Table::of(&point.to_affine());
        let random = (0_u32..50).map(|number| scalar(&number.to_be_bytes()));
        let scalars: Vec<_> = extremes().into_iter().chain(random).collect();
        for (number, one) in scalars.iter().enumerate() {
            let other = &scalars[(number * 7 + 3) % scalars.len()];
            let wanted = ProjectivePoint::GENERATOR * one + point * other;
            let sum = sum([(&GENERATOR, *one), (&multiples, *other)]);
            assert_eq!(sum.coordinates(), coordinates(wanted), "{number}");
        }
    }

    #[test]
    fn a_sum_of_equal_and_of_opposite_points_is_right() {
        let opposite = P256Table::of(&-TheirPoint::GENERATOR);
        for number in extremes().into_iter().chain([scalar(b"a number")]) {
            let twice = ProjectivePoint::GENERATOR * (number + number);
            let equal = sum([(&GENERATOR, number), (&GENERATOR, number)]);
            assert_eq!(equal.coordinates(), coordinates(twice));
            let neutral = sum([(&GENERATOR, number), (&opposite, number)]);
            assert_eq!(neutral.coordinates(), None);
            assert!(!neutral.has_x(&U256::ZERO) && !neutral.has_x(&U256::ONE));
        }
    }

    #[test]
    fn the_digits_are_those_of_the_scalar() {
        for scalar in extremes().into_iter().chain([scalar(b"a number")]) {
            let digits = digits(&scalar);
            let all = digits.iter().rev().flat_map(|part| {
                let (last, rest) = part.split_last().unwrap();
                // A part's last digit counts as much as the next part's first.
                std::iter::once((*last, false)).chain(rest.iter().rev().map(|digit| (*digit, true)))
            });
            let value = all.fold(Scalar::ZERO, |sum, (digit, doubles)| {
                assert!(digit == 0 || (digit % 2 != 0 && (-15..=15).contains(&digit)), "{digit}");
                let magnitude = Scalar::from(u64::from(digit.unsigned_abs()));
                let sum = if doubles { sum.double() } else { sum };
                if digit < 0 { sum - magnitude } else { sum + magnitude }
            });
            assert_eq!(value, scalar);
        }
    }

    #[test]
    fn a_table_takes_two_and_a_half_kibibytes() {
        assert_eq!(size_of::<P256Table>(), 2560);
    }

    #[test]
    fn answers_as_the_library_does() {
        for number in 0_u32..20 {
            let signing = SigningKey::from(NonZeroScalar::new(scalar(&number.to_le_bytes())).unwrap());
            let key = signing.verifying_key();
            let table = P256Table::new(key);
            let digest: [u8; 32] = Sha256::digest(number.to_be_bytes()).into();
            let signature: Signature = signing.sign_prehash(&digest).unwrap();
            let (r, s) = (signature.r(), signature.s());
            let high = Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap();
            let swapped = Signature::from_scalars(s.to_bytes(), r.to_bytes()).unwrap();
            for (signature, is_good) in [(signature, true), (high, true), (swapped, false)] {
                // Of s and -s, the library may accept only the low one.
                assert_eq!(key.verify_prehash(&digest, &signature.normalize_s()).is_ok(), is_good);
                assert_eq!(table.verify(&digest, &signature), is_good);
            }
            let mut other = digest;
            other[31] ^= 1;
            assert!(!table.verify(&other, &signature));
        }
    }

    /// Signatures whose x is above the group's order, so that r is x less the order. A random one never is.
    #[test]
    fn r_may_be_less_than_x_by_the_order() {
        let (digest, mut verified) = ([7; 32], 0);
        for r in 1_u64..20 {
            let x = ORDER.wrapping_add(&U256::from_u64(r)).to_be_bytes();
            let Some(point) = TheirPoint::decompress(&FieldBytes::from(<[u8; 32]>::from(x)), 0.into()).into_option()
            else {
                continue;
            };
            // The key for which this is a signature: (s·R - z·G) / r.
            let (r, s, z) = (Scalar::from(r), scalar(b"s"), Scalar::reduce(&FieldBytes::from(digest)));
            let key = (ProjectivePoint::from(point) * s - ProjectivePoint::GENERATOR * z) * r.invert().unwrap();
            let key = VerifyingKey::from_affine(key.to_affine()).unwrap();
            let signature = Signature::from_scalars(r.to_bytes(), s.to_bytes()).unwrap();
            assert!(key.verify_prehash(&digest, &signature.normalize_s()).is_ok());
            assert!(P256Table::new(&key).verify(&digest, &signature));
            verified += 1;
        }
        assert!(verified > 4, "{verified}");
    }

    /// r and the order may be p or more: then they are no x, although they are one modulo p.
    #[test]
    fn r_and_the_order_are_below_p() {
        let (digest, mut refused) = ([7; 32], 0);
        let below = P.wrapping_sub(&ORDER);
        for x in 0_u64..20 {
            let bytes: [u8; 32] = U256::from_u64(x).to_be_bytes().into();
            let Some(point) = TheirPoint::decompress(&FieldBytes::from(bytes), 0.into()).into_option() else {
                continue;
            };
            let r: [u8; 32] = below.wrapping_add(&U256::from_u64(x)).to_be_bytes().into();
            let r = Scalar::reduce(&FieldBytes::from(r));
            let (s, z) = (scalar(b"s"), Scalar::reduce(&FieldBytes::from(digest)));
            // The key for which the sum is this point: (s·R - z·G) / r.
            let key = (ProjectivePoint::from(point) * s - ProjectivePoint::GENERATOR * z) * r.invert().unwrap();
            let key = VerifyingKey::from_affine(key.to_affine()).unwrap();
            let signature = Signature::from_scalars(r.to_bytes(), s.to_bytes()).unwrap();
            assert!(key.verify_prehash(&digest, &signature.normalize_s()).is_err());
            assert!(!P256Table::new(&key).verify(&digest, &signature));
            refused += 1;
        }
        assert!(refused > 4, "{refused}");
    }
}
