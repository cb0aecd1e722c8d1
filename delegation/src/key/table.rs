//! Multiples of a point, worked out in advance: what makes verifying with a key that is used again and again cheap.
//!
//! A verification computes S·B - k·A, where B is the group's base point and A the key. Without tables that takes some
//! 250 doublings. With the multiples of both points by 1 to 2^(w-1) for every w bits of the scalar, it takes one
//! addition for every w bits and no doubling.
//!
//! Everything here is public (keys, signatures, messages), so that nothing has to take constant time.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "points and scalars have no overflow; the digits are bounded by their width"
)]

use std::sync::OnceLock;

use curve25519_dalek::{Scalar, constants::ED25519_BASEPOINT_COMPRESSED};
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha512};

use super::edwards::{self, KnownPoint, Point, Sign};
use super::strict;

/// The multiples of one key.
pub(super) struct KeyTable {
    key: [u8; 32],
    multiples: Multiples<KEY_WINDOW>,
}

impl KeyTable {
    /// Works the multiples out, and those of the base point if nobody has yet, which takes three times as long.
    /// There is always one; if not, the key goes on without.
    pub(super) fn new(key: &VerifyingKey) -> Option<Self> {
        base();
        let key = key.to_bytes();
        // Of -A: a key may have a part of small order, for which -k modulo the group order is not the inverse of k.
        let multiples = Multiples::of(Point::decode(&key)?.negative());
        Some(Self { key, multiples })
    }

    /// Whether the signature is the key's. The answer is that of `strict::verifies`.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(signature) = Signature::from_slice(signature) else {
            return false;
        };
        // RFC 8032, section 5.1.7: S is below the group order.
        let Some(s) = Option::<Scalar>::from(Scalar::from_canonical_bytes(*signature.s_bytes())) else {
            return false;
        };
        if strict::is_of_small_order(signature.r_bytes()) {
            return false;
        }
        let Some(base) = base() else {
            return false;
        };
        let challenge = Sha512::new()
            .chain_update(signature.r_bytes())
            .chain_update(self.key)
            .chain_update(message)
            .finalize();
        let k = Scalar::from_bytes_mod_order_wide(&challenge.into());
        let mut addends = Vec::with_capacity(windows(BASE_WINDOW) + windows(KEY_WINDOW));
        addends.extend(base.addends(&s).chain(self.multiples.addends(&k)));
        // Comparing encodings refuses an R that is not canonical.
        edwards::sum(&addends).encode() == *signature.r_bytes()
    }
}

fn base() -> Option<&'static Multiples<BASE_WINDOW>> {
    static BASE: OnceLock<Option<Multiples<BASE_WINDOW>>> = OnceLock::new();
    BASE.get_or_init(|| Point::decode(ED25519_BASEPOINT_COMPRESSED.as_bytes()).map(Multiples::of))
        .as_ref()
}

/// For each window of W bits, at most 8, the point times 1 to 2^(W-1) times the window's place value.
struct Multiples<const W: usize>(Vec<KnownPoint>);

impl<const W: usize> Multiples<W> {
    fn of(point: Point) -> Self {
        let mut known = Vec::with_capacity(windows(W) * per_window(W));
        let mut points = Vec::new();
        let mut first = point;
        for _ in 0..windows(W) {
            let addend = first.addend();
            let mut multiple = first;
            for _ in 0..per_window(W) {
                points.push(multiple);
                multiple = multiple.add(&addend);
            }
            // 2^(W-1) + 1 times the first is there; the next window's first is 2^W times it.
            for _ in 0..W {
                first = first.add(&first.addend());
            }
            if points.len() >= KNOWN_AT_ONCE {
                known.append(&mut edwards::all_known(&points));
                points.clear();
            }
        }
        known.append(&mut edwards::all_known(&points));
        Self(known)
    }

    /// What the sum is of that is `scalar` times the point.
    fn addends(&self, scalar: &Scalar) -> impl Iterator<Item = (&KnownPoint, Sign)> {
        let windows = self.0.chunks_exact(per_window(W));
        windows.zip(digits::<W>(scalar)).filter_map(|(multiples, digit)| {
            // There is no multiple for 0, and none is added.
            let known = multiples.get(usize::from(digit.unsigned_abs()).wrapping_sub(1))?;
            Some((known, if digit > 0 { Sign::Plus } else { Sign::Minus }))
        })
    }
}

/// The scalar in base 2^W, least significant digit first, each from -2^(W-1) to 2^(W-1).
fn digits<const W: usize>(scalar: &Scalar) -> impl Iterator<Item = i16> {
    let bytes = scalar.to_bytes();
    let byte = move |place: usize| u16::from(bytes.get(place).copied().unwrap_or(0));
    let mut carry = 0;
    (0..windows(W)).map(move |window| {
        let (place, offset) = (window * W / 8, window * W % 8);
        let bits = (byte(place) | byte(place + 1) << 8) >> offset & ((1 << W) - 1);
        let digit = i16::try_from(bits).unwrap_or(0) + carry;
        carry = i16::from(digit > 1 << (W - 1));
        digit - (carry << W)
    })
}

/// A scalar has 253 bits, and the last digit must not carry.
const fn windows(width: usize) -> usize {
    254usize.div_ceil(width)
}

const fn per_window(width: usize) -> usize {
    1 << (width - 1)
}

/// Of a table that is worked out, so many points at least are divided by their Z together: more would save little time, and
/// take memory that a VM never gives back.
const KNOWN_AT_ONCE: usize = 512;

/// Bits of a window: 43 windows of 32 points.
const KEY_WINDOW: usize = 6;

/// 32 windows of 128 points.
const BASE_WINDOW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use curve25519_dalek::constants::ED25519_BASEPOINT_POINT as BASE;

    fn scalar(number: u64) -> Scalar {
        Scalar::from_bytes_mod_order_wide(&Sha512::digest(number.to_le_bytes()).into())
    }

    /// Scalars of every kind of digit: the least, the greatest, all carries, none, and any.
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
        assert!(digits.iter().all(|digit| digit.unsigned_abs() <= 1 << (W - 1)));
        digits.iter().rev().fold(Scalar::ZERO, |value, digit| {
            let magnitude = Scalar::from(digit.unsigned_abs());
            value * place_value + if *digit < 0 { -magnitude } else { magnitude }
        })
    }

    #[test]
    fn the_digits_are_the_scalar_s() {
        for scalar in scalars() {
            assert_eq!(value::<KEY_WINDOW>(&scalar), scalar);
            assert_eq!(value::<BASE_WINDOW>(&scalar), scalar);
        }
    }

    #[test]
    fn a_multiple_is_the_library_s() {
        let point = BASE * scalar(1);
        let own = Point::decode(point.compress().as_bytes()).unwrap();
        let multiples = Multiples::<KEY_WINDOW>::of(own);
        for scalar in scalars() {
            let mut addends: Vec<_> = multiples.addends(&scalar).collect();
            let sum = edwards::sum(&addends);
            assert_eq!(sum.encode(), (point * scalar).compress().to_bytes());
            addends.extend(base().unwrap().addends(&scalar));
            let sum = edwards::sum(&addends);
            assert_eq!(sum.encode(), ((point + BASE) * scalar).compress().to_bytes());
        }
    }

    /// As docs/configuration.md says of `limits.hot_keys`.
    #[test]
    fn tables_take_as_much_as_they_are_said_to() {
        let bytes = |points: &[KnownPoint]| size_of_val(points).div_ceil(1024);
        let table = Multiples::<KEY_WINDOW>::of(Point::IDENTITY);
        assert_eq!((bytes(&table.0), bytes(&base().unwrap().0)), (162, 480));
    }
}
