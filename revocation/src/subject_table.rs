//! Every subject in little memory, so that it can be frozen while it goes on changing.
//!
//! The subjects are spread over shards that are shared until they change: to freeze them is to count references, and
//! readers of the frozen ones block no writer. A subject that changes meanwhile costs one copy of its shard. An
//! issuer's name is held once, however many subjects are named by it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_wire::v1;
use credence_wire::v1::record::Subject;

use crate::subject::SubjectName;

/// Every subject's state.
#[derive(Debug)]
pub(crate) struct SubjectTable {
    shards: Vec<Arc<Shard>>,
    hasher: RandomState,
    issuers: HashSet<Arc<str>>,
    subjects: usize,
    bytes: u64,
}

/// What is in force about a subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubjectState {
    /// The record that made it so; 0 if there is none.
    pub seq: u64,
    /// Seconds since the Unix epoch; 0 if there is none: when a principal was raised or a delegation revoked, or up to when an
    /// issuer's roots are void.
    pub time: i64,
    /// A principal's.
    pub epoch: u64,
    /// Bits of [`Source::disabler`](crate::subject::Source::disabler); the principal is disabled while there are any.
    pub disabled_by: u32,
}

/// The table as it was at one instant.
#[derive(Debug, Clone)]
pub(crate) struct FrozenSubjectTable {
    shards: Vec<Arc<Shard>>,
    subjects: usize,
}

type Shard = HashMap<Key, SubjectState, RandomState>;

/// A name as it is kept: `rest` is one byte for the kind and, by kind, the subject, the thumbprint or the id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    issuer: Arc<str>,
    rest: Box<[u8]>,
}

// === impl SubjectTable ===

impl SubjectTable {
    pub(crate) fn get(&self, name: SubjectName<'_>) -> Option<SubjectState> {
        let key = Key {
            issuer: Arc::clone(self.issuers.get(name.issuer())?),
            rest: name.rest(),
        };
        self.shards.get(self.shard_of(&key))?.get(&key).copied()
    }

    /// Replaces what is there.
    pub(crate) fn put(&mut self, name: SubjectName<'_>, state: SubjectState) {
        let issuer = match self.issuers.get(name.issuer()) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = name.issuer().into();
                self.issuers.insert(Arc::clone(&new));
                new
            }
        };
        let key = Key {
            issuer,
            rest: name.rest(),
        };
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

    /// Removes the delegations of some shards for which `is_over` says so of the time of their revocation. Returns how
    /// many there were. Numbers of shards beyond [`SubjectTable::SHARDS`] name none.
    pub(crate) fn forget(&mut self, shards: std::ops::Range<usize>, is_over: impl Fn(i64) -> bool) -> usize {
        let over = |key: &Key, state: &SubjectState| is_over(state.time) && key.is_delegation();
        let mut gone = Vec::new();
        let end = shards.end.min(self.shards.len());
        for shard in self.shards.get_mut(shards.start.min(end)..end).unwrap_or_default() {
            // Looks first, so that a shard in which all is to stay is not copied.
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
            // The set's own, and this one.
            if Arc::strong_count(&key.issuer) == 2 {
                self.issuers.remove(&key.issuer);
            }
        }
        forgotten
    }

    /// The latest time at which a principal was raised or a delegation revoked.
    pub(crate) fn last_seen(&self) -> Option<i64> {
        let entries = self.shards.iter().flat_map(|shard| shard.iter());
        let times = entries.filter_map(|(key, state)| (!key.is_issuer_floor()).then_some(state.time));
        times.filter(|time| *time != 0).max()
    }

    /// Takes time in proportion to the number of shards, not of subjects.
    pub(crate) fn freeze(&self) -> FrozenSubjectTable {
        FrozenSubjectTable {
            shards: self.shards.clone(),
            subjects: self.subjects,
        }
    }

    pub(crate) fn subjects(&self) -> usize {
        self.subjects
    }

    /// About how many bytes a file takes that holds every subject once.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.bytes
    }

    fn shard_of(&self, key: &Key) -> usize {
        // The map inside the shard goes by the lower and the highest bits of the same hash.
        let hash = self.hasher.hash_one(key) >> 16;
        (hash as u32 as usize) % Self::SHARDS
    }

    /// A million subjects are two hundred a shard, which nearly fill a map of 256 places.
    pub(crate) const SHARDS: usize = 5_000;
}

impl Default for SubjectTable {
    fn default() -> Self {
        let hasher = RandomState::new();
        let empty = Arc::new(Shard::with_hasher(hasher.clone()));
        Self {
            shards: vec![empty; Self::SHARDS],
            hasher,
            issuers: HashSet::new(),
            subjects: 0,
            bytes: 0,
        }
    }
}

// === impl FrozenSubjectTable ===

impl FrozenSubjectTable {
    pub(crate) fn subjects(&self) -> usize {
        self.subjects
    }

    /// Every subject's record with its sequence number, issuers' floors first: they are few and void the most.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, v1::Record)> {
        let of = |floors: bool| {
            self.shards
                .iter()
                .flat_map(|shard| shard.iter())
                .filter(move |(key, _)| key.is_issuer_floor() == floors)
                .map(|(key, state)| (state.seq, key.record(state)))
        };
        of(true).chain(of(false))
    }

    /// The records of one shard; nothing if there is no such shard.
    pub(crate) fn shard(&self, index: usize) -> Option<Vec<(u64, v1::Record)>> {
        let shard = self.shards.get(index)?;
        let records = shard.iter().map(|(key, state)| (state.seq, key.record(state)));
        Some(records.collect())
    }
}

// === impl SubjectName ===

impl<'a> SubjectName<'a> {
    fn issuer(self) -> &'a str {
        match self {
            Self::Principal(name) => name.issuer().as_str(),
            Self::Issuer(issuer) => issuer.as_str(),
            Self::Delegation(name) => name.principal().issuer().as_str(),
            Self::Key(_) => "",
        }
    }

    fn rest(self) -> Box<[u8]> {
        match self {
            Self::Issuer(_) => Box::new([ISSUER_FLOOR]),
            Self::Principal(name) => match name.subject() {
                None => Box::new([OWN_PRINCIPAL]),
                Some(subject) => joined(&[&[PRINCIPAL], subject.as_bytes()]),
            },
            Self::Key(thumbprint) => {
                // A thumbprint that was parsed is base64url; if it were not, it would still be told from all others.
                let digest = URL_SAFE_NO_PAD
                    .decode(thumbprint.as_str())
                    .unwrap_or_else(|_| thumbprint.as_str().as_bytes().to_vec());
                joined(&[&[KEY], &digest])
            }
            Self::Delegation(name) => {
                let subject = name.principal().subject();
                let mut rest = vec![match (subject.is_some(), name.under().is_empty()) {
                    (false, true) => OWN_DELEGATION,
                    (true, true) => DELEGATION,
                    (false, false) => OWN_DELEGATION_UNDER,
                    (true, false) => DELEGATION_UNDER,
                }];
                rest.extend(subject.into_iter().flat_map(with_length));
                if !name.under().is_empty() {
                    rest.push(name.under().len() as u8);
                    rest.extend(name.under().iter().flat_map(|id| with_length(id)));
                }
                rest.extend(name.id().as_bytes());
                rest.into_boxed_slice()
            }
        }
    }
}

// === impl Key ===

impl Key {
    fn record(&self, state: &SubjectState) -> v1::Record {
        let (kind, rest) = self
            .rest
            .split_first()
            .map_or((0, &[][..]), |(kind, rest)| (*kind, rest));
        let principal = |subject: Option<&[u8]>| {
            Some(v1::Principal {
                issuer: self.issuer.to_string(),
                subject: subject.map(text),
            })
        };
        let subject = match kind {
            ISSUER_FLOOR => Subject::IssuerFloor(v1::IssuerFloor {
                issuer: self.issuer.to_string(),
                issued_up_to: state.time,
            }),
            KEY => Subject::Key(v1::RevokedKey {
                thumbprint: URL_SAFE_NO_PAD.encode(rest),
            }),
            OWN_PRINCIPAL | PRINCIPAL => Subject::Principal(v1::PrincipalState {
                principal: principal((kind == PRINCIPAL).then_some(rest)),
                epoch: state.epoch,
                disabled: state.disabled_by != 0,
                raised_at: state.time,
                disabled_by: state.disabled_by,
            }),
            _ => {
                let mut rest = rest;
                let subject = matches!(kind, DELEGATION | DELEGATION_UNDER).then(|| take_with_length(&mut rest));
                let mut under = Vec::new();
                if matches!(kind, OWN_DELEGATION_UNDER | DELEGATION_UNDER)
                    && let Some((count, ids)) = rest.split_first()
                {
                    rest = ids;
                    under.extend((0..*count).map(|_| text(take_with_length(&mut rest))));
                }
                Subject::Delegation(v1::RevokedDelegation {
                    principal: principal(subject),
                    id: text(rest),
                    revoked_at: state.time,
                    under,
                })
            }
        };
        v1::Record { subject: Some(subject) }
    }

    fn is_issuer_floor(&self) -> bool {
        self.rest.first() == Some(&ISSUER_FLOOR)
    }

    fn is_delegation(&self) -> bool {
        let kinds = [OWN_DELEGATION, DELEGATION, OWN_DELEGATION_UNDER, DELEGATION_UNDER];
        self.rest.first().is_some_and(|kind| kinds.contains(kind))
    }

    fn stored_bytes(&self) -> u64 {
        (self.issuer.len() + self.rest.len()) as u64 + STORED_OVERHEAD
    }
}

fn joined(parts: &[&[u8]]) -> Box<[u8]> {
    parts.concat().into_boxed_slice()
}

/// Names have at most 256 bytes.
fn with_length(name: &str) -> impl Iterator<Item = u8> {
    let length = (name.len() as u16).to_be_bytes();
    length.into_iter().chain(name.bytes())
}

/// What [`with_length`] has put in front.
fn take_with_length<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, after)) = rest.split_first_chunk::<2>() else {
        return &[];
    };
    let (name, after) = after.split_at(usize::from(u16::from_be_bytes(*length)).min(after.len()));
    *rest = after;
    name
}

/// What was put in was text.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const ISSUER_FLOOR: u8 = b'i';
const OWN_PRINCIPAL: u8 = b'o';
const PRINCIPAL: u8 = b'p';
const KEY: u8 = b'k';
const OWN_DELEGATION: u8 = b'e';
const DELEGATION: u8 = b'd';
const OWN_DELEGATION_UNDER: u8 = b'f';
const DELEGATION_UNDER: u8 = b'u';

/// Numbers, tags and lengths beside a subject's name in a file.
const STORED_OVERHEAD: u64 = 36;

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
        let mut table = SubjectTable::default();
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
        assert_eq!(table.subjects(), names.len());
        for (at, name) in names.iter().enumerate() {
            assert_eq!(table.get(SubjectName::Delegation(name)), Some(revoked_at(at as i64)));
        }
        let frozen = table.freeze();
        let mut records: Vec<_> = frozen.records().filter_map(|(_, record)| record.subject).collect();
        for (at, name) in names.iter().enumerate() {
            let record = Subject::Delegation(name.to_wire(at as i64));
            let place = records
                .iter()
                .position(|other| *other == record)
                .expect("the record as it was put in");
            records.swap_remove(place);
        }
    }

    #[test]
    fn a_frozen_table_stays_as_it_was() {
        let mut table = SubjectTable::default();
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
        let seqs: Vec<_> = frozen.records().map(|(seq, _)| seq).collect();
        assert_eq!((seqs, frozen.subjects(), table.subjects()), (vec![1], 1, 2));
    }

    #[test]
    fn forgetting_takes_delegations_whose_time_has_come_and_nothing_else() {
        let mut table = SubjectTable::default();
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
        assert_eq!(
            table.forget(0..SubjectTable::SHARDS, |revoked_at| revoked_at <= 10),
            100
        );
        assert_eq!(table.subjects(), 2);
        assert!(
            table.get(SubjectName::Delegation(&young)).is_some() && table.get(SubjectName::Principal(&alice)).is_some()
        );
        assert_eq!(frozen.records().count(), 102);
        drop(frozen);
        assert_eq!(table.forget(0..usize::MAX, |_| true), 1);
        assert_eq!(table.freeze().records().count(), 1);
    }
}
