//! Dividing in the field of Curve25519 by steps of a greatest common divisor, in half the time that a power takes.
//!
//! The steps are those of Bernstein and Yang, Fast constant-time gcd computation and modular inversion (2019), section 8,
//! taken as a number allows it and not in constant time. They look at the lowest bits of two numbers f and g, so that 30
//! of them are worked out at once on those bits and then carried out on the whole numbers as one matrix (section 9). f
//! begins as p and ends as 1 or -1, g begins as the number and ends as 0; d and e say which multiples of the number f
//! and g are, modulo p. That these stay between -2p and p, and how several bits are cleared at once, is described with
//! libsecp256k1 (doc/safegcd_implementation.md, sections 4 and 6).
//!
//! Nothing depends on how many steps the paper proves to be enough: whoever calls `inverse_of` looks whether the answer
//! is right.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "no number in here has more than 61 bits and a sign, as is said where it gets that large"
)]

/// A number in base 2^30, least significant digit first. The digits but the last are from 0 to 2^30 - 1; the last has the
/// sign.
#[derive(Clone, Copy)]
struct Number([i64; DIGITS]);

/// What a batch of steps makes of f and g: (u·f + v·g, q·f + r·g) / 2^30. |u| + |v| and |q| + |r| are at most 2^30.
struct Batch {
    u: i64,
    v: i64,
    q: i64,
    r: i64,
}

/// The inverse modulo p of a number below p, least significant byte first. `None` for 0, or if there are more steps than
/// any number takes.
pub(super) fn inverse_of(number: &[u8; 32]) -> Option<[u8; 32]> {
    let (mut f, mut g) = (P.carried(), Number::from_bytes(number));
    let (mut d, mut e) = (ZERO, ONE);
    let mut delta = 1;
    for _ in 0..MAX_BATCHES {
        let batch = Batch::of(&mut delta, f.lowest(), g.lowest());
        (f, g) = batch.carried_out(&f, &g);
        (d, e) = batch.carried_out_modulo_p(&d, &e);
        if g.is_zero() {
            let inverse = if f.is_negative() { d.negative() } else { d };
            return (f.is_one() || f.negative().is_one()).then(|| inverse.below_p().to_bytes());
        }
    }
    None
}

impl Batch {
    /// 30 steps, from the lowest digits of f and g. f is odd.
    fn of(delta: &mut i64, f: i64, g: i64) -> Self {
        let (mut f, mut g) = (f, g);
        // After n steps, 2^n·f and 2^n·g are u·f + v·g and q·f + r·g of those at the beginning: where g is halved, what
        // belongs to f is doubled.
        let (mut u, mut v, mut q, mut r) = (1, 0, 0, 1);
        let mut left = DIGIT_BITS;
        loop {
            // As many steps that halve an even g as there are.
            let halvings = (g | (1 << left)).trailing_zeros();
            g >>= halvings;
            u <<= halvings;
            v <<= halvings;
            *delta += i64::from(halvings);
            left -= halvings;
            if left == 0 {
                return Self { u, v, q, r };
            }
            if *delta > 0 {
                *delta = -*delta;
                (f, g) = (g, -f);
                (u, q) = (q, -u);
                (v, r) = (r, -v);
            }
            // Until delta is above 0 again f stays, and each odd g gets f added: together a multiple of f. So many bits of g
            // can be made 0 at once.
            let bits = u32::try_from(1 - *delta)
                .unwrap_or(left)
                .min(left)
                .min(MOST_BITS_AT_ONCE);
            let times = g.wrapping_mul(negative_inverse(f)) & ((1 << bits) - 1);
            // f and g stay below 2^30: f is added at most 2^bits - 1 times, and then g is halved as many times as there are
            // bits. Between, g is below 2^41.
            g += times * f;
            q += times * u;
            r += times * v;
        }
    }

    /// The division by 2^30 leaves nothing. With |u| + |v| at most 2^30 (the paper's section 8.3) and digits below it, all
    /// sums are below 2^61.
    fn carried_out(&self, f: &Number, g: &Number) -> (Number, Number) {
        let combined = |a: i64, b: i64| Number::quotient(f.0.iter().zip(&g.0).map(|(f, g)| a * f + b * g));
        (combined(self.u, self.v), combined(self.q, self.r))
    }

    /// The division by 2^30 is made to leave nothing by adding a multiple of p. d and e are above -2p and below p, and so
    /// is what becomes of them. That multiple is at most 2^31, and 2^15 its largest digit: all sums are below 2^61.
    fn carried_out_modulo_p(&self, d: &Number, e: &Number) -> (Number, Number) {
        let combined = |a: i64, b: i64| {
            let lowest = (a * d.lowest() + b * e.lowest()) & DIGIT;
            // p added to those that are negative puts them between -p and p.
            let negatives = if d.is_negative() { a } else { 0 } + if e.is_negative() { b } else { 0 };
            // p is -19 modulo 2^30.
            let times_p = negatives - ((negatives - lowest * INVERSE_OF_19) & DIGIT);
            let digits = d.0.iter().zip(&e.0).zip(&P.0);
            Number::quotient(digits.map(|((d, e), p)| a * d + b * e + times_p * p))
        };
        (combined(self.u, self.v), combined(self.q, self.r))
    }
}

impl Number {
    /// Of a number below 2^255.
    fn from_bytes(bytes: &[u8; 32]) -> Self {
        let (mut bits, mut have, mut bytes) = (0, 0, bytes.iter());
        Self(std::array::from_fn(|_| {
            while have < DIGIT_BITS {
                bits |= i64::from(*bytes.next().unwrap_or(&0)) << have;
                have += 8;
            }
            let digit = bits & DIGIT;
            bits >>= DIGIT_BITS;
            have -= DIGIT_BITS;
            digit
        }))
    }

    /// Of a number from 0 to p - 1.
    fn to_bytes(self) -> [u8; 32] {
        let (mut bits, mut have, mut digits) = (0, 0, self.0.iter());
        std::array::from_fn(|_| {
            if have < 8 {
                bits |= digits.next().unwrap_or(&0) << have;
                have += DIGIT_BITS;
            }
            let byte = (bits & 0xff) as u8;
            bits >>= 8;
            have -= 8;
            byte
        })
    }

    /// What is left of a number, whose digits may have up to 61 bits and a sign, after its lowest digit is dropped, which is
    /// 0 once it is carried.
    fn quotient(digits: impl Iterator<Item = i64>) -> Self {
        let mut quotient = [0; DIGITS];
        let mut places = quotient.iter_mut();
        let mut carry = 0;
        for (place, digit) in digits.enumerate() {
            carry += digit;
            if place > 0
                && let Some(place) = places.next()
            {
                *place = carry & DIGIT;
            }
            carry >>= DIGIT_BITS;
        }
        if let Some(last) = places.next() {
            *last = carry;
        }
        Self(quotient)
    }

    fn lowest(&self) -> i64 {
        self.0[0]
    }

    fn is_zero(&self) -> bool {
        self.0 == ZERO.0
    }

    fn is_one(&self) -> bool {
        self.0 == ONE.0
    }

    fn is_negative(&self) -> bool {
        let [.., last] = self.0;
        last < 0
    }

    fn negative(&self) -> Self {
        Self(self.0.map(|digit| -digit)).carried()
    }

    /// The same modulo p, from 0 to p - 1, of a number above -2p and below 2p.
    fn below_p(self) -> Self {
        let mut number = self;
        for _ in 0..2 {
            if number.is_negative() {
                number = number.plus(&P);
            }
        }
        let less = number.plus(&P.negative());
        if less.is_negative() { number } else { less }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        sum.0.iter_mut().zip(other.0).for_each(|(digit, other)| *digit += other);
        sum.carried()
    }

    /// All digits but the last made as they have to be.
    fn carried(mut self) -> Self {
        let [digits @ .., last] = &mut self.0;
        let mut carry = 0;
        for digit in digits {
            carry += *digit;
            *digit = carry & DIGIT;
            carry >>= DIGIT_BITS;
        }
        *last += carry;
        self
    }
}

/// -1/f modulo 2^10, and something more above; f is odd.
fn negative_inverse(f: i64) -> i64 {
    // Right in 5 bits, and after Newton's step in twice as many.
    let inverse = (3 * f) ^ 2;
    inverse.wrapping_mul(f.wrapping_mul(inverse) - 2)
}

/// 9 digits of 30 bits: 255 bits, and room for a sign.
const DIGITS: usize = 9;
const DIGIT_BITS: u32 = 30;
const DIGIT: i64 = (1 << DIGIT_BITS) - 1;

/// What `negative_inverse` is good for.
const MOST_BITS_AT_ONCE: u32 = 10;

/// Of 30 steps. The paper's theorem 11.2 says that 738 are enough for 255 bits.
const MAX_BATCHES: usize = 25;

/// 1/19 modulo 2^30.
const INVERSE_OF_19: i64 = 0x286b_ca1b;

const ZERO: Number = Number([0; DIGITS]);
const ONE: Number = Number([1, 0, 0, 0, 0, 0, 0, 0, 0]);
/// 2^255 - 19, with digits that are yet to be carried.
const P: Number = Number([-19, 0, 0, 0, 0, 0, 0, 0, 1 << 15]);

#[cfg(test)]
mod tests {
    use super::super::field;
    use super::*;
    use sha2::{Digest, Sha256};

    /// Any numbers, small ones and those near powers of 2, and the negatives of all.
    fn numbers() -> impl Iterator<Item = [u8; 32]> {
        let any = (0..2_000u32).map(|number| Sha256::digest(number.to_le_bytes()).into());
        let near_powers = (0..255).flat_map(|bit| {
            let mut power = [0; 32];
            power[bit / 8] = 1 << (bit % 8);
            let (mut more, mut less) = (power, [0; 32]);
            more[0] ^= 1;
            less[..bit / 8].fill(0xff);
            less[bit / 8] = power[bit / 8] - 1;
            [power, more, less]
        });
        any.chain(near_powers).flat_map(|bytes: [u8; 32]| {
            let element = field::from_bytes(&bytes);
            [element, field::negative(&element)].map(|element| field::to_bytes(&element))
        })
    }

    #[test]
    fn an_inverse_is_the_power_and_only_0_has_none() {
        let (mut inverses, mut zeros) = (0, 0);
        for number in numbers() {
            let power = field::to_bytes(&field::inverse_by_power(&field::from_bytes(&number)));
            match inverse_of(&number) {
                Some(inverse) => {
                    assert_eq!(inverse, power, "{number:x?}");
                    inverses += 1;
                }
                None => {
                    assert_eq!(number, [0; 32]);
                    zeros += 1;
                }
            }
        }
        // 2^0 - 1 and 2^0 ^ 1, and their negatives.
        assert_eq!((inverses, zeros), (2 * (2_000 + 3 * 255) - 4, 4));
    }

    #[test]
    fn p_has_no_inverse() {
        let mut p = [0xff; 32];
        (p[0], p[31]) = (0xed, 0x7f);
        assert_eq!(inverse_of(&p), None);
    }

    /// Where d, e and their shares are at the ends of what they can be.
    #[test]
    fn what_is_carried_out_modulo_p_stays_between_twice_minus_p_and_p() {
        let (minus_p, minus_one) = (P.negative(), ONE.negative());
        let least = minus_p.plus(&minus_p).plus(&ONE);
        let ends = [least, least.plus(&ONE), minus_one, ZERO, P.plus(&minus_one)];
        let whole = 1 << DIGIT_BITS;
        let shares = [
            (whole - 1, 1),
            (whole, 0),
            (whole / 2, whole / 2),
            (whole / 2, -whole / 2),
        ];
        for (u, v) in shares
            .into_iter()
            .flat_map(|(u, v)| [(u, v), (-u, -v), (v, u), (-v, -u)])
        {
            let batch = Batch { u, v, q: 1, r: 0 };
            for (d, e) in ends.iter().flat_map(|d| ends.map(|e| (*d, e))) {
                let (carried_out, _) = batch.carried_out_modulo_p(&d, &e);
                assert!(carried_out.plus(&minus_p).is_negative());
                let from_least = carried_out.plus(&P).plus(&P);
                assert!(!from_least.is_negative() && !from_least.is_zero());
                let expected = field::add(
                    &field::product(&share(u), &element(d)),
                    &field::product(&share(v), &element(e)),
                );
                let doubled = field::product(&share(whole), &element(carried_out));
                assert!(field::is_same(&doubled, &field::tight(&expected)));
            }
        }
    }

    fn element(number: Number) -> field::Tight {
        field::from_bytes(&number.below_p().to_bytes())
    }

    fn share(of: i64) -> field::Tight {
        let mut digits = [0; DIGITS];
        digits[0] = of;
        element(Number(digits).carried())
    }

    #[test]
    fn a_number_comes_back_from_its_digits() {
        for number in numbers() {
            assert_eq!(Number::from_bytes(&number).to_bytes(), number);
        }
    }
}
