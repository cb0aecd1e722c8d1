//! What the issuer remembers for minutes: pushed requests, sign-ins, consents, sessions. A restart forgets it, and people
//! begin again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_runtime::client_limits::Network;
use sha2::{Digest as _, Sha256};

/// Values under secret random names, each for a limited time.
#[derive(Debug)]
pub(crate) struct Memory<T> {
    life: Duration,
    most: usize,
    entries: Mutex<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    /// By the SHA-256 of the name, so that comparing takes the same time for every wrong name.
    by_name: HashMap<[u8; 32], Entry<T>>,
    by_network: HashMap<Option<Network>, usize>,
    /// In the order in which they end.
    by_end: BTreeMap<(Instant, [u8; 32]), ()>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    until: Instant,
    network: Option<Network>,
}

/// All places are taken, or this network's share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many are open at once; try again in a few minutes")]
pub(crate) struct Full;

// === impl Memory ===

impl<T: Clone> Memory<T> {
    /// Keeps each value this long, and this many of them.
    pub(crate) fn new(life: Duration, most: usize) -> Self {
        let entries = Entries {
            by_name: HashMap::new(),
            by_network: HashMap::new(),
            by_end: BTreeMap::new(),
        };
        Self {
            life,
            most,
            entries: Mutex::new(entries),
        }
    }

    /// Keeps a value, and returns its name.
    pub(crate) fn keep(&self, network: Option<Network>, value: T) -> Result<String, Full> {
        let name = secret();
        self.keep_as(&name, network, value)?;
        Ok(name)
    }

    /// Keeps a value under a name that is at least as random as [`secret`]'s.
    pub(crate) fn keep_as(&self, name: &str, network: Option<Network>, value: T) -> Result<(), Full> {
        let mut entries = self.entries();
        entries.forget(Instant::now());
        self.insert(&mut entries, name, network, value)
    }

    fn insert(&self, entries: &mut Entries<T>, name: &str, network: Option<Network>, value: T) -> Result<(), Full> {
        let until = Instant::now() + self.life;
        let held = entries.by_network.get(&network).copied().unwrap_or_default();
        if entries.by_name.len() >= self.most || held >= self.most / SHARE {
            return Err(Full);
        }
        let key = key(name);
        entries.remove(&key);
        *entries.by_network.entry(network).or_default() += 1;
        entries.by_end.insert((until, key), ());
        entries.by_name.insert(key, Entry { value, until, network });
        Ok(())
    }

    /// Keeps a value under this name. `false` if the name has one.
    pub(crate) fn note(&self, name: &str, network: Option<Network>) -> Result<bool, Full>
    where
        T: Default,
    {
        let mut entries = self.entries();
        entries.forget(Instant::now());
        let is_known = entries.by_name.contains_key(&key(name));
        if !is_known {
            self.insert(&mut entries, name, network, T::default())?;
        }
        Ok(!is_known)
    }

    pub(crate) fn find(&self, name: &str) -> Option<T> {
        let mut entries = self.entries();
        entries.forget(Instant::now());
        entries.by_name.get(&key(name)).map(|entry| entry.value.clone())
    }

    /// The value, which nobody gets again.
    pub(crate) fn take(&self, name: &str) -> Option<T> {
        let mut entries = self.entries();
        entries.forget(Instant::now());
        entries.remove(&key(name))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries().by_name.len()
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Entries ===

impl<T> Entries<T> {
    fn forget(&mut self, now: Instant) {
        while let Some(((until, key), ())) = self.by_end.first_key_value().map(|(key, ())| (*key, ()))
            && until <= now
        {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &[u8; 32]) -> Option<T> {
        let Entry { value, until, network } = self.by_name.remove(key)?;
        self.by_end.remove(&(until, *key));
        if let Some(held) = self.by_network.get_mut(&network) {
            *held -= 1;
            if *held == 0 {
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

fn key(name: &str) -> [u8; 32] {
    Sha256::digest(name).into()
}

/// One network holds at most this fraction of the places.
const SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> Option<Network> {
        Some(Network::of([192, 0, 2, last].into()))
    }

    #[test]
    fn a_value_is_found_until_it_is_taken_or_ends() {
        let memory = Memory::new(Duration::from_millis(40), 16);
        let name = memory.keep(None, 7).unwrap();
        assert_eq!(memory.find(&name), Some(7));
        assert_eq!(memory.find("another"), None);
        assert_eq!(memory.take(&name), Some(7));
        assert_eq!(memory.take(&name), None);
        let name = memory.keep(None, 8).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((memory.find(&name), memory.len()), (None, 0));
    }

    #[test]
    fn one_network_leaves_places_for_others() {
        let memory = Memory::new(Duration::from_secs(60), 16);
        let first = memory.keep(network(1), 0).unwrap();
        memory.keep(network(1), 1).unwrap();
        assert_eq!(memory.keep(network(1), 2), Err(Full));
        memory.keep(network(2), 2).unwrap();
        memory.take(&first);
        memory.keep(network(1), 3).unwrap();
        for other in 3..=8 {
            for _ in 0..2 {
                memory.keep(network(other), 4).unwrap();
            }
        }
        memory.keep(network(9), 5).unwrap();
        assert_eq!(memory.keep(network(10), 6), Err(Full), "all places are taken");
    }
}
