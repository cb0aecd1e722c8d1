//! Whether what was acknowledged is in the ledger, exactly once.

use std::collections::HashMap;
use std::path::Path;

use credence_ledger::group::StoredBody;
use credence_ledger::ledger::{Ledger, LedgerBounds};

use super::Failure;

/// Which of a source's sequence numbers were seen.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: u64,
    numbers: Vec<bool>,
    doubled: u64,
}

/// `sources` are of the form `name=last acknowledged sequence number`.
pub(crate) fn check(data_folder: &Path, sources: &[&str]) -> Result<(), Failure> {
    let mut seen = HashMap::new();
    for source in sources {
        let (name, acknowledged) = source.split_once('=').ok_or("a source is NAME=THROUGH")?;
        let acknowledged: u64 = acknowledged.parse()?;
        seen.insert(name.to_owned(), Seen::up_to(acknowledged));
    }
    let unbounded = LedgerBounds {
        total: u64::MAX,
        segment: u64::MAX,
    };
    Ledger::open(&data_folder.join("ledger"), unbounded, |item| {
        if let (Some(seen), Some(StoredBody::Batch(batch))) = (seen.get_mut(&item.source), &item.body) {
            for number in (batch.first_sequence..).take(batch.entries.len()) {
                seen.note(number);
            }
        }
    })?;
    let acknowledged: u64 = seen.values().map(|seen| seen.acknowledged).sum();
    let lost: u64 = seen.values().map(Seen::lost).sum();
    let doubled: u64 = seen.values().map(|seen| seen.doubled).sum();
    println!(
        "{}",
        serde_json::json!({"acknowledged": acknowledged, "lost": lost, "doubled": doubled})
    );
    Ok(())
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

    /// Sequence numbers begin with 1.
    fn lost(&self) -> u64 {
        let acknowledged = self.numbers.iter().skip(1).take(self.acknowledged as usize);
        acknowledged.filter(|is_there| !**is_there).count() as u64
    }
}
