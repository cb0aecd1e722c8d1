//! Points of a curve y² = x³ + ax + b, from their coordinates.
//!
//! The curves' libraries can decompress a point, too, but their square roots alone are as large as all of the filter's
//! configuration. This one is a power: both fields have a prime of the form 4n + 3 (SEC 1, section 2.3.4).

use k256::elliptic_curve::CurveArithmetic;
use k256::elliptic_curve::ff::{Field as _, PrimeField};
use k256::elliptic_curve::hazmat::FieldArithmetic;
use k256::elliptic_curve::point::AffineCoordinates;

/// A curve, with what decompression needs.
pub(super) trait Compressible: CurveArithmetic + FieldArithmetic {
    /// The coefficients of its equation, big-endian.
    const A: [u8; 32];
    const B: [u8; 32];
    /// (p + 1) / 4 for its field's prime p; the lowest word first.
    const ROOT: [u64; 4];
}

impl Compressible for k256::Secp256k1 {
    const A: [u8; 32] = [0; 32];
    const B: [u8; 32] = {
        let mut b = [0; 32];
        b[31] = 7;
        b
    };
    const ROOT: [u64; 4] = [0xffff_ffff_bfff_ff0c, u64::MAX, u64::MAX, 0x3fff_ffff_ffff_ffff];
}

impl Compressible for p256::NistP256 {
    const A: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xfc,
    ];
    const B: [u8; 32] = [
        0x5a, 0xc6, 0x35, 0xd8, 0xaa, 0x3a, 0x93, 0xe7, 0xb3, 0xeb, 0xbd, 0x55, 0x76, 0x98, 0x86, 0xbc, 0x65, 0x1d,
        0x06, 0xb0, 0xcc, 0x53, 0xb0, 0xf6, 0x3b, 0xce, 0x3c, 0x3e, 0x27, 0xd2, 0x60, 0x4b,
    ];
    const ROOT: [u64; 4] = [0, 0x4000_0000, 0x4000_0000_0000_0000, 0x3fff_ffff_c000_0000];
}

/// The point with these coordinates, if it is one of the curve.
pub(super) fn point<C: Compressible>(x: &[u8; 32], y: &[u8; 32]) -> Option<C::AffinePoint>
where
    C::AffinePoint: AffineCoordinates<FieldRepr = <C::FieldElement as PrimeField>::Repr>,
    C::FieldElement: PrimeField<Repr: From<[u8; 32]>>,
{
    C::AffinePoint::from_coordinates(&(*x).into(), &(*y).into()).into_option()
}

/// The point with this x, and an odd or an even y.
pub(super) fn decompressed<C: Compressible>(x: &[u8; 32], is_odd: bool) -> Option<C::AffinePoint>
where
    C::AffinePoint: AffineCoordinates<FieldRepr = <C::FieldElement as PrimeField>::Repr>,
    C::FieldElement: PrimeField<Repr: From<[u8; 32]>>,
{
    let number = |bytes: [u8; 32]| C::FieldElement::from_repr(bytes.into()).into_option();
    let (given, a, b) = (number(*x)?, number(C::A)?, number(C::B)?);
    #[allow(clippy::arithmetic_side_effects, reason = "modulo the field's prime")]
    let square = given.square() * given + a * given + b;
    let root = square.pow_vartime(C::ROOT);
    let repr = root.to_repr();
    let is_odd_root = AsRef::<[u8]>::as_ref(&repr).last().is_some_and(|last| last % 2 == 1);
    #[allow(clippy::arithmetic_side_effects, reason = "modulo the field's prime")]
    let root = if is_odd_root == is_odd { root } else { -root };
    // The curve has no point with y = 0.
    let point = C::AffinePoint::from_coordinates(&(*x).into(), &root.to_repr());
    point.into_option()
}

#[cfg(test)]
mod tests {
    use k256::elliptic_curve::sec1::{FromSec1Point, ToSec1Point};

    use super::*;

    /// Compares with the curves' own decompression, for many x, of which about half belong to no point.
    #[test]
    fn a_point_is_decompressed_as_by_the_library() {
        let mut points = 0;
        for seed in 0..200_u8 {
            let mut x = [seed; 32];
            x[0] = seed.wrapping_mul(37);
            for is_odd in [false, true] {
                let sec1 = [&[2 + u8::from(is_odd)], x.as_slice()].concat();
                let own = decompressed::<k256::Secp256k1>(&x, is_odd);
                let known = k256::Sec1Point::from_bytes(&sec1).unwrap();
                let known = k256::AffinePoint::from_sec1_point(&known).into_option();
                assert_eq!(own, known, "secp256k1 {seed} {is_odd}");
                points += usize::from(own.is_some());
                let own = decompressed::<p256::NistP256>(&x, is_odd);
                let known = p256::Sec1Point::from_bytes(&sec1).unwrap();
                let known = p256::AffinePoint::from_sec1_point(&known).into_option();
                assert_eq!(own, known, "P-256 {seed} {is_odd}");
            }
        }
        assert!((100..300).contains(&points), "{points}");
    }

    #[test]
    fn coordinates_belong_to_a_point_of_the_curve() {
        let generator = k256::AffinePoint::GENERATOR.to_sec1_point(false);
        let coordinate = |range: std::ops::Range<usize>| <[u8; 32]>::try_from(&generator.as_bytes()[range]).unwrap();
        let (x, mut y) = (coordinate(1..33), coordinate(33..65));
        assert_eq!(point::<k256::Secp256k1>(&x, &y), Some(k256::AffinePoint::GENERATOR));
        assert_eq!(point::<p256::NistP256>(&x, &y), None, "another curve's");
        y[31] ^= 1;
        assert_eq!(point::<k256::Secp256k1>(&x, &y), None);
        assert_eq!(point::<k256::Secp256k1>(&[0xff; 32], &y), None, "not below the prime");
    }
}
