//! Which sources report to which replica. Each replica has a ledger of its own, so it tells the others which sources have
//! come to it, and hears from them which have left.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The sources that have come and that the other replicas do not know of yet.
#[derive(Debug, Clone, Default)]
pub struct Arrivals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    sources: Mutex<BTreeSet<String>>,
    changed: Notify,
}

// === impl Arrivals ===

impl Arrivals {
    /// A source has come. If too many wait already, the other replicas do not hear of this one, and record in the end that
    /// its tail is unknown.
    pub(crate) fn add(&self, source: String) {
        let mut waiting = self.0.sources.lock();
        if waiting.len() < MAX_WAITING {
            waiting.insert(source);
        }
        drop(waiting);
        self.0.changed.notify_one();
    }

    /// At most `limit` of those that have come. Waits for the first.
    pub async fn next(&self, limit: usize) -> Vec<String> {
        loop {
            let some: Vec<_> = self.0.sources.lock().iter().take(limit).cloned().collect();
            if !some.is_empty() {
                return some;
            }
            self.0.changed.notified().await;
        }
    }

    /// The other replicas know of them, or need not.
    pub fn told(&self, sources: &[String]) {
        let mut waiting = self.0.sources.lock();
        for source in sources {
            waiting.remove(source);
        }
    }
}

/// Sources of which the other replicas do not know yet.
const MAX_WAITING: usize = 65_536;
