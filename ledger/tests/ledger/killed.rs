//! An erasure whose process is killed (`kill -9`) at any time.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use credence_ledger::index::IndexKey;
use credence_ledger::{Ledger, LedgerReader};

use crate::support::*;

#[test]
fn an_erasure_is_complete_or_not_done_and_done_if_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = segmented(folder.path());
    for subject in ["a", "b"].repeat(RUNS) {
        fill(&mut ledger, subject, RUN);
    }
    let whole = tree(&ledger.reader());
    drop(ledger);
    let key = std::fs::read(folder.path().join("keys")).unwrap()[64 + 20..64 + 52].to_vec();

    let (uninterrupted, mut erasing) = begin(&copy(folder.path()).keep());
    let begun = Instant::now();
    erasing.wait().unwrap();
    let duration = begun.elapsed();
    assert_eq!(said(uninterrupted), ["erased"]);

    let mut done = 0;
    for kill in 0..KILLS {
        let folder = copy(folder.path());
        let (output, mut erasing) = begin(folder.path());
        // Most of them early: the acknowledged part is short, and the index takes longest.
        std::thread::sleep(duration.mul_f64((f64::from(kill) / f64::from(KILLS)).powi(3)));
        erasing.kill().unwrap();
        erasing.wait().unwrap();
        let was_said = said(output).contains(&"erased".to_owned());
        // The thread that ends with the ledger completes it.
        drop(segmented(folder.path()));
        let ledger = segmented(folder.path());
        let reader = ledger.reader();
        let of_a = RUNS * RUN as usize;
        let expected = if reader.size() > whole.0 {
            done += 1;
            let keys = std::fs::read(folder.path().join("keys")).unwrap();
            assert!(
                !keys.windows(32).any(|window| window == key),
                "{kill}: the key is there"
            );
            (0, of_a)
        } else {
            assert!(!was_said, "{kill}: undone, though it was said to be done");
            (of_a, 0)
        };
        let erased = subjects(&reader).iter().filter(|subject| *subject == "erased").count();
        assert_eq!((found(&reader, "a"), erased), expected, "{kill}");
        assert_eq!(found(&reader, "b"), of_a, "{kill}");
        assert_eq!(reader.root(whole.0).unwrap(), whole.1, "{kill}");
        let left = std::fs::read_dir(folder.path()).unwrap();
        let is_pending = |name: std::ffi::OsString| name.to_string_lossy().starts_with("erasing-") && !is_aside(&name);
        assert!(
            !left.into_iter().any(|entry| is_pending(entry.unwrap().file_name())),
            "{kill}"
        );
    }
    eprintln!("{KILLS} kills within {duration:?}, {done} of them too late to undo it");
}

/// The process that is killed: this test, run again in a folder from the environment.
#[test]
fn erases_where_it_is_told_to() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut ledger = segmented(Path::new(&folder));
    // Not through the capture of the test's output.
    let say = |text: &str| writeln!(std::io::stdout(), "\n{SAYS}{text}").unwrap();
    say("begun");
    ledger.erase(principal("a"), "", "").unwrap().unwrap();
    say("erased");
}

/// Returns once the process says that it begins to erase.
fn begin(folder: &Path) -> (impl BufRead + use<>, Child) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::erases_where_it_is_told_to"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != format!("{SAYS}begun") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before it began");
    }
    (output, process)
}

fn said(output: impl BufRead) -> Vec<String> {
    let lines = output.lines().map_while(Result::ok);
    lines
        .filter_map(|line| Some(line.strip_prefix(SAYS)?.to_owned()))
        .collect()
}

/// With a segment for each 256 records.
fn segmented(folder: &Path) -> Ledger {
    let mut options = options();
    options.bounds.segment = 1;
    try_open(folder, options).unwrap().0
}

fn found(reader: &LedgerReader, subject: &str) -> usize {
    let key = IndexKey::principal("https://id", Some(subject));
    let segments = reader.segments();
    segments.iter().map(|segment| segment.lookup(&key).unwrap().len()).sum()
}

/// A temporary file that an interrupted write leaves behind.
fn is_aside(name: &std::ffi::OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "new")
}

const FOLDER: &str = "CREDENCE_TEST_ERASE_IN";
const SAYS: &str = "says: ";
const RUNS: usize = 10;
const RUN: u64 = 150;
const KILLS: u32 = 20;
