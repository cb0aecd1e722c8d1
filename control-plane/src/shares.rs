//! What one client may hold of what belongs to all: a stranger who opens as many connections as there are places, and
//! says nothing on them, must not keep everybody else out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much each client holds. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    limit: usize,
    held: Arc<Mutex<HashMap<Network, usize>>>,
}

/// One of what a client holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    network: Network,
    held: Arc<Mutex<HashMap<Network, usize>>>,
}

/// One client's addresses: an IPv4 address or an IPv6 network of 64 bits, of which anybody has a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

// === impl Shares ===

impl Shares {
    /// At most half of `places`, and at least one, are any one client's: many filters may come from one address.
    pub(crate) fn half_of(places: usize) -> Self {
        Self {
            limit: places.div_ceil(2).max(1),
            held: Arc::default(),
        }
    }

    /// Nothing if the client holds as much as it may.
    pub(crate) fn take(&self, address: Option<IpAddr>) -> Option<Share> {
        let network = Network::of(address);
        let mut held = lock(&self.held);
        let count = held.entry(network).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(Share {
            network,
            held: Arc::clone(&self.held),
        })
    }
}

// === impl Share ===

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.network);
            }
        }
    }
}

// === impl Network ===

impl Network {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Self(IpAddr::from([a, b, c, d, 0, 0, 0, 0]))
            }
            Some(other) => Self(other),
            None => Self(IpAddr::from([0; 4])),
        }
    }
}

fn lock(held: &Mutex<HashMap<Network, usize>>) -> MutexGuard<'_, HashMap<Network, usize>> {
    // Whoever holds it counts by one, and can not panic.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_client_holds_half_and_gets_back_what_it_gives_up() {
        let shares = Shares::half_of(4);
        let first = shares.take(address("192.0.2.1")).unwrap();
        let _second = shares.take(address("192.0.2.1")).unwrap();
        assert!(shares.take(address("::ffff:192.0.2.1")).is_none());
        let _other = shares.take(address("192.0.2.2")).unwrap();
        drop(first);
        assert!(shares.take(address("192.0.2.1")).is_some());
    }

    #[test]
    fn who_holds_nothing_takes_no_memory() {
        let shares = Shares::half_of(4);
        drop(shares.take(address("192.0.2.1")));
        assert!(lock(&shares.held).is_empty());
    }

    #[test]
    fn a_whole_ipv6_network_is_one_client() {
        let network = |text| Network::of(address(text));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
