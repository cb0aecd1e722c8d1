//! `credence pool`: delegations for a load test.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{Ran, Workbench};

fn pool(bench: &Workbench, more: &[&str]) -> Ran {
    let start = [
        "pool",
        "--key",
        "issuer.jwk",
        "--issuer",
        "https://id.example.com",
        "--audience",
        "https://payments.example",
        "--delegations",
        "1000",
    ];
    bench.run(&[&start, more].concat())
}

#[test]
fn the_same_seed_key_and_time_make_the_same_pool() {
    let bench = Workbench::new();
    bench.keys(&["issuer"]);
    let made = |folder: &str, seed: &str| {
        let ran = pool(&bench, &["--seed", seed, "--issued-at", "1800000000", "--out", folder]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.stdout, format!("{folder}/pool.json\n"));
        assert!(ran.stderr.contains("1000 of 1000 delegations"), "{ran:?}");
        ["pool.json", "shard-00000.json"].map(|name| std::fs::read(bench.path(folder).join(name)).unwrap())
    };
    let [contents, shard] = made("one", "a");
    assert_eq!([contents.clone(), shard.clone()], made("other", "a"));
    let [same, another] = made("another", "b");
    assert_eq!(contents, same);
    assert_ne!(shard, another);
}

#[test]
fn nobody_else_reads_it_and_nothing_is_overwritten() {
    let bench = Workbench::new();
    bench.keys(&["issuer"]);
    assert_eq!(pool(&bench, &["--out", "made"]).code, 0);
    let mode = std::fs::metadata(bench.path("made")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let again = pool(&bench, &["--out", "made"]);
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("give --out a new one"), "{again:?}");
}

#[test]
fn what_can_not_be_made_is_refused_before_anything_is() {
    let bench = Workbench::new();
    bench.keys(&["issuer"]);
    for (options, said) in [
        (["--proof-share", "90", "--invalid-share", "20"], "more than a hundred"),
        (["--ttl", "0s", "--max-tokens", "4"], "at least one second"),
        (["--ttl", "91d", "--max-tokens", "4"], "at most 90d"),
        (["--proof-algorithm", "RS256", "--max-tokens", "4"], "Ed25519 and ES256"),
        (["--max-tokens", "10", "--seed", "a"], "10 is not in 1..=9"),
    ] {
        let ran = pool(&bench, &[&options[..], &["--out", "made"]].concat());
        assert_ne!(ran.code, 0, "{options:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
        assert!(!bench.path("made").exists(), "{options:?}");
    }
}
