//! The connections of one port, and which of them is closed when another one needs its place.
//!
//! A connection is *accepted* once a request over it was: one with a good credential, or a gRPC stream. Unaccepted
//! connections never keep others out: when the port, or the share of an address, is full, the oldest unaccepted connection
//! of the address that has most of them is closed in favour of the new one. An accepted connection is never closed for
//! another, and counts against the share of its credential.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::client_limits::{Bounds, Client, Full, Network, ShareMetrics, SharedLimit, give_back};
use crate::throttle::Throttle;

/// Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: SharedLimit,
    bounds: Bounds,
    state: Mutex<State>,
    /// A connection has ended.
    freed: Notify,
    metrics: ShareMetrics,
    refusals: Throttle,
}

#[derive(Debug, Default)]
struct State {
    all: usize,
    last: u64,
    by_network: HashMap<Network, usize>,
    by_credential: HashMap<String, usize>,
    /// By age. Dropping the sender has the connection closed.
    unaccepted: HashMap<Network, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection(Arc<Held>);

/// Has a connection accepted once a request over it is. Does not hold its place.
#[derive(Debug, Clone)]
pub(crate) struct Acceptance(Weak<Held>);

#[derive(Debug)]
struct Held {
    connections: Connections,
    number: u64,
    network: Network,
    /// Absent while the connection is unaccepted; then its credential, if it has shown one.
    accepted: Mutex<Option<Option<String>>>,
}

/// Never sent: the connection has to end once the sender is gone.
pub(crate) type Evicted = oneshot::Receiver<()>;

/// Resolves once the connection has to end in favour of another one: never, if it is accepted before.
pub(crate) async fn eviction(evicted: &mut Option<Evicted>) {
    if let Some(pending) = evicted {
        let outcome = pending.await;
        *evicted = None;
        if outcome.is_err() {
            return;
        }
    }
    std::future::pending().await
}

// === impl Connections ===

impl Connections {
    pub(crate) fn new(limit: SharedLimit, bounds: Bounds, metrics: &ShareMetrics) -> Self {
        metrics.announce(limit, bounds.all);
        Self(Arc::new(Inner {
            limit,
            bounds,
            state: Mutex::default(),
            freed: Notify::new(),
            metrics: metrics.clone(),
            refusals: Throttle::default(),
        }))
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.0.bounds
    }

    /// A place for a new connection; nothing if its address has its share already, all of it accepted. Waits for the
    /// connection that is closed in its favour, and, where all places are held by accepted connections, for one of them.
    pub(crate) async fn admit(&self, network: Network) -> Option<(Connection, Evicted)> {
        let mut evicted_one = false;
        loop {
            // Before the look: no end of a connection falls between the two.
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_admit(network, evicted_one) {
                Admission::Admitted(connection, evicted) => return Some((connection, evicted)),
                Admission::Refused => return None,
                Admission::Evicting => evicted_one = true,
                Admission::Waiting => {}
            }
            if tokio::time::timeout(EVICTION_TIMEOUT, freed).await.is_err() {
                // The others wait behind this one: none waits for an address that has its share.
                if self.has_its_share(network) {
                    return None;
                }
                // The one that was told to end has not: another one may.
                evicted_one = false;
            }
        }
    }

    fn try_admit(&self, network: Network, evicted_one: bool) -> Admission {
        let bounds = self.0.bounds;
        let mut state = self.lock();
        let of_network = state.by_network.get(&network).copied().unwrap_or_default();
        let full = match (of_network >= bounds.address, state.all >= bounds.all) {
            (true, _) => Full::Address,
            (false, true) => Full::All,
            (false, false) => {
                let (connection, evicted) = self.enter(&mut state, network);
                return Admission::Admitted(connection, evicted);
            }
        };
        if evicted_one {
            return Admission::Waiting;
        }
        let victim = match full {
            Full::Address => Some(network),
            Full::All | Full::Credential | Full::Anonymous => state.most_unaccepted(),
        };
        let evicted = victim.is_some_and(|victim| state.evict_oldest(victim));
        drop(state);
        self.refuse(full, network);
        match (evicted, full) {
            (true, _) => Admission::Evicting,
            (false, Full::Address) => Admission::Refused,
            (false, _) => Admission::Waiting,
        }
    }

    fn has_its_share(&self, network: Network) -> bool {
        let held = self.lock().by_network.get(&network).copied().unwrap_or_default();
        held >= self.0.bounds.address
    }

    fn enter(&self, state: &mut State, network: Network) -> (Connection, Evicted) {
        let (evict, evicted) = oneshot::channel();
        state.all += 1;
        state.last += 1;
        let number = state.last;
        *state.by_network.entry(network).or_default() += 1;
        state.unaccepted.entry(network).or_default().insert(number, evict);
        self.0.metrics.change(self.0.limit, 1);
        let held = Held {
            connections: self.clone(),
            number,
            network,
            accepted: Mutex::default(),
        };
        (Connection(Arc::new(held)), evicted)
    }

    fn refuse(&self, full: Full, network: Network) {
        let client = Client {
            credential: None,
            network: Some(network),
        };
        self.0.metrics.refuse(self.0.limit, full, &client, &self.0.refusals);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Admission {
    Admitted(Connection, Evicted),
    Refused,
    /// A connection has been told to end.
    Evicting,
    Waiting,
}

// === impl State ===

impl State {
    /// The address with most unaccepted connections.
    fn most_unaccepted(&self) -> Option<Network> {
        let most = self.unaccepted.iter().max_by_key(|(_, connections)| connections.len());
        most.map(|(network, _)| *network)
    }

    /// Whether there was one. Its place is free once it has ended.
    fn evict_oldest(&mut self, network: Network) -> bool {
        let Some(connections) = self.unaccepted.get_mut(&network) else {
            return false;
        };
        let evicted = connections.pop_first().is_some();
        if connections.is_empty() {
            self.unaccepted.remove(&network);
        }
        evicted
    }

    fn no_longer_unaccepted(&mut self, network: Network, number: u64) -> Option<oneshot::Sender<()>> {
        let connections = self.unaccepted.get_mut(&network)?;
        let evict = connections.remove(&number);
        if connections.is_empty() {
            self.unaccepted.remove(&network);
        }
        evict
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) fn acceptance(&self) -> Acceptance {
        Acceptance(Arc::downgrade(&self.0))
    }
}

// === impl Acceptance ===

impl Acceptance {
    /// A request over the connection was accepted, with this credential if one was shown. The first one counts.
    ///
    /// # Errors
    /// The credential has its share of the connections; the text says what to do.
    pub(crate) fn accept(&self, credential: Option<&str>) -> Result<(), String> {
        let accepted = self
            .0
            .upgrade()
            .map_or(Ok(()), |held| held.accept(credential).map_err(|full| (held, full)));
        accepted.map_err(|(held, full)| full.describe(held.connections.0.limit, held.connections.bounds()))
    }
}

// === impl Held ===

impl Held {
    fn accept(&self, credential: Option<&str>) -> Result<(), Full> {
        let Self {
            connections,
            number,
            network,
            accepted,
        } = self;
        let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.is_some() {
            return Ok(());
        }
        let mut state = connections.lock();
        if let Some(credential) = credential {
            let held = state.by_credential.get(credential).copied().unwrap_or_default();
            if held >= connections.0.bounds.credential {
                drop(state);
                let client = Client {
                    credential: Some(credential.to_owned()),
                    network: Some(*network),
                };
                let inner = &connections.0;
                inner
                    .metrics
                    .refuse(inner.limit, Full::Credential, &client, &inner.refusals);
                return Err(Full::Credential);
            }
            *state.by_credential.entry(credential.to_owned()).or_default() += 1;
        }
        if let Some(evict) = state.no_longer_unaccepted(*network, *number) {
            // It would be told to end if the sender were dropped: the receiver has to hear that it stays.
            let _ = evict.send(());
        }
        *accepted = Some(credential.map(str::to_owned));
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let accepted = self.accepted.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut state = self.connections.lock();
        state.all -= 1;
        give_back(&mut state.by_network, &self.network, 1);
        drop(state.no_longer_unaccepted(self.network, self.number));
        if let Some(Some(credential)) = accepted {
            give_back(&mut state.by_credential, &credential, 1);
        }
        drop(state);
        self.connections.0.metrics.change(self.connections.0.limit, -1);
        self.connections.0.freed.notify_waiters();
    }
}

/// How long a connection that was told to end may take before another one is told.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::RateSettings;

    /// Eight places; four of one credential, two of one address.
    fn connections() -> Connections {
        let bounds = Bounds::new(8, &RateSettings::default());
        Connections::new(SharedLimit::HttpConnections, bounds, &ShareMetrics::default())
    }

    fn network(last: u8) -> Network {
        Network::of([192, 0, 2, last].into())
    }

    async fn open(connections: &Connections, last: u8) -> (Connection, Evicted) {
        connections.admit(network(last)).await.unwrap()
    }

    fn is_evicted(evicted: &mut Evicted) -> bool {
        evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Others wait behind it to be accepted.
    #[tokio::test]
    async fn a_newcomer_waits_no_longer_than_a_moment_for_its_own_address_to_make_room() {
        let connections = connections();
        let mut held = [open(&connections, 1).await, open(&connections, 1).await];
        let refused = tokio::time::timeout(Duration::from_secs(5), connections.admit(network(1)));
        assert!(refused.await.unwrap().is_none());
        let told_to_end = held.iter_mut().map(|(_, evicted)| is_evicted(evicted));
        assert_eq!(told_to_end.collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test]
    async fn the_oldest_unaccepted_connection_of_the_greediest_address_makes_room() {
        let connections = connections();
        let mut held = Vec::new();
        for last in [1, 1, 2, 2, 3, 3, 4, 5] {
            held.push(open(&connections, last).await);
        }
        held[0].0.0.accept(Some("a")).unwrap();
        held[1].0.0.accept(None).unwrap();
        held[4].0.0.accept(None).unwrap();
        // Of the address 2 there are two that are unaccepted, of others one.
        let newcomer = tokio::spawn({
            let connections = connections.clone();
            async move { open(&connections, 6).await }
        });
        tokio::task::yield_now().await;
        let evicted: Vec<_> = (0..8).filter(|index| is_evicted(&mut held[*index].1)).collect();
        assert_eq!(evicted, [2]);
        assert!(!newcomer.is_finished(), "the place is not free yet");
        held.remove(2);
        newcomer.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_closes_its_own_before_others() {
        let connections = connections();
        let _other = open(&connections, 2).await;
        let mut first = open(&connections, 1).await;
        let second = open(&connections, 1).await;
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { open(&connections, 1).await }
        });
        tokio::task::yield_now().await;
        assert!(is_evicted(&mut first.1));
        drop(first);
        let third = waiting.await.unwrap();
        second.0.0.accept(None).unwrap();
        third.0.0.accept(None).unwrap();
        assert!(connections.admit(network(1)).await.is_none(), "its share is in use");
    }

    #[tokio::test]
    async fn a_credential_has_its_share_and_gets_it_back() {
        let connections = connections();
        let mut held = Vec::new();
        for last in 1..=5 {
            held.push(open(&connections, last).await.0);
        }
        let accepted: Vec<_> = held.iter().map(|connection| connection.0.accept(Some("a"))).collect();
        assert_eq!(accepted, [Ok(()), Ok(()), Ok(()), Ok(()), Err(Full::Credential)]);
        held[4].0.accept(Some("b")).unwrap();
        held.remove(0);
        open(&connections, 6).await.0.0.accept(Some("a")).unwrap();
    }

    #[tokio::test]
    async fn where_all_are_accepted_a_newcomer_waits_for_one_to_end() {
        let connections = connections();
        let mut held = Vec::new();
        for last in 1..=8 {
            let (connection, _) = open(&connections, last).await;
            connection.0.accept(None).unwrap();
            held.push(connection);
        }
        let waited = tokio::time::timeout(Duration::from_millis(20), connections.admit(network(9))).await;
        assert!(waited.is_err());
        held.pop();
        open(&connections, 9).await;
    }

    #[tokio::test]
    async fn what_has_ended_takes_no_memory() {
        let connections = connections();
        let (connection, _evicted) = open(&connections, 1).await;
        connection.0.accept(Some("a")).unwrap();
        drop(connection);
        let state = connections.lock();
        assert_eq!(state.all, 0);
        assert!(state.by_network.is_empty() && state.by_credential.is_empty() && state.unaccepted.is_empty());
    }
}
