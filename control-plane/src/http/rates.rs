//! How often who may ask: token buckets for each credential and, where there is none, for each client address.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::settings::RateSettings;
use credence_runtime::client_limits::Network;

/// The address that a connection came from; among the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Every bucket.
#[derive(Debug)]
pub(crate) struct Rates {
    credentials: Table<String>,
    strangers: Table<Network>,
    statements_of: Table<Network>,
    statements: Mutex<Bucket>,
    statements_rate: Rate,
}

/// It is empty for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Empty(Duration);

#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: f64,
    burst: f64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Buckets by name, so many and no more.
#[derive(Debug)]
struct Table<K> {
    rate: Rate,
    room: usize,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    by_name: HashMap<K, Bucket>,
    /// Of all who find no room.
    shared: Bucket,
    swept: Instant,
}

// === impl Rates ===

impl Rates {
    pub(crate) fn new(settings: &RateSettings, now: Instant) -> Self {
        let room = settings.counted_apart;
        let of_address = Rate::even(settings.statements_per_second_per_address);
        let statements_rate = Rate::even(settings.statements_per_second);
        Self {
            credentials: Table::new(Rate::new(settings.requests_per_second, settings.burst), room, now),
            strangers: Table::new(
                Rate::new(
                    settings.unauthenticated_requests_per_second,
                    settings.unauthenticated_burst,
                ),
                room,
                now,
            ),
            statements_of: Table::new(of_address, room, now),
            statements: Mutex::new(Bucket::full(statements_rate, now)),
            statements_rate,
        }
    }

    pub(super) fn credential(&self, name: &str, now: Instant) -> Result<(), Duration> {
        self.credentials.take(name, now).map_err(|empty| empty.0)
    }

    pub(super) fn stranger(&self, address: Option<ClientAddress>, now: Instant) -> Result<(), Duration> {
        self.strangers.take(&network(address), now).map_err(|empty| empty.0)
    }

    /// First the address's own, so that one client does not use up what belongs to all.
    pub(super) fn statement(&self, address: Option<ClientAddress>, now: Instant) -> Result<(), Duration> {
        let taken = self.statements_of.take(&network(address), now).and_then(|()| {
            let mut bucket = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(self.statements_rate, now)
        });
        taken.map_err(|empty| empty.0)
    }
}

// === impl Rate ===

impl Rate {
    fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            burst: f64::from(burst),
        }
    }

    fn even(per_second: u32) -> Self {
        Self::new(per_second, per_second)
    }
}

// === impl Bucket ===

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            tokens: rate.burst,
            at: now,
        }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = rate.burst.min(self.tokens + elapsed * rate.per_second);
        self.at = self.at.max(now);
    }

    fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Empty> {
        self.fill(rate, now);
        if self.tokens < 1.0 {
            return Err(Empty(Duration::from_secs_f64((1.0 - self.tokens) / rate.per_second)));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

// === impl Table ===

impl<K: Eq + Hash> Table<K> {
    fn new(rate: Rate, room: usize, now: Instant) -> Self {
        let buckets = Buckets {
            by_name: HashMap::new(),
            shared: Bucket::full(rate, now),
            swept: now,
        };
        Self {
            rate,
            room,
            buckets: Mutex::new(buckets),
        }
    }

    fn take<Q>(&self, name: &Q, now: Instant) -> Result<(), Empty>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.by_name.get_mut(name) {
            return bucket.take(self.rate, now);
        }
        if buckets.by_name.len() >= self.room {
            buckets.sweep(self.rate, now);
        }
        if buckets.by_name.len() >= self.room {
            return buckets.shared.take(self.rate, now);
        }
        let mut bucket = Bucket::full(self.rate, now);
        let taken = bucket.take(self.rate, now);
        buckets.by_name.insert(name.to_owned(), bucket);
        taken
    }
}

// === impl Buckets ===

impl<K: Eq + Hash> Buckets<K> {
    /// Forgets the full ones, which are like new; looks at all of them once a second at most.
    fn sweep(&mut self, rate: Rate, now: Instant) {
        if now.saturating_duration_since(self.swept) < SWEEP_INTERVAL {
            return;
        }
        self.swept = now;
        self.by_name.retain(|_, bucket| {
            bucket.fill(rate, now);
            bucket.tokens < rate.burst
        });
    }
}

fn network(address: Option<ClientAddress>) -> Network {
    Network::of(address.map_or(IpAddr::from([0; 4]), |address| address.0))
}

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn table(room: usize, now: Instant) -> Table<String> {
        Table::new(Rate::new(10, 3), room, now)
    }

    #[test]
    fn a_bucket_holds_the_burst_and_fills_at_the_rate() {
        let start = Instant::now();
        let table = table(10, start);
        for _ in 0..3 {
            table.take("a", start).unwrap();
        }
        let Err(Empty(wait)) = table.take("a", start) else {
            panic!("a fourth of three");
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
            "c, d and e have emptied what is shared"
        );
        table.take("a", start).unwrap();
        let later = start + Duration::from_secs(1);
        for _ in 0..3 {
            table.take("f", later).unwrap();
        }
        assert!(table.take("f", later).is_err());
    }

    #[test]
    fn one_address_does_not_use_up_the_statements_of_all() {
        let start = Instant::now();
        let settings = RateSettings {
            statements_per_second: 3,
            statements_per_second_per_address: 2,
            ..RateSettings::default()
        };
        let rates = Rates::new(&settings, start);
        let of = |last: u8| rates.statement(Some(ClientAddress(IpAddr::from([192, 0, 2, last]))), start);
        assert_eq!([of(1), of(1), of(2)], [Ok(()); 3]);
        assert!(of(1).is_err() && of(2).is_err() && of(3).is_err());
    }
}
