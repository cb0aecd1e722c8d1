//! Uses strace on a program: kills it at a chosen step (`kill -9` as a thread enters a certain system call), makes
//! system calls fail, or delays them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::process::Process;
use crate::{Failure, waiting};

/// Traces a thread that waits for work, with `strace`, until the thread ends or this is dropped.
#[derive(Debug)]
pub struct Tracer {
    _strace: Process,
    calls: PathBuf,
}

/// A system call of a thread, counted from the start of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub call: String,
    /// The count among the calls of that name, from 1.
    pub occurrence: usize,
}

impl Tracer {
    /// Records the system calls of the process's thread of this name. Its files go into `folder`.
    ///
    /// # Errors
    /// If there is no such thread, or strace is missing or not permitted.
    pub fn watch(process: u32, thread: &str, folder: &Path) -> Result<Self, Failure> {
        Self::start(process, thread, &[], folder)
    }

    /// While it traces, applies this injection to the thread's system calls of these names (joined by commas), as in
    /// `strace --inject`: `error=EROFS`, `delay_enter=1s`. Only calls about files that are below `place` now are
    /// affected.
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

    /// The same, and kills the process as the thread enters that step: the call is not executed.
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
            // The call that it waits in restarts when strace attaches.
            Ok((!calls.is_empty()).then_some(()))
        })?;
        Ok(this)
    }

    fn attach(thread: u32, options: &[String], folder: &Path) -> Result<Self, Failure> {
        let calls = folder.join(format!("calls-{thread}"));
        // The file of an earlier trace.
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

    /// The steps so far, in order.
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

/// Files and folders below it, and the folder itself.
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
