//! What a cluster of three members of etcd, three replicas and two Envoys costs, and how long it takes to recover. The
//! argument is a data folder with a large log, which it moves to etcd.
//!
//! `make bench BENCH=cluster` runs it. The last line of the output is one JSON object; loadtest/bench-cluster explains
//! its members.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::cluster::{Cluster, ClusterOptions, REPLICAS};
use credence_e2e::command::Credence;
use credence_e2e::control_plane::{ControlPlane, Replica, Site};
use credence_e2e::envoy::Envoy;
use credence_e2e::etcd::{Etcd, MEMBERS};
use credence_e2e::grants::READ;
use credence_e2e::operator::{Acknowledged, Operator};
use credence_e2e::place::Place;
use credence_e2e::subscriber::{Caller, Said, Subscriber};
use credence_e2e::{Client, Failure, Request, waiting};
use serde::Serialize;

fn main() -> Result<(), Failure> {
    let filled = std::env::args().nth(1).map(PathBuf::from);
    let filled = filled.ok_or_else(|| Failure::new("usage: cluster-figures DIR"))?;
    let Some(mut cluster) = Cluster::start(&ClusterOptions {
        has_second_envoy: true,
        ..ClusterOptions::default()
    })?
    else {
        return Err(Failure::new(
            "etcd is not built here, because there is no Go that is new enough",
        ));
    };
    let raises = shown(raises(&mut cluster)?)?;
    let leaders = shown(leaders_killed(&mut cluster)?)?;
    let upgrades = shown(upgrades(&mut cluster)?)?;
    let streams = shown(many_streams(&mut cluster)?)?;
    drop(cluster);
    let large = large(&filled)?;
    let report = Report {
        raises,
        streams,
        leaders,
        upgrades,
        large,
    };
    let json = serde_json::to_string(&report).map_err(Failure::of("printing the figures"))?;
    writeln!(io::stdout(), "{json}").map_err(Failure::of("printing the figures"))
}

/// Figures that are ready are worth seeing, even if a later part fails.
fn shown<T: Serialize>(figures: T) -> Result<T, Failure> {
    let json = serde_json::to_string(&figures).map_err(Failure::of("printing figures"))?;
    eprintln!("{json}");
    Ok(figures)
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    raises: Raises,
    #[serde(flatten)]
    streams: Streams,
    #[serde(flatten)]
    leaders: Leaders,
    #[serde(flatten)]
    upgrades: Upgrades,
    #[serde(flatten)]
    large: Large,
}

#[derive(Serialize)]
struct Raises {
    raise_p50_ms: f64,
    raise_p99_ms: f64,
    commit_p50_ms: f64,
    commit_p99_ms: f64,
    raise_paused_replica_max_ms: f64,
}

/// One revocation after the other, each at the next replica.
fn raises(cluster: &mut Cluster) -> Result<Raises, Failure> {
    let mut operators: Vec<_> = (0..REPLICAS)
        .map(|nth| Operator::of(cluster.replica(nth)))
        .collect::<Result<_, _>>()?;
    let measure = |count: usize, name: &str, operators: &mut [Operator], how: Revoke| {
        let mut times = Vec::new();
        for nth in 0..count {
            let index = nth % operators.len();
            let done = how(&mut operators[index], &format!("{name}{nth}"))?;
            times.push(done.at - done.began);
            thread::sleep(BETWEEN_RAISES);
        }
        Ok::<_, Failure>(times)
    };
    // The first ones wait until filters of earlier processes would be stale.
    measure(REPLICAS, "first", &mut operators, Operator::raise)?;
    let raised = measure(RAISES, "raised", &mut operators, Operator::raise)?;
    let committed = measure(RAISES, "committed", &mut operators, Operator::commit)?;
    cluster.replica(0).suspend()?;
    let paused = measure(PAUSED_RAISES, "paused", &mut operators[1..], Operator::raise);
    cluster.replica(0).resume()?;
    Ok(Raises {
        raise_p50_ms: quantile(&raised, 0.5),
        raise_p99_ms: quantile(&raised, 0.99),
        commit_p50_ms: quantile(&committed, 0.5),
        commit_p99_ms: quantile(&committed, 0.99),
        raise_paused_replica_max_ms: quantile(&paused?, 1.0),
    })
}

type Revoke = fn(&mut Operator, &str) -> Result<Acknowledged, Failure>;

#[derive(Serialize)]
struct Streams {
    streams: usize,
    echo_p50_ms: f64,
    echo_p99_ms: f64,
}

/// Each stream of one replica pings once a second.
fn many_streams(cluster: &mut Cluster) -> Result<Streams, Failure> {
    let (server, log_id) = (cluster.replica(1).grpc(), cluster.replica(1).log_id().to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let runtime = runtime.map_err(Failure::of("starting a thread for the streams"))?;
    let times = Arc::new(Mutex::new(Vec::new()));
    let counts = Arc::new(AtomicBool::new(false));
    for number in 0..STREAMS {
        // The shares of one address are smaller than all that a replica serves.
        let host = u8::try_from(2 + number % ADDRESSES).map_err(Failure::of("numbering an address"))?;
        let caller = Caller {
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)),
            token: None,
        };
        let opened = runtime.block_on(Subscriber::open_as(server, &caller, &log_id));
        let mut subscriber = opened.map_err(Failure::of(format_args!("opening stream {number}")))?;
        let (times, counts) = (Arc::clone(&times), Arc::clone(&counts));
        runtime.spawn(async move {
            let mut id = 0;
            loop {
                id += 1;
                let sent = Instant::now();
                if subscriber.ping(id).is_err() {
                    return;
                }
                while !matches!(subscriber.next().await, Ok(Some(Said::Pong(_)))) {}
                if counts.load(Ordering::Relaxed) {
                    lock(&times).push(sent.elapsed());
                }
                tokio::time::sleep(PING_INTERVAL.saturating_sub(sent.elapsed())).await;
            }
        });
    }
    thread::sleep(2 * PING_INTERVAL);
    counts.store(true, Ordering::Relaxed);
    thread::sleep(STREAMS_FOR);
    counts.store(false, Ordering::Relaxed);
    let times = std::mem::take(&mut *lock(&times));
    if times.len() < STREAMS * 5 {
        return Err(Failure::new(format!(
            "only {} echoes of {STREAMS} streams were counted",
            times.len()
        )));
    }
    runtime.shutdown_background();
    Ok(Streams {
        streams: STREAMS,
        echo_p50_ms: quantile(&times, 0.5),
        echo_p99_ms: quantile(&times, 0.99),
    })
}

#[derive(Serialize)]
struct Leaders {
    leaders_killed: usize,
    echo_gap_max_ms: f64,
    streams_ended: u64,
    filter_streams_ended: f64,
}

/// The leader is killed again and again, while a stream at each replica pings.
fn leaders_killed(cluster: &mut Cluster) -> Result<Leaders, Failure> {
    let done = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicU64::new(0));
    let log_id = cluster.replica(0).log_id().to_owned();
    let pingers: Vec<JoinHandle<Result<Duration, Failure>>> = (0..REPLICAS)
        .map(|nth| {
            let server = cluster.replica(nth).grpc();
            let (done, ended, log_id) = (Arc::clone(&done), Arc::clone(&ended), log_id.clone());
            thread::spawn(move || longest_gap(server, &log_id, &done, &ended))
        })
        .collect();
    let before = watch_streams_ended(cluster)?;
    for _ in 0..LEADERS {
        let leader = cluster.etcd.leader()?;
        cluster.etcd.member(leader).kill()?;
        thread::sleep(Duration::from_secs(3));
        cluster.etcd.restart(leader)?;
        thread::sleep(Duration::from_secs(1));
    }
    let after = watch_streams_ended(cluster)?;
    done.store(true, Ordering::Relaxed);
    let mut gaps = Vec::new();
    for pinger in pingers {
        gaps.push(pinger.join().map_err(|_| Failure::new("a stream broke down"))??);
    }
    Ok(Leaders {
        leaders_killed: LEADERS,
        echo_gap_max_ms: quantile(&gaps, 1.0),
        streams_ended: ended.load(Ordering::Relaxed),
        filter_streams_ended: after - before,
    })
}

/// The longest time between two echoes.
fn longest_gap(
    server: std::net::SocketAddr,
    log_id: &str,
    done: &AtomicBool,
    ended: &AtomicU64,
) -> Result<Duration, Failure> {
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let mut subscriber = Subscriber::open_within(waiting::PATIENCE, server, log_id)?;
        for id in 1.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let is_echoed = subscriber.ping(id).is_ok()
                && loop {
                    match subscriber.wait_within(waiting::PATIENCE) {
                        Ok(Some(Said::Pong(_))) => break true,
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => break false,
                    }
                };
            if !is_echoed {
                ended.fetch_add(1, Ordering::Relaxed);
                break;
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(longest)
}

fn watch_streams_ended(cluster: &mut Cluster) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for nth in 0..REPLICAS {
        let page = cluster.replica(nth).send(&Request::get("/metrics"))?.text();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("credence_revocation_watch_ended_total"));
        sum += lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>();
    }
    Ok(sum)
}

#[derive(Serialize)]
struct Upgrades {
    upgrade_requests_per_second: f64,
    upgrade_requests: u64,
    upgrade_denied: u64,
    upgrade_revocations: usize,
    upgrade_revocations_lost: usize,
}

/// Every replica, and then every member, is stopped and started again, under load and revocations.
fn upgrades(cluster: &mut Cluster) -> Result<Upgrades, Failure> {
    let done = Arc::new(AtomicBool::new(false));
    let (sent, denied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let chain = cluster.stack.mint("steady", &["--tool", READ])?;
    let request = Request::get("/v1/catalog/book").delegation(&chain);
    let mut threads: Vec<JoinHandle<Result<(), Failure>>> = Vec::new();
    for envoy in [&cluster.stack.envoy].into_iter().chain(&cluster.second_envoy) {
        for client in connections(envoy)? {
            let (done, sent, denied) = (Arc::clone(&done), Arc::clone(&sent), Arc::clone(&denied));
            let request = request.clone();
            threads.push(thread::spawn(move || paced(client, &request, &done, &sent, &denied)));
        }
    }
    let operators: Vec<_> = (0..REPLICAS)
        .map(|nth| Operator::of(cluster.replica(nth)))
        .collect::<Result<_, _>>()?;
    let raiser = {
        let done = Arc::clone(&done);
        thread::spawn(move || raise_until(&done, operators))
    };
    let begun = Instant::now();
    for nth in 0..REPLICAS {
        cluster.replica(nth).stop()?;
        cluster.replica(nth).restart()?;
        thread::sleep(BETWEEN_UPGRADES);
    }
    for member in 0..MEMBERS {
        cluster.etcd.member(member).stop()?;
        cluster.etcd.restart(member)?;
        thread::sleep(BETWEEN_UPGRADES);
    }
    let seconds = begun.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| Failure::new("a client broke down"))??;
    }
    let acknowledged = raiser.join().map_err(|_| Failure::new("the operator broke down"))?;
    let mut lost = 0;
    for nth in 0..REPLICAS {
        let mut operator = Operator::of(cluster.replica(nth))?;
        for (subject, epoch) in &acknowledged {
            lost += usize::from(operator.epoch_of(subject)? != *epoch);
        }
    }
    let sent = sent.load(Ordering::Relaxed);
    Ok(Upgrades {
        upgrade_requests_per_second: (sent as f64 / seconds).round(),
        upgrade_requests: sent,
        upgrade_denied: denied.load(Ordering::Relaxed),
        upgrade_revocations: acknowledged.len(),
        upgrade_revocations_lost: lost,
    })
}

fn connections(envoy: &Envoy) -> Result<Vec<Client>, Failure> {
    envoy.connection_to_every_worker()
}

/// Sends requests at a constant rate, as far as the answers come in time.
fn paced(
    mut client: Client,
    request: &Request,
    done: &AtomicBool,
    sent: &AtomicU64,
    denied: &AtomicU64,
) -> Result<(), Failure> {
    let mut next = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let reply = client.send(request)?;
        sent.fetch_add(1, Ordering::Relaxed);
        denied.fetch_add(u64::from(reply.status != 200), Ordering::Relaxed);
        next += REQUEST_INTERVAL;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Revokes one subject after the other, at any replica that answers. Returns those that were acknowledged.
fn raise_until(done: &AtomicBool, mut operators: Vec<Operator>) -> HashMap<String, u64> {
    let mut acknowledged = HashMap::new();
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let index = number % operators.len();
        let subject = format!("upgraded{number}");
        if let Ok(raised) = operators[index].raise(&subject) {
            acknowledged.insert(subject, raised.epoch);
        }
        thread::sleep(Duration::from_millis(100));
    }
    acknowledged
}

#[derive(Serialize)]
struct Large {
    large_subjects: u64,
    large_import_ms: f64,
    large_first_ready_ms: f64,
    large_replica_ready_ms: f64,
    large_raise_p99_ms: f64,
    large_etcd_disk_mib: u64,
    large_etcd_rss_mib: u64,
    large_replica_rss_mib: u64,
}

/// A log of a million subjects.
fn large(data: &Path) -> Result<Large, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
    let etcd_folder = folder.path().join("etcd");
    fs::create_dir(&etcd_folder).map_err(Failure::of("making a folder for etcd"))?;
    let Some(mut etcd) = Etcd::start(&etcd_folder)? else {
        return Err(Failure::new("etcd is not built here"));
    };
    let artefacts = Artefacts::from_environment()?;
    let credence = Credence::new(&artefacts.credence, folder.path());
    let (store, secrets) = (etcd.address(), folder.path().join("secrets").display().to_string());
    let begun = Instant::now();
    let data = data.display().to_string();
    let moved = credence.run([
        "cluster",
        "import",
        "--data",
        &data,
        "--store",
        &store,
        "--secrets",
        &secrets,
    ])?;
    let large_import_ms = milliseconds(begun.elapsed());
    let log_id = moved.lines().find_map(|line| line.strip_prefix("log_id: "));
    let log_id = log_id.ok_or_else(|| Failure::new(format!("no log_id in {moved}")))?;

    // The log is full by the default.
    let options = ["--store", &store, "--secrets", &secrets, "--max-subjects", "1100000"].map(str::to_owned);
    let start = |name: &str| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).map_err(Failure::of("making a folder for a replica"))?;
        let token_file = folder.join("operator-token");
        fs::write(&token_file, "b".repeat(64)).map_err(Failure::of("writing a token"))?;
        let secret = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&token_file, secret).map_err(Failure::of("hiding a token"))?;
        let replica = Replica {
            program: &artefacts.credence,
            folder: &folder,
            options: &options,
            environment: &[],
            site: Site::at(Place::default())?,
        };
        let begun = Instant::now();
        let replica = ControlPlane::start_replica(replica, log_id)?;
        Ok::<_, Failure>((replica, milliseconds(begun.elapsed())))
    };
    let (first, large_first_ready_ms) = start("first")?;
    let done = Arc::new(AtomicBool::new(false));
    let mut operator = Operator::of(&first)?;
    operator.raise("waits-for-earlier-filters")?;
    let raising = {
        let done = Arc::clone(&done);
        thread::spawn(move || {
            let mut times = Vec::new();
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let raised = operator.raise(&format!("meanwhile{number}"))?;
                times.push(raised.at - raised.began);
                thread::sleep(BETWEEN_RAISES);
            }
            Ok::<_, Failure>(times)
        })
    };
    thread::sleep(Duration::from_secs(1));
    let (second, large_replica_ready_ms) = start("second")?;
    thread::sleep(Duration::from_secs(1));
    done.store(true, Ordering::Relaxed);
    let times = raising.join().map_err(|_| Failure::new("the operator broke down"))??;
    let mut disk = 0;
    let mut rss = 0;
    for member in etcd.members() {
        disk = disk.max(etcd.bytes_on_disk(member)?);
        rss = rss.max(peak_memory(etcd.member(member).id())?);
    }
    Ok(Large {
        large_subjects: 1_000_000,
        large_import_ms,
        large_first_ready_ms,
        large_replica_ready_ms,
        large_raise_p99_ms: quantile(&times, 0.99),
        large_etcd_disk_mib: disk >> 20,
        large_etcd_rss_mib: rss >> 20,
        large_replica_rss_mib: peak_memory(second.id())? >> 20,
    })
}

/// The most memory that a process has had, in bytes.
fn peak_memory(process: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(Failure::of("reading a process"))?;
    let peak = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    peak.map(|kib| kib << 10)
        .ok_or_else(|| Failure::new("the kernel does not say how much memory a process has"))
}

fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut ordered = times.to_vec();
    ordered.sort_unstable();
    let index = ((ordered.len() as f64 * share).ceil() as usize).saturating_sub(1);
    ordered.get(index).map_or(f64::NAN, |time| milliseconds(*time))
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const RAISES: usize = 500;
const PAUSED_RAISES: usize = 5;
const BETWEEN_RAISES: Duration = Duration::from_millis(10);
/// With those of the filters, which a replica serves at most.
const STREAMS: usize = 9_990;
const ADDRESSES: usize = 50;
const PING_INTERVAL: Duration = Duration::from_secs(1);
const STREAMS_FOR: Duration = Duration::from_secs(10);
const LEADERS: usize = 20;
const BETWEEN_UPGRADES: Duration = Duration::from_secs(3);
/// On each of four connections: 2,000 requests a second together.
const REQUEST_INTERVAL: Duration = Duration::from_millis(2);
