//! How long other clients can delay a revocation: filters that hang or are killed, and clients that delay on purpose.
//!
//! `make bench BENCH=stalls` runs it. The last line of the output is one JSON object; loadtest/bench-stalls explains its
//! members.

use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::Failure;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::operator::Operator;
use credence_e2e::subscriber::{Caller, Said, Subscriber};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

fn main() -> Result<(), Failure> {
    let fleet = Fleet::start(FILTERS)?;
    let healthy = Delays::of(&fleet.revoke_for(Duration::from_secs(20), |_| Ok(()))?);
    let wedged = wedged(&fleet)?;
    let killed_together = killed(FILTERS)?;
    let killed_apart = killed(1)?;
    let staying = attacked(&Attack::Stay, Some(TOKEN))?;
    let reconnecting = attacked(&Attack::ComeAgain, Some(TOKEN))?;
    let many = attacked(&Attack::OneAfterTheOther, Some(TOKEN))?;
    let reconnecting_open = attacked(&Attack::ComeAgain, None)?;
    let report = Report {
        filters: FILTERS,
        healthy,
        wedged,
        killed_together,
        killed_apart,
        watcher_who_stays: staying,
        watcher_who_reconnects: reconnecting,
        watcher_with_100_streams: many,
        watcher_without_a_credential: reconnecting_open,
    };
    let report = serde_json::to_string(&report).map_err(Failure::of("printing the figures"))?;
    writeln!(io::stdout(), "{report}").map_err(Failure::of("printing the figures"))
}

#[derive(Serialize)]
struct Report {
    filters: usize,
    healthy: Delays,
    wedged: Wedged,
    killed_together: Delays,
    killed_apart: Delays,
    watcher_who_stays: Delays,
    watcher_who_reconnects: Delays,
    watcher_with_100_streams: Delays,
    watcher_without_a_credential: Delays,
}

/// From the start of the revoke call to its confirmation.
#[derive(Serialize)]
struct Delays {
    revocations: usize,
    p50_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
    /// Those that took longer than with healthy filters.
    delayed: usize,
}

#[derive(Serialize)]
struct Wedged {
    /// Revocations before the lease of the hanging filter ended.
    until_its_lease_is_over: Delays,
    /// Revocations after that, while it still hangs.
    after: Delays,
}

/// When a revocation began, and how long it took.
#[derive(Clone, Copy)]
struct Taken {
    began: Instant,
    took: Duration,
}

fn wedged(fleet: &Fleet) -> Result<Wedged, Failure> {
    let taken = fleet.revoke_for(Duration::from_secs(20), |second| {
        if second == 1 {
            fleet.filter(0)?.wedge();
        }
        Ok(())
    })?;
    // The lease has ended once the last delayed revocation is confirmed.
    let held_up = taken.iter().filter(|taken| taken.took > HELD_UP);
    let over = held_up.map(|taken| taken.began).max();
    let over = over.ok_or_else(|| Failure::new("a hanging filter has delayed no revocation"))?;
    let (before, after): (Vec<_>, Vec<_>) = taken.into_iter().partition(|taken| taken.began <= over);
    Ok(Wedged {
        until_its_lease_is_over: Delays::of(&before),
        after: Delays::of(&after),
    })
}

/// Each minute, one percent of all filters is killed, this many at a time, and restarted a second later.
fn killed(at_a_time: usize) -> Result<Delays, Failure> {
    let fleet = Fleet::start(FILTERS)?;
    let in_a_minute = FILTERS / 100;
    let at_a_time = at_a_time.min(in_a_minute);
    let every = 60 * at_a_time / in_a_minute;
    let (mut killed, mut started) = (0, 0);
    let taken = fleet.revoke_for(Duration::from_secs(120), |second| {
        if second % every == 2 {
            for _ in 0..at_a_time {
                fleet.filter(killed)?.kill();
                killed += 1;
            }
        } else if second % every == 3 {
            while started < killed {
                fleet.start_again(started)?;
                started += 1;
            }
        }
        Ok(())
    })?;
    Ok(Delays::of(&taken))
}

enum Attack {
    /// Gets ping answers for as long as possible, and applies nothing.
    Stay,
    /// Does so again and again, each time on a new stream.
    ComeAgain,
    /// Opens many streams, and does so on one after the other.
    OneAfterTheOther,
}

/// For two minutes, a client from its own address delays as many revocations as it can.
fn attacked(attack: &Attack, token: Option<&str>) -> Result<Delays, Failure> {
    let fleet = Fleet::start(BYSTANDERS)?;
    let caller = Caller {
        address: Ipv4Addr::new(127, 0, 0, 2).into(),
        token: token.map(str::to_owned),
    };
    let (grpc, log_id) = (fleet.control_plane.grpc(), fleet.control_plane.log_id().to_owned());
    let comes_again = matches!(attack, Attack::ComeAgain);
    let mut streams = Vec::new();
    if matches!(attack, Attack::OneAfterTheOther) {
        for _ in 0..100 {
            let stream = Subscriber::open_confirming(grpc, &caller, &log_id);
            let stream = fleet.runtime.block_on(stream)?;
            streams.push(Filter::start(&fleet.runtime, stream, Duration::ZERO));
        }
    }
    let attacker = fleet.runtime.spawn(async move {
        for stream in &streams {
            stream.wedge();
            tokio::time::sleep(MAX_STALENESS + 2 * PING_INTERVAL).await;
        }
        loop {
            if let Ok(stream) = Subscriber::open_confirming(grpc, &caller, &log_id).await {
                let held = hold_up(stream, comes_again);
                // Its result does not matter.
                let _ = held.await;
            } else {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    });
    let taken = fleet.revoke_for(Duration::from_secs(120), |_| Ok(()))?;
    attacker.abort();
    Ok(Delays::of(&taken))
}

/// Applies entries until a ping was answered, then none, and pings until pings are no longer answered.
async fn hold_up(mut stream: Subscriber, is_left: bool) -> Result<(), Failure> {
    let mut pings = tokio::time::interval(Duration::from_millis(50));
    let mut is_echoed = false;
    let mut id = 0;
    let begun = Instant::now();
    while !is_left || begun.elapsed() < MAX_STALENESS {
        tokio::select! {
            said = stream.next() => match said? {
                Some(Said::Update(position)) if !is_echoed => stream.apply(position.seq)?,
                Some(Said::Pong(_)) => is_echoed = true,
                Some(_) => {}
                None => return Ok(()),
            },
            _ = pings.tick() => {
                id += 1;
                stream.ping(id)?;
            }
        }
    }
    Ok(())
}

/// A control plane and its filters.
struct Fleet {
    filters: Mutex<Vec<Arc<Filter>>>,
    runtime: Runtime,
    control_plane: ControlPlane,
    _folder: tempfile::TempDir,
}

impl Fleet {
    fn start(filters: usize) -> Result<Self, Failure> {
        let artefacts = Artefacts::from_environment()?;
        let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
        let config = folder.path().join("credence.yaml");
        let sha256: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let access = format!(
            "access:\n  grpc: open\n  tokens:\n  - {{name: attacker, sha256: \"{sha256}\", roles: [filter]}}\n"
        );
        fs::write(&config, access).map_err(Failure::of("writing the configuration"))?;
        let options = ["--config".to_owned(), config.display().to_string()];
        let control_plane = ControlPlane::start(&artefacts.credence, folder.path(), &options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let fleet = Self {
            filters: Mutex::default(),
            runtime: runtime.map_err(Failure::of("starting a thread for the filters"))?,
            control_plane,
            _folder: folder,
        };
        for number in 0..filters {
            let filter = fleet.new_filter(PING_INTERVAL * u32::try_from(number % 1000).unwrap_or(0) / 1000)?;
            fleet.lock().push(filter);
        }
        // They apply a first entry, and get a ping answer.
        let mut operator = Operator::of(&fleet.control_plane)?;
        operator.raise("first")?;
        thread::sleep(2 * PING_INTERVAL);
        Ok(fleet)
    }

    fn new_filter(&self, first_ping: Duration) -> Result<Arc<Filter>, Failure> {
        let (grpc, log_id) = (self.control_plane.grpc(), self.control_plane.log_id());
        let stream = self
            .runtime
            .block_on(Subscriber::open_confirming(grpc, &Caller::default(), log_id))?;
        Ok(Arc::new(Filter::start(&self.runtime, stream, first_ping)))
    }

    fn filter(&self, number: usize) -> Result<Arc<Filter>, Failure> {
        let filter = self.lock().get(number).cloned();
        filter.ok_or_else(|| Failure::new("no such filter"))
    }

    fn start_again(&self, number: usize) -> Result<(), Failure> {
        let filter = self.new_filter(Duration::ZERO)?;
        if let Some(place) = self.lock().get_mut(number) {
            *place = filter;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Filter>>> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ten revocations a second, each whether or not the previous one is confirmed. Calls `each_second` at the start of
    /// each second.
    fn revoke_for(
        &self,
        duration: Duration,
        mut each_second: impl FnMut(usize) -> Result<(), Failure>,
    ) -> Result<Vec<Taken>, Failure> {
        let operators = Mutex::new(Vec::new());
        let taken = Mutex::new(Ok(Vec::new()));
        let begun = Instant::now();
        let mut faults = Ok(());
        thread::scope(|scope| {
            for tick in 0..(duration.as_millis() / INTERVAL.as_millis()) as u32 {
                thread::sleep((begun + INTERVAL * tick).saturating_duration_since(Instant::now()));
                if tick % 10 == 0 && faults.is_ok() {
                    faults = each_second(tick as usize / 10);
                }
                let (operators, taken) = (&operators, &taken);
                scope.spawn(move || {
                    let outcome = self.revoke(operators, tick);
                    let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                    match (&mut *taken, outcome) {
                        (Ok(taken), Ok(one)) => taken.push(one),
                        (taken @ Ok(_), Err(failure)) => *taken = Err(failure),
                        (Err(_), _) => {}
                    }
                });
            }
        });
        faults?;
        taken.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// On an open connection, if there is one.
    fn revoke(&self, operators: &Mutex<Vec<(Operator, Instant)>>, number: u32) -> Result<Taken, Failure> {
        let lock = || operators.lock().unwrap_or_else(PoisonError::into_inner);
        let last = lock().pop();
        let mut operator = match last {
            // The control plane closes idle connections after a while.
            Some((operator, used)) if used.elapsed() < Duration::from_secs(2) => operator,
            _ => Operator::of(&self.control_plane)?,
        };
        let acknowledged = operator.raise(&format!("person-{number}"))?;
        lock().push((operator, acknowledged.at));
        Ok(Taken {
            began: acknowledged.began,
            took: acknowledged.at - acknowledged.began,
        })
    }
}

/// A client that pings and applies as a filter does.
struct Filter {
    is_wedged: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Filter {
    fn start(runtime: &Runtime, stream: Subscriber, first_ping: Duration) -> Self {
        let is_wedged = Arc::new(AtomicBool::new(false));
        let task = runtime.spawn(follow(stream, Arc::clone(&is_wedged), first_ping));
        Self { is_wedged, task }
    }

    /// From now on it applies nothing, but pings.
    fn wedge(&self) {
        self.is_wedged.store(true, Ordering::Relaxed);
    }

    /// Breaks its connection.
    fn kill(&self) {
        self.task.abort();
    }
}

async fn follow(mut stream: Subscriber, is_wedged: Arc<AtomicBool>, first_ping: Duration) {
    let mut pings = tokio::time::interval_at(tokio::time::Instant::now() + first_ping, PING_INTERVAL);
    let mut id = 0;
    loop {
        let sent = tokio::select! {
            said = stream.next() => match said {
                Ok(Some(Said::Update(position))) if !is_wedged.load(Ordering::Relaxed) => stream.apply(position.seq),
                Ok(Some(_)) => Ok(()),
                Ok(None) | Err(_) => return,
            },
            _ = pings.tick() => {
                id += 1;
                stream.ping(id)
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

impl Delays {
    fn of(taken: &[Taken]) -> Self {
        let mut times: Vec<_> = taken.iter().map(|taken| taken.took).collect();
        times.sort_unstable();
        // The nearest rank: 0.99 of 1,000 is the 990th.
        let quantile = |quantile: f64| {
            let rank = (times.len() as f64 * quantile).ceil() as usize;
            let time = times.get(rank.saturating_sub(1)).copied().unwrap_or_default();
            (time.as_secs_f64() * 1e6).round() / 1e3
        };
        Self {
            revocations: times.len(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            longest_ms: quantile(1.0),
            delayed: times.iter().filter(|time| **time > HELD_UP).count(),
        }
    }
}

const FILTERS: usize = 1_000;
/// Filters that behave well while another client does not.
const BYSTANDERS: usize = 20;
/// The token of a client that may watch.
const TOKEN: &str = "attacker";
/// Between two revocations.
const INTERVAL: Duration = Duration::from_millis(100);
/// As filters do.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// As in the control plane.
const MAX_STALENESS: Duration = Duration::from_secs(5);
/// A revocation that takes longer has waited for a lease.
const HELD_UP: Duration = Duration::from_millis(450);
