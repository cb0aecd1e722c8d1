//! What the issuer remembers for minutes: pushed requests, sign-ins, consents, sessions. A restart forgets it, and people
//! begin again.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_runtime::client_limits::Network;
use sha2::{Digest as _, Sha256};

/// Values under secret random names, each for a limited time. When all places are taken, the network with the most loses
/// its oldest one.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    life: Duration,
    most: usize,
    entries: Mutex<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    by_name: HashMap<Key, Entry<T>>,
    by_network: HashMap<Network, BTreeSet<(Instant, Key)>>,
    /// In the order in which they end.
    by_end: BTreeSet<(Instant, Key)>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    until: Instant,
    network: Network,
}

/// The SHA-256 of a name, so that comparing takes the same time for every wrong name.
type Key = [u8; 32];

// === impl Memory ===

impl<T: Clone> Memory<T> {
    /// Keeps each value this long, and this many of them.
    pub(crate) fn new(life: Duration, most: usize) -> Self {
        let entries = Entries {
            by_name: HashMap::new(),
            by_network: HashMap::new(),
            by_end: BTreeSet::new(),
        };
        Self {
            life,
            most,
            entries: Mutex::new(entries),
        }
    }

    /// Keeps a value, and returns its name.
    pub(crate) fn keep(&self, network: Network, value: T) -> String {
        let name = secret();
        self.keep_as(&name, network, value);
        name
    }

    /// Keeps a value under a name that is at least as random as [`secret`]'s. `false` if the name has a value.
    pub(crate) fn keep_as(&self, name: &str, network: Network, value: T) -> bool {
        let (key, until) = (key(name), Instant::now() + self.life);
        let mut entries = self.entries();
        if entries.by_name.contains_key(&key) {
            return false;
        }
        if entries.by_name.len() >= self.most {
            entries.evict();
        }
        entries.by_network.entry(network).or_default().insert((until, key));
        entries.by_end.insert((until, key));
        entries.by_name.insert(key, Entry { value, until, network });
        true
    }

    pub(crate) fn find(&self, name: &str) -> Option<T> {
        self.entries().by_name.get(&key(name)).map(|entry| entry.value.clone())
    }

    /// Removes a value.
    pub(crate) fn take(&self, name: &str) -> Option<T> {
        self.entries().remove(&key(name))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries().by_name.len()
    }

    /// Those that have not ended.
    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some((_, key)) = entries.by_end.first().copied().filter(|(until, _)| *until <= now) {
            entries.remove(&key);
        }
        entries
    }
}

// === impl Entries ===

impl<T> Entries<T> {
    fn evict(&mut self) {
        let held = self.by_network.values();
        let most = held.max_by_key(|held| (held.len(), Reverse(held.first().copied())));
        if let Some((_, oldest)) = most.and_then(BTreeSet::first).copied() {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) -> Option<T> {
        let Entry { value, until, network } = self.by_name.remove(key)?;
        self.by_end.remove(&(until, *key));
        if let Some(held) = self.by_network.get_mut(&network) {
            held.remove(&(until, *key));
            if held.is_empty() {
                self.by_network.remove(&network);
            }
        }
        Some(value)
    }
}

/// 256 random bits.
pub(crate) fn secret() -> String {
    let mut bytes = [0; 32];
    // Without randomness the process cannot go on: each of its secrets depends on it.
    getrandom::fill(&mut bytes).unwrap_or_else(|error| panic!("no randomness from the system: {error}"));
    URL_SAFE_NO_PAD.encode(bytes)
}

fn key(name: &str) -> Key {
    Sha256::digest(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> Network {
        Network::of([192, 0, 2, last].into())
    }

    #[test]
    fn a_value_is_found_until_it_is_taken_or_ends() {
        let memory = Memory::new(Duration::from_millis(40), 16);
        let name = memory.keep(network(1), 7);
        assert_eq!(memory.find(&name), Some(7));
        assert!(!memory.keep_as(&name, network(2), 8), "a name is used once");
        assert_eq!(memory.find("another"), None);
        assert_eq!(memory.take(&name), Some(7));
        assert_eq!(memory.take(&name), None);
        let name = memory.keep(network(1), 8);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((memory.find(&name), memory.len()), (None, 0));
    }

    #[test]
    fn the_network_with_the_most_makes_room_for_others() {
        let memory = Memory::new(Duration::from_secs(60), 8);
        let one = memory.keep(network(1), 1);
        let flood: Vec<String> = (0..100).map(|value| memory.keep(network(2), value)).collect();
        assert_eq!((memory.find(&one), memory.len()), (Some(1), 8));
        let kept = flood.iter().filter(|name| memory.find(name).is_some()).count();
        assert_eq!(
            (kept, memory.find(&flood[99])),
            (7, Some(99)),
            "its oldest ones are gone"
        );
        let others: Vec<String> = (3..=8).map(|last| memory.keep(network(last), 0)).collect();
        assert!(
            others
                .iter()
                .chain([&one, &flood[99]])
                .all(|name| memory.find(name).is_some())
        );
    }
}
