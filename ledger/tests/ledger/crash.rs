//! What is there after a crash, and what is damage.

use std::collections::HashSet;
use std::path::Path;

use credence_ledger::{LedgerError, LedgerOptions};

use crate::support::*;

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn wherever_the_last_group_is_cut_everything_before_it_has_the_same_root() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 520);
    let acknowledged = tree(&ledger.reader());
    let last = segment_files(folder.path()).pop().unwrap();
    let before = std::fs::metadata(&last).unwrap().len();
    // Of a new principal: its key is written before the group.
    ledger.append(&[batch(521, vec![event("b", "pay"); 2])]).unwrap();
    let whole = tree(&ledger.reader());
    drop(ledger);
    let after = std::fs::metadata(&last).unwrap().len();
    for length in before..=after {
        let folder = copy(folder.path());
        let last = segment_files(folder.path()).pop().unwrap();
        edit(&last, |bytes| bytes.truncate(length as usize));
        let (mut ledger, opened) = try_open(folder.path(), options()).unwrap();
        let expected = if length == after { whole } else { acknowledged };
        assert_eq!(tree(&ledger.reader()), expected, "{length}");
        assert_eq!(opened.torn.is_some(), length != before && length != after, "{length}");
        assert_eq!(ledger.source(&SOURCE).unwrap().last_sequence, expected.0);
        fill(&mut ledger, "b", 1);
        assert_eq!(subjects(&ledger.reader()).last().unwrap(), "b");
    }
}

#[test]
fn hashes_that_are_cut_anywhere_or_gone_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1100);
    let whole = tree(&ledger.reader());
    drop(ledger);
    let level_0 = std::fs::read(folder.path().join("hashes/0")).unwrap().len();
    let lengths = [0, 31, 32 * 300, level_0 - 64, level_0 - 33, level_0 - 1, level_0];
    for (level, length) in lengths.map(|length| ("0", length)).into_iter().chain([("1", 0), ("1", 33), ("1", 64)]) {
        let folder = copy(folder.path());
        edit(&folder.path().join("hashes").join(level), |bytes| bytes.truncate(length));
        let mut ledger = open(folder.path());
        assert_eq!(tree(&ledger.reader()), whole, "level {level} of {length} bytes");
        fill(&mut ledger, "a", 1);
    }
    let changed = copy(folder.path());
    edit(&changed.path().join("hashes/0"), |bytes| bytes[40] ^= 1);
    let (ledger, _) = try_open(changed.path(), options()).unwrap();
    assert_eq!(ledger.reader().root(1100).unwrap(), whole.1);
    drop(ledger);
    std::fs::remove_dir_all(folder.path().join("hashes")).unwrap();
    let (ledger, opened) = try_open(folder.path(), options()).unwrap();
    assert!(opened.rehashed);
    assert_eq!(tree(&ledger.reader()), whole);
}

#[test]
fn a_segment_that_was_begun_and_no_more_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1100);
    let whole = tree(&ledger.reader());
    drop(ledger);
    let path = segment_files(folder.path()).pop().unwrap();
    let header_and_more = std::fs::read(&path).unwrap();
    let first = std::fs::read(&path).unwrap();
    let beginning = 36 + 12 + u32::from_le_bytes(first[36..40].try_into().unwrap()) as usize;
    for length in 36..beginning {
        let folder = copy(folder.path());
        // As if the one before it were the last that has anything in it.
        let last = segment_files(folder.path()).pop().unwrap();
        std::fs::write(&last, &header_and_more[..length]).unwrap();
        let mut ledger = open(folder.path());
        let size = ledger.reader().size();
        assert!(size % 256 == 0 && size < whole.0, "{size}");
        fill(&mut ledger, "a", 300);
        drop(ledger);
        assert_eq!(open(folder.path()).reader().size(), size + 300);
    }
}

#[test]
fn no_nonce_is_used_twice_with_one_key() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let mut nonces = HashSet::new();
    // The same record, over and over, each time lost in a crash.
    for _ in 0..20 {
        let folder = copy(folder.path());
        let mut ledger = open(folder.path());
        fill(&mut ledger, "a", 1);
        let leaf = ledger.reader().leaf(0).unwrap();
        assert!(nonces.insert(leaf[9..13].to_vec()), "a session came twice");
    }
}

#[test]
fn what_was_published_is_there_as_it_was_or_the_ledger_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 700);
    let reader = ledger.reader();
    let roots: Vec<_> = [100, 256, 600, 700].map(|size| (size, reader.root(size).unwrap())).to_vec();
    drop((ledger, reader));
    let with = |published| LedgerOptions {
        published: Some(published),
        ..options()
    };
    for (size, root) in &roots {
        try_open(folder.path(), with((*size, *root))).unwrap();
        let error = try_open(folder.path(), with((*size, roots[0].1))).err();
        assert_eq!(matches!(error, Some(LedgerError::OtherRoot { .. })), *size != 100, "{size}: {error:?}");
    }
    let gone = try_open(folder.path(), with((701, roots[0].1))).unwrap_err();
    assert!(matches!(gone, LedgerError::Gone { published: 701, size: 700 }));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(try_open(empty.path(), with(roots[0])), Err(LedgerError::Gone { .. })));
}

#[test]
fn damage_in_a_group_that_is_followed_by_another_is_no_torn_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 200);
    drop(ledger);
    let last = segment_files(folder.path()).pop().unwrap();
    edit(&last, |bytes| bytes[400] ^= 1);
    let error = try_open(folder.path(), options()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn a_leaf_that_a_disk_has_changed_is_not_given_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1100);
    let reader = ledger.reader();
    let first = &segment_files(folder.path())[0];
    edit(first, |bytes| {
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
    });
    let last = reader.segments().last().unwrap().end() - 1;
    assert!(reader.leaf(last).is_err());
    assert!(reader.record(last).is_err());
    reader.leaf(last - 1).unwrap();
}

#[test]
fn keys_that_are_missing_are_damage_and_no_reason_to_make_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1);
    drop(ledger);
    std::fs::remove_file(folder.path().join("keys")).unwrap();
    try_open(folder.path(), options()).unwrap_err();
    assert!(!folder.path().join("keys").exists());
}

#[test]
fn records_that_are_gone_altogether_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1);
    drop(ledger);
    std::fs::remove_dir_all(folder.path().join("segments")).unwrap();
    assert!(matches!(try_open(folder.path(), options()), Err(LedgerError::Missing { .. })));
}

#[test]
fn an_unsealed_ledger_is_moved_away_once_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join(format!("{:020}", 0));
    std::fs::write(&old, "what an earlier version wrote").unwrap();
    let (mut ledger, opened) = try_open(folder.path(), options()).unwrap();
    let target = folder.path().join("unsealed");
    assert_eq!(opened.unsealed.as_deref(), Some(target.as_path()));
    let moved = std::fs::read_to_string(target.join(format!("{:020}", 0))).unwrap();
    assert_eq!(moved, "what an earlier version wrote");
    fill(&mut ledger, "a", 1);
    drop(ledger);
    let (ledger, opened) = try_open(folder.path(), options()).unwrap();
    assert_eq!((opened.unsealed, ledger.reader().size()), (None, 1));
}
