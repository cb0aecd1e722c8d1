//! The field of Curve25519: integers modulo p = 2^255 - 19.
//!
//! The arithmetic is fiat-crypto's, which was derived from a proof that it is right. Its two types keep its promise: a
//! multiplication takes [`Loose`] elements, which sums and differences are, and gives a [`Tight`] one, which sums and
//! differences take. It is the arithmetic for 32 bits on every machine, so that what the tests run is what runs in Wasm,
//! where multiplying 64 bits to 128 takes longer.

pub(super) use fiat::{fiat_25519_loose_field_element as Loose, fiat_25519_tight_field_element as Tight};
use fiat_crypto::curve25519_32 as fiat;

use super::divsteps;

pub(super) const ZERO: Tight = small(0);
pub(super) const ONE: Tight = small(1);
/// 1/2.
pub(super) const HALF: Tight = from_bytes(&half());
/// The curve's d = -121665/121666 (RFC 8032, section 5.1).
pub(super) const D: Tight = from_bytes(&[
    0xa3, 0x78, 0x59, 0x13, 0xca, 0x4d, 0xeb, 0x75, 0xab, 0xd8, 0x41, 0x41, 0x4d, 0x0a, 0x70, 0x00, 0x98, 0xe8, 0x79,
    0x77, 0x79, 0x40, 0xc7, 0x8c, 0x73, 0xfe, 0x6f, 0x2b, 0xee, 0x6c, 0x03, 0x52,
]);
/// A square root of -1.
const ROOT_OF_MINUS_ONE: Tight = from_bytes(&[
    0xb0, 0xa0, 0x0e, 0x4a, 0x27, 0x1b, 0xee, 0xc4, 0x78, 0xe4, 0x2f, 0xad, 0x06, 0x18, 0x43, 0x2f, 0xa7, 0xd7, 0xfb,
    0x3d, 0x99, 0x00, 0x4d, 0x2b, 0x0b, 0xdf, 0xc1, 0x4f, 0x80, 0x24, 0x83, 0x2b,
]);

/// Of 32 bytes, least significant first. The highest bit, where points keep the sign of x, does not count.
pub(super) const fn from_bytes(bytes: &[u8; 32]) -> Tight {
    let mut below = *bytes;
    below[31] &= 0x7f;
    let mut element = Tight([0; 10]);
    fiat::fiat_25519_from_bytes(&mut element, &below);
    element
}

/// The one number below p that it stands for.
pub(super) fn to_bytes(element: &Tight) -> [u8; 32] {
    let mut bytes = [0; 32];
    fiat::fiat_25519_to_bytes(&mut bytes, element);
    bytes
}

pub(super) fn add(a: &Tight, b: &Tight) -> Loose {
    let mut sum = Loose([0; 10]);
    fiat::fiat_25519_add(&mut sum, a, b);
    sum
}

pub(super) fn subtract(a: &Tight, b: &Tight) -> Loose {
    let mut difference = Loose([0; 10]);
    fiat::fiat_25519_sub(&mut difference, a, b);
    difference
}

pub(super) fn multiply(a: &Loose, b: &Loose) -> Tight {
    let mut product = Tight([0; 10]);
    fiat::fiat_25519_carry_mul(&mut product, a, b);
    product
}

pub(super) fn square(a: &Loose) -> Tight {
    let mut square = Tight([0; 10]);
    fiat::fiat_25519_carry_square(&mut square, a);
    square
}

pub(super) fn loose(a: &Tight) -> Loose {
    let mut same = Loose([0; 10]);
    fiat::fiat_25519_relax(&mut same, a);
    same
}

/// The product of two that are tight.
pub(super) fn product(a: &Tight, b: &Tight) -> Tight {
    multiply(&loose(a), &loose(b))
}

pub(super) fn tight(a: &Loose) -> Tight {
    let mut same = Tight([0; 10]);
    fiat::fiat_25519_carry(&mut same, a);
    same
}

pub(super) fn negative(a: &Tight) -> Tight {
    tight(&subtract(&ZERO, a))
}

/// 1/a, and 0 for 0.
pub(super) fn inverse(a: &Tight) -> Tight {
    inverse_if(a, divsteps::inverse_of(&to_bytes(a)))
}

/// 1/a, and 0 for 0: what was found, if that is right. Nobody has proved what finds it, and to see takes one
/// multiplication.
fn inverse_if(a: &Tight, found: Option<[u8; 32]>) -> Tight {
    found
        .map(|found| from_bytes(&found))
        .filter(|found| is_same(&product(a, found), &ONE))
        .unwrap_or_else(|| inverse_by_power(a))
}

/// 1/a, and 0 for 0.
pub(super) fn inverse_by_power(a: &Tight) -> Tight {
    // a^(p-2), and p - 2 = (2^250 - 1)·2^5 + 11.
    let powers = Powers::of(a);
    product(&squared(powers.to_2_250_less_1, 5), &powers.to_11)
}

/// A square root of u/v, if there is one; v is not 0.
pub(super) fn root_of_ratio(u: &Tight, v: &Tight) -> Option<Tight> {
    // RFC 8032, section 5.1.3: the candidate is u·v^3·(u·v^7)^((p-5)/8), and (p-5)/8 = (2^250 - 1)·2^2 + 1.
    let v3 = product(&square(&loose(v)), v);
    let v7 = product(&square(&loose(&v3)), v);
    let base = product(u, &v7);
    let power = product(&squared(Powers::of(&base).to_2_250_less_1, 2), &base);
    let root = product(&product(u, &v3), &power);
    let check = product(v, &square(&loose(&root)));
    if is_same(&check, u) {
        Some(root)
    } else {
        is_same(&check, &negative(u)).then(|| product(&root, &ROOT_OF_MINUS_ONE))
    }
}

pub(super) fn is_same(a: &Tight, b: &Tight) -> bool {
    to_bytes(a) == to_bytes(b)
}

/// Powers of an element that the exponents here have in common.
struct Powers {
    to_11: Tight,
    to_2_250_less_1: Tight,
}

impl Powers {
    fn of(a: &Tight) -> Self {
        let to_2 = square(&loose(a));
        let to_9 = product(&squared(to_2, 2), a);
        let to_11 = product(&to_9, &to_2);
        // From here on a to the power of 2^n - 1.
        let to_5_ones = product(&square(&loose(&to_11)), &to_9);
        let to_10_ones = product(&squared(to_5_ones, 5), &to_5_ones);
        let to_20_ones = product(&squared(to_10_ones, 10), &to_10_ones);
        let to_40_ones = product(&squared(to_20_ones, 20), &to_20_ones);
        let to_50_ones = product(&squared(to_40_ones, 10), &to_10_ones);
        let to_100_ones = product(&squared(to_50_ones, 50), &to_50_ones);
        let to_200_ones = product(&squared(to_100_ones, 100), &to_100_ones);
        Self {
            to_11,
            to_2_250_less_1: product(&squared(to_200_ones, 50), &to_50_ones),
        }
    }
}

fn squared(a: Tight, times: usize) -> Tight {
    (0..times).fold(a, |power, _| square(&loose(&power)))
}

const fn small(number: u8) -> Tight {
    let mut bytes = [0; 32];
    bytes[0] = number;
    from_bytes(&bytes)
}

/// (p + 1)/2 = 2^254 - 9.
const fn half() -> [u8; 32] {
    let mut bytes = [0xff; 32];
    bytes[0] = 0xf7;
    bytes[31] = 0x3f;
    bytes
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
        assert_same(&square(&loose(&ROOT_OF_MINUS_ONE)), &negative(&ONE));
        // 121665 and 121666 have more than 16 bits: 243330 = 2·121665 = 365·666 + 240.
        let twice_121665 = tight(&add(&product(&of(365), &of(666)), &of(240)));
        let twice_121666 = tight(&add(&twice_121665, &of(2)));
        assert_same(&product(&D, &twice_121666), &negative(&twice_121665));
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
            assert_same(&product(&inverse(&number), &number), &ONE);
        }
        assert_same(&inverse(&ZERO), &ZERO);
    }

    #[test]
    fn an_inverse_that_is_none_is_not_believed() {
        let wrong = to_bytes(&number(2));
        for a in (0..10).map(number).chain([ZERO, ONE]) {
            let right = inverse_by_power(&a);
            for found in [
                None,
                Some(to_bytes(&right)),
                Some(wrong),
                Some(to_bytes(&a)),
                Some([0; 32]),
            ] {
                assert_same(&inverse_if(&a, found), &right);
            }
        }
    }

    #[test]
    fn half_of_all_ratios_have_a_root() {
        let mut roots = 0;
        for (u, v) in (0..400).map(|of| (number(of), number(of + 1000))) {
            let Some(root) = root_of_ratio(&u, &v) else {
                // 2 is no square: where u/v has no root, 2u/v has one.
                let twice = tight(&add(&u, &u));
                assert!(root_of_ratio(&twice, &v).is_some());
                continue;
            };
            assert_same(&product(&square(&loose(&root)), &v), &u);
            roots += 1;
        }
        assert!((150..250).contains(&roots), "{roots}");
        assert_same(&root_of_ratio(&ZERO, &ONE).unwrap(), &ZERO);
    }
}
