//! The recorded control plane, and its clients, which write down what they are told.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_control_plane::{Config, ControlPlane, InitOptions, MAX_CACHE_KEY_ROTATION};
use credence_wire::v1;
use serde_json::{Value, json};

use crate::harness::{ISSUER, Reporter, Server, TOKEN, event};

/// The events of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first start, revocations, evidence in several segments, and a crash.
    First,
    /// The start after it, a compaction of the log, an erasure, and a planned stop.
    Compacting,
    /// A start with a retention that removes the oldest evidence, more of both, and a crash.
    Retaining,
    /// The start after a power cut, a little more of both, and a crash.
    Recovery,
}

// === impl Phase ===

impl Phase {
    pub(crate) const ALL: [Self; 3] = [Self::First, Self::Compacting, Self::Retaining];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Compacting => "compacting",
            Self::Retaining => "retaining",
            Self::Recovery => "recovery",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        let all = [Self::First, Self::Compacting, Self::Retaining, Self::Recovery];
        all.into_iter().find(|phase| phase.name() == name).unwrap()
    }
}

/// The path of its folder.
pub(crate) fn data(place: &Path) -> PathBuf {
    place.join("data")
}

/// The file in which its clients write down what they are told.
pub(crate) fn marks(place: &Path) -> PathBuf {
    place.join("marks")
}

/// The configuration of every control plane in these tests.
pub(crate) fn config(place: &Path) -> Config {
    use std::os::unix::fs::PermissionsExt as _;
    let token = place.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut config = Config::new(data(place), Some(token));
    config.http_address.set_port(0);
    config.grpc_address.set_port(0);
    config.log.drain_promise = Duration::ZERO;
    config.log.cache_key_rotation = MAX_CACHE_KEY_ROTATION;
    config.log.init = (!data(place).join("log").exists()).then_some(InitOptions { floor: false });
    // A segment for each 256 records.
    config.evidence.ledger.segment = 1;
    config.log.compact_above_bytes = 4_096;
    // Each entry is a record of its own.
    config.evidence.principal_share = 100;
    config
}

/// Runs a phase, and ends the process.
pub(crate) fn serve(place: &Path, phase: Phase) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut config = config(place);
        if phase == Phase::Retaining {
            config.evidence.retention.bytes = Some(60_000);
        }
        let running = ControlPlane::start(config).await.unwrap();
        running.announce_ready();
        let server = Server::of(running);
        let mut clients = Clients::new(&server, place, phase).await;
        clients.say(STARTED);
        match phase {
            Phase::First => clients.load(45, 14).await,
            Phase::Compacting => {
                clients.load(8, 10).await;
                clients.compact().await;
                clients.erase().await;
                clients.load(8, 10).await;
            }
            Phase::Retaining => {
                clients.load(20, 14).await;
                server.wait_until_pruned().await;
                clients.load(10, 14).await;
            }
            Phase::Recovery => clients.load(3, 10).await,
        }
        let Clients { marks, .. } = clients;
        if phase == Phase::Compacting {
            server.running.shutdown().await;
        }
        say(&marks, DONE);
        // Like `kill -9`: nothing is closed or flushed.
        std::process::abort();
    });
}

/// The clients that revoke and report.
struct Clients<'a> {
    server: &'a Server,
    marks: File,
    reporters: Vec<(Reporter, String, u64)>,
    /// Counts revocations: each is of another principal.
    revoked: u64,
    name: String,
}

// === impl Clients ===

impl<'a> Clients<'a> {
    async fn new(server: &'a Server, place: &Path, phase: Phase) -> Self {
        let marks = File::create(marks(place)).unwrap();
        let mut reporters = Vec::new();
        for _ in 0..2 {
            let (reporter, welcome) = server.report(None).await.unwrap();
            let source = welcome.ticket.unwrap().source;
            reporters.push((reporter, source, 0));
        }
        let salt: u32 = std::process::id();
        Self {
            server,
            marks,
            reporters,
            revoked: 0,
            name: format!("{}-{salt}", phase.name()),
        }
    }

    fn say(&self, text: &str) {
        say(&self.marks, text);
    }

    /// Makes this many revocations, reports batches of this many entries, and reads checkpoints.
    async fn load(&mut self, rounds: u64, entries: u64) {
        for round in 0..rounds {
            self.revoked += 1;
            let subject = format!("{}-{}", self.name, self.revoked);
            self.revoke(&subject).await;
            for (reporter, source, next) in &mut self.reporters {
                // Of a new principal, and of one that already has a key.
                let batch = (*next + 1..=*next + entries).map(|sequence| {
                    let subject = if sequence % 2 == 0 {
                        format!("{subject}-{sequence}")
                    } else {
                        COMMON.to_owned()
                    };
                    entry(source, sequence, &subject)
                });
                reporter.batch(*next + 1, batch.collect()).await;
                *next += entries;
                let through = reporter.acknowledged().await;
                say(&self.marks, &json!({"source": source, "through": through}).to_string());
            }
            if round % 5 == 4 {
                self.look_at_checkpoint().await;
            }
        }
        self.look_at_checkpoint().await;
    }

    async fn revoke(&self, subject: &str) {
        let body = json!({"principal": {"issuer": ISSUER, "subject": subject}});
        let done = self.server.revoke(body).await;
        self.say(&json!({"subject": subject, "epoch": done["epoch"], "seq": done["seq"]}).to_string());
    }

    async fn look_at_checkpoint(&self) {
        let note = self.server.get("/ledger/checkpoint", &[]).await;
        if note.status == 200 {
            let mut lines = note.text.lines();
            let (_, size, root) = (lines.next(), lines.next().unwrap(), lines.next().unwrap());
            self.say(&json!({"size": size.parse::<u64>().unwrap(), "root": root}).to_string());
        }
    }

    /// Raises one principal until the log has been compacted.
    async fn compact(&self) {
        let before = self.server.metric("credence_revocation_log_compactions_total").await;
        while self.server.metric("credence_revocation_log_compactions_total").await == before {
            for _ in 0..10 {
                self.revoke("busy").await;
            }
        }
        self.say(&json!({"compacted": true}).to_string());
    }

    async fn erase(&self) {
        let body = json!({"principal": {"issuer": ISSUER, "subject": COMMON}, "reason": "a test"});
        let before: u64 = self.server.metric("credence_ledger_published_entries").await as u64;
        self.say(&json!({"erasing": COMMON}).to_string());
        let answer = self
            .server
            .post("/v1/audit/erasures", body.to_string(), &[&format!("Bearer {TOKEN}")])
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        self.say(&json!({"erased": COMMON, "below": before}).to_string());
    }
}

impl Server {
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics", &[]).await.text;
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or_default()
    }

    /// Retention runs when the control plane starts. A later start removes what this one did not.
    async fn wait_until_pruned(&self) {
        for _ in 0..100 {
            if self.metric("credence_ledger_pruned_segments_total").await > 0.0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nothing was pruned");
    }
}

/// The entry contains its source and number.
pub(crate) fn entry(source: &str, sequence: u64, subject: &str) -> v1::Entry {
    let mut entry = event(&tool(source, sequence));
    if let Some(v1::entry::Entry::Event(event)) = &mut entry.entry {
        event.principal.as_mut().unwrap().subject = Some(subject.to_owned());
    }
    entry
}

pub(crate) fn tool(source: &str, sequence: u64) -> String {
    format!("{source}/{sequence}")
}

pub(crate) fn read(mark: &str) -> Option<Value> {
    serde_json::from_str(mark).ok()
}

fn say(mut marks: &File, text: &str) {
    marks.write_all(format!("{text}\n").as_bytes()).unwrap();
}

pub(crate) const FOLDER: &str = "CREDENCE_TEST_SERVE_IN";
pub(crate) const PHASE: &str = "CREDENCE_TEST_PHASE";
pub(crate) const STARTED: &str = "started";
pub(crate) const DONE: &str = "done";
/// Half of all entries are about this principal.
const COMMON: &str = "common";
