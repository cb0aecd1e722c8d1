//! What is served of a ledger that a disk has damaged, or that was taken back to an earlier state.

use std::path::Path;
use std::time::Duration;

use super::harness::{Place, Server, TOKEN, events, raise};

#[tokio::test]
async fn a_page_marks_a_record_that_cannot_be_read_and_has_all_the_others() {
    let place = Place::new();
    let server = place.start().await;
    record(&server, &["a", "b", "c", "d"]).await;
    assert_eq!(
        kinds(&server, "").await,
        ["decision", "decision", "decision", "decision", "source"]
    );
    damage_record(&server, &place, 2).await;
    for conditions in ["", "?principal_subject=alice", "?limit=3", "?from=2020-01-01T00:00:00Z"] {
        let found = server.events(conditions).await;
        let unreadable: Vec<_> = found.iter().filter(|record| record["kind"] == "unreadable").collect();
        assert_eq!(unreadable.len(), 1, "{conditions}: {found:?}");
        assert_eq!(unreadable[0]["index"], 2, "{conditions}");
        let readable = found.iter().filter(|record| record["kind"] == "decision").count();
        assert_eq!(readable, if conditions == "?limit=3" { 2 } else { 3 }, "{conditions}");
    }
    let one = server.get("/v1/audit/events/2", &[&format!("Bearer {TOKEN}")]).await;
    assert_eq!((one.status, one.json()["kind"].as_str()), (200, Some("unreadable")));
    server.wait_for("credence_ledger_unreadable_records 1").await;
    // What is served for others to check is as it was, or not served.
    let bundle = server.get("/ledger/tile/entries/000.p/4", &[]).await;
    assert_eq!((bundle.status, bundle.cache_control), (500, None));
}

#[tokio::test]
async fn a_hash_that_a_disk_has_changed_is_not_served() {
    let place = Place::new();
    let server = place.start().await;
    record(&server, &["a", "b", "c", "d"]).await;
    let tile = || server.get("/ledger/tile/0/000.p/4", &[]);
    let whole = tile().await;
    assert_eq!(whole.status, 200);
    assert!(whole.cache_control.unwrap().contains("immutable"));
    flip(&place.path("ledger/hashes/0"), 2 * 32 + 7);
    let damaged = tile().await;
    assert_eq!((damaged.status, damaged.cache_control), (500, None), "{}", damaged.text);
    for index in 0..4 {
        let proof = server.get(&format!("/ledger/proof/{index}"), &[]).await;
        assert_eq!(proof.status, 500, "{index}: {}", proof.text);
    }
    flip(&place.path("ledger/hashes/0"), 2 * 32 + 7);
    assert_eq!(tile().await.status, 200);
    assert_eq!(server.get("/ledger/proof/2", &[]).await.status, 200);
}

#[tokio::test]
async fn a_checkpoint_that_is_gone_stops_the_ledger_and_no_revocation() {
    let place = Place::new();
    let server = place.start().await;
    record(&server, &["a", "b"]).await;
    server.running.shutdown().await;
    std::fs::remove_file(place.path("ledger/checkpoint")).unwrap();
    let server = place.start().await;
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(
        ready.text.contains("ledger/checkpoint") && ready.text.contains("--restored"),
        "{}",
        ready.text
    );
    assert_eq!(server.get("/ledger/checkpoint", &[]).await.status, 503);
    server.revoke(raise("alice")).await;
}

/// Reports decisions of these tools, and waits until a checkpoint covers them.
async fn record(server: &Server, tools: &[&str]) {
    let (mut reporter, welcome) = server.report(None).await.unwrap();
    reporter.batch(welcome.acknowledged + 1, events(tools)).await;
    reporter.acknowledged().await;
    let size = server.events("?limit=1").await[0]["index"].as_u64().unwrap() + 1;
    published(server, size).await;
}

/// Waits until a checkpoint covers so many records.
async fn published(server: &Server, size: u64) {
    let begun = std::time::Instant::now();
    loop {
        let checkpoint = server.get("/ledger/checkpoint", &[]).await.text;
        let published = checkpoint.lines().nth(1).and_then(|size| size.parse::<u64>().ok());
        if published.is_some_and(|published| published >= size) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{checkpoint}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn kinds(server: &Server, conditions: &str) -> Vec<String> {
    let records = server.events(conditions).await;
    records
        .iter()
        .map(|record| record["kind"].as_str().unwrap().to_owned())
        .collect()
}

/// Flips a bit of the record of this index, where it lies.
async fn damage_record(server: &Server, place: &Place, index: usize) {
    let leaf = {
        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
        let url = server.url(&format!("/ledger/tile/entries/000.p/{}", index + 1));
        let bundle =
            tokio::task::spawn_blocking(move || agent.get(url).call().unwrap().body_mut().read_to_vec().unwrap());
        let bundle = bundle.await.unwrap();
        let mut leaves = Vec::new();
        let mut rest = bundle.as_slice();
        while let Some((length, behind)) = rest.split_first_chunk::<2>() {
            let (leaf, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)));
            leaves.push(leaf.to_vec());
            rest = behind;
        }
        leaves.swap_remove(index)
    };
    let path = place.path(&format!("ledger/segments/{:020}", 0));
    let segment = std::fs::read(&path).unwrap();
    let at = segment.windows(leaf.len()).position(|window| window == leaf).unwrap();
    flip(&path, at + leaf.len() - 1);
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 4;
    // In place: the control plane has the file open.
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes[byte..=byte], byte as u64).unwrap();
}
