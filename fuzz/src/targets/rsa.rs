//! RSA keys and signatures, compared with crypto-bigint's powers and with encodings that are built here (RFC 8017).
//!
//! An input is a byte that selects what to do, then bytes. Random bytes are hardly ever a signature, so most inputs are
//! changes of an encoded message, which the target signs. Its moduli are primes: their keys' secrets are public, and an
//! exponent has an inverse as with other moduli.

use std::sync::LazyLock;

use credence_key_tables::RsaKey;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize as _};
use sha2::{Digest as _, Sha256};

use super::{Effort, Outcome};

/// Reads the input.
pub fn run(input: &[u8], _: Effort) -> Outcome {
    let Some((selector, rest)) = input.split_first() else {
        return Outcome::Refused;
    };
    let primes: &[Prime] = &PRIMES;
    match primes.get(usize::from(*selector % 4)) {
        Some(prime) => check_signed(prime, *selector / 4, rest),
        None => check_any(rest),
    }
}

/// A prime modulus, and the exponent that signs.
struct Prime {
    modulus: Vec<u8>,
    secret: BoxedUint,
}

/// 2^exponent + addend, of 2048, 2049 and 2055 bits: the last byte of a message has 1, 2 and 8 unused bits.
const PRIMES_AS_SUMS: [(usize, u16); 3] = [(2047, 1919), (2048, 981), (2054, 3133)];

static PRIMES: LazyLock<Vec<Prime>> = LazyLock::new(|| PRIMES_AS_SUMS.map(Prime::new).into());

impl Prime {
    fn new((exponent, addend): (usize, u16)) -> Self {
        let mut modulus = vec![0; exponent / 8 + 1];
        modulus[0] = 1 << (exponent % 8);
        let length = modulus.len();
        modulus[length - 2..].copy_from_slice(&addend.to_be_bytes());
        Self {
            secret: inverse_exponent(&modulus),
            modulus,
        }
    }

    /// The signature of this encoded message; `None` if it is not below the modulus.
    fn sign(&self, encoded: &[u8]) -> Option<Vec<u8>> {
        (encoded < self.modulus.as_slice()).then(|| power(&self.modulus, encoded, &self.secret))
    }
}

/// The inverse of 65537 modulo the prime less one, e⁻¹ = (1 + t·(p-1)) / e for the t that makes it whole.
fn inverse_exponent(prime: &[u8]) -> BoxedUint {
    let remainder = |number: &[u8]| {
        number
            .iter()
            .fold(0u64, |sum, byte| (sum << 8 | u64::from(*byte)) % EXPONENT)
    };
    let mut order = prime.to_vec();
    // The primes are odd.
    *order.last_mut().expect("not empty") -= 1;
    let rest = remainder(&order);
    let factor = (1..EXPONENT).find(|factor| (1 + factor * rest) % EXPONENT == 0);
    let factor = factor.expect("65537 is a prime that does not divide the order");
    // One long division, from the highest byte: of factor · order + 1.
    let mut product = vec![0u8; order.len() + 3];
    let mut carry = 1u64;
    for (place, byte) in product.iter_mut().rev().enumerate() {
        let digit = order.len().checked_sub(place + 1).map_or(0, |index| order[index]);
        carry += u64::from(digit) * factor;
        *byte = carry as u8;
        carry >>= 8;
    }
    let mut rest = 0;
    for byte in &mut product {
        rest = rest << 8 | u64::from(*byte);
        *byte = (rest / EXPONENT) as u8;
        rest %= EXPONENT;
    }
    assert_eq!(rest, 0, "the division is whole");
    BoxedUint::from_be_slice_vartime(&product)
}

/// base^exponent modulo an odd modulus, as long as the modulus.
fn power(modulus: &[u8], base: &[u8], exponent: &BoxedUint) -> Vec<u8> {
    let number = Odd::new(BoxedUint::from_be_slice_vartime(modulus)).expect("an odd modulus");
    let precision = number.as_ref().bits_precision();
    let base = BoxedUint::from_be_slice_vartime(base).resize(precision);
    let params = BoxedMontyParams::new_vartime(number);
    let encoded = BoxedMontyForm::new(base, &params)
        .pow(exponent)
        .retrieve()
        .to_be_bytes();
    encoded[encoded.len() - modulus.len()..].to_vec()
}

/// A changed encoded message, signed. The rest of the input is triples: two bytes of a place, and what to add there.
fn check_signed(prime: &Prime, way: u8, changes: &[u8]) -> Outcome {
    let digest: [u8; 32] = Sha256::digest([way / 4]).into();
    let bits = prime.modulus.len() * 8 - prime.modulus[0].leading_zeros() as usize;
    let mut encoded = match way % 4 {
        0 => pkcs1(&digest, prime.modulus.len()),
        1 => pss(&digest, &[way; 32], bits, prime.modulus.len()),
        2 => pss(&digest, &vec![way; usize::from(way / 4)], bits, prime.modulus.len()),
        _ => pss(&digest, &[], bits, prime.modulus.len()),
    };
    let whole = encoded.clone();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % encoded.len();
        encoded[place] ^= change[2];
    }
    let Some(signature) = prime.sign(&encoded) else {
        return Outcome::Refused;
    };
    let key = RsaKey::new(&prime.modulus).expect("a usable modulus");
    let answers = (
        key.verify_rs256(&digest, &signature),
        key.verify_ps256(&digest, &signature),
    );
    assert_eq!(answers, expected(&encoded, &digest, bits), "{encoded:02x?}");
    if encoded == whole {
        assert_eq!(
            answers,
            (way.is_multiple_of(4), way % 4 == 1 || (way % 4 == 2 && way / 4 == 32))
        );
    }
    // The same number in more bytes, or more than the modulus.
    for other in [
        [&[0], signature.as_slice()].concat(),
        signature[1..].to_vec(),
        prime.modulus.clone(),
    ] {
        assert!(!key.verify_rs256(&digest, &other) && !key.verify_ps256(&digest, &other));
    }
    if answers == (false, false) {
        Outcome::Refused
    } else {
        Outcome::Accepted
    }
}

/// Any modulus and any signature: two bytes of the modulus's length, the modulus, and the signature.
fn check_any(input: &[u8]) -> Outcome {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return Outcome::Refused;
    };
    let (modulus, signature) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    let is_usable = (2048..=4096).contains(&bits)
        && modulus.first().is_some_and(|first| *first != 0)
        && modulus.last().is_some_and(|last| last % 2 == 1);
    let key = RsaKey::new(modulus);
    assert_eq!(key.is_some(), is_usable, "{bits} bits");
    let Some(key) = key else {
        return Outcome::Refused;
    };
    assert_eq!(key.modulus(), modulus);
    let digest: [u8; 32] = Sha256::digest(signature).into();
    let answers = (
        key.verify_rs256(&digest, signature),
        key.verify_ps256(&digest, signature),
    );
    let is_number = signature.len() == modulus.len() && signature < modulus;
    let expected = match is_number {
        true => {
            let opened = power(modulus, signature, &BoxedUint::from(EXPONENT));
            expected(&opened, &digest, bits)
        }
        false => (false, false),
    };
    assert_eq!(answers, expected);
    Outcome::Accepted
}

/// Whether an encoded message is that of this digest, by each algorithm.
fn expected(encoded: &[u8], digest: &[u8; 32], bits: usize) -> (bool, bool) {
    let by_pkcs1 = encoded == pkcs1(digest, encoded.len());
    // The salt is in the message, masked: decode it, and encode again (RFC 8017, section 9.1.2).
    let length = (bits - 1).div_ceil(8);
    let own = &encoded[encoded.len() - length..];
    let (masked, rest) = own.split_at(length - 33);
    let mask = mgf1(&rest[..32], masked.len());
    let salt: Vec<u8> = masked.iter().zip(&mask).map(|(byte, mask)| byte ^ mask).collect();
    let by_pss = encoded == pss(digest, &salt[salt.len() - 32..], bits, encoded.len());
    (by_pkcs1, by_pss)
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2).
fn pkcs1(digest: &[u8; 32], length: usize) -> Vec<u8> {
    const INFO: &[u8] = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
    let padding = vec![0xff; length - 3 - INFO.len() - digest.len()];
    [&[0, 1], padding.as_slice(), &[0], INFO, digest].concat()
}

/// EMSA-PSS with this salt (RFC 8017, section 9.1.1), as long as the modulus of so many bits.
fn pss(digest: &[u8; 32], salt: &[u8], bits: usize, length: usize) -> Vec<u8> {
    let own = (bits - 1).div_ceil(8);
    let hash: [u8; 32] = Sha256::digest([&[0; 8], digest.as_slice(), salt].concat()).into();
    let padding = vec![0; own - salt.len() - 34];
    let data = [padding.as_slice(), &[1], salt].concat();
    let mask = mgf1(&hash, data.len());
    let mut masked: Vec<u8> = data.iter().zip(&mask).map(|(byte, mask)| byte ^ mask).collect();
    masked[0] &= 0xff >> (own * 8 - (bits - 1));
    [vec![0; length - own].as_slice(), &masked, &hash, &[0xbc]].concat()
}

/// MGF1 (RFC 8017, appendix B.2.1).
fn mgf1(seed: &[u8], length: usize) -> Vec<u8> {
    let blocks = (0u32..).flat_map(|counter| Sha256::digest([seed, &counter.to_be_bytes()].concat()));
    blocks.take(length).collect()
}

const EXPONENT: u64 = 65_537;
