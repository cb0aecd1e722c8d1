//! A log of many subjects: how fast a control plane restarts, and how much memory it takes.

use std::time::{Duration, Instant};

use credence_control_plane::fill_log;

use super::harness::{ISSUER, Place, raise};

/// The resident memory of the process.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

async fn restart_with(subjects: usize) -> (Duration, u64) {
    let place = Place::new();
    let folder = place.path("");
    tokio::task::spawn_blocking(move || fill_log(&folder, ISSUER, subjects, 1).unwrap())
        .await
        .unwrap();
    let begun = Instant::now();
    let server = place.start().await;
    let started = begun.elapsed();
    let (mut watcher, position, records) = server.watch_from_snapshot().await;
    assert_eq!((position.seq, records.len()), (subjects as u64, subjects));
    drop(records);
    server.revoke(raise("user-0000000")).await;
    assert_eq!(watcher.update().await.position.unwrap().seq, subjects as u64 + 1);
    (started, resident_mib())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_fifty_thousand_subjects_is_served_whole() {
    restart_with(50_000).await;
}

/// `make soak` prints the figures. The memory includes the records that the test's own client pulls.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make soak runs it"]
async fn restart_at_scale() {
    let (started, resident) = restart_with(1_000_000).await;
    #[allow(clippy::print_stdout, reason = "the test prints its figures")]
    {
        println!("1,000,000 subjects: ready after {started:?}, {resident} MiB resident with the client's copy");
    }
    assert!(started < Duration::from_secs(5), "{started:?}");
}
