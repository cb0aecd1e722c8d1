//! Verifies many Ed25519 signatures at once, for reverification of evidence.
//!
//! Never for a decision. A batch verifies a random combination of the signatures' equations. A signer who mixes points
//! of small order into its own keys and signatures can make some that pass in a batch, or in every other batch, and
//! fail alone. No signer can make a signature pass for a key that it does not hold. A signature that fails in a batch
//! is finally verified alone, by the rule of decisions.

#![allow(clippy::arithmetic_side_effects, reason = "points and scalars have no overflow")]

use std::collections::HashMap;
use std::ops::Range;

use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::traits::{IsIdentity as _, VartimeMultiscalarMul as _};
use curve25519_dalek::{EdwardsPoint, Scalar};
use ed25519_dalek::Signature;
use sha2::{Digest, Sha256, Sha512};

use crate::key::{PublicKey, is_sound_ed25519};

/// A signature to verify.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The key of the signer.
    pub key: &'a PublicKey,
    /// The signed message.
    pub message: &'a [u8],
    /// The signature in its JWS form: 64 bytes.
    pub signature: &'a [u8],
}

/// Verifies the signatures and returns the places of those that do not verify, in order; none if all do.
///
/// Ed25519 signatures go in batches of [`BATCH`], others one by one. A batch that fails is halved until its bad
/// signatures are found: one bad signature costs about twice the batch, and when every one is bad they cost about three
/// times what verifying them one by one would.
#[must_use]
pub fn find_bad(signed: &[Signed<'_>]) -> Vec<usize> {
    let mut bad = Vec::new();
    let mut batch = Batch::default();
    let mut places = Vec::new();
    for (place, item) in signed.iter().enumerate() {
        if !batch.add(item) {
            bad.push(place);
        }
        places.resize(batch.len(), place);
        if batch.is_full() || place.saturating_add(1) == signed.len() {
            bad.extend(batch.find_bad().iter().filter_map(|&term| places.get(term)));
            batch.clear();
            places.clear();
        }
    }
    bad.sort_unstable();
    bad
}

/// Signatures in one batch. Larger batches hardly cost less for each, and more if one of them is bad.
pub const BATCH: usize = 4096;

/// Below this number, verifying one by one is cheaper than another batch.
const SINGLY: usize = 8;

/// Signatures whose equations S·B = R + k·A are verified together: each equation is multiplied by a number z that no
/// signer can predict, and all are added up.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    terms: Vec<Term>,
    /// The keys, and the place of each. All signatures of one key share one multiplication of it.
    keys: Vec<EdwardsPoint>,
    places: HashMap<[u8; 32], usize>,
}

/// The part of one signature in the sum.
#[derive(Debug)]
struct Term {
    /// The index of its key in `keys`.
    key: usize,
    /// R, in its canonical encoding and not of small order.
    commitment: EdwardsPoint,
    s: Scalar,
    /// SHA-512 of R, A and the message.
    hash: [u8; 64],
}

impl Batch {
    /// Adds a signature, or verifies it at once if it is not Ed25519. Returns false, without adding it, if it is bad
    /// already.
    pub(crate) fn add(&mut self, signed: &Signed<'_>) -> bool {
        let Some(key) = signed.key.ed25519() else {
            return signed.key.verifies(signed.message, signed.signature);
        };
        let Ok(signature) = Signature::from_slice(signed.signature) else {
            return false;
        };
        // The checks of these parts in a single verification (RFC 8032, section 5.1.7, and the strict rule for keys),
        // which the batch equation does not include.
        let s = Option::<Scalar>::from(Scalar::from_canonical_bytes(*signature.s_bytes()));
        let commitment = decode_commitment(signature.r_bytes());
        let (Some(s), Some(commitment)) = (s, commitment) else {
            return false;
        };
        let hash = Sha512::new()
            .chain_update(signature.r_bytes())
            .chain_update(key.as_bytes())
            .chain_update(signed.message)
            .finalize()
            .into();
        let next = self.keys.len();
        let place = *self.places.entry(*key.as_bytes()).or_insert(next);
        if place == next {
            self.keys.push(key.to_edwards());
        }
        self.terms.push(Term {
            key: place,
            commitment,
            s,
            hash,
        });
        true
    }

    /// How many signatures are in the batch.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.terms.len() >= BATCH
    }

    /// Removes all signatures except the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.terms.truncate(len);
    }

    pub(crate) fn clear(&mut self) {
        self.terms.clear();
        self.keys.clear();
        self.places.clear();
    }

    /// Which of the signatures are bad, in the order of their addition.
    pub(crate) fn find_bad(&self) -> Vec<usize> {
        let mut bad = Vec::new();
        self.find_bad_in(0..self.terms.len(), &mut bad);
        bad
    }

    fn find_bad_in(&self, range: Range<usize>, bad: &mut Vec<usize>) {
        let terms = self.terms.get(range.clone()).unwrap_or_default();
        if range.len() < SINGLY {
            bad.extend(
                range
                    .zip(terms)
                    .filter(|(_, term)| !self.verifies_singly(term))
                    .map(|(place, _)| place),
            );
        } else if !self.verifies(terms) {
            let middle = range.start.midpoint(range.end);
            self.find_bad_in(range.start..middle, bad);
            self.find_bad_in(middle..range.end, bad);
        }
    }

    /// Whether the term's own equation holds: the answer of [`PublicKey::verifies`] for this signature.
    fn verifies_singly(&self, term: &Term) -> bool {
        self.keys.get(term.key).is_some_and(|key| {
            let k = Scalar::from_bytes_mod_order_wide(&term.hash);
            // For -A: a key may have a part of small order, for which -k modulo the group order is not the inverse of
            // k.
            EdwardsPoint::vartime_double_scalar_mul_basepoint(&k, &-key, &term.s) == term.commitment
        })
    }

    fn verifies(&self, terms: &[Term]) -> bool {
        let mut of_base = Scalar::ZERO;
        let mut of_keys = vec![Scalar::ZERO; self.keys.len()];
        let mut scalars = Vec::with_capacity(terms.len().saturating_add(self.keys.len()));
        for (term, z) in terms.iter().zip(factors(terms)) {
            of_base -= z * term.s;
            if let Some(of_key) = of_keys.get_mut(term.key) {
                *of_key += z * Scalar::from_bytes_mod_order_wide(&term.hash);
            }
            scalars.push(z);
        }
        let mut points: Vec<&EdwardsPoint> = terms.iter().map(|term| &term.commitment).collect();
        scalars.push(of_base);
        points.push(&ED25519_BASEPOINT_POINT);
        for (scalar, key) in of_keys.into_iter().zip(&self.keys) {
            // When a batch is halved, most of its keys are in neither half.
            if scalar != Scalar::ZERO {
                scalars.push(scalar);
                points.push(key);
            }
        }
        EdwardsPoint::vartime_multiscalar_mul(scalars, points).is_identity()
    }
}

fn decode_commitment(r: &[u8; 32]) -> Option<EdwardsPoint> {
    if is_sound_ed25519(r) {
        CompressedEdwardsY(*r).decompress()
    } else {
        None
    }
}

/// The factors of the equations, 128 bits each. They are derived from everything that is verified (the hash covers
/// message and key), so that signers cannot know them in advance.
fn factors(terms: &[Term]) -> impl Iterator<Item = Scalar> {
    let mut seed = Sha256::new_with_prefix(b"credence batch of Ed25519 signatures");
    for term in terms {
        seed.update(term.hash);
        seed.update(term.s.as_bytes());
    }
    let seed = seed.finalize();
    (0u64..).map(move |number| {
        let block = Sha256::new_with_prefix(seed)
            .chain_update(number.to_be_bytes())
            .finalize();
        let mut z = [0; 32];
        for (byte, random) in z.iter_mut().zip(block.iter().take(16)) {
            *byte = *random;
        }
        Scalar::from_bytes_mod_order(z)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, SigningKey};

    /// Signatures by three kinds of keys. Those at `bad` are over another message.
    fn bad_among(count: usize, bad: &[usize]) -> Vec<usize> {
        let keys: Vec<SigningKey> = (1..=20)
            .map(|number: u8| {
                let kind = match number {
                    20 => KeyType::P256,
                    19 => KeyType::Secp256k1,
                    _ => KeyType::Ed25519,
                };
                SigningKey::from_secret(kind, &[number; 32]).unwrap()
            })
            .collect();
        let public: Vec<PublicKey> = keys.iter().map(SigningKey::public).collect();
        let messages: Vec<Vec<u8>> = (0..count).map(|place| place.to_be_bytes().to_vec()).collect();
        let signatures: Vec<Vec<u8>> = (0..count)
            .map(|place| {
                let signed = if bad.contains(&place) {
                    &messages[place][1..]
                } else {
                    &messages[place]
                };
                keys[place % keys.len()].sign(signed)
            })
            .collect();
        let signed: Vec<Signed<'_>> = (0..count)
            .map(|place| Signed {
                key: &public[place % public.len()],
                message: &messages[place],
                signature: &signatures[place],
            })
            .collect();
        find_bad(&signed)
    }

    #[test]
    fn good_signatures_are_all_good() {
        for count in [0, 1, 2, 63, 64, BATCH, BATCH + 1] {
            assert_eq!(bad_among(count, &[]), [0; 0], "{count}");
        }
    }

    #[test]
    fn exactly_the_bad_signatures_are_found() {
        for bad in [
            vec![0],
            vec![63],
            vec![BATCH - 1, BATCH],
            vec![18, 19, 20, 38, 39],
            vec![7, 8, 9, 200, 299],
            (0..300).collect(),
        ] {
            let count = bad.iter().max().map_or(0, |last| last + 1).max(300);
            assert_eq!(bad_among(count, &bad), bad);
        }
    }

    #[test]
    fn a_malformed_signature_is_bad() {
        let key = SigningKey::from_seed(&[1; 32]);
        let good = key.sign(b"m");
        let zeros = [0; 64];
        let mut out_of_range = good.clone();
        out_of_range[63] |= 0xf0;
        let signatures: [&[u8]; 5] = [&good, &good[..63], &[], &zeros, &out_of_range];
        let public = key.public();
        let signed = signatures.map(|signature| Signed {
            key: &public,
            message: b"m",
            signature,
        });
        assert_eq!(find_bad(&signed), [1, 2, 3, 4]);
    }

    #[test]
    fn a_commitment_of_small_order_is_bad_although_a_batch_would_accept_it() {
        use curve25519_dalek::Scalar;
        use sha2::{Digest, Sha512};
        let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
        // With nonce 0, R is the neutral element, and S the challenge times the secret.
        let mut signature = [0; 64];
        signature[0] = 1;
        let challenge = Sha512::new()
            .chain_update(&signature[..32])
            .chain_update(key.verifying_key().as_bytes())
            .chain_update(b"m")
            .finalize();
        let s = Scalar::from_bytes_mod_order_wide(&challenge.into()) * key.to_scalar();
        signature[32..].copy_from_slice(s.as_bytes());
        let taken = ed25519_dalek::verify_batch(&[b"m"], &[Signature::from_bytes(&signature)], &[key.verifying_key()]);
        assert!(taken.is_ok());

        let public = SigningKey::from_seed(&[1; 32]).public();
        let signed = Signed {
            key: &public,
            message: b"m",
            signature: &signature,
        };
        assert_eq!(find_bad(&[signed; 8]), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_signature_that_only_a_batch_accepts_is_bad_in_every_batch() {
        use curve25519_dalek::Scalar;
        use curve25519_dalek::scalar::clamp_integer;
        use sha2::{Digest, Sha512};

        let key = SigningKey::from_seed(&[1; 32]).public();
        let secret = Sha512::digest([1; 32]);
        let secret = Scalar::from_bytes_mod_order(clamp_integer(secret[..32].try_into().unwrap()));
        // The identity as p + 1, with either sign: a batch decodes it, and its equation would hold.
        for sign in [0x7f, 0xff] {
            let mut r = [0xff; 32];
            (r[0], r[31]) = (0xee, sign);
            let challenge = Sha512::new()
                .chain_update(r)
                .chain_update(key.ed25519().unwrap().as_bytes())
                .chain_update(b"m")
                .finalize();
            let s = Scalar::from_bytes_mod_order_wide(&challenge.into()) * secret;
            let signature = [r, s.to_bytes()].concat();
            let signed = Signed {
                key: &key,
                message: b"m",
                signature: &signature,
            };
            for count in [1, 8, 64] {
                assert_eq!(find_bad(&vec![signed; count]), (0..count).collect::<Vec<_>>());
            }
        }
    }
}
