//! ECDSA signatures with P-256, verified with a table of the key.
//!
//! ECDSA compares the x coordinate of u1·G + u2·Q with r (FIPS 186-5, section 6.4.2). Both scalars are cut into four
//! parts of 64 bits, and the table holds odd multiples of 2^(64·i)·Q for each of the four. All eight products then
//! share 64 doublings; two whole scalars take 256. The parts are in width-6 non-adjacent form, as the wnaf crate
//! computes it.
//!
//! Keys, digests and signatures are public. Nothing here is constant-time.
#![allow(clippy::arithmetic_side_effects, reason = "scalars have no overflow")]

use std::sync::LazyLock;

use p256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::group::Group as _;
use p256::elliptic_curve::ops::{Invert as _, Reduce as _};
use p256::elliptic_curve::point::AffineCoordinates as _;
use p256::{FieldBytes, ProjectivePoint, Scalar};
use wnaf::array::typenum::U6;
use wnaf::{WnafBase, WnafScalar};

/// The table of one P-256 public key: 6 KiB, and as much once for the generator.
pub struct P256Table([WnafBase<ProjectivePoint, U6>; PARTS]);

impl P256Table {
    /// Computes the table, which takes about as long as verifying a signature.
    #[must_use]
    pub fn new(key: &VerifyingKey) -> Self {
        Self::of((*key.as_affine()).into())
    }

    /// Whether `signature` is the key's over a message with this SHA-256 digest. Both s and -s are accepted.
    #[must_use]
    pub fn verify(&self, digest: &[u8; 32], signature: &Signature) -> bool {
        let (r, s) = signature.split_scalars();
        let digest = Scalar::reduce(&FieldBytes::from(*digest));
        let inverse = *s.invert_vartime();
        let sum = sum([(&*GENERATOR, digest * inverse), (self, *r * inverse)]);
        Scalar::reduce(&sum.to_affine().x()) == *r
    }

    fn of(mut point: ProjectivePoint) -> Self {
        Self(std::array::from_fn(|_| {
            let base = WnafBase::new(&point);
            for _ in 0..PART_BITS {
                point = point.double();
            }
            base
        }))
    }
}

/// The sum of the points, each times its scalar.
fn sum(terms: [(&P256Table, Scalar); 2]) -> ProjectivePoint {
    let terms = terms.map(|(table, scalar)| (table, parts(&scalar)));
    let pairs = terms.iter().flat_map(|(table, parts)| table.0.iter().zip(parts));
    WnafBase::multiscalar_mul(pairs)
}

/// The parts of a scalar, the lowest first.
fn parts(scalar: &Scalar) -> [WnafScalar<Scalar, U6>; PARTS] {
    let mut bytes: [u8; 32] = scalar.to_bytes().into();
    bytes.reverse();
    let mut parts = bytes.chunks_exact(PART_BITS / 8).map(WnafScalar::from_le_bytes);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

static GENERATOR: LazyLock<P256Table> = LazyLock::new(|| P256Table::of(ProjectivePoint::GENERATOR));

const PARTS: usize = 4;
const PART_BITS: usize = 64;

#[cfg(test)]
mod tests {
    use p256::ecdsa::SigningKey;
    use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
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
        let multiples = P256Table::of(point);
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
            P256Table::of(ProjectivePoint::GENERATOR),
            P256Table::of(-ProjectivePoint::GENERATOR),
        );
        let number = scalar(b"a number");
        let twice = ProjectivePoint::GENERATOR * (number + number);
        assert!(sum([(&GENERATOR, number), (&generator, number)]) == twice);
        assert!(sum([(&GENERATOR, number), (&opposite, number)]) == ProjectivePoint::IDENTITY);
    }

    #[test]
    fn a_table_takes_six_kibibytes() {
        assert_eq!(size_of::<P256Table>(), 6 * 1024);
    }

    #[test]
    fn answers_as_the_library_does() {
        for number in 0_u32..20 {
            let signing =
                SigningKey::from(p256::elliptic_curve::NonZeroScalar::new(scalar(&number.to_le_bytes())).unwrap());
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
}
