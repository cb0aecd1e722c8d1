//! Answers about a ledger that a disk has damaged, or that was reset to an earlier state.

use std::path::Path;
use std::time::Duration;

use credence_control_plane::Config;

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
    // Tiles for verification are unchanged, or not served.
    let (status, caching, _) = raw(&server, "/ledger/tile/entries/000.p/4").await;
    assert_eq!((status, caching.as_str()), (500, "no-store"));
}

#[tokio::test]
async fn a_hash_that_a_disk_has_changed_is_not_served() {
    let place = Place::new();
    let server = place.start().await;
    record(&server, &["a", "b", "c", "d"]).await;
    let tile = || raw(&server, "/ledger/tile/0/000.p/4");
    let (status, caching, whole) = tile().await;
    assert_eq!((status, whole.len()), (200, 128));
    assert!(caching.contains("immutable"), "{caching}");
    flip(&place.path("ledger/hashes/0"), 2 * 32 + 7);
    let (status, caching, _) = tile().await;
    assert_eq!((status, caching.as_str()), (500, "no-store"));
    for index in 0..4 {
        let (status, ..) = raw(&server, &format!("/ledger/proof/{index}")).await;
        assert_eq!(status, 500, "{index}");
    }
    flip(&place.path("ledger/hashes/0"), 2 * 32 + 7);
    assert_eq!(tile().await.2, whole);
    assert_eq!(raw(&server, "/ledger/proof/2").await.0, 200);
}

#[tokio::test]
async fn a_folder_that_was_taken_back_signs_nothing_below_the_published_note_until_it_is_declared_restored() {
    let (place, outside) = (Place::new(), tempfile::tempdir().unwrap());
    let note = outside.path().join("published");
    let remembering = |config: &mut Config| config.settings.ledger.published_note = Some(note.clone());
    let server = place.start_with(remembering).await;
    record(&server, &["a", "b"]).await;
    let log_id = server.log_id();
    server.running.shutdown().await;
    let backup = tempfile::tempdir().unwrap();
    copy(&place.path(""), backup.path());
    let server = place.start_with(remembering).await;
    record(&server, &["c"]).await;
    server.running.shutdown().await;
    let published = std::fs::read_to_string(&note).unwrap();
    std::fs::remove_dir_all(place.path("")).unwrap();
    copy(backup.path(), &place.path(""));

    let server = place.start_with(remembering).await;
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text.contains("--restored"), "{}", ready.text);
    assert_eq!(server.get("/ledger/checkpoint", &[]).await.status, 503);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), published);
    server.revoke(raise("alice")).await;
    server.running.shutdown().await;

    let server = place
        .start_with(|config| {
            remembering(config);
            config.log.restored = Some(log_id);
        })
        .await;
    record(&server, &["d"]).await;
    let restored = std::fs::read_to_string(&note).unwrap();
    assert_ne!(
        restored.lines().next(),
        published.lines().next(),
        "under another origin"
    );
    assert_eq!(server.get("/readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn a_start_is_refused_if_the_published_note_is_not_outside_of_the_data_directory() {
    let (place, outside) = (Place::new(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("file"), "").unwrap();
    for (note, cure) in [
        (place.path("published"), "Name a file elsewhere"),
        (outside.path().join("missing/published"), "Create it"),
        (outside.path().join("file/published"), "Create it"),
        (outside.path().join(".."), "Name one"),
    ] {
        let refused = place
            .try_start(|config| config.settings.ledger.published_note = Some(note.clone()))
            .await;
        let error = refused.err().expect("refused").to_string();
        let folder = note.parent().unwrap().to_str().unwrap();
        assert!(error.starts_with("at ledger.published_note: "), "{error}");
        assert!(error.contains(folder) && error.contains(cure), "{error}");
    }
    // The start has created nothing.
    assert!(!place.path("ledger").exists());
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

/// Waits until a checkpoint covers this many records.
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

/// Status, `cache-control` and body of an answer.
async fn raw(server: &Server, path: &str) -> (u16, String, Vec<u8>) {
    let url = server.url(path);
    let asking = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut response = agent.get(url).call().unwrap();
        let caching = response
            .headers()
            .get("cache-control")
            .map(|value| value.to_str().unwrap().to_owned());
        let body = response.body_mut().read_to_vec().unwrap();
        (response.status().as_u16(), caching.unwrap_or_default(), body)
    });
    asking.await.unwrap()
}

/// Flips a bit of the record of this index on disk.
async fn damage_record(server: &Server, place: &Place, index: usize) {
    let leaf = {
        let (_, _, bundle) = raw(server, &format!("/ledger/tile/entries/000.p/{}", index + 1)).await;
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

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => {
                std::fs::copy(&path, &target).unwrap();
            }
        }
    }
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 4;
    // In place: the control plane has the file open.
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes[byte..=byte], byte as u64).unwrap();
}
