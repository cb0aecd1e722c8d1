//! What replicas tell each other of audit sources. It stands here because it is in the same store as the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::etcd::{EtcdStore, MOVES};

/// Audit sources that have moved from one replica to another.
#[derive(Debug, Clone)]
pub struct Moves(pub(crate) Arc<EtcdStore>);

impl Moves {
    /// The largest number of sources that are claimed at once.
    pub const AT_ONCE: usize = MOVES;

    /// Tells the other replicas that these sources go on in the ledger of this origin.
    pub async fn claim(&self, sources: &[String], ledger: &str) -> Result<(), StoreError> {
        self.0.claim(sources, ledger).await
    }

    /// The sources that were claimed since the last call, by any replica, and the origins of the ledgers in which they
    /// go on. Waits for the first. The first call also returns those of the hour before the start.
    pub async fn claimed(&self) -> BTreeMap<String, String> {
        self.0.claimed().await
    }
}
