//! Whether the view is fresh enough for decisions.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Monotonic;

/// The freshness of a VM's view at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The view was never in step with the log, so no decision is possible.
    NeverSynced,
    /// The view contains every confirmed revocation.
    Fresh,
    /// The last complete update of the view is older than `max_staleness`.
    Stale {
        /// Time since the sending of the last ping whose echo found the view complete.
        age: Duration,
    },
}

/// Freshness as a lease: it runs from the *send* time of a ping whose echo found the view at the log's head.
///
/// The echo proves that the view was complete at some time after the ping was sent. The times of sending and arrival of
/// the echo prove nothing, because it may have been delayed.
#[derive(Debug)]
pub(super) struct Lease {
    max_staleness: Duration,
    next_id: u64,
    /// Pings without an echo, oldest first, all sent on the present stream.
    outstanding: VecDeque<(u64, Monotonic)>,
    complete_as_of: Option<Monotonic>,
    /// The end of the lease, fixed at its renewal: the control plane that granted it relies on that. A longer limit
    /// applies only to later echoes.
    leased_until: Option<Monotonic>,
    promised_until: Option<Monotonic>,
}

// === impl Lease ===

impl Lease {
    pub(super) fn new(max_staleness: Duration) -> Self {
        Self {
            max_staleness,
            next_id: 1,
            outstanding: VecDeque::with_capacity(MAX_OUTSTANDING_PINGS),
            complete_as_of: None,
            leased_until: None,
            promised_until: None,
        }
    }

    /// The id of a ping that is sent now; `None` if too many are unanswered, which the watchdog handles.
    pub(super) fn ping(&mut self, now: Monotonic) -> Option<u64> {
        if self.outstanding.len() >= MAX_OUTSTANDING_PINGS {
            return None;
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        self.outstanding.push_back((id, now));
        Some(id)
    }

    /// Settles a ping and all earlier ones, and returns its send time; `None` if no such ping is outstanding. Pings are
    /// answered in order, if at all.
    pub(super) fn settle(&mut self, id: u64) -> Option<Monotonic> {
        let mut outstanding = self.outstanding.iter();
        let index = outstanding.position(|(outstanding, _)| *outstanding == id)?;
        self.outstanding.drain(..=index).next_back().map(|(_, sent)| sent)
    }

    /// The view contained everything that was committed before `instant`.
    pub(super) fn renew(&mut self, instant: Monotonic) {
        self.complete_as_of = self.complete_as_of.max(Some(instant));
        self.leased_until = self.leased_until.max(Some(instant.plus(self.max_staleness)));
    }

    /// No revocation will be confirmed before `instant`.
    pub(super) fn promise(&mut self, instant: Monotonic) {
        self.promised_until = self.promised_until.max(Some(instant));
    }

    /// Sets the longest age of a lease. It can shorten the present lease, but not extend it. Returns whether the limit
    /// is new.
    pub(super) fn limit(&mut self, max_staleness: Duration) -> bool {
        let end = self.complete_as_of.map(|instant| instant.plus(max_staleness));
        self.leased_until = self.leased_until.min(end);
        std::mem::replace(&mut self.max_staleness, max_staleness) != max_staleness
    }

    /// A new stream: echoes of earlier pings cannot arrive any more.
    pub(super) fn forget_pings(&mut self) {
        self.outstanding.clear();
    }

    /// The view was dropped, so no decision is possible.
    pub(super) fn revoke(&mut self) {
        self.outstanding.clear();
        self.complete_as_of = None;
        self.leased_until = None;
        self.promised_until = None;
    }

    pub(super) fn freshness(&self, now: Monotonic) -> Freshness {
        let Some(complete_as_of) = self.complete_as_of else {
            return Freshness::NeverSynced;
        };
        let is_leased = self.leased_until.is_some_and(|until| now <= until);
        let is_promised = self.promised_until.is_some_and(|until| now < until);
        if is_leased || is_promised {
            Freshness::Fresh
        } else {
            let age = now.since(complete_as_of);
            Freshness::Stale { age }
        }
    }

    /// Time since the last complete update of the view; `None` if there was none.
    pub(super) fn age(&self, now: Monotonic) -> Option<Duration> {
        self.complete_as_of.map(|instant| now.since(instant))
    }
}

/// More than a silent stream collects before the watchdog resets it, with a ping every half second.
pub(super) const MAX_OUTSTANDING_PINGS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_STALENESS: Duration = Duration::from_secs(5);

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic::default().plus(Duration::from_millis(milliseconds))
    }

    #[test]
    fn without_an_echo_there_is_no_freshness() {
        let mut lease = Lease::new(MAX_STALENESS);
        lease.ping(at(0)).unwrap();
        assert_eq!(lease.freshness(at(1)), Freshness::NeverSynced);
    }

    #[test]
    fn a_lease_runs_from_when_the_ping_was_sent() {
        let mut lease = Lease::new(MAX_STALENESS);
        let id = lease.ping(at(1_000)).unwrap();
        let sent = lease.settle(id).unwrap();
        lease.renew(sent);
        assert_eq!(lease.freshness(at(6_000)), Freshness::Fresh);
        let age = Duration::from_millis(5_001);
        assert_eq!(lease.freshness(at(6_001)), Freshness::Stale { age });
    }

    #[test]
    fn an_echo_settles_every_ping_before_it() {
        let mut lease = Lease::new(MAX_STALENESS);
        let first = lease.ping(at(0)).unwrap();
        let second = lease.ping(at(10)).unwrap();
        assert_eq!(lease.settle(second), Some(at(10)));
        assert_eq!(lease.settle(first), None);
        assert_eq!(lease.settle(second), None, "and none is settled twice");
    }

    #[test]
    fn unanswered_pings_are_bounded() {
        let mut lease = Lease::new(MAX_STALENESS);
        for _ in 0..MAX_OUTSTANDING_PINGS {
            lease.ping(at(0)).unwrap();
        }
        assert_eq!(lease.ping(at(0)), None);
    }

    #[test]
    fn a_promise_keeps_the_lease_until_its_end_and_no_longer() {
        let mut lease = Lease::new(MAX_STALENESS);
        lease.renew(at(0));
        lease.promise(at(20_000));
        assert_eq!(lease.freshness(at(19_999)), Freshness::Fresh);
        assert_eq!(
            lease.freshness(at(20_000)),
            Freshness::Stale {
                age: Duration::from_secs(20)
            }
        );
    }

    #[test]
    fn a_shorter_limit_applies_at_once() {
        let mut lease = Lease::new(MAX_STALENESS);
        lease.renew(at(0));
        assert!(lease.limit(Duration::from_secs(2)));
        assert!(!lease.limit(Duration::from_secs(2)), "nothing new");
        assert_eq!(lease.freshness(at(2_000)), Freshness::Fresh);
        assert!(matches!(lease.freshness(at(2_001)), Freshness::Stale { .. }));
    }

    #[test]
    fn a_longer_limit_applies_only_to_later_echoes() {
        let mut lease = Lease::new(MAX_STALENESS);
        lease.renew(at(0));
        assert!(lease.limit(Duration::from_secs(60)));
        assert_eq!(lease.freshness(at(5_000)), Freshness::Fresh);
        assert!(matches!(lease.freshness(at(5_001)), Freshness::Stale { .. }));
        assert!(lease.limit(Duration::from_secs(30)));
        assert!(matches!(lease.freshness(at(5_001)), Freshness::Stale { .. }));
        lease.renew(at(6_000));
        assert_eq!(lease.freshness(at(36_000)), Freshness::Fresh);
    }

    #[test]
    fn a_lease_never_runs_backwards() {
        let mut lease = Lease::new(MAX_STALENESS);
        lease.renew(at(4_000));
        lease.renew(at(1_000));
        assert_eq!(lease.freshness(at(9_000)), Freshness::Fresh);
    }
}
