//! Reads of what a quorum of the store has, on behalf of many callers.
//!
//! A replica may be behind the log without knowing it. So it answers a ping only behind a read of the log's head that
//! began after the ping had arrived, and only once it has sent everything up to that head. One read serves all who asked
//! before it began. An embedded log needs no reads: nothing else writes to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::digest_history::ForeignPosition;
use crate::log::RevocationLog;
use crate::store::etcd::{EtcdStore, Registered};

/// Clones share the same reads.
#[derive(Debug, Clone)]
pub(crate) struct Quorum(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The last ticket given out; none is needed if no reads are.
    tickets: Option<AtomicU64>,
    asked: Notify,
    read: watch::Sender<QuorumRead>,
}

/// The latest complete read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuorumRead {
    /// The last ticket that was given out before it began.
    through: u64,
    /// The head that it found.
    head: u64,
    /// For too long no read was complete. Filters must go to another replica while they are fresh.
    pub(crate) is_lost: bool,
}

/// Stands for the moment at which it was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// No quorum answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no quorum of the store answers, so this replica cannot tell whether it knows everything; ask another one")]
pub struct NoQuorum;

// === impl QuorumRead ===

impl QuorumRead {
    /// Whether a client that has everything up to `sent` has everything that was in the log when the ticket was given
    /// out.
    pub(crate) fn covers(&self, ticket: Ticket, sent: u64) -> bool {
        !self.is_lost && self.through >= ticket.0 && sent >= self.head
    }
}

// === impl Quorum ===

impl Quorum {
    /// For a log that only this process writes.
    pub(crate) fn of_one() -> Self {
        Self::new(None, u64::MAX)
    }

    /// For a log that [`run`](Self::run) reads.
    pub(crate) fn of_several() -> Self {
        Self::new(Some(AtomicU64::new(0)), 0)
    }

    fn new(tickets: Option<AtomicU64>, through: u64) -> Self {
        let read = QuorumRead {
            through,
            head: 0,
            is_lost: false,
        };
        Self(Arc::new(Shared {
            tickets,
            asked: Notify::new(),
            read: watch::Sender::new(read),
        }))
    }

    /// Asks for a read that begins now or later.
    pub(crate) fn ask(&self) -> Ticket {
        let Some(tickets) = &self.0.tickets else {
            return Ticket(0);
        };
        let ticket = Ticket(tickets.fetch_add(1, Ordering::AcqRel) + 1);
        self.0.asked.notify_one();
        ticket
    }

    pub(crate) fn reads(&self) -> watch::Receiver<QuorumRead> {
        self.0.read.subscribe()
    }

    /// Reads whenever somebody asks. Ends if the log in the store does not continue ours.
    pub(crate) async fn run(self, store: Arc<EtcdStore>, log: RevocationLog) {
        let jitter = Duration::from_millis(u64::from(getrandom::u32().unwrap_or_default() % 300));
        let mut waiting_since = None;
        loop {
            let asked = self
                .0
                .tickets
                .as_ref()
                .map_or(0, |tickets| tickets.load(Ordering::Acquire));
            let QuorumRead { through, is_lost, .. } = *self.0.read.borrow();
            if asked == through && !is_lost {
                waiting_since = None;
                self.0.asked.notified().await;
                continue;
            }
            let since = *waiting_since.get_or_insert_with(Instant::now);
            let ours = log.position();
            let applied = *log.leases().confirmed_here().borrow();
            let found = match store.register(applied).await {
                Ok(Registered::Before(found)) => found,
                // Read again: until now, the others did not wait for this replica's filters.
                Ok(Registered::Now) => continue,
                Err(error) => {
                    if !is_lost && since.elapsed() > LOST_AFTER + jitter {
                        tracing::error!(%error, "no quorum of the store answers: filters are sent to other replicas");
                        self.0.read.send_modify(|read| read.is_lost = true);
                    }
                    continue;
                }
            };
            let is_ours = match log.check(&found) {
                Ok(()) | Err(ForeignPosition::TooOld { .. }) => found.seq >= ours.seq,
                Err(ForeignPosition::Ahead { .. }) => true,
                Err(ForeignPosition::Diverged { .. }) => false,
            };
            if !is_ours || store.is_renamed(log.log_id()) {
                tracing::error!(
                    found = found.seq,
                    ours = ours.seq,
                    "the log in the store does not continue this replica's: it was restored from a snapshot, and \
                     revocations are forgotten. Stop all replicas, and start one with --restored {} \
                     (docs/operate/backup.md#restore)",
                    log.log_id()
                );
                return;
            }
            if found.seq > ours.seq {
                log.follow();
            }
            if is_lost {
                tracing::info!("a quorum of the store answers again");
            }
            waiting_since = None;
            self.0.read.send_replace(QuorumRead {
                through: asked,
                head: found.seq,
                is_lost: false,
            });
        }
    }
}

/// Longer than an election, and short enough for filters to go elsewhere while they are fresh.
const LOST_AFTER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedded_log_needs_no_reads() {
        let quorum = Quorum::of_one();
        assert!(quorum.reads().borrow().covers(quorum.ask(), 0));
    }

    #[test]
    fn a_read_covers_only_what_was_asked_before_it_began_and_only_with_its_head() {
        let quorum = Quorum::of_several();
        let (first, second) = (quorum.ask(), quorum.ask());
        let read = QuorumRead {
            through: 1,
            head: 7,
            is_lost: false,
        };
        assert!(read.covers(first, 7) && read.covers(first, 8));
        assert!(!read.covers(first, 6), "not everything was sent");
        assert!(!read.covers(second, 7), "the read may have begun before");
        assert!(!QuorumRead { is_lost: true, ..read }.covers(first, 7));
    }
}
