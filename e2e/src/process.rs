//! A child process, with its output in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use std::{fs, panic, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Failure, guardian, waiting};

/// A running program; killed when dropped, or when the test process ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output is appended to the file `log`, and shown if a test fails.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self, Failure> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Failure::of(format_args!("writing {}", log.display())))?;
        let errors = output.try_clone().map_err(Failure::of("sharing the log file"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Failure::of(format_args!("starting {name}")))?;
        let process = Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        };
        guardian::watch(process.child.id())?;
        show_when_a_test_fails(log);
        Ok(process)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Whether it has ended by itself, and its exit status.
    ///
    /// # Errors
    /// If the process status cannot be read.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child
            .try_wait()
            .map_err(Failure::of(format_args!("looking after {}", self.name)))
    }

    /// Fails, with the end of its output, if it is no longer running.
    ///
    /// # Errors
    /// If it has ended.
    pub fn check_running(&mut self) -> Result<(), Failure> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!(
                "{} ended: {status}. Its last words:\n{}",
                self.name,
                tail(&self.log)
            ))),
        }
    }

    /// Kills it (`kill -9`).
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<(), Failure> {
        // It may have ended already.
        let _ = self.child.kill();
        self.child
            .wait()
            .map_err(Failure::of(format_args!("waiting for {}", self.name)))?;
        guardian::forget(self.child.id())
    }

    /// Asks it to stop (SIGTERM) and waits until it ends.
    ///
    /// # Errors
    /// If it does not stop in time.
    pub fn stop(&mut self) -> Result<ExitStatus, Failure> {
        let name = self.name.clone();
        self.signal(Signal::TERM)?;
        let status = waiting::until(format_args!("{name} to stop"), || self.ended())?;
        guardian::forget(self.child.id())?;
        Ok(status)
    }

    /// Stops it until [`resume`](Self::resume) (SIGSTOP). Its connections stay open.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn suspend(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    /// Continues it (SIGCONT).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let name = &self.name;
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::new(format!("{name} has no process id")))?;
        kill_process(id, signal).map_err(Failure::of(format_args!("sending {name} a signal")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A drop cannot return an error; the guardian tries again.
        let _ = self.kill();
    }
}

/// If a test panics, prints the last lines of every log after the panic's message.
fn show_when_a_test_fails(log: &Path) {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner).push(log.to_owned());
    ONCE.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            default(panic);
            // Only on the test's own thread: a helper's panic becomes the test's.
            if thread::current().name().is_some() {
                for log in LOGS
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .iter()
                    .filter(|log| log.exists())
                {
                    eprintln!("--- the end of {}\n{}", log.display(), tail(log));
                }
            }
        }));
    });
}

static LOGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static ONCE: Once = Once::new();

fn tail(log: &Path) -> String {
    let text = fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(TAIL_LINES)..)
        .unwrap_or_default()
        .join("\n")
}

const TAIL_LINES: usize = 30;

/// The resident memory of a process.
///
/// # Errors
/// If it does not run.
pub fn resident_mib(process: u32) -> Result<f64, Failure> {
    let status = read(Path::new(&format!("/proc/{process}/status")))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix(" kB"));
    let kib: Option<f64> = kib.and_then(|kib| kib.trim().parse().ok());
    Ok(kib.ok_or_else(|| Failure::new(format!("process {process} has no resident memory")))? / 1024.0)
}

/// The CPU time that all threads of a process have used.
///
/// # Errors
/// If it does not run.
pub fn cpu_time(process: u32) -> Result<Duration, Failure> {
    let threads = format!("/proc/{process}/task");
    let mut used = Duration::ZERO;
    for thread in fs::read_dir(&threads).map_err(Failure::of(&threads))? {
        let thread = thread.map_err(Failure::of(&threads))?;
        let times = read(&thread.path().join("schedstat"))?;
        let nanoseconds = times.split(' ').next().and_then(|first| first.parse().ok());
        used += Duration::from_nanos(nanoseconds.ok_or_else(|| Failure::new("schedstat has no CPU time"))?);
    }
    Ok(used)
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(Failure::of(format_args!("reading {}", file.display())))
}
