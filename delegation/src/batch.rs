//! Many Ed25519 signatures at once, for evidence that is checked again in bulk.
//!
//! Never for a decision. A batch verifies a random combination of the signatures' equations, so that a signer who mixes
//! points of small order into his own keys and signatures can make some that pass in a batch, or in every other batch,
//! and fail by themselves. Nobody can make a signature pass for a key that he does not hold. What fails in a batch is
//! verified by itself in the end, by the rule that decisions follow.

use std::ops::Range;

use ed25519_dalek::{Signature, VerifyingKey};

use crate::key::PublicKey;

/// A signature to verify.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// Whose it would be.
    pub key: &'a PublicKey,
    /// What is signed.
    pub message: &'a [u8],
    /// The signature as JWS has it: 64 bytes.
    pub signature: &'a [u8],
}

/// Verifies the signatures and returns the places of those that do not verify, in order; none if all do.
///
/// Ed25519 signatures go in batches of [`BATCH`], others one by one. A batch that fails is halved until its bad
/// signatures are found: at worst, when every one is bad, that costs about five times what verifying them one by one
/// would.
#[must_use]
pub fn find_bad(signed: &[Signed<'_>]) -> Vec<usize> {
    let mut bad = Vec::new();
    let mut batch = Batch::new(signed);
    for (place, item) in signed.iter().enumerate() {
        match item.key.batchable(item.signature) {
            Some((key, signature)) => batch.push(place, *key, item.message, signature),
            None if item.verifies() => {}
            None => bad.push(place),
        }
        if batch.places.len() == BATCH {
            batch.find_bad(0..BATCH, &mut bad);
            batch = Batch::new(signed);
        }
    }
    batch.find_bad(0..batch.places.len(), &mut bad);
    bad.sort_unstable();
    bad
}

/// Signatures in one batch. Larger ones hardly cost less for each, and more when one in them is bad.
pub const BATCH: usize = 256;

/// Below this many, verifying one by one is cheaper than another batch.
const SINGLY: usize = 4;

impl Signed<'_> {
    fn verifies(&self) -> bool {
        self.key.verifies(self.message, self.signature)
    }
}

struct Batch<'a> {
    all: &'a [Signed<'a>],
    /// Where the signatures are in `all`.
    places: Vec<usize>,
    keys: Vec<VerifyingKey>,
    messages: Vec<&'a [u8]>,
    signatures: Vec<Signature>,
}

impl<'a> Batch<'a> {
    fn new(all: &'a [Signed<'a>]) -> Self {
        let room = all.len().min(BATCH);
        Self {
            all,
            places: Vec::with_capacity(room),
            keys: Vec::with_capacity(room),
            messages: Vec::with_capacity(room),
            signatures: Vec::with_capacity(room),
        }
    }

    fn push(&mut self, place: usize, key: VerifyingKey, message: &'a [u8], signature: Signature) {
        self.places.push(place);
        self.keys.push(key);
        self.messages.push(message);
        self.signatures.push(signature);
    }

    /// Adds the places of the bad signatures in this range of the batch.
    fn find_bad(&self, range: Range<usize>, bad: &mut Vec<usize>) {
        if range.len() < SINGLY {
            let places = self.places.get(range).unwrap_or_default();
            let fails = |place: &usize| !self.all.get(*place).is_some_and(Signed::verifies);
            bad.extend(places.iter().copied().filter(fails));
        } else if !self.verifies(range.clone()) {
            let middle = range.start.midpoint(range.end);
            self.find_bad(range.start..middle, bad);
            self.find_bad(middle..range.end, bad);
        }
    }

    fn verifies(&self, range: Range<usize>) -> bool {
        let slices = (
            self.messages.get(range.clone()),
            self.signatures.get(range.clone()),
            self.keys.get(range),
        );
        let (Some(messages), Some(signatures), Some(keys)) = slices else {
            return false;
        };
        ed25519_dalek::verify_batch(messages, signatures, keys).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, SigningKey};

    /// Signatures by three kinds of keys, of which those at `bad` are over another message.
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
    fn nothing_is_bad_among_good_signatures() {
        for count in [0, 1, 2, 63, 64, BATCH, BATCH + 1, 3 * BATCH] {
            assert_eq!(bad_among(count, &[]), [0; 0], "{count}");
        }
    }

    #[test]
    fn every_bad_signature_is_named_and_no_other() {
        for bad in [
            vec![0],
            vec![63],
            vec![BATCH - 1, BATCH],
            vec![18, 19, 20, 38, 39],
            vec![7, 8, 9, 200, 299],
            (0..300).collect(),
        ] {
            assert_eq!(bad_among(300, &bad), bad);
        }
    }

    #[test]
    fn what_is_no_signature_is_bad() {
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
    fn a_commitment_of_small_order_is_bad_though_a_batch_would_take_it() {
        use curve25519_dalek::Scalar;
        use sha2::{Digest, Sha512};
        let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
        // The nonce 0: R is the neutral element, and S the challenge times the secret.
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
    fn what_only_a_batch_would_take_is_bad_whoever_stands_beside_it() {
        use curve25519_dalek::Scalar;
        use curve25519_dalek::scalar::clamp_integer;
        use sha2::{Digest, Sha512};

        let key = SigningKey::from_seed(&[1; 32]).public();
        let secret = Sha512::digest([1; 32]);
        let secret = Scalar::from_bytes_mod_order(clamp_integer(secret[..32].try_into().unwrap()));
        // The identity as p + 1, with either sign: a batch decodes it and would find the equation to hold.
        for sign in [0x7f, 0xff] {
            let mut r = [0xff; 32];
            (r[0], r[31]) = (0xee, sign);
            let challenge = Sha512::new()
                .chain_update(r)
                .chain_update(key.batchable(&[0x20; 64]).unwrap().0.as_bytes())
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
