//! The connections of one port, and which of them is closed to make room for another one.
//!
//! A connection is *accepted* while it has an accepted request: one with a valid credential, or a gRPC stream until it
//! ends. Unaccepted connections never keep others out: when the port, or the share of an address, is full, the oldest
//! unaccepted connection of the address with the most of them is closed for the new one. An accepted connection is
//! never closed for another one, and counts against the share of its credential.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use credence_runtime::client_limits::{Client, Full, Network, NoPlace, Place, Places};

/// Clones share the same connections.
#[derive(Debug, Clone)]
pub struct Connections {
    places: Places,
    unaccepted: Arc<Mutex<Unaccepted>>,
}

#[derive(Debug, Default)]
struct Unaccepted {
    last: u64,
    /// By age, with the token that ends the connection.
    by_network: HashMap<Network, BTreeMap<u64, CancellationToken>>,
}

/// A connection, which holds its place until it is dropped.
#[derive(Debug)]
pub struct Connection {
    connections: Connections,
    number: u64,
    network: Network,
    /// Cancelled once the connection must end: for another one, unless it is accepted first, or because its certificate
    /// became invalid.
    pub(crate) closing: CancellationToken,
    /// The number of requests and streams that keep it accepted.
    accepted: Mutex<usize>,
    place: Mutex<Place>,
}

// === impl Connections ===

impl Connections {
    /// No connections yet, and these places for them.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self {
            places,
            unaccepted: Arc::default(),
        }
    }

    /// A place for a new connection; none if its address has its whole share, all of it accepted. Waits for the
    /// connection that is closed for it. If accepted connections hold all places, waits for one of them to end.
    pub async fn admit(&self, network: Network) -> Option<Arc<Connection>> {
        let client = Client {
            credential: None,
            network: Some(network),
        };
        let mut evicted_one = false;
        loop {
            // Subscribed before the check, so that no end of a connection falls between the two.
            let freed = self.places.freed();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let full = match self.places.try_take(&client, 1) {
                Ok(place) => return Some(self.enter(network, place)),
                Err(full) => full,
            };
            let own_share = full == Full::Address;
            if !evicted_one {
                self.places.refuse(full, &client);
                evicted_one = self.lock().evict_oldest(own_share.then_some(network));
                if own_share && !evicted_one {
                    return None;
                }
            }
            if tokio::time::timeout(EVICTION_TIMEOUT, freed).await.is_err() {
                // Only other addresses wait here, and none for an address that has its share.
                if own_share {
                    return None;
                }
                // The connection that was told to end has not ended: another one is tried.
                evicted_one = false;
            }
        }
    }

    fn enter(&self, network: Network, place: Place) -> Arc<Connection> {
        let closing = CancellationToken::new();
        let mut unaccepted = self.lock();
        unaccepted.last += 1;
        let number = unaccepted.last;
        unaccepted.insert(network, number, closing.clone());
        Arc::new(Connection {
            connections: self.clone(),
            number,
            network,
            closing,
            accepted: Mutex::default(),
            place: Mutex::new(place),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Unaccepted> {
        self.unaccepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Unaccepted ===

impl Unaccepted {
    /// Evicts a connection of this address, or else of the address with the most of them. Returns whether there was
    /// one. Its place is free once it has ended.
    fn evict_oldest(&mut self, network: Option<Network>) -> bool {
        let most = || self.by_network.iter().max_by_key(|(_, connections)| connections.len());
        let Some(network) = network.or_else(|| most().map(|(network, _)| *network)) else {
            return false;
        };
        let connections = self.by_network.get(&network);
        let oldest = connections.and_then(|connections| connections.keys().next().copied());
        let evicted = oldest.and_then(|oldest| self.remove(network, oldest));
        evicted.map(|evicted| evicted.cancel()).is_some()
    }

    fn insert(&mut self, network: Network, number: u64, closing: CancellationToken) {
        self.by_network.entry(network).or_default().insert(number, closing);
    }

    fn remove(&mut self, network: Network, number: u64) -> Option<CancellationToken> {
        let connections = self.by_network.get_mut(&network)?;
        let evicted = connections.remove(&number);
        if connections.is_empty() {
            self.by_network.remove(&network);
        }
        evicted
    }
}

// === impl Connection ===

impl Connection {
    /// Whether the connection is told to end.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Notes that a request over the connection was accepted, with this credential if one was presented. The connection
    /// stays accepted until as many were [released](Self::release).
    ///
    /// # Errors
    /// The credential has used its share of the connections.
    pub(crate) fn accept(&self, credential: Option<&str>) -> Result<(), NoPlace> {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if *accepted == 0 {
            self.show(credential)?;
            self.connections.lock().remove(self.network, self.number);
        }
        *accepted += 1;
        Ok(())
    }

    /// An accepted stream has ended.
    pub(crate) fn release(&self) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        *accepted -= 1;
        if *accepted == 0 {
            // Never refused, because it counts against fewer shares than before.
            let _ = self.show(None);
            let closing = self.closing.clone();
            self.connections.lock().insert(self.network, self.number, closing);
        }
    }

    fn show(&self, credential: Option<&str>) -> Result<(), NoPlace> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.show(credential)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().remove(self.network, self.number);
    }
}

/// How long a connection may take to end before another one is evicted.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use credence_runtime::client_limits::{Bounds, ShareMetrics, SharedLimit, Shares};
    use prometheus_client::registry::Registry;

    /// Eight places; four of one credential, two of one address.
    fn connections() -> Connections {
        let shares = Shares {
            credential_percent: 50,
            address_percent: 25,
        };
        let bounds = Bounds::new(8, shares);
        let places = Places::new(
            SharedLimit::HttpConnections,
            bounds,
            &ShareMetrics::new(&mut Registry::default()),
        );
        Connections::new(places)
    }

    fn network(last: u8) -> Network {
        Network::of([192, 0, 2, last].into())
    }

    async fn open(connections: &Connections, last: u8) -> Arc<Connection> {
        connections.admit(network(last)).await.unwrap()
    }

    fn is_evicted(connection: &Connection) -> bool {
        connection.closing.is_cancelled()
    }

    /// Other connections wait behind it to be accepted.
    #[tokio::test]
    async fn a_newcomer_waits_no_longer_than_a_moment_for_its_own_address_to_make_room() {
        let connections = connections();
        let held = [open(&connections, 1).await, open(&connections, 1).await];
        let refused = tokio::time::timeout(Duration::from_secs(5), connections.admit(network(1)));
        assert!(refused.await.unwrap().is_none());
        assert_eq!(held.each_ref().map(|connection| is_evicted(connection)), [true, false]);
    }

    #[tokio::test]
    async fn the_oldest_unaccepted_connection_of_the_greediest_address_makes_room() {
        let connections = connections();
        let mut held = Vec::new();
        for last in [1, 1, 2, 2, 3, 3, 4, 5] {
            held.push(open(&connections, last).await);
        }
        held[0].accept(Some("a")).unwrap();
        held[1].accept(None).unwrap();
        held[4].accept(None).unwrap();
        // The address 2 has two unaccepted connections, the others one.
        let newcomer = tokio::spawn({
            let connections = connections.clone();
            async move { open(&connections, 6).await }
        });
        tokio::task::yield_now().await;
        let evicted: Vec<_> = (0..8).filter(|index| is_evicted(&held[*index])).collect();
        assert_eq!(evicted, [2]);
        assert!(!newcomer.is_finished(), "the place is not free yet");
        held.remove(2);
        newcomer.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_closes_its_own_before_others() {
        let connections = connections();
        let _other = open(&connections, 2).await;
        let first = open(&connections, 1).await;
        let second = open(&connections, 1).await;
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { open(&connections, 1).await }
        });
        tokio::task::yield_now().await;
        assert!(is_evicted(&first));
        drop(first);
        let third = waiting.await.unwrap();
        second.accept(None).unwrap();
        third.accept(None).unwrap();
        assert!(connections.admit(network(1)).await.is_none(), "its share is in use");
    }

    #[tokio::test]
    async fn a_credential_has_its_share_and_gets_it_back() {
        let connections = connections();
        let mut held = Vec::new();
        for last in 1..=5 {
            held.push(open(&connections, last).await);
        }
        for connection in &held[..4] {
            connection.accept(Some("a")).unwrap();
        }
        assert_eq!(held[4].accept(Some("a")).unwrap_err().full, Full::Credential);
        held[4].accept(Some("b")).unwrap();
        held.remove(0);
        open(&connections, 6).await.accept(Some("a")).unwrap();
    }

    #[tokio::test]
    async fn a_connection_whose_last_stream_has_ended_makes_room_again_and_counts_against_no_credential() {
        let connections = connections();
        let mut held = Vec::new();
        for last in 1..=8 {
            let connection = open(&connections, last).await;
            let credential = if last <= 4 { "a" } else { "b" };
            connection.accept(Some(credential)).unwrap();
            held.push(connection);
        }
        held[0].accept(Some("a")).unwrap();
        held[0].release();
        let refused = tokio::time::timeout(Duration::from_millis(20), connections.admit(network(9))).await;
        assert!(refused.is_err(), "a stream is left");
        held[0].release();
        let newcomer = tokio::spawn({
            let connections = connections.clone();
            async move { open(&connections, 9).await }
        });
        tokio::task::yield_now().await;
        assert!(is_evicted(&held[0]));
        held.remove(0);
        newcomer.await.unwrap().accept(Some("a")).unwrap();
    }

    #[tokio::test]
    async fn if_all_are_accepted_a_newcomer_waits_for_one_to_end() {
        let connections = connections();
        let mut held = Vec::new();
        for last in 1..=8 {
            let connection = open(&connections, last).await;
            connection.accept(None).unwrap();
            held.push(connection);
        }
        let waited = tokio::time::timeout(Duration::from_millis(20), connections.admit(network(9))).await;
        assert!(waited.is_err());
        held.pop();
        open(&connections, 9).await;
    }

    #[tokio::test]
    async fn ended_connections_take_no_memory() {
        let connections = connections();
        let connection = open(&connections, 1).await;
        connection.accept(Some("a")).unwrap();
        drop(connection);
        assert!(connections.lock().by_network.is_empty());
    }
}
