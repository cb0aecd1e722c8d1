//! The field of P-256: integers modulo p = 2^256 - 2^224 + 2^192 + 2^96 - 1 (SP 800-186, section 3.2.1.3).
//!
//! Numbers are in Montgomery form: a stands as a·R, with R = 2^280. They have ten limbs of 28 bits, the lowest first; only
//! the highest may be negative. A column of a product is a sum of at most ten products of 56 bits and fits into 64 bits.
//! -1/p is 1 modulo 2^28, so that the multiple of p that clears a limb takes shifts instead of multiplications.
//!
//! The bounds, which the two types keep: an [`Element`] is between -16·p and 16·p. R is 2^24 times p, so that a product of
//! two elements is between -p/2^16 and p + p/2^16. A [`Sum`] has up to 15 products, and carrying makes it an element.
//!
//! The p256 crate has limbs of 32 bits in Wasm, with a carry for each of their products: a signature costs three to four
//! times as much.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the module says why nothing overflows; every index is below a constant length"
)]

use std::ops::{Add, Mul, Sub};

use crypto_bigint::{Odd, U256};

/// A number whose limbs are carried.
#[derive(Clone, Copy)]
pub(crate) struct Element([i32; LIMBS]);

/// A sum of elements, whose limbs are not.
#[derive(Clone, Copy)]
pub(crate) struct Sum([i64; LIMBS]);

/// A product before its reduction, by powers of 2^28.
type Columns = [i64; 2 * LIMBS - 1];

impl Element {
    pub(crate) const ZERO: Self = Self(limbs(&U256::ZERO));
    pub(crate) const ONE: Self = Self(limbs(&R));

    pub(crate) fn new(number: &U256) -> Self {
        Self(limbs(number)) * Self(limbs(&R_SQUARED))
    }

    /// The number, from 0 to p.
    pub(crate) fn number(self) -> U256 {
        // (a·R + m·p) / R with m below R, and a·R is far below R·p.
        let limbs = (self * Self(limbs(&U256::ONE))).0;
        limbs.iter().rev().fold(U256::ZERO, |number, limb| {
            number.shl_vartime(LIMB_BITS) | U256::from_u32(limb.cast_unsigned())
        })
    }

    pub(crate) fn is_zero(self) -> bool {
        // The lowest limb of k·p is -k modulo 2^28, and k is not above 16.
        let may_be_multiple = i64::from(self.0[0] + 16) & LIMB <= 32;
        may_be_multiple && {
            let number = self.number();
            number == U256::ZERO || number == *P.as_ref()
        }
    }

    /// The inverse, and 0 for 0.
    pub(crate) fn invert(self) -> Self {
        let inverse = self.number().invert_odd_mod_vartime(&P);
        Self::new(&inverse.unwrap_or(U256::ZERO))
    }

    #[inline(never)]
    pub(crate) fn square(self) -> Self {
        reduced(columns(&self.0, &self.0))
    }

    pub(crate) fn times(self, factor: i64) -> Sum {
        Sum(self.0.map(|limb| i64::from(limb) * factor))
    }
}

impl Sum {
    pub(crate) fn carried(self) -> Element {
        let mut carry = 0;
        let mut limbs = self.0.map(|limb| {
            carry += limb;
            let low = (carry & LIMB) as i32;
            carry >>= LIMB_BITS;
            low
        });
        limbs[LIMBS - 1] |= (carry << LIMB_BITS) as i32;
        Element(limbs)
    }
}

impl Mul for Element {
    type Output = Self;

    #[inline(never)]
    fn mul(self, other: Self) -> Self {
        reduced(columns(&self.0, &other.0))
    }
}

impl From<Element> for Sum {
    fn from(element: Element) -> Self {
        element.times(1)
    }
}

impl<A: Into<Self>> Add<A> for Sum {
    type Output = Self;

    fn add(self, other: A) -> Self {
        let Self(other) = other.into();
        Self(std::array::from_fn(|place| self.0[place] + other[place]))
    }
}

impl<A: Into<Self>> Sub<A> for Sum {
    type Output = Self;

    fn sub(self, other: A) -> Self {
        let Self(other) = other.into();
        Self(std::array::from_fn(|place| self.0[place] - other[place]))
    }
}

impl<A: Into<Sum>> Add<A> for Element {
    type Output = Sum;

    fn add(self, other: A) -> Sum {
        Sum::from(self) + other
    }
}

impl<A: Into<Sum>> Sub<A> for Element {
    type Output = Sum;

    fn sub(self, other: A) -> Sum {
        Sum::from(self) - other
    }
}

#[inline(always)]
fn columns(a: &[i32; LIMBS], b: &[i32; LIMBS]) -> Columns {
    let a = a.map(i64::from);
    let mut reversed = b.map(i64::from);
    reversed.reverse();
    // Each length is a constant, so that the loops become straight lines: in V8, that takes a quarter of the time.
    macro_rules! columns {
        (low: $($low:literal)*; high: $($high:literal)*) => {
            [$(dot::<$low>(&a, 0, &reversed, LIMBS - $low),)* $(dot::<$high>(&a, LIMBS - $high, &reversed, 0),)*]
        };
    }
    columns!(low: 1 2 3 4 5 6 7 8 9 10; high: 9 8 7 6 5 4 3 2 1)
}

/// The sum of N products of limbs, from these places on.
#[inline(always)]
fn dot<const N: usize>(a: &[i64; LIMBS], of_a: usize, b: &[i64; LIMBS], of_b: usize) -> i64 {
    (0..N).map(|place| a[of_a + place] * b[of_b + place]).sum()
}

/// The product divided by R, modulo p (Montgomery's reduction).
#[inline(always)]
fn reduced(mut columns: Columns) -> Element {
    for place in 0..LIMBS {
        // p times the lowest limb clears it.
        let factor = columns[place] & LIMB;
        columns[place + 1] += columns[place] >> LIMB_BITS;
        columns[place + 3] += factor << 12;
        columns[place + 6] += factor << 24;
        columns[place + 8] -= factor;
        columns[place + 9] += factor << 4;
    }
    let [.., c0, c1, c2, c3, c4, c5, c6, c7, c8] = columns;
    Sum([c0, c1, c2, c3, c4, c5, c6, c7, c8, 0]).carried()
}

const fn limbs(number: &U256) -> [i32; LIMBS] {
    let mut limbs = [0; LIMBS];
    let mut place = 0;
    while place < LIMBS {
        let word = number.shr_vartime(place as u32 * LIMB_BITS).to_words()[0];
        limbs[place] = (word as i64 & LIMB) as i32;
        place += 1;
    }
    limbs
}

pub(crate) const P: Odd<U256> =
    Odd::<U256>::from_be_hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
/// R modulo p, and its square.
const R: U256 = U256::from_be_hex("00fffffffeffffffffffffffffffffffff000000000000000000000001000000");
const R_SQUARED: U256 = U256::from_be_hex("0002fffffffafffffffefffffffbfffffffa0000000000000003000000050000");

const LIMBS: usize = 10;
const LIMB_BITS: u32 = 28;
const LIMB: i64 = (1 << LIMB_BITS) - 1;

#[cfg(test)]
mod tests {
    use crypto_bigint::const_monty_params;
    use crypto_bigint::modular::ConstMontyForm;

    use super::*;

    const_monty_params!(
        Modulus,
        U256,
        "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"
    );
    type Known = ConstMontyForm<Modulus, { U256::LIMBS }>;

    /// Numbers at the edges of the limbs, of the words and of p.
    fn numbers() -> Vec<U256> {
        let p = *P.as_ref();
        let powers = (0..256).map(|bit| U256::ONE.shl_vartime(bit));
        let edges = powers.flat_map(|power| [power, power.wrapping_sub(&U256::ONE), p.wrapping_sub(&power)]);
        edges.chain([U256::ZERO, p, U256::MAX]).collect()
    }

    fn known(number: &U256) -> Known {
        Known::new(&number.rem_vartime(P.as_nz_ref()))
    }

    fn assert_is(element: Element, known: Known) {
        assert_eq!(element.number().rem_vartime(P.as_nz_ref()), known.retrieve());
        assert_eq!(element.is_zero(), known == Known::ZERO);
    }

    #[test]
    fn arithmetic_is_that_of_the_library() {
        for (number, first) in numbers().into_iter().enumerate() {
            let (a, known_a) = (Element::new(&first), known(&first));
            assert_is(a, known_a);
            assert_is(a.square(), known_a.square());
            assert_is(a.invert(), known_a.invert_vartime().unwrap_or(Known::ZERO));
            for second in numbers().into_iter().skip(number % 7).step_by(7) {
                let (b, known_b) = (Element::new(&second), known(&second));
                assert_is(a * b, known_a * known_b);
                assert_is((a + b).carried(), known_a + known_b);
                assert_is((a - b).carried(), known_a - known_b);
            }
        }
    }

    /// The greatest and the least sums that the module's bounds allow, in every place of a product.
    #[test]
    fn sums_of_fifteen_products_can_be_multiplied() {
        let fifteen = known(&U256::from_u32(15));
        for first in numbers() {
            let (a, known_a) = (Element::new(&first), known(&first) * fifteen);
            let (greatest, least) = (a.times(15).carried(), a.times(-15).carried());
            assert_is(greatest * greatest, known_a.square());
            assert_is(greatest.square(), known_a.square());
            assert_is(greatest * least, -known_a.square());
            assert_is(least.square(), known_a.square());
            assert_is(least, -known_a);
        }
    }

    #[test]
    fn every_multiple_of_p_is_zero() {
        let zero = Element(limbs(&P));
        for factor in -15..=15 {
            assert!(zero.times(factor).carried().is_zero(), "{factor}");
            assert!(!(zero.times(factor) + Element::ONE).carried().is_zero(), "{factor}");
        }
    }

    #[test]
    fn the_constants_are_powers_of_two() {
        let power = |exponent| (0..exponent).fold(Known::ONE, |power, _| power + power).retrieve();
        assert_eq!((R, R_SQUARED), (power(280), power(560)));
    }
}
