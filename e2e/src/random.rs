//! Reproducible random choices: the same seed makes the same requests.

use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;

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
