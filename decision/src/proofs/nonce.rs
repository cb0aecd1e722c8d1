//! Nonces of this Envoy process, for rules whose proofs must be made for it (draft section 7.4; section 8, step 7h).
//!
//! The memory of used proofs is per process. A proof with a nonce of the process is invalid elsewhere, so it counts
//! only once overall. Nonces are not stored: a nonce is its time of creation and a keyed hash of that, under a secret
//! that the workers of one process share and that ends with the process.

use std::hash::Hasher;

use credence_delegation::UnixTime;
use siphasher::sip128::{Hasher128, SipHasher24};

/// Creates and checks the nonces of one process.
#[derive(Debug, Clone)]
pub struct Nonces {
    key: [u8; 16],
    /// The lifetime of a nonce in seconds.
    lifetime: u64,
}

impl Nonces {
    /// The nonces of the process with this secret. Each is valid for `lifetime` seconds.
    pub fn new(secret: &[u8; 16], lifetime: u64) -> Self {
        let mut key = SipHasher24::new_with_key(secret);
        // Other uses of the secret reveal nothing about nonces.
        key.write(b"credence nonce");
        Self {
            key: key.finish128().as_bytes(),
            lifetime,
        }
    }

    /// A new nonce.
    pub fn make(&self, now: UnixTime) -> String {
        base16ct::lower::encode_string(&[&now.0.to_be_bytes()[..], &self.tag(now)].concat())
    }

    /// Whether this is a valid nonce of the process.
    pub fn accept(&self, nonce: &str, now: UnixTime) -> bool {
        let Some((made, rest)) = nonce.split_at_checked(TIME_DIGITS) else {
            return false;
        };
        let Ok(made) = u64::from_str_radix(made, 16) else {
            return false;
        };
        let made = UnixTime(made.cast_signed());
        // The whole text is compared, so that a nonce has one spelling. The duration of the comparison reveals nothing
        // useful: an attacker would have to guess 64 bits at once.
        rest.len() == TAG_DIGITS
            && made <= now
            && now.distance(made) <= self.lifetime
            && subtle_eq(nonce.as_bytes(), self.make(made).as_bytes())
    }

    fn tag(&self, made: UnixTime) -> [u8; 16] {
        let mut tag = SipHasher24::new_with_key(&self.key);
        tag.write(&made.0.to_be_bytes());
        tag.finish128().as_bytes()
    }
}

/// Takes the same time for every difference.
fn subtle_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// Hexadecimal digits of the time.
const TIME_DIGITS: usize = 16;

/// Hexadecimal digits of the keyed hash.
const TAG_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    #[test]
    fn a_nonce_counts_for_its_lifetime_in_its_own_process() {
        let nonces = Nonces::new(&[1; 16], 60);
        let nonce = nonces.make(NOW);
        assert!(nonces.accept(&nonce, NOW));
        assert!(nonces.accept(&nonce, NOW.plus(60)));
        assert!(!nonces.accept(&nonce, NOW.plus(61)));
        assert!(!nonces.accept(&nonce, UnixTime(NOW.0 - 1)), "nor before it was made");
        assert!(!Nonces::new(&[2; 16], 60).accept(&nonce, NOW), "nor in another process");
    }

    #[test]
    fn a_forged_or_respelled_nonce_is_refused() {
        let nonces = Nonces::new(&[1; 16], 60);
        let nonce = nonces.make(NOW);
        assert_eq!(nonce.len(), TIME_DIGITS + TAG_DIGITS);
        for place in 0..nonce.len() {
            let mut forged = nonce.clone().into_bytes();
            forged[place] = if forged[place] == b'0' { b'1' } else { b'0' };
            assert!(!nonces.accept(std::str::from_utf8(&forged).unwrap(), NOW), "{place}");
        }
        for other in [
            "",
            "x",
            &nonce[..47],
            &format!("{nonce}0"),
            &nonce.to_uppercase(),
            &format!("+{}", &nonce[1..]),
            &"f".repeat(48),
            "ü000000000000000000000000000000000000000000000",
        ] {
            assert!(!nonces.accept(other, NOW), "{other}");
        }
        assert_ne!(nonces.make(NOW), nonces.make(NOW.plus(1)));
    }
}
