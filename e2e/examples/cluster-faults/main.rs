//! What a cluster does when parts of it fail: `make test-cluster`.
//!
//! Three members of etcd, three replicas and two Envoys run under load and revocations, while one fault after another,
//! or two at a time, befalls them. Everything that clients see is checked:
//!
//! 1. An acknowledged revocation is in the log, once.
//! 2. Of two revocations, one of which was answered before the other began, the earlier comes first.
//! 3. A look-up knows every revocation that was acknowledged before it began.
//! 4. No echo of a ping lacks an entry that was in the log when the ping was sent.
//! 5. No request is allowed that began after its revocation was acknowledged.
//! 6. All replicas have the same log; in it no epoch falls, and no disabled subject is enabled again.
//!
//! The last line of the output is one JSON object:
//!
//! - `faults`, `revocations` (acknowledged), `requests`, `seconds`;
//! - `violations` of these promises, `allowed_after_ack` (the fifth alone);
//! - `denied_by_single_failures`: requests of a subject that is never revoked, that were denied while one fault lasted, or none;
//! - `raise_p50_ms`, `raise_p99_ms` of revocations without a fault; `raise_in_faults_max_ms` during a single fault, at a
//!   replica that it does not concern;
//! - `violations_without_quorum`: of the same run with a program that reads what one member has;
//! - `violations_without_applied`: of the same run with revocations that count as acknowledged once they are durable.

mod clients;
mod faults;
mod history;
mod traffic;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use credence_e2e::Failure;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::cluster::{Cluster, ClusterOptions, REPLICAS};
use credence_e2e::forge::Forger;
use credence_e2e::operator::Wait;
use credence_e2e::random::Random;
use serde::Serialize;

use crate::clients::{FOLLOWERS, Reached, Shared};
use crate::faults::Fault;
use crate::history::{History, Raise};
use crate::traffic::{Denial, Traffic};

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |name: &str| {
        let given = arguments.next().unwrap_or_default();
        given
            .parse::<u64>()
            .map_err(Failure::of(format_args!("reading {name}, a number: {given:?}")))
    };
    let (faults, seed) = (number("the count of faults")?, number("the seed")?);
    let unsafe_program = arguments.next().map(PathBuf::from);
    let run = Run {
        faults,
        seed,
        wait: Wait::Applied,
        program: None,
        until_violated: false,
    };
    let Some(mut report) = run.carry_out("all safeguards")? else {
        return Ok(());
    };
    if let Some(program) = unsafe_program {
        let run = Run {
            until_violated: true,
            ..run
        };
        let found = |outcome: Option<Report>| outcome.map(|report| report.violations);
        let without = Run {
            program: Some(program),
            ..run.clone()
        };
        report.violations_without_quorum = found(without.carry_out("reads without a quorum")?);
        let without = Run {
            wait: Wait::Committed,
            ..run
        };
        report.violations_without_applied = found(without.carry_out("acknowledged before filters apply")?);
    }
    let failed = report.violations > 0
        || report.denied_by_single_failures > 0
        || report.violations_without_quorum == Some(0)
        || report.violations_without_applied == Some(0);
    let json = serde_json::to_string(&report).map_err(Failure::of("printing the figures"))?;
    writeln!(io::stdout(), "{json}").map_err(Failure::of("printing the figures"))?;
    match failed {
        false => Ok(()),
        true => Err(Failure::new("a promise was broken, or a run found nothing that had to")),
    }
}

#[derive(Debug, Default, Serialize)]
struct Report {
    faults: usize,
    revocations: usize,
    violations: usize,
    allowed_after_ack: u64,
    denied_by_single_failures: usize,
    denied_by_two_failures: usize,
    raise_p50_ms: f64,
    raise_p99_ms: f64,
    raise_in_faults_max_ms: f64,
    requests: u64,
    seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    violations_without_quorum: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    violations_without_applied: Option<usize>,
}

#[derive(Debug, Clone)]
struct Run {
    faults: u64,
    seed: u64,
    wait: Wait,
    program: Option<PathBuf>,
    until_violated: bool,
}

/// From the first moment of a fault until all is as before.
struct Span {
    faults: Vec<Fault>,
    from: Instant,
    to: Instant,
}

impl Run {
    fn carry_out(&self, name: &str) -> Result<Option<Report>, Failure> {
        let begun = Instant::now();
        say(begun, &format!("run: {name}"));
        let small = [
            "--ledger-segment-bytes",
            "1048576",
            "--ledger-retention-bytes",
            "16777216",
            "--compact-above",
            "65536",
        ];
        let options = ClusterOptions {
            has_faults: true,
            has_second_envoy: true,
            program: self.program.clone(),
            serve_options: small.map(str::to_owned).to_vec(),
        };
        let Some(mut cluster) = Cluster::start(&options)? else {
            return Ok(None);
        };
        let done = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(self.shared(&mut cluster, &done)?);
        let mut threads: Vec<JoinHandle<Result<(), Failure>>> = Vec::new();
        let mut followers = Vec::new();
        for (nth, envoy) in [&cluster.stack.envoy]
            .into_iter()
            .chain(&cluster.second_envoy)
            .enumerate()
        {
            threads.extend(shared.traffic.start(nth, envoy, &done)?);
        }
        for nth in 0..FOLLOWERS {
            let seed = self.seed.wrapping_mul(31).wrapping_add(nth + 1);
            let start = |kind, client: fn(&Shared, Random) -> Result<(), Failure>| {
                let (shared, random) = (Arc::clone(&shared), Random::new(seed, kind));
                thread::spawn(move || client(&shared, random))
            };
            threads.extend([start(0, Shared::revoke), start(1, Shared::look_up)]);
            followers.push(start(2, Shared::follow));
        }
        for replica in 0..REPLICAS {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.ping(replica)));
        }
        let mut spans = Vec::new();
        let outcome = self.inflict(begun, &mut cluster, &shared, &mut spans);
        if outcome.is_err() {
            for replica in 0..REPLICAS {
                let log = cluster.replica(replica).log();
                let lines: Vec<_> = log.lines().filter(|line| !line.contains(EACH_REVOCATION)).collect();
                let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
                say(
                    begun,
                    &format!("the last lines of replica {replica}:\n{}", last.join("\n")),
                );
            }
        }
        done.store(true, Ordering::Relaxed);
        let end = |thread: JoinHandle<Result<(), Failure>>| {
            let ended = thread.join();
            ended.map_err(|_| Failure::new("a client broke down"))?
        };
        threads.into_iter().try_for_each(end)?;
        shared.log_ended.get_or_init(Instant::now);
        followers.into_iter().try_for_each(end)?;
        outcome?;
        for replica in 0..REPLICAS {
            shared.follow_to_the_end(replica)?;
        }
        if shared.history.known_through() < shared.history.committed() {
            let (known, all) = (shared.history.known_through(), shared.history.committed());
            return Err(Failure::new(format!(
                "credence watch has seen the log up to {known}, and it has {all} entries"
            )));
        }
        if shared.history.committed() == 0 {
            return Err(Failure::new(
                "no revocation was acknowledged, so the run has shown nothing",
            ));
        }
        shared.traffic.check_not_in_vain();
        shared.history.check();
        let report = report(&shared, &spans, begun);
        say(begun, &format!("{report:?}"));
        Ok(Some(report))
    }

    fn shared(&self, cluster: &mut Cluster, done: &Arc<AtomicBool>) -> Result<Shared, Failure> {
        let history = Arc::new(History::default());
        let stack = &cluster.stack;
        let issuer = Forger::from_file(Path::new(stack.issuer.path()))?;
        let agent = Forger::from_file(Path::new(stack.agent.path()))?;
        let log_id = stack.control_plane.log_id().to_owned();
        let replicas = (0..REPLICAS).map(|nth| Reached::of(cluster.replica(nth)));
        let mut shared = Shared {
            replicas: replicas.collect::<Result<_, _>>()?,
            traffic: Arc::new(Traffic::new(Arc::clone(&history), credence_e2e::Request::get("/"))),
            history,
            done: Arc::clone(done),
            issuer,
            agent,
            wait: self.wait,
            log_id,
            credence: Artefacts::from_environment()?.credence,
            subjects: AtomicU64::new(0),
            followers: AtomicU64::new(0),
            log_ended: OnceLock::new(),
        };
        let steady = shared.request_of("steady")?;
        shared.traffic = Arc::new(Traffic::new(Arc::clone(&shared.history), steady));
        Ok(shared)
    }

    fn inflict(
        &self,
        begun: Instant,
        cluster: &mut Cluster,
        shared: &Shared,
        spans: &mut Vec<Span>,
    ) -> Result<(), Failure> {
        let mut random = Random::new(self.seed, 0);
        thread::sleep(CALM);
        for _ in 0..self.faults {
            if self.until_violated && shared.history.violations() > 0 {
                break;
            }
            let faults = Fault::draw(&mut random);
            // Some last longer than a replica's lease of etcd.
            let longest = if random.once_in(10) { 14_000 } else { 6_500 };
            let lasts = Duration::from_millis(500 + random.below(longest) as u64);
            let names: Vec<_> = faults.iter().map(ToString::to_string).collect();
            say(begun, &format!("{} for {lasts:?}", names.join(", and ")));
            let from = Instant::now();
            let mut present = Vec::new();
            for fault in &faults {
                present.push(fault.begin(cluster)?);
            }
            thread::sleep(lasts);
            for fault in &present {
                fault.end(cluster)?;
            }
            cluster.wait_until_whole()?;
            thread::sleep(SETTLED);
            spans.push(Span {
                faults,
                from,
                to: Instant::now(),
            });
            thread::sleep(CALM);
        }
        Ok(())
    }
}

fn report(shared: &Shared, spans: &[Span], begun: Instant) -> Report {
    let span_at = |instant: Instant| spans.iter().find(|span| span.from <= instant && instant <= span.to);
    let denials = shared.traffic.denials();
    let (by_two, by_single): (Vec<_>, Vec<_>) = denials
        .iter()
        .partition(|denial| span_at(denial.began).is_some_and(|span| span.faults.len() > 1));
    for denial in by_single.iter().take(10) {
        let Denial {
            began,
            envoy,
            worker,
            answer,
        } = denial;
        let after = began.saturating_duration_since(begun).as_secs_f32();
        say(
            begun,
            &format!("denied at {after:.1} s by worker {worker} of Envoy {envoy}: {answer}"),
        );
    }
    let is_calm = |raise: &Raise| {
        !spans
            .iter()
            .any(|span| span.from <= raise.invoked + AHEAD && raise.invoked <= span.to)
    };
    let calm = shared.history.latencies(is_calm);
    let in_faults = shared.history.latencies(|raise| {
        span_at(raise.invoked).is_some_and(|span| {
            span.faults.len() == 1 && !span.faults.iter().any(|fault| fault.concerns(raise.replica))
        })
    });
    let slowest = shared.history.raises().into_iter().filter_map(|raise| {
        let acknowledged = raise.acknowledged.as_ref()?.at;
        Some((acknowledged.saturating_duration_since(raise.invoked), raise))
    });
    let mut slowest: Vec<_> = slowest.collect();
    slowest.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    for (took, raise) in slowest.iter().take(5) {
        let at = raise.invoked.saturating_duration_since(begun).as_secs_f32();
        let before = spans.iter().rfind(|span| span.from <= raise.invoked);
        let names: Vec<_> = before
            .iter()
            .flat_map(|span| &span.faults)
            .map(ToString::to_string)
            .collect();
        say(
            begun,
            &format!(
                "slow: at {at:.1} s, a revocation at replica {} took {took:?}, after {}",
                raise.replica,
                names.join(", and ")
            ),
        );
    }
    Report {
        faults: spans.len(),
        revocations: shared
            .history
            .raises()
            .iter()
            .filter(|raise| raise.acknowledged.is_some())
            .count(),
        violations: shared.history.violations(),
        allowed_after_ack: shared.traffic.allowed_after_ack(),
        denied_by_single_failures: by_single.len(),
        denied_by_two_failures: by_two.len(),
        raise_p50_ms: quantile(&calm, 0.5),
        raise_p99_ms: quantile(&calm, 0.99),
        raise_in_faults_max_ms: quantile(&in_faults, 1.0),
        requests: shared.traffic.requests(),
        seconds: begun.elapsed().as_secs(),
        ..Report::default()
    }
}

/// Of values in order, in milliseconds.
fn quantile(ordered: &[Duration], share: f64) -> f64 {
    let index = ((ordered.len() as f64 * share).ceil() as usize).saturating_sub(1);
    let value = ordered.get(index).map_or(f64::NAN, |value| value.as_secs_f64() * 1e3);
    (value * 100.0).round() / 100.0
}

fn say(begun: Instant, what: &str) {
    eprintln!("{:7.1} s  {what}", begun.elapsed().as_secs_f32());
}

/// Envoy returns to an address that it has left after two seconds. The filters of a replica that was started again are
/// stale five seconds after its start, which `wait_until_whole` has waited for.
const SETTLED: Duration = Duration::from_millis(4_500);
/// Revocations this shortly before a fault are none without one, however long they take.
const AHEAD: Duration = Duration::from_millis(500);
/// Of a replica's log, when a run fails.
const LAST_LINES: usize = 60;
/// Lines of the log that would hide the others.
const EACH_REVOCATION: &str = "revocation acknowledged";
/// Between two faults, for the figures without one.
const CALM: Duration = Duration::from_millis(1_500);
