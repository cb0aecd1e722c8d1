//! The delegations that principals' agents use, until they expire. An operator looks here for delegations to revoke.
//! They are kept in memory only, within limits, and are rebuilt at the start from the ledger's newest records.
//!
//! Nearly every event is about a known delegation, and adds only a time and a tool. This costs a hash and a lookup, and
//! no allocation. Hashes are keyed with a secret of this process. If two collide by chance (among 200,000, one chance
//! in 10^9), one of the delegations is not shown.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use credence_ledger::entry::{EntryKind, EntryView, EventView};
use credence_wire::v1;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use serde::Serialize;

use credence_revocation::PrincipalName;

/// The delegations that every principal's agents use.
#[derive(Debug)]
pub struct Seen {
    max_principals: usize,
    max_delegations: usize,
    known: Mutex<Known>,
}

/// One delegation, according to its last allowed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenDelegation {
    /// The `jti` of every token of the chain, root first.
    pub ids: Vec<String>,
    /// Empty if there was no proof.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) agent: String,
    pub(crate) tool: String,
    /// Seconds since the Unix epoch, like the next field.
    pub last_seen: i64,
    pub(crate) expires_at: i64,
}

/// What a group of reports adds. It is noted once the group is durable.
#[derive(Debug, Default)]
pub struct Sightings(Vec<Sighting>);

/// What one client's events recently said, so that only the first event of a second is noted: hashes of delegation and
/// use, and the second.
#[derive(Debug)]
pub struct SeenOfLate(Vec<(u64, i64)>);

/// An event to be noted, by its place in the batch. All of it is read again only if the delegation is new.
#[derive(Debug)]
struct Sighting {
    /// [`Said::delegation`].
    delegation: u64,
    last_seen: i64,
    expires_at: i64,
    entry: Bytes,
    agent: Bytes,
    tool: Bytes,
}

/// Hashes of an event's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    /// The principal and the delegation.
    delegation: u64,
    /// The same, with the tool and the agent.
    all: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// By [`Said::delegation`].
    delegations: HashMap<u64, Delegation>,
    /// The delegations of each principal.
    principals: HashMap<PrincipalName, Vec<u64>>,
    noted: u64,
}

#[derive(Debug)]
struct Delegation {
    noted: u64,
    seen: SeenDelegation,
}

// === impl Seen ===

impl Seen {
    /// Room for this many principals, and this many delegations of all together. Beyond that, the principals seen
    /// longest ago are forgotten.
    pub fn new(max_principals: usize, max_delegations: usize) -> Self {
        Self {
            max_principals,
            max_delegations,
            known: Mutex::default(),
        }
    }

    /// Adds durable events.
    pub fn note(&self, sightings: Sightings) {
        if sightings.0.is_empty() {
            return;
        }
        let mut known = self.known.lock();
        for sighting in sightings.0 {
            known.note(&sighting);
            while known.principals.len() > self.max_principals || known.delegations.len() > self.max_delegations {
                known.forget_some();
            }
        }
    }

    /// Forgets the principal.
    pub(crate) fn forget(&self, principal: &PrincipalName) {
        self.known.lock().forget(principal);
    }

    /// The principal's unexpired delegations, the most recently seen first.
    pub fn live(&self, principal: &PrincipalName, now: i64) -> Vec<SeenDelegation> {
        let known = self.known.lock();
        let of_principal = known.principals.get(principal).into_iter();
        let mut live: Vec<&Delegation> = of_principal
            .flatten()
            .filter_map(|delegation| known.delegations.get(delegation))
            .filter(|delegation| delegation.seen.expires_at > now)
            .collect();
        live.sort_unstable_by_key(|delegation| std::cmp::Reverse(delegation.noted));
        live.into_iter().map(|delegation| delegation.seen.clone()).collect()
    }
}

// === impl Sightings ===

impl Sightings {
    /// Adds an entry of the batch, if it is an allowed request under a delegation with a known expiry (filters of older
    /// versions do not send it).
    pub fn add(&mut self, batch: &Bytes, entry: &EntryView<'_>, of_late: &mut SeenOfLate) {
        let EntryKind::Event(event) = &entry.kind else { return };
        if event.decision() != v1::Decision::Allow || event.delegation_ids().is_empty() || event.expires_at == 0 {
            return;
        }
        let last_seen = i64::try_from(event.time_unix_nano / 1_000_000_000).unwrap_or(i64::MAX);
        let said = Said::by(event);
        if of_late.knows(said, last_seen) {
            return;
        }
        self.0.push(Sighting {
            delegation: said.delegation,
            last_seen,
            expires_at: event.expires_at,
            entry: batch.slice_ref(entry.encoded),
            agent: batch.slice_ref(event.agent.as_bytes()),
            tool: batch.slice_ref(event.tool.as_bytes()),
        });
    }

    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// The memory besides the batch's.
    pub(crate) fn cost(&self) -> usize {
        self.0.capacity() * size_of::<Sighting>()
    }
}

// === impl SeenOfLate ===

impl SeenOfLate {
    /// Whether the same was already noted for that second.
    fn knows(&mut self, said: Said, second: i64) -> bool {
        let place = (said.all % PLACES as u64) as usize;
        match self.0.get_mut(place) {
            Some(place) => std::mem::replace(place, (said.all, second)) == (said.all, second),
            None => false,
        }
    }
}

impl Default for SeenOfLate {
    fn default() -> Self {
        Self(vec![(0, 0); PLACES])
    }
}

// === impl Said ===

impl Said {
    fn by(event: &EventView<'_>) -> Self {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = SECRET.build_hasher();
        let principal = event.principal.map(|principal| (principal.issuer, principal.subject));
        (principal, event.delegation_ids()).hash(&mut hasher);
        let delegation = hasher.finish();
        (event.agent, event.tool).hash(&mut hasher);
        Self {
            delegation,
            all: hasher.finish(),
        }
    }
}

// === impl Known ===

impl Known {
    fn note(&mut self, sighting: &Sighting) {
        self.noted += 1;
        if let Some(known) = self.delegations.get_mut(&sighting.delegation) {
            known.noted = self.noted;
            known.seen.last_seen = known.seen.last_seen.max(sighting.last_seen);
            known.seen.expires_at = sighting.expires_at;
            replace(&mut known.seen.agent, &sighting.agent);
            replace(&mut known.seen.tool, &sighting.tool);
        } else if let Some((principal, seen)) = sighting.read() {
            self.take_in(principal, sighting.delegation, seen);
        }
    }

    fn take_in(&mut self, name: PrincipalName, delegation: u64, seen: SeenDelegation) {
        let noted = self.noted;
        let of_principal = self.principals.entry(name).or_default();
        // Batches of several filters arrive in any order. Delegations that expired before the newest event are removed.
        let delegations = &mut self.delegations;
        of_principal.retain(|known| {
            let lives = delegations
                .get(known)
                .is_some_and(|delegation| delegation.seen.expires_at > seen.last_seen);
            if !lives {
                delegations.remove(known);
            }
            lives
        });
        if of_principal.len() >= MAX_DELEGATIONS_PER_PRINCIPAL {
            let noted = |known: &u64| delegations.get(known).map_or(0, |delegation| delegation.noted);
            let numbered = of_principal.iter().enumerate();
            if let Some((oldest, _)) = numbered.min_by_key(|(_, known)| noted(known)) {
                delegations.remove(&of_principal.swap_remove(oldest));
            }
        }
        of_principal.push(delegation);
        delegations.insert(delegation, Delegation { noted, seen });
    }

    fn forget(&mut self, name: &PrincipalName) {
        for delegation in self.principals.remove(name).into_iter().flatten() {
            self.delegations.remove(&delegation);
        }
    }

    /// Forgets the principals seen longest ago; a sixteenth at once, because all are checked.
    fn forget_some(&mut self) {
        let noted = |known: &u64| self.delegations.get(known).map_or(0, |delegation| delegation.noted);
        let principals = self.principals.iter();
        let mut by_age: Vec<_> = principals
            .map(|(name, delegations)| (delegations.iter().map(noted).max(), name))
            .collect();
        let last = by_age.len() / 16;
        by_age.select_nth_unstable_by_key(last, |(noted, _)| *noted);
        let oldest: Vec<PrincipalName> = by_age.iter().take(last + 1).map(|(_, name)| (*name).clone()).collect();
        oldest.iter().for_each(|name| self.forget(name));
    }
}

// === impl Sighting ===

impl Sighting {
    /// Reads the event.
    fn read(&self) -> Option<(PrincipalName, SeenDelegation)> {
        let EntryKind::Event(event) = EntryView::parse(&self.entry).ok()?.kind else {
            return None;
        };
        let principal = PrincipalName::try_from(event.principal?.to_wire()).ok()?;
        let delegation = SeenDelegation {
            ids: event.delegation_ids().iter().map(|id| (*id).to_owned()).collect(),
            agent: event.agent.to_owned(),
            tool: event.tool.to_owned(),
            last_seen: self.last_seen,
            expires_at: event.expires_at,
        };
        Some((principal, delegation))
    }
}

/// Sets the text to these bytes.
fn replace(text: &mut String, bytes: &[u8]) {
    if text.as_bytes() != bytes {
        text.clear();
        text.push_str(std::str::from_utf8(bytes).unwrap_or_default());
    }
}

const MAX_DELEGATIONS_PER_PRINCIPAL: usize = 32;
/// For each client, 16 bytes each.
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
            let encoded = Bytes::from(entry.encode_to_vec());
            sightings.add(&encoded, &EntryView::parse(&encoded).unwrap(), of_late);
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
    fn a_repetition_in_the_same_second_is_not_noted_again() {
        let seen = Seen::new(10, 100);
        let of_late = &mut SeenOfLate::default();
        let with_tool = |id, tool: &str, at| v1::Event {
            tool: tool.to_owned(),
            ..event("alice", id, at, NOW + 10)
        };
        let again = vec![with_tool("a", "pay", NOW); 5];
        assert_eq!(note_of_late(&seen, again, of_late), 1);
        let others = [
            with_tool("a", "read", NOW),
            with_tool("b", "read", NOW),
            with_tool("b", "read", NOW + 1),
        ];
        for other in others {
            assert_eq!(note_of_late(&seen, vec![other], of_late), 1);
        }
        let known = &seen.live(&name("alice"), NOW)[0];
        assert_eq!((known.tool.as_str(), known.last_seen), ("read", NOW + 1));
    }

    #[test]
    fn denials_and_delegations_without_an_expiry_are_not_noted() {
        let seen = Seen::new(10, 100);
        let denied = v1::Event {
            decision: v1::Decision::Deny.into(),
            ..event("alice", "a", NOW, NOW + 10)
        };
        note(&seen, vec![denied, event("alice", "b", NOW, 0)]);
        assert!(live(&seen, "alice", NOW).is_empty());
    }

    #[test]
    fn beyond_the_limits_the_principals_seen_longest_ago_are_forgotten() {
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
