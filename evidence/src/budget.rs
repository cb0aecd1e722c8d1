//! How much evidence may be on its way to the disk.

use credence_runtime::client_limits::Client;
use credence_runtime::turns::{Turn, Turns};

/// Memory for evidence that is not on disk yet, shared by all who report, in units of 1 KiB. Cheap to clone; all clones are
/// one.
#[derive(Debug, Clone)]
pub struct Budget(Turns);

// === impl Budget ===

impl Budget {
    /// So many bytes, this percentage of them of one client.
    pub fn new(bytes: usize, share_percent: u8) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        Self(Turns::new(units, share_percent))
    }

    /// Waits for room. What is larger than the client's share takes all of the share. What is returned goes with the
    /// evidence to the ledger's writer, which frees it, so that no stream can hold what another waits for.
    pub(crate) async fn take(&self, client: &Client, bytes: usize) -> Turn {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        self.0.take(client, units).await
    }
}

/// What the budget is counted in.
const UNIT_BYTES: usize = 1 << 10;
