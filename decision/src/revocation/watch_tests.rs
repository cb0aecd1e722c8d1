//! The tests play the control plane message by message, so that each of them can break one thing.

use std::time::Duration;

use credence_delegation::revocation::{DelegationPath, RevocationView};

use super::*;
use crate::revocation::SealedWith;

const LOG: &str = "log-1";

const DEFAULT_MAX_SUBJECTS: usize = 1_000;

/// The wall clock's time at the beginning of every scene.
const START: u64 = 1_700_000_000;

/// A watch, its clock, and a control plane with a log of records.
struct Scene {
    watch: Watch,
    now: Monotonic,
    /// The lead of the wall clock over the monotonic clock.
    ahead: Duration,
    log: Vec<v1::Record>,
    /// The digests of the opened streams' secrets; the last one is the present stream's.
    secret_digests: Vec<Vec<u8>>,
}

impl Scene {
    fn with_log(length: usize) -> Self {
        Self::new(length, DEFAULT_MAX_SUBJECTS)
    }

    fn new(length: usize, max_subjects: usize) -> Self {
        let settings = ControlPlane {
            cluster: "credence".to_owned(),
            log_id: LOG.to_owned(),
            max_subjects,
            max_staleness: Duration::from_secs(5),
            ping_interval: Duration::from_millis(500),
        };
        Self {
            watch: Watch::new(settings, "node", [7; 16]),
            now: Monotonic(1_000_000_000),
            ahead: Duration::from_secs(START),
            log: (1..=length).map(record).collect(),
            secret_digests: Vec::new(),
        }
    }

    /// A watch in step with a log of `length` entries.
    fn in_step(length: usize) -> Self {
        let mut scene = Self::with_log(length);
        scene.open();
        let ping = scene.hear_snapshot();
        scene.hear(pong(ping, length as u64));
        assert_eq!(scene.freshness(), Freshness::Fresh);
        scene
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.plus(Duration::from_millis(milliseconds));
    }

    fn tick(&mut self) -> Vec<Action> {
        let wall = self.now.plus(self.ahead).0;
        self.watch.on_tick(self.now, UnixNanos(wall), u64::MAX)
    }

    /// Opens a stream and returns the hello.
    fn open(&mut self) -> v1::WatchHello {
        assert_eq!(self.tick(), [Action::Open]);
        match sent(&self.watch.on_open(self.now)) {
            watch_request::Message::Hello(hello) => {
                self.secret_digests.push(hello.secret_digest.clone());
                hello
            }
            other => panic!("expected a hello, found {other:?}"),
        }
    }

    /// Waits for the end of any back-off and opens a stream.
    fn reopen(&mut self) -> v1::WatchHello {
        self.wait(5_000);
        self.open()
    }

    /// Welcomes with a snapshot of the whole log in two chunks, and returns the id of the following ping.
    fn hear_snapshot(&mut self) -> u64 {
        let head = self.log.len() as u64;
        let first = self.hear(welcome(head, Some((self.position(head), 2))));
        assert_eq!(sent(&first), watch_request::Message::Pull(v1::PullChunk { index: 0 }));
        let records = self.log.clone();
        let second = self.hear(chunk(0, records));
        assert_eq!(sent(&second), watch_request::Message::Pull(v1::PullChunk { index: 1 }));
        let actions = self.hear(chunk(1, vec![]));
        ping_id(&actions)
    }

    fn hear(&mut self, message: watch_response::Message) -> Vec<Action> {
        let response = v1::WatchResponse { message: Some(message) };
        self.watch.on_message(self.now, &response.encode_to_vec(), u64::MAX)
    }

    /// Receives a message that must reset the stream, and returns the operator's message.
    fn hear_violation(&mut self, message: watch_response::Message) -> String {
        violation(&self.hear(message))
    }

    fn position(&self, seq: u64) -> v1::Position {
        let start: [u8; 32] = Sha256::digest(LOG.as_bytes()).into();
        let digest = self
            .log
            .iter()
            .take(seq as usize)
            .fold(start, |digest, record| next_digest(&digest, record));
        v1::Position {
            seq,
            digest: digest.to_vec(),
            // The filter ignores its meaning and returns it unchanged.
            proof: [seq as u8; 16].to_vec(),
        }
    }

    /// The update with this number; the log grows if needed.
    fn update(&mut self, seq: u64) -> watch_response::Message {
        while (self.log.len() as u64) < seq {
            self.log.push(record(self.log.len() + 1));
        }
        watch_response::Message::Update(v1::Update {
            position: Some(self.position(seq)),
            record: self.log.get(seq as usize - 1).cloned(),
        })
    }

    fn freshness(&self) -> Freshness {
        self.watch.freshness(self.now)
    }

    fn is_revoked(&self, number: usize) -> bool {
        let view = self.watch.view().expect("a view");
        let id = &format!("d{number}");
        view.is_delegation_revoked("https://id.example.com", None, DelegationPath { under: &[], id })
    }
}

/// The n-th entry of every log in these tests: it revokes the delegation id `d<n>`.
fn record(number: usize) -> v1::Record {
    v1::Record {
        subject: Some(v1::record::Subject::Delegation(v1::RevokedDelegation {
            principal: Some(v1::Principal {
                issuer: "https://id.example.com".to_owned(),
                subject: None,
            }),
            under: Vec::new(),
            id: format!("d{number}"),
            revoked_at: 0,
        })),
    }
}

fn welcome(head: u64, snapshot: Option<(v1::Position, u32)>) -> watch_response::Message {
    watch_response::Message::Welcome(v1::Welcome {
        log_id: LOG.to_owned(),
        head,
        snapshot: snapshot.map(|(position, chunks)| v1::Snapshot {
            position: Some(position),
            chunks,
            subjects: 0,
        }),
        cache_keys: None,
        max_token_lifetime_s: 0,
        max_staleness_ms: 0,
    })
}

/// The same for a log that assumes this lifetime of tokens.
fn with_lifetime(lifetime: u64, message: watch_response::Message) -> watch_response::Message {
    match message {
        watch_response::Message::Welcome(welcome) => watch_response::Message::Welcome(v1::Welcome {
            max_token_lifetime_s: lifetime,
            ..welcome
        }),
        other => other,
    }
}

fn cache_keys(current: u8, previous: u8) -> v1::CacheKeys {
    v1::CacheKeys {
        current: vec![current; 32],
        previous: vec![previous; 32],
        session_current: vec![!current; 32],
        session_previous: vec![!previous; 32],
    }
}

fn chunk(index: u32, records: Vec<v1::Record>) -> watch_response::Message {
    watch_response::Message::Chunk(v1::SnapshotChunk { index, records })
}

fn pong(id: u64, head: u64) -> watch_response::Message {
    watch_response::Message::Pong(v1::Pong { id, head })
}

fn drain(promise_ms: u32) -> watch_response::Message {
    watch_response::Message::Drain(v1::Drain { promise_ms })
}

/// From a server that waits until this client has applied its updates.
fn confirming(message: watch_response::Message, max_staleness_ms: u64) -> watch_response::Message {
    match message {
        watch_response::Message::Welcome(welcome) => watch_response::Message::Welcome(v1::Welcome {
            max_staleness_ms,
            ..welcome
        }),
        other => other,
    }
}

fn applied(seq: u64) -> watch_request::Message {
    watch_request::Message::Applied(v1::Applied { seq })
}

fn sent(actions: &[Action]) -> watch_request::Message {
    match actions {
        [Action::Send(bytes)] => v1::WatchRequest::decode(bytes.as_slice()).unwrap().message.unwrap(),
        other => panic!("expected one message to be sent, found {other:?}"),
    }
}

fn ping_id(actions: &[Action]) -> u64 {
    match sent(actions) {
        watch_request::Message::Ping(ping) => ping.id,
        other => panic!("expected a ping, found {other:?}"),
    }
}

fn violation(actions: &[Action]) -> String {
    match actions {
        [Action::Cancel, Action::Report(notice)] => {
            notice.strip_prefix("revocation stream reset: ").unwrap().to_owned()
        }
        other => panic!("expected a reset stream, found {other:?}"),
    }
}

// Getting in step

#[test]
fn a_stream_is_opened_from_the_first_tick_and_names_the_pinned_log() {
    let hello = Scene::with_log(0).open();
    assert_eq!(
        (hello.log_id.as_str(), hello.node.as_str(), hello.applied),
        (LOG, "node", None)
    );
}

#[test]
fn a_snapshot_is_active_only_after_its_last_chunk() {
    let mut scene = Scene::with_log(2);
    scene.open();
    scene.hear(welcome(2, Some((scene.position(2), 2))));
    scene.hear(chunk(0, vec![record(1)]));
    assert!(scene.watch.view().is_none());
    let ping = ping_id(&scene.hear(chunk(1, vec![record(2)])));
    assert!(scene.is_revoked(1) && scene.is_revoked(2));
    assert_eq!(scene.watch.applied.map(|position| position.seq), Some(2));
    assert_eq!(scene.freshness(), Freshness::NeverSynced, "until an echo confirms it");
    scene.hear(pong(ping, 2));
    assert_eq!(scene.freshness(), Freshness::Fresh);
}

#[test]
fn an_empty_log_needs_no_chunks() {
    let mut scene = Scene::with_log(0);
    scene.open();
    let ping = ping_id(&scene.hear(welcome(0, Some((scene.position(0), 0)))));
    scene.hear(pong(ping, 0));
    assert_eq!(scene.freshness(), Freshness::Fresh);
    assert!(scene.watch.view().unwrap().is_empty());
}

#[test]
fn without_a_snapshot_the_log_is_followed_from_its_first_entry() {
    let mut scene = Scene::with_log(0);
    scene.open();
    let ping = ping_id(&scene.hear(welcome(1, None)));
    scene.hear(pong(ping, 1));
    assert_eq!(scene.freshness(), Freshness::NeverSynced, "entry 1 is still missing");
    let first = scene.update(1);
    scene.hear(first);
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    scene.hear(pong(ping, 1));
    assert_eq!(scene.freshness(), Freshness::Fresh);
}

#[test]
fn a_stream_continues_where_the_last_one_ended() {
    let mut scene = Scene::in_step(2);
    scene.watch.on_close(scene.now, 14, 0);
    let hello = scene.reopen();
    assert_eq!(hello.applied, Some(scene.position(2)));
    let ping = ping_id(&scene.hear(welcome(3, None)));
    let third = scene.update(3);
    scene.hear(third);
    scene.hear(pong(ping, 3));
    assert!(scene.is_revoked(3));
    assert_eq!(scene.freshness(), Freshness::Fresh);
}

// Updates

#[test]
fn an_update_is_active_at_once_and_changes_the_revision() {
    let mut scene = Scene::in_step(1);
    let before = scene.watch.view().unwrap().revision();
    let second = scene.update(2);
    assert_eq!(scene.hear(second), []);
    assert!(scene.is_revoked(2));
    assert!(scene.watch.view().unwrap().revision() > before);
}

#[test]
fn a_repeated_update_resets_the_stream() {
    let mut scene = Scene::in_step(1);
    let second = scene.update(2);
    scene.hear(second.clone());
    assert_eq!(scene.hear_violation(second), "received update 2; expected 3");
}

#[test]
fn a_skipped_update_resets_the_stream_and_is_not_applied() {
    let mut scene = Scene::in_step(1);
    let third = scene.update(3);
    assert_eq!(scene.hear_violation(third), "received update 3; expected 2");
    assert!(!scene.is_revoked(3));
    assert_eq!(scene.watch.applied.map(|position| position.seq), Some(1));
}

#[test]
fn an_update_with_another_history_resets_the_stream() {
    let mut scene = Scene::in_step(2);
    scene.log[0] = record(77);
    let third = scene.update(3);
    assert_eq!(scene.hear_violation(third), diverged(3).what);
    assert!(!scene.is_revoked(3));
}

#[test]
fn an_update_with_a_replaced_record_resets_the_stream() {
    let mut scene = Scene::in_step(1);
    let exchanged = watch_response::Message::Update(v1::Update {
        position: Some({
            scene.log.push(record(2));
            scene.position(2)
        }),
        record: Some(record(9)),
    });
    assert_eq!(scene.hear_violation(exchanged), diverged(2).what);
}

#[test]
fn an_update_of_an_unknown_kind_is_not_skipped() {
    let mut scene = Scene::in_step(1);
    scene.log.push(v1::Record::default());
    let unknown = scene.update(2);
    let violation = scene.hear_violation(unknown);
    assert!(violation.contains("names no subject"), "{violation}");
    assert_eq!(scene.watch.applied.map(|position| position.seq), Some(1));
}

#[test]
fn an_update_before_the_snapshot_is_complete_resets_the_stream() {
    let mut scene = Scene::with_log(2);
    scene.open();
    scene.hear(welcome(2, Some((scene.position(2), 2))));
    let third = scene.update(3);
    let violation = scene.hear_violation(third);
    assert!(violation.contains(" while "), "{violation}");
}

#[test]
fn an_update_without_room_makes_the_view_unusable() {
    let mut scene = Scene::new(2, 2);
    scene.open();
    let ping = scene.hear_snapshot();
    scene.hear(pong(ping, 2));
    let third = scene.update(3);
    let violation = scene.hear_violation(third);
    assert_eq!(violation, too_many_subjects(2));
    assert!(scene.watch.view().is_none());
    assert_eq!(scene.freshness(), Freshness::NeverSynced);
    assert_eq!(scene.reopen().applied, None, "there is nothing to continue");
}

#[test]
fn a_discarded_view_does_not_make_an_older_log_acceptable() {
    let mut scene = Scene::new(2, 2);
    scene.open();
    scene.hear_snapshot();
    let third = scene.update(3);
    scene.hear_violation(third);
    scene.reopen();
    let older = welcome(1, Some((scene.position(1), 1)));
    assert_eq!(scene.hear_violation(older), check_no_rollback(2, 1).unwrap_err().what);
    scene.reopen();
    let violation = scene.hear_violation(welcome(3, None));
    assert!(violation.contains(" while "), "{violation}");
}

// The log itself

#[test]
fn another_log_is_never_accepted() {
    let mut scene = Scene::with_log(0);
    scene.open();
    let other = watch_response::Message::Welcome(v1::Welcome {
        log_id: "log-2".to_owned(),
        head: 0,
        snapshot: None,
        cache_keys: Some(cache_keys(1, 0)),
        max_token_lifetime_s: 0,
        max_staleness_ms: 0,
    });
    let violation = scene.hear_violation(other);
    assert!(
        violation.starts_with("the control plane serves log \"log-2\"; the configuration pins"),
        "{violation}"
    );
    assert!(scene.watch.view().is_none());
    assert!(scene.watch.cache_keys().is_none());
}

#[test]
fn a_log_that_lost_entries_is_never_accepted() {
    let mut scene = Scene::in_step(3);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    assert_eq!(
        scene.hear_violation(welcome(2, None)),
        check_no_rollback(3, 2).unwrap_err().what
    );
    scene.reopen();
    let old_snapshot = welcome(4, Some((scene.position(2), 1)));
    assert_eq!(
        scene.hear_violation(old_snapshot),
        check_no_rollback(3, 2).unwrap_err().what
    );
    assert!(scene.is_revoked(3), "earlier revocations stay known");
}

#[test]
fn a_snapshot_of_another_history_is_never_accepted() {
    let mut scene = Scene::in_step(3);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    scene.log[0] = record(77);
    let forked = welcome(3, Some((scene.position(3), 1)));
    assert_eq!(scene.hear_violation(forked), diverged(3).what);
}

#[test]
fn the_empty_position_has_one_digest() {
    let mut scene = Scene::with_log(0);
    scene.open();
    let position = v1::Position {
        seq: 0,
        digest: vec![0; 32],
        proof: Vec::new(),
    };
    assert_eq!(scene.hear_violation(welcome(0, Some((position, 0)))), diverged(0).what);
}

#[test]
fn a_snapshot_has_bounds() {
    let mut scene = Scene::with_log(2);
    scene.open();
    let endless = welcome(2, Some((scene.position(2), MAX_CHUNKS + 1)));
    let violation = scene.hear_violation(endless);
    assert!(violation.ends_with("chunks; expected at most 65536"), "{violation}");
    scene.reopen();
    let beyond = welcome(1, Some((scene.position(2), 1)));
    assert_eq!(
        scene.hear_violation(beyond),
        "the snapshot is at 2, after the log's announced end 1"
    );
    scene.reopen();
    let no_digest = v1::Position {
        seq: 2,
        digest: vec![1; 31],
        proof: Vec::new(),
    };
    assert_eq!(
        scene.hear_violation(welcome(2, Some((no_digest, 1)))),
        "a message lacks its position, or the position its 32-byte digest"
    );
}

#[test]
fn chunks_arrive_in_the_order_of_their_requests() {
    let mut scene = Scene::with_log(2);
    scene.open();
    scene.hear(welcome(2, Some((scene.position(2), 3))));
    scene.hear(chunk(0, vec![record(1)]));
    assert_eq!(
        scene.hear_violation(chunk(2, vec![])),
        "received snapshot chunk 2; pulled chunk 1"
    );
    assert!(scene.watch.view().is_none());
}

#[test]
fn the_old_view_stays_active_while_a_snapshot_arrives_but_its_lease_ends() {
    let mut scene = Scene::in_step(1);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    let opened = scene.now;
    scene.log.extend([record(2), record(3)]);
    scene.hear(welcome(3, Some((scene.position(3), 2))));
    scene.hear(chunk(0, vec![record(1), record(2)]));
    assert!(scene.is_revoked(1) && !scene.is_revoked(2));
    scene.wait(600);
    assert_eq!(scene.tick(), [], "no ping before the snapshot is complete");
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
    let ping = ping_id(&scene.hear(chunk(1, vec![record(3)])));
    scene.hear(pong(ping, 3));
    assert_eq!(scene.freshness(), Freshness::Fresh);
    assert!(scene.now > opened);
}

#[test]
fn an_incomplete_snapshot_is_dropped_with_its_stream() {
    let mut scene = Scene::with_log(2);
    scene.open();
    scene.hear(welcome(2, Some((scene.position(2), 2))));
    scene.hear(chunk(0, vec![record(1)]));
    scene.watch.on_close(scene.now, 14, 0);
    assert!(scene.watch.view().is_none());
    assert_eq!(scene.reopen().applied, None);
}

// The lease

#[test]
fn pings_are_sent_at_their_interval() {
    let mut scene = Scene::in_step(0);
    scene.wait(499);
    assert_eq!(scene.tick(), []);
    scene.wait(1);
    ping_id(&scene.tick());
    assert_eq!(scene.tick(), []);
}

#[test]
fn an_echo_ahead_of_the_applied_entries_renews_nothing() {
    let mut scene = Scene::in_step(1);
    scene.wait(2_900);
    let ping = ping_id(&scene.tick());
    assert_eq!(
        scene.hear(pong(ping, 2)),
        [],
        "the update is in transit, which is not an error"
    );
    scene.wait(2_101);
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
    let second = scene.update(2);
    scene.hear(second);
    assert!(
        matches!(scene.freshness(), Freshness::Stale { .. }),
        "the next echo will decide"
    );
}

#[test]
fn an_update_that_has_not_come_by_the_next_echo_resets_the_stream() {
    let mut scene = Scene::in_step(1);
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    scene.hear(pong(ping, 2));
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    assert_eq!(
        scene.hear_violation(pong(ping, 2)),
        "updates up to 2 were due before the last echo, and those after 1 have not come"
    );
    scene.wait(1_000);
    assert_eq!(
        scene.reopen().applied,
        Some(scene.position(1)),
        "and it is requested again"
    );
}

#[test]
fn an_echo_behind_the_applied_entries_resets_the_stream() {
    let mut scene = Scene::in_step(2);
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    assert_eq!(
        scene.hear_violation(pong(ping, 1)),
        check_no_rollback(2, 1).unwrap_err().what
    );
}

#[test]
fn an_echo_of_an_earlier_stream_renews_nothing() {
    let mut scene = Scene::in_step(1);
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    scene.hear(welcome(1, None));
    assert!(
        scene
            .hear_violation(pong(ping, 1))
            .contains(&format!("a pong for ping {ping}, which was not sent"))
    );
}

#[test]
fn the_time_of_an_echo_is_reported_once() {
    let mut scene = Scene::in_step(1);
    scene.watch.take_round_trip();
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    scene.wait(30);
    scene.hear(pong(ping, 1));
    assert_eq!(scene.watch.take_round_trip(), Some(Duration::from_millis(30)));
    assert_eq!(scene.watch.take_round_trip(), None);
}

#[test]
fn a_late_echo_counts_from_its_ping() {
    let mut scene = Scene::in_step(1);
    scene.wait(1_000);
    let ping = ping_id(&scene.tick());
    scene.wait(5_500);
    scene.hear(pong(ping, 1));
    let age = Duration::from_millis(5_500);
    assert_eq!(scene.freshness(), Freshness::Stale { age });
}

#[test]
fn after_a_violation_the_lease_ends_in_time() {
    let mut scene = Scene::in_step(1);
    let third = scene.update(3);
    scene.hear_violation(third);
    assert_eq!(scene.freshness(), Freshness::Fresh);
    scene.wait(5_001);
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
}

// Planned stops

#[test]
fn a_promise_keeps_the_view_fresh_from_the_last_answered_ping_on() {
    let mut scene = Scene::in_step(1);
    scene.wait(400);
    scene.hear(drain(9_000));
    scene.watch.on_close(scene.now, 0, 0);
    scene.wait(8_599);
    assert_eq!(scene.freshness(), Freshness::Fresh);
    scene.wait(1);
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
}

#[test]
fn a_promise_is_accepted_for_at_most_ten_seconds() {
    let mut scene = Scene::in_step(1);
    scene.hear(drain(u32::MAX));
    scene.wait(9_999);
    assert_eq!(scene.freshness(), Freshness::Fresh);
    scene.wait(1);
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
}

#[test]
fn a_promise_has_no_effect_while_updates_are_missing() {
    let mut scene = Scene::in_step(1);
    scene.wait(500);
    let ping = ping_id(&scene.tick());
    scene.hear(pong(ping, 2));
    scene.hear(drain(9_000));
    scene.wait(5_001);
    assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
}

// What is confirmed

/// A watch with a server that waits for its confirmations, in step with a log of one entry.
fn confirming_scene() -> Scene {
    let mut scene = Scene::in_step(1);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    let [confirmed, ping] = &scene.hear(confirming(welcome(1, None), 5_000))[..] else {
        panic!("expected a confirmation, and a ping")
    };
    assert_eq!(sent(std::slice::from_ref(confirmed)), applied(1));
    let ping = ping_id(std::slice::from_ref(ping));
    scene.hear(pong(ping, 1));
    scene
}

#[test]
fn applied_entries_are_confirmed_at_once() {
    let mut scene = confirming_scene();
    for seq in [2, 3] {
        let update = scene.update(seq);
        assert_eq!(sent(&scene.hear(update)), applied(seq));
    }
}

#[test]
fn up_to_the_announced_head_only_the_last_entry_is_confirmed() {
    let mut scene = Scene::in_step(1);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    ping_id(&scene.hear(confirming(welcome(3, None), 5_000)));
    let [second, third] = [2, 3].map(|seq| scene.update(seq)).map(|update| scene.hear(update));
    assert_eq!(second, []);
    assert_eq!(sent(&third), applied(3));
}

#[test]
fn a_server_that_does_not_wait_gets_no_confirmations() {
    let mut scene = Scene::in_step(1);
    let second = scene.update(2);
    assert_eq!(scene.hear(second), []);
    assert_eq!(scene.watch.leave(), []);
}

#[test]
fn a_client_that_leaves_is_not_fresh() {
    let mut scene = confirming_scene();
    assert_eq!(
        sent(&scene.watch.leave()),
        watch_request::Message::Leaving(v1::Leaving {})
    );
    assert_eq!(scene.freshness(), Freshness::NeverSynced);
}

#[test]
fn the_lower_limit_applies_and_is_reported() {
    for (limit_ms, fresh_ms, is_told) in [(2_000, 2_000, true), (9_000, 5_000, false)] {
        let mut scene = Scene::in_step(1);
        scene.watch.on_close(scene.now, 14, 0);
        scene.reopen();
        let actions = scene.hear(confirming(welcome(1, None), limit_ms));
        let is_notice =
            |action: &Action| matches!(action, Action::Report(notice) if notice.contains("as the control plane asks"));
        assert_eq!(actions.iter().any(is_notice), is_told);
        let ping = ping_id(&actions[actions.len() - 1..]);
        scene.hear(pong(ping, 1));
        scene.wait(fresh_ms);
        assert_eq!(scene.freshness(), Freshness::Fresh);
        scene.wait(1);
        assert!(matches!(scene.freshness(), Freshness::Stale { .. }));
    }
}

#[test]
fn a_stream_has_its_own_secret_which_later_ones_show_until_their_welcome() {
    let mut scene = Scene::in_step(1);
    let mut shown = Vec::new();
    for _ in 0..3 {
        scene.watch.on_close(scene.now, 14, 0);
        shown = scene.reopen().earlier_secrets;
    }
    let digests: Vec<_> = shown.iter().map(|secret| Sha256::digest(secret).to_vec()).collect();
    assert_eq!(digests, scene.secret_digests[..3]);
    scene.hear(welcome(1, None));
    scene.watch.on_close(scene.now, 14, 0);
    assert_eq!(scene.reopen().earlier_secrets.len(), 1);
    for _ in 0..2 * MAX_EARLIER_SECRETS {
        scene.watch.on_close(scene.now, 14, 0);
        assert!(scene.reopen().earlier_secrets.len() <= MAX_EARLIER_SECRETS);
    }
}

#[test]
fn secrets_of_streams_and_vms_are_all_different() {
    let mut scenes = [Scene::with_log(1), Scene::with_log(1)];
    scenes[1].watch.secret = [1; 16];
    for scene in &mut scenes {
        scene.open();
        scene.watch.on_close(scene.now, 14, 0);
        scene.reopen();
    }
    let digests: std::collections::BTreeSet<_> = scenes.iter().flat_map(|scene| &scene.secret_digests).collect();
    assert_eq!(digests.len(), 4);
    assert!(digests.iter().all(|digest| digest.len() == 32));
}

// Ends of streams

#[test]
fn streams_are_opened_again_from_a_tick_after_the_back_off() {
    let mut scene = Scene::with_log(0);
    scene.tick();
    let actions = scene.watch.on_close(scene.now, 14, u64::MAX);
    assert!(
        matches!(&actions[..], [Action::Report(notice)] if notice.contains("closed with gRPC status 14")),
        "{actions:?}"
    );
    assert_eq!(scene.tick(), []);
    scene.wait(100);
    assert_eq!(scene.tick(), [Action::Open]);
    assert_eq!(scene.watch.counters.opened, 2);
}

#[test]
fn another_owner_opens_the_stream_at_once_however_often_it_is_handed_over() {
    let mut scene = Scene::with_log(0);
    assert_eq!(scene.tick(), [Action::Open]);
    for _ in 0..20 {
        scene.watch.on_open(scene.now);
        scene.watch.hand_over(scene.now);
        assert_eq!(scene.tick(), [Action::Open]);
    }
}

#[test]
fn a_refused_log_is_reported_with_its_fix_and_rarely_retried() {
    let mut scene = Scene::in_step(1);
    let actions = scene.watch.on_close(scene.now, FAILED_PRECONDITION, 0);
    let [Action::Report(notice)] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert!(notice.contains("pin its new log_id"));
    scene.wait(2_499);
    assert_eq!(scene.tick(), []);
    scene.wait(1);
    assert_eq!(scene.tick(), [Action::Open]);
}

#[test]
fn a_silent_stream_is_reset() {
    let mut scene = Scene::in_step(1);
    scene.wait(3_001);
    let actions = scene.tick();
    assert!(
        matches!(&actions[..], [Action::Cancel, Action::Report(notice)] if notice.contains("nothing was received")),
        "{actions:?}"
    );
}

#[test]
fn a_stream_that_is_never_welcomed_is_reset() {
    let mut scene = Scene::with_log(0);
    scene.open();
    scene.wait(3_001);
    assert_eq!(scene.tick().first(), Some(&Action::Cancel));
}

#[test]
fn messages_after_a_reset_have_no_effect() {
    let mut scene = Scene::in_step(1);
    let third = scene.update(3);
    scene.hear_violation(third);
    let second = scene.update(2);
    assert_eq!(scene.hear(second), []);
    assert_eq!(scene.watch.on_close(scene.now, 14, 0), []);
    assert_eq!(scene.watch.applied.map(|position| position.seq), Some(1));
}

#[test]
fn garbage_resets_the_stream() {
    for bytes in [&b"\xff\xff\xff"[..], b"", &[0; MAX_MESSAGE_BYTES + 1]] {
        let mut scene = Scene::in_step(1);
        violation(&scene.watch.on_message(scene.now, bytes, 0));
        assert_eq!(scene.watch.counters.violations, 1);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys for the shared cache

impl Scene {
    /// The first bytes of the present key and of the previous one. Each key repeats one byte.
    fn keys(&self) -> Option<(u8, u8)> {
        let of_entries = Self::bytes_of(self.watch.cache_keys());
        let of_sessions = Self::bytes_of(self.watch.session_keys());
        assert_eq!(of_sessions, of_entries.map(|(current, previous)| (!current, !previous)));
        of_entries
    }

    fn bytes_of(keys: Option<&SealKeys>) -> Option<(u8, u8)> {
        let keys = keys?;
        let sealed_by = |byte| SealKeys::parse(&[byte; 32], &[]).unwrap().seal(&[b"x"]);
        let find = |with| (0..=255).find(|byte| keys.check(&[b"x"], &sealed_by(*byte)) == Some(with));
        Some((find(SealedWith::Current)?, find(SealedWith::Previous)?))
    }
}

fn welcome_with(keys: Option<v1::CacheKeys>, position: v1::Position, chunks: u32) -> watch_response::Message {
    let watch_response::Message::Welcome(plain) = welcome(position.seq, Some((position, chunks))) else {
        unreachable!()
    };
    watch_response::Message::Welcome(v1::Welcome {
        cache_keys: keys,
        ..plain
    })
}

#[test]
fn keys_come_with_the_welcome_and_outlive_the_stream() {
    let mut scene = Scene::with_log(0);
    scene.open();
    assert_eq!(scene.keys(), None);
    scene.hear(welcome_with(Some(cache_keys(2, 1)), scene.position(0), 0));
    assert_eq!(scene.keys(), Some((2, 1)));
    scene.watch.on_close(scene.now, 14, 0);
    assert_eq!(scene.keys(), Some((2, 1)));
}

#[test]
fn a_rotation_replaces_the_keys_while_a_snapshot_is_pulled_and_after() {
    let mut scene = Scene::with_log(0);
    scene.open();
    scene.hear(welcome_with(Some(cache_keys(2, 1)), scene.position(0), 1));
    assert_eq!(scene.hear(watch_response::Message::CacheKeys(cache_keys(3, 2))), []);
    assert_eq!(scene.keys(), Some((3, 2)));
    scene.hear(chunk(0, vec![]));
    assert_eq!(scene.hear(watch_response::Message::CacheKeys(cache_keys(4, 3))), []);
    assert_eq!(scene.keys(), Some((4, 3)));
}

#[test]
fn without_keys_from_the_control_plane_there_are_none() {
    let mut scene = Scene::with_log(0);
    scene.open();
    scene.hear(welcome_with(Some(cache_keys(2, 1)), scene.position(0), 0));
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    scene.hear(welcome_with(None, scene.position(0), 0));
    assert_eq!(scene.keys(), None);
}

#[test]
fn an_older_control_plane_has_no_keys_for_sessions() {
    let mut scene = Scene::with_log(0);
    scene.open();
    let older = v1::CacheKeys {
        session_current: vec![],
        session_previous: vec![],
        ..cache_keys(2, 1)
    };
    scene.hear(welcome_with(Some(older), scene.position(0), 0));
    assert!(scene.watch.cache_keys().is_some());
    assert!(scene.watch.session_keys().is_none());
}

#[test]
fn malformed_or_early_keys_reset_the_stream() {
    let short = v1::CacheKeys {
        current: vec![1; 31],
        ..cache_keys(1, 0)
    };
    let mut scene = Scene::with_log(0);
    scene.open();
    let early = scene.hear_violation(watch_response::Message::CacheKeys(cache_keys(2, 1)));
    assert!(early.contains(" while "), "{early}");
    assert_eq!(scene.keys(), None);

    scene.reopen();
    scene.hear(welcome_with(Some(cache_keys(2, 1)), scene.position(0), 0));
    let violation = scene.hear_violation(watch_response::Message::CacheKeys(short.clone()));
    assert_eq!(violation, "received keys that are not 32 bytes long");
    assert_eq!(scene.keys(), Some((2, 1)), "the previous keys stay");

    scene.reopen();
    let violation = scene.hear_violation(welcome_with(Some(short), scene.position(0), 0));
    assert_eq!(violation, "received keys that are not 32 bytes long");
}

// What may be forgotten

/// The n-th entry, revoked at this time.
fn revoked_at(number: usize, revoked_at: u64) -> v1::Record {
    let mut record = record(number);
    if let Some(v1::record::Subject::Delegation(delegation)) = &mut record.subject {
        delegation.revoked_at = i64::try_from(revoked_at).unwrap();
    }
    record
}

const LIFETIME: u64 = 1_000;

/// How long a filter waits after that before it forgets.
const ALLOWANCE: u64 = 300;

impl Scene {
    /// A watch in step with a log whose delegations were revoked at these times, and which assumes `LIFETIME`.
    fn forgetful(times: &[u64]) -> Self {
        let mut scene = Self::with_log(0);
        scene.log = times
            .iter()
            .enumerate()
            .map(|(index, time)| revoked_at(index + 1, *time))
            .collect();
        scene.open();
        let head = scene.log.len() as u64;
        scene.hear(with_lifetime(LIFETIME, welcome(head, Some((scene.position(head), 1)))));
        let ping = ping_id(&scene.hear(chunk(0, scene.log.clone())));
        scene.hear(pong(ping, head));
        scene
    }

    fn memory(&self) -> credence_delegation::revocation::Memory {
        self.watch.view().unwrap().memory()
    }

    fn revision(&self) -> u64 {
        self.watch.view().unwrap().revision()
    }

    /// Ends the stream, and welcomes on the next one without a snapshot.
    fn resume_with_lifetime(&mut self, lifetime: u64) {
        self.watch.on_close(self.now, 14, 0);
        assert!(self.reopen().applied.is_some());
        let head = self.log.len() as u64;
        self.hear(with_lifetime(lifetime, welcome(head, None)));
    }
}

#[test]
fn the_longest_lifetime_is_that_of_the_present_stream() {
    let mut scene = Scene::forgetful(&[]);
    assert_eq!(scene.memory().token_lifetime, Some(LIFETIME));
    let before = scene.revision();
    scene.resume_with_lifetime(LIFETIME);
    assert_eq!(scene.revision(), before, "no look-up has to be repeated");
    scene.resume_with_lifetime(60);
    assert_eq!(scene.memory().token_lifetime, Some(60));
    assert!(scene.revision() > before, "every look-up has to be repeated");
    scene.resume_with_lifetime(0);
    assert_eq!(scene.memory().token_lifetime, None);
}

#[test]
fn a_new_lifetime_applies_to_the_old_view_and_to_the_arriving_one() {
    let mut scene = Scene::in_step(2);
    scene.watch.on_close(scene.now, 14, 0);
    scene.reopen();
    scene.log.push(record(3));
    scene.hear(with_lifetime(60, welcome(3, Some((scene.position(3), 1)))));
    assert_eq!(scene.memory().token_lifetime, Some(60));
    assert!(scene.is_revoked(2) && !scene.is_revoked(3));
    scene.hear(chunk(0, scene.log.clone()));
    assert_eq!(scene.memory().token_lifetime, Some(60));
    assert!(scene.is_revoked(3));
}

#[test]
fn delegations_that_no_token_can_carry_are_forgotten() {
    let mut scene = Scene::forgetful(&[START - LIFETIME - ALLOWANCE - 60, START - LIFETIME, 0]);
    assert_eq!(scene.watch.view().unwrap().len(), 3);
    scene.tick();
    assert!(!scene.is_revoked(1) && scene.is_revoked(2) && scene.is_revoked(3));
    scene.wait(3_700_000);
    scene.tick();
    assert!(!scene.is_revoked(2) && scene.is_revoked(3));
    assert_eq!(scene.watch.counters.forgotten, 2);
}

#[test]
fn a_forward_jump_of_the_clock_forgets_nothing() {
    let mut scene = Scene::forgetful(&[START - 60]);
    scene.tick();
    scene.ahead += Duration::from_secs(1_000_000);
    for _ in 0..10 {
        scene.wait(50);
        scene.tick();
    }
    assert!(scene.is_revoked(1));
    assert_eq!(scene.memory().forgotten_before, None);
}

#[test]
fn after_the_clock_was_set_back_the_snapshot_is_requested_again() {
    let mut scene = Scene::forgetful(&[START - 2_000]);
    scene.tick();
    assert!(!scene.is_revoked(1));
    let floor = scene.memory().forgotten_before;
    assert!(floor.is_some(), "no older token is accepted");
    scene.ahead -= Duration::from_secs(ALLOWANCE + 10);
    let actions = scene.tick();
    assert_eq!(actions, [Action::Cancel, Action::Report(FORGOT_TOO_MUCH.to_owned())]);
    assert_eq!(
        scene.memory().forgotten_before,
        floor,
        "and none until the snapshot is there"
    );
    assert_eq!(scene.reopen().applied, None, "the view cannot be continued");
    let none = scene.hear_violation(welcome(1, None));
    assert!(none.contains(" while "), "{none}");
    assert_eq!(scene.reopen().applied, None);
    scene.hear(with_lifetime(LIFETIME, welcome(1, Some((scene.position(1), 1)))));
    assert_eq!(scene.memory().forgotten_before, floor);
    scene.hear(chunk(0, scene.log.clone()));
    assert!(scene.is_revoked(1));
    assert_eq!(scene.memory().forgotten_before, None);
    scene.wait(50);
    assert_eq!(scene.tick(), [], "once");
}

#[test]
fn if_the_log_allows_longer_lifetimes_the_snapshot_is_requested_again() {
    let mut scene = Scene::forgetful(&[START - 2_000]);
    scene.tick();
    scene.resume_with_lifetime(LIFETIME * 10);
    assert!(scene.memory().forgotten_before.is_some());
    let actions = scene.tick();
    assert_eq!(actions, [Action::Cancel, Action::Report(FORGOT_TOO_MUCH.to_owned())]);
    assert_eq!(scene.reopen().applied, None);
}

#[test]
fn a_late_revocation_is_remembered_from_its_arrival() {
    let mut scene = Scene::forgetful(&[]);
    scene.tick();
    scene.log.push(revoked_at(1, 5));
    let update = scene.update(1);
    scene.hear(update);
    scene.wait(1_000 * (LIFETIME + ALLOWANCE - 60));
    scene.tick();
    assert!(scene.is_revoked(1), "for any clock of the control plane");
}

#[test]
fn a_snapshot_announced_as_too_large_is_not_requested() {
    let mut scene = Scene::new(2, 2);
    scene.open();
    let position = scene.position(2);
    let of = |subjects| {
        watch_response::Message::Welcome(v1::Welcome {
            log_id: LOG.to_owned(),
            head: 2,
            snapshot: Some(v1::Snapshot {
                position: Some(position.clone()),
                chunks: 1,
                subjects,
            }),
            ..v1::Welcome::default()
        })
    };
    for subjects in [3, u64::MAX] {
        let violation = scene.hear_violation(of(subjects));
        assert_eq!(violation, too_many_subjects(2));
        scene.wait(5_000);
        scene.reopen();
    }
    let pulled = sent(&scene.hear(of(2)));
    assert_eq!(pulled, watch_request::Message::Pull(v1::PullChunk { index: 0 }));
}
