//! What is revoked, and what an operation would change about it. Pure: time and chance come in as arguments.

use credence_wire::v1;
use credence_wire::v1::record::Subject;

use crate::subject::{DelegationName, Issuer, Operation, PrincipalName, Source, SubjectName, Thumbprint};
use crate::subject_table::{FrozenSubjectTable, SubjectState, SubjectTable};

/// The state of every subject, each with the sequence number of the record that made it so.
#[derive(Debug, Default)]
pub(crate) struct State {
    table: SubjectTable,
    /// Roots of every issuer with `iat` at or before this are void, seconds since the Unix epoch.
    log_floor: Option<i64>,
}

/// What an operation comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    /// The subject's new state, to be appended to the log.
    Change { record: v1::Record, epoch: Option<u64> },
    /// It is so already, since this record.
    Nothing { seq: u64, epoch: Option<u64> },
}

/// Why an operation cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "the principal's epoch cannot be raised beyond 2^53; disable the principal's keys or raise its issuer's floor"
    )]
    EpochExhausted,
    #[error("the principal is not disabled, nor known at all; there is nothing to enable")]
    NothingToEnable,
    #[error(
        "this raises the principal's epoch from {from}, but the epoch is {current}: look it up and name the present one"
    )]
    OtherEpoch { from: u64, current: u64 },
    #[error(
        "issued_up_to lies more than {MAX_FLOOR_AHEAD} seconds in the future; it is in seconds since the Unix epoch \
         (now: {now}) and cannot be lowered later"
    )]
    FloorInFuture { now: i64 },
    #[error(
        "the log holds {held} subjects; single delegations and keys may use up 90 % of the {limit} it is started for. \
         Subjects it knows can still be revoked. Raise the principal's epoch or the issuer's floor instead, or start \
         the control plane with a larger --max-subjects (and the filters' control_plane.max_subjects)"
    )]
    TooManySingles { held: usize, limit: usize },
    #[error(
        "the log holds {held} subjects, and is started for {limit}. Subjects it knows can still be revoked. Raise the \
         issuer's floor instead, which always works, or start the control plane with a larger --max-subjects (and the \
         filters' control_plane.max_subjects)"
    )]
    TooManySubjects { held: usize, limit: usize },
}

/// How many subjects the log may hold. The last tenth is kept for principals, and floors are never refused: so that
/// the emergency measures which a full log calls for find room in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) max_subjects: usize,
    /// Subjects that are about to be added.
    pub(crate) planned: usize,
}

/// How much an epoch grows: random, so that no client can mint for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochStep(u64);

/// The state as it was at one instant, which can be read while the other goes on.
#[derive(Debug, Clone)]
pub(crate) struct FrozenState {
    table: FrozenSubjectTable,
    log_floor: Option<i64>,
}

/// What time it is, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// By the wall clock, which counts as never set back; see [`Timestamps`](crate::timestamps::Timestamps).
    pub(crate) wall: i64,
    /// What a revoked delegation is stamped with; see [`LogClock`](crate::clock::LogClock).
    pub(crate) stamp: i64,
}

// === impl State ===

impl State {
    /// What `operation`, asked for by `source`, changes. `room` bounds the log.
    pub(crate) fn plan(
        &self,
        operation: &Operation,
        source: Source,
        now: Now,
        step: EpochStep,
        room: Room,
    ) -> Result<Plan, PlanError> {
        let known = self.table.get(operation.subject());
        let before = known.unwrap_or_default();
        let raise = |name, disabled_by| self.plan_raise(name, known, disabled_by, now.wall, step, room);
        let subject = match operation {
            Operation::Raise { principal, from } => {
                return match *from {
                    // It has been raised from there already: a statement that arrives twice does nothing twice.
                    Some(from) if from < before.epoch => Ok(before.unchanged()),
                    Some(from) if from != before.epoch => Err(PlanError::OtherEpoch {
                        from,
                        current: before.epoch,
                    }),
                    _ => raise(principal, before.disabled_by),
                };
            }
            Operation::Disable(_) if before.disabled_by & source.disabler() != 0 => return Ok(before.unchanged()),
            Operation::Disable(name) => return raise(name, before.disabled_by | source.disabler()),
            // An operator may have mistyped the name. An identity provider enables each user that it reports as active, and
            // few of them were ever disabled.
            Operation::Enable(_) if known.is_none() && source == Source::Operator => {
                return Err(PlanError::NothingToEnable);
            }
            Operation::Enable(_) if before.disabled_by & source.lifts() == 0 => return Ok(before.unchanged()),
            Operation::Enable(name) => return raise(name, before.disabled_by & !source.lifts()),
            Operation::RaiseIssuerFloor { issuer, issued_up_to } => {
                if *issued_up_to > now.wall.saturating_add(MAX_FLOOR_AHEAD) {
                    return Err(PlanError::FloorInFuture { now: now.wall });
                }
                if let Some(SubjectState { seq, .. }) = known.filter(|known| known.time >= *issued_up_to) {
                    return Ok(Plan::Nothing { seq, epoch: None });
                }
                Subject::IssuerFloor(v1::IssuerFloor {
                    issuer: issuer.as_str().to_owned(),
                    issued_up_to: *issued_up_to,
                })
            }
            Operation::RevokeKey(_) | Operation::RevokeDelegation(_) if known.is_some() => {
                return Ok(Plan::Nothing {
                    seq: before.seq,
                    epoch: None,
                });
            }
            Operation::RevokeKey(thumbprint) => {
                self.check_room_for_single(room)?;
                Subject::Key(v1::RevokedKey {
                    thumbprint: thumbprint.as_str().to_owned(),
                })
            }
            Operation::RevokeDelegation(name) => {
                self.check_room_for_single(room)?;
                Subject::Delegation(name.to_wire(now.stamp))
            }
        };
        Ok(Plan::Change {
            record: v1::Record { subject: Some(subject) },
            epoch: None,
        })
    }

    /// Takes a durable record in. The error says why a log that holds it is not ours.
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
                let name = PrincipalName::try_from(name).map_err(|_| "a principal that cannot be one")?;
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
                self.table.put(SubjectName::Principal(&name), value);
            }
            Subject::Key(key) => {
                let thumbprint = Thumbprint::parse(key.thumbprint).map_err(|_| "a key that is no thumbprint")?;
                self.put_once(SubjectName::Key(&thumbprint), since(0));
            }
            Subject::IssuerFloor(floor) => {
                let issuer = Issuer::parse(floor.issuer).map_err(|_| "an issuer that cannot be one")?;
                self.table.put(SubjectName::Issuer(&issuer), since(floor.issued_up_to));
            }
            Subject::Delegation(delegation) => {
                let principal = delegation.principal.ok_or("a delegation without its principal")?;
                let name = PrincipalName::try_from(principal)
                    .and_then(|principal| DelegationName::parse(principal, delegation.under, delegation.id))
                    .map_err(|_| "a delegation that cannot be one")?;
                self.put_once(SubjectName::Delegation(&name), since(delegation.revoked_at));
            }
            Subject::LogFloor(floor) => {
                self.log_floor = Some(
                    self.log_floor
                        .map_or(floor.issued_up_to, |old| old.max(floor.issued_up_to)),
                );
            }
        }
        Ok(())
    }

    /// What is in force about a subject; nothing if it was never named.
    pub(crate) fn get(&self, name: SubjectName<'_>) -> Option<SubjectState> {
        self.table.get(name)
    }

    /// Takes microseconds.
    pub(crate) fn freeze(&self) -> FrozenState {
        FrozenState {
            table: self.table.freeze(),
            log_floor: self.log_floor,
        }
    }

    /// Forgets the delegations of some shards for which `is_over` says so; see [`SubjectTable::forget`].
    pub(crate) fn forget(&mut self, shards: std::ops::Range<usize>, is_over: impl Fn(i64) -> bool) -> usize {
        self.table.forget(shards, is_over)
    }

    /// The latest time, in seconds since the Unix epoch, that anything in the log was stamped with.
    pub(crate) fn last_seen(&self) -> Option<i64> {
        self.table.last_seen()
    }

    /// How many subjects the log holds.
    pub(crate) fn subjects(&self) -> usize {
        self.table.subjects()
    }

    /// About how many bytes a file takes that holds every subject once.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.table.stored_bytes()
    }

    /// The first record about a subject stays: a caller that asks again is told its number.
    fn put_once(&mut self, name: SubjectName<'_>, state: SubjectState) {
        if self.table.get(name).is_none() {
            self.table.put(name, state);
        }
    }

    pub(crate) fn floor_of_all(&self) -> Option<i64> {
        self.log_floor
    }

    fn plan_raise(
        &self,
        name: &PrincipalName,
        known: Option<SubjectState>,
        disabled_by: u32,
        now: i64,
        step: EpochStep,
        room: Room,
    ) -> Result<Plan, PlanError> {
        if known.is_none() {
            self.check_room_for_principal(room)?;
        }
        let old = known.unwrap_or_default();
        let epoch = old.epoch.saturating_add(step.0);
        if epoch >= EPOCH_LIMIT {
            return Err(PlanError::EpochExhausted);
        }
        // A clock that was set back must not revive roots issued before an earlier raise.
        let raised_at = now.max(old.time);
        let record = v1::PrincipalState {
            principal: Some(name.to_wire()),
            epoch,
            disabled: disabled_by != 0,
            raised_at,
            disabled_by,
        };
        Ok(Plan::Change {
            record: v1::Record {
                subject: Some(Subject::Principal(record)),
            },
            epoch: Some(epoch),
        })
    }

    fn check_room_for_single(&self, room: Room) -> Result<(), PlanError> {
        let (held, limit) = (self.subjects(), room.max_subjects);
        if held + room.planned < limit - limit / 10 {
            Ok(())
        } else {
            Err(PlanError::TooManySingles { held, limit })
        }
    }

    fn check_room_for_principal(&self, room: Room) -> Result<(), PlanError> {
        let (held, limit) = (self.subjects(), room.max_subjects);
        if held + room.planned < limit {
            Ok(())
        } else {
            Err(PlanError::TooManySubjects { held, limit })
        }
    }
}

// === impl EpochStep ===

impl EpochStep {
    /// A step of 1 to 2^32 out of 32 random bits: too many to try in the lifetime of a token, few enough that a
    /// principal can be raised two million times.
    pub(crate) fn from_random(bits: u32) -> Self {
        Self(u64::from(bits) + 1)
    }
}

// === impl FrozenState ===

impl FrozenState {
    /// Records that, applied to nothing, give this state, each with its sequence number. Only the log's own floor has
    /// none, and comes first.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, v1::Record)> {
        self.floor()
            .map(|floor| (0, floor))
            .into_iter()
            .chain(self.table.records())
    }

    /// The same records in parts: the log's own floor, then those of each shard of the table. Nothing beyond the last.
    pub(crate) fn part(&self, index: usize) -> Option<Vec<(u64, v1::Record)>> {
        match index.checked_sub(1) {
            None => Some(self.floor().map(|floor| (0, floor)).into_iter().collect()),
            Some(shard) => self.table.shard(shard),
        }
    }

    fn floor(&self) -> Option<v1::Record> {
        self.log_floor.map(|issued_up_to| v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
        })
    }

    /// Without the log's floor.
    pub(crate) fn subjects(&self) -> usize {
        self.table.subjects()
    }
}

impl SubjectState {
    fn unchanged(&self) -> Plan {
        Plan::Nothing {
            seq: self.seq,
            epoch: Some(self.epoch),
        }
    }
}

/// Epochs stay below this: they travel as JSON numbers, which are exact up to here.
const EPOCH_LIMIT: u64 = 1 << 53;
/// Seconds that an issuer floor may lie ahead of our clock. A floor in milliseconds, by mistake, would void every
/// root of the issuer for fifty thousand years.
const MAX_FLOOR_AHEAD: i64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const OPERATOR: Source = Source::Operator;

    /// Both clocks agree.
    fn at(now: i64) -> Now {
        Now { wall: now, stamp: now }
    }

    fn raise(principal: PrincipalName) -> Operation {
        Operation::Raise { principal, from: None }
    }

    fn alice() -> PrincipalName {
        PrincipalName::parse("https://id.example.com".to_owned(), Some("alice".to_owned())).unwrap()
    }

    fn issuer() -> Issuer {
        Issuer::parse("https://id.example.com".to_owned()).unwrap()
    }

    fn named(subject: &str) -> PrincipalName {
        PrincipalName::parse("https://id.example.com".to_owned(), Some(subject.to_owned())).unwrap()
    }

    fn room(max_subjects: usize) -> Room {
        Room {
            max_subjects,
            planned: 0,
        }
    }

    fn perform_in(state: &mut State, operation: &Operation, room: Room) -> Plan {
        let plan = state
            .plan(operation, OPERATOR, at(NOW), EpochStep::from_random(0), room)
            .unwrap();
        if let Plan::Change { record, .. } = &plan {
            state.apply(1, record.clone()).unwrap();
        }
        plan
    }

    /// Plans, applies as record number `seq`, and returns the plan.
    fn perform(state: &mut State, seq: u64, operation: &Operation, now: i64) -> Plan {
        let plan = state
            .plan(operation, OPERATOR, at(now), EpochStep::from_random(6), room(100))
            .unwrap();
        if let Plan::Change { record, .. } = &plan {
            state.apply(seq, record.clone()).unwrap();
        }
        plan
    }

    fn principal(plan: &Plan) -> v1::PrincipalState {
        match plan {
            Plan::Change {
                record: v1::Record {
                    subject: Some(Subject::Principal(principal)),
                },
                ..
            } => principal.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_step_is_between_one_and_two_to_the_thirty_two() {
        assert_eq!(EpochStep::from_random(0), EpochStep(1));
        assert_eq!(EpochStep::from_random(u32::MAX), EpochStep(1 << 32));
    }

    #[test]
    fn a_raise_adds_the_step_and_notes_the_time() {
        let mut state = State::default();
        let first = principal(&perform(&mut state, 1, &raise(alice()), NOW));
        assert_eq!((first.epoch, first.disabled, first.raised_at), (7, false, NOW));
        let second = principal(&perform(&mut state, 2, &raise(alice()), NOW + 1));
        assert_eq!((second.epoch, second.raised_at), (14, NOW + 1));
    }

    #[test]
    fn a_clock_set_back_does_not_lower_the_time_of_the_last_raise() {
        let mut state = State::default();
        perform(&mut state, 1, &raise(alice()), NOW);
        let second = principal(&perform(&mut state, 2, &raise(alice()), NOW - 500));
        assert_eq!(second.raised_at, NOW);
    }

    #[test]
    fn an_epoch_never_reaches_two_to_the_fifty_third() {
        let mut state = State::default();
        let record = v1::PrincipalState {
            principal: Some(alice().to_wire()),
            epoch: EPOCH_LIMIT - 7,
            ..Default::default()
        };
        state
            .apply(
                1,
                v1::Record {
                    subject: Some(Subject::Principal(record)),
                },
            )
            .unwrap();
        let plan = state.plan(&raise(alice()), OPERATOR, at(NOW), EpochStep::from_random(6), room(100));
        assert_eq!(plan, Err(PlanError::EpochExhausted));
    }

    #[test]
    fn a_disabled_principal_stays_disabled_until_it_is_enabled_and_each_change_raises() {
        let mut state = State::default();
        let disabled = principal(&perform(&mut state, 1, &Operation::Disable(alice()), NOW));
        assert_eq!((disabled.epoch, disabled.disabled), (7, true));
        let raised = principal(&perform(&mut state, 2, &raise(alice()), NOW));
        assert_eq!((raised.epoch, raised.disabled), (14, true));
        let enabled = principal(&perform(&mut state, 3, &Operation::Enable(alice()), NOW));
        assert_eq!((enabled.epoch, enabled.disabled), (21, false));
    }

    #[test]
    fn repeating_what_is_already_so_changes_nothing_and_names_the_record() {
        let key = Thumbprint::parse("A".repeat(43)).unwrap();
        let delegation = DelegationName::parse(alice(), Vec::new(), "jti".to_owned()).unwrap();
        let operations = [
            (Operation::Disable(alice()), Some(7)),
            (Operation::RevokeKey(key), None),
            (
                Operation::RaiseIssuerFloor {
                    issuer: issuer(),
                    issued_up_to: NOW,
                },
                None,
            ),
            (Operation::RevokeDelegation(delegation), None),
        ];
        let mut state = State::default();
        for (index, (operation, _)) in operations.iter().enumerate() {
            assert!(matches!(
                perform(&mut state, index as u64 + 1, operation, NOW),
                Plan::Change { .. }
            ));
        }
        for (index, (operation, epoch)) in operations.iter().enumerate() {
            let again = perform(&mut state, 99, operation, NOW);
            assert_eq!(
                again,
                Plan::Nothing {
                    seq: index as u64 + 1,
                    epoch: *epoch
                }
            );
        }
    }

    #[test]
    fn an_issuer_floor_only_rises_and_not_into_the_far_future() {
        let mut state = State::default();
        let floor = |issued_up_to| Operation::RaiseIssuerFloor {
            issuer: issuer(),
            issued_up_to,
        };
        perform(&mut state, 1, &floor(NOW), NOW);
        assert_eq!(
            perform(&mut state, 2, &floor(NOW - 1), NOW),
            Plan::Nothing { seq: 1, epoch: None }
        );
        let refused = state.plan(
            &floor(NOW * 1000),
            OPERATOR,
            at(NOW),
            EpochStep::from_random(0),
            room(100),
        );
        assert_eq!(refused, Err(PlanError::FloorInFuture { now: NOW }));
    }

    #[test]
    fn a_full_log_still_takes_revocations_of_known_subjects() {
        let mut state = State::default();
        perform(&mut state, 1, &raise(alice()), NOW);
        let step = EpochStep::from_random(0);
        let refused = state.plan(&raise(named("bob")), OPERATOR, at(NOW), step, room(1));
        assert_eq!(refused, Err(PlanError::TooManySubjects { held: 1, limit: 1 }));
        assert!(matches!(
            state.plan(&raise(alice()), OPERATOR, at(NOW), step, room(1)),
            Ok(Plan::Change { .. })
        ));
    }

    #[test]
    fn a_log_full_of_delegations_still_takes_principals_and_one_full_of_those_still_takes_floors() {
        let delegation = |id: usize| {
            Operation::RevokeDelegation(DelegationName::parse(alice(), Vec::new(), format!("id-{id}")).unwrap())
        };
        let step = EpochStep::from_random(0);
        let mut state = State::default();
        for id in 0..9 {
            let Plan::Change { record, .. } = state.plan(&delegation(id), OPERATOR, at(NOW), step, room(10)).unwrap()
            else {
                panic!()
            };
            state.apply(1, record).unwrap();
        }
        let refused = state
            .plan(&delegation(9), OPERATOR, at(NOW), step, room(10))
            .unwrap_err();
        assert_eq!(refused, PlanError::TooManySingles { held: 9, limit: 10 });
        let text = refused.to_string();
        assert!(text.contains("of the 10") && text.contains("--max-subjects"), "{text}");
        assert!(matches!(
            perform_in(&mut state, &raise(alice()), room(10)),
            Plan::Change { .. }
        ));
        let refused = state.plan(&raise(named("bob")), OPERATOR, at(NOW), step, room(10));
        assert_eq!(refused, Err(PlanError::TooManySubjects { held: 10, limit: 10 }));
        let floor = Operation::RaiseIssuerFloor {
            issuer: issuer(),
            issued_up_to: NOW,
        };
        assert!(matches!(perform_in(&mut state, &floor, room(10)), Plan::Change { .. }));
    }

    #[test]
    fn what_is_planned_beside_an_operation_takes_up_room_too() {
        let room = Room {
            max_subjects: 2,
            planned: 2,
        };
        let refused = State::default().plan(&raise(alice()), OPERATOR, at(NOW), EpochStep::from_random(0), room);
        assert_eq!(refused, Err(PlanError::TooManySubjects { held: 0, limit: 2 }));
    }

    #[test]
    fn the_records_of_a_state_rebuild_it() {
        let mut state = State::default();
        state
            .apply(
                1,
                v1::Record {
                    subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to: 5 })),
                },
            )
            .unwrap();
        perform(&mut state, 2, &Operation::Disable(alice()), NOW);
        perform(
            &mut state,
            3,
            &Operation::RevokeKey(Thumbprint::parse("A".repeat(43)).unwrap()),
            NOW,
        );
        perform(
            &mut state,
            4,
            &Operation::RaiseIssuerFloor {
                issuer: issuer(),
                issued_up_to: NOW,
            },
            NOW,
        );
        let delegation = DelegationName::parse(alice(), Vec::new(), "jti".to_owned()).unwrap();
        perform(&mut state, 5, &Operation::RevokeDelegation(delegation), NOW);
        let sorted = |state: &State| {
            let mut records: Vec<_> = state.freeze().records().collect();
            records.sort_by_key(|(seq, _)| *seq);
            records
        };
        let mut rebuilt = State::default();
        for (seq, record) in state.freeze().records() {
            rebuilt.apply(seq, record).unwrap();
        }
        assert_eq!(sorted(&rebuilt), sorted(&state));
        assert_eq!(
            sorted(&state).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
            [0, 2, 3, 4, 5]
        );
    }

    #[test]
    fn a_record_that_this_version_does_not_know_is_refused() {
        assert!(State::default().apply(1, v1::Record { subject: None }).is_err());
    }

    fn performed_by(state: &mut State, source: Source, operation: &Operation) -> Plan {
        let plan = state
            .plan(operation, source, at(NOW), EpochStep::from_random(6), room(100))
            .unwrap();
        if let Plan::Change { record, .. } = &plan {
            state.apply(1, record.clone()).unwrap();
        }
        plan
    }

    #[test]
    fn what_an_operator_disabled_no_identity_provider_enables() {
        let mut state = State::default();
        performed_by(&mut state, Source::Provisioning, &Operation::Disable(alice()));
        let both = principal(&performed_by(&mut state, OPERATOR, &Operation::Disable(alice())));
        assert!(both.disabled);
        let one_left = principal(&performed_by(
            &mut state,
            Source::Provisioning,
            &Operation::Enable(alice()),
        ));
        assert!(one_left.disabled && one_left.epoch > both.epoch);
        let again = performed_by(&mut state, Source::Provisioning, &Operation::Enable(alice()));
        assert!(matches!(again, Plan::Nothing { .. }));
        assert!(!principal(&performed_by(&mut state, OPERATOR, &Operation::Enable(alice()))).disabled);
    }

    #[test]
    fn an_operator_lifts_every_disable() {
        let mut state = State::default();
        for source in [Source::Provisioning, Source::SecurityEvent, OPERATOR] {
            performed_by(&mut state, source, &Operation::Disable(alice()));
        }
        assert!(!principal(&performed_by(&mut state, OPERATOR, &Operation::Enable(alice()))).disabled);
    }

    #[test]
    fn a_raise_from_an_epoch_happens_once() {
        let from = |from| Operation::Raise {
            principal: alice(),
            from: Some(from),
        };
        let mut state = State::default();
        let raised = principal(&performed_by(&mut state, Source::Statement, &from(0))).epoch;
        let again = performed_by(&mut state, Source::Statement, &from(0));
        assert_eq!(
            again,
            Plan::Nothing {
                seq: 1,
                epoch: Some(raised)
            }
        );
        let ahead = state.plan(
            &from(raised + 1),
            Source::Statement,
            at(NOW),
            EpochStep::from_random(6),
            room(100),
        );
        let expected = PlanError::OtherEpoch {
            from: raised + 1,
            current: raised,
        };
        assert_eq!(ahead, Err(expected));
    }
}
