//! Power cuts: after each, the revocation log and the ledger have everything that was acknowledged.
//!
//! `strace` records the system calls of a real control plane under load: its first start, a crash, the recovery, a
//! compaction of the log, an erasure, a planned stop, and the retention. From them, the tests compute the states in
//! which a power cut may leave the disk ([`disk`]). A control plane starts on each state, and its data is compared with
//! what its clients had been told until then ([`judge`]).
//!
//! `CREDENCE_KEEP_STATES` keeps the states that have lost data, and prints their path. `CREDENCE_SEED` repeats a run
//! over one recording, as far as two recordings are alike.

#![allow(clippy::disallowed_types, reason = "tests look into answers of any shape")]

mod disk;
#[path = "../control_plane/harness.rs"]
#[expect(dead_code, reason = "the other tests need more of it")]
mod harness;
mod judge;
mod load;
mod recording;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use disk::{Disk, Operation, Random, Survival};
use judge::Told;
use load::Phase;

#[test]
fn nothing_that_was_acknowledged_is_lost_by_a_power_cut() {
    survive(120, 16);
}

#[test]
#[ignore = "takes minutes: thousands of states"]
fn nothing_that_was_acknowledged_is_lost_by_thousands_of_power_cuts() {
    survive(4_000, 600);
}

/// Each of these syncs protects acknowledged data: without it, the test must find a loss.
#[test]
fn without_any_one_of_its_syncs_something_acknowledged_is_lost() {
    let mut random = seeded();
    let recorded = Recording::make();
    let marks = recorded.after_marks();
    // The last ones first: by then, most data was acknowledged.
    let mut cuts: Vec<_> = marks.iter().rev().step_by(7).copied().collect();
    cuts.extend(marks.iter().rev());
    for (name, is_it) in SYNCS {
        let disk = recorded.disk.without_syncs(is_it);
        let found = cuts
            .iter()
            .take(MOST_TRIED)
            .position(|cut| judged(&disk, *cut, Survival::Nothing, &mut random).is_err());
        let found = found.unwrap_or_else(|| panic!("without the sync of {name}, nothing is lost"));
        // With the sync, nothing is lost.
        let judged = judged(&recorded.disk, cuts[found], Survival::Nothing, &mut random);
        assert_eq!(judged, Ok(()), "{}", describe(&recorded.disk, cuts[found]));
        eprintln!("without the sync of {name}: found in state {}", found + 1);
    }
}

/// Run again under `strace`, in a folder from the environment.
#[test]
fn serves_where_it_is_told_to() {
    if let (Some(folder), Ok(phase)) = (std::env::var_os(load::FOLDER), std::env::var(load::PHASE)) {
        load::serve(Path::new(&folder), Phase::named(&phase));
    }
}

/// Files and folders whose syncs are left out, one after the other.
const SYNCS: [(&str, IsIt); 9] = [
    ("the revocation log", |path| path.ends_with("/state.redb")),
    ("the folder of the log", |path| {
        matches!(path, "log" | "log.initialising")
    }),
    ("the folder that it is put into", str::is_empty),
    ("the ledger's segments", |path| path.starts_with("ledger/segments/")),
    ("the folder of the segments", |path| path == "ledger/segments"),
    ("the ledger's keys", |path| path == "ledger/keys"),
    ("the folder of the hashes", |path| path == "ledger/hashes"),
    ("a checkpoint", |path| path == "ledger/checkpoint.new"),
    ("the folder of the checkpoint", |path| path == "ledger"),
];
/// Whether it is the file or folder at this path.
type IsIt = fn(&str) -> bool;
const MOST_TRIED: usize = 120;

fn survive(states: usize, of_recovery: usize) {
    let mut random = seeded();
    let recorded = Recording::make();
    let begun = Instant::now();
    let cuts = recorded.cuts(states, &mut random);
    try_all(&recorded.disk, cuts, &random);
    // A power cut may also hit the recovery from a power cut.
    let mut recovered = 0;
    while recovered < of_recovery {
        let cut = recorded.within_writes(&mut random);
        let again = recorded.recovery_from(cut, &mut random);
        let states = (of_recovery - recovered).min(24);
        let cuts = again.cuts(states, &mut random);
        try_all(&again.disk, cuts, &random);
        recovered += states;
    }
    eprintln!("{} states judged in {:?}", states + recovered, begun.elapsed());
}

/// Checks every state; as many at a time as there are processors.
fn try_all(disk: &Disk, cuts: Vec<(usize, Survival)>, random: &Random) {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((cut, survival)) = cuts.get(number) else {
                        return;
                    };
                    if number > 0 && number.is_multiple_of(500) {
                        eprintln!("{number} of {} states", cuts.len());
                    }
                    let mut random = Random(random.0 ^ (number as u64) << 32 ^ *cut as u64);
                    if let Err(found) = judged(disk, *cut, *survival, &mut random) {
                        failures
                            .lock()
                            .unwrap()
                            .push(format!("{} {survival:?}: {found}", describe(disk, *cut)));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {}: {:#?}",
        failures.len(),
        cuts.len(),
        &failures[..failures.len().min(12)]
    );
}

fn judged(disk: &Disk, cut: usize, survival: Survival, random: &mut Random) -> Result<(), String> {
    let place = scratch();
    disk.cut(cut, survival, random, &load::data(place.path()));
    let told = Told::of(disk.marks(cut));
    let go_on = random.below(4) == 0;
    let judged = judge::judge(place.path(), &told, go_on);
    judged.map_err(|found| match std::env::var_os("CREDENCE_KEEP_STATES") {
        Some(_) => format!("{found} (kept in {})", place.keep().display()),
        None => found,
    })
}

/// The recording, and what its clients were told.
struct Recording {
    disk: Disk,
    /// The number of the first operation after which an acknowledged log exists.
    begins: usize,
}

// === impl Recording ===

impl Recording {
    /// Records everything from the first start on.
    fn make() -> Self {
        let (place, disk) = known_to_the_end(|| {
            let place = scratch();
            std::fs::create_dir(load::data(place.path())).unwrap();
            let mut disk = Disk::of(&load::data(place.path()));
            let is_known = Phase::ALL
                .into_iter()
                .all(|phase| record(place.path(), phase, &mut disk));
            is_known.then_some((place, disk))
        });
        assert_same_as_recorded(&disk, &load::data(place.path()));
        let begins = 1 + disk
            .operations
            .iter()
            .position(|operation| matches!(operation, Operation::Mark(text) if text == load::STARTED))
            .unwrap();
        eprintln!(
            "{} operations, {} marks",
            disk.operations.len(),
            disk.marks(usize::MAX).count()
        );
        Self { disk, begins }
    }

    /// The recorded start after a power cut at this place.
    fn recovery_from(&self, cut: usize, random: &mut Random) -> Self {
        known_to_the_end(|| {
            let place = scratch();
            let data = load::data(place.path());
            self.disk.cut(cut, Survival::Blocks(512), random, &data);
            let mut disk = Disk::of(&data);
            for mark in self.disk.marks(cut) {
                disk.push(Operation::Mark(mark.to_owned()));
            }
            let begins = disk.operations.len();
            record(place.path(), Phase::Recovery, &mut disk).then_some(Self { disk, begins })
        })
    }

    /// This many places for power cuts, and which unsynced operations survive each.
    fn cuts(&self, count: usize, random: &mut Random) -> Vec<(usize, Survival)> {
        let marks = self.after_marks();
        let all = self.disk.operations.len();
        let cuts = (0..count).map(|number| {
            let cut = match number % 2 {
                0 if !marks.is_empty() => marks[random.below(marks.len() as u64) as usize],
                _ => self.begins + random.below((all - self.begins + 1) as u64) as usize,
            };
            let survival = match random.below(8) {
                0 | 1 => Survival::Nothing,
                2 => Survival::Everything,
                3 | 4 => Survival::Blocks(512),
                _ => Survival::Blocks(4096),
            };
            (cut, survival)
        });
        cuts.collect()
    }

    /// Just after each message to a client.
    fn after_marks(&self) -> Vec<usize> {
        let operations = self.disk.operations.iter().enumerate().skip(self.begins);
        let marks = operations.filter(|(_, operation)| matches!(operation, Operation::Mark(_)));
        marks.map(|(number, _)| number + 1).collect()
    }

    /// Just after a write to a segment or to the log, before its sync.
    fn within_writes(&self, random: &mut Random) -> usize {
        let operations = self.disk.operations.iter().enumerate().skip(self.begins);
        let writes: Vec<usize> = operations
            .filter_map(|(number, operation)| match operation {
                Operation::Write { node, .. } => {
                    let path = self.disk.path(*node);
                    (path.starts_with("ledger/segments/") || path.ends_with("/state.redb")).then_some(number + 1)
                }
                _ => None,
            })
            .collect();
        writes[random.below(writes.len() as u64) as usize]
    }
}

/// The recording is complete: with all of it, the folder is as it really was at the end.
fn assert_same_as_recorded(disk: &Disk, real: &Path) {
    let place = scratch();
    let replayed = place.path().join("replayed");
    let all = disk.operations.len();
    disk.cut(all, Survival::Everything, &mut Random(0), &replayed);
    assert_same(&replayed, real);
    assert_same(real, &replayed);
}

fn assert_same(one: &Path, other: &Path) {
    if one.is_dir() {
        for entry in std::fs::read_dir(one).unwrap() {
            let name = entry.unwrap().file_name();
            assert_same(&one.join(&name), &other.join(&name));
        }
        return;
    }
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(one) == read(other), "{} is not as it was recorded", one.display());
}

/// Repeats a recording until none of its processes was killed within a call.
fn known_to_the_end<T>(record: impl FnMut() -> Option<T>) -> T {
    let mut attempts = std::iter::repeat_with(record).take(10);
    attempts
        .find_map(|recorded| recorded)
        .expect("one of ten ends between calls")
}

/// Runs a phase under `strace`, and appends its operations. Returns whether all of them are known.
fn record(place: &Path, phase: Phase, disk: &mut Disk) -> bool {
    let (trace, marks) = (place.join("trace"), load::marks(place));
    let output = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-xx",
            "-s",
            "67108864",
            "--seccomp-bpf",
            "-e",
            "signal=none",
            "-e",
        ])
        .arg(format!("trace={}", recording::CALLS))
        .arg("-o")
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "serves_where_it_is_told_to",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(load::FOLDER, place)
        .env(load::PHASE, phase.name())
        .output()
        .expect("strace is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    let ended = std::fs::read_to_string(&marks).unwrap_or_default();
    assert!(ended.lines().last() == Some(load::DONE), "{}: {said}", phase.name());
    std::fs::remove_file(&marks).unwrap();
    recording::read(&std::fs::read_to_string(&trace).unwrap(), &marks, disk)
}

fn describe(disk: &Disk, cut: usize) -> String {
    let before = disk
        .operations
        .get(cut.saturating_sub(1))
        .map(|operation| match operation {
            Operation::Write { node, position, data } => {
                format!("write {} {position}+{}", disk.path(*node), data.len())
            }
            Operation::Resize { node, length } => format!("resize {} {length}", disk.path(*node)),
            Operation::Names { node, gone, made } => format!("names {:?}: {gone:?} {made:?}", disk.path(*node)),
            Operation::Sync { path, .. } => format!("sync {path:?}"),
            Operation::Mark(text) => format!("mark {text}"),
        });
    format!(
        "cut {cut} of {} after {}",
        disk.operations.len(),
        before.unwrap_or_default()
    )
}

/// In memory if possible: the test is about what is written, not how fast.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn seeded() -> Random {
    let seed = std::env::var("CREDENCE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20);
    eprintln!("CREDENCE_SEED={seed}");
    Random(seed)
}
