//! What filters are promised when a control plane stops as planned: that nothing will be revoked for a while, so that
//! they need not refuse traffic meanwhile.
//!
//! Each stream that is promised it gets a ticket of its own, and the stubs of all are on disk before the first of them
//! leaves ([`Office`]). A successor keeps the promise ([`Inherited`]) until its time is over, or until every ticket is
//! back: a filter hands it back once it relies on the promise no more. docs/protocol.md says why nothing is allowed too
//! late.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use crate::config::MAX_DRAIN_PROMISE;

/// Random, and one stream's alone.
pub(crate) type Ticket = [u8; 16];

/// SHA-256 of what a client hands back beside its ticket, and tells nobody before.
pub(crate) type Pledge = [u8; 32];

/// What is kept of a ticket: SHA-256 over it and the client's pledge. Whoever reads along as a ticket is given can not hand it
/// back, and two streams with one pledge have two.
pub(crate) type Stub = [u8; 32];

/// One promise, on its way from process to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    /// From the successor's start on, whatever any clock says of the time between: the stop was earlier.
    pub(crate) lasts: Duration,
    pub(crate) holders: Holders,
}

/// Who may rely on a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holders {
    /// Whoever has not handed the ticket of one of these back.
    Tickets(BTreeSet<Stub>),
    /// Nobody knows; it is kept to its end.
    Unknown,
}

/// What the predecessors have promised and this process keeps.
#[derive(Debug)]
pub(crate) struct Inherited {
    kept: Mutex<Kept>,
    /// Nothing is kept any more, so that nobody has to look.
    is_over: AtomicBool,
    changed: Notify,
}

#[derive(Debug)]
struct Kept {
    promises: Vec<(Instant, Holders)>,
    /// Streams whose tickets were not back when their time was over.
    missed: usize,
}

/// Why nothing may be revoked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quiet {
    /// How long it may last.
    pub(crate) at_most: Duration,
    /// When it is worth to ask again: it may be over long before its end.
    pub(crate) retry_after: Duration,
}

/// Gives out this process's own tickets.
#[derive(Debug, Clone)]
pub(crate) struct Office(Arc<Mutex<Option<BTreeSet<Stub>>>>);

/// A ticket for as long as its stream is open.
#[derive(Debug)]
pub(crate) struct Issued {
    ticket: Ticket,
    stub: Stub,
    office: Office,
}

// === impl Promise ===

impl Promise {
    pub(crate) fn unknown(lasts: Duration) -> Self {
        Self {
            lasts,
            holders: Holders::Unknown,
        }
    }
}

/// For the data folder. Of more tickets than can be kept, whole promises lose theirs, the oldest first.
pub(crate) fn encode(promises: &[Promise]) -> Vec<u8> {
    let mut room = MAX_TICKETS;
    let mut stored: Vec<StoredPromise> = promises
        .iter()
        .rev()
        .map(|promise| {
            let tickets = match &promise.holders {
                Holders::Tickets(tickets) if tickets.len() <= room => {
                    room -= tickets.len();
                    Some(tickets.iter().flatten().copied().collect())
                }
                Holders::Tickets(_) | Holders::Unknown => None,
            };
            StoredPromise {
                lasts_ms: promise.lasts.as_millis().try_into().unwrap_or(u64::MAX),
                tickets,
            }
        })
        .collect();
    stored.reverse();
    StoredPromises { promises: stored }.encode_to_vec()
}

/// What [`encode`] has made; nothing if it is anything else.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Promise>> {
    let stored = StoredPromises::decode(bytes).ok()?;
    let promise = |stored: StoredPromise| {
        let holders = match stored.tickets {
            None => Holders::Unknown,
            Some(tickets) => {
                let (tickets, rest) = tickets.as_chunks();
                if !rest.is_empty() {
                    return None;
                }
                Holders::Tickets(tickets.iter().copied().collect())
            }
        };
        Some(Promise {
            lasts: Duration::from_millis(stored.lasts_ms).min(MAX_DRAIN_PROMISE),
            holders,
        })
    };
    stored.promises.into_iter().map(promise).collect()
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredPromises {
    #[prost(message, repeated, tag = "1")]
    promises: Vec<StoredPromise>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredPromise {
    #[prost(uint64, tag = "1")]
    lasts_ms: u64,
    /// Their stubs, one behind the other; absent if nobody knows who holds any.
    #[prost(bytes = "bytes", optional, tag = "2")]
    tickets: Option<Bytes>,
}

// === impl Inherited ===

impl Inherited {
    /// Keeps these promises from `now` on, the process's start.
    pub(crate) fn new(promises: Vec<Promise>, now: Instant) -> Self {
        let kept = promises
            .into_iter()
            .map(|promise| (now + promise.lasts, promise.holders));
        Self {
            kept: Mutex::new(Kept {
                promises: kept.collect(),
                missed: 0,
            }),
            is_over: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Why nothing may be revoked; nothing once all is kept.
    pub(crate) fn quiet(&self, now: Instant) -> Option<Quiet> {
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.look(now);
        let left = |(until, _): &(Instant, Holders)| until.saturating_duration_since(now);
        let at_most = kept.promises.iter().map(left).max()?;
        let unknown = kept.promises.iter().filter(|(_, holders)| *holders == Holders::Unknown);
        let certain = unknown.map(left).max().unwrap_or_default();
        Some(Quiet {
            at_most,
            retry_after: certain.max(at_most.min(SOON)),
        })
    }

    /// Whether there are tickets that would shorten it.
    pub(crate) fn awaits_tickets(&self, now: Instant) -> bool {
        !self.is_over.load(Ordering::Acquire) && self.look(now).tickets() > 0
    }

    /// One who holds the ticket relies on the promise no more. A ticket that is not awaited changes nothing.
    pub(crate) fn hand_back(&self, ticket: &Ticket, secret: &[u8], now: Instant) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        let stub = stub_of(ticket, &Sha256::digest(secret).into());
        let mut kept = self.look(now);
        for (_, holders) in &mut kept.promises {
            if let Holders::Tickets(tickets) = holders {
                tickets.remove(&stub);
            }
        }
        drop(kept);
        // Sees to it that nobody has to look any more.
        drop(self.look(now));
    }

    /// What is still to be kept by a successor.
    pub(crate) fn left(&self, now: Instant) -> Vec<Promise> {
        let kept = self.look(now);
        let left = kept.promises.iter().map(|(until, holders)| Promise {
            lasts: until.saturating_duration_since(now),
            holders: holders.clone(),
        });
        left.collect()
    }

    /// Resolves once there is nothing to keep: to how many streams have not come back. For one caller.
    pub(crate) async fn over(&self) -> usize {
        loop {
            let now = Instant::now();
            let until = {
                let kept = self.look(now);
                match kept.promises.iter().map(|(until, _)| *until).min() {
                    Some(until) => until,
                    None => return kept.missed,
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// What is still kept: neither over nor ended by its holders.
    fn look(&self, now: Instant) -> MutexGuard<'_, Kept> {
        let mut kept = lock(&self.kept);
        let Kept { promises, missed } = &mut *kept;
        promises.retain(|(until, holders)| {
            let out = holders.count();
            if now >= *until {
                *missed += out.unwrap_or_default();
                return false;
            }
            out != Some(0)
        });
        if kept.promises.is_empty() && !self.is_over.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
        }
        kept
    }
}

// === impl Kept ===

impl Kept {
    fn tickets(&self) -> usize {
        self.promises.iter().filter_map(|(_, holders)| holders.count()).sum()
    }
}

// === impl Holders ===

impl Holders {
    fn count(&self) -> Option<usize> {
        match self {
            Self::Tickets(tickets) => Some(tickets.len()),
            Self::Unknown => None,
        }
    }
}

// === impl Office ===

impl Office {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(BTreeSet::new()))))
    }

    /// A ticket whose stub will be on disk before anything is promised; nothing if that is too late, or there is no
    /// randomness: then nothing may be promised to the stream. Without a pledge nobody can hand it back.
    pub(crate) fn issue(&self, pledge: Option<&Pledge>) -> Option<Issued> {
        let mut ticket = Ticket::default();
        getrandom::fill(&mut ticket).ok()?;
        let stub = match pledge {
            Some(pledge) => stub_of(&ticket, pledge),
            None => {
                let mut nobodys = Stub::default();
                getrandom::fill(&mut nobodys).ok()?;
                nobodys
            }
        };
        lock(&self.0).as_mut()?.insert(stub);
        Some(Issued {
            ticket,
            stub,
            office: self.clone(),
        })
    }

    /// The tickets of all streams that are open. From now on there are no others.
    pub(crate) fn close(&self) -> BTreeSet<Stub> {
        lock(&self.0).take().unwrap_or_default()
    }
}

// === impl Issued ===

impl Issued {
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        if let Some(tickets) = lock(&self.office.0).as_mut() {
            tickets.remove(&self.stub);
        }
    }
}

fn stub_of(ticket: &Ticket, pledge: &Pledge) -> Stub {
    Sha256::new()
        .chain_update(ticket)
        .chain_update(pledge)
        .finalize()
        .into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panics here leaves no half-made change behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most that are written down: 8 MiB.
pub(crate) const MAX_TICKETS: usize = 262_144;
/// The largest that [`encode`] makes, with a thousand promises: no process makes more in a minute.
pub(crate) const MAX_STORED_BYTES: u64 = (MAX_TICKETS * size_of::<Stub>()) as u64 + (64 << 10);
/// Filters come back within a second or so.
const SOON: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const SECRET: &[u8] = b"told nobody";

    fn held_by(lasts: Duration, tickets: &[u8]) -> Promise {
        let pledge = Sha256::digest(SECRET).into();
        Promise {
            lasts,
            holders: Holders::Tickets(tickets.iter().map(|ticket| stub_of(&[*ticket; 16], &pledge)).collect()),
        }
    }

    #[test]
    fn a_promise_is_over_once_every_ticket_is_back() {
        let now = Instant::now();
        let inherited = Inherited::new(vec![held_by(MINUTE, &[1, 2])], now);
        inherited.hand_back(&[1; 16], SECRET, now);
        inherited.hand_back(&[1; 16], SECRET, now);
        let quiet = inherited.quiet(now).unwrap();
        assert_eq!((quiet.at_most, quiet.retry_after), (MINUTE, SOON));
        assert!(inherited.awaits_tickets(now));
        inherited.hand_back(&[2; 16], SECRET, now);
        assert_eq!(inherited.quiet(now), None);
        assert!(!inherited.awaits_tickets(now));
        assert_eq!(inherited.left(now), []);
    }

    #[test]
    fn a_ticket_that_nobody_was_given_ends_nothing() {
        let now = Instant::now();
        let inherited = Inherited::new(vec![held_by(MINUTE, &[1])], now);
        inherited.hand_back(&[9; 16], SECRET, now);
        assert!(inherited.quiet(now).is_some());
    }

    #[test]
    fn a_ticket_without_the_secret_of_its_stream_ends_nothing() {
        let now = Instant::now();
        let inherited = Inherited::new(vec![held_by(MINUTE, &[1])], now);
        inherited.hand_back(&[1; 16], b"a guess", now);
        inherited.hand_back(&[1; 16], &Sha256::digest(SECRET), now);
        assert!(inherited.quiet(now).is_some());
    }

    #[test]
    fn a_ticket_that_never_comes_back_holds_up_until_the_end_of_its_promise() {
        let now = Instant::now();
        let inherited = Inherited::new(vec![held_by(MINUTE, &[1])], now);
        let end = now + MINUTE;
        assert!(
            inherited
                .quiet(end.checked_sub(Duration::from_millis(1)).unwrap())
                .is_some()
        );
        assert_eq!(inherited.quiet(end), None);
    }

    #[test]
    fn a_promise_to_nobody_known_is_kept_to_its_end() {
        let now = Instant::now();
        let inherited = Inherited::new(vec![Promise::unknown(MINUTE)], now);
        assert!(
            !inherited.awaits_tickets(now),
            "nothing that anybody has would shorten it"
        );
        let quiet = inherited.quiet(now).unwrap();
        assert_eq!((quiet.at_most, quiet.retry_after), (MINUTE, MINUTE));
        assert_eq!(inherited.quiet(now + MINUTE), None);
    }

    #[test]
    fn a_second_stop_hands_on_what_is_left_of_each_promise() {
        let now = Instant::now();
        let promises = vec![
            held_by(MINUTE / 2, &[1, 2]),
            held_by(MINUTE, &[3]),
            Promise::unknown(MINUTE),
        ];
        let inherited = Inherited::new(promises, now);
        inherited.hand_back(&[1; 16], SECRET, now);
        let later = now + MINUTE / 3;
        let left = vec![
            held_by(MINUTE / 2 - MINUTE / 3, &[2]),
            held_by(MINUTE - MINUTE / 3, &[3]),
            Promise::unknown(MINUTE - MINUTE / 3),
        ];
        assert_eq!(inherited.left(later), left);
        assert_eq!(decode(&encode(&left)), Some(left));
    }

    #[tokio::test]
    async fn whoever_waits_for_the_end_learns_how_many_did_not_come_back() {
        let soon = Duration::from_millis(30);
        let now = Instant::now();
        let inherited = Inherited::new(vec![held_by(soon, &[1, 2]), held_by(MINUTE, &[3])], now);
        inherited.hand_back(&[2; 16], SECRET, now);
        let (missed, ()) = tokio::join!(inherited.over(), async {
            tokio::time::sleep(soon * 2).await;
            inherited.hand_back(&[3; 16], SECRET, Instant::now());
        });
        assert_eq!(missed, 1);
    }

    #[tokio::test]
    async fn the_end_is_noticed_though_the_promise_that_lasts_longest_has_ended_before() {
        let now = Instant::now();
        let inherited = Inherited::new(
            vec![Promise::unknown(Duration::from_millis(30)), held_by(MINUTE, &[1])],
            now,
        );
        let over = tokio::time::timeout(Duration::from_secs(5), inherited.over());
        let (over, ()) = tokio::join!(over, async { inherited.hand_back(&[1; 16], SECRET, Instant::now()) });
        assert_eq!(over, Ok(0));
    }

    #[test]
    fn what_is_not_a_list_of_promises_is_none() {
        let odd = StoredPromises {
            promises: vec![StoredPromise {
                lasts_ms: 1,
                tickets: Some(Bytes::from_static(&[0; 33])),
            }],
        };
        assert_eq!(decode(&odd.encode_to_vec()), None);
        assert_eq!(decode(b"\xff"), None);
        let forever = StoredPromises {
            promises: vec![StoredPromise {
                lasts_ms: u64::MAX,
                tickets: None,
            }],
        };
        let most = vec![Promise::unknown(MAX_DRAIN_PROMISE)];
        assert_eq!(decode(&forever.encode_to_vec()), Some(most));
    }

    #[test]
    fn promises_with_more_tickets_than_fit_are_kept_to_their_end_the_oldest_first() {
        let numbered = |n: usize| {
            let mut stub = Stub::default();
            stub[24..].copy_from_slice(&(n as u64).to_be_bytes());
            stub
        };
        let crowd = |from: usize, count: usize| Promise {
            lasts: MINUTE,
            holders: Holders::Tickets((from..from + count).map(numbered).collect()),
        };
        let newest = crowd(1, MAX_TICKETS);
        let encoded = encode(&[crowd(0, 1), newest.clone()]);
        assert!(encoded.len() as u64 <= MAX_STORED_BYTES);
        assert_eq!(decode(&encoded), Some(vec![Promise::unknown(MINUTE), newest]));
    }

    #[test]
    fn a_stream_that_has_ended_was_promised_nothing() {
        let office = Office::new();
        let (open, ended) = (office.issue(None).unwrap(), office.issue(None).unwrap());
        assert_ne!(open.ticket(), ended.ticket());
        drop(ended);
        assert_eq!(office.close(), BTreeSet::from([open.stub]));
        assert!(office.issue(None).is_none(), "it would not be on disk");
    }

    #[test]
    fn streams_with_one_pledge_have_tickets_of_their_own() {
        let now = Instant::now();
        let office = Office::new();
        let pledge = Sha256::digest(SECRET).into();
        let [one, other, ended] = [(); 3].map(|()| office.issue(Some(&pledge)).unwrap());
        drop(ended);
        let holders = Holders::Tickets(office.close());
        let inherited = Inherited::new(vec![Promise { lasts: MINUTE, holders }], now);
        inherited.hand_back(&one.ticket(), SECRET, now);
        assert!(inherited.quiet(now).is_some());
        inherited.hand_back(&other.ticket(), SECRET, now);
        assert_eq!(inherited.quiet(now), None);
    }

    #[test]
    fn without_a_pledge_a_ticket_can_not_be_handed_back() {
        let now = Instant::now();
        let office = Office::new();
        let issued = office.issue(None).unwrap();
        let holders = Holders::Tickets(office.close());
        let inherited = Inherited::new(vec![Promise { lasts: MINUTE, holders }], now);
        inherited.hand_back(&issued.ticket(), b"", now);
        assert!(inherited.quiet(now).is_some());
    }
}
