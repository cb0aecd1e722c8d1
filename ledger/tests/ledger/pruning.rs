//! Removing old records: the hashes and what they prove stay.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use credence_ledger::tree::{Hashes as _, leaf_hash};
use credence_ledger::{LedgerOptions, Note, ReadError, RecordBody, Retention, proof};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;
use prost::Message as _;

use crate::support::*;

#[test]
fn segments_are_removed_whole_and_the_tree_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    let reader = ledger.reader();
    let (size, root) = tree(&reader);
    let leaf = leaf_hash(&reader.leaf(3).unwrap());
    let files = segment_files(folder.path()).len();
    let pruned = ledger.prune(800, Some((size, root))).unwrap();
    assert!(
        pruned.first <= 800 && pruned.first > 0 && pruned.segments > 0,
        "{pruned:?}"
    );
    assert_eq!(segment_files(folder.path()).len(), files - pruned.segments);
    assert_eq!(reader.first(), pruned.first);
    assert!(matches!(reader.record(3), Err(ReadError::Pruned { index: 3, .. })));
    reader.record(pruned.first).unwrap();
    assert_eq!(reader.root(size).unwrap(), root);
    assert_eq!(reader.read(0, 3, 1).unwrap(), [leaf]);
    let path = proof::inclusion(3, size, &reader).unwrap();
    proof::verify_inclusion(&leaf, 3, size, &root, &path).unwrap();
    let note = reader.record(size).unwrap();
    let RecordBody::Note(note) = note.body else {
        panic!("{note:?}")
    };
    let Some(Note::Pruning(pruning)) = note.note else {
        panic!("{note:?}")
    };
    assert_eq!(
        (pruning.first, pruning.tree_size, pruning.root),
        (pruned.first, size, root.0.to_vec())
    );
    let now = tree(&reader);
    drop((ledger, reader));
    let reader = open(folder.path()).reader();
    assert_eq!((tree(&reader), reader.first()), (now, pruned.first));
}

#[test]
fn the_last_segment_is_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    ledger.prune(u64::MAX, None).unwrap();
    assert_eq!(segment_files(folder.path()).len(), 1);
    fill(&mut ledger, "a", 1);
    assert_eq!(ledger.prune(u64::MAX, None).unwrap().segments, 0);
}

#[test]
fn a_removal_that_a_crash_interrupted_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    let before = copy(folder.path());
    let pruned = ledger.prune(800, None).unwrap();
    drop(ledger);
    for file in segment_files(before.path()) {
        let again = folder.path().join("segments").join(file.file_name().unwrap());
        if !again.exists() {
            std::fs::copy(&file, again).unwrap();
        }
    }
    let reader = open(folder.path()).reader();
    assert_eq!(reader.first(), pruned.first);
    assert_eq!(segment_files(folder.path()).len(), reader.segments().len());
}

#[test]
fn a_segment_that_is_missing_without_having_been_pruned_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    drop(ledger);
    for missing in [0, 1] {
        let folder = copy(folder.path());
        std::fs::remove_file(&segment_files(folder.path())[missing]).unwrap();
        let error = try_open(folder.path(), options()).unwrap_err().to_string();
        assert!(error.contains("restore the data folder"), "{error}");
    }
}

#[test]
fn keys_of_principals_without_records_are_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "old", 600);
    fill(&mut ledger, "new", 600);
    let keys = ledger.data_keys();
    let first = ledger.reader().segments()[0].first();
    let pruned = ledger.prune(first, None).unwrap();
    assert_eq!((pruned.keys, ledger.data_keys()), (1, keys - 1));
    assert_eq!(ledger.erase(principal("old"), "", "").unwrap(), None);
    drop(ledger);
    let mut ledger = open(folder.path());
    assert!(ledger.erase(principal("new"), "", "").unwrap().is_some());
}

#[test]
fn a_chain_that_has_not_expired_outlives_its_segment() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    let chain = |exp: u64| {
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}"));
        v1::Entry {
            entry: Some(Kind::Chain(v1::PresentedChain {
                chain: format!("e30.{claims}.c2ln").into_bytes(),
                principal: None,
            })),
        }
    };
    ledger.append(&[batch(1, vec![chain(1), chain(1 << 40)])]).unwrap();
    fill(&mut ledger, "a", 1200);
    let pruned = ledger.prune(u64::MAX, None).unwrap();
    assert_eq!(pruned.chains, 1);
    let reader = ledger.reader();
    let carried = reader.record(reader.size() - 2).unwrap();
    assert!(
        matches!(carried.body, RecordBody::Entry(stored) if stored.sequence == 0 && stored.entry == chain(1 << 40).encode_to_vec())
    );
    // The first chain is still known, the other one is not.
    ledger.append(&[batch(1203, vec![chain(1 << 40), chain(1)])]).unwrap();
    let subjects = subjects(&reader);
    assert_eq!(&subjects[subjects.len() - 2..], ["known chain", "chain"]);
}

#[test]
fn a_retention_by_bytes_and_one_by_age_remove_the_oldest() {
    let by_bytes = Retention {
        bytes: Some(200_000),
        age: None,
    };
    let by_age = Retention {
        bytes: None,
        age: Some(Duration::ZERO),
    };
    for (retention, removes_all) in [(by_bytes, false), (by_age, true), (Retention::default(), false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = try_open(folder.path(), LedgerOptions { retention, ..options() })
            .unwrap()
            .0;
        fill(&mut ledger, "a", 3000);
        let segments = segment_files(folder.path()).len();
        let mut pruned = None;
        // A part at a time, so that appends need not wait for all of it.
        while let Some(part) = ledger.retain(None).unwrap() {
            assert!(part.segments <= 2, "{part:?}");
            pruned = Some(part);
        }
        let left = segment_files(folder.path()).len();
        assert_eq!(pruned.is_some(), retention.bytes.is_some() || retention.age.is_some());
        assert_eq!(left == 1, removes_all);
        assert_eq!(left < segments, pruned.is_some());
        if let Some(limit) = retention.bytes {
            let used = evidence_bytes(folder.path());
            assert!(used <= limit + 1000 && used > limit / 2, "{used}");
        }
    }
}

/// Hashes are kept forever, and in time take more space than the records.
#[test]
fn the_size_of_hashes_and_keys_removes_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let retention = Retention {
        bytes: Some(60_000),
        age: None,
    };
    let mut ledger = try_open(folder.path(), LedgerOptions { retention, ..options() })
        .unwrap()
        .0;
    fill(&mut ledger, "a", 3000);
    while ledger.retain(None).unwrap().is_some() {}
    let used = evidence_bytes(folder.path());
    assert!(used > 30_000 && used <= 61_000, "{used}");
    assert!(segment_files(folder.path()).len() > 1);
}

fn evidence_bytes(folder: &Path) -> u64 {
    let files = ["segments", "index"].map(|name| std::fs::read_dir(folder.join(name)).unwrap());
    let files = files.into_iter().flatten();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn keys_left_by_a_crash_are_destroyed_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "old", 600);
    fill(&mut ledger, "new", 600);
    let keys = std::fs::read(folder.path().join("keys")).unwrap();
    let first = ledger.reader().segments()[0].first();
    assert_eq!(ledger.prune(first, None).unwrap().keys, 1);
    drop(ledger);
    std::fs::write(folder.path().join("keys"), keys).unwrap();
    let mut ledger = open(folder.path());
    assert_eq!(ledger.erase(principal("old"), "", "").unwrap(), None);
    assert!(ledger.erase(principal("new"), "", "").unwrap().is_some());
}

#[test]
fn an_index_of_a_segment_that_is_gone_is_removed_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    drop(ledger);
    let mut ledger = open(folder.path());
    let index = folder.path().join("index");
    let forsaken = [format!("{:020}", 0), format!("{:020}.new", 0)].map(|name| index.join(name));
    let contents = std::fs::read(&forsaken[0]).unwrap();
    ledger.prune(u64::MAX, None).unwrap();
    drop(ledger);
    for path in &forsaken {
        std::fs::write(path, &contents).unwrap();
    }
    drop(open(folder.path()));
    assert!(forsaken.iter().all(|path| !path.exists()));
}
