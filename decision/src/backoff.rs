//! How long to wait before the next attempt to reach the control plane.

use std::time::Duration;

/// Exponential back-off with full jitter: after the n-th failure in a row, a wait that is uniform in `0..min(BASE ·
/// 2^n, MAX)`.
///
/// When a control plane stops, all VMs of all proxies lose their streams at the same time. With full jitter, they do
/// not reconnect at the same time.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// The wait after another failure. `random` must be uniform over `u64`.
    pub fn after_failure(&mut self, random: u64) -> Duration {
        let ceiling = 2u32
            .checked_pow(self.failures)
            .and_then(|factor| BASE.checked_mul(factor))
            .map_or(MAX, |ceiling| ceiling.min(MAX));
        self.failures = self.failures.saturating_add(1);
        share_of(ceiling, random)
    }

    /// The wait if only an operator can fix the failure: uniform in the upper half of `MAX_LASTING`. So such a client
    /// rarely retries, but still notices the fix within that time.
    pub fn after_lasting_failure(&mut self, random: u64) -> Duration {
        self.failures = u32::MAX;
        let half = MAX_LASTING.checked_div(2).unwrap_or(MAX_LASTING);
        half.saturating_add(share_of(half, random))
    }

    /// The connection works: the next failure counts as the first one.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// The fraction `random / 2^64` of `duration`.
fn share_of(duration: Duration, random: u64) -> Duration {
    // The product of two u64 fits into u128, and its upper half is below the first factor.
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let scaled = u128::from(nanos).saturating_mul(u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// The longest wait after the first failure.
pub const BASE: Duration = Duration::from_millis(100);

/// The longest wait after a transient failure: how long a proxy may still answer 503 after the control plane is back.
pub const MAX: Duration = Duration::from_secs(1);

/// The longest wait after a failure that only an operator can fix.
pub const MAX_LASTING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let ceilings: Vec<u128> = (0..8)
            .map(|_| backoff.after_failure(u64::MAX).as_millis().saturating_add(1))
            .collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
    }

    #[test]
    fn jitter_covers_the_whole_range() {
        assert_eq!(Backoff::default().after_failure(0), Duration::ZERO);
        assert_eq!(Backoff::default().after_failure(u64::MAX / 2 + 1), BASE / 2);
    }

    #[test]
    fn success_starts_over() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            backoff.after_failure(7);
        }
        backoff.succeeded();
        assert!(backoff.after_failure(u64::MAX) < BASE);
    }

    #[test]
    fn a_lasting_failure_waits_at_least_half_the_maximum() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_lasting_failure(0), MAX_LASTING / 2);
        assert!(backoff.after_lasting_failure(u64::MAX) < MAX_LASTING);
        assert!(
            backoff.after_failure(u64::MAX) > MAX / 2,
            "and the failures after it stay slow"
        );
    }
}
