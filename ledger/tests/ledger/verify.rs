//! Verification finds damage and names the file.

use std::path::{Path, PathBuf};

use credence_ledger::LedgerOptions;
use credence_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use credence_ledger::log_identity::{LedgerIdentity, Naming};
use credence_ledger::verify::{Against, Findings, verify};

use crate::support::{copy, fill, options, principal, segment_files, tree, try_open};

fn identity(folder: &Path, log_id: &str) -> LedgerIdentity {
    LedgerIdentity::open(folder, &Naming { origin: None, log_id }).unwrap()
}

fn options_of(identity: &LedgerIdentity) -> LedgerOptions {
    LedgerOptions {
        origin: identity.first_origin().to_string(),
        ..options()
    }
}

/// A ledger with several segments, one principal erased, as a stopped control plane leaves it.
fn stopped() -> (tempfile::TempDir, SignedCheckpoint) {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path(), "ab12");
    let mut ledger = try_open(folder.path(), options_of(&identity)).unwrap().0;
    fill(&mut ledger, "alice", 700);
    fill(&mut ledger, "bob", 500);
    let older = publish(&identity, tree(&ledger.reader()));
    ledger.erase(principal("bob"), "a request", "operator").unwrap();
    fill(&mut ledger, "carol", 300);
    publish(&identity, tree(&ledger.reader()));
    drop(ledger);
    (folder, older)
}

fn publish(identity: &LedgerIdentity, (size, root): (u64, credence_ledger::tree::Hash)) -> SignedCheckpoint {
    let checkpoint = Checkpoint {
        origin: identity.origin().clone(),
        size,
        root,
    };
    let signed = checkpoint.sign(identity.signer()).unwrap();
    identity.publish(&signed).unwrap();
    signed
}

fn check(folder: &Path) -> Findings {
    verify(folder, &Against::default()).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn an_unchanged_ledger_has_no_problems() {
    let (folder, older) = stopped();
    assert!(segment_files(folder.path()).len() > 2);
    let against = Against {
        key: Some(identity(folder.path(), "ab12").verifier_key()),
        since: vec![older],
    };
    let found = verify(folder.path(), &against).unwrap();
    assert_eq!(found.problems, []);
    assert_eq!(found.torn, None);
    assert_eq!(found.checkpoint.unwrap().size, found.size);
}

/// Of every file a bit at its start, at its end, and at about forty places between.
#[test]
fn a_single_flipped_bit_anywhere_is_found_and_its_file_is_named() {
    let (folder, _) = stopped();
    for file in files(folder.path()) {
        let whole = std::fs::read(&file).unwrap();
        let step = (whole.len() / 40).max(1) | 1;
        let places = (0..whole.len()).step_by(step).chain(whole.len().checked_sub(1));
        for (turn, place) in places.enumerate() {
            let mut changed = whole.clone();
            changed[place] ^= 1 << (turn % 8);
            std::fs::write(&file, changed).unwrap();
            let found = check(folder.path());
            let named = found.problems.iter().any(|problem| problem.file == file);
            assert!(named, "{} at {place}: {found:?}", file.display());
        }
        std::fs::write(&file, whole).unwrap();
    }
    assert_eq!(check(folder.path()).problems, []);
}

#[test]
fn the_place_of_a_flipped_bit_is_named() {
    let (folder, _) = stopped();
    let hashes = folder.path().join("hashes/0");
    let mut changed = std::fs::read(&hashes).unwrap();
    changed[32 * 77 + 5] ^= 1;
    std::fs::write(&hashes, changed).unwrap();
    let found = check(folder.path());
    assert_eq!(found.problems[0].file, hashes);
    assert_eq!(found.problems[0].offset, Some(32 * 77));
}

#[test]
fn missing_or_truncated_records_are_found() {
    let (folder, older) = stopped();
    let segments = segment_files(folder.path());
    let missing_middle = copy(folder.path());
    std::fs::remove_file(&segment_files(missing_middle.path())[1]).unwrap();
    assert!(!check(missing_middle.path()).problems.is_empty());
    let missing_end = copy(folder.path());
    std::fs::remove_file(segment_files(missing_end.path()).last().unwrap()).unwrap();
    assert!(!check(missing_end.path()).problems.is_empty());
    let cut = copy(folder.path());
    let last = segment_files(cut.path()).pop().unwrap();
    let length = last.metadata().unwrap().len();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last)
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    assert!(!check(cut.path()).problems.is_empty());
    assert_eq!(segments, segment_files(folder.path()));

    // Even with the signing key: an earlier checkpoint reveals it.
    let identity = identity(missing_end.path(), "ab12");
    std::fs::remove_dir_all(missing_end.path().join("segments")).unwrap();
    std::fs::remove_dir_all(missing_end.path().join("hashes")).unwrap();
    std::fs::remove_dir_all(missing_end.path().join("index")).unwrap();
    let mut forged = try_open(missing_end.path(), options_of(&identity)).unwrap().0;
    fill(&mut forged, "alice", 1500);
    publish(&identity, tree(&forged.reader()));
    drop(forged);
    assert_eq!(check(missing_end.path()).problems, []);
    let against = Against {
        key: None,
        since: vec![older],
    };
    assert!(!verify(missing_end.path(), &against).unwrap().problems.is_empty());
}

/// Hashes do not show these: the tree is complete.
#[test]
fn data_that_is_missing_without_a_note_is_found() {
    let (folder, older) = stopped();
    let named = |folder: &Path, file: &Path| {
        let found = check(folder);
        let problem = found.problems.iter().find(|problem| problem.file == file);
        problem.unwrap_or_else(|| panic!("{found:?}")).found.clone()
    };
    let oldest_gone = copy(folder.path());
    let segments = segment_files(oldest_gone.path());
    std::fs::remove_file(&segments[0]).unwrap();
    assert!(named(oldest_gone.path(), &segments[1]).contains("no note"));

    let keys = |folder: &Path| folder.join("keys");
    let all = std::fs::read(keys(folder.path())).unwrap();
    let keys_cut_off = copy(folder.path());
    std::fs::write(keys(keys_cut_off.path()), &all[..64]).unwrap();
    assert!(named(keys_cut_off.path(), &keys(keys_cut_off.path())).contains("it is missing"));
    let key_zeroed = copy(folder.path());
    let mut zeroed = all.clone();
    zeroed[64..128].fill(0);
    std::fs::write(keys(key_zeroed.path()), zeroed).unwrap();
    let found = check(key_zeroed.path());
    assert_eq!(found.problems[0].offset, Some(64), "{found:?}");

    // Erased elsewhere, so that the slot is valid.
    let key_destroyed = copy(folder.path());
    let elsewhere = copy(folder.path());
    let identity = identity(elsewhere.path(), "ab12");
    let mut ledger = try_open(elsewhere.path(), options_of(&identity)).unwrap().0;
    ledger.erase(principal("alice"), "", "").unwrap().unwrap();
    publish(&identity, tree(&ledger.reader()));
    drop(ledger);
    std::fs::copy(keys(elsewhere.path()), keys(key_destroyed.path())).unwrap();
    assert!(named(key_destroyed.path(), &keys(key_destroyed.path())).contains("no note"));
    let against = Against {
        key: None,
        since: vec![older],
    };
    assert_eq!(verify(elsewhere.path(), &against).unwrap().problems, []);
}

#[test]
fn pruned_records_are_no_problem_and_their_hashes_are_still_checked() {
    let (folder, older) = stopped();
    let published = identity(folder.path(), "ab12").published().unwrap().unwrap();
    let identity = identity(folder.path(), "ab12");
    let mut ledger = try_open(folder.path(), options_of(&identity)).unwrap().0;
    let keep = published.checkpoint().size - 1;
    let published = (published.checkpoint().size, published.checkpoint().root);
    ledger.prune(keep, Some(published)).unwrap();
    publish(&identity, tree(&ledger.reader()));
    drop(ledger);
    let against = Against {
        key: None,
        since: vec![older],
    };
    let found = verify(folder.path(), &against).unwrap();
    assert_eq!(found.problems, []);
    assert!(found.first > 0);
    for place in [0, 32 * 300 + 1] {
        let hashes = folder.path().join("hashes/0");
        let whole = std::fs::read(&hashes).unwrap();
        let mut changed = whole.clone();
        changed[place] ^= 1;
        std::fs::write(&hashes, changed).unwrap();
        assert!(!check(folder.path()).problems.is_empty());
        std::fs::write(&hashes, whole).unwrap();
    }
}

#[test]
fn a_write_that_was_interrupted_is_no_damage() {
    let (folder, _) = stopped();
    let last = segment_files(folder.path()).pop().unwrap();
    let mut torn = std::fs::read(&last).unwrap();
    torn.extend_from_slice(&[7; 9]);
    std::fs::write(&last, torn).unwrap();
    let found = check(folder.path());
    assert_eq!(found.problems, []);
    assert_eq!(found.torn.unwrap().file, last);
}

#[test]
fn another_key_than_the_trusted_one_is_noticed() {
    let (folder, _) = stopped();
    let stranger = tempfile::tempdir().unwrap();
    let against = Against {
        key: Some(identity(stranger.path(), "cd34").verifier_key()),
        since: Vec::new(),
    };
    assert!(!verify(folder.path(), &against).unwrap().problems.is_empty());
}

#[test]
fn a_restored_ledger_has_another_origin_and_its_earlier_leaves_can_still_be_read() {
    let (folder, older) = stopped();
    let before = identity(folder.path(), "ab12");
    let after = identity(folder.path(), "cd34");
    assert_ne!(after.origin(), before.origin());
    let mut ledger = try_open(folder.path(), options_of(&after)).unwrap().0;
    fill(&mut ledger, "dave", 300);
    publish(&after, tree(&ledger.reader()));
    assert!(ledger.reader().record(0).is_ok());
    drop(ledger);
    let against = Against {
        key: Some(after.verifier_key()),
        since: vec![older],
    };
    let found = verify(folder.path(), &against).unwrap();
    assert_eq!(found.problems, []);
    assert_eq!(found.checkpoint.unwrap().origin, *after.origin());
}

#[test]
fn an_incomplete_erasure_is_reported_and_is_no_damage() {
    let (folder, _) = stopped();
    let options = options_of(&identity(folder.path(), "ab12"));
    let before = copy(folder.path());
    let mut ledger = try_open(folder.path(), options.clone()).unwrap().0;
    let erased = ledger.erase(principal("alice"), "", "").unwrap().unwrap();
    drop(ledger);
    for entry in std::fs::read_dir(before.path().join("index")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join("index").join(entry.file_name())).unwrap();
    }
    assert!(!check(folder.path()).problems.is_empty(), "rows of erased records");
    let pending = folder.path().join(format!("erasing-{}", erased.key));
    std::fs::write(&pending, []).unwrap();
    let found = check(folder.path());
    assert_eq!(found.problems, []);
    assert_eq!(found.erasing.unwrap().file, pending);
    drop(try_open(folder.path(), options).unwrap());
    let found = check(folder.path());
    assert_eq!((found.problems, found.erasing), (vec![], None));
}
