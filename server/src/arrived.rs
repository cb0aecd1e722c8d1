//! Whether a request has arrived. After a timeout, the answer depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the whole request has arrived. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Arrived(Arc<AtomicBool>);

// === impl Arrived ===

impl Arrived {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it has arrived. If not, a handler that reads all of it first has done nothing.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
