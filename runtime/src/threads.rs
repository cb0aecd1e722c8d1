//! Threads that are told to end and joined.

use std::fmt;
use std::thread::JoinHandle;

/// The threads of one part. On drop they are told to end, and joined.
pub struct Threads {
    running: Vec<JoinHandle<()>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

// === impl Threads ===

impl Threads {
    /// Takes threads that end after `tell`. It may be called several times.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn threads_are_told_to_end_and_waited_for_when_they_are_stopped_and_when_they_are_dropped() {
        for is_dropped in [false, true] {
            let (told, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let running = std::thread::spawn({
                let (told, ended) = (Arc::clone(&told), Arc::clone(&ended));
                move || {
                    while !told.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    ended.store(true, Ordering::Release);
                }
            });
            let threads = Threads::new(vec![running], move || told.store(true, Ordering::Release));
            match is_dropped {
                true => drop(threads),
                false => threads.stop().await,
            }
            assert!(ended.load(Ordering::Acquire), "dropped: {is_dropped}");
        }
    }
}
