//! The clients of the replicas: operators who revoke and look up, streams that ping, and `credence watch`.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::cluster::REPLICAS;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::forge::{Claims, Forger};
use credence_e2e::operator::{Action, Operator, Wait};
use credence_e2e::random::Random;
use credence_e2e::subscriber::{Said, Subscriber};
use credence_e2e::{Failure, ISSUER, Request};
use serde::Deserialize;

use crate::history::{Entry, History, Raise};
use crate::traffic::{Traffic, Watched};

/// Where a replica is reached, whether it runs or not.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) grpc: SocketAddr,
    pub(crate) url: String,
    pub(crate) token_file: PathBuf,
    operator: Operator,
}

impl Reached {
    pub(crate) fn of(replica: &ControlPlane) -> Result<Self, Failure> {
        Ok(Self {
            grpc: replica.grpc(),
            url: replica.url(),
            token_file: replica.token_file(),
            operator: Operator::of(replica)?.patient_for(PATIENCE),
        })
    }
}

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) replicas: Vec<Reached>,
    pub(crate) history: Arc<History>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) done: Arc<AtomicBool>,
    pub(crate) issuer: Forger,
    pub(crate) agent: Forger,
    pub(crate) wait: Wait,
    pub(crate) log_id: String,
    pub(crate) credence: PathBuf,
    pub(crate) subjects: AtomicU64,
    /// How many follow the log from its beginning.
    pub(crate) followers: AtomicU64,
    /// When all others had ended, and the log with them.
    pub(crate) log_ended: OnceLock<Instant>,
}

impl Shared {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// A request on behalf of a subject.
    pub(crate) fn request_of(&self, subject: &str) -> Result<Request, Failure> {
        let claims = Claims::root(ISSUER, subject, &self.agent, r#"{"catalog.read": {}}"#)?;
        Ok(Request::get("/v1/catalog/book").delegation(self.issuer.token(&claims)?))
    }

    /// Revokes one subject after the other, each at any of the replicas.
    pub(crate) fn revoke(&self, mut random: Random) -> Result<(), Failure> {
        let mut operators: Vec<_> = self.replicas.iter().map(|replica| replica.operator.again()).collect();
        while !self.is_done() && self.followers.load(Ordering::Relaxed) < FOLLOWERS {
            thread::sleep(Duration::from_millis(10));
        }
        while !self.is_done() {
            let (subject, watched) = if random.once_in(6) {
                match self.history.acknowledged(|count| random.below(count)) {
                    Some((subject, _)) => (subject, None),
                    None => continue,
                }
            } else {
                let subject = format!("s{}", self.subjects.fetch_add(1, Ordering::Relaxed));
                let watched = Arc::new(Watched {
                    request: self.request_of(&subject)?,
                    subject: subject.clone(),
                    allowed: AtomicU64::new(0),
                    returned: OnceLock::new(),
                });
                self.traffic.watch(&watched);
                (subject, Some(watched))
            };
            // So long that every worker has allowed it, and keeps the verdict.
            thread::sleep(Duration::from_millis(40 + random.below(150) as u64));
            let action = if random.once_in(8) {
                Action::Disable
            } else {
                Action::Raise
            };
            let replica = random.below(REPLICAS);
            let invoked = Instant::now();
            let acknowledged = operators[replica].revoke(&subject, action, self.wait).ok();
            if let (Some(watched), Some(acknowledged)) = (watched, acknowledged) {
                self.traffic.returned(&watched, acknowledged.at);
            }
            self.history.raised(Raise {
                subject,
                action,
                replica,
                invoked,
                acknowledged,
            });
        }
        Ok(())
    }

    /// Looks up subjects whose revocation was acknowledged, at any of the replicas.
    pub(crate) fn look_up(&self, mut random: Random) -> Result<(), Failure> {
        let mut operators: Vec<_> = self.replicas.iter().map(|replica| replica.operator.again()).collect();
        while !self.is_done() {
            thread::sleep(Duration::from_millis(50));
            // Mostly one of the latest.
            let back = 1 + random.below(20);
            let Some((subject, acknowledged)) = self.history.acknowledged(|count| count.saturating_sub(back)) else {
                continue;
            };
            let replica = random.below(REPLICAS);
            if let Ok(epoch) = operators[replica].epoch_of(&subject)
                && epoch < acknowledged.epoch
            {
                self.history.violation(format!(
                    "replica {replica} said that {subject} has epoch {epoch} after {} was acknowledged",
                    acknowledged.epoch
                ));
            }
        }
        Ok(())
    }

    /// Pings one replica. An echo comes after everything that was in the log when its ping was sent.
    pub(crate) fn ping(&self, replica: usize) -> Result<(), Failure> {
        while !self.is_done() {
            let opened = Subscriber::open_within(SILENCE, self.replicas[replica].grpc, &self.log_id);
            if let Ok(subscriber) = opened {
                self.ping_on(replica, subscriber);
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Until the stream ends.
    fn ping_on(&self, replica: usize, mut subscriber: Subscriber) {
        // What it has received. The snapshot at its beginning goes up to the first echo's head, at most.
        let mut through = None;
        for id in 1.. {
            let committed = self.history.committed();
            if self.is_done() || subscriber.ping(id).is_err() {
                return;
            }
            loop {
                match subscriber.wait_within(SILENCE) {
                    Ok(Some(Said::Update(position))) => {
                        through = Some(position.seq);
                        self.history.digest(position.seq, position.digest, replica);
                    }
                    Ok(Some(Said::Pong(head))) => {
                        let through = *through.get_or_insert(head);
                        if through < committed {
                            self.history.violation(format!(
                                "replica {replica} echoed a ping that was sent after entry {committed}, and had sent {through}"
                            ));
                        }
                        break;
                    }
                    Ok(Some(Said::Other)) => {}
                    Ok(None) | Err(_) => return,
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Follows the log with `credence watch` at one replica, and then, from the same position, at another.
    pub(crate) fn follow(&self, mut random: Random) -> Result<(), Failure> {
        let mut position: Option<String> = None;
        while !self.has_seen_all() {
            let replica = random.below(REPLICAS);
            let until = Instant::now() + Duration::from_secs(2 + random.below(8) as u64);
            let watching = Watching::start(self, replica, position.as_deref())?;
            while Instant::now() < until && !self.has_seen_all() {
                match watching.lines.recv_timeout(Duration::from_millis(100)) {
                    Ok(line) => self.take(&line, replica, &mut position)?,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
        }
        Ok(())
    }

    fn has_seen_all(&self) -> bool {
        let sees_all = || self.history.known_through() >= self.history.committed();
        self.log_ended
            .get()
            .is_some_and(|ended| sees_all() || ended.elapsed() > TO_SEE_ALL)
    }

    fn take(&self, line: &str, replica: usize, position: &mut Option<String>) -> Result<(), Failure> {
        let event: Event = serde_json::from_str(line).map_err(Failure::of(format_args!("reading {line}")))?;
        if let (Some(id), Some(seq), Some(principal)) = (&event.id, event.data.seq, event.data.principal) {
            self.history.entry(seq, principal, replica);
            position.replace(id.clone());
        } else if event.event == "snapshot_end" {
            if position.is_none() {
                self.followers.fetch_add(1, Ordering::Relaxed);
            }
            *position = event.id;
        }
        Ok(())
    }

    /// Follows one replica until everything that is certainly in the log was seen.
    pub(crate) fn follow_to_the_end(&self, replica: usize) -> Result<(), Failure> {
        let limit = Instant::now() + Duration::from_secs(20);
        let watching = Watching::start(self, replica, None)?;
        let mut seen = 0;
        while seen < self.history.committed() {
            match watching.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    let event: Event =
                        serde_json::from_str(&line).map_err(Failure::of(format_args!("reading {line}")))?;
                    seen = seen.max(event.data.seq.unwrap_or(0));
                }
                Err(_) if Instant::now() < limit => {}
                Err(_) => {
                    let committed = self.history.committed();
                    self.history.violation(format!(
                        "replica {replica} ends at {seen}, and {committed} entries were seen"
                    ));
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// `credence watch`.
struct Watching {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Watching {
    fn start(shared: &Shared, replica: usize, position: Option<&str>) -> Result<Self, Failure> {
        let Reached { url, token_file, .. } = &shared.replicas[replica];
        let mut command = Command::new(&shared.credence);
        command
            .args(["watch", "--json", "--control-plane", url, "--token-file"])
            .arg(token_file);
        match position {
            Some(position) => command.args(["--since", position]),
            None => command.arg("--all"),
        };
        let failed = "starting credence watch";
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut process = process.map_err(Failure::of(failed))?;
        let output = process.stdout.take().ok_or_else(|| Failure::new(failed))?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, lines })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Deserialize)]
struct Event {
    event: String,
    id: Option<String>,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    seq: Option<u64>,
    principal: Option<Entry>,
}

/// Clients of each kind.
pub(crate) const FOLLOWERS: u64 = 3;
/// Longer than any call takes that will be answered: a confirmation, and a lease besides.
const PATIENCE: Duration = Duration::from_secs(8);
/// More than enough for those who follow.
const TO_SEE_ALL: Duration = Duration::from_secs(20);
/// A stream is given up after it.
const SILENCE: Duration = Duration::from_secs(3);
