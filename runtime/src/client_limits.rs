//! Limits on how much of a shared limit one client may use.
//!
//! Each credential and each address has a share of every shared limit, so that no single client can use all of it. A
//! share is a percentage of the limit (`limits.credential_share_percent`, `limits.address_share_percent`), and at least
//! one place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::metrics::{Counters, Gauges, Group, Labels, labels};
use crate::throttle::Throttle;

/// The places of one limit, and their holders. Clones share the same places.
#[derive(Debug, Clone)]
pub struct Places(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: SharedLimit,
    bounds: Bounds,
    held: Mutex<Held>,
    freed: Notify,
    metrics: ShareMetrics,
    refusals: Throttle,
}

/// A limit that clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedLimit {
    WatchStreams,
    AuditSources,
    EventStreams,
    EvidenceStreams,
    HttpConnections,
    GrpcConnections,
    ProbeConnections,
    /// In KiB.
    RequestBodies,
    /// In KiB.
    Answers,
    Calls,
    /// Calls that wait until the filters have applied a revocation.
    Confirmations,
    /// Documents of the issuer's clients that are being read.
    ClientDocuments,
}

/// The size of a limit, and how many of its places one client may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub all: usize,
    pub credential: usize,
    pub address: usize,
}

/// One client's share of each limit, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub credential_percent: u8,
    pub address_percent: u8,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_holder: HashMap<Holder, usize>,
}

/// The credential or address whose share a place counts against.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Holder {
    Credential(String),
    Network(Network),
}

/// The client that holds a place, by credential and address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Absent if no credential is required.
    pub credential: Option<String>,
    /// Absent if unknown.
    pub network: Option<Network>,
}

/// Some places, held until dropped.
#[derive(Debug)]
pub struct Place {
    pool: Places,
    client: Client,
    places: usize,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All places are held.
    All,
    /// The credential holds all of its share.
    Credential,
    /// The callers without a credential hold all of the share of one credential.
    Anonymous,
    /// The address holds all of its share.
    Address,
}

/// No place is left. The message names the exhausted share and the fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPlace {
    pub full: Full,
    limit: SharedLimit,
    bounds: Bounds,
}

/// The addresses of one client: an IPv4 address, or an IPv6 /64, since one client usually has a whole /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

/// The use of each shared limit, and the refused clients.
#[derive(Debug, Clone)]
pub struct ShareMetrics {
    held: Gauges<1>,
    size: Gauges<1>,
    refused: Counters<2>,
}

// === impl Bounds ===

impl Bounds {
    const NONE: Self = Self {
        all: usize::MAX,
        credential: usize::MAX,
        address: usize::MAX,
    };

    pub fn new(all: usize, shares: Shares) -> Self {
        Self {
            all,
            credential: share_of(all, shares.credential_percent),
            address: share_of(all, shares.address_percent),
        }
    }
}

/// This percentage of a limit, and at least one.
pub fn share_of(all: usize, percent: u8) -> usize {
    (all.saturating_mul(usize::from(percent)) / 100).max(1)
}

// === impl Places ===

impl Places {
    pub fn new(limit: SharedLimit, bounds: Bounds, metrics: &ShareMetrics) -> Self {
        metrics.announce(limit, bounds.all);
        Self(Arc::new(Pool {
            limit,
            bounds,
            held: Mutex::default(),
            freed: Notify::new(),
            metrics: metrics.clone(),
            refusals: Throttle::default(),
        }))
    }

    /// Takes one place.
    pub fn take(&self, client: &Client) -> Result<Place, NoPlace> {
        self.take_many(client, 1)
    }

    /// Takes several places. A request for more than a share takes the whole share.
    pub fn take_many(&self, client: &Client, places: usize) -> Result<Place, NoPlace> {
        self.try_take(client, places).map_err(|full| self.refuse(full, client))
    }

    /// As `take_many`, for a client that waits if there is no place: no refusal is counted.
    pub fn try_take(&self, client: &Client, places: usize) -> Result<Place, Full> {
        let bounds = self.0.bounds;
        let places = places.min(bounds.credential).min(bounds.address);
        self.lock().take(client, places, bounds)?;
        Ok(self.place(client, places))
    }

    /// Counts a refusal.
    pub fn refuse(&self, full: Full, client: &Client) -> NoPlace {
        let Pool { limit, bounds, .. } = *self.0;
        self.0.metrics.refuse(limit, full, client, &self.0.refusals);
        NoPlace { full, limit, bounds }
    }

    /// Resolves once places are given back.
    pub fn freed(&self) -> Notified<'_> {
        self.0.freed.notified()
    }

    /// Takes a place beyond every share, for state that the control plane knows from an earlier run.
    pub fn take_beyond_limits(&self, client: &Client) -> Place {
        // Nothing is refused under these bounds.
        let _ = self.lock().take(client, 1, Bounds::NONE);
        self.place(client, 1)
    }

    fn place(&self, client: &Client, places: usize) -> Place {
        self.0.metrics.change(self.0.limit, count(places));
        Place {
            pool: self.clone(),
            client: client.clone(),
            places,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The lock is held only while counting, which cannot panic.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Charges a place without a client to this client, even beyond its share.
    pub fn attribute_to(&mut self, client: &Client) {
        if self.client == Client::default() {
            // Nothing is refused under these bounds.
            let _ = self.change_client(client, Bounds::NONE);
        }
    }

    /// Charges the place to this credential too, or to no credential.
    pub fn show(&mut self, credential: Option<&str>) -> Result<(), NoPlace> {
        let client = Client {
            credential: credential.map(str::to_owned),
            network: self.client.network,
        };
        self.change_client(&client, self.pool.0.bounds)
            .map_err(|full| self.pool.refuse(full, &client))
    }

    fn change_client(&mut self, client: &Client, bounds: Bounds) -> Result<(), Full> {
        let mut held = self.pool.lock();
        held.give_back(&self.client, self.places);
        let taken = held.take(client, self.places, bounds);
        if taken.is_ok() {
            self.client.clone_from(client);
        } else {
            // The place keeps its client: nothing is refused under these bounds.
            let _ = held.take(&self.client, self.places, Bounds::NONE);
        }
        taken
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.lock().give_back(&self.client, self.places);
        self.pool.0.freed.notify_waiters();
        self.pool.0.metrics.change(self.pool.0.limit, -count(self.places));
    }
}

// === impl Held ===

impl Held {
    fn take(&mut self, client: &Client, places: usize, bounds: Bounds) -> Result<(), Full> {
        let fits = |held: usize, bound: usize| held.saturating_add(places) <= bound;
        for holder in client.holders() {
            let (bound, full) = match &holder {
                Holder::Network(_) => (bounds.address, Full::Address),
                Holder::Credential(name) if name == ANONYMOUS => (bounds.credential, Full::Anonymous),
                Holder::Credential(_) => (bounds.credential, Full::Credential),
            };
            if !fits(self.by_holder.get(&holder).copied().unwrap_or_default(), bound) {
                return Err(full);
            }
        }
        if !fits(self.all, bounds.all) {
            return Err(Full::All);
        }
        self.all += places;
        for holder in client.holders() {
            *self.by_holder.entry(holder).or_default() += places;
        }
        Ok(())
    }

    fn give_back(&mut self, client: &Client, places: usize) {
        self.all -= places;
        for holder in client.holders() {
            if let Entry::Occupied(mut held) = self.by_holder.entry(holder) {
                *held.get_mut() -= places;
                // A client without places takes no memory.
                if *held.get() == 0 {
                    held.remove();
                }
            }
        }
    }
}

// === impl SharedLimit ===

impl SharedLimit {
    /// The limit's name in metrics and logs, its unit, and how a client frees a place.
    fn words(self) -> [&'static str; 3] {
        const CLOSE: &str = "close some";
        const WAIT: &str = "wait for some to end";
        match self {
            Self::WatchStreams => ["watch_streams", "revocation streams", CLOSE],
            Self::AuditSources => ["audit_sources", "audit sources", CLOSE],
            Self::EventStreams => ["event_streams", "event streams", CLOSE],
            Self::EvidenceStreams => ["evidence_streams", "streams of evidence", CLOSE],
            Self::HttpConnections => ["http_connections", "connections", CLOSE],
            Self::GrpcConnections => ["grpc_connections", "connections", CLOSE],
            Self::ProbeConnections => ["probe_connections", "connections", CLOSE],
            Self::RequestBodies => ["request_bodies", "KiB for request bodies", WAIT],
            Self::Answers => ["answers", "KiB for answers", WAIT],
            Self::Calls => ["calls", "calls under way", WAIT],
            Self::Confirmations => ["confirmations", "calls that wait for filters", WAIT],
            Self::ClientDocuments => ["client_documents", "clients' documents that are being read", WAIT],
        }
    }

    fn name(self) -> &'static str {
        let [name, ..] = self.words();
        name
    }
}

// === impl Client ===

impl Client {
    pub fn new(credential: Option<&str>, address: Option<IpAddr>) -> Self {
        Self {
            credential: credential.map(str::to_owned),
            network: address.map(Network::of),
        }
    }

    /// A client without a credential, where most clients have one. All of these together have the share of one
    /// credential, so that they leave room for the others.
    pub fn anonymous(address: Option<IpAddr>) -> Self {
        Self::new(Some(ANONYMOUS), address)
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        let credential = self.credential.clone().map(Holder::Credential);
        self.network.map(Holder::Network).into_iter().chain(credential)
    }
}

// === impl Full ===

impl Full {
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Credential | Self::Anonymous => "credential",
            Self::Address => "address",
        }
    }
}

// === impl NoPlace ===

impl fmt::Display for NoPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, what, cure] = self.limit.words();
        let Bounds {
            all,
            credential,
            address,
        } = self.bounds;
        let (who, share) = match self.full {
            Full::All => {
                return write!(
                    formatter,
                    "all {all} {what} of this control plane are in use; try again later"
                );
            }
            Full::Credential => ("this credential holds its", credential),
            Full::Anonymous => (
                "callers without a credential together hold one credential's",
                credential,
            ),
            Full::Address => ("this address holds its", address),
        };
        let name = self.full.name();
        write!(
            formatter,
            "{who} share of the {what}, {share} of {all}; {cure}, or raise limits.{name}_share_percent"
        )
    }
}

// === impl Network ===

impl Network {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(IpAddr::from([a, b, c, d, 0, 0, 0, 0]))
            }
            other => Self(other),
        }
    }
}

// === impl ShareMetrics ===

impl ShareMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let mut group = Group::new(registry, "shared_limit");
        Self {
            held: group.add("held", "Use of each limit"),
            size: group.add("size", "Size of each limit"),
            refused: group.add("refused", "Refusals, by limit, exhausted share (by)"),
        }
    }

    /// Creates the counters at 0: `increase()` would not see a counter that appears with the first refusal.
    pub fn announce(&self, limit: SharedLimit, size: usize) {
        let label = labels([("limit", limit.name())]);
        self.held.get_or_create(&label).inc_by(0);
        self.size.get_or_create(&label).set(count(size));
        for full in [Full::All, Full::Credential, Full::Address] {
            self.refused.get_or_create(&refusal(limit, full)).inc_by(0);
        }
    }

    fn change(&self, limit: SharedLimit, by: i64) {
        self.held.get_or_create(&labels([("limit", limit.name())])).inc_by(by);
    }

    /// Counts a refusal and logs the client, at most once a second.
    fn refuse(&self, limit: SharedLimit, full: Full, client: &Client, throttle: &Throttle) {
        self.refused.get_or_create(&refusal(limit, full)).inc();
        if let Some(refused) = throttle.count(Instant::now()) {
            tracing::warn!(
                limit = limit.name(),
                by = full.name(),
                refused,
                last_credential = client.credential,
                last_address = ?client.network.map(|network| network.0),
                "a client was refused because its share of a limit is used up; find out what it is doing, or raise the \
                 limit, or where there is a setting for it, the share"
            );
        }
    }
}

/// By `all`, `credential` or `address`.
fn refusal(limit: SharedLimit, full: Full) -> Labels<2> {
    labels([("limit", limit.name()), ("by", full.name())])
}

fn count(places: usize) -> i64 {
    i64::try_from(places).unwrap_or(i64::MAX)
}

/// The credential of all callers without one. No credential has this name.
const ANONYMOUS: &str = "";

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_AND_QUARTER: Shares = Shares {
        credential_percent: 50,
        address_percent: 25,
    };

    /// Eight places; four of one credential, two of one address.
    fn places() -> Places {
        let bounds = Bounds::new(8, HALF_AND_QUARTER);
        Places::new(SharedLimit::Calls, bounds, &ShareMetrics::new(&mut Registry::default()))
    }

    fn client(credential: &str, address: &str) -> Client {
        Client::new(Some(credential), Some(address.parse().unwrap()))
    }

    #[test]
    fn a_client_holds_its_share_and_gets_back_what_it_gives_up() {
        let places = places();
        let first = places.take(&client("a", "192.0.2.1")).unwrap();
        let _second = places.take(&client("a", "192.0.2.1")).unwrap();
        assert_eq!(
            places.take(&client("a", "::ffff:192.0.2.1")).unwrap_err().full,
            Full::Address
        );
        let _other = places.take(&client("a", "192.0.2.2")).unwrap();
        drop(first);
        places.take(&client("a", "192.0.2.1")).unwrap();
    }

    #[test]
    fn one_credential_has_its_share_however_many_addresses_it_comes_from() {
        let places = places();
        let held: Vec<_> = (1..=9)
            .filter_map(|last| places.take(&client("a", &format!("192.0.2.{last}"))).ok())
            .collect();
        assert_eq!(held.len(), 4);
        places.take(&client("b", "192.0.2.1")).unwrap();
    }

    #[test]
    fn callers_without_a_credential_are_told_whose_share_they_hold() {
        let places = places();
        let held: Vec<_> = (1..=4)
            .map(|last| places.take(&Client::anonymous(Some([192, 0, 2, last].into()))).unwrap())
            .collect();
        let refused = places.take(&Client::anonymous(Some([192, 0, 2, 9].into())));
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with("callers without a credential together hold"), "{text}");
        assert!(text.contains("wait for some to end"), "{text}");
        assert_eq!(held.len(), 4);
        let _other = places.take(&client("b", "192.0.2.9")).unwrap();
    }

    #[test]
    fn there_is_never_less_than_one_place_for_a_client() {
        let bounds = Bounds::new(1, HALF_AND_QUARTER);
        assert_eq!((bounds.credential, bounds.address), (1, 1));
    }

    #[test]
    fn what_is_larger_than_a_share_takes_all_of_the_share() {
        let places = places();
        let large = places.take_many(&client("a", "192.0.2.1"), 100).unwrap();
        assert_eq!(places.take(&client("a", "192.0.2.1")).unwrap_err().full, Full::Address);
        drop(large);
        assert_eq!(places.lock().all, 0);
    }

    #[test]
    fn an_unattributed_place_counts_once_its_client_is_known() {
        let places = places();
        let (a, b) = (client("a", "192.0.2.1"), client("b", "192.0.2.2"));
        let mut awaited: Vec<_> = (0..3).map(|_| places.take_beyond_limits(&Client::default())).collect();
        for place in &mut awaited {
            place.attribute_to(&a);
            // The place keeps its client.
            place.attribute_to(&b);
        }
        assert_eq!(places.take(&a).unwrap_err().full, Full::Address);
        places.take(&b).unwrap();
        drop(awaited);
        places.take(&a).unwrap();
        assert_eq!(places.lock().all, 0);
    }

    #[test]
    fn a_client_without_places_takes_no_memory() {
        let places = places();
        drop(places.take(&client("a", "192.0.2.1")).unwrap());
        let held = places.lock();
        assert!(held.by_holder.is_empty());
    }

    #[test]
    fn a_whole_ipv6_network_is_one_client() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
