//! Reproducible random choices: the same seed makes the same requests. Secrets are not reproducible.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use siphasher::sip::SipHasher13;

/// A generator of pseudo-random numbers: SipHash of a counter, under the seed.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    stream: u64,
    counter: u64,
}

impl Random {
    /// Each stream of a seed has numbers of its own.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            seed,
            stream,
            counter: 0,
        }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, self.stream);
        hasher.write_u64(self.counter);
        self.counter = self.counter.wrapping_add(1);
        hasher.finish()
    }

    /// Less than `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.number().checked_rem(bound).unwrap_or_default()).unwrap_or_default()
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them. `from` must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A text of 43 characters that is never the same: a code, a PKCE verifier or the id of a proof.
pub(crate) fn secret() -> String {
    let halves = [0, 1].map(|half| RandomState::new().hash_one(half).to_be_bytes());
    URL_SAFE_NO_PAD.encode(Sha256::digest(halves.concat()))
}
