//! Checks that acknowledged entries are in the ledger, exactly once, and in the published tree.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use credence_ledger::{Ledger, LedgerBounds, LedgerOptions, RecordBody, Retention};

use super::Failure;

/// The sequence numbers that were found for a source.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: u64,
    numbers: Vec<bool>,
    doubled: u64,
}

/// The contents of the latest checkpoint.
#[derive(Debug)]
struct Published {
    origin: String,
    size: u64,
}

/// Each of `sources` is `name=last acknowledged sequence number`.
pub(crate) fn check(data_dir: &Path, sources: &[&str]) -> Result<(), Failure> {
    let mut seen = HashMap::new();
    for source in sources {
        let (name, acknowledged) = source.split_once('=').ok_or("a source is NAME=THROUGH")?;
        let acknowledged: u64 = acknowledged.parse()?;
        seen.insert(name.to_owned(), Seen::up_to(acknowledged));
    }
    let folder = data_dir.join("ledger");
    // Entries that no checkpoint covers are not in the published tree.
    let published = Published::read(&folder)?;
    let options = LedgerOptions {
        // The ledger is new, so its origin has never changed.
        origin: published.origin,
        bounds: LedgerBounds {
            total: u64::MAX,
            segment: 1 << 30,
            keys: u32::MAX,
        },
        retention: Retention::default(),
        published: None,
    };
    let (ledger, _) = Ledger::open(&folder, options)?;
    let reader = ledger.reader();
    let size = published.size.min(reader.size());
    let mut first = 0;
    while first < size {
        let end = (first + AT_ONCE).min(size);
        for record in reader.records(first..end)? {
            if let (Some(seen), RecordBody::Entry(stored)) = (seen.get_mut(&record.source), record.body) {
                seen.note(stored.sequence);
            }
        }
        first = end;
    }
    let acknowledged: u64 = seen.values().map(|seen| seen.acknowledged).sum();
    let lost: u64 = seen.values().map(Seen::lost).sum();
    let doubled: u64 = seen.values().map(|seen| seen.doubled).sum();
    println!(
        "{}",
        serde_json::json!({"acknowledged": acknowledged, "lost": lost, "doubled": doubled, "tree_size": size})
    );
    Ok(())
}

// === impl Published ===

impl Published {
    /// The first lines of a checkpoint (C2SP tlog-checkpoint).
    fn read(folder: &Path) -> Result<Self, Failure> {
        let checkpoint = fs::read_to_string(folder.join("checkpoint"))?;
        let mut lines = checkpoint.lines();
        let origin = lines.next().ok_or("the checkpoint has no origin")?.to_owned();
        let size = lines.next().ok_or("the checkpoint has no size")?.parse()?;
        Ok(Self { origin, size })
    }
}

// === impl Seen ===

impl Seen {
    fn up_to(acknowledged: u64) -> Self {
        Self {
            acknowledged,
            numbers: vec![false; acknowledged as usize + 1],
            doubled: 0,
        }
    }

    fn note(&mut self, number: u64) {
        let number = number as usize;
        if self.numbers.len() <= number {
            self.numbers.resize(number + 1, false);
        }
        if std::mem::replace(&mut self.numbers[number], true) {
            self.doubled += 1;
        }
    }

    /// Sequence numbers start at 1.
    fn lost(&self) -> u64 {
        let acknowledged = self.numbers.iter().skip(1).take(self.acknowledged as usize);
        acknowledged.filter(|is_there| !**is_there).count() as u64
    }
}

/// Records read at a time.
const AT_ONCE: u64 = 4096;
