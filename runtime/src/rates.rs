//! Rate limits: token buckets by name, such as one for each client's network.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limited number of buckets by name.
#[derive(Debug)]
pub struct RateTable<K> {
    rate: Rate,
    room: usize,
    buckets: Mutex<Buckets<K>>,
}

/// Each bucket is the time at which it will be full again (the generic cell rate algorithm).
#[derive(Debug)]
struct Buckets<K> {
    by_name: HashMap<K, Instant>,
    /// The bucket of all clients without their own.
    shared: Instant,
    swept: Instant,
}

/// What each bucket holds, and how fast it fills.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// How long a bucket takes to get one token back.
    token: Duration,
    burst: u32,
}

// === impl RateTable ===

impl<K: Eq + Hash> RateTable<K> {
    /// Buckets of this size for so many names. Clients beyond them share one.
    pub fn new(rate: Rate, room: usize, now: Instant) -> Self {
        let buckets = Buckets {
            by_name: HashMap::new(),
            shared: now,
            swept: now,
        };
        Self {
            rate,
            room,
            buckets: Mutex::new(buckets),
        }
    }

    /// Takes a token. On error, returns the time until there is one.
    pub fn take<Q>(&self, name: &Q, now: Instant) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full_at) = buckets.by_name.get_mut(name) {
            return self.rate.take(full_at, now);
        }
        if buckets.by_name.len() >= self.room {
            buckets.sweep(now);
        }
        if buckets.by_name.len() >= self.room {
            return self.rate.take(&mut buckets.shared, now);
        }
        self.rate
            .take(buckets.by_name.entry(name.to_owned()).or_insert(now), now)
    }
}

// === impl Buckets ===

impl<K: Eq + Hash> Buckets<K> {
    /// Removes full buckets, which are like new ones. Checks all of them at most once a second.
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) >= SWEEP_INTERVAL {
            self.swept = now;
            self.by_name.retain(|_, full_at| *full_at > now);
        }
    }
}

// === impl Rate ===

impl Rate {
    pub fn new(per_second: u32, burst: u32) -> Self {
        let token = Duration::from_secs(1) / per_second.max(1);
        Self { token, burst }
    }

    fn take(self, full_at: &mut Instant, now: Instant) -> Result<(), Duration> {
        let without_this = (*full_at).max(now) + self.token;
        let empty_for = without_this.saturating_duration_since(now + self.token * self.burst);
        if empty_for.is_zero() {
            *full_at = without_this;
            return Ok(());
        }
        Err(empty_for)
    }
}

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn table(room: usize, now: Instant) -> RateTable<String> {
        RateTable::new(Rate::new(10, 3), room, now)
    }

    #[test]
    fn a_bucket_holds_the_burst_and_fills_at_the_rate() {
        let start = Instant::now();
        let table = table(10, start);
        for _ in 0..3 {
            table.take("a", start).unwrap();
        }
        let Err(wait) = table.take("a", start) else {
            panic!("a fourth request of three");
        };
        assert_eq!(wait, Duration::from_millis(100));
        table.take("b", start).unwrap();
        table.take("a", start + wait).unwrap();
        assert!(table.take("a", start + wait).is_err());
    }

    #[test]
    fn a_full_table_forgets_who_was_idle_and_lets_the_others_share() {
        let start = Instant::now();
        let table = table(2, start);
        for name in ["a", "b", "c", "d", "e"] {
            table.take(name, start).unwrap();
        }
        assert!(
            table.take("f", start).is_err(),
            "c, d and e have emptied the shared bucket"
        );
        table.take("a", start).unwrap();
        let later = start + Duration::from_secs(1);
        for _ in 0..3 {
            table.take("f", later).unwrap();
        }
        assert!(table.take("f", later).is_err());
    }
}
