//! Ends the process if one of its parts ends unexpectedly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use credence_storage::folder_lock::{FolderLost, FolderWatch};
use tokio::sync::watch;

use crate::lifecycle::{Phase, PhaseWatch};

/// Raised by the first part that ends. Clones share the same alarm.
#[derive(Debug, Clone, Default)]
pub struct Alarm(watch::Sender<Option<Failure>>);

/// Why the process must end. Only a restart helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A part of the control plane ended without being told to.
    #[error(
        "{part} ended unexpectedly (the log says why); without it the control plane cannot do its work. Restart it: \
         everything that was acknowledged is in force"
    )]
    Ended {
        /// The name of the part.
        part: &'static str,
    },
    /// Data written to the data folder may be lost.
    #[error(transparent)]
    FolderLost(FolderLost),
}

/// Raises the alarm if it is dropped by a panic.
struct Guard {
    alarm: Alarm,
    part: &'static str,
}

/// A task that runs as long as the control plane, and its name.
pub type BackgroundTask = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

// === impl Alarm ===

impl Alarm {
    /// Runs a task, and raises the alarm if it panics, or ends while the process runs. An aborted task counts as
    /// planned.
    pub async fn guarded(self, part: &'static str, phase: PhaseWatch, task: impl Future<Output = ()>) {
        let guard = Guard { alarm: self, part };
        task.await;
        if phase.current() == Phase::Running {
            guard.alarm.raise(Failure::Ended { part });
        }
    }

    /// Raises the alarm. Only the first failure is reported.
    pub fn raise(&self, failure: Failure) {
        self.0.send_if_modified(|raised| {
            let first = raised.is_none();
            raised.get_or_insert(failure);
            first
        });
    }

    /// Resolves once the alarm was raised.
    pub async fn raised(&self) -> Failure {
        let mut raised = self.0.subscribe();
        let failure = raised.wait_for(Option::is_some).await.ok();
        match failure.and_then(|failure| failure.clone()) {
            Some(failure) => failure,
            // This does not happen, because we hold the sender.
            None => std::future::pending().await,
        }
    }
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.alarm.raise(Failure::Ended { part: self.part });
        }
    }
}

/// Runs a part that returns whether its end was planned. Returns the failure if it was not, or if the part panics.
pub fn unplanned_end(part: &'static str, run: impl FnOnce() -> bool) -> Option<Failure> {
    let is_planned = catch_unwind(AssertUnwindSafe(run)).unwrap_or(false);
    (!is_planned).then_some(Failure::Ended { part })
}

/// Checks the data folder every second, and raises the alarm once it is lost. So a control plane without requests ends
/// too.
pub async fn watch_folder(watch: FolderWatch, alarm: Alarm) {
    let mut ticks = tokio::time::interval(FOLDER_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(lost) = look(&watch, FolderWatch::check).await {
            return alarm.raise(Failure::FolderLost(lost));
        }
    }
}

/// A file system that hangs must not block the runtime. On a network file system, the lock may pass to another process
/// meanwhile. Then filters must not rely on our echoes.
async fn look(
    watch: &FolderWatch,
    check: impl FnOnce(&FolderWatch) -> Result<(), FolderLost> + Send + 'static,
) -> Result<(), FolderLost> {
    let folder = watch.clone();
    let checked = tokio::task::spawn_blocking(move || check(&folder));
    match tokio::time::timeout(LONGEST_FOLDER_CHECK, checked).await {
        Ok(checked) => checked.unwrap_or(Ok(())),
        Err(_) => Err(FolderLost::unanswered(watch, LONGEST_FOLDER_CHECK)),
    }
}

const FOLDER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// If a check of the folder takes longer, the file system counts as lost.
const LONGEST_FOLDER_CHECK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Lifecycle;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_while_the_process_runs_raises_the_alarm() {
        let panics: BackgroundTask = ("panics", Box::pin(async { panic!("on purpose") }));
        let ends: BackgroundTask = ("ends", Box::pin(async {}));
        for (part, task) in [panics, ends] {
            let (alarm, lifecycle) = (Alarm::default(), Lifecycle::default());
            let guarded = tokio::spawn(alarm.clone().guarded(part, lifecycle.watch(), task));
            assert_eq!(guarded.await.is_err(), part == "panics");
            assert_eq!(alarm.raised().await, Failure::Ended { part });
        }
    }

    #[tokio::test]
    async fn a_task_that_is_aborted_or_ends_after_the_drain_began_raises_nothing() {
        let (alarm, lifecycle) = (Alarm::default(), Lifecycle::default());
        let task = alarm
            .clone()
            .guarded("aborted", lifecycle.watch(), std::future::pending());
        let aborted = tokio::spawn(task);
        tokio::task::yield_now().await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        lifecycle.enter(Phase::Stopped);
        alarm.clone().guarded("ends", lifecycle.watch(), async {}).await;
        assert!(alarm.0.borrow().is_none());
    }

    #[test]
    fn a_part_that_panics_or_gives_up_has_ended_unplanned() {
        let runs: [fn() -> bool; 2] = [|| panic!("on purpose"), || false];
        for run in runs {
            let ended = unplanned_end("the part", run);
            assert_eq!(ended, Some(Failure::Ended { part: "the part" }));
        }
        assert_eq!(unplanned_end("the part", || true), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_whose_file_system_does_not_answer_is_lost() {
        let (hang, hung) = std::sync::mpsc::channel::<()>();
        let folder = FolderWatch::of_nothing();
        let looking = tokio::spawn(async move {
            look(&folder, move |_| {
                let _ = hung.recv();
                Ok(())
            })
            .await
        });
        tokio::task::yield_now().await;
        tokio::time::advance(LONGEST_FOLDER_CHECK - Duration::from_millis(1)).await;
        assert!(!looking.is_finished());
        tokio::time::advance(Duration::from_millis(2)).await;
        let lost = looking.await.unwrap().unwrap_err();
        assert!(lost.to_string().contains("no answer within 10 s"), "{lost}");
        drop(hang);
    }

    #[tokio::test]
    async fn only_the_first_failure_is_reported() {
        let alarm = Alarm::default();
        alarm.raise(Failure::Ended { part: "first" });
        alarm.raise(Failure::Ended { part: "second" });
        assert_eq!(alarm.raised().await, Failure::Ended { part: "first" });
    }
}
