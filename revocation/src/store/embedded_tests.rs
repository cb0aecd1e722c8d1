use credence_delegation::Thumbprint;
use credence_wire::v1::RevokedKey;
use tempfile::TempDir;

use super::*;
use crate::clock::Forgotten;
use crate::digest_history::ForeignPosition;
use crate::log_view::{HistoryBounds, LogView};
use crate::provenance::Provenance;
use crate::store::beginning::Chunk;
use crate::store::group::EncodedRecord;
use crate::subject::{Operation, Order, Requester, Source};

/// How a transaction fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    /// The disk is full.
    Full,
    /// The transaction is not in the file afterwards.
    Absent,
    /// The sync fails, but the transaction is in the file afterwards.
    Present,
}

impl EmbeddedStore {
    pub(crate) fn fail_next(&self, failing: Failing) {
        *self.failing.lock().unwrap() = Some(failing);
    }

    pub(super) fn fail(&self, transaction: WriteTransaction) -> Result<WriteTransaction, Error> {
        let kind = match self.failing.lock().unwrap().take() {
            None => return Ok(transaction),
            Some(Failing::Full) => std::io::ErrorKind::StorageFull,
            Some(Failing::Absent) => std::io::ErrorKind::Other,
            Some(Failing::Present) => {
                transaction.commit()?;
                std::io::ErrorKind::Other
            }
        };
        Err(std::io::Error::from(kind).into())
    }
}

/// A log in its own folder, with the view of everything acknowledged.
struct Log {
    folder: TempDir,
    store: EmbeddedStore,
    view: LogView,
}

/// The compared state of a log: its last position, its number of subjects and its not-before time.
type Contents = (Head, usize, Option<i64>);

const ALL: HistoryBounds = HistoryBounds {
    entries: usize::MAX,
    bytes: usize::MAX,
};

impl Log {
    fn of(records: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        create(&path_in(&folder), &LogId::random().unwrap(), None).unwrap();
        let store = open(&path_in(&folder)).unwrap();
        let view = read(&store).unwrap();
        let mut log = Self { folder, store, view };
        if records > 0 {
            log.raise(records);
        }
        log
    }

    fn path(&self) -> PathBuf {
        path_in(&self.folder)
    }

    fn head(&self) -> Head {
        self.view.digests.head
    }

    /// A group of this many records, each about another key.
    fn next(&self, records: u64) -> Group {
        let head = self.head();
        let records = (1..=records).map(|nth| nth_key(head.seq + nth)).collect();
        Group::following(head, records, Vec::new())
    }

    fn raise(&mut self, records: u64) {
        let group = self.next(records);
        self.store.append(self.head(), &group).unwrap();
        self.take(group);
    }

    fn take(&mut self, group: Group) {
        for record in group.records {
            self.view.append(record).unwrap();
        }
    }

    fn cut(&self) -> Cut {
        Cut::new(self.view.state.freeze(), self.view.digests.clone(), self.store.bytes())
    }

    fn compact(&self) {
        let mut cut = self.cut();
        while self.store.compact(&mut cut).unwrap() {}
    }

    fn reopen(&mut self) {
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let parked = Log::of(0);
        drop(std::mem::replace(&mut self.store, parked.store));
        self.store = open(&path_in(&folder)).unwrap();
        self.folder = folder;
    }

    fn contents(&self) -> Contents {
        contents(&self.view)
    }

    /// The state that a new process finds.
    fn found(&self) -> Contents {
        found_in(&std::fs::read(self.path()).unwrap()).unwrap()
    }
}

fn path_in(folder: &TempDir) -> PathBuf {
    folder.path().join("state.redb")
}

fn open(path: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(path, FolderWatch::of_nothing())
}

fn read(store: &EmbeddedStore) -> Result<LogView, StoreError> {
    let mut view = LogView::new(&store.log_id(), ALL);
    store.replay(&mut view)?;
    Ok(view)
}

fn contents(view: &LogView) -> Contents {
    (view.digests.head, view.state.subjects, view.state.log_floor)
}

fn found_in(file: &[u8]) -> Result<Contents, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(path_in(&folder), file).unwrap();
    Ok(contents(&read(&open(&path_in(&folder))?)?))
}

/// A group of this many delegations, revoked at the seconds from 1 on.
pub(crate) fn delegations(after: Head, count: i64) -> Group {
    let revoked = |revoked_at: i64| {
        let principal = v1::Principal {
            issuer: "https://id.example.com".to_owned(),
            subject: Some("alice".to_owned()),
        };
        let delegation = v1::RevokedDelegation {
            principal: Some(principal),
            id: format!("delegation-{revoked_at}"),
            revoked_at,
            under: Vec::new(),
        };
        let record = v1::Record {
            subject: Some(Subject::Delegation(delegation)),
        };
        record.into()
    };
    Group::following(after, (1..=count).map(revoked).collect(), Vec::new())
}

/// The key that record number `seq` revokes. Each is another one.
fn nth_key(seq: u64) -> EncodedRecord {
    let mut thumbprint = [0; 32];
    thumbprint[..8].copy_from_slice(&seq.to_be_bytes());
    let thumbprint = Thumbprint::from_bytes(thumbprint).to_string();
    v1::Record {
        subject: Some(Subject::Key(RevokedKey { thumbprint })),
    }
    .into()
}

#[test]
fn a_new_log_begins_with_its_not_before_time() {
    for floor in [Some(77), None] {
        let folder = tempfile::tempdir().unwrap();
        create(&path_in(&folder), &LogId::random().unwrap(), floor).unwrap();
        let (head, subjects, found) = contents(&read(&open(&path_in(&folder)).unwrap()).unwrap());
        assert_eq!((head.seq, subjects, found), (u64::from(floor.is_some()), 0, floor));
    }
}

#[test]
fn groups_and_notes_are_found_at_the_next_start() {
    let mut log = Log::of(2);
    log.raise(1);
    log.raise(300);
    let notes = Notes {
        clock: Some(1_800_000_000),
        forgotten: Some(Forgotten {
            before: 1_792_223_700,
            clock: 1_800_000_000,
        }),
        leases_ms: 5_050,
    };
    log.store.write_notes(notes).unwrap();
    log.reopen();
    assert_eq!((log.found(), log.store.notes()), (log.contents(), notes));
    assert_eq!(log.contents().0.seq, 303);
}

#[test]
fn a_group_that_does_not_follow_the_last_one_is_not_taken() {
    let mut log = Log::of(2);
    let stale = (log.head(), log.next(1));
    log.raise(1);
    log.store.append(stale.0, &stale.1).unwrap_err();
    assert_eq!(log.found(), log.contents());
}

#[test]
fn a_log_is_followed_from_its_own_positions_only() {
    let mut log = Log::of(3);
    let first = log.head();
    log.raise(2);
    log.raise(4);
    let groups = |after, limit| log.store.follow(after, limit).map(|groups| groups.len()).ok();
    assert_eq!(groups(first, 100), Some(2));
    assert_eq!(groups(first, 1), Some(1));
    assert_eq!(groups(log.head(), 1), Some(0));
    let other = Log::of(9).head();
    assert_eq!(groups(other, 1), None);
    assert_eq!(groups(Head { seq: 3, ..other }, 1), None);
    assert_eq!(groups(Head { seq: 4, ..first }, 1), None, "within a group");
    assert_eq!(groups(Head { seq: 10, ..first }, 1), None, "beyond the last");
    log.compact();
    assert!(matches!(log.store.follow(first, 1), Err(FollowError::NotContinued)));
    assert_eq!(log.store.follow(log.store.beginning(), 1).unwrap().len(), 0);
}

#[test]
fn a_concurrent_follower_is_never_ahead_of_the_log() {
    let mut log = Log::of(0);
    let groups: Vec<Group> = (0..300)
        .map(|_| {
            let group = log.next(1);
            log.take(group.clone());
            group
        })
        .collect();
    let store = &log.store;
    let mut after = store.beginning();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut head = store.beginning();
            for group in &groups {
                store.append(head, group).unwrap();
                head = group.head().unwrap();
            }
        });
        while Some(after) != groups.last().unwrap().head() {
            for group in store.follow(after, 10).unwrap() {
                after = group.head().unwrap();
            }
        }
    });
}

#[test]
fn the_provenance_of_a_record_is_read_with_it() {
    let log = Log::of(2);
    let order = Order {
        operation: Operation::RevokeKey(Thumbprint::parse(&"A".repeat(43)).unwrap()),
        by: Requester {
            source: Source::Operator,
            name: "ci".to_owned(),
        },
        reason: Some("lost".to_owned()),
    };
    let group = Group::following(
        log.head(),
        vec![nth_key(3)],
        vec![Provenance::of(&order, 77).encode_to_vec().into()],
    );
    log.store.append(log.head(), &group).unwrap();
    assert_eq!(log.store.follow(log.head(), 9).unwrap(), [group]);
}

#[test]
fn a_row_that_does_not_continue_the_history_is_refused_by_every_reader() {
    let mut log = Log::of(2);
    let after = log.head();
    log.raise(2);
    log.raise(2);
    let forged = Group::following(after, vec![nth_key(100), nth_key(101)], Vec::new());
    let forged = forged.encode();
    log.store
        .write(|transaction| {
            transaction.open_table(GROUPS)?.insert(3, forged.as_slice())?;
            Ok(())
        })
        .unwrap();
    let refused = read(&log.store).unwrap_err().to_string();
    assert!(refused.contains("do not continue this log's history"), "{refused}");
    let refused = log.store.follow(after, 9).unwrap_err().to_string();
    assert!(refused.contains("do not continue this log's history"), "{refused}");
}

#[test]
fn the_file_of_another_layout_is_refused_with_what_was_found() {
    let log = Log::of(1);
    log.store
        .write(|transaction| {
            let layout = 7_u32.to_be_bytes();
            transaction.open_table(NOTES)?.insert(LAYOUT_ROW, layout.as_slice())?;
            Ok(())
        })
        .unwrap();
    let refused = found_in(&std::fs::read(log.path()).unwrap()).unwrap_err().to_string();
    assert!(
        refused.contains("has layout 7") && refused.contains("--init in an empty folder"),
        "{refused}"
    );
}

#[test]
fn a_missing_file_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    open(&path_in(&folder)).unwrap_err();
    assert!(!path_in(&folder).exists());
}

/// Flips every `of_header`th bit of a sealed file's header, and every `of_rest`th bit of the rest. Returns how often
/// the file was refused.
fn flip(of_header: usize, of_rest: usize) -> usize {
    let mut log = Log::of(100);
    log.compact();
    for _ in 0..30 {
        log.raise(1);
    }
    log.store.seal().unwrap();
    let whole = std::fs::read(log.path()).unwrap();
    let is_filled = |bit: &usize| whole[bit / 8 / 64 * 64..][..64].iter().any(|byte| *byte != 0);
    let rest = (HEADER..whole.len() * 8).step_by(of_rest).filter(is_filled);
    let mut refused = 0;
    for bit in (0..HEADER).step_by(of_header).chain(rest) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match found_in(&bytes) {
            Ok(found) => assert_eq!(found, log.contents(), "bit {bit}"),
            Err(_) => refused += 1,
        }
    }
    refused
}

/// Bits of redb's header.
const HEADER: usize = 320 * 8;

#[test]
fn with_a_flipped_bit_a_sealed_log_is_what_it_was_or_is_refused() {
    assert!(flip(29, 5_003) > 0);
}

#[test]
#[ignore = "long: make soak runs it"]
fn with_any_bit_of_its_header_flipped_a_sealed_log_is_what_it_was_or_is_refused() {
    assert!(flip(1, 211) > 0);
}

#[test]
fn a_log_that_was_cut_short_is_refused() {
    let log = Log::of(5_000);
    let whole = std::fs::read(log.path()).unwrap();
    for length in [0, 1, 4_096, whole.len() / 2] {
        found_in(&whole[..length]).unwrap_err();
    }
}

#[test]
fn a_group_whose_transaction_failed_is_acknowledged_only_if_it_is_in_the_file() {
    for (failing, is_done) in [(Failing::Absent, false), (Failing::Present, true)] {
        let mut log = Log::of(3);
        log.store.fail_next(failing);
        let group = log.next(2);
        let appended = log.store.append(log.head(), &group);
        match is_done {
            true => {
                appended.unwrap();
                log.take(group);
            }
            false => assert!(matches!(appended, Err(AppendError::NotDone(_))), "{appended:?}"),
        }
        assert_eq!(log.found(), log.contents(), "{failing:?}");
        log.raise(1);
        assert_eq!(log.found(), log.contents(), "{failing:?}");
    }
}

#[test]
fn the_file_is_reopened_once_a_second_and_until_then_an_outcome_may_be_unknown() {
    let mut log = Log::of(3);
    let fail = |log: &Log, failing| {
        log.store.fail_next(failing);
        log.store.append(log.head(), &log.next(2))
    };
    assert!(matches!(fail(&log, Failing::Absent), Err(AppendError::NotDone(_))));
    assert!(matches!(fail(&log, Failing::Present), Err(AppendError::Unknown(_))));
    let refused = log.store.append(log.head(), &log.next(2));
    assert!(matches!(refused, Err(AppendError::NotDone(StoreError::Closed { .. }))));
    assert!(matches!(log.store.follow(log.head(), 9), Err(FollowError::Store(_))));
    std::thread::sleep(REOPEN_INTERVAL);
    for group in log.store.follow(log.head(), 9).unwrap() {
        log.take(group);
    }
    assert_eq!(log.head().seq, 5, "it was done");
    log.raise(1);
    assert_eq!(log.found(), log.contents());
}

#[test]
fn a_full_disk_costs_the_reserve_and_not_the_revocation() {
    let mut log = Log::of(3);
    let reserve = log.folder.path().join(RESERVE);
    log.store.seal().unwrap();
    assert!(reserve.exists());
    log.store.fail_next(Failing::Full);
    log.raise(1);
    assert!(!reserve.exists());
    assert_eq!(log.found(), log.contents());
    log.store.seal().unwrap();
    assert!(reserve.exists(), "there is room for it again");
}

#[test]
fn the_reserve_saves_a_revocation_from_a_full_disk_that_a_note_has_met_first() {
    for is_opened_between in [false, true] {
        let mut log = Log::of(3);
        log.store.seal().unwrap();
        let fail_note = || {
            log.store.fail_next(Failing::Full);
            log.store.write_notes(Notes::default()).unwrap_err();
        };
        fail_note();
        match is_opened_between {
            // Reopened for a note that fails too: closed until a second has passed.
            true => fail_note(),
            // Reopened for the revocation, which fails too.
            false => log.store.fail_next(Failing::Full),
        }
        log.raise(1);
        assert_eq!(log.found(), log.contents());
        assert!(!log.folder.path().join(RESERVE).exists());
    }
}

#[test]
fn a_crash_after_any_step_of_a_compaction_loses_nothing() {
    let mut log = Log::of(40_000);
    log.compact();
    log.raise(10_000);
    let mut cut = log.cut();
    let mut steps = Vec::new();
    loop {
        let more = log.store.compact(&mut cut).unwrap();
        steps.push(cut.is_moved);
        log.raise(1);
        assert_eq!(log.found(), log.contents(), "{steps:?}");
        if !more {
            break;
        }
    }
    assert!(steps.iter().filter(|is_moved| !**is_moved).count() > 2, "{steps:?}");
    assert!(steps.iter().filter(|is_moved| **is_moved).count() > 1, "{steps:?}");
}

/// Delegations are forgotten without a record, so the log may be worth compacting again at the same position.
#[test]
fn a_log_is_not_compacted_at_or_before_the_position_where_it_begins() {
    let mut log = Log::of(0);
    let mut stale = log.cut();
    let group = delegations(log.head(), 20_000);
    log.store.append(log.head(), &group).unwrap();
    log.take(group);
    log.compact();
    let is_over = |revoked_at| revoked_at <= 10_000;
    let in_force = |view: &mut LogView| {
        view.state.forget(0..usize::MAX, is_over);
        contents(view)
    };
    let expected = in_force(&mut log.view);
    for steps in 1..5 {
        log.reopen();
        // Another process goes through the subjects in another order.
        log.view = read(&log.store).unwrap();
        assert_eq!(in_force(&mut log.view), expected);
        let mut again = log.cut();
        for cut in [&mut again, &mut stale] {
            for _ in 0..steps {
                log.store.compact(cut).unwrap();
            }
            let mut found = read(&log.store).unwrap();
            assert_eq!(in_force(&mut found), expected, "after {steps} steps");
        }
    }
    log.raise(1);
    log.compact();
    assert_eq!(log.found(), log.contents());
}

#[test]
fn a_compaction_that_fails_in_any_step_leaves_the_log_as_it_was() {
    let mut log = Log::of(40_000);
    let mut steps = 0;
    loop {
        let mut cut = log.cut();
        for _ in 0..steps {
            assert!(log.store.compact(&mut cut).unwrap());
        }
        log.store.fail_next(Failing::Absent);
        log.store.compact(&mut cut).unwrap_err();
        assert_eq!(log.found(), log.contents(), "{steps}");
        std::thread::sleep(REOPEN_INTERVAL);
        log.raise(1);
        if cut.is_moved {
            break;
        }
        steps += 1;
    }
    log.compact();
    log.raise(1);
    assert_eq!(log.found(), log.contents());
}

#[test]
fn a_compacted_log_takes_no_more_than_what_it_holds_and_its_groups_are_gone() {
    let mut log = Log::of(1);
    for _ in 0..1_000 {
        log.raise(1);
    }
    let before = log.store.bytes();
    log.compact();
    let after = log.store.bytes();
    assert!(after < before, "{after} of {before} bytes");
    let rows = log.store.read(|transaction| {
        let groups = transaction.open_table(GROUPS)?.iter()?.count();
        Ok((groups, transaction.open_table(BEGINNING)?.iter()?.count()))
    });
    assert_eq!(rows.unwrap(), (0, 1));
    log.reopen();
    read(&log.store).unwrap();
    assert_eq!(log.store.bytes(), after);
}

#[test]
fn a_log_that_was_compacted_twice_still_knows_every_position() {
    let mut log = Log::of(5_000);
    let earlier = log.head();
    log.compact();
    log.raise(5_000);
    log.compact();
    log.raise(1);
    let view = read(&log.store).unwrap();
    let check = |seq| view.digests.check(seq, earlier.digest.as_bytes());
    assert_eq!(check(earlier.seq), Ok(()));
    let applied = earlier.seq + 1;
    assert_eq!(check(applied), Err(ForeignPosition::Diverged { applied }));
    assert_eq!(view.head(), 10_001);
}

#[test]
fn a_compacted_log_that_lacks_a_part_is_refused() {
    let log = Log::of(40_000);
    log.compact();
    let seq = log.head().seq;
    log.store
        .write(|transaction| {
            assert!(transaction.open_table(BEGINNING)?.remove((seq, 1))?.is_some());
            Ok(())
        })
        .unwrap();
    let refused = read(&log.store).unwrap_err().to_string();
    assert!(refused.contains("not complete"), "{refused}");
}

#[test]
fn a_part_of_a_compacted_log_that_lacks_a_records_number_is_refused() {
    let log = Log::of(3);
    log.compact();
    let part = (log.head().seq, 0);
    log.store
        .write(|transaction| {
            let mut parts = transaction.open_table(BEGINNING)?;
            let mut chunk = Chunk::decode(parts.get(part)?.unwrap().value()).unwrap();
            assert!(chunk.seqs.pop().is_some());
            parts.insert(part, chunk.encode_to_vec().as_slice())?;
            Ok(())
        })
        .unwrap();
    let refused = read(&log.store).unwrap_err().to_string();
    assert!(refused.contains("not complete"), "{refused}");
}

#[test]
fn after_any_operations_in_any_order_a_start_finds_what_was_acknowledged() {
    for seed in 1..=8_u64 {
        let mut log = Log::of(0);
        let mut random = seed;
        let mut cut = None;
        let mut positions = vec![log.head()];
        for _ in 0..120 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let chance = random >> 33;
            match chance % 8 {
                0..=3 => {
                    log.raise(1 + chance / 8 % 40);
                    positions.push(log.head());
                }
                4 => cut = Some(log.cut()),
                5 => {
                    if let Some(mut running) = cut.take()
                        && log.store.compact(&mut running).unwrap()
                    {
                        cut = Some(running);
                    }
                }
                6 => log.store.seal().unwrap(),
                _ => log.reopen(),
            }
            assert_eq!(log.found(), log.contents(), "seed {seed}");
        }
        let found = read(&log.store).unwrap();
        for position in positions {
            let asked = v1::Position {
                seq: position.seq,
                digest: position.digest.as_bytes().to_vec(),
                proof: Vec::new(),
            };
            assert!(found.start(Some(&asked)).is_ok(), "seed {seed}: {position:?}");
        }
    }
}
