//! `RevocationService.Watch`.

use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::record::Subject;
use credence_wire::v1::watch_request::Message as WatchMessage;
use prost::Message as _;
use tonic::Code;

use super::harness::{Place, Watcher, delegation, digest_after, raise};

#[tokio::test]
async fn a_revocation_reaches_a_live_stream() {
    let place = Place::new();
    let server = place.start().await;
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    let answer = server.revoke(raise("alice")).await;
    let update = watcher.update().await;
    let Some(Subject::Principal(state)) = update.record.unwrap().subject else {
        panic!()
    };
    assert_eq!(update.position.unwrap().seq, answer["seq"]);
    assert_eq!(state.epoch, answer["epoch"].as_u64().unwrap());
    assert_eq!(state.principal.unwrap().subject.as_deref(), Some("alice"));
}

#[tokio::test]
async fn a_pong_comes_behind_every_revocation_acknowledged_before_the_ping() {
    let place = Place::new();
    let server = place.start().await;
    let (mut watcher, position, _) = server.watch_from_snapshot().await;
    let mut applied = position.seq;
    for round in 0..20 {
        let acknowledged = server.revoke(raise("alice")).await["seq"].as_u64().unwrap();
        let (updates, head) = watcher.ping(round).await;
        for update in updates {
            applied += 1;
            assert_eq!(update.position.unwrap().seq, applied);
        }
        assert_eq!((applied, head), (acknowledged, acknowledged));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pong_never_names_a_head_that_its_stream_has_not_delivered() {
    let place = Place::new();
    let server = place.start().await;
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    let mut requests = tokio::task::JoinSet::new();
    for id in 0..200 {
        requests.spawn(server.post_in_background(delegation(&id.to_string())));
    }
    let (mut applied, mut pings) = (0, 0);
    while applied < 200 {
        pings += 1;
        let (updates, head) = watcher.ping(pings).await;
        applied += updates.len() as u64;
        assert_eq!(head, applied);
    }
    assert!(requests.join_all().await.iter().all(|status| *status == 200));
}

#[tokio::test]
async fn every_subscriber_sees_the_same_order_without_gaps() {
    let place = Place::new();
    let server = place.start().await;
    let mut watchers = Vec::new();
    for _ in 0..5 {
        watchers.push(server.watch_from_snapshot().await.0);
    }
    let ids: Vec<String> = (0..20).map(|id| format!("id-{id}")).collect();
    let mut requests = tokio::task::JoinSet::new();
    for id in &ids {
        let request = server.post_in_background(delegation(id));
        requests.spawn(request);
    }
    while let Some(status) = requests.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    let mut seen = Vec::new();
    for watcher in &mut watchers {
        let (updates, head) = watcher.ping(1).await;
        assert_eq!(head, ids.len() as u64);
        seen.push(updates);
    }
    assert!(
        seen.iter()
            .all(|updates| updates.len() == ids.len() && *updates == seen[0])
    );
}

#[tokio::test]
async fn a_new_client_pulls_the_whole_state() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.revoke(raise("alice")).await;
    server.revoke(delegation("one")).await;
    let (mut watcher, position, records) = server.watch_from_snapshot().await;
    assert_eq!((position.seq, records.len()), (3, 2));
    assert_eq!(watcher.ping(7).await, (Vec::new(), 3));
}

#[tokio::test]
async fn an_empty_logs_snapshot_has_nothing_to_pull() {
    let place = Place::new();
    let server = place.start().await;
    let mut watcher = server.watch(None).await;
    let snapshot = watcher.welcome().await.snapshot.unwrap();
    assert_eq!((snapshot.chunks, snapshot.position.unwrap().seq), (0, 0));
    server.revoke(raise("alice")).await;
    assert_eq!(watcher.update().await.position.unwrap().seq, 1);
}

#[tokio::test]
async fn a_large_snapshot_is_pulled_in_small_chunks_and_updates_wait_for_its_end() {
    let place = Place::new();
    let server = place.start().await;
    revoke_large(&server, 0..80).await;
    let mut watcher = server.watch(None).await;
    let snapshot = watcher.welcome().await.snapshot.unwrap();
    assert!(snapshot.chunks > 1);
    server.revoke(raise("alice")).await;
    let mut records = 0;
    for index in 0..snapshot.chunks {
        let chunk = watcher.pull(index).await;
        assert_eq!(chunk.index, index);
        assert!(chunk.encoded_len() <= 64 << 10);
        records += chunk.records.len();
    }
    assert_eq!(records, 80);
    assert_eq!(watcher.update().await.position.unwrap().seq, 81);
}

#[tokio::test]
async fn a_returning_client_gets_only_what_it_missed() {
    let place = Place::new();
    let server = place.start().await;
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    server.revoke(raise("alice")).await;
    let applied = watcher.update().await.position.unwrap();
    drop(watcher);
    server.revoke(raise("bob")).await;
    server.revoke(raise("carol")).await;
    let mut watcher = server.watch(Some(applied)).await;
    let welcome = watcher.welcome().await;
    assert_eq!((welcome.head, welcome.snapshot), (3, None));
    for seq in [2, 3] {
        assert_eq!(watcher.update().await.position.unwrap().seq, seq);
    }
}

#[tokio::test]
async fn positions_carry_the_documented_digest_through_snapshots_and_updates() {
    let place = Place::new();
    let server = place.start().await;
    let (mut watcher, start, _) = server.watch_from_snapshot().await;
    assert_eq!(start.digest, digest_after(&server.log_id(), &[]));
    let mut records = Vec::new();
    for subject in ["alice", "bob"] {
        server.revoke(raise(subject)).await;
        let update = watcher.update().await;
        records.push(update.record.unwrap());
        assert_eq!(
            update.position.unwrap().digest,
            digest_after(&server.log_id(), &records)
        );
    }
    let (_, position, _) = server.watch_from_snapshot().await;
    assert_eq!(position.digest, digest_after(&server.log_id(), &records));
}

#[tokio::test]
async fn a_client_beyond_the_history_gets_a_snapshot() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.updates.entries = 2).await;
    let (_, start, _) = server.watch_from_snapshot().await;
    for subject in ["alice", "bob", "carol"] {
        server.revoke(raise(subject)).await;
    }
    let welcome = server.watch(Some(start)).await.welcome().await;
    assert_eq!(welcome.snapshot.unwrap().position.unwrap().seq, 3);
}

/// A filter that has lost its view cannot resume, and does not accept a snapshot older than its last position.
#[tokio::test]
async fn a_snapshot_that_is_older_than_the_log_serves_for_a_few_seconds_only() {
    let place = Place::new();
    let server = place.start().await;
    let begun = Instant::now();
    let (_, first, _) = server.watch_from_snapshot().await;
    assert_eq!(first.seq, 0);
    server.revoke(raise("alice")).await;
    loop {
        let (_, position, _) = server.watch_from_snapshot().await;
        if position.seq == 1 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "the snapshot is of {}",
            position.seq
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_client_of_another_log_is_refused_and_told_both_names() {
    let place = Place::new();
    let server = place.start().await;
    let mut watcher = server.open_watch().await.unwrap();
    watcher.hello("00000000000000000000000000000000", None).await;
    let (code, text) = watcher.refusal().await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("00000000") && text.contains(&server.log_id()), "{text}");
}

#[tokio::test]
async fn a_client_that_is_ahead_of_the_log_or_on_a_fork_of_it_is_refused() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    for (seq, expected) in [(2, "ends at 1"), (1, "differs")] {
        let foreign = v1::Position {
            seq,
            digest: vec![1; 32],
            proof: Vec::new(),
        };
        let (code, text) = server.watch(Some(foreign)).await.refusal().await;
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn messages_out_of_order_end_the_stream() {
    let place = Place::new();
    let server = place.start().await;
    revoke_large(&server, 0..40).await;
    let ping = WatchMessage::Ping(v1::Ping { id: 1 });
    let hello = WatchMessage::Hello(v1::WatchHello::default());
    let pull = |index| WatchMessage::Pull(v1::PullChunk { index });

    let mut before_hello = server.open_watch().await.unwrap();
    before_hello.say(ping).await;
    assert_eq!(before_hello.refusal().await.0, Code::InvalidArgument);
    for message in [hello, pull(1), pull(99)] {
        let mut watcher: Watcher = server.watch(None).await;
        watcher.welcome().await;
        watcher.say(message).await;
        assert_eq!(watcher.refusal().await.0, Code::InvalidArgument);
    }
    let (mut complete, _, _) = server.watch_from_snapshot().await;
    complete.say(pull(0)).await;
    assert_eq!(complete.refusal().await.0, Code::InvalidArgument);
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_closed() {
    let place = Place::new();
    let brief = std::time::Duration::from_millis(50);
    let server = place.start_with(|config| config.timeouts.hello = brief).await;
    let mut silent = server.open_watch().await.unwrap();
    assert_eq!(silent.refusal().await.0, Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_client_without_pings_loses_its_place() {
    let place = Place::new();
    let limit = std::time::Duration::from_millis(500);
    let server = place.start_with(|config| config.timeouts.silence = limit).await;
    let mut silent = server.watch(None).await;
    silent.welcome().await;
    let (mut alive, ..) = server.watch_from_snapshot().await;
    for id in 0..10 {
        alive.ping(id).await;
        tokio::time::sleep(limit / 5).await;
    }
    assert_eq!(silent.refusal().await.0, Code::DeadlineExceeded);
    alive.ping(10).await;
}

#[tokio::test]
async fn one_subscriber_too_many_is_refused_until_another_leaves() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.max_subscribers = 1).await;
    let (first, _, _) = server.watch_from_snapshot().await;
    let Err(refused) = server.open_watch().await else {
        panic!("a second subscriber was let in")
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(first);
    while server.open_watch().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_that_falls_behind_the_history_is_ended_and_its_client_can_resume() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.updates.entries = 4).await;
    let (mut sleeper, _, _) = server.watch_from_snapshot().await;
    // More than the connection's window and all buffers hold.
    revoke_large(&server, 0..200).await;
    let (mut updates, mut applied) = (0, None);
    let status = loop {
        match sleeper.next().await {
            Ok(v1::watch_response::Message::Update(update)) => {
                updates += 1;
                applied = update.position;
            }
            Ok(other) => panic!("{other:?}"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(updates < 200);
    let welcome = server.watch(applied).await.welcome().await;
    assert_eq!(welcome.snapshot.unwrap().position.unwrap().seq, 200);
}

/// Revokes delegations with names of the maximum length: 25 of them fill a chunk.
async fn revoke_large(server: &super::harness::Server, ids: std::ops::Range<u32>) {
    let mut requests = tokio::task::JoinSet::new();
    for id in ids {
        requests.spawn(server.post_in_background(large_delegation(id)));
    }
    while let Some(status) = requests.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

fn large_delegation(id: u32) -> serde_json::Value {
    let issuer = format!("https://{}", "i".repeat(2040));
    serde_json::json!({"delegation": {"issuer": issuer, "subject": "s".repeat(256), "id": format!("{id:0256}")}})
}
