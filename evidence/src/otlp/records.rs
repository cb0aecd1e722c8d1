//! What is followed.

use std::ops::Range;

use credence_ledger::LedgerReader;
use credence_ledger::record::LedgerRecord;
use tokio::sync::watch;

/// A ledger that somebody appends to. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FollowedLedger {
    reader: LedgerReader,
    /// The ledger's size whenever it has grown.
    growth: watch::Receiver<u64>,
}

// === impl FollowedLedger ===

impl FollowedLedger {
    pub(crate) fn new(reader: LedgerReader, growth: watch::Receiver<u64>) -> Self {
        Self { reader, growth }
    }

    /// The indexes that can be read. One that could not be opened is not empty: nobody knows what it holds.
    pub(crate) fn held(&self) -> Result<Range<u64>, String> {
        self.reader.records(0..0).map_err(|error| error.to_string())?;
        let first = self.reader.first();
        Ok(first..self.reader.size().max(first))
    }

    /// The first records of the range, which is held; at most `count`. Reads from the disk.
    pub(crate) fn read(&self, range: Range<u64>, count: usize) -> Result<Vec<LedgerRecord>, String> {
        let end = range.end.min(range.start.saturating_add(count as u64));
        self.reader.records(range.start..end).map_err(|error| error.to_string())
    }

    /// Resolves when there are more than `size` records.
    pub(crate) async fn grown(&mut self, size: u64) {
        if self.growth.wait_for(|now| *now > size).await.is_err() {
            // Nobody appends any more.
            std::future::pending().await
        }
    }
}
