//! P-256 keys that are held against many signatures: with some multiples of such a key at hand a signature costs half.
//!
//! ECDSA asks whether `u1·G + u2·Q` has a certain x (SEC 1, section 4.1.4). Each of the two numbers is cut into quarters
//! of 64 bits: 64 doublings do for all eight sums, where 256 would be needed for two. For that the multiples are those of
//! `2^64·i` times the point, of which only the odd ones below 16 are needed. Nothing here is secret, so that nothing has to
//! take the same time always. The curve's formulas are the library's, which hold for every two points.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "points and scalars have no overflow; what a quarter is cut from has 66 bits"
)]

use std::sync::{Arc, LazyLock, OnceLock};

use p256::ecdsa::Signature;
use p256::elliptic_curve::BatchNormalize as _;
use p256::elliptic_curve::group::Group as _;
use p256::elliptic_curve::ops::{Invert as _, Reduce as _};
use p256::elliptic_curve::point::AffineCoordinates as _;
use p256::{AffinePoint, FieldBytes, ProjectivePoint, Scalar};

/// A key whose multiples may be known.
#[derive(Clone)]
pub(super) struct P256Key {
    key: p256::ecdsa::VerifyingKey,
    /// Worked out when the key is first held against a signature.
    multiples: Option<Arc<OnceLock<Multiples>>>,
}

/// Of a point: 1, 3, ... 15 times it, for each quarter of a scalar.
struct Multiples([[AffinePoint; ODD]; QUARTERS]);

/// What a quarter is the sum of, each digit times a power of two: odd numbers below 16 in size, and zeros between them.
type Digits = [i8; DIGITS];

// === impl P256Key ===

impl P256Key {
    pub(super) fn new(key: p256::ecdsa::VerifyingKey) -> Self {
        Self { key, multiples: None }
    }

    /// Has it keep multiples. To work them out takes as long as verifying a signature.
    pub(super) fn prepare(&mut self) {
        self.multiples.get_or_insert_default();
    }

    pub(super) fn as_library(&self) -> &p256::ecdsa::VerifyingKey {
        &self.key
    }

    /// Whether the signature is this key's over what has this digest.
    pub(super) fn verifies(&self, digest: &[u8; 32], signature: &Signature) -> bool {
        use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
        let Some(multiples) = &self.multiples else {
            // Of s and its negative, which verify alike, the library may ask for the low one.
            return self.key.verify_prehash(digest, &signature.normalize_s()).is_ok();
        };
        let multiples = multiples.get_or_init(|| Multiples::of((*self.key.as_affine()).into()));
        let (r, s) = signature.split_scalars();
        let digest = Scalar::reduce(&FieldBytes::from(*digest));
        let inverse = *s.invert_vartime();
        let sum = sum([(&*GENERATOR, digest * inverse), (multiples, *r * inverse)]);
        Scalar::reduce(&sum.to_affine().x()) == *r
    }
}

/// Ignores the multiples.
impl PartialEq for P256Key {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for P256Key {}

// === impl Multiples ===

impl Multiples {
    fn of(mut point: ProjectivePoint) -> Self {
        Self(std::array::from_fn(|_| {
            let (mut next, twice) = (point, point.double());
            let odd: [ProjectivePoint; ODD] = std::array::from_fn(|_| {
                let this = next;
                next += twice;
                this
            });
            for _ in 0..QUARTER_BITS {
                point = point.double();
            }
            ProjectivePoint::batch_normalize(&odd)
        }))
    }
}

/// The sum of the points, each times its scalar.
fn sum(parts: [(&Multiples, Scalar); 2]) -> ProjectivePoint {
    let digits = parts.map(|(multiples, scalar)| (multiples, quarters(&scalar).map(digits)));
    let mut sum = ProjectivePoint::IDENTITY;
    for place in (0..DIGITS).rev() {
        sum = sum.double();
        for (multiples, quarters) in &digits {
            for (odd, digits) in multiples.0.iter().zip(quarters) {
                let digit = digits.get(place).copied().unwrap_or(0);
                let Some(multiple) = odd.get(usize::from(digit.unsigned_abs() / 2)) else {
                    continue;
                };
                match digit {
                    0 => {}
                    1.. => sum += multiple,
                    _ => sum -= multiple,
                }
            }
        }
    }
    sum
}

/// The lowest first.
fn quarters(scalar: &Scalar) -> [u64; QUARTERS] {
    let bytes: [u8; 32] = scalar.to_bytes().into();
    let mut quarters = [0; QUARTERS];
    for (quarter, bytes) in quarters.iter_mut().zip(bytes.rchunks_exact(8)) {
        *quarter = bytes.iter().fold(0, |quarter, byte| quarter << 8 | u64::from(*byte));
    }
    quarters
}

/// The lowest first. After a digit that is not zero come at least four that are.
fn digits(quarter: u64) -> Digits {
    let mut rest = i128::from(quarter);
    let mut digits = [0; DIGITS];
    for digit in &mut digits {
        if rest & 1 == 1 {
            // What is left is divisible by 32.
            let low = (rest & 31) as i8;
            *digit = if low < 16 { low } else { low - 32 };
            rest -= i128::from(*digit);
        }
        rest >>= 1;
    }
    digits
}

static GENERATOR: LazyLock<Multiples> = LazyLock::new(|| Multiples::of(ProjectivePoint::GENERATOR));

const QUARTERS: usize = 4;
const QUARTER_BITS: usize = 64;
/// Where the last digit is negative, it takes one more to make up for it.
const DIGITS: usize = QUARTER_BITS + 1;
/// Odd numbers below 16.
const ODD: usize = 8;

#[cfg(test)]
mod tests {
    use p256::ecdsa::SigningKey;
    use p256::ecdsa::signature::hazmat::PrehashSigner as _;
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

    #[test]
    fn the_sum_is_that_of_the_library() {
        let point = ProjectivePoint::GENERATOR * scalar(b"a point");
        let multiples = Multiples::of(point);
        let random = (0_u32..50).map(|number| scalar(&number.to_be_bytes()));
        let scalars: Vec<_> = extremes().into_iter().chain(random).collect();
        for (number, one) in scalars.iter().enumerate() {
            let other = &scalars[(number * 7 + 3) % scalars.len()];
            let wanted = ProjectivePoint::GENERATOR * one + point * other;
            assert!(sum([(&GENERATOR, *one), (&multiples, *other)]) == wanted, "{number}");
        }
    }

    #[test]
    fn a_sum_of_equal_and_of_opposite_points_is_right() {
        let (generator, opposite) = (
            Multiples::of(ProjectivePoint::GENERATOR),
            Multiples::of(-ProjectivePoint::GENERATOR),
        );
        let number = scalar(b"a number");
        let twice = ProjectivePoint::GENERATOR * (number + number);
        assert!(sum([(&GENERATOR, number), (&generator, number)]) == twice);
        assert!(sum([(&GENERATOR, number), (&opposite, number)]) == ProjectivePoint::IDENTITY);
    }

    #[test]
    fn digits_add_up_and_are_far_apart() {
        for quarter in [
            0,
            1,
            15,
            16,
            17,
            31,
            u64::MAX,
            u64::MAX - 15,
            1 << 63,
            0x1234_5678_9abc_def0,
        ] {
            let digits = digits(quarter);
            let sum: i128 = digits.iter().rev().fold(0, |sum, digit| 2 * sum + i128::from(*digit));
            assert_eq!(sum, i128::from(quarter));
            for window in digits.windows(5) {
                assert!(
                    window.iter().filter(|digit| **digit != 0).count() <= 1,
                    "{quarter}: {digits:?}"
                );
            }
            assert!(digits.iter().all(|digit| digit.abs() < 16));
        }
    }

    #[test]
    fn answers_as_the_library_does() {
        for number in 0_u32..20 {
            let signing =
                SigningKey::from(p256::elliptic_curve::NonZeroScalar::new(scalar(&number.to_le_bytes())).unwrap());
            let key = P256Key::new(*signing.verifying_key());
            let mut prepared = key.clone();
            prepared.prepare();
            assert!(key == prepared);
            let digest: [u8; 32] = Sha256::digest(number.to_be_bytes()).into();
            let signature: Signature = signing.sign_prehash(&digest).unwrap();
            let (r, s) = (signature.r(), signature.s());
            let high = Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap();
            let swapped = Signature::from_scalars(s.to_bytes(), r.to_bytes()).unwrap();
            for (signature, is_good) in [(signature, true), (high, true), (swapped, false)] {
                assert_eq!(key.verifies(&digest, &signature), is_good);
                assert_eq!(prepared.verifies(&digest, &signature), is_good);
            }
            let mut other = digest;
            other[31] ^= 1;
            assert!(!prepared.verifies(&other, &signature));
        }
    }
}
