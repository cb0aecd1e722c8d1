//! Replays the inputs of the fuzz targets: hand-written seeds, inputs that reached new code, and every input that ever
//! found a fault. `fuzz/README.md` says where they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use targets::Effort;
use targets::Outcome::{Accepted, Refused};

#[path = "../../fuzz/src/targets/mod.rs"]
#[allow(dead_code, unreachable_pub)] // a library there, a module here
mod targets;

/// The least number of inputs of each target, and of accepted ones. Otherwise an empty folder would pass, and so would
/// a target that accepts no input any more.
const AT_LEAST: [(&str, usize, usize); 12] = [
    ("token", 86, 28),
    ("chain", 84, 28),
    ("proof", 62, 20),
    ("json", 47, 22),
    ("did_key", 38, 10),
    ("jwk", 60, 15),
    ("statement", 77, 24),
    ("access_token", 57, 25),
    ("authorization_details", 29, 8),
    ("dpop", 42, 11),
    ("http_uri", 32, 17),
    ("rsa", 51, 23),
];

#[test]
fn every_input_is_replayed_and_enough_of_them_are_accepted() {
    for (name, inputs, accepted) in AT_LEAST {
        let outcomes = replay(name);
        let count = |wanted| outcomes.values().filter(|outcome| **outcome == wanted).count();
        println!("{name}: {} accepted, {} refused", count(Accepted), count(Refused));
        assert!(
            outcomes.len() >= inputs,
            "{name}: {} inputs, not {inputs} or more",
            outcomes.len()
        );
        assert!(
            count(Accepted) >= accepted,
            "{name}: {} accepted, not {accepted} or more",
            count(Accepted)
        );
        assert!(count(Refused) > 0, "{name}: none was refused");
    }
}

#[test]
fn every_target_is_replayed() {
    let targets: BTreeSet<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    let replayed: BTreeSet<&str> = AT_LEAST.iter().map(|(name, ..)| *name).collect();
    assert_eq!(replayed, targets);
    let folders: BTreeSet<String> = fs::read_dir(corpus())
        .expect("the corpus is there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a name"))
        .collect();
    assert_eq!(folders, targets.iter().map(|name| (*name).to_owned()).collect());
}

/// Replays a target's inputs in the order of their names. A panic names the input.
fn replay(name: &str) -> BTreeMap<PathBuf, targets::Outcome> {
    let (_, target) = targets::TARGETS
        .iter()
        .find(|(target, _)| *target == name)
        .expect("a target of that name");
    let folder = corpus().join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("the inputs of {name} are missing: {}: {error}", folder.display()))
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    let replayed = paths.into_iter().map(|path| {
        let input = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| target(&input, Effort::All));
        let outcome = outcome.unwrap_or_else(|_| panic!("the input that finds the fault: {}", path.display()));
        (path, outcome)
    });
    replayed.collect()
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}
