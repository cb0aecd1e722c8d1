//! Asks a witness to cosign checkpoints (C2SP tlog-witness, `add-checkpoint`). A third party thus confirms that all
//! readers see the same ledger, and that it only grows.
//!
//! Nothing waits for a witness. It is asked about the latest checkpoint as soon as it has answered about the previous
//! one. A witness that cannot be reached is asked again, at growing intervals.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credence_ledger::checkpoint::SignedCheckpoint;
use credence_ledger::continuation::LogTree;
use credence_ledger::cosignature::WitnessKey;
use credence_ledger::note::NoteError;
use credence_ledger::proof::consistency;
use parking_lot::Mutex;

use super::publisher::Publisher;
use crate::metrics::{Metrics, count};
use crate::settings::WitnessSettings;
use credence_runtime::metrics::labels;
use credence_runtime::outbound;
use credence_runtime::settings::SettingsError;

/// A witness, and the part of the ledger that it has seen.
#[derive(Debug)]
pub(crate) struct Witness {
    url: String,
    key: WitnessKey,
    agent: ureq::Agent,
    /// The size of the last checkpoint that it cosigned, as far as is known.
    seen: Mutex<u64>,
    metrics: Arc<Metrics>,
}

/// Why there is no cosignature.
#[derive(Debug, thiserror::Error)]
enum WitnessError {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it refused with {status}: {text}")]
    Refused { status: u16, text: String },
    #[error("its answer is not a cosignature of the checkpoint: {0}")]
    False(NoteError),
    #[error(
        "it has cosigned a ledger of {seen} entries under this origin, but there are only {size}: this ledger has \
         lost some, or another ledger has the same origin and key. If it was restored from a backup, start with \
         --restored"
    )]
    Ahead { seen: u64, size: u64 },
    #[error(
        "it has cosigned another ledger of {size} entries under this origin: this one was changed, or was rolled back \
         to an earlier state and grew differently. If it was restored from a backup, start with --restored"
    )]
    OtherTree { size: u64 },
    #[error("the ledger's tree cannot be read: {0}")]
    Tree(String),
}

// === impl Witness ===

impl Witness {
    /// `place` is its place in the configuration.
    pub(crate) fn new(settings: &WitnessSettings, place: &str, metrics: Arc<Metrics>) -> Result<Self, SettingsError> {
        let key = settings.key(place)?;
        let agent = outbound::agent(&settings.url, settings.ca.as_deref(), TIMEOUT);
        let agent = agent.map_err(|error| SettingsError::at(format!("{place}.ca"), error.to_string()))?;
        // Creates the counters at 0: `increase()` would not see a counter that appears with the first event.
        let witness = key.name().to_string();
        metrics
            .ledger_witnessed
            .get_or_create(&labels([("witness", &witness)]))
            .set(0);
        for outcome in ["cosigned", "unreachable", "refused", "false", "ahead"] {
            let labels = [("witness", witness.as_str()), ("outcome", outcome)];
            count(&metrics.ledger_witness_requests, labels, 0);
        }
        Ok(Self {
            url: format!("{}/add-checkpoint", settings.url.trim_end_matches('/')),
            key,
            agent,
            seen: Mutex::new(0),
            metrics,
        })
    }

    /// Asks it to cosign checkpoints, for as long as it is polled.
    pub(crate) async fn follow<T: LogTree + Send + Sync + 'static>(self, publisher: Arc<Publisher<T>>) {
        let this = Arc::new(self);
        if !this.confirm(&publisher).await {
            return;
        }
        let mut latest = publisher.follow();
        let mut cosigned = None;
        let mut waits = WAITS.build();
        loop {
            let checkpoint = latest.borrow_and_update().clone();
            let new = checkpoint.filter(|checkpoint| cosigned.as_ref() != Some(checkpoint.checkpoint()));
            let Some(checkpoint) = new else {
                if latest.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let (asking, asked, shown) = (Arc::clone(&this), Arc::clone(&publisher), Arc::clone(&checkpoint));
            let asking = tokio::task::spawn_blocking(move || asking.ask(&shown, &asked));
            // The panic was already reported.
            let Ok(outcome) = asking.await else { return };
            this.count(&outcome);
            match outcome {
                Ok(()) => {
                    waits = WAITS.build();
                    cosigned = Some(checkpoint.checkpoint().clone());
                }
                Err(error) => {
                    let what = "a witness did not cosign the ledger's checkpoint";
                    this.wait(waits.next(), &error, what).await;
                }
            }
        }
    }

    /// Asks what it has cosigned, before the ledger's next checkpoint is signed. Repeats this until it answers. If it
    /// has cosigned a tree that this ledger does not have, signing stops, and this waits until it is dropped. Returns
    /// false after a panic.
    async fn confirm<T: LogTree>(self: &Arc<Self>, publisher: &Publisher<T>) -> bool {
        let mut waits = WAITS.build();
        while publisher.is_to_be_confirmed() {
            let Some(checkpoint) = publisher.last_signed() else {
                break;
            };
            let asking = Arc::clone(self);
            let asking = tokio::task::spawn_blocking(move || asking.ask_what_it_has_seen(&checkpoint));
            let Ok(outcome) = asking.await else { return false };
            if outcome.is_err() {
                self.count(&outcome);
            }
            match outcome {
                Ok(()) => break,
                Err(error @ (WitnessError::Ahead { .. } | WitnessError::OtherTree { .. })) => {
                    publisher.give_up(format!("the witness {}: {error}", self.key.name()));
                    return std::future::pending().await;
                }
                Err(error) => {
                    let what = "a witness did not answer what it has cosigned; until one does, no checkpoint is signed";
                    self.wait(waits.next(), &error, what).await;
                }
            }
        }
        publisher.confirm();
        true
    }

    async fn wait(&self, wait: Option<Duration>, error: &WitnessError, what: &str) {
        let wait = wait.unwrap_or(MAX_WAIT);
        let (witness, retry_s) = (self.key.name(), wait.as_secs_f64());
        tracing::warn!(%witness, %error, retry_s, "{what}");
        tokio::time::sleep(wait).await;
    }

    /// Sends the last signed checkpoint as if the witness had cosigned exactly that. It confirms this, or returns what
    /// it has seen.
    fn ask_what_it_has_seen(&self, checkpoint: &SignedCheckpoint) -> Result<(), WitnessError> {
        let size = checkpoint.checkpoint().size;
        let other_tree = Err(WitnessError::OtherTree { size });
        match self.post(&format!("old {size}\n\n{}", checkpoint.note())) {
            Ok(Answer::Cosigned(answer)) => {
                self.key
                    .add_to(&mut checkpoint.clone(), &answer)
                    .map_err(WitnessError::False)?;
                *self.seen.lock() = size;
                Ok(())
            }
            Ok(Answer::Seen(seen)) if seen > size => Err(WitnessError::Ahead { seen, size }),
            Ok(Answer::Seen(seen)) if seen == size && size > 0 => other_tree,
            Ok(Answer::Seen(seen)) => {
                *self.seen.lock() = seen;
                Ok(())
            }
            Err(WitnessError::Refused { status: 422, .. }) if size > 0 => other_tree,
            // It does not know the origin, or has seen an empty tree. Otherwise it would have said so.
            Err(WitnessError::Refused { status: 404, .. }) => Ok(()),
            Err(WitnessError::Refused { status: 400..=499, .. }) if size == 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks, at most twice more if it has seen another checkpoint than expected.
    fn ask<T: LogTree>(&self, checkpoint: &SignedCheckpoint, publisher: &Publisher<T>) -> Result<(), WitnessError> {
        let size = checkpoint.checkpoint().size;
        let mut known = self.seen.lock();
        for _ in 0..3 {
            if *known > size {
                // A witness that answers so once, by error or on purpose, is asked again.
                let seen = std::mem::take(&mut *known);
                return Err(WitnessError::Ahead { seen, size });
            }
            let request = request(*known, checkpoint, publisher.tree())?;
            match self.post(&request)? {
                Answer::Cosigned(answer) => {
                    publisher
                        .add_cosignature(checkpoint.checkpoint(), &self.key, &answer)
                        .map_err(WitnessError::False)?;
                    *known = size;
                    return Ok(());
                }
                Answer::Seen(seen) => *known = seen,
            }
        }
        Err(WitnessError::Refused {
            status: 409,
            text: "another client sends it checkpoints of this origin at the same time".to_owned(),
        })
    }

    fn post(&self, request: &str) -> Result<Answer, WitnessError> {
        let unreachable = |error: ureq::Error| WitnessError::Unreachable(error.to_string());
        let mut response = self
            .agent
            .post(&self.url)
            .content_type("text/plain; charset=utf-8")
            .send(request)
            .map_err(unreachable)?;
        let status = response.status().as_u16();
        let is_size = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "text/x.tlog.size");
        let body = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_vec()
            .map_err(unreachable)?;
        if status == 200 {
            return Ok(Answer::Cosigned(body));
        }
        let text = String::from_utf8_lossy(&body);
        let size = text.strip_suffix('\n').and_then(|size| size.parse().ok());
        match size {
            Some(seen) if status == 409 && is_size => Ok(Answer::Seen(seen)),
            _ => Err(WitnessError::Refused {
                status,
                text: text
                    .chars()
                    .take(200)
                    .filter(|character| !character.is_control())
                    .collect(),
            }),
        }
    }

    fn count(&self, outcome: &Result<(), WitnessError>) {
        let witness = self.key.name().to_string();
        if outcome.is_ok() {
            self.metrics
                .ledger_witnessed
                .get_or_create(&labels([("witness", &witness)]))
                .set(i64::try_from(*self.seen.lock()).unwrap_or(i64::MAX));
        }
        let outcome = match outcome {
            Ok(()) => "cosigned",
            Err(WitnessError::Unreachable(_) | WitnessError::Tree(_)) => "unreachable",
            Err(WitnessError::Refused { .. }) => "refused",
            Err(WitnessError::False(_)) => "false",
            Err(WitnessError::Ahead { .. } | WitnessError::OtherTree { .. }) => "ahead",
        };
        let labels = [("witness", witness.as_str()), ("outcome", outcome)];
        count(&self.metrics.ledger_witness_requests, labels, 1);
    }
}

enum Answer {
    /// Signature lines.
    Cosigned(Vec<u8>),
    /// It has seen a checkpoint of this size, and needs the proof from there.
    Seen(u64),
}

/// The body of the request (C2SP tlog-witness, `add-checkpoint`).
fn request<T: LogTree>(seen: u64, checkpoint: &SignedCheckpoint, tree: &T) -> Result<String, WitnessError> {
    let proof =
        consistency(seen, checkpoint.checkpoint().size, tree).map_err(|error| WitnessError::Tree(error.to_string()))?;
    let proof: String = proof.iter().map(|hash| STANDARD.encode(hash.0) + "\n").collect();
    Ok(format!("old {seen}\n{proof}\n{}", checkpoint.note()))
}

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Before jitter, which adds up to as much again.
const MAX_WAIT: Duration = Duration::from_secs(30);
const WAITS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(1))
    .with_max_delay(MAX_WAIT)
    .without_max_times()
    .with_jitter();
const MAX_ANSWER_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;

    use axum::Router;
    use axum::extract::State;
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use credence_ledger::cosignature::cosigned_message;
    use credence_ledger::log_identity::{LedgerIdentity, Naming};
    use credence_ledger::note::{NoteSignature, UnverifiedNote, VerifierKey};
    use credence_ledger::proof::verify_consistency;
    use credence_ledger::tree::{Hash, empty_root};
    use ed25519_dalek::{Signer as _, SigningKey};
    use http::StatusCode;
    use tokio::net::TcpListener;

    use super::super::memory_tree::MemoryTree;
    use credence_storage::folder_lock::FolderWatch;

    use super::*;

    /// A witness that follows the specification: it verifies signature and proof, and remembers the last checkpoint.
    struct RealWitness {
        log: VerifierKey,
        key: WitnessKey,
        secret: SigningKey,
        seen: Mutex<(u64, Hash)>,
        /// The statuses of refused requests.
        refused: Mutex<Vec<StatusCode>>,
        /// Whether it signs something else.
        lies: bool,
    }

    impl RealWitness {
        fn new(log: VerifierKey, lies: bool) -> Arc<Self> {
            let secret = SigningKey::from_bytes(&[2; 32]);
            let name = "witness.example/w1".parse().unwrap();
            Arc::new(Self {
                log,
                key: WitnessKey::new(name, secret.verifying_key()),
                secret,
                seen: Mutex::new((0, empty_root())),
                refused: Mutex::default(),
                lies,
            })
        }

        fn answer(&self, body: &str) -> Result<String, (StatusCode, String)> {
            let bad = || (StatusCode::BAD_REQUEST, String::new());
            let (head, note) = body.split_once("\n\n").ok_or_else(bad)?;
            let mut lines = head.split('\n');
            let old = lines
                .next()
                .and_then(|line| line.strip_prefix("old "))
                .ok_or_else(bad)?;
            let old: u64 = old.parse().map_err(|_| bad())?;
            let proof = lines
                .map(|line| Some(Hash(STANDARD.decode(line).ok()?.try_into().ok()?)))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(bad)?;
            let signed = SignedCheckpoint::open(note.as_bytes(), &self.log)
                .map_err(|error| (StatusCode::FORBIDDEN, error.to_string()))?;
            let checkpoint = signed.checkpoint();
            let mut seen = self.seen.lock().unwrap();
            if old != seen.0 {
                return Err((StatusCode::CONFLICT, format!("{}\n", seen.0)));
            }
            verify_consistency((seen.0, &seen.1), (checkpoint.size, &checkpoint.root), &proof)
                .map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
            *seen = (checkpoint.size, checkpoint.root);
            let time: u64 = 1_700_000_000;
            let text = if self.lies {
                "something else\n".to_owned()
            } else {
                checkpoint.to_string()
            };
            let signature = self.secret.sign(cosigned_message(time, &text).as_bytes());
            let line = NoteSignature {
                name: self.key.name().clone(),
                id: self.key.id(),
                signature: [&time.to_be_bytes(), signature.to_bytes().as_slice()].concat(),
            };
            Ok(line.to_string())
        }
    }

    async fn add_checkpoint(State(witness): State<Arc<RealWitness>>, body: String) -> Response {
        match witness.answer(&body) {
            Ok(lines) => lines.into_response(),
            Err((status, text)) => {
                witness.refused.lock().unwrap().push(status);
                (status, [("content-type", "text/x.tlog.size")], text).into_response()
            }
        }
    }

    /// The path of the witness, which the control plane does not use.
    const ADD_CHECKPOINT: &str = "/w/add-checkpoint";

    async fn serve(witness: Arc<RealWitness>, listener: TcpListener) {
        let router = Router::new()
            .route(ADD_CHECKPOINT, post(add_checkpoint))
            .with_state(witness);
        axum::serve(listener, router).await.unwrap();
    }

    struct Bench {
        _folder: tempfile::TempDir,
        publisher: Arc<Publisher<MemoryTree>>,
        metrics: Arc<Metrics>,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let naming = Naming {
                origin: None,
                log_id: "ab12",
            };
            let identity = LedgerIdentity::open(folder.path(), &naming).unwrap();
            let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
            let publisher = Publisher::open(
                identity,
                MemoryTree::of(0..300),
                FolderWatch::of_nothing(),
                Arc::clone(&metrics),
            );
            Self {
                _folder: folder,
                publisher: Arc::new(publisher),
                metrics,
            }
        }

        /// The ledger after a restart, with a tree of these leaves.
        fn restarted(self, tree: MemoryTree) -> Self {
            let naming = Naming {
                origin: None,
                log_id: "ab12",
            };
            let identity = LedgerIdentity::open(self._folder.path(), &naming).unwrap();
            let publisher = Publisher::open(identity, tree, FolderWatch::of_nothing(), Arc::clone(&self.metrics));
            publisher.await_witness();
            Self {
                publisher: Arc::new(publisher),
                ..self
            }
        }

        fn size(&self) -> Option<u64> {
            self.publisher.latest().map(|latest| latest.checkpoint().size)
        }

        fn witness(&self, real: &RealWitness, address: SocketAddr) -> Witness {
            let settings = WitnessSettings {
                url: format!("http://{address}/w/"),
                key: real.key.to_string(),
                ca: None,
            };
            Witness::new(&settings, "ledger.witnesses[0]", Arc::clone(&self.metrics)).unwrap()
        }

        async fn grow(&self, numbers: std::ops::Range<u64>) {
            self.publisher.tree().grow(numbers);
            Arc::clone(&self.publisher).publish().await;
        }

        /// Waits until the latest checkpoint has this many entries and signatures.
        async fn shown(&self, size: u64, signatures: usize) -> Arc<SignedCheckpoint> {
            let mut latest = self.publisher.follow();
            let is_it = |latest: &Option<Arc<SignedCheckpoint>>| {
                latest.as_ref().is_some_and(|latest| {
                    let note = UnverifiedNote::parse(latest.note().as_bytes()).unwrap();
                    latest.checkpoint().size == size && note.signatures().len() == signatures
                })
            };
            latest.wait_for(is_it).await.unwrap().clone().unwrap()
        }

        fn outcomes(&self, outcome: &'static str) -> u64 {
            let witness = "witness.example/w1".to_owned();
            self.metrics
                .ledger_witness_requests
                .get_or_create(&labels([("witness", &witness), ("outcome", outcome)]))
                .get()
        }
    }

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn a_witness_cosigns_each_checkpoint_after_it_has_verified_the_proof() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        let (listener, address) = listen().await;
        tokio::spawn(serve(Arc::clone(&real), listener));
        tokio::spawn(bench.witness(&real, address).follow(Arc::clone(&bench.publisher)));
        let key: WitnessKey = real.key.to_string().parse().unwrap();
        for grown in [0..0, 300..301, 301..1000] {
            let size = grown.end.max(300);
            bench.grow(grown).await;
            let checkpoint = bench.shown(size, 2).await;
            let note = UnverifiedNote::parse(checkpoint.note().as_bytes()).unwrap();
            assert_eq!(key.open(&note).unwrap(), 1_700_000_000);
            assert_eq!(bench.publisher.witnessed().unwrap().note(), checkpoint.note());
            let on_disk = std::fs::read(bench._folder.path().join("checkpoint")).unwrap();
            assert_eq!(on_disk, checkpoint.note().as_bytes());
        }
        assert!(real.refused.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn after_a_start_nothing_is_signed_until_a_witness_confirms_that_it_has_seen_no_more() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        bench.grow(0..0).await;
        *real.seen.lock().unwrap() = (300, bench.publisher.latest().unwrap().checkpoint().root);
        let bench = bench.restarted(MemoryTree::of(0..310));
        // It does not answer yet.
        let (listener, address) = listen().await;
        drop(listener);
        let following = tokio::spawn(bench.witness(&real, address).follow(Arc::clone(&bench.publisher)));
        bench.grow(0..0).await;
        assert_eq!(bench.size(), Some(300), "only the published checkpoint is shown");
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::spawn(serve(Arc::clone(&real), listener));
        while bench.size() != Some(310) {
            bench.grow(0..0).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bench.shown(310, 2).await;
        assert_eq!(bench.publisher.fault(), None);
        following.abort();
    }

    #[tokio::test]
    async fn a_witness_that_has_seen_more_or_another_tree_stops_the_signing() {
        let ahead = MemoryTree::of(0..320);
        let other = MemoryTree::of(1..301);
        for seen in [ahead, other] {
            let bench = Bench::new();
            let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
            bench.grow(0..0).await;
            let size = seen.size();
            *real.seen.lock().unwrap() = (size, credence_ledger::tree::root_of(size, &seen).unwrap());
            // Rolled back to an earlier state, it has grown differently.
            let tree = MemoryTree::of(0..300);
            tree.grow(900..950);
            let bench = bench.restarted(tree);
            let (listener, address) = listen().await;
            tokio::spawn(serve(Arc::clone(&real), listener));
            bench.grow(0..0).await;
            let following = tokio::spawn(bench.witness(&real, address).follow(Arc::clone(&bench.publisher)));
            while bench.publisher.fault().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            bench.grow(0..0).await;
            let fault = bench.publisher.fault().unwrap();
            assert!(
                fault.contains("witness.example/w1") && fault.contains("--restored"),
                "{fault}"
            );
            assert_eq!((bench.size(), bench.outcomes("ahead")), (None, 1));
            assert!(!following.is_finished(), "its end would raise the alarm");
            following.abort();
        }
    }

    #[tokio::test]
    async fn a_witness_that_has_seen_the_log_before_gets_the_proof_from_there() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        *real.seen.lock().unwrap() = (
            200,
            credence_ledger::tree::root_of(200, bench.publisher.tree()).unwrap(),
        );
        let (listener, address) = listen().await;
        tokio::spawn(serve(Arc::clone(&real), listener));
        tokio::spawn(bench.witness(&real, address).follow(Arc::clone(&bench.publisher)));
        bench.grow(300..310).await;
        bench.shown(310, 2).await;
        assert_eq!(real.refused.lock().unwrap().as_slice(), [StatusCode::CONFLICT]);
    }

    #[tokio::test]
    async fn a_witness_that_is_down_delays_nothing_and_cosigns_a_later_checkpoint() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        let (listener, address) = listen().await;
        tokio::spawn(bench.witness(&real, address).follow(Arc::clone(&bench.publisher)));
        bench.grow(300..310).await;
        bench.shown(310, 1).await;
        let asked = listener.accept().await.unwrap();
        drop((asked, listener));
        bench.grow(310..320).await;
        bench.shown(320, 1).await;
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::spawn(serve(Arc::clone(&real), listener));
        bench.shown(320, 2).await;
        assert!(bench.outcomes("unreachable") >= 1);
    }

    #[tokio::test]
    async fn a_signature_of_anything_else_is_not_shown() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), true);
        let (listener, address) = listen().await;
        tokio::spawn(serve(Arc::clone(&real), listener));
        let witness = bench.witness(&real, address);
        bench.grow(300..310).await;
        let checkpoint = bench.shown(310, 1).await;
        let publisher = Arc::clone(&bench.publisher);
        let asked = tokio::task::spawn_blocking(move || witness.ask(&checkpoint, &publisher));
        assert!(matches!(asked.await.unwrap(), Err(WitnessError::False(_))));
        bench.shown(310, 1).await;
        let shown = bench.publisher.witnessed().unwrap();
        let note = UnverifiedNote::parse(shown.note().as_bytes()).unwrap();
        assert_eq!(note.signatures().len(), 1);
    }

    #[tokio::test]
    async fn a_witness_that_has_seen_more_shows_that_the_ledger_lost_records() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        real.seen.lock().unwrap().0 = 5_000;
        let (listener, address) = listen().await;
        tokio::spawn(serve(Arc::clone(&real), listener));
        let witness = bench.witness(&real, address);
        bench.grow(300..310).await;
        let checkpoint = bench.shown(310, 1).await;
        let publisher = Arc::clone(&bench.publisher);
        let asked = tokio::task::spawn_blocking(move || {
            let first = witness.ask(&checkpoint, &publisher);
            // Its memory was wrong; it is asked again.
            *real.seen.lock().unwrap() = (0, empty_root());
            (first, witness.ask(&checkpoint, &publisher))
        });
        let (first, second) = asked.await.unwrap();
        assert!(matches!(first, Err(WitnessError::Ahead { seen: 5_000, size: 310 })));
        assert!(second.is_ok(), "{second:?}");
        bench.shown(310, 2).await;
    }

    #[tokio::test]
    async fn repeated_starts_do_not_fill_the_checkpoint_with_cosignatures() {
        let bench = Bench::new();
        let real = RealWitness::new(bench.publisher.verifier_key().unwrap(), false);
        let (listener, address) = listen().await;
        tokio::spawn(serve(Arc::clone(&real), listener));
        bench.grow(300..310).await;
        let checkpoint = bench.shown(310, 1).await;
        // Each start asks about the last published checkpoint, even if a witness has cosigned it already.
        for _ in 0..3 {
            let witness = bench.witness(&real, address);
            let (checkpoint, publisher) = (Arc::clone(&checkpoint), Arc::clone(&bench.publisher));
            let asked = tokio::task::spawn_blocking(move || witness.ask(&checkpoint, &publisher));
            asked.await.unwrap().unwrap();
        }
        let latest = bench.publisher.latest().unwrap();
        let note = UnverifiedNote::parse(latest.note().as_bytes()).unwrap();
        assert_eq!(note.signatures().len(), 2, "the log's and the witness's");
    }
}
