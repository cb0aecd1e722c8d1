//! Whether a connection is used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<(usize, Instant)>);

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Running(Arc<Activity>);

// === impl Activity ===

impl Activity {
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.change(|running| running + 1);
        Running(Arc::clone(self))
    }

    /// Returns once no request has been under way for a while.
    pub(crate) async fn idle(&self) {
        loop {
            let (running, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if running == 0 && since.elapsed() >= IDLE_TIME {
                return;
            }
            tokio::time::sleep_until((since + IDLE_TIME).max(Instant::now() + LEAST_PAUSE)).await;
        }
    }

    fn change(&self, change: impl Fn(usize) -> usize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (change(state.0), Instant::now());
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new((0, Instant::now())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|running| running.saturating_sub(1));
    }
}

const IDLE_TIME: Duration = Duration::from_secs(60);
const LEAST_PAUSE: Duration = Duration::from_secs(1);
