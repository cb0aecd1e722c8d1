//! Reads of what a quorum of the store has, on behalf of many callers.
//!
//! A replica may be behind the log without knowing it. So it answers a ping only behind a read of the log's head that
//! began after the ping had arrived, and only once it has sent everything up to that head. One read serves all who asked
//! before it began. An embedded log needs no reads: nothing else writes to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

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
    pub(crate) through: u64,
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
        // `make test-cluster` shows that it would notice.
        if cfg!(credence_echoes_without_quorum) {
            return true;
        }
        !self.is_lost && self.through >= ticket.0 && sent >= self.head
    }
}

// === impl Quorum ===

impl Quorum {
    /// For a log that only this process writes.
    pub(crate) fn of_one() -> Self {
        Self::new(None, u64::MAX)
    }

    /// For a log that several replicas write.
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

    /// The last ticket that was given out, and the latest read.
    pub(crate) fn state(&self) -> (u64, QuorumRead) {
        let asked = self
            .0
            .tickets
            .as_ref()
            .map_or(0, |tickets| tickets.load(Ordering::Acquire));
        (asked, *self.0.read.borrow())
    }

    /// Resolves when somebody has asked since the last call.
    pub(crate) async fn asked(&self) {
        self.0.asked.notified().await;
    }

    /// A read is complete that began when `through` was the last ticket.
    pub(crate) fn complete(&self, through: u64, head: u64) {
        self.0.read.send_replace(QuorumRead {
            through,
            head,
            is_lost: false,
        });
    }

    /// No read is complete for too long.
    pub(crate) fn lose(&self) {
        self.0.read.send_modify(|read| read.is_lost = true);
    }
}

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
