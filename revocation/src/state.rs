//! The state of every subject in little memory. It can be frozen while it continues to change.
//!
//! The subjects are spread over shards, which are copied only when they change. Freezing counts references, and readers
//! of a frozen state block no writer. A subject that changes meanwhile costs a copy of its shard. An issuer's name is
//! stored once, however many subjects it has.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use credence_delegation::Thumbprint;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;

use crate::subject::{DelegationName, Issuer, MAX_ISSUER_KEYS, MAX_ISSUER_KEYS_BYTES, PrincipalName, SubjectName};

/// The state of every subject.
#[derive(Debug)]
pub(crate) struct State {
    shards: Vec<Arc<Shard>>,
    hasher: RandomState,
    issuers: HashSet<Arc<str>>,
    pub(crate) subjects: usize,
    /// The approximate size of a file that holds every subject once.
    pub(crate) bytes: u64,
    /// Roots of every issuer with `iat` at or before this are revoked, seconds since the Unix epoch.
    pub(crate) log_floor: Option<i64>,
    /// The fetched keys of each issuer.
    issuer_keys: Arc<IssuerKeys>,
}

/// The fetched keys of issuers, each with the number of its record.
type IssuerKeys = BTreeMap<String, (u64, v1::IssuerKeys)>;

/// The state of a subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubjectState {
    /// The record that put it in force; 0 if there is none.
    pub seq: u64,
    /// Seconds since the Unix epoch; 0 if there is none: when the principal was raised or the delegation revoked, or
    /// the issuer's not-before time.
    pub time: i64,
    /// A principal's.
    pub epoch: u64,
    /// Bits of `Source::disabler`. The principal is disabled while any bit is set.
    pub disabled_by: u32,
}

/// The state at one instant.
#[derive(Debug, Clone)]
pub(crate) struct FrozenState {
    shards: Vec<Arc<Shard>>,
    /// Without the log's not-before time.
    pub(crate) subjects: usize,
    log_floor: Option<i64>,
    issuer_keys: Arc<IssuerKeys>,
}

type Shard = HashMap<Key, SubjectState, RandomState>;

/// The stored name of a subject: its record without the issuer, and without what can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    issuer: Arc<str>,
    /// An encoded [`v1::Record`], which begins with the tag of its kind.
    rest: Box<[u8]>,
}

// === impl State ===

impl State {
    /// Applies a durable record. On error, tells why the log is invalid.
    pub(crate) fn apply(&mut self, seq: u64, record: v1::Record) -> Result<(), &'static str> {
        let since = |time| SubjectState {
            seq,
            time,
            ..SubjectState::default()
        };
        match record
            .subject
            .ok_or("a record without a subject of a kind that this version knows")?
        {
            Subject::Principal(state) => {
                let name = state.principal.ok_or("a principal's state without the principal")?;
                let name = PrincipalName::try_from(name).map_err(|_| "an invalid principal")?;
                if state.epoch >= EPOCH_LIMIT {
                    return Err("an epoch of 2^53 or more");
                }
                if state.disabled != (state.disabled_by != 0) {
                    return Err("a principal that is disabled by no source, or is not and has one");
                }
                let value = SubjectState {
                    epoch: state.epoch,
                    disabled_by: state.disabled_by,
                    ..since(state.raised_at)
                };
                self.put(SubjectName::Principal(&name), value);
            }
            Subject::Key(key) => {
                let thumbprint = Thumbprint::parse(&key.thumbprint).ok_or("a key that is not a thumbprint")?;
                self.put_once(SubjectName::Key(&thumbprint), since(0));
            }
            Subject::IssuerFloor(floor) => {
                let issuer = Issuer::parse(floor.issuer).map_err(|_| "an invalid issuer")?;
                self.put(SubjectName::Issuer(&issuer), since(floor.issued_up_to));
            }
            Subject::Delegation(delegation) => {
                let principal = delegation.principal.ok_or("a delegation without its principal")?;
                let name = PrincipalName::try_from(principal)
                    .and_then(|principal| DelegationName::parse(principal, delegation.under, delegation.id))
                    .map_err(|_| "an invalid delegation")?;
                self.put_once(SubjectName::Delegation(&name), since(delegation.revoked_at));
            }
            Subject::LogFloor(floor) => self.log_floor = self.log_floor.max(Some(floor.issued_up_to)),
            Subject::IssuerKeys(keys) => {
                let issuer = Issuer::parse(keys.issuer.clone()).map_err(|_| "an invalid issuer")?;
                if keys.keys.len() > MAX_ISSUER_KEYS || keys.encoded_len() > MAX_ISSUER_KEYS_BYTES {
                    return Err("more keys of an issuer than filters accept, or larger ones");
                }
                let new = keys.encoded_len() as u64 + STORED_OVERHEAD;
                let before = Arc::make_mut(&mut self.issuer_keys).insert(issuer.as_str().to_owned(), (seq, keys));
                let before = before.map_or(0, |(_, keys)| keys.encoded_len() as u64 + STORED_OVERHEAD);
                self.bytes = self.bytes.saturating_add(new).saturating_sub(before);
            }
        }
        Ok(())
    }

    /// The state of a subject; none if it was never named.
    pub(crate) fn get(&self, name: SubjectName<'_>) -> Option<SubjectState> {
        if let SubjectName::IssuerKeys(issuer) = name {
            let (seq, keys) = self.issuer_keys.get(issuer.as_str())?;
            return Some(SubjectState {
                seq: *seq,
                time: keys.fetched_at,
                ..SubjectState::default()
            });
        }
        let (issuer, rest) = key_parts(name);
        let key = Key {
            issuer: Arc::clone(self.issuers.get(issuer.as_str())?),
            rest,
        };
        self.shards.get(self.shard_of(&key))?.get(&key).copied()
    }

    /// The fetched keys of an issuer.
    pub(crate) fn issuer_keys(&self, issuer: &str) -> Option<&v1::IssuerKeys> {
        self.issuer_keys.get(issuer).map(|(_, keys)| keys)
    }

    /// Keeps the first record about a subject: repeated requests return its number.
    fn put_once(&mut self, name: SubjectName<'_>, state: SubjectState) {
        if self.get(name).is_none() {
            self.put(name, state);
        }
    }

    /// Replaces the state.
    fn put(&mut self, name: SubjectName<'_>, state: SubjectState) {
        let (issuer, rest) = key_parts(name);
        let issuer = match self.issuers.get(issuer.as_str()) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = issuer.into();
                self.issuers.insert(Arc::clone(&new));
                new
            }
        };
        let key = Key { issuer, rest };
        let shard = self.shard_of(&key);
        let Some(shard) = self.shards.get_mut(shard) else {
            return;
        };
        let bytes = key.stored_bytes();
        if Arc::make_mut(shard).insert(key, state).is_none() {
            self.subjects += 1;
            self.bytes += bytes;
        }
    }

    /// Removes delegations from some shards, if `is_over` returns true for the time of their revocation. Returns how
    /// many were removed. Shard numbers from [`State::SHARDS`] on are ignored.
    pub(crate) fn forget(&mut self, shards: std::ops::Range<usize>, is_over: impl Fn(i64) -> bool) -> usize {
        let over = |key: &Key, state: &SubjectState| is_over(state.time) && key.is(DELEGATION);
        let mut gone = Vec::new();
        let end = shards.end.min(self.shards.len());
        for shard in self.shards.get_mut(shards.start.min(end)..end).unwrap_or_default() {
            // Checks first, so that a shard is copied only if it changes.
            if shard.iter().any(|(key, state)| over(key, state)) {
                let shard = Arc::make_mut(shard);
                gone.extend(shard.extract_if(|key, state| over(key, state)).map(|(key, _)| key));
                shard.shrink_to_fit();
            }
        }
        let forgotten = gone.len();
        for key in gone {
            self.subjects -= 1;
            self.bytes -= key.stored_bytes();
            // Only the set and this key refer to it.
            if Arc::strong_count(&key.issuer) == 2 {
                self.issuers.remove(&key.issuer);
            }
        }
        forgotten
    }

    /// The latest time at which a principal was raised or a delegation revoked.
    pub(crate) fn last_seen(&self) -> Option<i64> {
        let entries = self.shards.iter().flat_map(|shard| shard.iter());
        let times = entries.filter_map(|(key, state)| (!key.is(ISSUER_FLOOR)).then_some(state.time));
        times.filter(|time| *time != 0).max()
    }

    /// Takes time in proportion to the number of shards, not of subjects: microseconds.
    pub(crate) fn freeze(&self) -> FrozenState {
        FrozenState {
            shards: self.shards.clone(),
            subjects: self.subjects,
            log_floor: self.log_floor,
            issuer_keys: Arc::clone(&self.issuer_keys),
        }
    }

    fn shard_of(&self, key: &Key) -> usize {
        if key.is(ISSUER_FLOOR) {
            return FLOORS;
        }
        // The map inside the shard uses the lower and the highest bits of the same hash.
        let hash = self.hasher.hash_one(key) >> 16;
        (hash as u32 as usize) % Self::SHARDS
    }

    /// A million subjects are two hundred per shard, which nearly fills a map of 256 places.
    pub(crate) const SHARDS: usize = 5_000;
}

impl Default for State {
    fn default() -> Self {
        let hasher = RandomState::new();
        let empty = Arc::new(Shard::with_hasher(hasher.clone()));
        Self {
            shards: vec![empty; Self::SHARDS],
            hasher,
            issuers: HashSet::new(),
            subjects: 0,
            bytes: 0,
            log_floor: None,
            issuer_keys: Arc::default(),
        }
    }
}

// === impl FrozenState ===

impl FrozenState {
    /// Records that build this state from an empty one, each with its sequence number. The log's own not-before time
    /// comes first, without a number; then those of issuers: they are few, and revoke the most.
    pub(crate) fn into_records(self) -> impl Iterator<Item = (u64, v1::Record)> + Send {
        let log_floor = self.log_floor.map(|issued_up_to| v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
        });
        let of = |shards: Vec<Arc<Shard>>, floors: bool| {
            shards.into_iter().flat_map(move |shard| {
                let kind = shard.iter().filter(|(key, _)| key.is(ISSUER_FLOOR) == floors);
                kind.map(|(key, state)| (state.seq, key.record(state)))
                    .collect::<Vec<_>>()
            })
        };
        let floors = of(Vec::from_iter(self.shards.get(FLOORS).cloned()), true);
        let log_floor = log_floor.map(|floor| (0, floor)).into_iter();
        let keys: Vec<_> = self.issuer_keys.values().cloned().collect();
        let keys = keys.into_iter().map(|(seq, keys)| {
            let subject = Some(Subject::IssuerKeys(keys));
            (seq, v1::Record { subject })
        });
        log_floor.chain(floors).chain(keys).chain(of(self.shards, false))
    }
}

// === impl SubjectState ===

impl SubjectState {
    /// The record with this state of the subject.
    pub(crate) fn record(&self, mut subject: Subject) -> v1::Record {
        match &mut subject {
            Subject::Principal(principal) => {
                principal.epoch = self.epoch;
                principal.disabled = self.disabled_by != 0;
                principal.raised_at = self.time;
                principal.disabled_by = self.disabled_by;
            }
            Subject::IssuerFloor(floor) => floor.issued_up_to = self.time,
            Subject::Delegation(delegation) => delegation.revoked_at = self.time,
            Subject::Key(_) | Subject::LogFloor(_) | Subject::IssuerKeys(_) => {}
        }
        v1::Record { subject: Some(subject) }
    }
}

// === impl Key ===

impl Key {
    fn record(&self, state: &SubjectState) -> v1::Record {
        // A value encoded here can be decoded.
        let mut record = v1::Record::decode(&*self.rest).unwrap_or_default();
        if let Some(issuer) = record.subject.as_mut().and_then(issuer_of) {
            *issuer = self.issuer.to_string();
        }
        record.subject.map(|subject| state.record(subject)).unwrap_or_default()
    }

    fn is(&self, kind: u8) -> bool {
        self.rest.first() == Some(&kind)
    }

    fn stored_bytes(&self) -> u64 {
        (self.issuer.len() + self.rest.len()) as u64 + STORED_OVERHEAD
    }
}

/// The issuer and the rest of a [`Key`].
fn key_parts(name: SubjectName<'_>) -> (String, Box<[u8]>) {
    let mut subject = name.to_wire();
    let issuer = issuer_of(&mut subject).map(std::mem::take).unwrap_or_default();
    let record = v1::Record { subject: Some(subject) };
    (issuer, record.encode_to_vec().into())
}

fn issuer_of(subject: &mut Subject) -> Option<&mut String> {
    match subject {
        Subject::IssuerFloor(floor) => Some(&mut floor.issuer),
        Subject::Principal(v1::PrincipalState { principal, .. })
        | Subject::Delegation(v1::RevokedDelegation { principal, .. }) => Some(&mut principal.as_mut()?.issuer),
        Subject::Key(_) | Subject::LogFloor(_) | Subject::IssuerKeys(_) => None,
    }
}

/// Tags of `credence.v1.Record`'s members: the field's number, and the wire type of a message.
const ISSUER_FLOOR: u8 = 3 << 3 | 2;
const DELEGATION: u8 = 4 << 3 | 2;

/// The shard of all issuers' not-before times.
const FLOORS: usize = 0;
/// The size of numbers, tags and lengths beside a subject's name in a file.
const STORED_OVERHEAD: u64 = 30;
/// Epochs stay below this, because they travel as JSON numbers, which are exact up to here.
pub(crate) const EPOCH_LIMIT: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{DelegationName, PrincipalName};

    fn principal(issuer: &str, subject: Option<&str>) -> PrincipalName {
        PrincipalName::parse(issuer.to_owned(), subject.map(str::to_owned)).unwrap()
    }

    fn delegation(issuer: &str, subject: Option<&str>, id: &str) -> DelegationName {
        under(issuer, subject, &[], id)
    }

    fn under(issuer: &str, subject: Option<&str>, under: &[&str], id: &str) -> DelegationName {
        let under = under.iter().copied().map(str::to_owned).collect();
        DelegationName::parse(principal(issuer, subject), under, id.to_owned()).unwrap()
    }

    fn revoked_at(time: i64) -> SubjectState {
        SubjectState {
            seq: 1,
            time,
            ..SubjectState::default()
        }
    }

    #[test]
    fn names_that_differ_only_in_where_they_are_cut_are_different_subjects() {
        let mut table = State::default();
        let names = [
            delegation("i", Some("ab"), "c"),
            delegation("i", Some("a"), "bc"),
            delegation("i", None, "abc"),
            delegation("ia", None, "bc"),
            under("i", None, &["a"], "bc"),
            under("i", None, &["a", "b"], "c"),
            under("i", None, &["ab"], "c"),
            under("i", Some("a"), &["b"], "c"),
            under("i", Some("ab"), &["c"], "d"),
        ];
        for (at, name) in names.iter().enumerate() {
            table.put(SubjectName::Delegation(name), revoked_at(at as i64));
        }
        assert_eq!(table.subjects, names.len());
        for (at, name) in names.iter().enumerate() {
            assert_eq!(table.get(SubjectName::Delegation(name)), Some(revoked_at(at as i64)));
        }
        let frozen = table.freeze();
        let mut records: Vec<_> = frozen
            .clone()
            .into_records()
            .filter_map(|(_, record)| record.subject)
            .collect();
        for (at, name) in names.iter().enumerate() {
            let record = revoked_at(at as i64)
                .record(SubjectName::Delegation(name).to_wire())
                .subject
                .unwrap();
            let place = records
                .iter()
                .position(|other| *other == record)
                .expect("the record as it was put in");
            records.swap_remove(place);
        }
    }

    #[test]
    fn a_frozen_state_does_not_change() {
        let mut table = State::default();
        let (known, new) = (principal("i", Some("known")), principal("i", Some("new")));
        let at_epoch = |epoch| SubjectState {
            seq: epoch,
            epoch,
            ..SubjectState::default()
        };
        table.put(SubjectName::Principal(&known), at_epoch(1));
        let frozen = table.freeze();
        table.put(SubjectName::Principal(&known), at_epoch(2));
        table.put(SubjectName::Principal(&new), at_epoch(3));
        let seqs: Vec<_> = frozen.clone().into_records().map(|(seq, _)| seq).collect();
        assert_eq!((seqs, frozen.subjects, table.subjects), (vec![1], 1, 2));
    }

    #[test]
    fn forgetting_takes_delegations_whose_time_has_come_and_nothing_else() {
        let mut table = State::default();
        for id in 0..100 {
            let name = delegation("gone", Some("alice"), &format!("old-{id}"));
            table.put(SubjectName::Delegation(&name), revoked_at(10));
        }
        let young = delegation("i", Some("alice"), "young");
        table.put(SubjectName::Delegation(&young), revoked_at(20));
        let alice = principal("i", Some("alice"));
        table.put(
            SubjectName::Principal(&alice),
            SubjectState {
                epoch: 1,
                ..revoked_at(1)
            },
        );
        let frozen = table.freeze();
        assert_eq!(table.forget(0..State::SHARDS, |revoked_at| revoked_at <= 10), 100);
        assert_eq!(table.subjects, 2);
        assert!(
            table.get(SubjectName::Delegation(&young)).is_some() && table.get(SubjectName::Principal(&alice)).is_some()
        );
        assert_eq!(frozen.clone().into_records().count(), 102);
        drop(frozen);
        assert_eq!(table.forget(0..usize::MAX, |_| true), 1);
        assert_eq!(table.freeze().into_records().count(), 1);
    }
}
