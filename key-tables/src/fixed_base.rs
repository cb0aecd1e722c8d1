//! Fixed-base scalar multiplication with signed windows.
//!
//! The scalar is written in base 2^W with digits above -2^(W-1) and up to 2^(W-1), as in Bernstein, Duif, Lange,
//! Schwabe and Yang, High-speed high-security signatures (2011), section 4. The table holds, for each place, every
//! positive multiple that a digit can select. A scalar multiplication is then one addition for each digit and no
//! doubling. Without a table, it takes about 250 doublings.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "points and scalars have no overflow; the digits are bounded by their width"
)]

use curve25519_dalek::Scalar;

use crate::edwards::{Point, Sign, TablePoint, table_points};

/// For each place i of a scalar in base 2^W, the point times 1 to 2^(W-1) times 2^(W·i). W is at most 8.
pub(crate) struct FixedBaseTable<const W: usize>(Vec<TablePoint>);

impl<const W: usize> FixedBaseTable<W> {
    pub(crate) fn new(point: Point) -> Self {
        let mut table = Vec::with_capacity(places(W) * multiples(W));
        let mut base = point;
        for _ in 0..places(W) {
            let mut points = Vec::with_capacity(multiples(W));
            let mut multiple = base;
            for _ in 0..multiples(W) {
                points.push(multiple);
                multiple = multiple.add(&base);
            }
            table.append(&mut table_points(&points));
            for _ in 0..W {
                base = base.add(&base);
            }
        }
        Self(table)
    }

    /// The points whose sum is `scalar` times the table's point.
    pub(crate) fn addends(&self, scalar: &Scalar) -> impl Iterator<Item = (&TablePoint, Sign)> {
        let places = self.0.chunks_exact(multiples(W));
        places.zip(digits::<W>(scalar)).filter_map(|(multiples, digit)| {
            // The digit 0 selects nothing.
            let index = usize::from(digit.unsigned_abs()).checked_sub(1)?;
            let sign = if digit.is_negative() { Sign::Minus } else { Sign::Plus };
            Some((multiples.get(index)?, sign))
        })
    }
}

/// The digits of a scalar, the lowest first.
fn digits<const W: usize>(scalar: &Scalar) -> impl Iterator<Item = i16> {
    let bytes = scalar.to_bytes();
    let byte = move |index: usize| bytes.get(index).copied().unwrap_or(0);
    let mut carry = 0;
    (0..places(W)).map(move |place| {
        let (index, offset) = (place * W / 8, place * W % 8);
        let bits = u16::from_le_bytes([byte(index), byte(index + 1)]) >> offset & ((1 << W) - 1);
        let digit = i16::try_from(bits).unwrap_or(0) + carry;
        carry = i16::from(digit > 1 << (W - 1));
        digit - (carry << W)
    })
}

/// Digits of a scalar. It has 253 bits, and one more for the carry of the last digit.
pub(crate) const fn places(width: usize) -> usize {
    254usize.div_ceil(width)
}

/// Multiples for each place.
const fn multiples(width: usize) -> usize {
    1 << (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edwards::sum;
    use curve25519_dalek::constants::ED25519_BASEPOINT_POINT as BASE;
    use sha2::{Digest, Sha512};

    fn scalar(number: u64) -> Scalar {
        Scalar::from_bytes_mod_order_wide(&Sha512::digest(number.to_le_bytes()).into())
    }

    /// Scalars with every kind of digits: the least, the greatest, all carries, none, and random ones.
    fn scalars() -> impl Iterator<Item = Scalar> {
        let powers = (0..253).flat_map(|bit| {
            let mut bytes = [0; 32];
            bytes[bit / 8] = 1 << (bit % 8);
            let power = Scalar::from_canonical_bytes(bytes).unwrap();
            [power, power - Scalar::ONE, -power]
        });
        powers.chain([Scalar::ZERO, -Scalar::ONE]).chain((0..200).map(scalar))
    }

    fn value<const W: usize>(scalar: &Scalar) -> Scalar {
        let place_value = Scalar::from(1u64 << W);
        let digits: Vec<i16> = digits::<W>(scalar).collect();
        assert_eq!(digits.len(), places(W));
        assert!(
            digits
                .iter()
                .all(|digit| (1 - (1 << (W - 1))..=1 << (W - 1)).contains(digit))
        );
        digits.iter().rev().fold(Scalar::ZERO, |value, digit| {
            let magnitude = Scalar::from(digit.unsigned_abs());
            value * place_value + if *digit < 0 { -magnitude } else { magnitude }
        })
    }

    #[test]
    fn the_digits_add_up_to_the_scalar_at_every_width() {
        for scalar in scalars() {
            assert_eq!(value::<4>(&scalar), scalar);
            assert_eq!(value::<5>(&scalar), scalar);
            assert_eq!(value::<6>(&scalar), scalar);
            assert_eq!(value::<8>(&scalar), scalar);
        }
    }

    #[test]
    fn a_multiple_is_the_library_s() {
        let point = BASE * scalar(1);
        let own = Point::decode(point.compress().as_bytes()).unwrap();
        let (narrow, wide) = (FixedBaseTable::<6>::new(own), FixedBaseTable::<8>::new(own));
        for scalar in scalars() {
            let expected = (point * scalar).compress().to_bytes();
            let addends: Vec<_> = narrow.addends(&scalar).collect();
            assert_eq!(sum(&addends).encode(), expected);
            let addends: Vec<_> = wide.addends(&scalar).collect();
            assert_eq!(sum(&addends).encode(), expected);
        }
    }

    /// As docs/reference/configuration.md states for `limits.hot_keys`.
    #[test]
    fn tables_take_as_much_memory_as_documented() {
        fn kibibytes<const W: usize>() -> usize {
            size_of_val(FixedBaseTable::<W>::new(Point::IDENTITY).0.as_slice()).div_ceil(1024)
        }
        assert_eq!((kibibytes::<6>(), kibibytes::<8>()), (162, 480));
    }
}
