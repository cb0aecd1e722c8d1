//! What grants cost the issuer: people who are signed in consent one after the other, and agents redeem the codes.
//!
//! `make bench BENCH=issuer` runs it, on all cores but the first, which the issuer has for itself. The last line of the
//! output is one JSON object; loadtest/bench-issuer explains its members.

use std::fs;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::Failure;
use credence_e2e::artefacts::Artefacts;
use credence_e2e::browser::Browser;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::forge::Forger;
use credence_e2e::issuer::Issuer;
use credence_e2e::oauth_client::OauthClient;
use serde::Serialize;

const PEOPLE: u64 = 32;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(20);
const LIMITS: &str = "limits: {requests_per_second: 100000, grants_per_person: 10000}";
const TOOLS: &str = r#"{"payments.charge":{"account":{"constraint_type":"exact","value":"acme"},
    "amount":{"constraint_type":"range","min":0,"max":100}}}"#;

fn main() -> Result<(), Failure> {
    let credence = Artefacts::from_environment()?.credence;
    let folder = tempfile::tempdir().map_err(Failure::of("making a folder"))?;
    let mut issuer = Issuer::prepare(&credence)?.on_core(0);
    let control_plane = ControlPlane::start(&credence, folder.path(), &issuer.serve_options())?;
    issuer.serve(&control_plane, LIMITS)?;
    let process = issuer.id().ok_or_else(|| Failure::new("the issuer does not run"))?;

    let (is_measured, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (taken, took, cpu) = thread::scope(|scope| {
        let people = (0..PEOPLE).map(|nth| Person::new(&issuer, nth));
        let people = people.collect::<Result<Vec<_>, Failure>>()?;
        let running: Vec<_> = (people.into_iter())
            .map(|person| scope.spawn(|| person.grant_until(&is_done, &is_measured)))
            .collect();
        thread::sleep(WARM_UP);
        let (begin, before) = (Instant::now(), cpu_time(process)?);
        is_measured.store(true, Ordering::Relaxed);
        thread::sleep(MEASURED);
        is_measured.store(false, Ordering::Relaxed);
        let (took, cpu) = (begin.elapsed(), cpu_time(process)?.saturating_sub(before));
        is_done.store(true, Ordering::Relaxed);
        let taken = running
            .into_iter()
            .map(|person| person.join().unwrap_or_else(|_| Err(Failure::new("a person gave up"))));
        Ok::<_, Failure>((taken.collect::<Result<Vec<_>, _>>()?.concat(), took, cpu))
    })?;

    let mut taken = taken;
    taken.sort_unstable();
    let percentile = |part: usize| {
        let time = taken.get(taken.len() * part / 100).copied().unwrap_or_default();
        (time.as_secs_f64() * 10_000.0).round() / 10.0
    };
    let grants = taken.len() as f64;
    let cpu_us = cpu.as_secs_f64() * 1e6 / grants;
    let report = Report {
        people: PEOPLE,
        grants: taken.len(),
        grants_per_s: (grants / took.as_secs_f64()).round(),
        cpu_us_per_grant: cpu_us.round(),
        grants_per_core_s: (1e6 / cpu_us).round(),
        core_busy_percent: (100.0 * cpu.as_secs_f64() / took.as_secs_f64()).round(),
        p50_ms: percentile(50),
        p99_ms: percentile(99),
    };
    let report = serde_json::to_string(&report).map_err(Failure::of("printing the figures"))?;
    writeln!(io::stdout(), "{report}").map_err(Failure::of("printing the figures"))
}

#[derive(Serialize)]
struct Report {
    people: u64,
    grants: usize,
    grants_per_s: f64,
    cpu_us_per_grant: f64,
    grants_per_core_s: f64,
    core_busy_percent: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// A person who is signed in, and an agent with a key of its own.
struct Person {
    browser: Browser,
    agent: OauthClient,
}

impl Person {
    fn new(issuer: &Issuer, nth: u64) -> Result<Self, Failure> {
        let mut browser = issuer.browser(&format!("person-{nth}"));
        issuer.grants(&mut browser)?;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(1 + nth).to_be_bytes());
        Ok(Self {
            browser,
            agent: issuer.client(Forger::from_seed(seed))?,
        })
    }

    /// Returns how long each grant took that was complete in the measured time.
    fn grant_until(mut self, is_done: &AtomicBool, is_measured: &AtomicBool) -> Result<Vec<Duration>, Failure> {
        let mut taken = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            let begin = Instant::now();
            let asked = self.agent.ask(TOOLS, 0)?;
            let page = self.browser.open(&asked.page)?;
            let choice = [("t0", "on"), ("t0a1max", "50"), ("decision", "allow")];
            let back = self.browser.submit(&page.form("/consent")?, &choice)?;
            let missing = || Failure::new(format!("no code ({:?}): {}", back.status, back.html));
            let code = back.returned("code").ok_or_else(missing)?;
            let tokens = self.agent.redeem(&asked, &code)?;
            tokens.map_err(|refused| Failure::new(format!("no token: {refused}")))?;
            if is_measured.load(Ordering::Relaxed) {
                taken.push(begin.elapsed());
            }
        }
        Ok(taken)
    }
}

/// The CPU time of a process, of threads that have ended too.
fn cpu_time(process: u32) -> Result<Duration, Failure> {
    let file = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&file).map_err(Failure::of(&file))?;
    // The name may have spaces. The 14th and 15th fields are ticks of 10 ms (proc_pid_stat(5)).
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().map_err(Failure::of(&file))?;
    Ok(Duration::from_millis(10 * ticks))
}
