//! The ledger after a crash, and the difference between a torn write and damage.

use std::collections::HashSet;
use std::path::Path;

use credence_ledger::LedgerOptions;
use credence_ledger::query::{self, Filter, Query};

use crate::support::*;

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_last_group_that_is_cut_anywhere_leaves_everything_before_it_with_the_same_root() {
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
fn hashes_that_are_cut_or_missing_are_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1100);
    let whole = tree(&ledger.reader());
    drop(ledger);
    let level_0 = std::fs::read(folder.path().join("hashes/0")).unwrap().len();
    let lengths = [0, 31, 32 * 300, level_0 - 64, level_0 - 33, level_0 - 1, level_0];
    for (level, length) in lengths
        .map(|length| ("0", length))
        .into_iter()
        .chain([("1", 0), ("1", 33), ("1", 64)])
    {
        let folder = copy(folder.path());
        edit(&folder.path().join("hashes").join(level), |bytes| {
            bytes.truncate(length)
        });
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
fn a_segment_of_which_only_the_header_was_written_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1100);
    let whole = tree(&ledger.reader());
    drop(ledger);
    let path = segment_files(folder.path()).pop().unwrap();
    let last = std::fs::read(&path).unwrap();
    // The file's header and the first frame.
    let beginning = 36 + 12 + u32::from_le_bytes(last[36..40].try_into().unwrap()) as usize;
    for length in 0..=beginning {
        let folder = copy(folder.path());
        let path = segment_files(folder.path()).pop().unwrap();
        // The file gets its name only once all of that is on disk.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(path.with_extension("new"), &last[..length]).unwrap();
        let mut ledger = open(folder.path());
        let size = ledger.reader().size();
        assert!(size.is_multiple_of(256) && size < whole.0, "{size}");
        fill(&mut ledger, "a", 300);
        drop(ledger);
        assert_eq!(open(folder.path()).reader().size(), size + 300);
    }
    std::fs::write(&path, &last[..beginning]).unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 300);
    drop(ledger);
    std::fs::write(&path, &last[..beginning - 1]).unwrap();
    let error = try_open(folder.path(), options()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn no_nonce_is_used_twice_with_one_key() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let mut nonces = HashSet::new();
    // The same record again and again, each time lost in a crash.
    for _ in 0..20 {
        let folder = copy(folder.path());
        let mut ledger = open(folder.path());
        fill(&mut ledger, "a", 1);
        let leaf = ledger.reader().leaf(0).unwrap();
        assert!(nonces.insert(leaf[9..13].to_vec()), "a session came twice");
    }
}

#[test]
fn published_records_are_unchanged_or_the_ledger_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 700);
    let reader = ledger.reader();
    let roots: Vec<_> = [100, 256, 600, 700]
        .map(|size| (size, reader.root(size).unwrap()))
        .to_vec();
    drop((ledger, reader));
    let with = |published| LedgerOptions {
        published: Some(published),
        ..options()
    };
    for (size, root) in &roots {
        try_open(folder.path(), with((*size, *root))).unwrap();
        let error = try_open(folder.path(), with((*size, roots[0].1))).err();
        assert_eq!(
            error
                .as_ref()
                .is_some_and(|error| error.to_string().contains("have the root")),
            *size != 100,
            "{size}: {error:?}"
        );
    }
    let gone = try_open(folder.path(), with((701, roots[0].1))).unwrap_err();
    let text = "a checkpoint of 701 records was published, but there are 700";
    assert!(gone.to_string().contains(text), "{gone}");
    let empty = tempfile::tempdir().unwrap();
    let gone = try_open(empty.path(), with(roots[0])).unwrap_err();
    assert!(gone.to_string().contains("there are 0"), "{gone}");
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
fn a_leaf_that_a_disk_has_changed_is_not_returned() {
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
fn missing_keys_are_damage_and_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1);
    drop(ledger);
    std::fs::remove_file(folder.path().join("keys")).unwrap();
    try_open(folder.path(), options()).unwrap_err();
    assert!(!folder.path().join("keys").exists());
}

#[test]
fn records_that_are_all_missing_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1);
    drop(ledger);
    std::fs::remove_dir_all(folder.path().join("segments")).unwrap();
    let missing = try_open(folder.path(), options()).unwrap_err();
    assert!(missing.to_string().contains("has no records 0 to 1"), "{missing}");
}

#[test]
fn a_ledger_opens_although_an_index_cannot_be_rebuilt_yet() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 1200);
    let segments = ledger.reader().segments();
    let index = folder.path().join("index").join(format!("{:020}", segments[1].first()));
    drop((ledger, segments));
    // As with a disk that was full when the segment was, and still is.
    std::fs::remove_file(&index).unwrap();
    let obstacle = index.with_extension("new");
    std::fs::create_dir(&obstacle).unwrap();
    let mut ledger = open(folder.path());
    let key = credence_ledger::index::IndexKey::principal("https://id", Some("a"));
    let found = |ledger: &credence_ledger::Ledger| -> usize {
        let segments = ledger.reader().segments();
        segments.iter().map(|segment| segment.lookup(&key).unwrap().len()).sum()
    };
    assert_eq!(found(&ledger), 1200);
    std::fs::remove_dir(&obstacle).unwrap();
    fill(&mut ledger, "a", 600);
    drop(ledger);
    assert!(index.exists());
    assert_eq!(found(&open(folder.path())), 1800);
}

#[test]
fn a_key_with_a_flipped_bit_is_no_torn_write_in_any_segment() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 10);
    // The last slot, which no record of the last segment uses.
    fill(&mut ledger, "last", 10);
    fill(&mut ledger, "a", 1100);
    let size = ledger.reader().size();
    drop(ledger);
    assert!(segment_files(folder.path()).len() > 2);
    let keys = folder.path().join("keys");
    edit(&keys, |bytes| bytes[2 * 64 + 25] ^= 1);
    let damaged = std::fs::read(&keys).unwrap();
    let error = try_open(folder.path(), options()).unwrap_err();
    assert!(error.to_string().contains("slot 2"), "{error}");
    assert_eq!(std::fs::read(&keys).unwrap(), damaged);
    // A slot without records is a write that a crash interrupted: the slot is used again.
    edit(&keys, |bytes| {
        bytes[2 * 64 + 25] ^= 1;
        bytes.extend_from_slice(&[7; 64]);
    });
    let mut ledger = open(folder.path());
    fill(&mut ledger, "new", 1);
    assert_eq!(ledger.reader().size(), size + 1);
    drop(ledger);
    assert_eq!(subjects(&open(folder.path()).reader()).last().unwrap(), "new");
}

#[test]
fn a_record_that_cannot_be_read_does_not_hide_those_around_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 600);
    let reader = ledger.reader();
    let leaf = reader.leaf(100).unwrap();
    let first = &segment_files(folder.path())[0];
    let bytes = std::fs::read(first).unwrap();
    let at = bytes.windows(leaf.len()).position(|window| window == leaf).unwrap();
    // Its length, its version, its key's name, its ciphertext and its tag.
    for byte in [at - 2, at - 1, at, at + 8, at + 20, at + leaf.len() - 1] {
        edit(first, |bytes| bytes[byte] ^= 0x41);
        let subjects = subjects(&reader);
        assert_eq!(subjects.len(), 600, "{byte}");
        assert_eq!(subjects.iter().filter(|subject| *subject == "a").count(), 599, "{byte}");
        assert_eq!(subjects[100], "unreadable", "{byte}");
        assert!(reader.record(100).is_err() && reader.leaf(100).is_err(), "{byte}");
        assert!(reader.record(99).is_ok() && reader.leaf(101).is_ok(), "{byte}");
        edit(first, |bytes| bytes[byte] ^= 0x41);
    }
    assert_eq!(reader.unreadable(), 1);
    assert!(!subjects(&reader).contains(&"unreadable".to_owned()));
}

#[test]
fn a_failed_read_does_not_mark_a_record_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    fill(&mut ledger, "a", 600);
    let reader = ledger.reader();
    let first = &segment_files(folder.path())[0];
    let aside = folder.path().join("aside");
    std::fs::rename(first, &aside).unwrap();
    // Its first pages are not mapped: reading them gives EIO.
    std::os::unix::fs::symlink("/proc/self/mem", first).unwrap();
    for error in [reader.record(100).unwrap_err(), reader.records(0..600).unwrap_err()] {
        assert!(error.to_string().contains("os error 5"), "{error}");
    }
    std::fs::rename(&aside, first).unwrap();
    assert!(!subjects(&reader).contains(&"unreadable".to_owned()));
    assert_eq!(reader.unreadable(), 0);
}

#[test]
fn a_damaged_index_hides_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(folder.path());
    for subject in ["a", "b"].repeat(6) {
        fill(&mut ledger, subject, 100);
    }
    drop(ledger);
    let index = folder.path().join("index").join(format!("{:020}", 0));
    let whole = std::fs::read(&index).unwrap();
    let of_a = || {
        let ledger = open(folder.path());
        let query = Query {
            limit: 1000,
            filter: Filter {
                principal_subject: Some("a".to_owned()),
                ..Filter::default()
            },
            ..Query::default()
        };
        let found = query::read(&ledger.reader(), &query).unwrap().records.len();
        (found, subjects(&ledger.reader()).len())
    };
    assert_eq!(of_a(), (600, 1200));
    let step = whole.len() / 40;
    for byte in (0..whole.len()).step_by(step) {
        edit(&index, |bytes| bytes[byte] ^= 0x10);
        assert_eq!(of_a(), (600, 1200), "byte {byte} of {}", whole.len());
        std::fs::write(&index, &whole).unwrap();
    }
}
