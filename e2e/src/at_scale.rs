//! How a filter takes in a large revocation log: how long, what requests notice of it, and what memory it takes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::configuration::Replacement;
use crate::envoy::WORKERS;
use crate::grants::READ;
use crate::stand_in::{Load, Log, StandIn};
use crate::{Client, Failure, Request, Stack, StackOptions, waiting};

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Subjects of the log.
    pub subjects: u64,
    /// From a filter's hello to its first ping: the longest of all VMs, which load at once.
    pub load: Duration,
    /// The same while the view before it is kept.
    pub resync: Duration,
    /// The longest that a request took while a snapshot was loaded.
    pub longest: Duration,
    /// The longest that one took in as much time without that.
    pub longest_otherwise: Duration,
    /// Growth of one VM's memory by the first snapshot, in bytes.
    pub growth: u64,
    /// Its growth by the first snapshot and by the second one, during which it holds both.
    pub resync_growth: u64,
}

/// Has every worker load a log of so many subjects, and then another one, while a request after the other is answered by
/// one worker: every one of them allowed.
///
/// # Errors
/// If anything does not work as it should.
pub fn measure(subjects: u64) -> Result<Figures, Failure> {
    let (first, second) = (Log::of_principals(2, subjects), Log::of_principals(3, subjects));
    let stand_in = StandIn::serve(Log::of_principals(1, 0))?;
    let stack = Stack::start(&following(&stand_in))?;
    let chain = stack.mint("somebody-else", &["--tool", READ])?;
    let request = Request::get("/v1/catalog/book").delegation(&chain);
    let before = memory(&stack)?;

    let mut client = steady_client(&stack)?;
    let (load, while_loading) = under_load(&mut client, &request, || take_over(&stand_in, first, 2))?;
    let growth = memory(&stack)?.saturating_sub(before);
    let (resync, while_resyncing) = under_load(&mut client, &request, || take_over(&stand_in, second, 3))?;
    let resync_growth = memory(&stack)?.saturating_sub(before);
    let ((), longest_otherwise) = under_load(&mut client, &request, || {
        thread::sleep(load + resync);
        Ok(())
    })?;
    Ok(Figures {
        subjects,
        load,
        resync,
        longest: while_loading.max(while_resyncing),
        longest_otherwise,
        growth,
        resync_growth,
    })
}

/// What makes a stack's filter follow the stand-in, and forgive its silence for as long as anything takes here.
#[must_use]
pub fn following(stand_in: &StandIn) -> StackOptions {
    StackOptions {
        control_plane_port: Some(stand_in.port()),
        log_id: Some(StandIn::LOG_ID.to_owned()),
        replacements: vec![Replacement::once("max_staleness: 5s", "max_staleness: 1m")],
        ..StackOptions::default()
    }
}

/// Waits until every VM, the main thread's too, has taken the log's snapshot over, and says how long the slowest took.
///
/// # Errors
/// If that takes too long.
pub fn until_taken_over(stand_in: &StandIn, seq: u64) -> Result<Duration, Failure> {
    waiting::until_at_most(LIMIT, format_args!("every VM to take over snapshot {seq}"), || {
        let loads = stand_in.loads();
        let of_this: Vec<&Load> = loads.iter().filter(|load| load.seq == seq).collect();
        let slowest = of_this.iter().map(|load| load.took).max();
        Ok(slowest.filter(|_| of_this.len() > WORKERS))
    })
}

fn take_over(stand_in: &StandIn, log: Log, seq: u64) -> Result<Duration, Failure> {
    stand_in.replace(log);
    until_taken_over(stand_in, seq)
}

fn steady_client(stack: &Stack) -> Result<Client, Failure> {
    let connections = stack.envoy.connection_to_every_worker()?;
    connections
        .into_iter()
        .next()
        .ok_or_else(|| Failure::new("Envoy has no worker"))
}

/// Sends one request after the other while `work` goes on, each of which must be allowed, and says how long the longest
/// took.
fn under_load<T>(
    client: &mut Client,
    request: &Request,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Duration), Failure> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let reply = client.send(request)?;
                longest = longest.max(reply.latency);
                if reply.status != 200 {
                    return Err(Failure::new(format!(
                        "a good delegation got {} {:?}",
                        reply.status,
                        reply.reason()
                    )));
                }
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

/// What the memory of a VM has grown to: all of them have loaded the same, and the last to report is seen.
fn memory(stack: &Stack) -> Result<u64, Failure> {
    // Two ticks later every VM has said what it takes now.
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
            r#"{{"subjects": {}, "load_ms": {:.0}, "resync_ms": {:.0}, "longest_pause_ms": {:.1}, "longest_otherwise_ms": {:.1}, "vm_growth_mib": {:.1}, "resync_peak_mib": {:.1}}}"#,
            self.subjects,
            ms(self.load),
            ms(self.resync),
            ms(self.longest),
            ms(self.longest_otherwise),
            mib(self.growth),
            mib(self.resync_growth),
        )
    }
}

/// From one request to the next.
const BETWEEN: Duration = Duration::from_millis(1);

/// A million subjects take seconds on a slow machine; many times that is never.
const LIMIT: Duration = Duration::from_secs(60);
