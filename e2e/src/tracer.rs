//! Comes between a program and the system: ends it at a chosen step (`kill -9` as one of its threads enters a certain system
//! call), or has calls fail or take their time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::process::Process;
use crate::{Failure, waiting};

/// Watches a thread that waits for something to do, by `strace`, until it ends or this is dropped.
#[derive(Debug)]
pub struct Tracer {
    _strace: Process,
    calls: PathBuf,
}

/// A system call of a thread, counted from the tracer's coming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub call: String,
    /// Which of that name, from 1.
    pub occurrence: usize,
}

impl Tracer {
    /// Notes what the process's thread of that name calls. Its files go into `folder`.
    ///
    /// # Errors
    /// If there is no such thread, or strace is not installed or not permitted.
    pub fn watch(process: u32, thread: &str, folder: &Path) -> Result<Self, Failure> {
        Self::start(process, thread, &[], folder)
    }

    /// As long as it watches, has the thread's system calls of these names (joined by commas) treated so, as `strace
    /// --inject` has it: `error=EROFS`, `delay_enter=1s`. Only those that concern what is below `place` now.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn meddle(
        calls: &str,
        how: &str,
        (process, thread): (u32, &str),
        place: &Path,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let mut options = vec![format!("--inject={calls}:{how}")];
        let paths = all_below(place).map_err(Failure::of(place.display()))?;
        options.extend(paths.iter().map(|path| format!("--trace-path={}", path.display())));
        Self::attach(thread_named(process, thread)?, &options, folder)
    }

    /// The same, and kills the process when the thread takes that step: the call is not carried out any more.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn kill_at(step: &Step, process: u32, thread: &str, folder: &Path) -> Result<Self, Failure> {
        let Step { call, occurrence } = step;
        let kill = format!("--inject={call}:signal=KILL:when={occurrence}");
        Self::start(process, thread, &[kill], folder)
    }

    fn start(process: u32, thread: &str, options: &[String], folder: &Path) -> Result<Self, Failure> {
        let this = Self::attach(thread_named(process, thread)?, options, folder)?;
        waiting::until("strace to watch the thread", || {
            let calls = fs::read_to_string(&this.calls).unwrap_or_default();
            // The call that it waits in is entered anew when the tracer comes.
            Ok((!calls.is_empty()).then_some(()))
        })?;
        Ok(this)
    }

    fn attach(thread: u32, options: &[String], folder: &Path) -> Result<Self, Failure> {
        let calls = folder.join(format!("calls-{thread}"));
        // Of a tracer that was here before.
        let _ = fs::remove_file(&calls);
        let mut command = Command::new("strace");
        command.args(["-qq", "-p", &thread.to_string(), "-o"]).arg(&calls);
        command.args(options);
        let mut strace = Process::start("strace", &mut command, &folder.join("strace.log"))?;
        waiting::until("strace to come", || {
            strace.check_running()?;
            let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
            let is_traced = !status.contains("TracerPid:\t0\n");
            Ok(is_traced.then_some(()))
        })?;
        Ok(Self { _strace: strace, calls })
    }

    /// The steps that it has taken so far, each followed by another.
    pub fn steps(&self) -> Vec<Step> {
        let calls = fs::read_to_string(&self.calls).unwrap_or_default();
        let names = calls
            .lines()
            .filter_map(|line| line.split_once('('))
            .map(|(name, _)| name);
        let mut steps: Vec<Step> = Vec::new();
        for name in names {
            let before = steps.iter().filter(|step| step.call == name).count();
            steps.push(Step {
                call: name.to_owned(),
                occurrence: before + 1,
            });
        }
        steps
    }
}

/// Files and folders, that one too.
fn all_below(place: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![place.to_owned()];
    if place.is_dir() {
        for entry in fs::read_dir(place)? {
            found.extend(all_below(&entry?.path())?);
        }
    }
    Ok(found)
}

fn thread_named(process: u32, name: &str) -> Result<u32, Failure> {
    let folder = format!("/proc/{process}/task");
    let threads = fs::read_dir(&folder).map_err(Failure::of(&folder))?;
    for thread in threads.flatten() {
        let found = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if found.trim() == name {
            let id = thread.file_name().to_string_lossy().parse();
            return id.map_err(Failure::of("reading a thread's id"));
        }
    }
    Err(Failure::new(format!("process {process} has no thread named {name:?}")))
}
