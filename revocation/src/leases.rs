//! Tracks which filters may still be fresh, and what each has applied. A revocation is confirmed once each of them has
//! applied it.
//!
//! A filter's lease starts when it sends a ping whose echo comes after every update. So a stream that was echoed owes
//! each later update until its client applies it or gives up its lease, or the lease has certainly ended. It makes no
//! difference whether the stream has ended, because its client may be alive. A stream that was never echoed owes
//! nothing, and neither does a client that does not confirm.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tokio::sync::{Notify, watch};

use crate::metrics::Metrics;
use crate::stalls::Stalls;
use credence_runtime::client_limits::Client;

/// The leases of one process's streams. Clones share the same leases.
#[derive(Debug, Clone)]
pub struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_staleness: Duration,
    table: Mutex<LeaseTable>,
    /// Every filter with a lease has applied the log up to this entry.
    confirmed: watch::Sender<u64>,
    /// The same, of the filters of this process alone.
    confirmed_here: watch::Sender<u64>,
    /// Wakes the task that ends leases.
    published: Notify,
    metrics: Arc<Metrics>,
}

/// The lease of one stream. When dropped, the stream has ended, and still owes what it owed.
#[derive(Debug)]
pub(crate) struct StreamLease {
    leases: Leases,
    id: LeaseId,
    refused: Arc<Notify>,
}

/// A client's data at the start of its stream.
#[derive(Debug, Default)]
pub(crate) struct StreamStart {
    /// The last entry that the client has applied.
    pub(crate) applied: u64,
    /// The digest of this stream's secret.
    pub(crate) digest: Option<SecretDigest>,
    /// Digests of the secrets of its own earlier streams, which it has shown.
    pub(crate) earlier: Vec<SecretDigest>,
    /// Its node's name.
    pub(crate) node: String,
}

/// A client whose streams have started to lag.
#[derive(Debug, Default)]
struct Stalled {
    streams: u64,
    /// The node's name of one of its streams.
    node: String,
    is_refused: bool,
}

pub(crate) type SecretDigest = [u8; 32];

/// The decision about a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// The ping is answered now.
    Granted,
    /// Updates must be sent first.
    Behind,
    /// The ping is not answered until the client has caught up.
    Withheld,
}

/// The progress of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The number of filters that may be fresh and have applied it.
    pub(crate) applied: usize,
    /// The number of filters that may be fresh and, as far as is known, have not applied it.
    pub(crate) unknown: usize,
    /// How long until none of these is fresh, at most. Zero if the revocation is confirmed.
    #[serde(rename = "left_ms", serialize_with = "as_milliseconds")]
    pub left: Duration,
}

type LeaseId = u64;

#[derive(Debug, Default)]
struct LeaseTable {
    head: u64,
    /// Entries that were published less than [`APPLY_TIMEOUT`] ago.
    published: VecDeque<Published>,
    /// When streams were last checked for lag, or when a check became necessary.
    looked_at: Option<Instant>,
    /// The last entry before those: it should have been applied by now.
    due: u64,
    next: LeaseId,
    leases: HashMap<LeaseId, Lease>,
    by_digest: HashMap<SecretDigest, LeaseId>,
    /// Leases whose filters may be fresh, by their last applied entry.
    active_by_applied: BTreeSet<(u64, LeaseId)>,
    /// The number of leases whose streams have ended.
    ended: usize,
    max_ended: usize,
    /// The lease into which those beyond `max_ended` are merged, and when it began.
    unattributed: Option<(LeaseId, Instant)>,
    stalls: Stalls,
    /// How long a filter may be fresh after an echo.
    lasts: Duration,
    /// The leases that stand for the filters of other replicas, by the replicas' names, and what follows the replicas.
    replicas: HashMap<String, LeaseId>,
    /// Entries that a filter of another replica may lack and still be fresh, and when they were published.
    unsettled: VecDeque<(u64, Instant)>,
}

#[derive(Debug)]
struct Published {
    seq: u64,
    at: Instant,
    /// It has been given more time, because this process stood still.
    is_excused: bool,
}

#[derive(Debug)]
struct Lease {
    /// None if the lease is from an earlier process, or merged.
    client: Option<Client>,
    digest: Option<SecretDigest>,
    applied: u64,
    /// When the client is certainly stale, unless it is already.
    over_at: Option<Instant>,
    /// None if the stream has ended.
    refused: Option<Arc<Notify>>,
    /// The present delay was already counted.
    is_noted: bool,
    /// The client's node name.
    node: String,
    /// It stands for the filters of another replica. None of them is fresh without an entry this long after it was
    /// published.
    is_replica: bool,
}

// === impl Leases ===

impl Leases {
    /// Leases of `max_staleness`, for a log that ends at `head`. Filters of earlier processes may be fresh for
    /// `earlier_leases`. At most `max_ended` leases of ended streams are tracked one by one.
    pub fn new(
        max_staleness: Duration,
        earlier_leases: Duration,
        head: u64,
        max_ended: usize,
        metrics: Arc<Metrics>,
        now: Instant,
    ) -> Self {
        let mut table = LeaseTable {
            head,
            max_ended,
            stalls: Stalls::new(max_staleness / 2),
            lasts: with_allowance(max_staleness),
            ..LeaseTable::default()
        };
        if !earlier_leases.is_zero() {
            table.add_unattributed(0, now + earlier_leases);
        }
        let confirmed = watch::Sender::new(table.confirmed());
        let confirmed_here = watch::Sender::new(table.confirmed_here());
        Self(Arc::new(Shared {
            max_staleness,
            table: Mutex::new(table),
            confirmed,
            confirmed_here,
            published: Notify::new(),
            metrics,
        }))
    }

    /// The longest time that a filter may stay fresh without an echo.
    pub(crate) fn max_staleness(&self) -> Duration {
        self.0.max_staleness
    }

    /// Filters of replicas that left before this one knew of them may be fresh until then.
    pub(crate) fn follow_earlier_replicas(&self, until: Instant) {
        self.change(|table| table.add_replica(EARLIER.to_owned(), Some(until)));
    }

    /// The log now ends at `head`, and every stream can read up to it.
    pub(crate) fn publish(&self, head: u64, now: Instant) {
        self.change(|table| table.publish(head, now));
        self.0.published.notify_one();
    }

    /// What the filters of this process have applied.
    pub(crate) fn confirmed_here(&self) -> watch::Receiver<u64> {
        self.0.confirmed_here.subscribe()
    }

    /// The other replicas whose filters may be fresh, with what these have applied, as of the entry `observed`. A replica
    /// that is missing from now on has gone, and its filters may still be fresh.
    pub(crate) fn follow_replicas(&self, observed: u64, replicas: &BTreeMap<String, u64>, now: Instant) {
        self.change(|table| table.follow_replicas(observed, replicas, now));
        self.0.published.notify_one();
    }

    /// How long a client is still refused because it delayed revocations.
    pub(crate) fn refused(&self, client: &Client, now: Instant) -> Option<Duration> {
        self.table().stalls.refused(client, now)
    }

    /// Starts a stream's lease. It takes over what the client's earlier streams owe.
    pub(crate) fn begin(&self, client: &Client, start: StreamStart) -> StreamLease {
        let refused = Arc::new(Notify::new());
        StreamLease {
            leases: self.clone(),
            id: self.change(|table| table.begin(client, start, Arc::clone(&refused))),
            refused,
        }
    }

    /// Resolves once every filter with a lease has applied the log up to `seq`.
    pub async fn confirmed(&self, seq: u64) {
        let mut confirmed = self.0.confirmed.subscribe();
        // The sender lives as long as `self`.
        let _ = confirmed.wait_for(|confirmed| *confirmed >= seq).await;
    }

    /// The progress of the entry `seq`.
    pub fn progress(&self, seq: u64, now: Instant) -> Progress {
        self.table().progress(seq, now)
    }

    /// Ends leases in time, and notes which clients lag.
    pub async fn run(self) {
        loop {
            if self.expire(Instant::now()) {
                tokio::time::sleep(EXPIRE_INTERVAL).await;
            } else {
                let published = self.0.published.notified();
                // Ended leases that owe nothing are removed even if nothing is published.
                let _ = tokio::time::timeout(APPLY_TIMEOUT, published).await;
            }
        }
    }

    /// Returns whether any stream lags.
    fn expire(&self, now: Instant) -> bool {
        let (stalled, lags) = self.change(|table| (table.expire(now), table.laggards(table.head).next().is_some()));
        for (client, stalled) in stalled {
            self.0.metrics.revocation_stalls.inc_by(stalled.streams);
            let (credential, address) = (client.credential, client.network);
            tracing::warn!(
                ?credential,
                ?address,
                node = stalled.node,
                streams = stalled.streams,
                is_refused = stalled.is_refused,
                "filters have not applied a revocation within {} ms: confirmations are delayed by at most {:?}",
                APPLY_TIMEOUT.as_millis(),
                with_allowance(self.0.max_staleness) + APPLY_TIMEOUT
            );
        }
        lags
    }

    /// Changes the table, and then notifies waiters.
    fn change<T>(&self, change: impl FnOnce(&mut LeaseTable) -> T) -> T {
        let mut table = self.table();
        let result = change(&mut table);
        for (of, confirmed) in [
            (&self.0.confirmed, table.confirmed()),
            (&self.0.confirmed_here, table.confirmed_here()),
        ] {
            of.send_if_modified(|before| std::mem::replace(before, confirmed) != confirmed);
        }
        result
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        // A panic here leaves no partial change behind.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl StreamLease ===

impl StreamLease {
    /// The client has applied the log up to `seq`.
    pub(crate) fn apply(&self, seq: u64) {
        self.leases.change(|table| table.apply(self.id, seq));
    }

    /// Handles a ping. Updates up to `sent` were sent before the answer.
    pub(crate) fn echo(&self, sent: u64, now: Instant) -> Echo {
        let lasts = with_allowance(self.leases.0.max_staleness);
        self.leases.table().echo(self.id, sent, now, lasts)
    }

    /// The client has given up its lease.
    pub(crate) fn leave(&self) {
        self.leases.change(|table| table.release(self.id));
    }

    /// Resolves once the stream must be ended.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        let max_staleness = self.leases.0.max_staleness;
        self.leases
            .change(|table| table.end(self.id, Instant::now(), max_staleness));
    }
}

// === impl LeaseTable ===

impl LeaseTable {
    fn confirmed(&self) -> u64 {
        self.active_by_applied
            .first()
            .map_or(self.head, |(applied, _)| self.head.min(*applied))
    }

    /// Without other replicas' filters.
    fn confirmed_here(&self) -> u64 {
        let is_ours = |id: &LeaseId| self.leases.get(id).is_some_and(|lease| !lease.is_replica);
        let first = self.active_by_applied.iter().find(|(_, id)| is_ours(id));
        first.map_or(self.head, |(applied, _)| self.head.min(*applied))
    }

    fn follow_replicas(&mut self, observed: u64, replicas: &BTreeMap<String, u64>, now: Instant) {
        let over_at = Some(now + self.lasts);
        for (name, id) in &self.replicas {
            if name != FOLLOWING
                && name != EARLIER
                && !replicas.contains_key(name)
                && let Some(lease) = self.leases.get_mut(id)
            {
                lease.over_at = lease.over_at.min(over_at);
            }
        }
        let following = (FOLLOWING.to_owned(), observed);
        let applied = replicas.iter().map(|(name, applied)| (name.clone(), *applied));
        for (name, applied) in applied.chain([following]) {
            let id = match self.replicas.get(&name) {
                Some(id) => *id,
                None => self.add_replica(name, None),
            };
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.over_at = Some(now + REPLICA_LEASE);
            }
            self.apply(id, applied);
        }
    }

    fn add_replica(&mut self, name: String, over_at: Option<Instant>) -> LeaseId {
        let lease = Lease {
            client: None,
            digest: None,
            applied: 0,
            over_at,
            refused: Some(Arc::default()),
            is_noted: true,
            node: String::new(),
            is_replica: true,
        };
        let id = self.next_id();
        self.active_by_applied.insert((0, id));
        self.leases.insert(id, lease);
        self.replicas.insert(name, id);
        id
    }

    /// The filters of other replicas that lack an entry are stale by now.
    fn settle(&mut self, now: Instant) {
        let lasts = self.lasts;
        while let Some((seq, _)) = self.unsettled.pop_front_if(|(_, published)| *published + lasts <= now) {
            // An earlier process may have promised more than a lease of ours.
            let lasting_so = self.replicas.iter().filter(|(name, _)| *name != EARLIER);
            let replicas: Vec<_> = lasting_so.map(|(_, id)| *id).collect();
            for id in replicas {
                self.apply(id, seq);
            }
        }
    }

    /// The leases that may be fresh and have not applied the entry `seq`.
    fn laggards(&self, seq: u64) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let behind = self.active_by_applied.range(..(seq, 0));
        behind.filter_map(|(_, id)| Some((*id, self.leases.get(id)?)))
    }

    fn begin(&mut self, client: &Client, start: StreamStart, refused: Arc<Notify>) -> LeaseId {
        let mut lease = Lease {
            client: Some(client.clone()),
            digest: start.digest,
            applied: start.applied.min(self.head),
            over_at: None,
            refused: Some(refused),
            is_noted: false,
            node: start.node,
            is_replica: false,
        };
        for earlier in start.earlier {
            let Some(id) = self.by_digest.get(&earlier).copied() else {
                continue;
            };
            // Another client cannot use a secret that it read in transit.
            let is_own = |earlier: &Lease| earlier.client == lease.client;
            if self.leases.get(&id).is_some_and(is_own)
                && let Some(earlier) = self.remove(id)
            {
                lease.applied = lease.applied.max(earlier.applied);
                lease.over_at = lease.over_at.max(earlier.over_at);
            }
        }
        let id = self.next_id();
        self.by_digest.extend(lease.digest.map(|digest| (digest, id)));
        if lease.over_at.is_some() {
            self.active_by_applied.insert((lease.applied, id));
        }
        self.leases.insert(id, lease);
        id
    }

    fn apply(&mut self, id: LeaseId, seq: u64) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if seq <= lease.applied {
            return;
        }
        if self.active_by_applied.remove(&(lease.applied, id)) {
            self.active_by_applied.insert((seq, id));
        }
        lease.applied = seq;
        lease.is_noted &= seq < self.due;
    }

    fn echo(&mut self, id: LeaseId, sent: u64, now: Instant, lasts: Duration) -> Echo {
        // A confirmed revocation stays confirmed. `look` settles what is due, because it knows whether this process was
        // running.
        let least = self.due.max(self.confirmed_here());
        let Some(lease) = self.leases.get_mut(&id) else {
            return Echo::Withheld;
        };
        if sent < self.head {
            return Echo::Behind;
        }
        if lease.applied < least {
            return Echo::Withheld;
        }
        lease.over_at = Some(now + lasts);
        self.active_by_applied.insert((lease.applied, id));
        Echo::Granted
    }

    /// The client is not fresh any more.
    fn release(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.over_at = None;
            self.active_by_applied.remove(&(lease.applied, id));
        }
    }

    fn end(&mut self, id: LeaseId, now: Instant, max_staleness: Duration) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.refused = None;
        self.ended += 1;
        let (applied, over_at) = (lease.applied, lease.over_at);
        match over_at {
            None => {
                self.remove(id);
            }
            Some(over_at) if self.ended > self.max_ended => {
                self.remove(id);
                // A merged lease must end although more are added: after this time another one is started.
                match self.unattributed {
                    Some((merged, begun)) if now < begun + max_staleness && self.leases.contains_key(&merged) => {
                        let merged = self.remove(merged);
                        let (others, until) = merged.map_or((applied, None), |merged| (merged.applied, merged.over_at));
                        let id =
                            self.add_unattributed(others.min(applied), until.max(Some(over_at)).unwrap_or(over_at));
                        self.unattributed = Some((id, begun));
                    }
                    _ => self.unattributed = Some((self.add_unattributed(applied, over_at), now)),
                }
            }
            Some(_) => {}
        }
    }

    /// Adds a lease about which nothing else is known.
    fn add_unattributed(&mut self, applied: u64, over_at: Instant) -> LeaseId {
        let lease = Lease {
            client: None,
            digest: None,
            applied,
            over_at: Some(over_at),
            refused: None,
            is_noted: true,
            node: String::new(),
            is_replica: false,
        };
        let id = self.next_id();
        self.active_by_applied.insert((applied, id));
        self.leases.insert(id, lease);
        self.ended += 1;
        id
    }

    fn next_id(&mut self) -> LeaseId {
        self.next += 1;
        self.next
    }

    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.active_by_applied.remove(&(lease.applied, id));
        if let Some(digest) = lease.digest
            && self.by_digest.get(&digest) == Some(&id)
        {
            self.by_digest.remove(&digest);
        }
        if lease.refused.is_none() {
            self.ended = self.ended.saturating_sub(1);
        }
        Some(lease)
    }

    fn publish(&mut self, head: u64, now: Instant) {
        // While no stream lags, no check is due.
        if self.laggards(self.head).next().is_none() {
            self.looked_at = Some(now);
        }
        self.head = head;
        if !self.replicas.is_empty() {
            self.unsettled.push_back((head, now));
        }
        self.published.push_back(Published {
            seq: head,
            at: now,
            is_excused: false,
        });
    }

    fn advance_due(&mut self, now: Instant) {
        while let Some(published) = self
            .published
            .pop_front_if(|published| now >= published.at + APPLY_TIMEOUT)
        {
            self.due = published.seq;
        }
    }

    /// If this process did not run for a while, messages of clients are still unread. So each entry gets its time
    /// again, once.
    fn excuse(&mut self, now: Instant) {
        let since = self.looked_at.replace(now).unwrap_or(now);
        if now.saturating_duration_since(since) > EXPIRE_INTERVAL + MAX_CHECK_DELAY {
            for published in self.published.iter_mut().filter(|published| !published.is_excused) {
                published.at = now;
                published.is_excused = true;
            }
        }
    }

    /// Ends leases whose time is over. Returns the clients whose streams have started to lag.
    fn expire(&mut self, now: Instant) -> HashMap<Client, Stalled> {
        self.excuse(now);
        self.advance_due(now);
        self.settle(now);
        let is_over = |lease: &Lease| lease.over_at.is_some_and(|over_at| over_at <= now);
        let over: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| is_over(lease))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.release(id);
            self.replicas.retain(|_, replica| *replica != id);
            if self
                .leases
                .get(&id)
                .is_some_and(|lease| lease.refused.is_none() || lease.is_replica)
            {
                self.remove(id);
            }
        }
        let late: Vec<_> = self.laggards(self.due).map(|(id, _)| id).collect();
        let mut stalled: HashMap<Client, Stalled> = HashMap::new();
        for id in late {
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            let Some(client) = lease.client.clone() else { continue };
            if !std::mem::replace(&mut lease.is_noted, true) {
                let stalled = stalled.entry(client).or_default();
                stalled.streams += 1;
                stalled.node.clone_from(&lease.node);
            }
        }
        if !stalled.is_empty() {
            self.record_stalls(&mut stalled, now);
        }
        stalled
    }

    /// Records the stalls, and ends streams of refused clients: those that lag, or all of them if the client was
    /// refused already.
    fn record_stalls(&mut self, stalled: &mut HashMap<Client, Stalled>, now: Instant) {
        let mut connected = HashMap::new();
        let open = self
            .leases
            .values()
            .filter(|lease| lease.refused.is_some() && lease.over_at.is_some());
        for client in open.filter_map(|lease| lease.client.as_ref()) {
            *connected.entry(client.clone()).or_default() += 1;
        }
        let mut refused = HashMap::new();
        for (client, stalled) in stalled {
            let was_refused = self.stalls.refused(client, now).is_some();
            self.stalls
                .record_stall(client, connected.get(client).copied().unwrap_or(0), now);
            stalled.is_refused = self.stalls.refused(client, now).is_some();
            if stalled.is_refused {
                refused.insert(client, was_refused);
            }
        }
        for lease in self.leases.values() {
            let Some(was_refused) = lease.client.as_ref().and_then(|client| refused.get(client)) else {
                continue;
            };
            if let Some(stream) = lease.refused.as_ref().filter(|_| *was_refused || lease.is_noted) {
                stream.notify_one();
            }
        }
    }

    /// When the filters of other replicas that lack an entry are stale.
    fn settles_at(&self, seq: u64) -> Option<Instant> {
        let found = self.unsettled.iter().find(|(published, _)| *published >= seq);
        found.map(|(_, published)| *published + self.lasts)
    }

    fn progress(&self, seq: u64, now: Instant) -> Progress {
        let mut unknown = 0;
        let mut left = Duration::ZERO;
        let mut unattributed = self.replicas.len();
        for (id, lease) in self.laggards(seq) {
            match lease.client {
                Some(_) => unknown += 1,
                None if lease.is_replica => {}
                None => unattributed += 1,
            }
            let is_settled = lease.is_replica && self.replicas.get(EARLIER) != Some(&id);
            let settles_at = is_settled.then(|| self.settles_at(seq)).flatten();
            let over_at = lease.over_at.into_iter().chain(settles_at).min().unwrap_or(now);
            // A lease that is over is ended a moment later, and only then is the revocation confirmed.
            left = left.max(over_at.saturating_duration_since(now).max(EXPIRE_INTERVAL));
        }
        Progress {
            applied: self.active_by_applied.len() - unknown - unattributed,
            unknown,
            left,
        }
    }
}

fn as_milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_millis().try_into().unwrap_or(u64::MAX))
}

/// Adds 1 %: the rates of clocks differ by less.
pub(crate) fn with_allowance(duration: Duration) -> Duration {
    duration + duration / 100
}

/// Of what follows the replicas: an entry is confirmed only once all replicas that were there before it are known.
const FOLLOWING: &str = "";
/// Of replicas that left before this one knew of them.
const EARLIER: &str = "earlier";
/// Longer than any process runs: such leases end when their replicas go.
const REPLICA_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How long a client may leave an update unapplied and still be echoed.
pub(crate) const APPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// How often lagging streams are checked.
const EXPIRE_INTERVAL: Duration = Duration::from_millis(20);
/// If a check is later than this, this process was not running.
const MAX_CHECK_DELAY: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
