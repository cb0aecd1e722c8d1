//! The field of Curve25519: integers modulo p = 2^255 - 19 (RFC 8032, section 5.1).
//!
//! The arithmetic is fiat-crypto's, generated together with a proof that it is correct. Its two types keep the bounds of
//! that proof. A multiplication takes [`Loose`] elements and returns a [`Tight`] one. An addition or a subtraction takes
//! tight elements and returns a loose one.
//!
//! It is the arithmetic for 32-bit words on every machine. In Wasm it is the faster one, since Wasm has no
//! multiplication of 64 bits to 128, and so the tests run the same code as the filter. Inversion is crypto-bigint's.

use crypto_bigint::{Odd, U256};
use fiat_crypto::curve25519_32 as fiat;

pub(crate) use fiat::{fiat_25519_loose_field_element as Loose, fiat_25519_tight_field_element as Tight};

pub(crate) const ZERO: Tight = small(0);
pub(crate) const ONE: Tight = small(1);
/// 1/2 = (p + 1)/2 = 2^254 - 9.
pub(crate) const HALF: Tight = from_bytes(&[
    0xf7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f,
]);
/// The curve's constant d = -121665/121666 (RFC 8032, section 5.1).
pub(crate) const D: Tight = from_bytes(&[
    0xa3, 0x78, 0x59, 0x13, 0xca, 0x4d, 0xeb, 0x75, 0xab, 0xd8, 0x41, 0x41, 0x4d, 0x0a, 0x70, 0x00, 0x98, 0xe8, 0x79,
    0x77, 0x79, 0x40, 0xc7, 0x8c, 0x73, 0xfe, 0x6f, 0x2b, 0xee, 0x6c, 0x03, 0x52,
]);
/// 2^((p-1)/4), a square root of -1 (RFC 8032, section 5.1.3).
const SQRT_MINUS_ONE: Tight = from_bytes(&[
    0xb0, 0xa0, 0x0e, 0x4a, 0x27, 0x1b, 0xee, 0xc4, 0x78, 0xe4, 0x2f, 0xad, 0x06, 0x18, 0x43, 0x2f, 0xa7, 0xd7, 0xfb,
    0x3d, 0x99, 0x00, 0x4d, 0x2b, 0x0b, 0xdf, 0xc1, 0x4f, 0x80, 0x24, 0x83, 0x2b,
]);
const P: Odd<U256> = Odd::<U256>::from_be_hex("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed");

/// Reads 32 bytes, least significant first. The highest bit is ignored: in a point it is the sign of x.
pub(crate) const fn from_bytes(bytes: &[u8; 32]) -> Tight {
    let mut masked = *bytes;
    masked[31] &= 0x7f;
    let mut element = Tight([0; 10]);
    fiat::fiat_25519_from_bytes(&mut element, &masked);
    element
}

/// The canonical encoding: the number below p.
pub(crate) fn to_bytes(element: &Tight) -> [u8; 32] {
    let mut bytes = [0; 32];
    fiat::fiat_25519_to_bytes(&mut bytes, element);
    bytes
}

pub(crate) fn add(a: &Tight, b: &Tight) -> Loose {
    let mut sum = Loose([0; 10]);
    fiat::fiat_25519_add(&mut sum, a, b);
    sum
}

pub(crate) fn subtract(a: &Tight, b: &Tight) -> Loose {
    let mut difference = Loose([0; 10]);
    fiat::fiat_25519_sub(&mut difference, a, b);
    difference
}

pub(crate) fn multiply(a: &Loose, b: &Loose) -> Tight {
    let mut product = Tight([0; 10]);
    fiat::fiat_25519_carry_mul(&mut product, a, b);
    product
}

/// The product of two tight elements.
pub(crate) fn product(a: &Tight, b: &Tight) -> Tight {
    multiply(&loose(a), &loose(b))
}

pub(crate) fn square(a: &Tight) -> Tight {
    let mut square = Tight([0; 10]);
    fiat::fiat_25519_carry_square(&mut square, &loose(a));
    square
}

pub(crate) fn loose(a: &Tight) -> Loose {
    let mut same = Loose([0; 10]);
    fiat::fiat_25519_relax(&mut same, a);
    same
}

pub(crate) fn tight(a: &Loose) -> Tight {
    let mut same = Tight([0; 10]);
    fiat::fiat_25519_carry(&mut same, a);
    same
}

pub(crate) fn negate(a: &Tight) -> Tight {
    tight(&subtract(&ZERO, a))
}

/// 1/a, and 0 for 0.
pub(crate) fn invert(a: &Tight) -> Tight {
    let number = U256::from_le_slice(&to_bytes(a));
    let inverse = number.invert_odd_mod_vartime(&P).unwrap_or(U256::ZERO);
    from_bytes(&inverse.to_le_bytes().into())
}

/// A square root of u/v, if there is one. v is not 0.
///
/// RFC 8032, section 5.1.3, steps 2 and 3.
pub(crate) fn sqrt_ratio(u: &Tight, v: &Tight) -> Option<Tight> {
    let v3 = product(&square(v), v);
    let v7 = product(&square(&v3), v);
    let root = product(&product(u, &v3), &pow_p58(&product(u, &v7)));
    let check = product(v, &square(&root));
    if is_same(&check, u) {
        Some(root)
    } else {
        is_same(&check, &negate(u)).then(|| product(&root, &SQRT_MINUS_ONE))
    }
}

/// a^((p-5)/8). The exponent is 2^252 - 3: 250 ones and 01 in binary.
fn pow_p58(a: &Tight) -> Tight {
    let ones = (1..250).fold(*a, |power, _| product(&square(&power), a));
    product(&square(&square(&ones)), a)
}

fn is_same(a: &Tight, b: &Tight) -> bool {
    to_bytes(a) == to_bytes(b)
}

const fn small(number: u8) -> Tight {
    let mut bytes = [0; 32];
    bytes[0] = number;
    from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn number(of: u32) -> Tight {
        from_bytes(&Sha256::digest(of.to_le_bytes()).into())
    }

    /// A small number, of 16 bits.
    fn of(number: u16) -> Tight {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        from_bytes(&bytes)
    }

    fn assert_same(a: &Tight, b: &Tight) {
        assert_eq!(to_bytes(a), to_bytes(b));
    }

    #[test]
    fn the_constants_are_what_they_are_called() {
        assert_same(&product(&HALF, &of(2)), &ONE);
        assert_same(&square(&SQRT_MINUS_ONE), &negate(&ONE));
        // 121665 and 121666 have more than 16 bits: 243330 = 2·121665 = 365·666 + 240.
        let twice_121665 = tight(&add(&product(&of(365), &of(666)), &of(240)));
        let twice_121666 = tight(&add(&twice_121665, &of(2)));
        assert_same(&product(&D, &twice_121666), &negate(&twice_121665));
    }

    #[test]
    fn a_number_has_one_encoding_and_p_is_0() {
        let mut p = [0xff; 32];
        (p[0], p[31]) = (0xed, 0x7f);
        assert_same(&from_bytes(&p), &ZERO);
        p[0] += 1;
        assert_same(&from_bytes(&p), &ONE);
        p[31] = 0xff;
        assert_same(&from_bytes(&p), &ONE);
        for bytes in (0..100).map(|of| to_bytes(&number(of))) {
            assert_eq!(to_bytes(&from_bytes(&bytes)), bytes);
        }
    }

    #[test]
    fn an_inverse_times_the_number_is_1_and_0_has_none() {
        for number in (0..100).map(number) {
            assert_same(&product(&invert(&number), &number), &ONE);
        }
        assert_same(&invert(&ZERO), &ZERO);
    }

    #[test]
    fn half_of_all_ratios_have_a_root() {
        let mut roots = 0;
        for (u, v) in (0..400).map(|of| (number(of), number(of + 1000))) {
            let Some(root) = sqrt_ratio(&u, &v) else {
                // 2 is no square: where u/v has no root, 2u/v has one.
                let twice = tight(&add(&u, &u));
                assert!(sqrt_ratio(&twice, &v).is_some());
                continue;
            };
            assert_same(&product(&square(&root), &v), &u);
            roots += 1;
        }
        assert!((150..250).contains(&roots), "{roots}");
        assert_same(&sqrt_ratio(&ZERO, &ONE).unwrap(), &ZERO);
    }
}
