//! The output and the errors of the built program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use credence_delegation::SigningKey;
use tempfile::TempDir;

/// A folder with an issuer's key.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::from_seed(&[7; 32]).to_private_jwk();
    fs::write(folder.path().join("issuer.jwk"), key.as_bytes()).unwrap();
    folder
}

fn pool(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_credence-pool"))
        .current_dir(folder)
        .args(["--key", "issuer.jwk", "--issuer", "https://id.example.com"])
        .args(["--audience", "https://payments.example", "--delegations", "1000"])
        .args(more)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_same_seed_key_and_time_make_the_same_pool() {
    let folder = folder();
    let made = |name: &str, seed: &str| {
        let ran = pool(
            folder.path(),
            &["--seed", seed, "--issued-at", "1800000000", "--out", name],
        );
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(text(&ran.stdout), format!("{name}/pool.json\n"));
        assert!(text(&ran.stderr).contains("1000 of 1000 delegations"), "{ran:?}");
        ["pool.json", "shard-00000.json"].map(|file| fs::read(folder.path().join(name).join(file)).unwrap())
    };
    let [contents, shard] = made("one", "a");
    assert_eq!([contents.clone(), shard.clone()], made("other", "a"));
    let [same, another] = made("another", "b");
    assert_eq!(contents, same);
    assert_ne!(shard, another);
}

#[test]
fn only_the_owner_reads_it_and_nothing_is_overwritten() {
    let folder = folder();
    assert!(pool(folder.path(), &["--out", "made"]).status.success());
    let mode = fs::metadata(folder.path().join("made")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let again = pool(folder.path(), &["--out", "made"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("give --out a new one"), "{again:?}");
}

#[test]
fn invalid_options_are_refused_before_any_file_is_made() {
    let folder = folder();
    for (options, said) in [
        (["--proof-share", "90", "--invalid-share", "20"], "more than a hundred"),
        (["--ttl", "0", "--max-tokens", "4"], "would be denied"),
        (["--ttl", "7862400", "--max-tokens", "4"], "would be denied"),
        (["--proof-algorithm", "RS256", "--max-tokens", "4"], "Ed25519 and ES256"),
        (["--max-tokens", "10", "--seed", "a"], "10 is not in 1..=9"),
    ] {
        let ran = pool(folder.path(), &[&options[..], &["--out", "made"]].concat());
        assert!(!ran.status.success(), "{options:?}");
        assert!(text(&ran.stderr).contains(said), "{ran:?}");
        assert!(!folder.path().join("made").exists(), "{options:?}");
    }
}
