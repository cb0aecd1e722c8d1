//! Which filters may still be fresh, and what each of them has applied. A revocation is confirmed once every one of them
//! has applied it.
//!
//! A filter's lease runs from the moment it sent a ping whose echo came behind every update. A stream that was echoed
//! therefore owes each later update until its client has applied it, has given its lease up, or the lease is over for
//! certain; whether the stream has ended does not matter, since its client may live. A stream that was never echoed owes
//! nothing, nor does a client that confirms nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::stalls::Stalls;
use crate::client_limits::Client;
use crate::metrics::Metrics;

/// The leases of one process's streams. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_staleness: Duration,
    account: Mutex<Account>,
    /// Everybody who may be fresh has applied the log up to here.
    confirmed: watch::Sender<u64>,
    /// Somebody may lag.
    published: Notify,
    metrics: Arc<Metrics>,
}

/// One stream's part. Once it is dropped, the stream has ended, and owes what it owed.
#[derive(Debug)]
pub(crate) struct Lessee {
    leases: Leases,
    id: LeaseId,
    refused: Arc<Notify>,
}

/// What a client says of itself as it comes.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The entry of the log up to which it has applied everything.
    pub(crate) applied: u64,
    /// The digest of this stream's secret.
    pub(crate) digest: Option<SecretDigest>,
    /// Digests of the secrets it has shown: of earlier streams of its own.
    pub(crate) earlier: Vec<SecretDigest>,
}

pub(crate) type SecretDigest = [u8; 32];

/// What becomes of a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It is answered now.
    Granted,
    /// There is more to be sent first.
    Behind,
    /// Not before the client has caught up.
    Withheld,
}

/// How far a revocation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Filters that may be fresh and have applied it.
    pub(crate) applied: usize,
    /// Filters that may be fresh and have not, as far as is known.
    pub(crate) unknown: usize,
    /// How long it takes at the most until none of these is fresh. Zero if the revocation is confirmed.
    pub(crate) left: Duration,
}

type LeaseId = u64;

#[derive(Debug, Default)]
struct Account {
    head: u64,
    /// Entries that were published less than [`PATIENCE`] ago.
    published: VecDeque<(u64, Instant)>,
    /// The last entry before those: by now it should have been applied.
    due: u64,
    next: LeaseId,
    leases: HashMap<LeaseId, Lease>,
    by_digest: HashMap<SecretDigest, LeaseId>,
    /// Those that may be fresh, by what they have applied.
    owing: BTreeSet<(u64, LeaseId)>,
    /// Leases whose streams have ended.
    ended: usize,
    max_ended: usize,
    stalls: Stalls,
}

#[derive(Debug)]
struct Lease {
    /// Nobody's are those of which no more is known than when they are over.
    client: Option<Client>,
    digest: Option<SecretDigest>,
    applied: u64,
    /// When the client is stale for certain, if it is not already.
    over_at: Option<Instant>,
    /// The stream has ended if there is none.
    refused: Option<Arc<Notify>>,
    /// It has let the present delay be noted.
    is_noted: bool,
}

// === impl Leases ===

impl Leases {
    /// Leases of `max_staleness`, of a log that reaches to `head`. Filters of earlier processes may be fresh for
    /// `inherited`. At most `max_ended` leases of streams that have ended are told apart.
    pub(crate) fn new(
        max_staleness: Duration,
        inherited: Duration,
        head: u64,
        max_ended: usize,
        metrics: Arc<Metrics>,
        now: Instant,
    ) -> Self {
        let mut account = Account {
            head,
            next: NOBODY + 1,
            max_ended,
            ..Account::default()
        };
        if !inherited.is_zero() {
            account.add_nobodys(0, now + inherited);
        }
        let confirmed = watch::Sender::new(account.confirmed());
        Self(Arc::new(Shared {
            max_staleness,
            account: Mutex::new(account),
            confirmed,
            published: Notify::new(),
            metrics,
        }))
    }

    /// The longest that a filter may stay fresh without an echo.
    pub(crate) fn max_staleness(&self) -> Duration {
        self.0.max_staleness
    }

    /// The log reaches to `head` now, and every stream can read that far.
    pub(crate) fn publish(&self, head: u64, now: Instant) {
        let mut account = self.account();
        account.head = head;
        account.published.push_back((head, now));
        self.settle(&account);
        drop(account);
        self.0.published.notify_one();
    }

    /// For how long a client is refused because it has held up others.
    pub(crate) fn refused(&self, client: &Client, now: Instant) -> Option<Duration> {
        self.account().stalls.refused(client, now)
    }

    /// A stream begins. It owes what its client's earlier streams owe.
    pub(crate) fn begin(&self, client: &Client, arrival: Arrival) -> Lessee {
        let refused = Arc::new(Notify::new());
        let mut account = self.account();
        let id = account.begin(client, arrival, Arc::clone(&refused));
        self.settle(&account);
        drop(account);
        Lessee {
            leases: self.clone(),
            id,
            refused,
        }
    }

    /// Resolves once everybody who may be fresh has applied the log up to `seq`.
    pub(crate) async fn confirmed(&self, seq: u64) {
        let mut confirmed = self.0.confirmed.subscribe();
        // The sender lives as long as this does.
        let _ = confirmed.wait_for(|confirmed| *confirmed >= seq).await;
    }

    /// How far the entry `seq` has come.
    pub(crate) fn progress(&self, seq: u64, now: Instant) -> Progress {
        self.account().progress(seq, now)
    }

    /// Ends leases as their time comes, and notes who lags.
    pub(crate) async fn keep(self) {
        loop {
            if self.look(Instant::now()) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            } else {
                let published = self.0.published.notified();
                // What has ended and owes nothing goes even if nothing is published.
                let _ = tokio::time::timeout(PATIENCE, published).await;
            }
        }
    }

    /// Says whether anybody lags.
    fn look(&self, now: Instant) -> bool {
        let mut account = self.account();
        let noted = account.look(now);
        self.settle(&account);
        let lags = account.laggards(account.head).next().is_some();
        drop(account);
        for (client, is_refused) in noted {
            self.0.metrics.revocation_stalls.inc();
            let (credential, address) = (client.credential, client.network);
            tracing::warn!(
                ?credential,
                ?address,
                is_refused,
                "a filter has not applied a revocation within {} ms: revocations are confirmed late, by {:?} at most",
                PATIENCE.as_millis(),
                self.0.max_staleness
            );
        }
        lags
    }

    fn settle(&self, account: &Account) {
        let confirmed = account.confirmed();
        self.0
            .confirmed
            .send_if_modified(|before| std::mem::replace(before, confirmed) != confirmed);
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // Whoever panics here leaves no half-made change behind.
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Lessee ===

impl Lessee {
    /// The client has applied the log up to `seq`.
    pub(crate) fn apply(&self, seq: u64) {
        let mut account = self.leases.account();
        account.apply(self.id, seq);
        self.leases.settle(&account);
    }

    /// A ping has come, and updates up to `sent` have gone before the answer.
    pub(crate) fn echo(&self, sent: u64, now: Instant) -> Echo {
        let lasts = with_allowance(self.leases.0.max_staleness);
        self.leases.account().echo(self.id, sent, now, lasts)
    }

    /// The client has given its lease up.
    pub(crate) fn leave(&self) {
        let mut account = self.leases.account();
        account.release(self.id);
        self.leases.settle(&account);
    }

    /// Resolves once the client is refused.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }
}

impl Drop for Lessee {
    fn drop(&mut self) {
        let mut account = self.leases.account();
        account.end(self.id);
        self.leases.settle(&account);
    }
}

// === impl Account ===

impl Account {
    fn confirmed(&self) -> u64 {
        self.owing
            .first()
            .map_or(self.head, |(applied, _)| self.head.min(*applied))
    }

    /// Those that may be fresh and have not applied the entry `seq`.
    fn laggards(&self, seq: u64) -> impl Iterator<Item = (LeaseId, &Lease)> {
        let behind = self.owing.range(..(seq, 0));
        behind.filter_map(|(_, id)| Some((*id, self.leases.get(id)?)))
    }

    fn begin(&mut self, client: &Client, arrival: Arrival, refused: Arc<Notify>) -> LeaseId {
        let mut lease = Lease {
            client: Some(client.clone()),
            digest: arrival.digest,
            applied: arrival.applied.min(self.head),
            over_at: None,
            refused: Some(refused),
            is_noted: false,
        };
        for earlier in arrival.earlier {
            let Some(id) = self.by_digest.get(&earlier).copied() else {
                continue;
            };
            if let Some(earlier) = self.remove(id) {
                lease.applied = lease.applied.max(earlier.applied);
                lease.over_at = lease.over_at.max(earlier.over_at);
            }
        }
        let id = self.next;
        self.next += 1;
        self.by_digest.extend(lease.digest.map(|digest| (digest, id)));
        if lease.over_at.is_some() {
            self.owing.insert((lease.applied, id));
        }
        self.leases.insert(id, lease);
        id
    }

    fn apply(&mut self, id: LeaseId, seq: u64) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if seq <= lease.applied {
            return;
        }
        if self.owing.remove(&(lease.applied, id)) {
            self.owing.insert((seq, id));
        }
        lease.applied = seq;
        lease.is_noted &= seq < self.due;
    }

    fn echo(&mut self, id: LeaseId, sent: u64, now: Instant, lasts: Duration) -> Echo {
        self.let_fall_due(now);
        // What is confirmed stays so.
        let least = self.due.max(self.confirmed());
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
        self.owing.insert((lease.applied, id));
        Echo::Granted
    }

    /// The client is not fresh.
    fn release(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.over_at = None;
            self.owing.remove(&(lease.applied, id));
        }
    }

    fn end(&mut self, id: LeaseId) {
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
                self.add_nobodys(applied, over_at);
            }
            Some(_) => {}
        }
    }

    /// Adds to what is only known as a whole.
    fn add_nobodys(&mut self, applied: u64, over_at: Instant) {
        let known = self.remove(NOBODY);
        let lease = Lease {
            client: None,
            digest: None,
            applied: known.as_ref().map_or(applied, |known| known.applied.min(applied)),
            over_at: known.and_then(|known| known.over_at).max(Some(over_at)),
            refused: None,
            is_noted: true,
        };
        self.owing.insert((lease.applied, NOBODY));
        self.leases.insert(NOBODY, lease);
        self.ended += 1;
    }

    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.owing.remove(&(lease.applied, id));
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

    fn let_fall_due(&mut self, now: Instant) {
        while let Some((seq, _)) = self.published.pop_front_if(|(_, at)| now >= *at + PATIENCE) {
            self.due = seq;
        }
    }

    /// Ends what is over. Returns the clients of those that have begun to lag, and whether they are refused now.
    fn look(&mut self, now: Instant) -> Vec<(Client, bool)> {
        self.let_fall_due(now);
        let is_over = |lease: &Lease| lease.over_at.is_some_and(|over_at| over_at <= now);
        let over: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| is_over(lease))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.release(id);
            if self.leases.get(&id).is_some_and(|lease| lease.refused.is_none()) {
                self.remove(id);
            }
        }
        let late: Vec<_> = self.laggards(self.due).map(|(id, _)| id).collect();
        let mut noted = Vec::new();
        for id in late {
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            if std::mem::replace(&mut lease.is_noted, true) {
                continue;
            }
            let (Some(client), refused) = (lease.client.clone(), lease.refused.clone()) else {
                continue;
            };
            let of_client = |lease: &&Lease| lease.refused.is_some() && lease.client.as_ref() == Some(&client);
            let connected = self.leases.values().filter(of_client).count();
            self.stalls.note(&client, connected, now);
            let is_refused = self.stalls.refused(&client, now).is_some();
            if let (true, Some(refused)) = (is_refused, refused) {
                refused.notify_one();
            }
            noted.push((client, is_refused));
        }
        noted
    }

    fn progress(&self, seq: u64, now: Instant) -> Progress {
        let mut unknown = 0;
        let mut left = Duration::ZERO;
        let mut nobodys = 0;
        for (_, lease) in self.laggards(seq) {
            match lease.client {
                Some(_) => unknown += 1,
                None => nobodys += 1,
            }
            let over_at = lease.over_at.unwrap_or(now);
            // What is over for certain is ended within a moment, and only then is the revocation confirmed.
            left = left.max(over_at.saturating_duration_since(now).max(LOOK_INTERVAL));
        }
        Progress {
            applied: self.owing.len() - unknown - nobodys,
            unknown,
            left,
        }
    }
}

/// Clocks run at rates that differ by less than a hundredth.
pub(crate) fn with_allowance(duration: Duration) -> Duration {
    duration + duration / 100
}

/// Of earlier processes' filters, and of more ended streams than are told apart.
const NOBODY: LeaseId = 0;
/// How long a client may leave an update unapplied and still be echoed.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is looked who lags, while somebody does.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
