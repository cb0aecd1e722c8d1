//! Against a real etcd: CREDENCE_ETCD names the folder of its programs.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use credence_delegation::Thumbprint;
use credence_etcd::Security;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::layout::{CHUNKS, GROUPS};
use super::log_store::CHUNK_PAGE;
use credence_etcd::put;

use super::*;
use crate::clock::Forgotten;
use crate::digest::{Digest, Head};
use crate::limits::InitOptions;
use crate::log_view::{HistoryBounds, LogView};
use crate::store::beginning::Cut;
use crate::store::group::{EncodedRecord, Group};
use crate::store::{AppendError, FollowError, LogStore as _};

/// Seconds since the Unix epoch.
const NOW: i64 = 1_800_000_000;
const SETTINGS: Settings = Settings {
    max_staleness_ms: 5_000,
    max_token_lifetime_s: 3_600,
};

/// One member of etcd, in its own folder.
struct Member {
    address: Address,
    runtime: Runtime,
    child: Child,
    _folder: TempDir,
}

impl Member {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = || {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            format!("http://{}", free.local_addr().unwrap())
        };
        let (clients, peers) = (url(), url());
        let programs = PathBuf::from(std::env::var_os("CREDENCE_ETCD").expect("CREDENCE_ETCD; run make test"));
        let child = Command::new(programs.join("etcd"))
            .args(["--data-dir", folder.path().to_str().unwrap(), "--log-level", "error"])
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let address = clients.replace("http://", "etcd://").parse().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self {
            address,
            runtime,
            child,
            _folder: folder,
        }
    }

    fn client(&self) -> Client {
        self.runtime
            .block_on(async { Client::new(&self.address, Security::default(), 0) })
            .unwrap()
    }

    /// Creates a log, once etcd answers. A `floor` becomes its first record.
    fn create(&self, floor: Option<i64>) -> LogId {
        let init = InitOptions { floor: floor.is_some() };
        let log_id = LogId::random().unwrap();
        let begun = Instant::now();
        while let Err(error) = self.runtime.block_on(create(
            &self.client(),
            &self.address,
            &log_id,
            init,
            floor.unwrap_or(NOW),
        )) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        }
        log_id
    }

    /// A replica's store, and the view of everything in it.
    fn open(&self) -> (Arc<EtcdStore>, LogView) {
        let store = Arc::new(self.open_with(SETTINGS).unwrap());
        let view = read_all(&store);
        (store, view)
    }

    fn open_with(&self, settings: Settings) -> Result<EtcdStore, StoreError> {
        let opening = EtcdStore::open(self.client(), self.address.clone(), settings);
        self.runtime.block_on(opening)
    }

    fn opened_to_move(&self) -> EtcdStore {
        let opening = EtcdStore::open_to_move(self.client(), self.address.clone());
        self.runtime.block_on(opening).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(store: &EtcdStore) -> LogView {
    let bounds = HistoryBounds {
        entries: usize::MAX,
        bytes: usize::MAX,
    };
    let mut view = LogView::new(&store.log_id(), bounds);
    store.replay(&mut view).unwrap();
    view
}

/// The next group of this many records, each about another key.
fn next(view: &LogView, records: u64) -> Group {
    let head = view.digests.head;
    let records = (1..=records).map(|nth| nth_key(head.seq + nth)).collect();
    Group::following(head, records, Vec::new())
}

fn nth_key(seq: u64) -> EncodedRecord {
    let mut thumbprint = [0; 32];
    thumbprint[..8].copy_from_slice(&seq.to_be_bytes());
    let thumbprint = Thumbprint::from_bytes(thumbprint).to_string();
    v1::Record {
        subject: Some(Subject::Key(v1::RevokedKey { thumbprint })),
    }
    .into()
}

fn take(view: &mut LogView, groups: impl IntoIterator<Item = Group>) {
    for record in groups.into_iter().flat_map(|group| group.records) {
        view.append(record).unwrap();
    }
}

fn raise(store: &EtcdStore, view: &mut LogView, records: u64) {
    let group = next(view, records);
    store.append(view.digests.head, &group).unwrap();
    take(view, [group]);
}

fn contents(view: &LogView) -> (Head, usize, Option<i64>) {
    (view.digests.head, view.state.subjects, view.state.log_floor)
}

#[test]
fn a_log_is_made_once_and_found_whole_by_every_replica() {
    let member = Member::start();
    let log_id = member.create(Some(77));
    let refused = member.runtime.block_on(create(
        &member.client(),
        &member.address,
        &LogId::random().unwrap(),
        InitOptions { floor: false },
        NOW,
    ));
    assert!(refused.unwrap_err().to_string().contains(log_id.as_str()));
    let (store, mut view) = member.open();
    assert_eq!((store.log_id(), contents(&view).2), (log_id, Some(77)));
    for records in [1, 300, 2] {
        raise(&store, &mut view, records);
    }
    assert_eq!(contents(&member.open().1), contents(&view));
}

#[test]
fn a_store_without_a_log_or_with_another_layout_is_refused_with_the_cure() {
    let member = Member::start();
    member.create(None);
    let mut elsewhere = member.address.clone();
    elsewhere.prefix = "/elsewhere/".to_owned();
    let open = |address: &Address| {
        member
            .runtime
            .block_on(EtcdStore::open(member.client(), address.clone(), SETTINGS))
    };
    let refused = open(&elsewhere).unwrap_err().to_string();
    assert!(
        refused.contains("holds no log") && refused.contains("--init"),
        "{refused}"
    );
    let (store, _) = member.open();
    store
        .transact(TxnRequest {
            success: vec![put(store.key(LAYOUT_KEY), "7")],
            ..TxnRequest::default()
        })
        .unwrap();
    let refused = open(&member.address).unwrap_err().to_string();
    assert!(refused.contains("has layout 7"), "{refused}");
}

#[test]
fn only_one_of_two_replicas_appends_at_a_position_and_the_other_follows_it() {
    let member = Member::start();
    member.create(None);
    let (ours, mut our_view) = member.open();
    let (theirs, mut their_view) = member.open();
    raise(&ours, &mut our_view, 2);
    let late = next(&their_view, 1);
    let after = their_view.digests.head;
    assert!(matches!(theirs.append(after, &late), Err(AppendError::Moved)));
    take(&mut their_view, theirs.follow(after, 100).unwrap());
    assert_eq!(contents(&their_view), contents(&our_view));
    raise(&theirs, &mut their_view, 1);
    assert_eq!(contents(&member.open().1), contents(&their_view));
}

#[test]
fn a_transaction_that_is_sent_again_is_done_once_even_after_others() {
    let member = Member::start();
    member.create(None);
    let (first, mut view) = member.open();
    let (again, _) = member.open();
    let (late, _) = member.open();
    let (after, group) = (view.digests.head, next(&view, 2));
    raise(&first, &mut view, 2);
    again.append(after, &group).unwrap();
    assert_eq!(member.open().1.digests.head, view.digests.head);
    raise(&first, &mut view, 1);
    late.append(after, &group).unwrap();
    assert_eq!(member.open().1.digests.head, view.digests.head);
}

#[test]
fn a_log_is_followed_from_its_own_positions_only() {
    let member = Member::start();
    member.create(None);
    let (store, mut view) = member.open();
    raise(&store, &mut view, 3);
    let first = view.digests.head;
    raise(&store, &mut view, 2);
    let (follower, _) = member.open();
    let groups = |after, limit| follower.follow(after, limit).map(|groups| groups.len()).ok();
    assert_eq!(groups(first, 100), Some(1));
    assert_eq!(groups(view.digests.head, 100), Some(0));
    let other = Digest::start(&LogId::random().unwrap());
    assert_eq!(groups(Head { digest: other, ..first }, 100), None);
    assert_eq!(groups(Head { seq: 4, ..first }, 100), None, "within a group");
    assert_eq!(groups(Head { seq: 9, ..first }, 100), None, "beyond the last");
}

#[test]
fn a_compacted_log_is_the_same_log() {
    let member = Member::start();
    member.create(Some(77));
    let (store, mut view) = member.open();
    for _ in 0..3 {
        raise(&store, &mut view, 200);
    }
    let first = Head {
        seq: 0,
        digest: Digest::start(&store.log_id()),
    };
    let cut = |view: &LogView| Cut::new(view.state.freeze(), view.digests.clone(), store.bytes());
    for _ in 0..2 {
        let mut cut = cut(&view);
        while store.compact(&mut cut).unwrap() {}
        raise(&store, &mut view, 1);
        let (reader, found) = member.open();
        assert_eq!(contents(&found), contents(&view));
        assert!(matches!(reader.follow(first, 1), Err(FollowError::Outrun)));
    }
    let groups = store
        .range(store.key(GROUPS), prefix_end(store.key(GROUPS).as_bytes()), 0, 0)
        .unwrap();
    assert_eq!(groups.len(), 1, "the others are in the chunks");
    let chunks = store
        .range(store.key(CHUNKS), prefix_end(store.key(CHUNKS).as_bytes()), 0, 0)
        .unwrap();
    assert_eq!(chunks.len(), 1, "those of the first compaction are removed");
}

#[test]
fn the_slower_of_two_compactions_leaves_nothing_behind() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    raise(&ours, &mut view, 100);
    let (theirs, their_view) = member.open();
    let cut = |view: &LogView| Cut::new(view.state.freeze(), view.digests.clone(), 0);
    let (mut our_cut, mut their_cut) = (cut(&view), cut(&their_view));
    assert!(theirs.compact(&mut their_cut).unwrap());
    while ours.compact(&mut our_cut).unwrap() {}
    assert!(!theirs.compact(&mut their_cut).unwrap());
    assert_eq!(contents(&member.open().1), contents(&view));
    let chunks = ours
        .range(ours.key(CHUNKS), prefix_end(ours.key(CHUNKS).as_bytes()), 0, 0)
        .unwrap();
    assert_eq!(chunks.len(), 1);
}

/// The faster one also removes the chunks that the other has written so far.
#[test]
fn a_compaction_whose_chunks_another_has_removed_is_given_up() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    raise(&ours, &mut view, 100);
    let cut = |view: &LogView| Cut::new(view.state.freeze(), view.digests.clone(), 0);
    let mut our_cut = cut(&view);
    raise(&ours, &mut view, 5);
    let (theirs, their_view) = member.open();
    let mut their_cut = cut(&their_view);
    assert!(theirs.compact(&mut their_cut).unwrap());
    while ours.compact(&mut our_cut).unwrap() {}
    let fed = Arc::clone(&theirs);
    member.runtime.spawn(async move { fed.feed(|| {}).await });
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while theirs.beginning().seq != 100 {
        assert!(std::time::Instant::now() < until, "the watch brings no beginning");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!theirs.compact(&mut their_cut).unwrap());
    assert_eq!(contents(&member.open().1), contents(&view));
}

/// The slower one's chunks are in force by then.
#[test]
fn a_compaction_that_was_replaced_clears_nothing() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    raise(&ours, &mut view, 100);
    let cut = |view: &LogView| Cut::new(view.state.freeze(), view.digests.clone(), 0);
    let mut our_cut = cut(&view);
    raise(&ours, &mut view, 5);
    while !our_cut.is_moved {
        assert!(ours.compact(&mut our_cut).unwrap());
    }
    let (theirs, their_view) = member.open();
    let mut their_cut = cut(&their_view);
    while !their_cut.is_moved {
        assert!(theirs.compact(&mut their_cut).unwrap());
    }
    assert!(!ours.compact(&mut our_cut).unwrap());
    assert_eq!(contents(&member.open().1), contents(&view));
    while theirs.compact(&mut their_cut).unwrap() {}
    assert_eq!(contents(&member.open().1), contents(&view));
}

/// More than one read brings.
#[test]
fn a_beginning_of_many_chunks_is_read_whole() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    for _ in 0..30 {
        raise(&ours, &mut view, 5_000);
    }
    let mut cut = Cut::new(view.state.freeze(), view.digests.clone(), 0);
    while ours.compact(&mut cut).unwrap() {}
    let chunks = ours.range(ours.key(CHUNKS), prefix_end(ours.key(CHUNKS).as_bytes()), 0, 0);
    assert!(chunks.unwrap().len() as i64 > CHUNK_PAGE);
    assert_eq!(contents(&member.open().1), contents(&view));
}

#[test]
fn a_log_that_has_left_is_not_written_to_again() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    let (theirs, _) = member.open();
    raise(&ours, &mut view, 1);
    let registering = || member.runtime.block_on(theirs.register(0));
    assert!(matches!(registering(), Ok(Registered::Now)));
    let in_use = ours.mark_moved("machine:/folder");
    assert!(matches!(in_use, Err(StoreError::InUse { .. })));
    theirs.leave();
    ours.mark_moved("machine:/folder").unwrap();
    let elsewhere = member.opened_to_move().mark_moved("machine:/other");
    assert!(matches!(elsewhere, Err(StoreError::MovedAway { .. })));
    member.opened_to_move().mark_moved("machine:/folder").unwrap();
    assert!(matches!(registering(), Err(StoreError::MovedAway { .. })));
    let after = view.digests.head;
    let group = next(&view, 1);
    assert!(ours.append(after, &group).is_err());
    assert!(ours.follow(after, 1).is_err());
}

#[test]
fn notes_of_replicas_are_merged() {
    let member = Member::start();
    member.create(None);
    let (ours, _) = member.open();
    let (theirs, _) = member.open();
    let notes = |clock, before| Notes {
        clock: Some(NOW + clock),
        forgotten: Some(Forgotten { before, clock }),
        leases_ms: 0,
    };
    ours.write_notes(notes(2_000, 900)).unwrap();
    theirs.write_notes(notes(1_000, 950)).unwrap();
    let merged = Notes {
        clock: Some(NOW + 2_000),
        ..notes(1_000, 950)
    };
    assert_eq!(theirs.notes(), merged);
    assert_eq!(member.open().0.notes(), merged);
}

#[test]
fn notes_are_replaced_only_while_no_replica_is_registered() {
    let member = Member::start();
    member.create(None);
    let (ours, _) = member.open();
    let (theirs, _) = member.open();
    ours.write_notes(Notes {
        clock: Some(2 * NOW),
        ..Notes::default()
    })
    .unwrap();
    let right = Notes {
        clock: None,
        ..Notes::default()
    };
    member.runtime.block_on(theirs.register(0)).unwrap();
    assert!(matches!(ours.replace_notes(right), Err(StoreError::InUse { .. })));
    theirs.leave();
    ours.replace_notes(right).unwrap();
    assert_eq!(member.open().0.notes(), right);
}

#[test]
fn the_clock_of_a_log_begins_when_it_is_created() {
    let member = Member::start();
    member.create(None);
    assert_eq!(member.open().0.notes().clock, Some(NOW));
}

#[test]
fn settings_change_only_while_no_replica_is_registered() {
    let member = Member::start();
    member.create(None);
    let (ours, _) = member.open();
    let registering = |store: &EtcdStore| member.runtime.block_on(store.register(0));
    assert!(matches!(registering(&ours), Ok(Registered::Now)));
    let other = Settings {
        max_token_lifetime_s: 60,
        ..SETTINGS
    };
    let refused = member.open_with(other).unwrap_err().to_string();
    assert!(
        refused.contains("run with --max-staleness 5000ms --max-token-lifetime 3600s")
            && refused.contains("this one has --max-staleness 5000ms --max-token-lifetime 60s"),
        "{refused}"
    );
    ours.leave();
    let changed = member.open_with(other).unwrap();
    let late = member.open_with(other).unwrap();
    assert!(matches!(registering(&changed), Ok(Registered::Now)));
    assert!(matches!(registering(&late), Ok(Registered::Now)));
    assert!(matches!(
        member.open_with(SETTINGS),
        Err(StoreError::OtherSettings { .. })
    ));
}

/// It was opened before the change, or paused for longer than its lease.
#[test]
fn a_replica_with_settings_from_before_a_change_does_not_register() {
    let member = Member::start();
    member.create(None);
    let (ours, _) = member.open();
    let changed = member.open_with(Settings {
        max_staleness_ms: 10_000,
        ..SETTINGS
    });
    let registering = |store: &EtcdStore| member.runtime.block_on(store.register(0));
    let refused = registering(&ours);
    assert!(matches!(refused, Err(StoreError::OtherSettings { .. })), "{refused:?}");
    assert!(matches!(registering(&changed.unwrap()), Ok(Registered::Now)));
}

#[test]
fn the_next_replica_of_a_data_folder_removes_the_one_before() {
    let member = Member::start();
    member.create(None);
    let (dead, _) = member.open();
    member.runtime.block_on(dead.register(0)).unwrap();
    let (ours, _) = member.open();
    assert!(ours.others().1.contains_key(dead.name()));
    member.runtime.block_on(ours.forget(dead.name())).unwrap();
    assert!(member.open().0.others().1.is_empty());
}

#[test]
fn a_log_that_is_compacted_meanwhile_is_read_whole() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    raise(&ours, &mut view, 5_000);
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| {
            for _ in 0..40 {
                for _ in 0..10 {
                    raise(&ours, &mut view, 50);
                }
                let mut cut = Cut::new(view.state.freeze(), view.digests.clone(), 0);
                while ours.compact(&mut cut).unwrap() {}
            }
        });
        while !compacting.is_finished() {
            member.open();
        }
    });
    assert_eq!(contents(&member.open().1), contents(&view));
}

#[test]
fn a_fed_replica_has_each_group_without_reading() {
    let member = Member::start();
    member.create(None);
    let (ours, mut view) = member.open();
    let (theirs, mut their_view) = member.open();
    let (woken, wakes) = std::sync::mpsc::channel();
    let fed = Arc::clone(&theirs);
    member.runtime.spawn(async move {
        let _ = fed.feed(|| woken.send(()).unwrap_or_default()).await;
    });
    for _ in 0..20 {
        raise(&ours, &mut view, 3);
        while their_view.digests.head != view.digests.head {
            wakes.recv_timeout(Duration::from_secs(5)).unwrap();
            let groups = theirs.latest_after(their_view.digests.head, 100);
            take(&mut their_view, groups);
        }
        assert_eq!(theirs.known().head, view.digests.head);
    }
}
