//! The state of every subject that was ever revoked, in one VM.

use std::collections::BTreeMap;

use credence_delegation::revocation::{DelegationPath, EPOCH_LIMIT, Memory, PrincipalState, RevocationView};
use credence_delegation::{IssuerKeys, Thumbprint, UnixTime};
use credence_wire::v1::{self, record::Subject};

use super::forgetting::{RevokedAt, Sweep};
use super::subject_hash::{SubjectHash, SubjectHasher};
use super::subject_table::SubjectTable;

/// The revocations known to one VM.
///
/// Subjects are stored by a keyed 128-bit hash, not by name, which needs less than 40 bytes for each, for names of any
/// length. The key is the VM's secret, so clients cannot search for collisions. A collision by chance has a probability
/// below 2^-80 for a full view over a VM's life. It makes an unrevoked subject look revoked, or merges two principals,
/// whose epochs then differ from those in their tokens: both deny.
#[derive(Debug)]
pub struct View {
    pub(super) subjects: Subjects,
    revision: u64,
    keys_revision: u64,
    memory: Memory,
    sweep: Sweep,
}

/// Why a record was not applied; the text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unapplied {
    /// The control plane sent a record that violates the protocol.
    Invalid(String),
    /// The view, or the VM's memory, is full, so some revocations cannot be stored.
    NoRoom(String),
}

/// The subjects of a view, or of a snapshot that is still arriving. The latter is not a `View`, so no decision can use
/// it before it is complete.
#[derive(Debug)]
pub(super) struct Subjects {
    hasher: SubjectHasher,
    principals: SubjectTable<PackedState>,
    keys: SubjectTable<()>,
    issuer_floors: SubjectTable<i64>,
    delegations: SubjectTable<RevokedAt>,
    log_floor: Option<i64>,
    issuer_keys: BTreeMap<Box<str>, IssuerKeys>,
    max_subjects: usize,
}

// === impl View ===

impl View {
    /// Activates a complete snapshot. `revision` must be above that of any earlier view of this VM. `token_lifetime` is
    /// as in [`View::expect_lifetime`].
    pub(super) fn new(subjects: Subjects, revision: u64, token_lifetime: Option<u64>) -> Self {
        Self {
            subjects,
            revision,
            keys_revision: revision,
            memory: Memory {
                token_lifetime,
                forgotten_before: None,
            },
            sweep: Sweep::default(),
        }
    }

    /// Increases whenever anything in this view may have changed. Local to the VM, not a position in the log.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision at which the keys of issuers last changed.
    pub fn keys_revision(&self) -> u64 {
        self.keys_revision
    }

    /// The number of remembered subjects.
    pub fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Whether the view has no subjects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.subjects.log_floor.is_none()
    }

    /// Applies one update that arrived at about `now`, if the time is known.
    pub(super) fn apply(&mut self, record: &v1::Record, now: Option<UnixTime>) -> Result<(), Unapplied> {
        self.subjects.apply(record, now)?;
        self.revision = self.revision.saturating_add(1);
        if matches!(record.subject, Some(Subject::IssuerKeys(_))) {
            self.keys_revision = self.revision;
        }
        Ok(())
    }

    /// Sets the token lifetime after which the log forgets revoked delegations; `None` if it forgets none.
    pub(super) fn expect_lifetime(&mut self, token_lifetime: Option<u64>) {
        if self.memory.token_lifetime != token_lifetime {
            self.memory.token_lifetime = token_lifetime;
            // Earlier look-ups must be repeated.
            self.revision = self.revision.saturating_add(1);
        }
    }

    /// Forgets some of the revoked delegations whose ids no token can carry any more at `now`: a few at a time, so that
    /// no request waits. Returns their number.
    pub(super) fn forget_some(&mut self, now: UnixTime) -> usize {
        let Some(token_lifetime) = self.memory.token_lifetime else {
            return 0;
        };
        let delegations = &mut self.subjects.delegations;
        let before = delegations.len();
        if let Some(forgotten) = self.sweep.step(delegations, now, token_lifetime) {
            self.memory.forgotten_before = self.memory.forgotten_before.max(Some(forgotten));
        }
        before.saturating_sub(delegations.len())
    }

    /// Whether the view has forgotten too much: an older token may still be valid at `now`.
    pub(super) fn has_forgotten_too_much(&self, now: UnixTime) -> bool {
        match (self.memory.forgotten_before, self.memory.token_lifetime) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(forgotten_before), Some(token_lifetime)) => forgotten_before.plus(token_lifetime) > now,
        }
    }
}

impl RevocationView for View {
    fn principal(&self, issuer: &str, subject: Option<&str>) -> PrincipalState {
        self.subjects
            .principals
            .get(&self.subjects.hasher.principal(issuer, subject))
            .map_or_else(PrincipalState::default, PackedState::unpack)
    }

    fn is_key_revoked(&self, key: &Thumbprint) -> bool {
        self.subjects.keys.contains(&self.subjects.hasher.key(key))
    }

    fn issuer_floor(&self, issuer: &str) -> Option<UnixTime> {
        self.subjects
            .issuer_floors
            .get(&self.subjects.hasher.issuer(issuer))
            .copied()
            .map(UnixTime)
    }

    fn log_floor(&self) -> Option<UnixTime> {
        self.subjects.log_floor.map(UnixTime)
    }

    fn issuer_keys(&self, issuer: &str) -> Option<&IssuerKeys> {
        self.subjects.issuer_keys.get(issuer)
    }

    fn is_delegation_revoked(&self, issuer: &str, subject: Option<&str>, token: DelegationPath<'_>) -> bool {
        let delegations = &self.subjects.delegations;
        delegations.contains(&self.subjects.hasher.delegation(issuer, subject, token.id))
            || (!token.under.is_empty()
                && delegations.contains(&self.subjects.hasher.delegation_under(issuer, subject, token)))
    }

    fn memory(&self) -> Memory {
        self.memory
    }
}

/// Takes about half a millisecond.
const BUCKETS_PER_STEP: usize = 2_048;

// === impl Subjects ===

impl Subjects {
    /// An empty snapshot for at most `max_subjects` subjects. `secret` must be random and stay in this VM.
    pub(super) fn new(secret: &[u8; 16], max_subjects: usize) -> Self {
        Self {
            hasher: SubjectHasher::new(secret),
            principals: SubjectTable::new(),
            keys: SubjectTable::new(),
            issuer_floors: SubjectTable::new(),
            delegations: SubjectTable::new(),
            log_floor: None,
            issuer_keys: BTreeMap::new(),
            max_subjects,
        }
    }

    /// Frees some of the memory, when no view needs it any more; `None` when none is left. Freeing that of a million
    /// subjects at once takes tens of milliseconds, for which no request should wait.
    pub(super) fn dismantle_some(mut self) -> Option<Self> {
        let is_left = self.principals.dismantle_some(BUCKETS_PER_STEP)
            || self.keys.dismantle_some(BUCKETS_PER_STEP)
            || self.issuer_floors.dismantle_some(BUCKETS_PER_STEP)
            || self.delegations.dismantle_some(BUCKETS_PER_STEP);
        is_left.then_some(self)
    }

    /// Applies one record of a snapshot, or an update that arrived at about `now`.
    pub(super) fn apply(&mut self, record: &v1::Record, now: Option<UnixTime>) -> Result<(), Unapplied> {
        let hasher = self.hasher;
        let room = self.max_subjects.saturating_sub(self.len());
        let max_subjects = self.max_subjects;
        let stored = match record.subject.as_ref().ok_or_else(|| {
            invalid("a revocation record names no subject of a kind this filter knows: update the filter before the control plane")
        })? {
            Subject::Principal(state) => {
                let (issuer, subject) = parse_principal(state.principal.as_ref())?;
                let packed = PackedState::parse(state)?;
                let hash = hasher.principal(issuer, subject);
                check_room(room, max_subjects, || self.principals.contains(&hash))?;
                self.principals.insert(hash, packed)
            }
            Subject::Key(key) => {
                let thumbprint = Thumbprint::parse(&key.thumbprint).ok_or_else(|| {
                    invalid("a revocation record has a malformed key thumbprint; expected 43 characters of canonical base64url")
                })?;
                let hash = hasher.key(&thumbprint);
                check_room(room, max_subjects, || self.keys.contains(&hash))?;
                self.keys.insert(hash, ())
            }
            Subject::IssuerFloor(floor) => {
                let hash = hasher.issuer(parse_issuer(&floor.issuer)?);
                check_room(room, max_subjects, || self.issuer_floors.contains(&hash))?;
                self.issuer_floors.insert(hash, floor.issued_up_to)
            }
            Subject::Delegation(delegation) => {
                let (issuer, subject) = parse_principal(delegation.principal.as_ref())?;
                let revoked_at = RevokedAt::parse(delegation.revoked_at).ok_or_else(|| {
                    invalid(format!(
                        "a revocation record says a delegation was revoked at {} seconds; expected 0 or later",
                        delegation.revoked_at
                    ))
                })?;
                let hash = parse_delegation(&hasher, issuer, subject, delegation)?;
                let known = self.delegations.get(&hash).copied();
                check_room(room, max_subjects, || known.is_some())?;
                // Of the earlier record and this one, the one that is kept longer counts.
                let latest = [known, now.map(RevokedAt::at)]
                    .into_iter()
                    .flatten()
                    .fold(revoked_at, RevokedAt::max);
                self.delegations.insert(hash, latest)
            }
            Subject::LogFloor(floor) => {
                self.log_floor = Some(floor.issued_up_to);
                Ok(())
            }
            Subject::IssuerKeys(keys) => {
                let issuer = parse_issuer(&keys.issuer)?;
                // Beyond the limits, keys do not count, which denies: no revocation depends on them.
                let has_room =
                    self.issuer_keys.len() < MAX_ISSUERS_WITH_KEYS || self.issuer_keys.contains_key(issuer);
                if has_room {
                    let jwks = keys.keys.iter().take(MAX_KEYS);
                    let jwks = jwks.map(|key| (key.jwk.as_str(), key.kid.as_str()));
                    let read = IssuerKeys::read(jwks, UnixTime(keys.trusted_until));
                    self.issuer_keys.insert(issuer.into(), read);
                }
                Ok(())
            }
        };
        stored.map_err(|_| {
            Unapplied::NoRoom(format!(
                "the VM has no memory for more than {} revoked subjects, so requests are denied: compact the log, or \
                 lower the limits of the caches and of the audit ring",
                self.len()
            ))
        })
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

/// Keys of one issuer, and issuers with keys that the control plane fetches.
const MAX_KEYS: usize = 16;
const MAX_ISSUERS_WITH_KEYS: usize = 256;

fn check_room(room: usize, max_subjects: usize, is_known: impl FnOnce() -> bool) -> Result<(), Unapplied> {
    if room > 0 || is_known() {
        Ok(())
    } else {
        Err(Unapplied::NoRoom(too_many_subjects(max_subjects)))
    }
}

/// The operator's message about a log that is too large.
pub(super) fn too_many_subjects(max_subjects: usize) -> String {
    format!(
        "the revocation log holds more than {max_subjects} subjects; expected at most that many, so requests are \
         denied: raise control_plane.max_subjects (75 bytes of VM memory each while a snapshot arrives), or compact \
         the log"
    )
}

fn invalid(what: impl Into<String>) -> Unapplied {
    Unapplied::Invalid(what.into())
}

fn parse_principal(principal: Option<&v1::Principal>) -> Result<(&str, Option<&str>), Unapplied> {
    let principal = principal.ok_or_else(|| invalid("a revocation record lacks its principal"))?;
    Ok((parse_issuer(&principal.issuer)?, principal.subject.as_deref()))
}

fn parse_delegation(
    hasher: &SubjectHasher,
    issuer: &str,
    subject: Option<&str>,
    delegation: &v1::RevokedDelegation,
) -> Result<SubjectHash, Unapplied> {
    let id = delegation.id.as_str();
    if id.is_empty() || delegation.under.iter().any(String::is_empty) {
        return Err(invalid("a revocation record has an empty delegation id"));
    }
    if delegation.under.is_empty() {
        return Ok(hasher.delegation(issuer, subject, id));
    }
    if delegation.under.len() > MAX_UNDER {
        return Err(invalid(format!(
            "a revocation record names {} delegations above a revoked one; expected at most {MAX_UNDER}",
            delegation.under.len()
        )));
    }
    let under: Vec<_> = delegation.under.iter().map(String::as_str).collect();
    Ok(hasher.delegation_under(issuer, subject, DelegationPath { under: &under, id }))
}

fn parse_issuer(issuer: &str) -> Result<&str, Unapplied> {
    if issuer.is_empty() {
        return Err(invalid("a revocation record has an empty issuer"));
    }
    Ok(issuer)
}

/// A principal's state in twelve bytes, as words of four: the epoch is below 2^53, and the remaining bits are enough
/// for the year 141,000.
#[derive(Clone, Copy, Debug)]
struct PackedState([u32; 3]);

// === impl PackedState ===

impl PackedState {
    fn parse(state: &v1::PrincipalState) -> Result<Self, Unapplied> {
        if state.epoch >= EPOCH_LIMIT {
            return Err(invalid(format!(
                "a revocation record has epoch {}; expected one below 2^53",
                state.epoch
            )));
        }
        let raised_at = u64::try_from(state.raised_at)
            .map_err(|_| {
                invalid(format!(
                    "a revocation record says its epoch was raised at {} seconds; expected 0 or later",
                    state.raised_at
                ))
            })?
            .min(END_OF_TIME);
        let disabled = if state.disabled { DISABLED } else { 0 };
        let first = state.epoch | disabled | (raised_at >> 32 << RAISED_SHIFT);
        Ok(Self([first as u32, (first >> 32) as u32, raised_at as u32]))
    }

    fn unpack(&self) -> PrincipalState {
        let [low, high, raised_low] = self.0.map(u64::from);
        let first = low | high << 32;
        let raised_at = match first >> RAISED_SHIFT << 32 | raised_low {
            0 => None,
            END_OF_TIME => Some(i64::MAX),
            raised_at => Some(i64::try_from(raised_at).unwrap_or(i64::MAX)),
        };
        PrincipalState {
            epoch: first & EPOCH_BITS,
            disabled: first & DISABLED != 0,
            raised_at: raised_at.map(UnixTime),
        }
    }
}

/// A chain has at most nine tokens (`Limits::delegation_depth`).
const MAX_UNDER: usize = 8;
const EPOCH_BITS: u64 = (1 << 53) - 1;
const DISABLED: u64 = 1 << 53;
const RAISED_SHIFT: u32 = 54;

/// Ten bits beside the epoch, and thirty-two others. A later time becomes this one, after which no token was issued.
const END_OF_TIME: u64 = (1 << 42) - 1;

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
            under: Vec::new(),
        }))
    }

    /// The path of a root.
    fn alone(id: &str) -> DelegationPath<'_> {
        DelegationPath { under: &[], id }
    }

    fn revoked_key(thumbprint: &str) -> v1::Record {
        record(Subject::Key(v1::RevokedKey {
            thumbprint: thumbprint.to_owned(),
        }))
    }

    fn view_of(records: &[v1::Record]) -> View {
        let mut draft = Subjects::new(&[7; 16], 100);
        for record in records {
            draft.apply(record, None).unwrap();
        }
        View::new(draft, 1, None)
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
            "an empty name differs from no name"
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
    fn a_principals_state_is_kept_to_the_bit() {
        for (epoch, disabled, raised_at) in [
            (0, false, 1),
            (0, true, 0),
            (EPOCH_LIMIT - 1, false, 0xffff_ffff),
            (1 << 32, true, 0x1_0000_0000),
            (0x000f_0f0f_0f0f_0f0f, false, 0x3ff_ffff_fffe),
        ] {
            let state = v1::PrincipalState {
                principal: principal(ISSUER, None),
                epoch,
                disabled,
                raised_at,
                disabled_by: 0,
            };
            let expected = PrincipalState {
                epoch,
                disabled,
                raised_at: (raised_at != 0).then_some(UnixTime(raised_at)),
            };
            let view = view_of(&[record(Subject::Principal(state))]);
            assert_eq!(view.principal(ISSUER, None), expected);
        }
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
        assert!(view.is_delegation_revoked(ISSUER, Some("ana"), alone("d1")));
        assert!(!view.is_delegation_revoked(ISSUER, Some("ana"), alone("d2")));
        assert!(!view.is_delegation_revoked(ISSUER, Some("bob"), alone("d1")));
        assert!(
            !view.is_delegation_revoked(ISSUER, Some("an"), alone("ad1")),
            "the boundaries of parts are unambiguous"
        );
        assert!(!view.is_delegation_revoked(ISSUER, None, alone("d1")));
    }

    #[test]
    fn a_delegation_named_with_the_ids_above_it_is_revoked_only_there() {
        let revoked = record(Subject::Delegation(v1::RevokedDelegation {
            principal: principal(ISSUER, Some("ana")),
            id: "leaf".to_owned(),
            revoked_at: 0,
            under: ["root", "mid"].map(str::to_owned).to_vec(),
        }));
        let view = view_of(&[revoked]);
        let is_revoked =
            |subject, under: &[&str], id| view.is_delegation_revoked(ISSUER, subject, DelegationPath { under, id });
        assert!(is_revoked(Some("ana"), &["root", "mid"], "leaf"));
        for (under, id) in [
            (&[][..], "leaf"),
            (&["root"], "leaf"),
            (&["mid", "root"], "leaf"),
            (&["rootm", "id"], "leaf"),
            (&["other", "mid"], "leaf"),
            (&["root", "mid", "leaf"], "leaf"),
            (&["root", "mid"], "other"),
        ] {
            assert!(!is_revoked(Some("ana"), under, id), "{under:?} {id}");
        }
        assert!(!is_revoked(Some("bob"), &["root", "mid"], "leaf"));
    }

    #[test]
    fn a_delegation_named_by_its_id_alone_is_revoked_in_every_chain() {
        let view = view_of(&[revoked_id(None, "d1")]);
        for under in [&[][..], &["root"], &["root", "mid"]] {
            assert!(view.is_delegation_revoked(ISSUER, None, DelegationPath { under, id: "d1" }));
            assert!(!view.is_delegation_revoked(ISSUER, None, DelegationPath { under, id: "d2" }));
        }
    }

    fn revoked_at(id: &str, revoked_at: i64) -> v1::Record {
        record(Subject::Delegation(v1::RevokedDelegation {
            principal: principal(ISSUER, None),
            id: id.to_owned(),
            revoked_at,
            under: Vec::new(),
        }))
    }

    /// A view of a log that assumes lifetimes of 1,000 seconds.
    fn forgetful(records: &[v1::Record]) -> View {
        let mut view = view_of(records);
        view.expect_lifetime(Some(1_000));
        view
    }

    #[test]
    fn a_delegation_is_forgotten_once_no_token_can_carry_its_id() {
        let mut view = forgetful(&[
            revoked_at("old", 5_000),
            revoked_at("new", 5_001),
            revoked_at("for good", 0),
            raised(None, 1),
            revoked_key(THUMBPRINT),
        ]);
        view.forget_some(UnixTime(6_300));
        assert_eq!(view.len(), 5, "there is an allowance of five minutes, too");
        let mut view = View {
            sweep: Sweep::default(),
            ..view
        };
        view.forget_some(UnixTime(6_301));
        assert_eq!(view.len(), 4);
        assert!(!view.is_delegation_revoked(ISSUER, None, alone("old")));
        assert!(view.is_delegation_revoked(ISSUER, None, alone("new")));
        assert!(view.is_delegation_revoked(ISSUER, None, alone("for good")));
        assert_eq!(view.memory().forgotten_before, Some(UnixTime(5_001)));
    }

    #[test]
    fn nothing_is_forgotten_if_the_log_forgets_nothing() {
        let mut view = view_of(&[revoked_at("old", 1)]);
        view.forget_some(UnixTime(i64::MAX));
        assert!(view.is_delegation_revoked(ISSUER, None, alone("old")));
        assert_eq!(view.memory(), Memory::default());
    }

    /// Of two times for one revocation, the later one counts; and no time before the announced one.
    #[test]
    fn a_delegation_is_remembered_from_its_latest_revocation_time() {
        let mut view = forgetful(&[revoked_at("twice", 5_000), revoked_at("forever", 0)]);
        for (record, now) in [
            (revoked_at("twice", 4_000), None),
            (revoked_at("forever", 5), None),
            (revoked_at("slow clock", 5), Some(UnixTime(5_000))),
        ] {
            view.apply(&record, now).unwrap();
        }
        view.forget_some(UnixTime(6_300));
        assert_eq!(view.len(), 3);
    }

    #[test]
    fn forgotten_records_may_become_relevant_again() {
        let mut view = forgetful(&[revoked_at("old", 5_000)]);
        assert!(!view.has_forgotten_too_much(UnixTime(0)), "nothing is forgotten");
        view.forget_some(UnixTime(7_000));
        assert_eq!(view.memory().forgotten_before, Some(UnixTime(5_700)));
        for (lifetime, now, is_too_much) in [
            (Some(1_000), 7_000, false),
            (Some(1_000), 6_700, false),
            (Some(1_000), 6_699, true),
            (Some(1_301), 7_000, true),
            (None, 7_000, true),
        ] {
            view.expect_lifetime(lifetime);
            assert_eq!(
                view.has_forgotten_too_much(UnixTime(now)),
                is_too_much,
                "{lifetime:?} {now}"
            );
        }
    }

    #[test]
    fn the_memory_of_an_old_view_is_freed_step_by_step() {
        let mut draft = Subjects::new(&[7; 16], 1_000_000);
        for number in 0..100_000 {
            draft.apply(&raised(Some(&number.to_string()), 1), None).unwrap();
        }
        let mut remains = Some(draft);
        let mut steps = 0;
        while let Some(some) = remains {
            remains = some.dismantle_some();
            steps += 1;
        }
        assert!((3..100).contains(&steps), "{steps}");
    }

    #[test]
    fn the_revision_changes_with_the_lifetime() {
        let mut view = view_of(&[]);
        for (lifetime, revision) in [(None, 1), (Some(5), 2), (Some(5), 2), (Some(6), 3), (None, 4)] {
            view.expect_lifetime(lifetime);
            assert_eq!((view.revision(), view.memory().token_lifetime), (revision, lifetime));
        }
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
    fn the_revision_changes_with_every_successful_update_only() {
        let mut view = view_of(&[]);
        view.apply(&raised(None, 1), None).unwrap();
        view.apply(&raised(None, 1), None).unwrap();
        assert_eq!(view.revision(), 3);
        view.apply(&v1::Record::default(), None).unwrap_err();
        assert_eq!(view.revision(), 3);
    }

    #[test]
    fn a_record_that_violates_the_protocol_is_refused() {
        let no_principal = record(Subject::Principal(v1::PrincipalState::default()));
        let revoked_before_time = record(Subject::Delegation(v1::RevokedDelegation {
            principal: principal(ISSUER, None),
            id: "d1".to_owned(),
            revoked_at: -1,
            under: Vec::new(),
        }));
        let negative = record(Subject::Principal(v1::PrincipalState {
            principal: principal(ISSUER, None),
            raised_at: -1,
            ..Default::default()
        }));
        let no_issuer = record(Subject::IssuerFloor(v1::IssuerFloor::default()));
        let under = |under: Vec<String>| {
            record(Subject::Delegation(v1::RevokedDelegation {
                principal: principal(ISSUER, None),
                id: "d1".to_owned(),
                revoked_at: 0,
                under,
            }))
        };
        let cases = [
            (under(vec![String::new()]), "an empty delegation id"),
            (
                under(vec!["r".to_owned(); 9]),
                "names 9 delegations above a revoked one; expected at most 8",
            ),
            (v1::Record::default(), "no subject of a kind this filter knows"),
            (no_principal, "lacks its principal"),
            (no_issuer, "an empty issuer"),
            (revoked_id(None, ""), "an empty delegation id"),
            (
                raised(None, EPOCH_LIMIT),
                "has epoch 9007199254740992; expected one below 2^53",
            ),
            (negative, "raised at -1 seconds"),
            (revoked_before_time, "revoked at -1 seconds"),
            (revoked_key(&THUMBPRINT[1..]), "a malformed key thumbprint"),
            (revoked_key(&THUMBPRINT.replace('-', "+")), "a malformed key thumbprint"),
            (
                revoked_key(&THUMBPRINT.replace("9Xs", "9Xt")),
                "a malformed key thumbprint",
            ),
        ];
        for (record, expected) in cases {
            let mut draft = Subjects::new(&[7; 16], 100);
            let error = draft.apply(&record, None).unwrap_err();
            assert!(
                matches!(&error, Unapplied::Invalid(what) if what.contains(expected)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_full_view_accepts_changes_but_no_new_subject() {
        let mut draft = Subjects::new(&[7; 16], 2);
        draft.apply(&raised(Some("ana"), 1), None).unwrap();
        draft.apply(&revoked_key(THUMBPRINT), None).unwrap();
        draft.apply(&raised(Some("ana"), 2), None).unwrap();
        draft.apply(&revoked_key(THUMBPRINT), None).unwrap();
        assert_eq!(
            draft.apply(&revoked_id(None, "d1"), None),
            Err(Unapplied::NoRoom(too_many_subjects(2)))
        );
    }
}
