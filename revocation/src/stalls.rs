//! Refuses, for a while, clients whose filters delay revocations repeatedly.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use credence_runtime::client_limits::Client;

/// The recent stalls of each client.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Stalls of a client within this time count once: they have one cause, in the client or its machine.
    window: Duration,
    records: HashMap<Client, Record>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    /// The number of stalls.
    times: u32,
    last: Instant,
    refused_until: Instant,
}

impl Stalls {
    pub(super) fn new(window: Duration) -> Self {
        let records = HashMap::new();
        Self { window, records }
    }

    /// A filter of this client has delayed a revocation. `connected` is the number of its connected filters.
    pub(super) fn record_stall(&mut self, client: &Client, connected: usize, now: Instant) {
        self.records
            .retain(|_, record| now < record.refused_until.max(record.last) + FORGOTTEN_AFTER);
        if self.records.len() >= MAX_CLIENTS && !self.records.contains_key(client) {
            let oldest = self.records.iter().min_by_key(|(_, record)| record.last);
            if let Some(oldest) = oldest.map(|(client, _)| client.clone()) {
                self.records.remove(&oldest);
            }
        }
        let fresh = Record {
            times: 0,
            last: now,
            refused_until: now,
        };
        let record = self.records.entry(client.clone()).or_insert(fresh);
        if record.times > 0 && now < record.last + self.window {
            return;
        }
        record.times = record.times.saturating_add(1);
        record.last = now;
        let proportional = u32::try_from(connected / FILTERS_PER_STALL).unwrap_or(u32::MAX);
        let tolerated = proportional.clamp(MIN_TOLERATED_STALLS, MAX_TOLERATED);
        if let Some(beyond) = record.times.checked_sub(tolerated + 1) {
            record.refused_until = now + MIN_REFUSAL * 2_u32.saturating_pow(beyond.min(6));
        }
    }

    /// How long the client is still refused, if it is.
    pub(super) fn refused(&self, client: &Client, now: Instant) -> Option<Duration> {
        let until = self.records.get(client)?.refused_until;
        (now < until).then(|| until - now)
    }
}

/// This many within [`FORGOTTEN_AFTER`] are tolerated: proxies are killed, and machines are overloaded.
pub(super) const MIN_TOLERATED_STALLS: u32 = 3;
/// Plus one for this many connected filters: thousands may come from one address, and share a credential.
const FILTERS_PER_STALL: usize = 10;
/// Up to this many.
const MAX_TOLERATED: u32 = 20;
/// The next stall costs this time, and each further one twice as much as the one before, up to about an hour.
pub(super) const MIN_REFUSAL: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The number of remembered clients: those with the latest stalls.
const MAX_CLIENTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(5);

    fn client(number: usize) -> Client {
        Client::new(Some(&number.to_string()), None)
    }

    #[test]
    fn a_client_that_stalls_again_and_again_is_refused_for_longer_each_time() {
        let (mut stalls, mut now) = (Stalls::new(WINDOW), Instant::now());
        for _ in 0..MIN_TOLERATED_STALLS {
            stalls.record_stall(&client(1), 0, now);
            assert_eq!(stalls.refused(&client(1), now), None);
            now += WINDOW;
        }
        for minutes in [1, 2, 4, 8, 16, 32, 64, 64] {
            stalls.record_stall(&client(1), 0, now);
            assert_eq!(stalls.refused(&client(1), now), Some(MIN_REFUSAL * minutes));
            assert_eq!(stalls.refused(&client(2), now), None, "another client");
            now += MIN_REFUSAL * minutes;
            assert_eq!(stalls.refused(&client(1), now), None);
        }
        now += FORGOTTEN_AFTER;
        stalls.record_stall(&client(1), 0, now);
        assert_eq!(stalls.refused(&client(1), now), None);
    }

    #[test]
    fn workers_that_stand_still_together_count_once() {
        let (mut stalls, now) = (Stalls::new(WINDOW), Instant::now());
        for _ in 0..100 {
            stalls.record_stall(&client(1), 0, now);
        }
        assert_eq!(stalls.refused(&client(1), now), None);
    }

    #[test]
    fn a_client_of_many_filters_has_more_accidents() {
        let (mut stalls, mut now) = (Stalls::new(WINDOW), Instant::now());
        for (number, (connected, tolerated)) in [(1, 3), (50, 5), (200, 20), (10_000, 20)].into_iter().enumerate() {
            for times in 1..=tolerated + 1 {
                stalls.record_stall(&client(number), connected, now);
                assert_eq!(
                    stalls.refused(&client(number), now).is_some(),
                    times > tolerated,
                    "{connected}: {times}"
                );
                now += WINDOW;
            }
        }
    }

    #[test]
    fn the_clients_that_are_remembered_are_bounded() {
        let (mut stalls, start) = (Stalls::new(WINDOW), Instant::now());
        for number in 0..2 * MAX_CLIENTS {
            stalls.record_stall(&client(number), 0, start + Duration::from_millis(number as u64));
        }
        assert_eq!(stalls.records.len(), MAX_CLIENTS);
        assert!(stalls.records.contains_key(&client(2 * MAX_CLIENTS - 1)));
    }
}
