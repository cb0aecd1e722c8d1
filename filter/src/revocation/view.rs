//! The state of every subject that was ever revoked, as one VM knows it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use credence_delegation::revocation::{EPOCH_LIMIT, PrincipalState, RevocationView};
use credence_delegation::{Thumbprint, UnixTime};
use credence_wire::v1::{self, record::Subject};
use siphasher::sip128::{Hasher128, SipHasher24};

/// What one VM knows to be revoked.
///
/// Subjects are remembered by a keyed 128-bit hash and not by name, which keeps the memory of five million of them
/// near 300 MB instead of a multiple. The key is the VM's secret, so that nobody can search for collisions; met by
/// chance (a probability below 2^-80 for a full view over a VM's life) one makes an unrevoked subject look revoked,
/// or merges two principals, whose epochs then differ from what their tokens carry: both deny.
#[derive(Debug)]
pub struct View {
    hasher: SubjectHasher,
    subjects: Subjects,
    revision: u64,
}

/// A snapshot on its way in. It is no `View`, and so can not be consulted before it is complete.
#[derive(Debug)]
pub(super) struct Draft {
    hasher: SubjectHasher,
    subjects: Subjects,
}

/// Why a record was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The control plane sent a record that breaks the contract.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
    /// The view is full.
    #[error(
        "the revocation log holds more than {max_subjects} subjects; expected at most that many, so nothing can be \
         decided: raise control_plane.max_subjects (about 120 bytes of VM memory each while a snapshot arrives), or \
         compact the log"
    )]
    TooManySubjects {
        /// The configured limit.
        max_subjects: usize,
    },
    /// The VM's memory is used up.
    #[error(
        "there is no memory in the VM for more than {subjects} revoked subjects, so nothing can be decided: compact \
         the log, or lower the limits of the caches and of the audit ring"
    )]
    OutOfMemory {
        /// The subjects there was memory for.
        subjects: usize,
    },
}

/// How a record breaks the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// No subject that this version of the filter knows.
    #[error(
        "a revocation record names no subject of a kind this filter knows: update the filter before the control plane"
    )]
    NoSubject,
    /// A subject without its principal.
    #[error("a revocation record lacks its principal")]
    NoPrincipal,
    /// An empty issuer.
    #[error("a revocation record has an empty issuer")]
    EmptyIssuer,
    /// An empty delegation id.
    #[error("a revocation record has an empty delegation id")]
    EmptyDelegationId,
    /// An epoch that JSON can not carry exactly.
    #[error("a revocation record has epoch {0}; expected one below 2^53")]
    EpochTooLarge(u64),
    /// A raise before the Unix epoch.
    #[error("a revocation record says its epoch was raised at {0} seconds; expected 0 or later")]
    NegativeRaise(i64),
    /// Not a SHA-256 thumbprint.
    #[error("a revocation record has a malformed key thumbprint; expected 43 characters of canonical base64url")]
    MalformedThumbprint,
}

#[derive(Debug)]
struct Subjects {
    principals: HashMap<SubjectHash, PackedState, ByOwnBits>,
    keys: HashSet<SubjectHash, ByOwnBits>,
    issuer_floors: HashMap<SubjectHash, i64, ByOwnBits>,
    delegations: HashSet<SubjectHash, ByOwnBits>,
    log_floor: Option<i64>,
    max_subjects: usize,
}

// === impl View ===

impl View {
    /// Moves whenever anything in this view may have changed; local to the VM, and no position in the log.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many subjects are remembered.
    pub fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Whether nothing was ever revoked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.subjects.log_floor.is_none()
    }

    /// Applies one update.
    pub(super) fn apply(&mut self, record: &v1::Record) -> Result<(), ViewError> {
        self.subjects.apply(&self.hasher, record)?;
        self.revision = self.revision.saturating_add(1);
        Ok(())
    }
}

impl RevocationView for View {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState {
        self.subjects
            .principals
            .get(&self.hasher.principal(issuer, subject))
            .map_or_else(PrincipalState::default, PackedState::unpack)
    }

    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        self.subjects.keys.contains(&self.hasher.key(key))
    }

    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        self.subjects
            .issuer_floors
            .get(&self.hasher.issuer(issuer))
            .copied()
            .map(UnixTime)
    }

    fn log_floor(&self) -> Option<UnixTime> {
        self.subjects.log_floor.map(UnixTime)
    }

    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, id: &str) -> bool {
        self.subjects
            .delegations
            .contains(&self.hasher.delegation(issuer, subject, id))
    }
}

// === impl Draft ===

impl Draft {
    /// An empty snapshot for at most `max_subjects` subjects. `secret` must be random and stay in this VM.
    pub(super) fn new(secret: &[u8; 16], max_subjects: usize) -> Self {
        Self {
            hasher: SubjectHasher(SipHasher24::new_with_key(secret)),
            subjects: Subjects {
                principals: HashMap::default(),
                keys: HashSet::default(),
                issuer_floors: HashMap::default(),
                delegations: HashSet::default(),
                log_floor: None,
                max_subjects,
            },
        }
    }

    /// Adds one record of the snapshot.
    pub(super) fn apply(&mut self, record: &v1::Record) -> Result<(), ViewError> {
        self.subjects.apply(&self.hasher, record)
    }

    /// The snapshot is complete. `revision` must be above that of any view of this VM before it.
    pub(super) fn complete(self, revision: u64) -> View {
        View {
            hasher: self.hasher,
            subjects: self.subjects,
            revision,
        }
    }
}

// === impl Subjects ===

impl Subjects {
    fn apply(&mut self, hasher: &SubjectHasher, record: &v1::Record) -> Result<(), ViewError> {
        match record.subject.as_ref().ok_or(InvalidRecord::NoSubject)? {
            Subject::Principal(state) => {
                let (issuer, subject) = parse_principal(state.principal.as_ref())?;
                let packed = PackedState::parse(state)?;
                let hash = hasher.principal(issuer, subject);
                self.check_room(self.principals.contains_key(&hash))?;
                self.principals.try_reserve(1).map_err(|_| self.out_of_memory())?;
                self.principals.insert(hash, packed);
            }
            Subject::Key(key) => {
                let thumbprint = Thumbprint::parse(&key.thumbprint).ok_or(InvalidRecord::MalformedThumbprint)?;
                let hash = hasher.key(&thumbprint);
                self.check_room(self.keys.contains(&hash))?;
                self.keys.try_reserve(1).map_err(|_| self.out_of_memory())?;
                self.keys.insert(hash);
            }
            Subject::IssuerFloor(floor) => {
                let hash = hasher.issuer(parse_issuer(&floor.issuer)?);
                self.check_room(self.issuer_floors.contains_key(&hash))?;
                self.issuer_floors.try_reserve(1).map_err(|_| self.out_of_memory())?;
                self.issuer_floors.insert(hash, floor.issued_up_to);
            }
            Subject::Delegation(delegation) => {
                let (issuer, subject) = parse_principal(delegation.principal.as_ref())?;
                if delegation.id.is_empty() {
                    return Err(InvalidRecord::EmptyDelegationId.into());
                }
                let hash = hasher.delegation(issuer, subject, &delegation.id);
                self.check_room(self.delegations.contains(&hash))?;
                self.delegations.try_reserve(1).map_err(|_| self.out_of_memory())?;
                self.delegations.insert(hash);
            }
            Subject::LogFloor(floor) => self.log_floor = Some(floor.issued_up_to),
        }
        Ok(())
    }

    fn out_of_memory(&self) -> ViewError {
        ViewError::OutOfMemory { subjects: self.len() }
    }

    fn check_room(&self, known_already: bool) -> Result<(), ViewError> {
        if known_already || self.len() < self.max_subjects {
            Ok(())
        } else {
            Err(ViewError::TooManySubjects {
                max_subjects: self.max_subjects,
            })
        }
    }

    fn len(&self) -> usize {
        [
            self.principals.len(),
            self.keys.len(),
            self.issuer_floors.len(),
            self.delegations.len(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}

fn parse_principal(principal: Option<&v1::Principal>) -> Result<(&str, Option<&str>), InvalidRecord> {
    let principal = principal.ok_or(InvalidRecord::NoPrincipal)?;
    Ok((parse_issuer(&principal.issuer)?, principal.subject.as_deref()))
}

fn parse_issuer(issuer: &str) -> Result<&str, InvalidRecord> {
    if issuer.is_empty() {
        return Err(InvalidRecord::EmptyIssuer);
    }
    Ok(issuer)
}

/// A principal's state in sixteen bytes: an epoch is below 2^53, which leaves the top bit for `disabled`.
#[derive(Clone, Copy, Debug)]
struct PackedState {
    epoch_and_disabled: u64,
    raised_at: i64,
}

// === impl PackedState ===

impl PackedState {
    fn parse(state: &v1::PrincipalState) -> Result<Self, InvalidRecord> {
        if state.epoch >= EPOCH_LIMIT {
            return Err(InvalidRecord::EpochTooLarge(state.epoch));
        }
        if state.raised_at < 0 {
            return Err(InvalidRecord::NegativeRaise(state.raised_at));
        }
        let disabled = if state.disabled { DISABLED } else { 0 };
        Ok(Self {
            epoch_and_disabled: state.epoch | disabled,
            raised_at: state.raised_at,
        })
    }

    fn unpack(&self) -> PrincipalState {
        PrincipalState {
            epoch: self.epoch_and_disabled & !DISABLED,
            disabled: self.epoch_and_disabled & DISABLED != 0,
            raised_at: (self.raised_at != 0).then_some(UnixTime(self.raised_at)),
        }
    }
}

const DISABLED: u64 = 1 << 63;

/// Names subjects by SipHash-2-4-128 under the VM's secret. Each kind has its own domain, and every part but the last
/// is preceded by its length, so that no two subjects are hashed from the same bytes.
#[derive(Clone, Copy, Debug)]
struct SubjectHasher(SipHasher24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SubjectHash([u64; 2]);

// === impl SubjectHasher ===

impl SubjectHasher {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> SubjectHash {
        finish(self.owned_by(b'p', issuer, subject))
    }

    fn delegation(&self, issuer: &str, subject: Option<&str>, id: &str) -> SubjectHash {
        let mut state = self.owned_by(b'd', issuer, subject);
        state.write(id.as_bytes());
        finish(state)
    }

    fn key(&self, key: &Thumbprint) -> SubjectHash {
        self.single(b'k', key.as_bytes())
    }

    fn issuer(&self, issuer: &str) -> SubjectHash {
        self.single(b'i', issuer.as_bytes())
    }

    fn single(&self, domain: u8, name: &[u8]) -> SubjectHash {
        let mut state = self.0;
        state.write(&[domain]);
        state.write(name);
        finish(state)
    }

    fn owned_by(&self, domain: u8, issuer: &str, subject: Option<&str>) -> SipHasher24 {
        let mut state = self.0;
        state.write(&[domain]);
        write_with_length(&mut state, issuer);
        match subject {
            None => state.write(&[0]),
            Some(subject) => {
                state.write(&[1]);
                write_with_length(&mut state, subject);
            }
        }
        state
    }
}

fn write_with_length(state: &mut SipHasher24, part: &str) {
    state.write(&(part.len() as u64).to_le_bytes());
    state.write(part.as_bytes());
}

fn finish(state: SipHasher24) -> SubjectHash {
    let hash = state.finish128();
    SubjectHash([hash.h1, hash.h2])
}

/// A subject's hash is evenly distributed and unpredictable already: the tables use its own bits.
#[derive(Debug, Default)]
struct OwnBits(u64);

type ByOwnBits = BuildHasherDefault<OwnBits>;

impl std::hash::Hash for SubjectHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, _] = self.0;
        state.write_u64(first);
    }
}

impl Hasher for OwnBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://id.example.com";
    const THUMBPRINT: &str = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";

    fn principal(issuer: &str, subject: Option<&str>) -> Option<v1::Principal> {
        Some(v1::Principal {
            issuer: issuer.to_owned(),
            subject: subject.map(str::to_owned),
        })
    }

    fn record(subject: Subject) -> v1::Record {
        v1::Record { subject: Some(subject) }
    }

    fn raised(subject: Option<&str>, epoch: u64) -> v1::Record {
        record(Subject::Principal(v1::PrincipalState {
            principal: principal(ISSUER, subject),
            epoch,
            disabled: false,
            raised_at: 1_700_000_000,
            disabled_by: 0,
        }))
    }

    fn revoked_id(subject: Option<&str>, id: &str) -> v1::Record {
        record(Subject::Delegation(v1::RevokedDelegation {
            principal: principal(ISSUER, subject),
            id: id.to_owned(),
            revoked_at: 0,
        }))
    }

    fn revoked_key(thumbprint: &str) -> v1::Record {
        record(Subject::Key(v1::RevokedKey {
            thumbprint: thumbprint.to_owned(),
        }))
    }

    fn view_of(records: &[v1::Record]) -> View {
        let mut draft = Draft::new(&[7; 16], 100);
        for record in records {
            draft.apply(record).unwrap();
        }
        draft.complete(1)
    }

    #[test]
    fn an_unknown_principal_is_in_epoch_zero() {
        let view = view_of(&[]);
        assert!(view.is_empty());
        assert_eq!(view.principal(ISSUER, Some("ana")), PrincipalState::default());
    }

    #[test]
    fn a_principal_is_the_pair_of_issuer_and_subject_or_none() {
        let view = view_of(&[raised(Some("ana"), 5), raised(None, 9)]);
        assert_eq!(view.principal(ISSUER, Some("ana")).epoch, 5);
        assert_eq!(view.principal(ISSUER, None).epoch, 9);
        assert_eq!(
            view.principal(ISSUER, Some("")).epoch,
            0,
            "an empty name is a name, and not the same as none"
        );
        assert_eq!(view.principal("https://other.example", Some("ana")).epoch, 0);
    }

    #[test]
    fn a_principal_keeps_the_largest_epoch_together_with_disabled() {
        let state = v1::PrincipalState {
            principal: principal(ISSUER, None),
            epoch: EPOCH_LIMIT - 1,
            disabled: true,
            raised_at: i64::MAX,
            disabled_by: 1,
        };
        let view = view_of(&[record(Subject::Principal(state))]);
        let expected = PrincipalState {
            epoch: EPOCH_LIMIT - 1,
            disabled: true,
            raised_at: Some(UnixTime(i64::MAX)),
        };
        assert_eq!(view.principal(ISSUER, None), expected);
    }

    #[test]
    fn a_later_record_replaces_the_state() {
        let view = view_of(&[raised(Some("ana"), 5), raised(Some("ana"), 800)]);
        assert_eq!(view.principal(ISSUER, Some("ana")).epoch, 800);
        assert_eq!(view.len(), 1);
    }

    #[test]
    fn a_delegation_id_is_revoked_for_its_own_principal_only() {
        let view = view_of(&[revoked_id(Some("ana"), "d1")]);
        assert!(view.is_delegation_revoked(ISSUER, Some("ana"), "d1"));
        assert!(!view.is_delegation_revoked(ISSUER, Some("ana"), "d2"));
        assert!(!view.is_delegation_revoked(ISSUER, Some("bob"), "d1"));
        assert!(
            !view.is_delegation_revoked(ISSUER, Some("an"), "ad1"),
            "parts do not run into each other"
        );
        assert!(!view.is_delegation_revoked(ISSUER, None, "d1"));
    }

    #[test]
    fn keys_and_floors_are_found() {
        let view = view_of(&[
            revoked_key(THUMBPRINT),
            record(Subject::IssuerFloor(v1::IssuerFloor {
                issuer: ISSUER.to_owned(),
                issued_up_to: 17,
            })),
            record(Subject::LogFloor(v1::LogFloor { issued_up_to: 3 })),
        ]);
        assert!(view.is_key_revoked(&Thumbprint::parse(THUMBPRINT).unwrap()));
        assert!(!view.is_key_revoked(&Thumbprint::parse("AAAAsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs").unwrap()));
        assert_eq!(view.issuer_floor(ISSUER), Some(UnixTime(17)));
        assert_eq!(view.issuer_floor("https://other.example"), None);
        assert_eq!(view.log_floor(), Some(UnixTime(3)));
        assert!(!view.is_empty());
    }

    #[test]
    fn the_revision_moves_with_every_update_and_with_none_that_failed() {
        let mut view = view_of(&[]);
        view.apply(&raised(None, 1)).unwrap();
        view.apply(&raised(None, 1)).unwrap();
        assert_eq!(view.revision(), 3);
        view.apply(&v1::Record::default()).unwrap_err();
        assert_eq!(view.revision(), 3);
    }

    #[test]
    fn a_record_that_breaks_the_contract_is_refused() {
        let no_principal = record(Subject::Principal(v1::PrincipalState::default()));
        let negative = record(Subject::Principal(v1::PrincipalState {
            principal: principal(ISSUER, None),
            raised_at: -1,
            ..Default::default()
        }));
        let no_issuer = record(Subject::IssuerFloor(v1::IssuerFloor::default()));
        let cases = [
            (v1::Record::default(), InvalidRecord::NoSubject),
            (no_principal, InvalidRecord::NoPrincipal),
            (no_issuer, InvalidRecord::EmptyIssuer),
            (revoked_id(None, ""), InvalidRecord::EmptyDelegationId),
            (raised(None, EPOCH_LIMIT), InvalidRecord::EpochTooLarge(EPOCH_LIMIT)),
            (negative, InvalidRecord::NegativeRaise(-1)),
            (revoked_key(&THUMBPRINT[1..]), InvalidRecord::MalformedThumbprint),
            (
                revoked_key(&THUMBPRINT.replace('-', "+")),
                InvalidRecord::MalformedThumbprint,
            ),
            (
                revoked_key(&THUMBPRINT.replace("9Xs", "9Xt")),
                InvalidRecord::MalformedThumbprint,
            ),
        ];
        for (record, expected) in cases {
            let mut draft = Draft::new(&[7; 16], 100);
            assert_eq!(draft.apply(&record), Err(ViewError::Invalid(expected)));
        }
    }

    #[test]
    fn a_full_view_takes_changes_but_no_new_subject() {
        let mut draft = Draft::new(&[7; 16], 2);
        draft.apply(&raised(Some("ana"), 1)).unwrap();
        draft.apply(&revoked_key(THUMBPRINT)).unwrap();
        draft.apply(&raised(Some("ana"), 2)).unwrap();
        draft.apply(&revoked_key(THUMBPRINT)).unwrap();
        assert_eq!(
            draft.apply(&revoked_id(None, "d1")),
            Err(ViewError::TooManySubjects { max_subjects: 2 })
        );
    }
}
