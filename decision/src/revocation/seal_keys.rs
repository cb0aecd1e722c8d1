//! The keys from the control plane that seal what leaves the VM and comes back: entries of the cache that the workers of a
//! node share, and the ids of MCP sessions.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The present key and the previous one, which is still accepted.
#[derive(Clone)]
pub struct SealKeys {
    current: Hmac<Sha256>,
    previous: Option<Hmac<Sha256>>,
}

/// HMAC-SHA256 over the sealed parts.
pub type Seal = [u8; 32];

/// The key of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedWith {
    /// The present one.
    Current,
    /// The previous one: entries that it sealed are valid only for a short time.
    Previous,
}

// === impl SealKeys ===

impl SealKeys {
    /// Reads the control plane's keys; `previous` may be empty. `None` if a key has the wrong length.
    pub fn parse(current: &[u8], previous: &[u8]) -> Option<Self> {
        let key = |bytes: &[u8]| {
            let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
            Hmac::new_from_slice(bytes).ok()
        };
        let previous = match previous {
            [] => None,
            previous => Some(key(previous)?),
        };
        Some(Self {
            current: key(current)?,
            previous,
        })
    }

    /// Seals these parts. The caller ensures that no other parts give the same bytes when joined.
    pub fn seal(&self, parts: &[&[u8]]) -> Seal {
        over(&self.current, parts).finalize().into_bytes().into()
    }

    /// Which key made the seal of these parts, if any. Takes the same time for every difference.
    pub fn check(&self, parts: &[&[u8]], seal: &Seal) -> Option<SealedWith> {
        let is_of = |key| over(key, parts).verify_slice(seal).is_ok();
        if is_of(&self.current) {
            Some(SealedWith::Current)
        } else if self.previous.as_ref().is_some_and(is_of) {
            Some(SealedWith::Previous)
        } else {
            None
        }
    }
}

/// Never prints a key.
impl fmt::Debug for SealKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SealKeys(..)")
    }
}

fn over(key: &Hmac<Sha256>, parts: &[&[u8]]) -> Hmac<Sha256> {
    parts.iter().fold(key.clone(), |mac, part| mac.chain_update(part))
}

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(current: u8, previous: Option<u8>) -> SealKeys {
        let previous = previous.map(|byte| vec![byte; 32]).unwrap_or_default();
        SealKeys::parse(&[current; 32], &previous).unwrap()
    }

    #[test]
    fn a_seal_is_valid_under_its_key_and_the_next_one() {
        let seal = keys(1, None).seal(&[b"a", b"b"]);
        let check = |keys: SealKeys, parts: &[&[u8]]| keys.check(parts, &seal);
        assert_eq!(check(keys(1, None), &[b"a", b"b"]), Some(SealedWith::Current));
        assert_eq!(check(keys(2, Some(1)), &[b"a", b"b"]), Some(SealedWith::Previous));
        assert_eq!(check(keys(3, Some(2)), &[b"a", b"b"]), None);
        assert_eq!(check(keys(2, None), &[b"a", b"b"]), None);
        assert_eq!(check(keys(1, None), &[b"a", b"c"]), None);
    }

    #[test]
    fn the_seal_agrees_with_another_implementation() {
        // Python's hmac.new(b"\x0b" * 32, b"Hi There", "sha256").
        let keys = SealKeys::parse(&[0x0b; 32], &[]);
        let seal = keys.unwrap().seal(&[b"Hi ", b"There"]);
        let hex: String = seal.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7");
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        for (current, previous) in [(0, 32), (31, 32), (33, 32), (32, 31), (32, 33), (0, 0)] {
            let keys = SealKeys::parse(&vec![1; current], &vec![2; previous]);
            assert!(keys.is_none(), "{current} {previous}");
        }
    }

    #[test]
    fn no_key_is_printed() {
        assert_eq!(format!("{:?}", keys(7, Some(8))), "SealKeys(..)");
    }
}
