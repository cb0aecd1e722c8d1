//! RSA signatures (RFC 8017) with the exponent 65537: `RS256` and `PS256` (RFC 7518, sections 3.3 and 3.5).
//!
//! Numbers are limbs of 28 bits, the lowest first. A column of a product is then a sum of at most 147 products of 56 bits
//! and fits into 64 bits, so that carries are taken once a column. The rsa crate has 64-bit limbs, whose products Wasm
//! cannot compute in one instruction: there, a signature costs four times as much, and the code is nine times as large.
//!
//! Keys, digests and signatures are public. Nothing here is constant-time.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "columns have no overflow, as the module says; the rest are lengths and indices below 600"
)]

use sha2::{Digest as _, Sha256};

/// A public key with the exponent 65537.
pub struct RsaKey {
    /// Big-endian, without leading zeros.
    modulus: Box<[u8]>,
    limbs: Vec<u32>,
    /// The limbs, the highest first.
    reversed: Vec<u32>,
    /// -1/modulus modulo 2^28.
    negated_inverse: u32,
    /// R^2 modulo the modulus. R is 2^28 to the number of limbs, and at least four times the modulus.
    r_squared: Vec<u32>,
}

impl RsaKey {
    /// The key of this modulus, big-endian without leading zeros. `None` unless it is odd and has 2048 to 4096 bits.
    #[must_use]
    pub fn new(modulus: &[u8]) -> Option<Self> {
        let (first, last) = (modulus.first()?, modulus.last()?);
        let bits = (modulus.len() * 8).checked_sub(first.leading_zeros() as usize)?;
        if *first == 0 || last % 2 == 0 || !(MIN_BITS..=MAX_BITS).contains(&bits) {
            return None;
        }
        let limbs = limbs_of(modulus, (bits + 2).div_ceil(LIMB_BITS));
        let lowest = *limbs.first()?;
        // Newton's method doubles the correct bits: 3, 6, 12, 24, 48.
        let inverse = (0..4).fold(lowest, |inverse, _| {
            inverse.wrapping_mul(2u32.wrapping_sub(lowest.wrapping_mul(inverse)))
        });
        let r_squared = power_of_two(2 * LIMB_BITS * limbs.len(), &limbs);
        Some(Self {
            modulus: modulus.into(),
            reversed: limbs.iter().rev().copied().collect(),
            negated_inverse: inverse.wrapping_neg() & LIMB,
            r_squared,
            limbs,
        })
    }

    /// The modulus, big-endian, without leading zeros.
    #[must_use]
    pub fn modulus(&self) -> &[u8] {
        &self.modulus
    }

    /// Whether `signature` is the key's by RSASSA-PKCS1-v1_5 with SHA-256, over a message with this digest (RFC 8017,
    /// section 8.2.2).
    #[must_use]
    pub fn verify_rs256(&self, digest: &[u8; 32], signature: &[u8]) -> bool {
        self.opened(signature).is_some_and(|encoded| {
            let Some(padding) = encoded.len().checked_sub(3 + SHA256_INFO.len() + digest.len()) else {
                return false;
            };
            let expected = [0, 1].into_iter().chain(std::iter::repeat_n(0xff, padding)).chain([0]);
            encoded.iter().copied().eq(expected.chain(SHA256_INFO).chain(*digest))
        })
    }

    /// Whether `signature` is the key's by RSASSA-PSS with SHA-256, MGF1 with SHA-256 and a salt of 32 bytes, over a
    /// message with this digest (RFC 8017, sections 8.1.2 and 9.1.2).
    #[must_use]
    pub fn verify_ps256(&self, digest: &[u8; 32], signature: &[u8]) -> bool {
        self.opened(signature)
            .is_some_and(|encoded| self.is_pss(digest, &encoded).unwrap_or(false))
    }

    /// EMSA-PSS-VERIFY. `None` is also no.
    fn is_pss(&self, digest: &[u8; 32], encoded: &[u8]) -> Option<bool> {
        // The encoded message has one bit less than the modulus, hence sometimes one byte less.
        let unused = self.modulus.first()?.leading_zeros() + 1;
        let (encoded, unused) = match unused {
            8 => (encoded.strip_prefix(&[0])?, 0),
            unused => (encoded, unused),
        };
        let (rest, hash) = encoded.strip_suffix(&[0xbc])?.split_last_chunk::<32>()?;
        let highest = 0xff_u8.checked_shr(unused)?;
        if rest.first()? & !highest != 0 {
            return Some(false);
        }
        let mut data: Vec<u8> = rest
            .iter()
            .zip(mgf1(hash))
            .map(|(masked, mask)| masked ^ mask)
            .collect();
        *data.first_mut()? &= highest;
        let (padding, salt) = data.split_last_chunk::<32>()?;
        let (one, zeros) = padding.split_last()?;
        let is_padded = *one == 1 && zeros.iter().all(|byte| *byte == 0);
        let own = Sha256::new()
            .chain_update([0; 8])
            .chain_update(digest)
            .chain_update(salt);
        Some(is_padded && own.finalize().as_slice() == hash)
    }

    /// The signature to the power of 65537, big-endian and as long as the modulus. `None` if it is not a number below the
    /// modulus in as many bytes (RSAVP1; RFC 8017, section 5.2.2).
    fn opened(&self, signature: &[u8]) -> Option<Vec<u8>> {
        if signature.len() != self.modulus.len() || *signature >= *self.modulus {
            return None;
        }
        let mut columns = vec![0; self.limbs.len() * 2];
        let base = self.product(&limbs_of(signature, self.limbs.len()), &self.r_squared, &mut columns);
        let power = (0..16).fold(base.clone(), |power, _| self.product(&power, &power, &mut columns));
        let power = self.product(&power, &base, &mut columns);
        let one = limbs_of(&[1], self.limbs.len());
        let number = self.product(&power, &one, &mut columns);
        // It is the modulus itself only for the signature 0.
        let is_zero = number == self.limbs;
        Some(if is_zero {
            vec![0; self.modulus.len()]
        } else {
            self.bytes(&number)
        })
    }

    /// a·b/R modulo the modulus (Montgomery's multiplication). Below twice the modulus if a and b are.
    fn product(&self, a: &[u32], b: &[u32], columns: &mut [u32]) -> Vec<u32> {
        if a == b {
            square(a, columns);
        } else {
            multiply(a, b, columns);
        }
        self.reduced(columns)
    }

    /// The number in these columns, divided by R, modulo the modulus.
    fn reduced(&self, columns: &[u32]) -> Vec<u32> {
        let length = self.limbs.len();
        let lowest = u64::from(self.limbs.first().copied().unwrap_or_default());
        let (low, high) = columns.split_at_checked(length).unwrap_or_default();
        let mut factors: Vec<u32> = Vec::with_capacity(length);
        let mut sum = 0;
        for (place, column) in low.iter().enumerate() {
            // The limbs of the modulus from `place` down to 1.
            sum += u64::from(*column) + dot(&factors, from(&self.reversed, length - 1 - place));
            let factor = (sum as u32).wrapping_mul(self.negated_inverse) & LIMB;
            sum = (sum + u64::from(factor) * lowest) >> LIMB_BITS;
            factors.push(factor);
        }
        let mut reduced = Vec::with_capacity(length);
        for (place, column) in high.iter().enumerate() {
            sum += u64::from(*column) + dot(from(&factors, place + 1), &self.reversed);
            reduced.push(sum as u32 & LIMB);
            sum >>= LIMB_BITS;
        }
        reduced
    }

    /// A number below the modulus, big-endian and as long as the modulus.
    fn bytes(&self, limbs: &[u32]) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..self.modulus.len())
            .map(|index| {
                let (place, shift) = (index * 8 / LIMB_BITS, index * 8 % LIMB_BITS);
                let limb = |place| u64::from(limbs.get(place).copied().unwrap_or_default());
                ((limb(place) | limb(place + 1) << LIMB_BITS) >> shift) as u8
            })
            .collect();
        bytes.reverse();
        bytes
    }
}

/// The columns of a·b.
fn multiply(a: &[u32], b: &[u32], columns: &mut [u32]) {
    let reversed: Vec<u32> = b.iter().rev().copied().collect();
    carry(columns, |place| {
        let last = a.len() - 1;
        match place.checked_sub(last) {
            None => dot(a, from(&reversed, last - place)),
            Some(above) => dot(from(a, above), &reversed),
        }
    });
}

/// The columns of a·a: each product of two limbs is computed once and doubled.
fn square(a: &[u32], columns: &mut [u32]) {
    let reversed: Vec<u32> = a.iter().rev().copied().collect();
    carry(columns, |place| {
        let last = a.len() - 1;
        let first = place.saturating_sub(last);
        let half = place.div_ceil(2);
        let smaller = a.get(first..half).unwrap_or_default();
        let doubled = dot(smaller, from(&reversed, last + first - place)) << 1;
        match a.get(place / 2) {
            Some(middle) if place % 2 == 0 => doubled + u64::from(*middle).pow(2),
            Some(_) | None => doubled,
        }
    });
}

/// Fills the columns with the sums, and carries what is above a limb.
fn carry(columns: &mut [u32], sum_of: impl Fn(usize) -> u64) {
    let mut sum = 0;
    let last = columns.len() - 1;
    for (place, column) in columns.iter_mut().enumerate() {
        if place < last {
            sum += sum_of(place);
        }
        *column = sum as u32 & LIMB;
        sum >>= LIMB_BITS;
    }
}

/// The sum of the products of the limbs, pair by pair, as long as both have one.
fn dot(a: &[u32], b: &[u32]) -> u64 {
    let length = a.len().min(b.len());
    let (a, b) = (a.get(..length).unwrap_or_default(), b.get(..length).unwrap_or_default());
    // Eight at a time: in V8, a loop's own instructions would cost as much as the products.
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let product = |(a, b): (&u32, &u32)| u64::from(*a) * u64::from(*b);
    let eights = a.iter().zip(b).fold(0, |sum, (a, b)| {
        a.iter().zip(b).map(product).fold(sum, |sum, one| sum + one)
    });
    a_rest
        .iter()
        .zip(b_rest)
        .map(product)
        .fold(eights, |sum, one| sum + one)
}

fn from(limbs: &[u32], index: usize) -> &[u32] {
    limbs.get(index..).unwrap_or_default()
}

/// The limbs of a big-endian number.
fn limbs_of(bytes: &[u8], length: usize) -> Vec<u32> {
    let mut limbs = vec![0u32; length];
    for (index, byte) in bytes.iter().rev().enumerate() {
        let (place, shift) = (index * 8 / LIMB_BITS, index * 8 % LIMB_BITS);
        let shifted = u64::from(*byte) << shift;
        for (limb, part) in limbs.iter_mut().skip(place).zip([shifted, shifted >> LIMB_BITS]) {
            *limb |= part as u32 & LIMB;
        }
    }
    limbs
}

/// 2^exponent modulo the modulus.
fn power_of_two(exponent: usize, modulus: &[u32]) -> Vec<u32> {
    let mut power = limbs_of(&[1], modulus.len());
    for _ in 0..exponent {
        let mut carried = 0;
        for limb in &mut power {
            let doubled = *limb << 1 | carried;
            *limb = doubled & LIMB;
            carried = doubled >> LIMB_BITS;
        }
        if power.iter().rev().ge(modulus.iter().rev()) {
            let mut borrowed = 0;
            for (limb, subtracted) in power.iter_mut().zip(modulus) {
                let difference = i64::from(*limb) - i64::from(*subtracted) - borrowed;
                *limb = difference as u32 & LIMB;
                borrowed = i64::from(difference < 0);
            }
        }
    }
    power
}

/// MGF1 with SHA-256 (RFC 8017, appendix B.2.1).
fn mgf1(seed: &[u8; 32]) -> impl Iterator<Item = u8> {
    (0u32..).flat_map(move |counter| {
        Sha256::new()
            .chain_update(seed)
            .chain_update(counter.to_be_bytes())
            .finalize()
    })
}

const LIMB_BITS: usize = 28;
const LIMB: u32 = (1 << LIMB_BITS) - 1;
const MIN_BITS: usize = 2048;
const MAX_BITS: usize = 4096;

/// The beginning of a `DigestInfo` of SHA-256, in DER (RFC 8017, section 9.2, note 1).
const SHA256_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
    use crypto_bigint::{BoxedUint, Odd, Resize as _};

    /// Signatures that another implementation made over "a message", with keys of 2048, 2049, 2055, 3072 and 4096 bits:
    /// on each line a modulus, then RS256, PS256, and PS256 with a salt of 20 bytes.
    const SIGNATURES: &str = include_str!("rsa_signatures.txt");

    fn signatures() -> impl Iterator<Item = (RsaKey, [Vec<u8>; 3])> {
        SIGNATURES.lines().map(|line| {
            let mut parts = line.split(' ').map(bytes);
            let key = RsaKey::new(&parts.next().unwrap()).unwrap();
            (key, std::array::from_fn(|_| parts.next().unwrap()))
        })
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
        hex.as_bytes()
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    fn digest() -> [u8; 32] {
        Sha256::digest("a message").into()
    }

    /// Bytes that depend on the number only.
    fn random(number: usize, length: usize) -> Vec<u8> {
        let blocks =
            (0u32..).flat_map(|block| Sha256::digest([number.to_le_bytes().as_slice(), &block.to_le_bytes()].concat()));
        blocks.take(length).collect()
    }

    #[test]
    fn a_signature_is_of_one_algorithm() {
        for (key, [rs256, ps256, short_salt]) in signatures() {
            let digest = digest();
            let answers = |signature: &[u8]| {
                (
                    key.verify_rs256(&digest, signature),
                    key.verify_ps256(&digest, signature),
                )
            };
            assert_eq!(answers(&rs256), (true, false));
            assert_eq!(answers(&ps256), (false, true));
            assert_eq!(answers(&short_salt), (false, false));
        }
    }

    #[test]
    fn any_other_bit_denies() {
        for (key, [rs256, ps256, _]) in signatures() {
            for bit in (0..rs256.len() * 8).step_by(41) {
                let flipped = |bytes: &[u8]| {
                    let mut flipped = bytes.to_vec();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    flipped
                };
                assert!(!key.verify_rs256(&digest(), &flipped(&rs256)), "{bit}");
                assert!(!key.verify_ps256(&digest(), &flipped(&ps256)), "{bit}");
            }
            for bit in 0..256 {
                let mut other = digest();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    !key.verify_rs256(&other, &rs256) && !key.verify_ps256(&other, &ps256),
                    "{bit}"
                );
            }
        }
    }

    #[test]
    fn a_signature_has_one_encoding() {
        for (key, [rs256, ps256, _]) in signatures() {
            for signature in [rs256, ps256] {
                let longer = [&[0], signature.as_slice()].concat();
                let shorter = &signature[1..];
                let trailing = [signature.as_slice(), &[0]].concat();
                for other in [&longer, shorter, &trailing, &[], key.modulus()] {
                    assert!(!key.verify_rs256(&digest(), other) && !key.verify_ps256(&digest(), other));
                }
            }
        }
    }

    /// The modulus need not be a product of two primes for that.
    #[test]
    fn powers_are_the_library_s() {
        for number in 0..60 {
            let bits = 2048 + number * 2048 / 59;
            let mut modulus = random(number, bits.div_ceil(8));
            let unused = modulus.len() * 8 - bits;
            modulus[0] = modulus[0] >> unused | 0x80 >> unused;
            *modulus.last_mut().unwrap() |= 1;
            if number % 7 == 0 {
                modulus[1..40].fill(0xff);
            }
            let key = RsaKey::new(&modulus).unwrap();
            let mut below = modulus.clone();
            *below.last_mut().unwrap() -= 1;
            let mut small = vec![0; modulus.len()];
            small[modulus.len() - 1] = 2;
            let mut any = random(number + 1000, modulus.len());
            any[0] = any[0] >> unused >> 1;
            for base in [below, small, any, vec![0; modulus.len()]] {
                assert_eq!(key.opened(&base).unwrap(), library_s(&modulus, &base), "{bits} bits");
            }
            assert_eq!(key.opened(&modulus), None);
        }
    }

    fn library_s(modulus: &[u8], base: &[u8]) -> Vec<u8> {
        let modulus_number = Odd::new(BoxedUint::from_be_slice_vartime(modulus)).unwrap();
        let precision = modulus_number.as_ref().bits_precision();
        let base = BoxedUint::from_be_slice_vartime(base).resize(precision);
        let params = BoxedMontyParams::new_vartime(modulus_number);
        let power = BoxedMontyForm::new(base, &params).pow(&BoxedUint::from(65_537_u32));
        let encoded = power.retrieve().to_be_bytes();
        encoded[encoded.len() - modulus.len()..].to_vec()
    }

    #[test]
    fn only_odd_moduli_of_2048_to_4096_bits_are_keys() {
        let modulus = |bits: usize| {
            let mut modulus = vec![0xff; bits.div_ceil(8)];
            modulus[0] = 0xff >> (modulus.len() * 8 - bits);
            modulus
        };
        for (bits, is_key) in [
            (2047, false),
            (2048, true),
            (2056, true),
            (4096, true),
            (4097, false),
            (8192, false),
        ] {
            assert_eq!(RsaKey::new(&modulus(bits)).is_some(), is_key, "{bits}");
        }
        let mut even = modulus(2048);
        even[255] = 0xfe;
        assert!(RsaKey::new(&even).is_none());
        assert!(
            RsaKey::new(&[&[0], modulus(2048).as_slice()].concat()).is_none(),
            "a leading zero"
        );
        assert!(RsaKey::new(&[]).is_none());
    }
}
