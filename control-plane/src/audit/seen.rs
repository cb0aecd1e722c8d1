//! The delegations that principals' agents have been seen to use, for as long as they live: what somebody looks at who
//! wonders what to revoke. In memory only, bounded, and rebuilt from the ledger's newest records at the start.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use credence_ledger::view::{EntryKind, EntryView, EventView};
use credence_wire::v1;

use crate::revocation::subject::PrincipalName;

/// What has been seen of every principal.
#[derive(Debug)]
pub(crate) struct Seen {
    max_principals: usize,
    max_delegations: usize,
    known: Mutex<Known>,
}

/// One delegation, by what its last allowed request said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenDelegation {
    /// The `jti` of every token of the chain, root first.
    pub(crate) ids: Vec<String>,
    /// Empty where nothing was proven.
    pub(crate) agent: String,
    pub(crate) tool: String,
    /// Seconds since the Unix epoch, like the next.
    pub(crate) last_seen: i64,
    pub(crate) expires_at: i64,
}

/// What a group of reports has to say, to be noted once it is durable.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Vec<(PrincipalName, SeenDelegation)>);

/// What one client's events said of late, so that only the first of a second is noted: what a delegation is known by and
/// used for, and when.
#[derive(Debug)]
pub(crate) struct SeenOfLate {
    hasher: RandomState,
    places: Vec<(u64, i64)>,
}

#[derive(Debug, Default)]
struct Known {
    by_principal: HashMap<PrincipalName, Delegations>,
    /// The principals by when they were last seen, the longest ago first.
    order: BTreeMap<u64, PrincipalName>,
    delegations: usize,
    noted: u64,
}

#[derive(Debug)]
struct Delegations {
    noted: u64,
    /// The most recently seen last.
    seen: Vec<SeenDelegation>,
}

// === impl Seen ===

impl Seen {
    /// For so many principals, and so many delegations of all together; beyond, whoever was seen the longest ago is
    /// forgotten.
    pub(crate) fn new(max_principals: usize, max_delegations: usize) -> Self {
        Self {
            max_principals,
            max_delegations,
            known: Mutex::default(),
        }
    }

    /// Takes in what is durable.
    pub(crate) fn note(&self, sightings: Sightings) {
        if sightings.0.is_empty() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (principal, delegation) in sightings.0 {
            known.note(principal, delegation);
            while known.by_principal.len() > self.max_principals || known.delegations > self.max_delegations {
                known.forget_the_oldest();
            }
        }
    }

    /// Forgets the principal.
    pub(crate) fn forget(&self, principal: &PrincipalName) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(forgotten) = known.by_principal.remove(principal) {
            known.order.remove(&forgotten.noted);
            known.delegations -= forgotten.seen.len();
        }
    }

    /// The principal's delegations that have not expired, the most recently seen first.
    pub(crate) fn live(&self, principal: &PrincipalName, now: i64) -> Vec<SeenDelegation> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known
            .by_principal
            .get(principal)
            .map_or(&[][..], |known| known.seen.as_slice());
        let live = seen.iter().rev().filter(|delegation| delegation.expires_at > now);
        live.cloned().collect()
    }
}

// === impl Sightings ===

impl Sightings {
    /// Takes in what an entry has to say: an allowed request under a delegation of which is known when it ends (filters of
    /// an older version do not say).
    pub(crate) fn add(&mut self, entry: &EntryView<'_>, of_late: &mut SeenOfLate) {
        let EntryKind::Event(event) = &entry.kind else { return };
        if event.decision() != v1::Decision::Allow || event.delegation_ids().is_empty() || event.expires_at == 0 {
            return;
        }
        let last_seen = i64::try_from(event.time_unix_nano / 1_000_000_000).unwrap_or(i64::MAX);
        if of_late.knows(event, last_seen) {
            return;
        }
        let principal = event.principal.map(|principal| PrincipalName::try_from(principal.to_wire()));
        let Some(Ok(principal)) = principal else { return };
        let delegation = SeenDelegation {
            ids: event.delegation_ids().iter().map(|id| (*id).to_owned()).collect(),
            agent: event.agent.to_owned(),
            tool: event.tool.to_owned(),
            last_seen,
            expires_at: event.expires_at,
        };
        self.0.push((principal, delegation));
    }

    pub(crate) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Bytes of memory beside the texts'.
    pub(crate) fn cost(&self) -> usize {
        let ids = |(_, delegation): &(_, SeenDelegation)| delegation.ids.len() * size_of::<String>();
        self.0.capacity() * size_of::<(PrincipalName, SeenDelegation)>() + self.0.iter().map(ids).sum::<usize>()
    }
}

// === impl SeenOfLate ===

impl SeenOfLate {
    /// Whether the same was said of that second already.
    fn knows(&mut self, event: &EventView<'_>, second: i64) -> bool {
        let same = match event.chain_digest {
            [] => self.hasher.hash_one((event.principal.map(|principal| (principal.issuer, principal.subject)), event.delegation_ids(), event.agent, event.tool)),
            digest => self.hasher.hash_one((digest, event.agent, event.tool)),
        };
        let place = (same % PLACES as u64) as usize;
        match self.places.get_mut(place) {
            Some(place) => std::mem::replace(place, (same, second)) == (same, second),
            None => false,
        }
    }
}

impl Default for SeenOfLate {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            places: vec![(0, 0); PLACES],
        }
    }
}

// === impl Known ===

impl Known {
    fn note(&mut self, principal: PrincipalName, delegation: SeenDelegation) {
        self.noted += 1;
        let delegations = self
            .by_principal
            .entry(principal.clone())
            .or_insert_with(|| Delegations {
                noted: 0,
                seen: Vec::new(),
            });
        self.order.remove(&delegations.noted);
        delegations.noted = self.noted;
        self.order.insert(self.noted, principal);
        let before = delegations.seen.len();
        // Batches of several filters arrive in any order: what expired by the newest event's time is gone.
        let now = delegation.last_seen;
        let same = |known: &SeenDelegation| known.ids == delegation.ids;
        delegations.seen.retain(|known| !same(known) && known.expires_at > now);
        if delegations.seen.len() >= MAX_DELEGATIONS_PER_PRINCIPAL {
            delegations.seen.remove(0);
        }
        delegations.seen.push(delegation);
        self.delegations = self.delegations + delegations.seen.len() - before;
    }

    fn forget_the_oldest(&mut self) {
        if let Some((_, principal)) = self.order.pop_first()
            && let Some(forgotten) = self.by_principal.remove(&principal)
        {
            self.delegations -= forgotten.seen.len();
        }
    }
}

const MAX_DELEGATIONS_PER_PRINCIPAL: usize = 32;
/// Of a client, 16 bytes each.
const PLACES: usize = 512;

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn name(subject: &str) -> PrincipalName {
        PrincipalName::parse("https://id".to_owned(), Some(subject.to_owned())).unwrap()
    }

    fn event(subject: &str, id: &str, at: i64, expires_at: i64) -> v1::Event {
        v1::Event {
            time_unix_nano: u64::try_from(at).unwrap() * 1_000_000_000,
            decision: v1::Decision::Allow.into(),
            principal: Some(name(subject).to_wire()),
            agent: "agent".to_owned(),
            tool: "pay".to_owned(),
            delegation_ids: vec!["root".to_owned(), id.to_owned()],
            expires_at,
            ..Default::default()
        }
    }

    fn note(seen: &Seen, events: Vec<v1::Event>) {
        note_of_late(seen, events, &mut SeenOfLate::default());
    }

    fn note_of_late(seen: &Seen, events: Vec<v1::Event>, of_late: &mut SeenOfLate) -> usize {
        let mut sightings = Sightings::default();
        for event in events {
            let entry = v1::Entry {
                entry: Some(v1::entry::Entry::Event(event)),
            };
            sightings.add(&EntryView::parse(&entry.encode_to_vec()).unwrap(), of_late);
        }
        let count = sightings.0.len();
        seen.note(sightings);
        count
    }

    fn live(seen: &Seen, subject: &str, now: i64) -> Vec<String> {
        let live = seen.live(&name(subject), now);
        live.into_iter().map(|delegation| delegation.ids[1].clone()).collect()
    }

    #[test]
    fn a_delegation_is_live_until_it_expires() {
        let seen = Seen::new(10, 100);
        note(
            &seen,
            vec![
                event("alice", "a", NOW, NOW + 10),
                event("alice", "b", NOW + 1, NOW + 20),
            ],
        );
        assert_eq!(live(&seen, "alice", NOW), ["b", "a"]);
        assert_eq!(live(&seen, "alice", NOW + 10), ["b"]);
        assert!(live(&seen, "bob", NOW).is_empty());
        note(&seen, vec![event("alice", "a", NOW + 5, NOW + 10)]);
        let again = &seen.live(&name("alice"), NOW)[0];
        assert_eq!(
            (again.ids[1].as_str(), again.last_seen, again.tool.as_str()),
            ("a", NOW + 5, "pay")
        );
    }

    #[test]
    fn what_is_said_again_in_the_same_second_costs_no_second_note() {
        let seen = Seen::new(10, 100);
        let of_late = &mut SeenOfLate::default();
        let with_chain = |digest: u8, tool: &str, at| v1::Event {
            chain_digest: vec![digest; 32],
            tool: tool.to_owned(),
            ..event("alice", "a", at, NOW + 10)
        };
        let again = vec![with_chain(1, "pay", NOW); 5];
        assert_eq!(note_of_late(&seen, again, of_late), 1);
        let others = [with_chain(1, "read", NOW), with_chain(2, "read", NOW), with_chain(2, "read", NOW + 1)];
        for other in others {
            assert_eq!(note_of_late(&seen, vec![other], of_late), 1);
        }
        let known = &seen.live(&name("alice"), NOW)[0];
        assert_eq!((known.tool.as_str(), known.last_seen), ("read", NOW + 1));
    }

    #[test]
    fn what_was_denied_or_has_no_end_is_not_noted() {
        let seen = Seen::new(10, 100);
        let denied = v1::Event {
            decision: v1::Decision::Deny.into(),
            ..event("alice", "a", NOW, NOW + 10)
        };
        note(&seen, vec![denied, event("alice", "b", NOW, 0)]);
        assert!(live(&seen, "alice", NOW).is_empty());
    }

    #[test]
    fn beyond_the_limits_the_longest_unseen_are_forgotten() {
        let seen = Seen::new(2, 100);
        for subject in ["alice", "bob", "alice", "carol"] {
            note(&seen, vec![event(subject, "a", NOW, NOW + 10)]);
        }
        assert!(live(&seen, "bob", NOW).is_empty());
        assert_eq!(
            (live(&seen, "alice", NOW).len(), live(&seen, "carol", NOW).len()),
            (1, 1)
        );
        let many = (0..40).map(|id| event("alice", &id.to_string(), NOW, NOW + 10));
        note(&seen, many.collect());
        assert_eq!(live(&seen, "alice", NOW).len(), MAX_DELEGATIONS_PER_PRINCIPAL);
        assert_eq!(live(&seen, "alice", NOW)[0], "39");
        let few = Seen::new(10, 3);
        for (subject, id) in [("alice", "a"), ("alice", "b"), ("bob", "a"), ("bob", "b")] {
            note(&few, vec![event(subject, id, NOW, NOW + 10)]);
        }
        assert_eq!((live(&few, "alice", NOW).len(), live(&few, "bob", NOW).len()), (0, 2));
    }
}
