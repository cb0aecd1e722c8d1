//! The one signal that every stream and task watches to know when to end.

use std::time::Duration;

use tokio::sync::watch;

/// Where the process is between its start and its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Running,
    /// A planned stop has begun: nothing new is accepted, streams say goodbye.
    Draining { promise: Duration },
    /// Nothing may wait any longer.
    Stopped,
}

/// Says which phase it is.
#[derive(Debug, Default)]
pub struct Lifecycle(watch::Sender<Phase>);

/// Hears which phase it is.
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

    /// Resolves once the process is no longer running normally: to the promise of the drain, or to nothing if there
    /// is no time left for goodbyes.
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

    /// Resolves once nothing may wait any longer.
    pub async fn stopped(&mut self) {
        // As above, an error is a stop too.
        let _ = self.0.wait_for(|phase| *phase == Phase::Stopped).await;
    }
}
