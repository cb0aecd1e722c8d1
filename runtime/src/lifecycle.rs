//! The signal that tells every stream and task when to end.

use std::time::Duration;

use tokio::sync::watch;

/// The phase of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Running,
    /// A planned stop has begun. New streams are refused, and open streams send their last messages.
    Draining { promise: Duration },
    /// All work must end now.
    Stopped,
}

/// Sets the phase.
#[derive(Debug, Default)]
pub struct Lifecycle(watch::Sender<Phase>);

/// Observes the phase.
#[derive(Debug, Clone)]
pub struct PhaseWatch(watch::Receiver<Phase>);

// === impl Lifecycle ===

impl Lifecycle {
    pub fn enter(&self, phase: Phase) {
        self.0.send_replace(phase);
    }

    pub fn watch(&self) -> PhaseWatch {
        PhaseWatch(self.0.subscribe())
    }
}

// === impl PhaseWatch ===

impl PhaseWatch {
    pub fn current(&self) -> Phase {
        *self.0.borrow()
    }

    /// Resolves once the process leaves normal operation. Returns the drain promise, or `None` if there is no time for
    /// last messages.
    pub async fn draining(&mut self) -> Option<Duration> {
        match self
            .0
            .wait_for(|phase| *phase != Phase::Running)
            .await
            .map(|phase| *phase)
        {
            Ok(Phase::Draining { promise }) => Some(promise),
            // An error means that the sender is gone, which is a stop too.
            Ok(Phase::Running | Phase::Stopped) | Err(_) => None,
        }
    }

    /// Resolves once all work must end.
    pub async fn stopped(&mut self) {
        // As above, an error is a stop too.
        let _ = self.0.wait_for(|phase| *phase == Phase::Stopped).await;
    }
}
