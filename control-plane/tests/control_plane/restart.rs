//! What outlives a process, and what a process refuses to start on.

use std::time::{Duration, Instant};

use credence_control_plane::{DataFolderError, InitOptions, StartError};
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use credence_wire::v1::watch_response::Message as WatchAnswer;

use super::harness::{Place, Server, delegation, raise};

#[tokio::test]
async fn an_acknowledged_revocation_survives_a_crash() {
    let place = Place::new();
    let server = place.start().await;
    let log_id = server.log_id();
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    let epoch = server.revoke(raise("alice")).await["epoch"].as_u64().unwrap();
    let applied = watcher.update().await.position.unwrap();
    drop(server);

    let server = place.start().await;
    assert_eq!(server.log_id(), log_id);
    let (_, position, records) = server.watch_from_snapshot().await;
    assert_eq!(position, applied);
    let Some(Subject::Principal(state)) = records[0].subject.clone() else {
        panic!()
    };
    assert_eq!(state.epoch, epoch);
    let resumed = server.watch(Some(applied)).await.welcome().await;
    assert_eq!(resumed.snapshot, None);
}

#[tokio::test]
async fn a_write_that_a_crash_interrupted_is_cut_and_the_log_goes_on() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.revoke(raise("bob")).await;
    drop(server);
    // As far as had been noted when the crash came.
    let _ = std::fs::remove_file(place.path("log/head"));
    edit(&place, |bytes| bytes.truncate(bytes.len() - 1));
    let server = place.start().await;
    assert_eq!(head(&server).await, 1);
    assert_eq!(server.revoke(raise("bob")).await["seq"], 2);
}

#[tokio::test]
async fn damage_to_acknowledged_data_is_refused_naming_file_and_offset() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.revoke(raise("bob")).await;
    drop(server);
    edit(&place, |bytes| bytes[60] ^= 1);
    let Err(error) = place.try_start(|_| {}).await else {
        panic!("a damaged log was served")
    };
    let text = error.to_string();
    assert!(text.contains("log/revocations is damaged at byte 36"), "{text}");
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_acknowledged_revocation_is_not_taken_for_an_interrupted_write() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.running.shutdown().await;
    let note = std::fs::read_to_string(place.path("log/head")).unwrap();
    assert!(note.starts_with("1 "), "{note}");
    edit(&place, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let Err(error) = place.try_start(|_| {}).await else {
        panic!("a damaged log was served")
    };
    let text = error.to_string();
    assert!(
        text.contains("it ends before the last entry that was acknowledged"),
        "{text}"
    );
}

#[tokio::test]
async fn a_log_restored_from_an_old_copy_is_not_believed_by_those_who_saw_more() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    drop(server);
    let old = std::fs::read(place.path("log/revocations")).unwrap();
    let server = place.start().await;
    server.revoke(raise("bob")).await;
    let (_, seen, _) = server.watch_from_snapshot().await;
    drop(server);
    std::fs::write(place.path("log/revocations"), old).unwrap();
    // A copy of the folder has the note of its own time, not of ours.
    let _ = std::fs::remove_file(place.path("log/head"));

    let server = place.start().await;
    let refused = server.watch(Some(seen.clone())).await.refusal().await;
    assert!(refused.1.contains("ends at 1"), "{refused:?}");
    server.revoke(raise("carol")).await;
    let refused = server.watch(Some(seen)).await.refusal().await;
    assert!(refused.1.contains("differs"), "{refused:?}");
}

#[tokio::test]
async fn an_emptied_folder_is_refused_without_init() {
    let place = Place::new();
    let Err(error) = place.try_start(|config| config.init = None).await else {
        panic!("an empty folder was served")
    };
    assert!(
        matches!(error, StartError::DataFolder(DataFolderError::NotInitialised { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_second_control_plane_on_the_same_folder_is_refused() {
    let place = Place::new();
    let _server = place.start().await;
    let Err(error) = place.try_start(|_| {}).await else {
        panic!("two control planes share a folder")
    };
    assert!(
        matches!(error, StartError::DataFolder(DataFolderError::Locked { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_new_log_voids_what_was_issued_before_unless_it_is_the_first() {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    let floors = |records: Vec<v1::Record>| -> Vec<i64> {
        let floor = |record: v1::Record| match record.subject {
            Some(Subject::LogFloor(floor)) => Some(floor.issued_up_to),
            _ => None,
        };
        records.into_iter().filter_map(floor).collect()
    };
    let place = Place::new();
    let server = place
        .start_with(|config| config.init = Some(InitOptions::default()))
        .await;
    let floor = floors(server.watch_from_snapshot().await.2);
    assert!(matches!(floor[..], [floor] if floor >= now), "{floor:?}");

    let place = Place::new();
    let server = place
        .start_with(|config| config.init = Some(InitOptions { floor: false }))
        .await;
    assert!(floors(server.watch_from_snapshot().await.2).is_empty());
}

#[tokio::test]
async fn a_planned_stop_tells_the_filters_its_promise_and_the_successor_keeps_it() {
    let place = Place::new();
    let promise = Duration::from_millis(700);
    let server = place.start_with(|config| config.drain_promise = promise).await;
    let (mut watcher, _, _) = server.watch_from_snapshot().await;
    let stopping = tokio::spawn(server.running.shutdown());
    let drain = match watcher.next().await.unwrap() {
        WatchAnswer::Drain(drain) => drain,
        other => panic!("{other:?}"),
    };
    let told = Instant::now();
    assert_eq!(drain.promise_ms, 700);
    stopping.await.unwrap();

    let server = place.start().await;
    let refused = server.try_revoke(raise("alice")).await;
    assert_eq!(
        (refused.status, refused.retry_after),
        (503, Some(1)),
        "{}",
        refused.text
    );
    assert!(refused.text.contains("promised"), "{}", refused.text);
    while server.try_revoke(raise("alice")).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(told.elapsed() >= promise, "{:?}", told.elapsed());
    assert!(!place.path("log/promise").exists());
}

#[tokio::test]
async fn a_promise_outlives_a_successor_that_crashes_while_it_keeps_it() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.drain_promise = Duration::from_secs(5))
        .await;
    server.running.shutdown().await;
    for _ in 0..2 {
        let server = place.start().await;
        assert_eq!(server.try_revoke(raise("alice")).await.status, 503);
    }
    place.start().await.running.shutdown().await;
    let server = place.start().await;
    assert_eq!(server.try_revoke(raise("alice")).await.status, 503);
}

#[tokio::test]
async fn without_a_promise_the_successor_revokes_at_once() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(delegation("one")).await;
    server.running.shutdown().await;
    let server = place.start().await;
    assert_eq!(server.revoke(delegation("two")).await["seq"], 2);
}

async fn head(server: &Server) -> u64 {
    server.get("/v1/log", &[]).await.json()["seq"].as_u64().unwrap()
}

fn edit(place: &Place, change: impl FnOnce(&mut Vec<u8>)) {
    let path = place.path("log/revocations");
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}
