//! What is followed.

use std::ops::Range;
use std::time::Duration;

use credence_ledger::ledger::LedgerReader;
use credence_ledger::record::LedgerRecord;

/// A ledger that somebody appends to.
pub(crate) trait Records: Clone + Send + Sync + 'static {
    /// The indexes that can be read.
    fn held(&self) -> Result<Range<u64>, String>;

    /// At least the record at `from`, which is held, and at most `count`, in order. Reads from the disk.
    fn read(&self, from: u64, count: usize) -> Result<Vec<LedgerRecord>, String>;

    /// Resolves when there may be more than `size` records.
    fn grown(&self, size: u64) -> impl Future<Output = ()> + Send;
}

/// The ledger, which is asked again and again whether it has grown.
#[derive(Debug, Clone)]
pub(crate) struct PolledLedger(pub(crate) LedgerReader);

// === impl PolledLedger ===

impl Records for PolledLedger {
    fn held(&self) -> Result<Range<u64>, String> {
        let newest = self.0.block_before(u64::MAX).map_err(|error| error.to_string())?;
        Ok(0..newest.last().map_or(0, |record| record.index + 1))
    }

    fn read(&self, from: u64, count: usize) -> Result<Vec<LedgerRecord>, String> {
        // It can only be read backwards.
        let mut before = from.saturating_add(count as u64);
        let mut records = Vec::new();
        while before > from {
            let mut block = self.0.block_before(before).map_err(|error| error.to_string())?;
            let Some(first) = block.first() else { break };
            before = first.index;
            block.append(&mut records);
            records = block;
        }
        records.retain(|record| record.index >= from);
        Ok(records)
    }

    async fn grown(&self, _: u64) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(500);
