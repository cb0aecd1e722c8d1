//! Threads that end when they are told to.

use std::fmt;
use std::thread::JoinHandle;

/// The threads of a part. Dropped, they are told to end, and waited for.
pub struct Threads {
    running: Vec<JoinHandle<()>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

// === impl Threads ===

impl Threads {
    /// Threads that end once `tell` was called, as often as it may be.
    pub fn new(running: Vec<JoinHandle<()>>, tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            running,
            tell: Box::new(tell),
        }
    }

    /// Tells them to end, and returns when they have.
    pub async fn stop(self) {
        (self.tell)();
        // The threads end by themselves; an error would be a panic, which has been reported.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        (self.tell)();
        for thread in self.running.drain(..) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Threads").field(&self.running).finish()
    }
}
