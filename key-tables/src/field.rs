//! The field of Curve25519: integers modulo p = 2^255 - 19 (RFC 8032, section 5.1).
//!
//! The arithmetic is fiat-crypto's, generated together with a proof that it is correct. Its two types keep the bounds of
//! that proof: sums and differences take [`Tight`] elements and are [`Loose`]; products take either and are tight.
//!
//! It is the arithmetic for 32-bit words on every machine. In Wasm it is the faster one, since Wasm has no
//! multiplication of 64 bits to 128, and so the tests run the same code as the filter. Inversion is crypto-bigint's.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "elements have no overflow: the types keep their bounds"
)]

use std::ops::{Add, Mul, Neg, Sub};

use crypto_bigint::{Odd, U256};
use fiat_crypto::curve25519_32 as fiat;

/// An element that can be added and subtracted.
#[derive(Clone, Copy)]
pub(crate) struct Tight(fiat::fiat_25519_tight_field_element);

/// A sum or a difference, which can only be multiplied.
#[derive(Clone, Copy)]
pub(crate) struct Loose(fiat::fiat_25519_loose_field_element);

pub(crate) const ZERO: Tight = Tight::small(0);
pub(crate) const ONE: Tight = Tight::small(1);
/// 1/2 = (p + 1)/2 = 2^254 - 9.
pub(crate) const HALF: Tight = Tight::from_bytes(&[
    0xf7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f,
]);
/// The curve's constant d = -121665/121666 (RFC 8032, section 5.1).
pub(crate) const D: Tight = Tight::from_bytes(&[
    0xa3, 0x78, 0x59, 0x13, 0xca, 0x4d, 0xeb, 0x75, 0xab, 0xd8, 0x41, 0x41, 0x4d, 0x0a, 0x70, 0x00, 0x98, 0xe8, 0x79,
    0x77, 0x79, 0x40, 0xc7, 0x8c, 0x73, 0xfe, 0x6f, 0x2b, 0xee, 0x6c, 0x03, 0x52,
]);
/// 2^((p-1)/4), a square root of -1 (RFC 8032, section 5.1.3).
const SQRT_MINUS_ONE: Tight = Tight::from_bytes(&[
    0xb0, 0xa0, 0x0e, 0x4a, 0x27, 0x1b, 0xee, 0xc4, 0x78, 0xe4, 0x2f, 0xad, 0x06, 0x18, 0x43, 0x2f, 0xa7, 0xd7, 0xfb,
    0x3d, 0x99, 0x00, 0x4d, 0x2b, 0x0b, 0xdf, 0xc1, 0x4f, 0x80, 0x24, 0x83, 0x2b,
]);
const P: Odd<U256> = Odd::<U256>::from_be_hex("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed");

impl Tight {
    /// Reads 32 bytes, least significant first. The highest bit is ignored: in a point it is the sign of x.
    pub(crate) const fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut masked = *bytes;
        masked[31] &= 0x7f;
        let mut element = TIGHT;
        fiat::fiat_25519_from_bytes(&mut element, &masked);
        Self(element)
    }

    /// The canonical encoding: the number below p.
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        fiat::fiat_25519_to_bytes(&mut bytes, &self.0);
        bytes
    }

    pub(crate) fn square(self) -> Self {
        let mut square = TIGHT;
        fiat::fiat_25519_carry_square(&mut square, &Loose::from(self).0);
        Self(square)
    }

    /// The inverse, and 0 for 0.
    pub(crate) fn invert(self) -> Self {
        let number = U256::from_le_slice(&self.to_bytes());
        let inverse = number.invert_odd_mod_vartime(&P).unwrap_or(U256::ZERO);
        Self::from_bytes(&inverse.to_le_bytes().into())
    }

    /// A square root of u/v, if there is one. v is not 0.
    ///
    /// RFC 8032, section 5.1.3, steps 2 and 3.
    pub(crate) fn sqrt_ratio(u: Self, v: Self) -> Option<Self> {
        let v3 = v.square() * v;
        let v7 = v3.square() * v;
        let root = u * v3 * (u * v7).pow_p58();
        let check = v * root.square();
        if check == u {
            Some(root)
        } else {
            (check == -u).then(|| root * SQRT_MINUS_ONE)
        }
    }

    /// The power (p-5)/8. The exponent is 2^252 - 3: 250 ones and 01 in binary.
    fn pow_p58(self) -> Self {
        let ones = (1..250).fold(self, |power, _| power.square() * self);
        ones.square().square() * self
    }

    const fn small(number: u8) -> Self {
        let mut bytes = [0; 32];
        bytes[0] = number;
        Self::from_bytes(&bytes)
    }
}

impl Loose {
    /// The same element, tight.
    pub(crate) fn carry(self) -> Tight {
        let mut same = TIGHT;
        fiat::fiat_25519_carry(&mut same, &self.0);
        Tight(same)
    }

    pub(crate) fn words(&self) -> &[u32; 10] {
        &self.0.0
    }
}

impl From<Tight> for Loose {
    fn from(element: Tight) -> Self {
        let mut same = LOOSE;
        fiat::fiat_25519_relax(&mut same, &element.0);
        Self(same)
    }
}

impl Add for Tight {
    type Output = Loose;

    fn add(self, other: Self) -> Loose {
        let mut sum = LOOSE;
        fiat::fiat_25519_add(&mut sum, &self.0, &other.0);
        Loose(sum)
    }
}

impl Sub for Tight {
    type Output = Loose;

    fn sub(self, other: Self) -> Loose {
        let mut difference = LOOSE;
        fiat::fiat_25519_sub(&mut difference, &self.0, &other.0);
        Loose(difference)
    }
}

impl Neg for Tight {
    type Output = Self;

    fn neg(self) -> Self {
        (ZERO - self).carry()
    }
}

impl<T: Into<Loose>> Mul<T> for Loose {
    type Output = Tight;

    fn mul(self, other: T) -> Tight {
        let mut product = TIGHT;
        fiat::fiat_25519_carry_mul(&mut product, &self.0, &other.into().0);
        Tight(product)
    }
}

impl<T: Into<Loose>> Mul<T> for Tight {
    type Output = Self;

    fn mul(self, other: T) -> Self {
        Loose::from(self) * other
    }
}

impl PartialEq for Tight {
    fn eq(&self, other: &Self) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

/// What fiat-crypto's functions write their results into.
const TIGHT: fiat::fiat_25519_tight_field_element = fiat::fiat_25519_tight_field_element([0; 10]);
const LOOSE: fiat::fiat_25519_loose_field_element = fiat::fiat_25519_loose_field_element([0; 10]);

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn number(of: u32) -> Tight {
        Tight::from_bytes(&Sha256::digest(of.to_le_bytes()).into())
    }

    /// A small number, of 16 bits.
    fn of(number: u16) -> Tight {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        Tight::from_bytes(&bytes)
    }

    #[track_caller]
    fn assert_same(a: Tight, b: Tight) {
        assert_eq!(a.to_bytes(), b.to_bytes());
    }

    #[test]
    fn the_constants_are_correct() {
        assert_same(HALF * of(2), ONE);
        assert_same(SQRT_MINUS_ONE.square(), -ONE);
        // 121665 and 121666 have more than 16 bits: 243330 = 2·121665 = 365·666 + 240.
        let twice_121665 = (of(365) * of(666) + of(240)).carry();
        let twice_121666 = (twice_121665 + of(2)).carry();
        assert_same(D * twice_121666, -twice_121665);
    }

    #[test]
    fn a_number_has_one_encoding_and_p_is_0() {
        let mut p = [0xff; 32];
        (p[0], p[31]) = (0xed, 0x7f);
        assert_same(Tight::from_bytes(&p), ZERO);
        p[0] += 1;
        assert_same(Tight::from_bytes(&p), ONE);
        p[31] = 0xff;
        assert_same(Tight::from_bytes(&p), ONE);
        for bytes in (0..100).map(|of| number(of).to_bytes()) {
            assert_eq!(Tight::from_bytes(&bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn an_inverse_times_the_number_is_1_and_0_has_none() {
        for number in (0..100).map(number) {
            assert_same(number.invert() * number, ONE);
        }
        assert_same(ZERO.invert(), ZERO);
    }

    #[test]
    fn half_of_all_ratios_have_a_root() {
        let mut roots = 0;
        for (u, v) in (0..400).map(|of| (number(of), number(of + 1000))) {
            let Some(root) = Tight::sqrt_ratio(u, v) else {
                // 2 is no square: where u/v has no root, 2u/v has one.
                assert!(Tight::sqrt_ratio((u + u).carry(), v).is_some());
                continue;
            };
            assert_same(root.square() * v, u);
            roots += 1;
        }
        assert!((150..250).contains(&roots), "{roots}");
        assert_same(Tight::sqrt_ratio(ZERO, ONE).unwrap(), ZERO);
    }
}
