//! State that survives a process, and folders on which a process refuses to start.

use std::time::{Duration, Instant};

use credence_control_plane::{Config, DataDirError, InitOptions, StartError};
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use tonic::Code;

use super::harness::{ISSUER, LOG_FILE, Place, Server, TOKEN, delegation, event, raise};

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
async fn a_flipped_bit_in_any_acknowledged_revocation_is_refused_naming_the_file() {
    for subject in ["alice", "bob"] {
        let place = Place::new();
        let server = place.start().await;
        server.revoke(raise("alice")).await;
        server.revoke(raise("bob")).await;
        server.running.shutdown().await;
        place.flip_in_log(subject);
        let refused = refusal_of(&place).await;
        assert!(refused.contains("log/state.redb is damaged"), "{refused}");
        assert!(refused.contains("Restore the data folder"), "no cure: {refused}");
    }
}

#[tokio::test]
async fn the_folder_of_a_version_with_other_files_is_refused_and_left_unchanged() {
    for init in [None, Some(InitOptions::default())] {
        let place = Place::new();
        std::fs::create_dir_all(place.path("log")).unwrap();
        std::fs::write(place.path("log/revocations"), "as another version wrote it").unwrap();
        let Err(error) = place.try_start(|config| config.log.init = init).await else {
            panic!("the folder was served")
        };
        let text = error.to_string();
        assert!(
            text.contains("log/revocations, which this version does not read"),
            "{text}"
        );
        let names: Vec<_> = std::fs::read_dir(place.path("log")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

#[tokio::test]
async fn a_log_restored_from_an_old_copy_is_refused_by_clients_that_saw_more() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    server.running.shutdown().await;
    let old = std::fs::read(place.path(LOG_FILE)).unwrap();
    let server = place.start().await;
    server.revoke(raise("bob")).await;
    let (_, seen, _) = server.watch_from_snapshot().await;
    server.running.shutdown().await;
    std::fs::write(place.path(LOG_FILE), old).unwrap();

    let server = place.start().await;
    let refused = server.watch(Some(seen.clone())).await.refusal().await;
    assert!(refused.1.contains("ends at 1"), "{refused:?}");
    server.revoke(raise("carol")).await;
    let refused = server.watch(Some(seen)).await.refusal().await;
    assert!(refused.1.contains("differs"), "{refused:?}");
    // The client was told of bob. That shows a restore, and an alert may fire on it.
    server
        .wait_for("credence_revocation_foreign_positions_total{evidence=\"proven\"} 2")
        .await;
}

#[tokio::test]
async fn a_client_that_knows_more_than_the_log_is_counted_and_changes_nothing() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    let ahead = v1::Position {
        seq: 1_000,
        digest: vec![7; 32],
        proof: vec![7; 16],
    };
    let diverged = v1::Position {
        seq: 1,
        ..ahead.clone()
    };
    for position in [ahead, diverged] {
        server.watch(Some(position)).await.refusal().await;
    }
    let metrics = server.get("/metrics", &[]).await.text;
    assert!(
        metrics.contains("\ncredence_revocation_foreign_positions_total{evidence=\"claimed\"} 2\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\ncredence_revocation_foreign_positions_total{evidence=\"proven\"} 0\n"),
        "{metrics}"
    );
    assert_eq!(server.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_claimed_position_at_the_end_of_all_numbers_is_no_evidence_of_a_restore() {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    let (_watcher, given, _) = server.watch_from_snapshot().await;
    let claimed = v1::Position { seq: u64::MAX, ..given };
    server.watch(Some(claimed)).await.refusal().await;
    server
        .wait_for("credence_revocation_foreign_positions_total{evidence=\"claimed\"} 1")
        .await;
    server
        .wait_for("credence_revocation_foreign_positions_total{evidence=\"proven\"} 0")
        .await;
}

#[tokio::test]
async fn a_restored_log_gets_another_name_and_revokes_what_was_issued_before() {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    let place = Place::new();
    let server = place.start().await;
    let old = server.log_id();
    let raised = server.revoke(raise("alice")).await;
    drop(server);

    let restored = |config: &mut Config| config.log.restored = Some(old.clone());
    let server = place.start_with(restored).await;
    let new = server.log_id();
    assert_ne!(new, old);
    let (_, position, records) = server.watch_from_snapshot().await;
    assert_eq!((position.seq, records.len()), (2, 2));
    let floor = records.iter().find_map(|record| match &record.subject {
        Some(Subject::LogFloor(floor)) => Some(floor.issued_up_to),
        _ => None,
    });
    assert!(floor >= Some(now), "{floor:?}");
    let path = format!("/v1/principals?issuer={ISSUER}&subject=alice");
    let alice = server.get(&path, &[&format!("Bearer {TOKEN}")]).await.json();
    assert_eq!(alice["epoch"], raised["epoch"]);
    assert_eq!(
        (alice["history"].as_array().unwrap().len(), &alice["history"][0]["by"]),
        (1, &"operator".into())
    );
    server.revoke(raise("bob")).await;
    drop(server);

    let Err(again) = place.try_start(restored).await else {
        panic!("a log was declared restored twice")
    };
    assert!(again.to_string().contains("start without --restored"), "{again}");
    let server = place.start().await;
    assert_eq!((server.log_id(), server.watch_from_snapshot().await.1.seq), (new, 3));
}

#[tokio::test]
async fn an_emptied_folder_is_refused_without_init() {
    let place = Place::new();
    let Err(error) = place.try_start(|config| config.log.init = None).await else {
        panic!("an empty folder was served")
    };
    assert!(
        matches!(error, StartError::DataDir(DataDirError::NotInitialised { .. })),
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
    assert!(matches!(error, StartError::DataDir(DataDirError::Lock(_))), "{error}");
}

#[tokio::test]
async fn a_new_log_revokes_what_was_issued_before_unless_it_is_the_first() {
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
        .start_with(|config| config.log.init = Some(InitOptions::default()))
        .await;
    let floor = floors(server.watch_from_snapshot().await.2);
    assert!(matches!(floor[..], [floor] if floor >= now), "{floor:?}");

    let place = Place::new();
    let server = place
        .start_with(|config| config.log.init = Some(InitOptions { floor: false }))
        .await;
    assert!(floors(server.watch_from_snapshot().await.2).is_empty());
}

#[tokio::test]
async fn a_successor_confirms_once_the_drain_promise_has_ended() {
    let place = Place::new();
    let promise = Duration::from_millis(2_500);
    let server = place.start_with(|config| config.log.drain_promise = promise).await;
    let mut filter = server.filter().await;
    assert_eq!(server.stop_before(&mut filter).await, 2_500);
    let stopped = Instant::now();

    let server = place
        .start_with(|config| config.log.max_staleness = MIN_STALENESS)
        .await;
    let mut filter = server.filter().await;
    let confirmed = tokio::spawn(server.revoke_in_background(raise("alice")));
    // This filter is back and confirms, but there may be others.
    assert_eq!(filter.update().await.position.unwrap().seq, 1);
    filter.apply(1).await;
    assert_eq!(confirmed.await.unwrap().status, 200);
    assert!(stopped.elapsed() >= promise, "{:?}", stopped.elapsed());
    wait_until_leases_are(&place, 2_020).await;
}

#[tokio::test]
async fn after_a_crash_nothing_is_confirmed_before_the_leases_are_over() {
    let place = Place::new();
    let staleness = |config: &mut Config| config.log.max_staleness = MIN_STALENESS;
    let server = place.start_with(staleness).await;
    let filter = server.filter().await;
    let echoed = Instant::now();
    drop((server, filter));
    let server = place.start_with(staleness).await;
    let answer = server.revoke_in_background(raise("alice")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(echoed.elapsed() >= MIN_STALENESS, "{:?}", echoed.elapsed());
}

#[tokio::test]
async fn a_new_log_waits_for_no_predecessor() {
    let place = Place::new();
    let server = place.start().await;
    assert_eq!(server.try_revoke(raise("alice")).await.status, 200);
}

#[tokio::test]
async fn a_filter_without_a_ping_answer_gets_no_drain_promise() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.drain_promise = LONG).await;
    let (mut watcher, ..) = server.watch_from_snapshot().await;
    assert_eq!(server.stop_before(&mut watcher).await, 0);
}

#[tokio::test]
async fn the_drain_promise_outlives_successors_that_stop_or_crash_while_it_lasts() {
    let place = Place::new();
    let server = place.start_with(|config| config.log.drain_promise = LONG).await;
    let mut filter = server.filter().await;
    assert_eq!(server.stop_before(&mut filter).await, 10_000);
    for stops in [false, true, false] {
        let server = place
            .start_with(|config| config.log.max_staleness = MIN_STALENESS)
            .await;
        let left = left(&server).await;
        // Its own leases would last for 2 s.
        assert!((5_000..=10_100).contains(&left), "{left} ms");
        if stops {
            server.running.shutdown().await;
        }
    }
}

const MIN_STALENESS: Duration = Duration::from_secs(2);

/// The longest drain promise.
const LONG: Duration = Duration::from_secs(10);

/// The most milliseconds until a revocation that is made now is confirmed.
async fn left(server: &Server) -> u64 {
    let answer = server.try_revoke(raise("alice")).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.json()["filters"]["left_ms"].as_u64().unwrap()
}

/// Waits until the next start will wait for this many milliseconds.
async fn wait_until_leases_are(place: &Place, milliseconds: u64) {
    let begun = Instant::now();
    loop {
        let noted = place.notes().leases_ms;
        if noted == milliseconds {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "still {noted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn head(server: &Server) -> u64 {
    server.get("/v1/log", &[]).await.json()["seq"].as_u64().unwrap()
}

#[tokio::test]
async fn a_raise_with_a_slow_wall_clock_is_dated_by_the_logs_clock() {
    let place = Place::new();
    drop(place.start().await);
    // The log's clock is an hour ahead, so the wall clock is an hour slow.
    let shows = place.clock();
    place.set_clock(shows + 3_600);
    let server = place.start().await;
    server.revoke(raise("alice")).await;
    let path = format!("/v1/principals?issuer={ISSUER}&subject=alice");
    let alice = server.get(&path, &[&format!("Bearer {TOKEN}")]).await.json();
    let raised_at = alice["raised_at"].as_i64().unwrap();
    assert!((shows + 3_600..shows + 3_720).contains(&raised_at), "{raised_at}");
}

/// A folder with a revoked delegation, after a planned stop.
async fn folder_with_a_revoked_delegation() -> Place {
    let place = Place::new();
    let server = place.start().await;
    server.revoke(delegation("stolen")).await;
    server.running.shutdown().await;
    place
}

async fn refusal_of(place: &Place) -> String {
    match place.try_start(|_| {}).await {
        Ok(_) => panic!("the folder was served"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn removing_the_lock_of_a_running_folder_lets_no_second_control_plane_in() {
    let place = Place::new();
    let first = place.start().await;
    std::fs::remove_file(place.path("lock")).unwrap();
    let Err(error) = place.try_start(|_| {}).await else {
        panic!("two control planes share a folder")
    };
    assert!(matches!(error, StartError::DataDir(DataDirError::Lock(_))), "{error}");
    // Without the lock, a control plane that checks only the file could start: so the first one ends.
    let failure = tokio::time::timeout(Duration::from_secs(5), first.running.failed()).await;
    assert!(failure.unwrap().to_string().contains("lock"), "it does not say why");
    assert_ne!(first.try_revoke(raise("alice")).await.status, 200);
}

#[tokio::test]
async fn a_control_plane_whose_folder_was_replaced_acknowledges_nothing_and_ends() {
    let place = Place::new();
    let first = place.start().await;
    first.revoke(raise("alice")).await;
    let (mut reporter, _) = first.report(None).await.unwrap();
    let aside = place.path("").with_file_name("aside");
    std::fs::rename(place.path(""), &aside).unwrap();
    let second = place.start().await;
    let refused = first.try_revoke(raise("bob")).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.text.contains("was replaced by another one"), "{}", refused.text);
    reporter.batch(1, vec![event("read")]).await;
    assert_eq!(reporter.refusal().await.0, Code::Unavailable);
    // A revocation that is already in force is not acknowledged either.
    assert_eq!(first.try_revoke(raise("alice")).await.status, 503);
    let failure = tokio::time::timeout(Duration::from_secs(5), first.running.failed()).await;
    assert!(
        failure.unwrap().to_string().contains("was replaced by another one"),
        "it does not say why"
    );
    assert_eq!(first.get("/readyz", &[]).await.status, 503);
    // The second one is not disturbed, even while the first one stops.
    second.revoke(raise("carol")).await;
    first.running.shutdown().await;
    let log_id = second.log_id();
    second.running.shutdown().await;
    let again = place.start().await;
    assert_eq!((again.log_id(), head(&again).await), (log_id, 1));
    assert_eq!(again.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_missing_file_is_named_with_what_to_do() {
    for file in ["log/state.redb", "log/audit-source-key", "ledger", "identity"] {
        let place = folder_with_a_revoked_delegation().await;
        let path = place.path(file);
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
        removed.unwrap();
        let refused = refusal_of(&place).await;
        assert!(refused.contains(&format!("{file} is missing")), "{refused}");
        assert!(refused.contains("estore"), "no cure: {refused}");
    }
}

#[tokio::test]
async fn every_file_of_the_folder_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = folder_with_a_revoked_delegation().await;
    let server = place.start().await;
    server.history_of("alice").await;
    let mut folders = vec![place.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            match path.is_dir() {
                true => folders.push(path),
                false => assert_eq!(mode, 0o600, "{}", path.display()),
            }
        }
    }
}
