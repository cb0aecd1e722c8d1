//! What an operation would change about the state. Pure: time and randomness are arguments.

use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;

use crate::state::{EPOCH_LIMIT, State, SubjectState};
use crate::subject::{FetchedKeys, MAX_ISSUER_KEYS, MAX_ISSUER_KEYS_BYTES, Operation, Source, SubjectName};

/// The effect of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    /// The subject's new state, to be appended to the log.
    Change { record: v1::Record, epoch: Option<u64> },
    /// This record already has the effect.
    Nothing { seq: u64, epoch: Option<u64> },
}

/// Why an operation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "the principal's epoch cannot be raised beyond 2^53; disable the principal's keys or raise its issuer's floor"
    )]
    EpochExhausted,
    #[error("the principal is unknown and not disabled; there is nothing to enable")]
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

/// The largest number of subjects in the log. The last tenth is reserved for principals, and not-before times are never
/// refused, so that a full log has room for emergency measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) max_subjects: usize,
    /// Subjects that other operations are about to add.
    pub(crate) planned: usize,
}

// === impl State ===

impl State {
    /// What `operation`, requested by `source`, changes. `room` limits the log, `random` is the step of an epoch, and
    /// `now` is in seconds since the Unix epoch, by a clock that is never set back.
    pub(crate) fn plan(
        &self,
        operation: &Operation,
        source: Source,
        now: i64,
        random: u32,
        room: Room,
    ) -> Result<Plan, PlanError> {
        if let Operation::SetIssuerKeys(fetched) = operation {
            return Ok(self.plan_keys(fetched, now));
        }
        let known = self.get(operation.subject());
        let before = known.unwrap_or_default();
        let unchanged = |epoch| Ok(Plan::Nothing { seq: before.seq, epoch });
        let disabled_by = match operation {
            Operation::Raise { from, .. } => match *from {
                // It was already raised from there: a statement that arrives twice has an effect once.
                Some(from) if from < before.epoch => return unchanged(Some(before.epoch)),
                Some(from) if from != before.epoch => {
                    return Err(PlanError::OtherEpoch {
                        from,
                        current: before.epoch,
                    });
                }
                _ => before.disabled_by,
            },
            Operation::Disable(_) => before.disabled_by | source.disabler(),
            // An operator may have mistyped the name. An identity provider enables each user that it reports as active,
            // and few of them were ever disabled.
            Operation::Enable(_) if known.is_none() && source == Source::Operator => {
                return Err(PlanError::NothingToEnable);
            }
            Operation::Enable(_) => before.disabled_by & !source.lifts(),
            Operation::RaiseIssuerFloor { issued_up_to, .. } => {
                if *issued_up_to > now.saturating_add(MAX_FLOOR_AHEAD) {
                    return Err(PlanError::FloorInFuture { now });
                }
                if known.is_some() && before.time >= *issued_up_to {
                    return unchanged(None);
                }
                return Ok(change(operation, &at(*issued_up_to), None));
            }
            // Planned above.
            Operation::SetIssuerKeys(_) => return unchanged(None),
            Operation::RevokeKey(_) | Operation::RevokeDelegation(_) => {
                if known.is_some() {
                    return unchanged(None);
                }
                let (held, limit) = (self.subjects, room.max_subjects);
                if held + room.planned >= limit - limit / 10 {
                    return Err(PlanError::TooManySingles { held, limit });
                }
                return Ok(change(operation, &at(now), None));
            }
        };
        let is_raise = matches!(operation, Operation::Raise { .. });
        if !is_raise && disabled_by == before.disabled_by {
            return unchanged(Some(before.epoch));
        }
        let (held, limit) = (self.subjects, room.max_subjects);
        if known.is_none() && held + room.planned >= limit {
            return Err(PlanError::TooManySubjects { held, limit });
        }
        // A step of 1 to 2^32: too many to guess in a token's lifetime, few enough to raise a principal two million
        // times.
        let epoch = before.epoch.saturating_add(u64::from(random) + 1);
        if epoch >= EPOCH_LIMIT {
            return Err(PlanError::EpochExhausted);
        }
        let raised = SubjectState {
            epoch,
            disabled_by,
            // A clock that was set back must not make roots valid again that were issued before an earlier raise.
            ..at(now.max(before.time))
        };
        Ok(change(operation, &raised, Some(epoch)))
    }

    /// A key that was not fetched stays until another fetch, long enough after the first one, is without it too. Two
    /// replicas that fetch the same keys at about the same time change nothing twice.
    fn plan_keys(&self, fetched: &FetchedKeys, now: i64) -> Plan {
        let issuer = fetched.issuer.as_str();
        let before = self.issuer_keys(issuer);
        let mut keys: Vec<_> = fetched
            .keys
            .iter()
            .take(MAX_ISSUER_KEYS)
            .map(|(jwk, kid)| v1::IssuerKey {
                jwk: jwk.clone(),
                kid: kid.clone().unwrap_or_default(),
                missing_since: 0,
            })
            .collect();
        for key in before.iter().flat_map(|before| &before.keys) {
            // A token could not say which of two keys with one name signed it.
            let is_replaced = keys.iter().any(|found| found.kid == key.kid);
            // A clock that was ahead must not keep a key for good.
            let missing_since = match key.missing_since {
                0 => now,
                since => since.min(now),
            };
            let is_gone = key.missing_since != 0 && now >= missing_since.saturating_add(fetched.apart);
            if !is_replaced && !is_gone && keys.len() < MAX_ISSUER_KEYS {
                keys.push(v1::IssuerKey {
                    missing_since,
                    ..key.clone()
                });
            }
        }
        if let Some(before) = before
            && before.keys == keys
            && before.fetched_at <= now
            && now < before.fetched_at.saturating_add(fetched.apart)
        {
            let known = self.get(SubjectName::IssuerKeys(&fetched.issuer)).unwrap_or_default();
            return Plan::Nothing {
                seq: known.seq,
                epoch: None,
            };
        }
        let mut keys = v1::IssuerKeys {
            issuer: issuer.to_owned(),
            keys,
            fetched_at: now,
            trusted_until: now.saturating_add(fetched.max_age),
        };
        // Missing keys are last, and give way to present ones.
        while keys.encoded_len() > MAX_ISSUER_KEYS_BYTES {
            keys.keys.pop();
        }
        Plan::Change {
            record: v1::Record {
                subject: Some(Subject::IssuerKeys(keys)),
            },
            epoch: None,
        }
    }
}

fn at(time: i64) -> SubjectState {
    SubjectState {
        time,
        ..SubjectState::default()
    }
}

fn change(operation: &Operation, after: &SubjectState, epoch: Option<u64>) -> Plan {
    Plan::Change {
        record: after.record(operation.subject().to_wire()),
        epoch,
    }
}

/// How far an issuer's not-before time may be ahead of the clock, in seconds. One given in milliseconds by error would
/// revoke every root of the issuer for fifty thousand years.
const MAX_FLOOR_AHEAD: i64 = 300;

#[cfg(test)]
mod tests {
    use credence_delegation::Thumbprint;

    use super::*;
    use crate::subject::{DelegationName, Issuer, PrincipalName};

    const NOW: i64 = 1_800_000_000;
    const OPERATOR: Source = Source::Operator;

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
        let plan = state.plan(operation, OPERATOR, NOW, 0, room).unwrap();
        if let Plan::Change { record, .. } = &plan {
            state.apply(1, record.clone()).unwrap();
        }
        plan
    }

    /// Plans, applies as record number `seq`, and returns the plan.
    fn perform(state: &mut State, seq: u64, operation: &Operation, now: i64) -> Plan {
        let plan = state.plan(operation, OPERATOR, now, 6, room(100)).unwrap();
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
        for (random, epoch) in [(0, 1), (u32::MAX, 1 << 32)] {
            let plan = State::default().plan(&raise(alice()), OPERATOR, NOW, random, room(1));
            assert_eq!(principal(&plan.unwrap()).epoch, epoch);
        }
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
        let plan = state.plan(&raise(alice()), OPERATOR, NOW, 6, room(100));
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
    fn repeating_an_operation_changes_nothing_and_names_the_record() {
        let key = Thumbprint::parse(&"A".repeat(43)).unwrap();
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
        let refused = state.plan(&floor(NOW * 1000), OPERATOR, NOW, 0, room(100));
        assert_eq!(refused, Err(PlanError::FloorInFuture { now: NOW }));
    }

    #[test]
    fn a_full_log_still_takes_revocations_of_known_subjects() {
        let mut state = State::default();
        perform(&mut state, 1, &raise(alice()), NOW);
        let step = 0;
        let refused = state.plan(&raise(named("bob")), OPERATOR, NOW, step, room(1));
        assert_eq!(refused, Err(PlanError::TooManySubjects { held: 1, limit: 1 }));
        assert!(matches!(
            state.plan(&raise(alice()), OPERATOR, NOW, step, room(1)),
            Ok(Plan::Change { .. })
        ));
    }

    #[test]
    fn a_log_full_of_delegations_still_takes_principals_and_one_full_of_those_still_takes_floors() {
        let delegation = |id: usize| {
            Operation::RevokeDelegation(DelegationName::parse(alice(), Vec::new(), format!("id-{id}")).unwrap())
        };
        let step = 0;
        let mut state = State::default();
        for id in 0..9 {
            let Plan::Change { record, .. } = state.plan(&delegation(id), OPERATOR, NOW, step, room(10)).unwrap()
            else {
                panic!()
            };
            state.apply(1, record).unwrap();
        }
        let refused = state.plan(&delegation(9), OPERATOR, NOW, step, room(10)).unwrap_err();
        assert_eq!(refused, PlanError::TooManySingles { held: 9, limit: 10 });
        let text = refused.to_string();
        assert!(text.contains("of the 10") && text.contains("--max-subjects"), "{text}");
        assert!(matches!(
            perform_in(&mut state, &raise(alice()), room(10)),
            Plan::Change { .. }
        ));
        let refused = state.plan(&raise(named("bob")), OPERATOR, NOW, step, room(10));
        assert_eq!(refused, Err(PlanError::TooManySubjects { held: 10, limit: 10 }));
        let floor = Operation::RaiseIssuerFloor {
            issuer: issuer(),
            issued_up_to: NOW,
        };
        assert!(matches!(perform_in(&mut state, &floor, room(10)), Plan::Change { .. }));
    }

    #[test]
    fn subjects_planned_by_other_operations_take_up_room_too() {
        let room = Room {
            max_subjects: 2,
            planned: 2,
        };
        let refused = State::default().plan(&raise(alice()), OPERATOR, NOW, 0, room);
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
            &Operation::RevokeKey(Thumbprint::parse(&"A".repeat(43)).unwrap()),
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
            let mut records: Vec<_> = state.freeze().into_records().collect();
            records.sort_by_key(|(seq, _)| *seq);
            records
        };
        let mut rebuilt = State::default();
        for (seq, record) in state.freeze().into_records() {
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
        let plan = state.plan(operation, source, NOW, 6, room(100)).unwrap();
        if let Plan::Change { record, .. } = &plan {
            state.apply(1, record.clone()).unwrap();
        }
        plan
    }

    #[test]
    fn an_identity_provider_cannot_enable_what_an_operator_disabled() {
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
        let ahead = state.plan(&from(raised + 1), Source::Statement, NOW, 6, room(100));
        let expected = PlanError::OtherEpoch {
            from: raised + 1,
            current: raised,
        };
        assert_eq!(ahead, Err(expected));
    }

    fn fetched(keys: &[&str]) -> Operation {
        Operation::SetIssuerKeys(FetchedKeys {
            issuer: issuer(),
            keys: keys
                .iter()
                .map(|key| ((*key).to_owned(), Some(format!("kid of {key}"))))
                .collect(),
            max_age: 1_000,
            apart: 60,
        })
    }

    fn keys_in(state: &State) -> Vec<(String, i64)> {
        let keys = &state.issuer_keys(issuer().as_str()).unwrap().keys;
        keys.iter().map(|key| (key.jwk.clone(), key.missing_since)).collect()
    }

    #[test]
    fn a_new_key_counts_at_once_and_a_missing_one_until_a_later_fetch_is_without_it() {
        let mut state = State::default();
        perform(&mut state, 1, &fetched(&["a", "b"]), NOW);
        perform(&mut state, 2, &fetched(&["b", "c"]), NOW + 100);
        let there = |key: &str| (key.to_owned(), 0);
        assert_eq!(keys_in(&state), [there("b"), there("c"), ("a".to_owned(), NOW + 100)]);
        // Another replica, at about the same time: that is not a second fetch.
        perform(&mut state, 3, &fetched(&["b", "c"]), NOW + 101);
        assert_eq!(keys_in(&state).len(), 3);
        perform(&mut state, 4, &fetched(&["b", "c"]), NOW + 160);
        assert_eq!(keys_in(&state), [there("b"), there("c")]);
        let keys = state.issuer_keys(issuer().as_str()).unwrap();
        assert_eq!((keys.fetched_at, keys.trusted_until), (NOW + 160, NOW + 1_160));
    }

    #[test]
    fn a_key_that_comes_back_is_there_again() {
        let mut state = State::default();
        perform(&mut state, 1, &fetched(&["a", "b"]), NOW);
        perform(&mut state, 2, &fetched(&["b"]), NOW + 100);
        perform(&mut state, 3, &fetched(&["a", "b"]), NOW + 200);
        perform(&mut state, 4, &fetched(&["b"]), NOW + 300);
        assert_eq!(keys_in(&state).len(), 2, "it is missing since this fetch only");
    }

    #[test]
    fn a_new_key_with_the_name_of_an_earlier_one_replaces_it_at_once() {
        let mut state = State::default();
        let named = |jwk: &str, kid: Option<&str>| {
            let Operation::SetIssuerKeys(mut fetched) = fetched(&[]) else {
                panic!("keys")
            };
            fetched.keys = vec![(jwk.to_owned(), kid.map(str::to_owned))];
            Operation::SetIssuerKeys(fetched)
        };
        for (seq, kid) in [(1, Some("sig")), (3, None)] {
            perform(&mut state, seq, &named("old", kid), NOW + 1_000 * seq.cast_signed());
            perform(
                &mut state,
                seq + 1,
                &named("new", kid),
                NOW + 1_000 * seq.cast_signed() + 1,
            );
            assert!(!keys_in(&state).contains(&("old".to_owned(), NOW + 1_000 * seq.cast_signed() + 1)));
            assert!(keys_in(&state).contains(&("new".to_owned(), 0)));
        }
    }

    #[test]
    fn a_clock_that_was_ahead_keeps_no_key_and_no_trust() {
        let mut state = State::default();
        let year = 31_536_000;
        perform(&mut state, 1, &fetched(&["a", "b"]), NOW);
        perform(&mut state, 2, &fetched(&["b"]), NOW + year);
        perform(&mut state, 3, &fetched(&["b"]), NOW + 100);
        perform(&mut state, 4, &fetched(&["b"]), NOW + 200);
        assert_eq!(keys_in(&state), [("b".to_owned(), 0)]);
        assert_eq!(state.issuer_keys(issuer().as_str()).unwrap().trusted_until, NOW + 1_200);
    }

    #[test]
    fn the_same_keys_again_extend_the_trust_once_per_interval() {
        let mut state = State::default();
        perform(&mut state, 1, &fetched(&["a"]), NOW);
        let again = perform(&mut state, 2, &fetched(&["a"]), NOW + 59);
        assert_eq!(again, Plan::Nothing { seq: 1, epoch: None });
        perform(&mut state, 3, &fetched(&["a"]), NOW + 60);
        assert_eq!(state.issuer_keys(issuer().as_str()).unwrap().trusted_until, NOW + 1_060);
    }

    #[test]
    fn missing_keys_leave_room_for_new_ones_and_a_snapshot_has_all() {
        let mut state = State::default();
        let names: Vec<_> = (0..MAX_ISSUER_KEYS).map(|number| number.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        perform(&mut state, 1, &fetched(&names), NOW);
        perform(&mut state, 2, &fetched(&["new"]), NOW + 1);
        assert_eq!(keys_in(&state).len(), MAX_ISSUER_KEYS);
        assert_eq!(keys_in(&state)[0].0, "new");
        let mut copy = State::default();
        for (seq, record) in state.freeze().into_records() {
            copy.apply(seq, record).unwrap();
        }
        assert_eq!(keys_in(&copy), keys_in(&state));
        assert_eq!((copy.bytes, copy.subjects), (state.bytes, state.subjects));
        assert!(state.bytes > 0);
    }
}
