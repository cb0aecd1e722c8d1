//! How long a revocation takes: to the first denial in every worker of Envoy, and to the last of 1,000 streams.
//!
//! `make bench BENCH=revocation` runs it. The last line of the output is one JSON object; loadtest/bench-revocation
//! explains its members.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::envoy::WORKERS;
use credence_e2e::forge::{Claims, Forger};
use credence_e2e::operator::Operator;
use credence_e2e::subscriber::{Caller, Said, Subscriber};
use credence_e2e::{Client, Failure, ISSUER, Request, Stack, StackOptions, waiting};
use serde::Serialize;

fn main() -> Result<(), Failure> {
    let workers = to_every_worker()?;
    let streams = to_every_stream()?;
    writeln!(io::stdout(), "{}", json(&Report { workers, streams })?).map_err(Failure::of("printing the figures"))
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    workers: ToWorkers,
    #[serde(flatten)]
    streams: ToStreams,
}

/// From the start of the revoke call to the first denial in the slowest worker.
#[derive(Serialize)]
struct ToWorkers {
    workers: usize,
    revocations: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Allowed, although the request began after the slowest worker had confirmed.
    late_allows: usize,
    /// Allowed, although the request began after the answer of the revoke call.
    allowed_after_ack: usize,
    /// From the start of the revoke call to its answer: every filter has applied it.
    ack_p50_ms: f64,
    ack_p99_ms: f64,
    /// The mean time to make a revocation durable: write and fdatasync.
    sync_mean_ms: f64,
    /// Requests answered per second during the measurement, probes included.
    load_rps: f64,
}

/// From the start of the revoke call to its receipt on the last stream.
#[derive(Serialize)]
struct ToStreams {
    streams: usize,
    streams_revocations: usize,
    streams_1000_p50_ms: f64,
    streams_1000_p99_ms: f64,
    streams_1000_max_ms: f64,
    /// From the start of the revoke call to its answer: every stream has applied it.
    ack_p50_ms_1000: f64,
    ack_p99_ms_1000: f64,
}

/// One request with the delegation that is being revoked.
struct Probe {
    worker: usize,
    principal: usize,
    began: Instant,
    ended: Instant,
    is_allowed: bool,
}

fn to_every_worker() -> Result<ToWorkers, Failure> {
    let stack = Stack::start(&StackOptions::default())?;
    let requests = requests(&stack)?;
    let present = Arc::new(AtomicUsize::new(0));
    let is_done = Arc::new(AtomicBool::new(false));
    let (sender, probes) = mpsc::channel();
    let mut clients = Vec::new();
    for interval in [PROBE_INTERVAL, LOAD_INTERVAL] {
        for (worker, client) in stack.envoy.connection_to_every_worker()?.into_iter().enumerate() {
            let (requests, present, is_done) = (Arc::clone(&requests), Arc::clone(&present), Arc::clone(&is_done));
            let sender = sender.clone();
            clients.push(thread::spawn(move || {
                ask(worker, client, &requests, &present, &is_done, interval, &sender)
            }));
        }
    }
    // The receiver ends once all senders have ended.
    drop(sender);

    let begun = Instant::now();
    let mut operator = Operator::of(&stack.control_plane)?;
    let mut times = Times::default();
    for principal in 0..REVOCATIONS {
        present.store(principal, Ordering::Relaxed);
        times.revoke(principal, &mut operator, &probes)?;
    }
    let load_rps = times.requests as f64 / begun.elapsed().as_secs_f64();
    is_done.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().map_err(|_| Failure::new("a client broke down"))??;
    }
    times.late_allows += still_allowed(&stack, &requests)?;

    Ok(ToWorkers {
        workers: WORKERS,
        revocations: REVOCATIONS,
        p50_ms: quantile(&mut times.to_workers, 0.5),
        p99_ms: quantile(&mut times.to_workers, 0.99),
        max_ms: quantile(&mut times.to_workers, 1.0),
        late_allows: times.late_allows,
        allowed_after_ack: times.allowed_after_ack,
        ack_p50_ms: quantile(&mut times.to_ack, 0.5),
        ack_p99_ms: quantile(&mut times.to_ack, 0.99),
        sync_mean_ms: sync_mean_ms(&stack.control_plane)?,
        load_rps: load_rps.round(),
    })
}

#[derive(Default)]
struct Times {
    to_workers: Vec<Duration>,
    to_ack: Vec<Duration>,
    late_allows: usize,
    allowed_after_ack: usize,
    requests: usize,
}

impl Times {
    fn revoke(&mut self, principal: usize, operator: &mut Operator, probes: &Receiver<Probe>) -> Result<(), Failure> {
        // Every worker has the delegation in its cache and allows it, on every connection.
        let mut allowed = [0; WORKERS];
        while allowed.iter().any(|count| *count < PROBES_BEFORE) {
            let probe = self.next(probes)?;
            if probe.principal == principal {
                check(probe.is_allowed, "a delegation was denied before it was revoked")?;
                allowed[probe.worker] += 1;
            }
        }
        let acknowledged = operator.raise(&subject(principal))?;
        let mut denied: [Option<Instant>; WORKERS] = [None; WORKERS];
        let mut seen = Vec::new();
        // Until each worker has denied, and a few requests more.
        let mut after = [0; WORKERS];
        while after.iter().any(|count| *count < PROBES_AFTER) {
            let probe = self.next(probes)?;
            if probe.principal != principal {
                continue;
            }
            if !probe.is_allowed {
                let first = denied[probe.worker].get_or_insert(probe.ended);
                *first = probe.ended.min(*first);
            }
            if denied.iter().all(Option::is_some) {
                after[probe.worker] += 1;
            }
            seen.push(probe);
        }
        let slowest = denied.into_iter().flatten().max().unwrap_or(acknowledged.at);
        let is_allowed_after = |instant: Instant| {
            seen.iter()
                .filter(|probe| probe.is_allowed && probe.began > instant)
                .count()
        };
        self.late_allows += is_allowed_after(slowest);
        self.allowed_after_ack += is_allowed_after(acknowledged.at);
        self.to_workers.push(slowest - acknowledged.began);
        self.to_ack.push(acknowledged.at - acknowledged.began);
        Ok(())
    }

    fn next(&mut self, probes: &Receiver<Probe>) -> Result<Probe, Failure> {
        let probe = probes.recv_timeout(waiting::PATIENCE);
        self.requests += 1;
        probe.map_err(Failure::of("waiting for the answer to a probe"))
    }
}

/// Sends the current principal's delegation on one connection to one worker, until told to stop. Each request waits for
/// the previous answer, and starts at least `interval` after the previous one.
fn ask(
    worker: usize,
    mut client: Client,
    requests: &[Request],
    present: &AtomicUsize,
    is_done: &AtomicBool,
    interval: Duration,
    probes: &Sender<Probe>,
) -> Result<(), Failure> {
    while !is_done.load(Ordering::Relaxed) {
        let principal = present.load(Ordering::Relaxed);
        let request = requests
            .get(principal)
            .ok_or_else(|| Failure::new("no such principal"))?;
        let began = Instant::now();
        let reply = client.send(request)?;
        let ended = Instant::now();
        let is_allowed = match reply.status {
            200 => true,
            401 => false,
            status => return Err(Failure::new(format!("a probe got {status}: {}", reply.text()))),
        };
        // The receiver is gone at the end of the measurement.
        let _ = probes.send(Probe {
            worker,
            principal,
            began,
            ended,
            is_allowed,
        });
        thread::sleep((began + interval).saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// How many revoked principals some worker still allows.
fn still_allowed(stack: &Stack, requests: &[Request]) -> Result<usize, Failure> {
    let mut count = 0;
    for mut client in stack.envoy.connection_to_every_worker()? {
        for request in requests {
            count += usize::from(client.send(request)?.status == 200);
        }
    }
    Ok(count)
}

fn requests(stack: &Stack) -> Result<Arc<[Request]>, Failure> {
    let (issuer, holder) = (
        Forger::from_file(Path::new(stack.issuer.path()))?,
        Forger::from_file(Path::new(stack.agent.path()))?,
    );
    let request = |principal| {
        let claims = Claims::root(ISSUER, &subject(principal), &holder, TOOLS)?;
        Ok(Request::get("/v1/catalog/book").delegation(issuer.token(&claims)?))
    };
    (0..REVOCATIONS).map(request).collect()
}

fn to_every_stream() -> Result<ToStreams, Failure> {
    let artefacts = Artefacts::from_environment()?;
    let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
    let control_plane = ControlPlane::start(&artefacts.credence, folder.path(), &[])?;
    let mut operator = Operator::of(&control_plane)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(Failure::of("starting a thread for the streams"))?;
    let (receipts, caller) = (Arc::new(Receipts::default()), Caller::default());
    for number in 0..STREAMS {
        let subscriber = Subscriber::open_confirming(control_plane.grpc(), &caller, control_plane.log_id());
        let subscriber = runtime.block_on(subscriber)?;
        let receipts = Arc::clone(&receipts);
        // Spread over the interval, as with proxies that started at different times.
        let first_ping = PING_INTERVAL * number / STREAMS;
        runtime.spawn(follow(subscriber, receipts, first_ping));
    }
    // The control plane waits only for streams whose ping it has answered.
    thread::sleep(2 * PING_INTERVAL);
    let mut times = Vec::new();
    let mut to_ack = Vec::new();
    for number in 0..STREAM_REVOCATIONS {
        let acknowledged = operator.raise(&subject(number))?;
        let last = receipts.wait_for_all(number)?;
        times.push(last - acknowledged.began);
        to_ack.push(acknowledged.at - acknowledged.began);
        thread::sleep(BETWEEN_STREAM_REVOCATIONS);
    }
    Ok(ToStreams {
        streams: STREAMS as usize,
        streams_revocations: STREAM_REVOCATIONS,
        streams_1000_p50_ms: quantile(&mut times, 0.5),
        streams_1000_p99_ms: quantile(&mut times, 0.99),
        streams_1000_max_ms: quantile(&mut times, 1.0),
        ack_p50_ms_1000: quantile(&mut to_ack, 0.5),
        ack_p99_ms_1000: quantile(&mut to_ack, 0.99),
    })
}

/// For each update, how many streams have received it, and when the last one did.
#[derive(Default)]
struct Receipts(Mutex<Vec<(u32, Option<Instant>)>>);

impl Receipts {
    fn note(&self, seq: u64) {
        let now = Instant::now();
        let mut receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(seq).unwrap_or_default().saturating_sub(1);
        if receipts.len() <= index {
            receipts.resize(index + 1, (0, None));
        }
        if let Some((count, last)) = receipts.get_mut(index) {
            *count += 1;
            *last = (*last).max(Some(now));
        }
    }

    fn wait_for_all(&self, index: usize) -> Result<Instant, Failure> {
        waiting::until("every stream to bring the revocation", || {
            let receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(match receipts.get(index) {
                Some((STREAMS, last)) => *last,
                _ => None,
            })
        })
    }
}

async fn follow(mut subscriber: Subscriber, receipts: Arc<Receipts>, first_ping: Duration) {
    let mut pings = tokio::time::interval_at(tokio::time::Instant::now() + first_ping, PING_INTERVAL);
    let mut id = 0;
    loop {
        tokio::select! {
            said = subscriber.next() => match said {
                Ok(Some(Said::Update(position))) => {
                    receipts.note(position.seq);
                    if subscriber.apply(position.seq).is_err() {
                        return;
                    }
                }
                Ok(Some(_)) => {}
                // The update will be missing.
                Ok(None) | Err(_) => return,
            },
            _ = pings.tick() => {
                id += 1;
                if subscriber.ping(id).is_err() {
                    return;
                }
            }
        }
    }
}

fn subject(number: usize) -> String {
    format!("person-{number}")
}

/// From the control plane's own metrics.
fn sync_mean_ms(control_plane: &ControlPlane) -> Result<f64, Failure> {
    let [sum, count] =
        ["sum", "count"].map(|part| control_plane.metric(&format!("credence_revocation_log_sync_seconds_{part}")));
    Ok(rounded(sum? / count? * 1e3))
}

fn quantile(times: &mut [Duration], quantile: f64) -> f64 {
    times.sort_unstable();
    // The nearest rank: 0.99 of 1,000 is the 990th.
    let rank = (times.len() as f64 * quantile).ceil() as usize;
    let time = times.get(rank.saturating_sub(1)).copied().unwrap_or_default();
    rounded(time.as_secs_f64() * 1e3)
}

fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1e3).round() / 1e3
}

fn check(is_so: bool, otherwise: &str) -> Result<(), Failure> {
    if is_so { Ok(()) } else { Err(Failure::new(otherwise)) }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::of("printing the figures"))
}

const REVOCATIONS: usize = 1_000;
const PROBES_BEFORE: usize = 5;
const PROBES_AFTER: usize = 20;
/// The precision of a worker's first denial.
const PROBE_INTERVAL: Duration = Duration::from_micros(500);
/// For the other connection to each worker.
const LOAD_INTERVAL: Duration = Duration::from_millis(1);
const STREAMS: u32 = 1_000;
const STREAM_REVOCATIONS: usize = 200;
/// As filters do.
const PING_INTERVAL: Duration = Duration::from_millis(500);
const BETWEEN_STREAM_REVOCATIONS: Duration = Duration::from_millis(20);
const TOOLS: &str = r#"{"catalog.read":{"item":{"constraint_type":"wildcard"}}}"#;
