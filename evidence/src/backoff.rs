//! How long to wait before another service is asked again.

use std::time::Duration;

/// Longer and longer, and never the same for two control planes.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// The service has answered.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let most = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let mut random = [0; 4];
        // Without randomness it is the longest.
        let share = match getrandom::fill(&mut random) {
            Ok(()) => f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX),
            Err(_) => 1.0,
        };
        most.mul_f64(0.5 + share / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let (shortest, longest) = (Duration::from_millis(500), Duration::from_secs(30));
        let mut backoff = Backoff::new(shortest, longest);
        let first = backoff.next();
        assert!(first >= shortest / 2 && first <= shortest);
        for _ in 0..100 {
            assert!(backoff.next() <= longest);
        }
        assert!(backoff.next() >= longest / 2);
        backoff.reset();
        assert!(backoff.next() <= shortest);
    }
}
