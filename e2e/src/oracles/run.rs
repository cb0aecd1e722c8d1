//! Sends generated requests through the filter to every service, and reports what the services read differently.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http::HeaderName;
use http::uri::Authority;
use serde::Serialize;

use super::generator::{self, Draft, ORDINARY, Trick};
use super::judge::{self, Allowed, SUBJECT};
use super::policy::{self, CLUSTER, NONCE};
use super::reading::Reading;
use super::services::Services;
use crate::audit::Decision;
use crate::random::Random;
use crate::{Client, Failure, Http2, Reply, Request, Stack, StackOptions, waiting};

/// The length of a run, and its requests.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The same seed makes the same requests, in any order.
    pub seed: u64,
    /// Stop after this many requests.
    pub requests: u64,
    /// Stop after this time.
    pub time: Duration,
}

/// The result; the last line of the soak's output.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Generated requests, without controls and retries.
    pub requests: u64,
    /// The services, with their versions.
    pub services: BTreeMap<String, String>,
    /// Distinct disagreements: by service and by what differs.
    pub disagreements: usize,
    /// Requests with one of them.
    pub disagreeing_requests: u64,
    /// Services for which this machine lacks the runtime.
    pub left_out: Vec<String>,
    /// The seed that makes the same requests again.
    pub seed: u64,
    /// Ordinary requests, which must be allowed and arrive.
    pub controls: u64,
    /// Those that did not.
    pub controls_failed: usize,
    /// Answered by a handler of a service.
    pub arrived: u64,
    /// Requests allowed by a delegation, with their evidence compared.
    pub evidence_compared: u64,
    /// Answered by Envoy or by the service's server, not by a handler or the filter.
    pub refused_elsewhere: u64,
    /// Without an answer.
    pub unanswered: u64,
    /// Denied by the filter, by reason.
    pub denied: BTreeMap<String, u64>,
    /// How long the requests took.
    pub seconds: f64,
    /// All errors, as text.
    #[serde(skip)]
    pub findings: Vec<String>,
}

/// Requests for one pair of Envoys. After them, the evidence is compared, and a new pair starts.
const ROUND: u64 = 20_000;

/// How often to send an ordinary request that a service does not answer.
const ATTEMPTS: usize = 3;

/// Connections of each kind, on two cores.
const THREADS: usize = 4;

/// Runs the plan against these services.
///
/// # Errors
/// If a program does not start.
pub fn run(services: &Services, plan: Plan) -> Result<Report, Failure> {
    let begin = Instant::now();
    let mut report = Report {
        requests: 0,
        services: services.versions.clone(),
        disagreements: 0,
        disagreeing_requests: 0,
        left_out: services.left_out.clone(),
        seed: plan.seed,
        controls: 0,
        controls_failed: 0,
        arrived: 0,
        evidence_compared: 0,
        refused_elsewhere: 0,
        unanswered: 0,
        denied: BTreeMap::new(),
        seconds: 0.0,
        findings: Vec::new(),
    };
    let mut found = BTreeMap::new();
    while report.requests < plan.requests && begin.elapsed() < plan.time {
        let round = Round::start(services, plan)?;
        if report.controls == 0 {
            round.check_controls(&mut report);
            report.take(round.send_known(), &mut found);
        }
        let first = report.requests;
        let last = plan.requests.min(first.saturating_add(ROUND));
        let tally = round.send_all(first..last, begin + plan.time)?;
        report.take(tally, &mut found);
        round.compare_evidence(&mut report, &mut found)?;
        round.check_alive(&mut report);
    }
    report.disagreements = found.len();
    report.disagreeing_requests = found.values().map(|found: &Found| found.requests).sum();
    let words = found.into_iter().map(|((service, _), found)| {
        format!(
            "{service}: {}\n    {} such requests; one of them:\n{}",
            found.what, found.requests, found.example
        )
    });
    report.findings.extend(words);
    report.seconds = begin.elapsed().as_secs_f64();
    Ok(report)
}

impl Report {
    fn take(&mut self, tally: Tally, found: &mut BTreeMap<Key, Found>) {
        self.requests += tally.requests;
        self.arrived += tally.arrived;
        self.refused_elsewhere += tally.refused_elsewhere;
        self.unanswered += tally.unanswered;
        for (reason, count) in tally.denied {
            *self.denied.entry(reason).or_default() += count;
        }
        for (key, other) in tally.found {
            found
                .entry(key)
                .and_modify(|one| one.requests += other.requests)
                .or_insert(other);
        }
    }
}

/// The service, and the difference without the values of that request.
type Key = (String, String);

#[derive(Debug)]
struct Found {
    what: String,
    example: String,
    requests: u64,
}

#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    arrived: u64,
    refused_elsewhere: u64,
    unanswered: u64,
    denied: BTreeMap<String, u64>,
    found: BTreeMap<Key, Found>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.arrived += other.arrived;
        self.refused_elsewhere += other.refused_elsewhere;
        self.unanswered += other.unanswered;
        for (reason, count) in other.denied {
            *self.denied.entry(reason).or_default() += count;
        }
        for (key, more) in other.found {
            self.found
                .entry(key)
                .and_modify(|one| one.requests += more.requests)
                .or_insert(more);
        }
    }
}

/// In front of all services: Envoy with envoy-config/envoy.yaml, and another without path normalization.
struct Round<'a> {
    services: &'a Services,
    plan: Plan,
    fronts: [Front; 2],
    /// By the index of the front.
    allowed: Mutex<Vec<(usize, Trial, Allowed)>>,
    nonce: AtomicU64,
}

struct Front {
    name: &'static str,
    stack: Stack,
    narrow: String,
    broad: String,
}

/// One request: its target, delegation and content.
#[derive(Debug, Clone)]
struct Trial {
    front: usize,
    /// An index in [`Services::reached`].
    reached: usize,
    http2: bool,
    brings: Brings,
    /// The index of its base request, below [`generator::BASES`].
    base: usize,
    tricks: Vec<Trick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brings {
    Nothing,
    Narrow,
    Broad,
}

enum Outcome {
    /// By the filter, for this reason.
    Denied(String),
    /// By Envoy or the service's server.
    Refused(u16, String),
    Arrived(Box<Reading>, String),
}

impl<'a> Round<'a> {
    fn start(services: &'a Services, plan: Plan) -> Result<Self, Failure> {
        let front = |name, options: &StackOptions| {
            let stack = Stack::start(options)?;
            let granted = |tools: &[&'static str]| tools.iter().flat_map(|tool| ["--tool", tool]).collect::<Vec<_>>();
            let (narrow, broad) = (
                stack.mint(SUBJECT, &granted(policy::NARROW))?,
                stack.mint(SUBJECT, &granted(policy::BROAD))?,
            );
            Ok(Front {
                name,
                stack,
                narrow,
                broad,
            })
        };
        let options = policy::options(&services.reached);
        Ok(Self {
            services,
            plan,
            fronts: [
                front("as shipped", &options)?,
                front("with paths as they come", &policy::untidied(options))?,
            ],
            allowed: Mutex::new(Vec::new()),
            nonce: AtomicU64::new(0),
        })
    }

    /// Sends every ordinary request to every service in both protocols. Each must arrive.
    fn check_controls(&self, report: &mut Report) {
        let mut connections = Connections::new(self);
        for reached in 0..self.services.reached.len() {
            for ordinary in 0..ORDINARY.len() {
                for (http2, front) in [(false, 0), (true, 0), (false, 1)] {
                    self.check_control(&mut connections, ordinary, (reached, http2, front), report);
                }
            }
        }
    }

    fn check_control(
        &self,
        connections: &mut Connections<'_>,
        ordinary: usize,
        (reached, http2, front): (usize, bool, usize),
        report: &mut Report,
    ) {
        let expected = &ORDINARY[ordinary];
        let trial = Trial {
            front,
            reached,
            http2,
            brings: if expected.protected {
                Brings::Narrow
            } else {
                Brings::Nothing
            },
            base: ordinary,
            tricks: Vec::new(),
        };
        report.controls += 1;
        let mut outcome = self.outcome(connections, &trial);
        for _ in 1..ATTEMPTS {
            // The service's own failure, not the filter's denial.
            if !matches!(outcome, Ok(Outcome::Refused(500.., _))) {
                break;
            }
            outcome = self.outcome(connections, &trial);
        }
        let complaint = match outcome {
            Ok(Outcome::Arrived(reading, nonce)) => match judged(&trial, &reading, &nonce) {
                Ok(_) if reading.handler == expected.handler => return,
                Ok(_) => format!("{} answered", reading.handler),
                Err(what) => what,
            },
            Ok(Outcome::Denied(reason)) => format!("denied: {reason}"),
            // Allowed, but not a method of this service: PHP's own server and lighttpd have no PURGE.
            Ok(Outcome::Refused(501, _)) if expected.draft().method == "PURGE" => return,
            Ok(Outcome::Refused(status, text)) => {
                format!("refused with {status}: {}", text.chars().take(300).collect::<String>())
            }
            Err(failure) => failure.to_string(),
        };
        report.controls_failed += 1;
        let reached = &self.services.reached[reached];
        report.findings.push(format!(
            "{}: an ordinary request did not arrive: {complaint}\n{}\nThe service's last words:\n{}",
            reached.cluster,
            self.show(&trial),
            self.services.last_words(reached)
        ));
    }

    /// Sends the requests that once bypassed a filter to every service, in both protocols, with and without a
    /// delegation.
    fn send_known(&self) -> Tally {
        let mut connections = Connections::new(self);
        let mut tally = Tally::default();
        for reached in 0..self.services.reached.len() {
            for base in ORDINARY.len()..generator::BASES {
                for (http2, front, brings) in [
                    (false, 0, Brings::Nothing),
                    (false, 1, Brings::Narrow),
                    (true, 0, Brings::Narrow),
                    (true, 1, Brings::Nothing),
                ] {
                    let trial = Trial {
                        front,
                        reached,
                        http2,
                        brings,
                        base,
                        tricks: Vec::new(),
                    };
                    self.try_trial(trial, &mut connections, &mut tally);
                }
            }
        }
        tally
    }

    fn send_all(&self, numbers: std::ops::Range<u64>, deadline: Instant) -> Result<Tally, Failure> {
        let next = AtomicU64::new(numbers.start);
        let tallies = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut connections = Connections::new(self);
                        let mut tally = Tally::default();
                        while Instant::now() < deadline {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            if number >= numbers.end {
                                break;
                            }
                            self.try_one(number, &mut connections, &mut tally);
                        }
                        tally
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>()
        });
        let mut all = Tally::default();
        for tally in tallies {
            all.add(tally.map_err(|_| Failure::new("a thread that sends requests has panicked"))?);
        }
        Ok(all)
    }

    fn try_one(&self, number: u64, connections: &mut Connections<'_>, tally: &mut Tally) {
        self.try_trial(self.trial(number), connections, tally);
    }

    fn try_trial(&self, trial: Trial, connections: &mut Connections<'_>, tally: &mut Tally) {
        tally.requests += 1;
        match self.outcome(connections, &trial) {
            Err(_) => tally.unanswered += 1,
            Ok(Outcome::Denied(reason)) => *tally.denied.entry(reason).or_default() += 1,
            Ok(Outcome::Refused(..)) => tally.refused_elsewhere += 1,
            Ok(Outcome::Arrived(reading, nonce)) => {
                tally.arrived += 1;
                match judged(&trial, &reading, &nonce) {
                    Ok(None) => {}
                    Ok(Some(allowed)) => {
                        let mut all = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
                        all.push((trial.front, trial, allowed));
                    }
                    Err(what) => {
                        let key = self.key(&trial, &what);
                        if let Some(found) = tally.found.get_mut(&key) {
                            found.requests += 1;
                            return;
                        }
                        let (trial, reading, what) = self.shortest(connections, trial, *reading, what);
                        let found = Found {
                            example: format!("{}\n    the service read: {}", self.show(&trial), shown(&reading)),
                            what,
                            requests: 1,
                        };
                        tally.found.insert(key, found);
                    }
                }
            }
        }
    }

    fn trial(&self, number: u64) -> Trial {
        let random = &mut Random::new(self.plan.seed, number.wrapping_add(1));
        let (base, tricks) = generator::generate(random);
        let brings = random.pick(&[Brings::Nothing, Brings::Nothing, Brings::Narrow, Brings::Broad]);
        Trial {
            front: random.below(self.fronts.len()),
            reached: random.below(self.services.reached.len()),
            http2: random.once_in(2),
            brings,
            base,
            tricks,
        }
    }

    fn outcome(&self, connections: &mut Connections<'_>, trial: &Trial) -> Result<Outcome, Failure> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).to_string();
        let draft = generator::draft(trial.base, &trial.tricks);
        let front = &self.fronts[trial.front];
        let mut request = Request::new(&draft.method, &target(&draft, trial.http2))
            .without("host")
            .header("host", &draft.host)
            .header(CLUSTER, &self.services.reached[trial.reached].cluster)
            .header(NONCE, &nonce);
        match trial.brings {
            Brings::Nothing => {}
            Brings::Narrow => request = request.delegation(&front.narrow),
            Brings::Broad => request = request.delegation(&front.broad),
        }
        for (name, value) in &draft.headers {
            request = request.header(name, value);
        }
        let reply = connections.send(trial, &draft, request)?;
        if let Some(reason) = reply.reason() {
            return Ok(Outcome::Denied(reason));
        }
        Ok(match Reading::of(&reply) {
            Some(reading) => Outcome::Arrived(Box::new(reading), nonce),
            None => Outcome::Refused(reply.status, reply.text()),
        })
    }

    /// Removes tricks while the service still reads the request differently.
    fn shortest(
        &self,
        connections: &mut Connections<'_>,
        mut trial: Trial,
        mut reading: Reading,
        mut what: String,
    ) -> (Trial, Reading, String) {
        let mut place = 0;
        while place < trial.tricks.len() {
            let mut shorter = trial.clone();
            shorter.tricks.remove(place);
            match self.outcome(connections, &shorter) {
                Ok(Outcome::Arrived(other, nonce)) => match judged(&shorter, &other, &nonce) {
                    Err(difference) => (trial, reading, what) = (shorter, *other, difference),
                    Ok(_) => place += 1,
                },
                _ => place += 1,
            }
        }
        (trial, reading, what)
    }

    /// Waits for the evidence of allowed requests, and compares it with what the services read.
    fn compare_evidence(&self, report: &mut Report, found: &mut BTreeMap<Key, Found>) -> Result<(), Failure> {
        let all = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, front) in self.fronts.iter().enumerate() {
            let allowed: Vec<_> = all.iter().filter(|(other, ..)| *other == place).collect();
            let decisions = waiting::until("the evidence of allowed requests", || {
                let decisions = decisions(&front.stack)?;
                let is_there = |(_, _, allowed): &&(usize, Trial, Allowed)| decisions.contains_key(&allowed.request_id);
                Ok(allowed.iter().all(is_there).then_some(decisions))
            })?;
            for (_, trial, allowed) in allowed {
                report.evidence_compared += 1;
                let Some(decision) = decisions.get(&allowed.request_id) else {
                    continue;
                };
                if let Err(what) = judge::check_evidence(allowed, decision) {
                    let found = found.entry(self.key(trial, &what)).or_insert_with(|| Found {
                        example: self.show(trial),
                        what,
                        requests: 0,
                    });
                    found.requests += 1;
                }
            }
        }
        Ok(())
    }

    /// A service that a request has killed would not answer the next ones.
    fn check_alive(&self, report: &mut Report) {
        let mut connections = Connections::new(self);
        for reached in 0..self.services.reached.len() {
            // The first one that needs no delegation.
            let ordinary = ORDINARY.iter().position(|one| !one.protected).unwrap_or_default();
            self.check_control(&mut connections, ordinary, (reached, false, 0), report);
        }
    }

    fn key(&self, trial: &Trial, what: &str) -> Key {
        let general = what.split([':', '"', '{']).next().unwrap_or_default().to_owned();
        (self.services.reached[trial.reached].cluster.clone(), general)
    }

    /// The request as a command line. `$NARROW` and `$BROAD` stand for the delegations of those names in [`policy`].
    fn show(&self, trial: &Trial) -> String {
        let draft = generator::draft(trial.base, &trial.tricks);
        let mut line = format!(
            "    curl {} --path-as-is -X '{}' -H 'host: {}'",
            if trial.http2 {
                "--http2-prior-knowledge"
            } else {
                "--http1.1"
            },
            draft.method,
            draft.host
        );
        match trial.brings {
            Brings::Nothing => {}
            Brings::Narrow => line.push_str(" -H \"delegation: $NARROW\""),
            Brings::Broad => line.push_str(" -H \"delegation: $BROAD\""),
        }
        // Writing to a String cannot fail.
        for (name, value) in &draft.headers {
            let _ = write!(line, " -H '{name}: {value}'");
        }
        if let Some((kind, body)) = draft.body {
            let _ = write!(line, " -H 'content-type: {kind}' --data-raw '{}'", body.escape_debug());
        }
        let _ = write!(line, " 'http://ENVOY{}'", target(&draft, true));
        for (name, value) in &draft.trailers {
            let _ = write!(line, " + trailer '{name}: {value}'");
        }
        if draft.absolute && !trial.http2 {
            line.push_str(" in absolute form");
        }
        let _ = write!(line, "  (Envoy {})", self.fronts[trial.front].name);
        line
    }
}

fn judged(trial: &Trial, reading: &Reading, nonce: &str) -> Result<Option<Allowed>, String> {
    let allowed = judge::judge(reading, nonce)?;
    if let (Brings::Narrow, Some(allowed)) = (trial.brings, &allowed) {
        judge::check_narrow(allowed)?;
    }
    Ok(allowed)
}

fn target(draft: &Draft, http2: bool) -> String {
    let query = draft
        .query
        .as_ref()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let authority = if draft.absolute && !http2 {
        format!("http://{}", draft.host)
    } else {
        String::new()
    };
    [&authority, &draft.path, &query].map(String::as_str).concat()
}

fn shown(reading: &Reading) -> String {
    let told = |name: &str| name.starts_with("x-delegation-") || ["x-tenant", "x-stage"].contains(&name);
    let headers: BTreeMap<_, _> = reading.headers.iter().filter(|(name, _)| told(name)).collect();
    format!(
        "{} {} captures {:?} host {:?} (virtual host {:?}) query {:?} headers {headers:?} trailers {:?}",
        reading.handler,
        reading.method,
        reading.captures,
        reading.host,
        reading.virtual_host(),
        reading.query,
        reading.trailers
    )
}

fn decisions(stack: &Stack) -> Result<BTreeMap<String, Decision>, Failure> {
    let records = stack.records()?;
    let decisions = records.iter().filter_map(|record| record.decision());
    Ok(decisions
        .map(|decision| (decision.request_id.clone(), decision.clone()))
        .collect())
}

/// One thread's connections to each front.
struct Connections<'r> {
    round: &'r Round<'r>,
    http1: [Option<Client>; 2],
    http2: [Option<Http2>; 2],
}

impl<'r> Connections<'r> {
    fn new(round: &'r Round<'r>) -> Self {
        Self {
            round,
            http1: [None, None],
            http2: [None, None],
        }
    }

    /// A service may close a connection just as Envoy uses it. Envoy then answers 503, and the request is sent again.
    fn send(&mut self, trial: &Trial, draft: &Draft, request: Request) -> Result<Reply, Failure> {
        let mut reply = self.send_once(trial, draft, request.clone());
        for _ in 0..2 {
            match &reply {
                Ok(reply) if reply.status == 503 && reply.reason().is_none() => {}
                _ => break,
            }
            reply = self.send_once(trial, draft, request.clone());
        }
        reply
    }

    fn send_once(&mut self, trial: &Trial, draft: &Draft, mut request: Request) -> Result<Reply, Failure> {
        let ingress: SocketAddr = self.round.fronts[trial.front].stack.envoy.ingress();
        let body = draft.body.map(|(kind, body)| {
            request = request.clone().header("content-type", kind);
            body
        });
        // A request that HTTP/2 does not allow is sent in HTTP/1.1.
        let is_name = |(name, _): &(String, String)| name.parse::<HeaderName>().is_ok();
        let fits = draft.host.parse::<Authority>().is_ok() && draft.trailers.iter().all(is_name);
        if trial.http2 && fits && Http2::can_send(&request) {
            return self.send_in_http2(trial, draft, &request.trailing(body.unwrap_or_default()), ingress);
        }
        let place = &mut self.http1[trial.front];
        let mut client = match place.take() {
            Some(client) => client,
            None => Client::connect(ingress)?,
        };
        if draft.trailers.is_empty() {
            if let Some(body) = body {
                request = request.header("content-length", body.len().to_string()).trailing(body);
            } else if draft.method.eq_ignore_ascii_case("POST") {
                request = request.header("content-length", "0");
            }
        } else {
            let body = body.unwrap_or("x");
            let mut chunked = format!("{:x}\r\n{body}\r\n0\r\n", body.len());
            for (name, value) in &draft.trailers {
                // Writing to a String cannot fail.
                let _ = write!(chunked, "{name}: {value}\r\n");
            }
            chunked.push_str("\r\n");
            request = request.header("transfer-encoding", "chunked").trailing(chunked);
        }
        let reply = client.send(&request)?;
        if !reply
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
        {
            *place = Some(client);
        }
        Ok(reply)
    }

    fn send_in_http2(
        &mut self,
        trial: &Trial,
        draft: &Draft,
        request: &Request,
        ingress: SocketAddr,
    ) -> Result<Reply, Failure> {
        let place = &mut self.http2[trial.front];
        let client = match place.take() {
            Some(client) => client,
            None => Http2::connect(ingress)?,
        };
        let reply = if draft.trailers.is_empty() {
            client.send(request)
        } else {
            let trailers = draft.trailers.iter();
            let trailers: Vec<_> = trailers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
            client.open(request).and_then(|mut exchange| {
                // The filter may have denied it after the headers, which ends the stream. The reply tells.
                let _ = exchange.send_part(request.body(), false);
                let _ = exchange.send_trailers(&trailers);
                exchange.finish()
            })
        };
        if reply.is_ok() {
            *place = Some(client);
        }
        reply
    }
}
