//! The delegations that principals' agents have been seen to use, for as long as they live: what somebody looks at who
//! wonders what to revoke. In memory only, bounded, and rebuilt from the ledger at the start.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use credence_wire::v1;
use credence_wire::v1::entry::Entry;

use crate::revocation::subject::PrincipalName;
use credence_ledger::group::{StoredBody, StoredItem};

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
    pub(crate) fn in_items(items: &[StoredItem]) -> Self {
        let entries = items.iter().flat_map(|item| match &item.body {
            Some(StoredBody::Batch(batch)) => batch.entries.as_slice(),
            Some(StoredBody::Change(_)) | None => &[],
        });
        Self(entries.filter_map(sighting).collect())
    }
}

/// An allowed request under a delegation of which is known when it ends; filters of an older version do not say.
fn sighting(entry: &v1::Entry) -> Option<(PrincipalName, SeenDelegation)> {
    let Some(Entry::Event(event)) = &entry.entry else {
        return None;
    };
    if event.decision() != v1::Decision::Allow || event.delegation_ids.is_empty() || event.expires_at == 0 {
        return None;
    }
    let principal = PrincipalName::try_from(event.principal.clone()?).ok()?;
    let delegation = SeenDelegation {
        ids: event.delegation_ids.clone(),
        agent: event.agent.clone(),
        tool: event.tool.clone(),
        last_seen: i64::try_from(event.time_unix_nano / 1_000_000_000).unwrap_or(i64::MAX),
        expires_at: event.expires_at,
    };
    Some((principal, delegation))
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

#[cfg(test)]
mod tests {
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
        let entries = events.into_iter().map(|event| v1::Entry {
            entry: Some(Entry::Event(event)),
        });
        let batch = v1::Batch {
            first_sequence: 1,
            entries: entries.collect(),
        };
        seen.note(Sightings::in_items(&[StoredItem {
            source: "source".to_owned(),
            body: Some(StoredBody::Batch(batch)),
        }]));
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
