//! The note on disk of how far the log has been acknowledged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::data_folder::LogNotes;
use crate::log::RevocationLog;
use crate::storage::Head;

/// Notes on disk how far the log has been acknowledged: lazily, since a note that is a second old already tells
/// damage from an interrupted write in nearly every case.
#[derive(Debug)]
pub struct HeadKeeper {
    log: RevocationLog,
    notes: LogNotes,
    /// The last sequence number that was noted.
    noted: Mutex<Option<u64>>,
}

// === impl HeadKeeper ===

impl HeadKeeper {
    pub fn new(log: RevocationLog, notes: LogNotes) -> Self {
        Self {
            log,
            notes,
            noted: Mutex::new(None),
        }
    }

    /// Notes every second, for as long as it is polled.
    pub async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(HEAD_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            Arc::clone(&self).note().await;
        }
    }

    pub async fn note(self: Arc<Self>) {
        // Its panic has been reported; the next round tries again.
        let _ = tokio::task::spawn_blocking(move || self.note_blocking()).await;
    }

    fn note_blocking(&self) {
        // Held while writing, so that an older note never replaces a newer one.
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let (seq, digest) = self.log.position();
        if *noted == Some(seq) {
            return;
        }
        match self.notes.write_head(&Head { seq, digest }) {
            Ok(()) => *noted = Some(seq),
            Err(error) => {
                tracing::warn!(%error, "how far the log was acknowledged could not be noted; it will be tried again")
            }
        }
    }
}

const HEAD_INTERVAL: Duration = Duration::from_secs(1);
