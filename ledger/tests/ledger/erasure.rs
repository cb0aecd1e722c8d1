//! Erasing a principal: none of its data can be read any more, and every proof still holds.

use std::path::Path;

use credence_ledger::index::IndexKey;
use credence_ledger::{Note, RecordBody, proof, tree};

use crate::support::*;

#[test]
fn erased_records_read_as_erased_and_every_proof_holds() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    for subject in ["a", "b", "a"] {
        fill(&mut ledger, subject, 300);
    }
    let reader = ledger.reader();
    let (size, root) = tree(&reader);
    let leaf = reader.leaf(5).unwrap();
    let erased = ledger.erase(principal("a"), "dpo", "request 17").unwrap().unwrap();
    let expected = [vec!["erased"; 300], vec!["b"; 300], vec!["erased"; 300], vec!["note"]].concat();
    assert_eq!(subjects(&reader), expected);
    assert_eq!(reader.leaf(5).unwrap(), leaf);
    assert_eq!(reader.root(size).unwrap(), root);
    let path = proof::inclusion(5, size, &reader).unwrap();
    proof::verify_inclusion(&tree::leaf_hash(&leaf), 5, size, &root, &path).unwrap();
    assert_eq!(erased.index, 900);
    let note = reader.record(erased.index).unwrap();
    let RecordBody::Note(note) = note.body else {
        panic!("{note:?}")
    };
    let Some(Note::Erasure(erasure)) = note.note else {
        panic!("{note:?}")
    };
    assert_eq!(
        (erasure.key, erasure.by.as_str(), erasure.reason.as_str()),
        (erased.key, "dpo", "request 17")
    );
    drop((ledger, reader));
    assert_eq!(subjects(&open(folder.path()).reader()), expected);
}

#[test]
fn later_events_of_the_principal_are_kept_under_another_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 2);
    ledger.erase(principal("a"), "", "").unwrap().unwrap();
    fill(&mut ledger, "a", 1);
    for ledger in [ledger, open(folder.path())] {
        assert_eq!(subjects(&ledger.reader()), ["erased", "erased", "note", "a"]);
        drop(ledger);
    }
}

#[test]
fn an_unknown_principal_cannot_be_erased() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1);
    assert_eq!(ledger.erase(principal("b"), "", "").unwrap(), None);
    ledger.erase(principal("a"), "", "").unwrap().unwrap();
    assert_eq!(ledger.erase(principal("a"), "", "").unwrap(), None);
    assert_eq!(subjects(&ledger.reader()), ["erased", "note"]);
}

#[test]
fn the_index_does_not_find_erased_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 600);
    fill(&mut ledger, "b", 600);
    ledger.erase(principal("a"), "", "").unwrap().unwrap();
    fill(&mut ledger, "a", 3);
    // This ends the thread that removes rows.
    drop(ledger);
    let ledger = open(folder.path());
    let count = |subject| {
        let key = IndexKey::principal("https://id", Some(subject));
        let segments = ledger.reader().segments();
        segments
            .iter()
            .map(|segment| segment.lookup(&key).unwrap().len())
            .sum::<usize>()
    };
    assert_eq!((count("a"), count("b")), (3, 600));
}

#[test]
fn an_erasure_that_a_crash_interrupted_anywhere_is_completed_in_the_index_too() {
    let folder = tempfile::tempdir().unwrap();
    let segmented = || {
        let mut options = options();
        options.bounds.segment = 1;
        try_open(folder.path(), options).unwrap().0
    };
    let mut ledger = segmented();
    for subject in ["a", "b", "a"] {
        fill(&mut ledger, subject, 300);
    }
    drop(ledger);
    let before = copy(folder.path());
    let mut ledger = segmented();
    let key = ledger.erase(principal("a"), "", "").unwrap().unwrap().key;
    drop(ledger);
    let pending = format!("erasing-{key}");
    assert!(!folder.path().join(&pending).exists(), "all rows are dropped");
    let index = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from.join("index")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join("index").join(entry.file_name())).unwrap();
        }
    };
    for key_is_destroyed in [false, true] {
        let crashed = copy(folder.path());
        index(before.path(), crashed.path());
        if !key_is_destroyed {
            std::fs::copy(before.path().join("keys"), crashed.path().join("keys")).unwrap();
        }
        std::fs::write(crashed.path().join(&pending), []).unwrap();
        // This ends the thread that removes rows.
        drop(open(crashed.path()));
        assert!(!crashed.path().join(&pending).exists());
        let ledger = open(crashed.path());
        let found = |subject| {
            let key = IndexKey::principal("https://id", Some(subject));
            let segments = ledger.reader().segments();
            segments
                .iter()
                .map(|segment| segment.lookup(&key).unwrap().len())
                .sum::<usize>()
        };
        assert_eq!((found("a"), found("b")), (0, 300), "key destroyed: {key_is_destroyed}");
        assert!(segment_files(crashed.path()).len() > 2);
    }
    // An erasure that was requested but never noted is not done.
    std::fs::write(before.path().join(&pending), []).unwrap();
    let ledger = open(before.path());
    assert!(!before.path().join(&pending).exists());
    assert_eq!(subjects(&ledger.reader())[..300], vec!["a"; 300]);
}

#[test]
fn an_erasure_that_a_crash_interrupted_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 2);
    let keys = std::fs::read(folder.path().join("keys")).unwrap();
    ledger.erase(principal("a"), "", "").unwrap().unwrap();
    drop(ledger);
    // The note is on disk, and the key still exists.
    std::fs::write(folder.path().join("keys"), keys).unwrap();
    let ledger = open(folder.path());
    assert_eq!(subjects(&ledger.reader()), ["erased", "erased", "note"]);
}
