//! How much evidence may be on its way to the disk.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::writer::ReportError;

/// Memory for evidence that is not on disk yet, shared by all who report. Cheap to clone; all clones are one.
/// Counted in units of 1 KiB.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
    units: u32,
}

// === impl Budget ===

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Waits for room. Whatever is larger than the whole budget takes all of it. What is returned goes with the
    /// evidence to the ledger's writer, which frees it, so that no stream can hold what another waits for.
    pub(crate) async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ReportError> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES))
            .unwrap_or(u32::MAX)
            .min(self.units);
        let taken = Arc::clone(&self.free).acquire_many_owned(units).await;
        // It is never closed.
        taken.map_err(|_| ReportError::Stopping)
    }
}

/// What the budget is counted in.
const UNIT_BYTES: usize = 1 << 10;
