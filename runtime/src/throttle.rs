//! Limits log lines that any client can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows one report a second, with the number of events since the last one.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Counting>);

#[derive(Debug, Default)]
struct Counting {
    reported: Option<Instant>,
    since: u64,
}

// === impl Throttle ===

impl Throttle {
    /// Counts an event. If another report is due, returns the number of events since the last one.
    pub fn count(&self, now: Instant) -> Option<u64> {
        let mut counting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counting.since += 1;
        let due = counting
            .reported
            .is_none_or(|reported| now.saturating_duration_since(reported) >= INTERVAL);
        due.then(|| {
            counting.reported = Some(now);
            std::mem::take(&mut counting.since)
        })
    }
}

const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_reported_once_a_second_and_counted_whole() {
        let throttle = Throttle::default();
        let start = Instant::now();
        assert_eq!(throttle.count(start), Some(1));
        for _ in 0..999 {
            assert_eq!(throttle.count(start), None);
        }
        assert_eq!(throttle.count(start + INTERVAL), Some(1000));
    }
}
