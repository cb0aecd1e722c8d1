//! How a filter loads a large revocation log: how long it takes, how it delays requests, and how much memory it takes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use crate::configuration::Replacement;
use crate::stand_in::{Load, Log, StandIn};
use crate::{Client, Failure, Request, Stack, StackOptions, waiting};

/// The measurements.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Subjects in the log.
    pub subjects: u64,
    /// From a filter's hello to its first ping: the longest of all VMs, which load at the same time.
    pub load: Duration,
    /// The same for a second snapshot, while the filter keeps the view before it.
    pub resync: Duration,
    /// The longest request while a snapshot was loading.
    pub while_loading: Longest,
    /// The longest request in the same time without loading.
    pub otherwise: Longest,
    /// Memory growth of one VM by the first snapshot, in bytes.
    pub growth: u64,
    /// Its growth by the first and the second snapshot; during the second it holds both.
    pub resync_growth: u64,
}

/// The longest request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Longest {
    /// From the first byte of the request to the last byte of the reply.
    pub latency: Duration,
    /// The same without the time in which the worker or the client was ready to run and waited for a core. This is what
    /// remains on a machine with a core for each of them.
    pub without_waiting_for_a_core: Duration,
}

/// Has Envoy's only worker load a log of that many subjects, and then another one, while it answers one request after
/// the other. The filter verifies and looks up each request first, then decides itself, since the agent may call
/// another tool.
///
/// # Errors
/// If the stack does not start, or a request gets an unexpected answer.
pub fn measure(subjects: u64) -> Result<Figures, Failure> {
    let (first, second) = (Log::of_principals(2, subjects), Log::of_principals(3, subjects));
    let stand_in = StandIn::serve(Log::of_principals(1, 0))?;
    let options = StackOptions {
        workers: Some(1),
        ..following(&stand_in)
    };
    let stack = Stack::start(&options)?;
    let chain = stack.mint("mallory", &["--tool", "something.else"])?;
    let request = Request::get("/v1/catalog/book").delegation(&chain);
    let before = memory(&stack)?;

    let mut client = SteadyClient::of(&stack)?;
    let (load, while_loading) = client.load_while(&request, || take_over(&stack, &stand_in, first, 2))?;
    let growth = memory(&stack)?.saturating_sub(before);
    let (resync, while_resyncing) = client.load_while(&request, || take_over(&stack, &stand_in, second, 3))?;
    let resync_growth = memory(&stack)?.saturating_sub(before);
    let ((), otherwise) = client.load_while(&request, || {
        thread::sleep(load + resync);
        Ok(())
    })?;
    Ok(Figures {
        subjects,
        load,
        resync,
        while_loading: while_loading.or(while_resyncing),
        otherwise,
        growth,
        resync_growth,
    })
}

/// Options of a stack whose filter follows the stand-in, and tolerates its silence for as long as any step takes here.
#[must_use]
pub fn following(stand_in: &StandIn) -> StackOptions {
    StackOptions {
        control_plane_port: Some(stand_in.port()),
        log_id: Some(StandIn::LOG_ID.to_owned()),
        replacements: vec![Replacement::once("max_staleness: 5s", "max_staleness: 1m")],
        ..StackOptions::default()
    }
}

/// Waits until every VM, the main thread's included, has loaded the log's snapshot. Returns how long the slowest took.
///
/// # Errors
/// If that takes too long.
pub fn until_taken_over(stack: &Stack, stand_in: &StandIn, seq: u64) -> Result<Duration, Failure> {
    waiting::until_at_most(LIMIT, format_args!("every VM to take over snapshot {seq}"), || {
        let loads = stand_in.loads();
        let of_this: Vec<&Load> = loads.iter().filter(|load| load.seq == seq).collect();
        let slowest = of_this.iter().map(|load| load.took).max();
        Ok(slowest.filter(|_| of_this.len() > stack.envoy.workers()))
    })
}

fn take_over(stack: &Stack, stand_in: &StandIn, log: Log, seq: u64) -> Result<Duration, Failure> {
    stand_in.replace(log);
    until_taken_over(stack, stand_in, seq)
}

/// A client of one worker.
struct SteadyClient {
    connection: Client,
    /// The kernel's scheduling statistics of the worker's thread.
    worker: PathBuf,
}

// === impl SteadyClient ===

impl SteadyClient {
    fn of(stack: &Stack) -> Result<Self, Failure> {
        let connection = stack.envoy.connection_to_every_worker()?.into_iter().next();
        let tasks = format!("/proc/{}/task", stack.envoy.id());
        let tasks = fs::read_dir(&tasks).map_err(Failure::of(format_args!("reading {tasks}")))?;
        let is_worker =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("wrk:"));
        let worker = tasks.flatten().map(|task| task.path()).find(is_worker);
        match (connection, worker) {
            (Some(connection), Some(worker)) => Ok(Self { connection, worker }),
            _ => Err(Failure::new("Envoy has no worker")),
        }
    }

    /// Sends one request after the other while `work` runs. Each must be decided against its tool. Returns the longest.
    fn load_while<T: Send>(
        &mut self,
        request: &Request,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Longest), Failure> {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut longest = Longest::default();
                while !is_done.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    longest = longest.or(self.send(request)?);
                    thread::sleep(BETWEEN.saturating_sub(begin.elapsed()));
                }
                Ok(longest)
            });
            let outcome = work();
            is_done.store(true, Ordering::Relaxed);
            let longest = load.join().map_err(|_| Failure::new("the load has panicked"))??;
            Ok((outcome?, longest))
        })
    }

    fn send(&mut self, request: &Request) -> Result<Longest, Failure> {
        let before = self.waited_for_a_core()?;
        let reply = self.connection.send(request)?;
        let waited = self.waited_for_a_core()?.saturating_sub(before);
        if reply.reason().as_deref() != Some("tool_not_granted") {
            let what = format!("a good delegation got {} {}", reply.status, reply.text());
            return Err(Failure::new(what));
        }
        Ok(Longest {
            latency: reply.latency,
            without_waiting_for_a_core: reply.latency.saturating_sub(waited),
        })
    }

    /// How long the worker and the calling thread have waited for a core since they started.
    fn waited_for_a_core(&self) -> Result<Duration, Failure> {
        let mut waited = Duration::ZERO;
        for task in [self.worker.as_path(), Path::new("/proc/thread-self")] {
            let file = task.join("schedstat");
            let attempt = || format!("reading {}", file.display());
            let text = fs::read_to_string(&file).map_err(Failure::of(attempt()))?;
            let nanos = text.split(' ').nth(1).unwrap_or_default();
            waited += Duration::from_nanos(nanos.parse().map_err(Failure::of(attempt()))?);
        }
        Ok(waited)
    }
}

// === impl Longest ===

impl Longest {
    fn or(self, other: Self) -> Self {
        Self {
            latency: self.latency.max(other.latency),
            without_waiting_for_a_core: self.without_waiting_for_a_core.max(other.without_waiting_for_a_core),
        }
    }
}

/// How far a VM's memory has grown. All VMs have loaded the same log; the metric shows the last one that reported.
fn memory(stack: &Stack) -> Result<u64, Failure> {
    // After two ticks, every VM has reported its memory.
    thread::sleep(Duration::from_millis(200));
    stack.envoy.stat("wasmcustom.credence_memory_bytes")
}

// === impl Figures ===

/// As `make bench BENCH=snapshot` prints them.
impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            formatter,
            r#"{{"subjects": {}, "load_ms": {:.0}, "resync_ms": {:.0}, "longest_pause_ms": {:.1}, "longest_pause_wall_ms": {:.1}, "longest_otherwise_ms": {:.1}, "longest_otherwise_wall_ms": {:.1}, "vm_growth_mib": {:.1}, "resync_peak_mib": {:.1}}}"#,
            self.subjects,
            ms(self.load),
            ms(self.resync),
            ms(self.while_loading.without_waiting_for_a_core),
            ms(self.while_loading.latency),
            ms(self.otherwise.without_waiting_for_a_core),
            ms(self.otherwise.latency),
            mib(self.growth),
            mib(self.resync_growth),
        )
    }
}

/// From one request to the next.
const BETWEEN: Duration = Duration::from_millis(1);

/// A million subjects take seconds on a slow machine. Far more than that means failure.
const LIMIT: Duration = Duration::from_secs(60);
