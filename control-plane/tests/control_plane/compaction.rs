//! The log after a compaction.

use std::time::{Duration, Instant};

use credence_control_plane::fill_log;
use credence_wire::v1;
use credence_wire::v1::record::Subject;

use super::harness::{ISSUER, Place, Server, TOKEN, delegation, raise};

/// The value of a metric without labels.
async fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics", &[]).await.text;
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

pub(crate) async fn compactions(server: &Server) -> f64 {
    metric(server, "credence_revocation_log_compactions_total").await
}

fn epoch_of(records: &[v1::Record], subject: &str) -> u64 {
    let found = records.iter().find_map(|record| match &record.subject {
        Some(Subject::Principal(state)) if state.principal.as_ref()?.subject.as_deref() == Some(subject) => {
            Some(state.epoch)
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing about {subject}"))
}

/// Raises until the file has been compacted once more. Returns its size before.
async fn raise_until_compacted(server: &Server) -> f64 {
    let before = compactions(server).await;
    let begun = Instant::now();
    let mut largest = 0.0;
    while compactions(server).await == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "it was not compacted");
        server.revoke(raise("busy")).await;
        largest = f64::max(largest, size(server).await);
    }
    largest
}

async fn size(server: &Server) -> f64 {
    metric(server, "credence_revocation_log_bytes").await
}

#[tokio::test]
async fn a_file_of_superseded_records_is_compacted_and_nothing_else_changes() {
    let place = Place::new();
    let compacting = |config: &mut credence_control_plane::Config| config.log.compact_above_bytes = 4_096;
    let server = place.start_with(compacting).await;
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    let alice = server.revoke(raise("alice")).await["epoch"].as_u64().unwrap();
    let early = watcher.update().await.position.unwrap();
    // The second compaction may have begun during the first one.
    let first = raise_until_compacted(&server).await;
    let before = f64::max(first, raise_until_compacted(&server).await);
    let after = size(&server).await;
    assert!(after < before, "{after} of {before}");
    let last = server.revoke(raise("last")).await;
    drop(server);

    let server = place.start_with(compacting).await;
    let (_, position, records) = server.watch_from_snapshot().await;
    assert_eq!(Some(position.seq), last["seq"].as_u64());
    assert_eq!(epoch_of(&records, "alice"), alice);
    assert_eq!(Some(epoch_of(&records, "last")), last["epoch"].as_u64());
    // A position from before both compactions is still known, and a wrong one refused.
    let welcome = server.watch(Some(early.clone())).await.welcome().await;
    assert_eq!(welcome.head, position.seq);
    let mut other = early;
    other.digest[0] ^= 1;
    let (_, refusal) = server.watch(Some(other)).await.refusal().await;
    assert!(refusal.contains("differs"), "{refusal}");
}

#[tokio::test]
async fn a_history_survives_a_compaction() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.compact_above_bytes = 4_096).await;
    server.revoke(raise("alice")).await;
    raise_until_compacted(&server).await;
    drop(server);
    let server = place.start().await;
    let path = format!("/v1/principals?issuer={ISSUER}&subject=alice");
    let answer = server.get(&path, &[&format!("Bearer {TOKEN}")]).await.json();
    assert_eq!(answer["history"].as_array().unwrap().len(), 1);
    assert_eq!(answer["history"][0]["by"], "operator");
}

#[tokio::test]
async fn a_damaged_index_of_histories_is_rebuilt_and_marks_what_is_missing() {
    let index_is_empty = |bytes: &mut Vec<u8>| bytes.clear();
    let half_is_gone = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    // Every byte of every page, except the header.
    let all_is_flipped = |bytes: &mut Vec<u8>| bytes[4_096..].iter_mut().for_each(|byte| *byte ^= 1);
    let damages: [fn(&mut Vec<u8>); 3] = [index_is_empty, half_is_gone, all_is_flipped];
    for damage in damages {
        let place = Place::new();
        let server = place.start_with(|config| config.log.compact_above_bytes = 4_096).await;
        server.revoke(raise("alice")).await;
        server.history_of("alice").await;
        server.running.shutdown().await;
        harm(&place, damage);
        // The log still has all of it.
        let server = place.start_with(|config| config.log.compact_above_bytes = 4_096).await;
        let alice = server.history_of("alice").await;
        assert_eq!(alice["history"].as_array().unwrap().len(), 1, "{alice}");
        assert_eq!(alice["history_complete_from"], serde_json::Value::Null, "{alice}");

        raise_until_compacted(&server).await;
        server.running.shutdown().await;
        harm(&place, damage);
        for _ in 0..2 {
            let server = place.start().await;
            let alice = server.history_of("alice").await;
            assert_eq!(alice["history"].as_array().unwrap().len(), 0, "{alice}");
            assert!(alice["history_complete_from"].as_u64() > Some(1), "{alice}");
            server.revoke(raise("later")).await;
            server.running.shutdown().await;
        }
    }
}

fn harm(place: &Place, damage: fn(&mut Vec<u8>)) {
    let index = place.path("log/histories.redb");
    let mut bytes = std::fs::read(&index).unwrap();
    damage(&mut bytes);
    std::fs::write(index, bytes).unwrap();
}

#[tokio::test]
async fn raises_go_on_while_the_file_is_compacted() {
    let place = Place::new();
    fill_log(&place.path(""), ISSUER, 20_000, 3).unwrap();
    let server = place.start_with(|config| config.log.compact_above_bytes = 4_096).await;
    let before = size(&server).await;
    raise_until_compacted(&server).await;
    let after = size(&server).await;
    assert!(after < before / 2.0, "{after} of {before}");
    let last = server.revoke(raise("user-0019999")).await;
    drop(server);
    let server = place.start().await;
    let (_, _, records) = server.watch_from_snapshot().await;
    assert_eq!(Some(epoch_of(&records, "user-0019999")), last["epoch"].as_u64());
    assert_eq!(records.len(), 20_001);
}

#[tokio::test]
async fn clients_are_told_how_long_tokens_may_live_and_how_many_subjects_to_make_room_for() {
    let server = Place::new()
        .start_with(|config| config.log.max_token_lifetime = Duration::from_secs(7_200))
        .await;
    server.revoke(raise("alice")).await;
    server.revoke(delegation("one")).await;
    let welcome = server.watch(None).await.welcome().await;
    assert_eq!(welcome.max_token_lifetime_s, 7_200);
    assert_eq!(welcome.snapshot.unwrap().subjects, 2);
}

#[tokio::test]
async fn a_delegation_is_forgotten_once_no_token_can_carry_it_any_more() {
    let place = Place::new();
    let short = |config: &mut credence_control_plane::Config| config.log.max_token_lifetime = Duration::from_secs(60);
    let server = place.start_with(short).await;
    server.revoke(raise("alice")).await;
    server.revoke(delegation("old")).await;
    drop(server);
    // As if a control plane had run for longer than the lifetime of a token.
    let shows = place.clock();
    place.set_clock(shows + 60);
    let server = place.start_with(short).await;
    assert_eq!(metric(&server, "credence_revocation_log_subjects").await, 2.0);
    drop(server);
    place.set_clock(shows + 60 + 300 + 5);
    let server = place.start_with(short).await;
    assert_eq!(metric(&server, "credence_revocation_log_subjects").await, 1.0);
    assert_eq!(
        metric(&server, "credence_revocation_log_forgotten_delegations_total").await,
        1.0
    );
    let (_, position, records) = server.watch_from_snapshot().await;
    assert_eq!((position.seq, records.len()), (2, 1));
}

#[tokio::test]
async fn a_longer_lifetime_counts_once_no_token_can_carry_what_was_forgotten_under_the_shorter() {
    let place = Place::new();
    let living = |seconds| {
        move |config: &mut credence_control_plane::Config| config.log.max_token_lifetime = Duration::from_secs(seconds)
    };
    drop(place.start_with(living(60)).await);
    let told = async |server: &Server| {
        let welcome = server.watch(None).await.welcome().await.max_token_lifetime_s;
        let log = server.get("/v1/log", &[]).await.json();
        assert!(
            log["max_token_lifetime_s"].as_u64().unwrap().abs_diff(welcome) <= 5,
            "{log}"
        );
        welcome
    };
    let server = place.start_with(living(7_200)).await;
    let at_first = told(&server).await;
    assert!((60..120).contains(&at_first), "{at_first}");
    drop(server);
    // As if a control plane had run for an hour, and then for two.
    let shows = place.clock();
    place.set_clock(shows + 3_600);
    let server = place.start_with(living(7_200)).await;
    let later = told(&server).await;
    assert!((3_660..3_780).contains(&later), "{later}");
    drop(server);
    place.set_clock(shows + 7_200);
    assert_eq!(told(&place.start_with(living(7_200)).await).await, 7_200);
}
