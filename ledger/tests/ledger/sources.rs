//! What the ledger keeps: records, the tree over them, sources and their sequence numbers, and chains.

use credence_ledger::index::IndexKey;
use credence_ledger::proof;
use credence_ledger::tree::{Frontier, leaf_hash};
use credence_ledger::{
    LedgerBounds, LedgerError, LedgerOptions, NewItem, ReadError, RecordBody, SourceChange, SourceName,
};
use credence_wire::v1;
use credence_wire::v1::entry::Entry as Kind;
use prost::Message as _;

use crate::support::*;

#[test]
fn appended_records_are_read_back_at_once_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    ledger.append(&[change(SOURCE, SourceChange::Started, 0)]).unwrap();
    ledger
        .append(&[batch(1, vec![event("a", "pay"), event("b", "read")])])
        .unwrap();
    let before = ledger.reader().records(0..3).unwrap();
    assert_eq!(subjects(&ledger.reader()), ["source", "a", "b"]);
    assert!(
        matches!(&before[2].body, RecordBody::Entry(stored) if stored.sequence == 2 && stored.entry == event("b", "read").encode_to_vec())
    );
    assert_eq!(before[1].source, SOURCE.to_string());
    drop(ledger);
    let ledger = open(folder.path());
    assert_eq!(ledger.reader().records(0..3).unwrap(), before);
}

#[test]
fn every_leaf_of_any_segment_is_proven_by_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1500);
    let reader = ledger.reader();
    assert!(segment_files(folder.path()).len() > 2);
    let mut frontier = Frontier::new();
    for index in 0..reader.size() {
        frontier.push(leaf_hash(&reader.leaf(index).unwrap()), &mut |_, _| {});
    }
    let (size, root) = tree(&reader);
    assert_eq!((size, root), (1500, frontier.root()));
    for index in [0, 255, 256, 700, 1499] {
        let leaf = leaf_hash(&reader.leaf(index).unwrap());
        let path = proof::inclusion(index, size, &reader).unwrap();
        proof::verify_inclusion(&leaf, index, size, &root, &path).unwrap();
    }
}

#[test]
fn bundles_are_the_leaves_behind_their_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 600);
    let reader = ledger.reader();
    for first in [0, 256, 512] {
        let count = 256.min(600 - first);
        let mut expected = Vec::new();
        for index in first..first + count {
            let leaf = reader.leaf(index).unwrap();
            expected.extend_from_slice(&(leaf.len() as u16).to_be_bytes());
            expected.extend_from_slice(&leaf);
        }
        assert_eq!(reader.bundle(first, count).unwrap(), expected);
    }
    assert!(matches!(reader.bundle(512, 89), Err(ReadError::NotThere { .. })));
}

#[test]
fn segments_begin_at_multiples_of_256_and_a_group_may_be_larger_than_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    ledger.append(&[batch(1, vec![event("a", "pay"); 2000])]).unwrap();
    let firsts: Vec<u64> = ledger
        .reader()
        .segments()
        .iter()
        .map(|segment| segment.first())
        .collect();
    assert!(
        firsts.len() > 2 && firsts.iter().all(|first| first.is_multiple_of(256)),
        "{firsts:?}"
    );
    drop(ledger);
    assert_eq!(subjects(&open(folder.path()).reader()), vec!["a"; 2000]);
}

#[test]
fn a_sources_numbers_survive_segments_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    let (quiet, gone, lost) = (SourceName([1; 16]), SourceName([2; 16]), SourceName([3; 16]));
    for source in [quiet, gone, lost] {
        ledger.append(&[change(source, SourceChange::Started, 0)]).unwrap();
    }
    ledger
        .append(&[
            change(gone, SourceChange::Ended, 0),
            change(lost, SourceChange::Lost, 0),
        ])
        .unwrap();
    fill(&mut ledger, "a", 1000);
    assert!(segment_files(folder.path()).len() > 1);
    drop(ledger);
    let mut ledger = open(folder.path());
    assert_eq!(ledger.source(&SOURCE).unwrap().last_sequence, 1000);
    assert_eq!(ledger.source(&gone), None);
    assert!(ledger.source(&lost).unwrap().lost);
    let mut awaited = ledger.awaited();
    awaited.sort();
    assert_eq!(awaited, [quiet, SOURCE]);
    fill(&mut ledger, "a", 1);
    let record = ledger.reader().record(ledger.reader().size() - 1).unwrap();
    assert!(matches!(record.body, RecordBody::Entry(stored) if stored.sequence == 1001));
}

#[test]
fn a_chain_is_stored_once_for_many_reports() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    let chain = |text: &str| v1::Entry {
        entry: Some(Kind::Chain(v1::PresentedChain {
            chain: text.as_bytes().to_vec(),
            principal: None,
        })),
    };
    ledger
        .append(&[batch(1, vec![chain("a~b"), chain("a~b"), chain("a~c")])])
        .unwrap();
    ledger.append(&[batch(4, vec![chain("a~b")])]).unwrap();
    let kinds = ["chain", "known chain", "chain", "known chain"];
    assert_eq!(subjects(&ledger.reader()), kinds);
    drop(ledger);
    let mut ledger = open(folder.path());
    ledger.append(&[batch(5, vec![chain("a~c")])]).unwrap();
    assert_eq!(subjects(&ledger.reader()).last().unwrap(), "known chain");
    let digest = credence_ledger::entry::ChainView {
        chain: b"a~c",
        principal: None,
    }
    .digest();
    assert_eq!(
        ledger.reader().segments()[0].lookup(&IndexKey::Chain(digest)).unwrap(),
        [2]
    );
}

#[test]
fn events_are_found_by_the_index_of_full_and_of_growing_segments() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    for subject in ["a", "b", "c"] {
        fill(&mut ledger, subject, 400);
    }
    let count = |ledger: &credence_ledger::Ledger, subject: &str| -> usize {
        let key = IndexKey::principal("https://id", Some(subject));
        let segments = ledger.reader().segments();
        segments.iter().map(|segment| segment.lookup(&key).unwrap().len()).sum()
    };
    assert_eq!(
        ["a", "b", "c", "d"].map(|subject| count(&ledger, subject)),
        [400, 400, 400, 0]
    );
    drop(ledger);
    // One index is cut short, one is missing.
    let mut indexes: Vec<_> = std::fs::read_dir(folder.path().join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    indexes.sort();
    std::fs::remove_file(&indexes[0]).unwrap();
    std::fs::write(&indexes[1], "").unwrap();
    let (ledger, opened) = try_open(folder.path(), options()).unwrap();
    assert_eq!(opened.reindexed, 2);
    assert_eq!(
        ["a", "b", "c", "d"].map(|subject| count(&ledger, subject)),
        [400, 400, 400, 0]
    );
}

#[test]
fn listeners_are_told_of_growth() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    let mut growth = ledger.reader().growth();
    fill(&mut ledger, "a", 3);
    assert!(growth.has_changed().unwrap());
    assert_eq!(*growth.borrow_and_update(), 3);
}

#[test]
fn a_full_ledger_refuses_evidence_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = LedgerBounds {
        total: 40_000,
        ..options().bounds
    };
    let (mut ledger, _) = try_open(folder.path(), LedgerOptions { bounds, ..options() }).unwrap();
    let refused = ledger.append(&[batch(1, vec![event("a", "pay"); 300])]).unwrap_err();
    assert!(matches!(refused, LedgerError::Full { .. }));
    assert!(refused.to_string().contains("--ledger-bytes"), "{refused}");
    fill(&mut ledger, "a", 10);
    assert_eq!(ledger.reader().size(), 10);
}

#[test]
fn evidence_that_would_use_up_the_reserve_is_refused_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = LedgerBounds {
        total: u64::MAX,
        ..options().bounds
    };
    let (mut ledger, _) = try_open(folder.path(), LedgerOptions { bounds, ..options() }).unwrap();
    // More than the free space of the disk, but it is all the same zeros, which are not entries.
    let gibibyte = NewItem::Entries {
        source: SOURCE,
        batch: vec![0; 1 << 30].into(),
        skip: 0,
        first_sequence: 1,
    };
    let items = vec![gibibyte; (ledger.room().unwrap().free >> 30) as usize + 2];
    ledger.leave_free(1);
    assert_eq!(ledger.room().unwrap().reserve, 1);
    let refused = ledger.append(&items).unwrap_err();
    assert!(matches!(refused, LedgerError::Reserved { .. }));
    assert!(refused.to_string().contains("--ledger-reserve"), "{refused}");
    fill(&mut ledger, "a", 1);
    ledger.leave_free(0);
    let refused = ledger.append(&items).unwrap_err();
    assert!(matches!(refused, LedgerError::Entry(_)), "{refused}");
}

#[test]
fn evidence_about_more_principals_than_there_may_be_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = LedgerBounds {
        keys: 2,
        ..options().bounds
    };
    let (mut ledger, _) = try_open(folder.path(), LedgerOptions { bounds, ..options() }).unwrap();
    fill(&mut ledger, "a", 1);
    let refused = ledger.append(&[batch(2, vec![event("b", "pay")])]).unwrap_err();
    assert!(refused.to_string().contains("--ledger-keys"), "{refused}");
    fill(&mut ledger, "a", 1);
    assert_eq!(subjects(&ledger.reader()), ["a", "a"]);
}

#[test]
fn no_name_and_no_tool_can_be_read_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    ledger
        .append(&[batch(1, vec![event("alice-liddell", "withdraw-everything")])])
        .unwrap();
    fill(&mut ledger, "alice-liddell", 1000);
    drop(ledger);
    let mut pending = vec![folder.path().to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for secret in [&b"alice-liddell"[..], b"withdraw-everything"] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{path:?}");
        }
    }
}
