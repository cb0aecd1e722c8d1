//! A part of the control plane fails or hangs: here the process log that its threads write to. All threads share that
//! log, so these tests have their own process and run one at a time.

#![allow(
    clippy::disallowed_types,
    dead_code,
    reason = "the harness is shared with the other tests"
)]

#[path = "control_plane/harness.rs"]
mod harness;

use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

use harness::{Place, event, raise};
use tonic::Code;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[tokio::test]
async fn a_revocation_is_acknowledged_although_logging_it_ends_the_writer_and_the_failure_is_reported() {
    let _log = Log::that(Behaviour::Panics(REVOCATIONS_WRITER)).await;
    let place = Place::new();
    let server = place.start().await;
    assert_eq!(server.revoke(raise("alice")).await["seq"], 1);
    let failure = within(server.running.failed()).await;
    assert!(failure.to_string().contains("revocation log's writer"), "{failure}");
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text.contains("ended unexpectedly"), "{}", ready.text);
    let refused = server.try_revoke(raise("bob")).await;
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("the outcome is unknown"), "{}", refused.text);
}

#[tokio::test]
async fn the_failure_of_the_ledgers_writer_is_reported_too() {
    let _log = Log::that(Behaviour::Panics(LEDGERS_WRITER)).await;
    let place = Place::new();
    let server = place.start_with(|config| config.evidence.ledger.total = 2000).await;
    let (mut reporter, _) = server.report(None).await.unwrap();
    // More than the limit, which is logged.
    reporter.batch(1, vec![event(&"x".repeat(1000)); 3]).await;
    assert_eq!(reporter.refusal().await.0, Code::Unavailable);
    let failure = within(server.running.failed()).await;
    assert!(failure.to_string().contains("ledger's writer"), "{failure}");
    let ready = server.get("/readyz", &[]).await;
    assert_eq!(ready.status, 503);
}

#[tokio::test]
async fn a_planned_stop_is_no_failure() {
    let _log = Log::that(Behaviour::Silent).await;
    let place = Place::new();
    let server = place.start().await;
    let failed = tokio::time::timeout(Duration::from_millis(50), server.running.failed()).await;
    assert!(failed.is_err());
    server.running.shutdown().await;
}

#[tokio::test]
async fn a_revocation_that_takes_too_long_is_answered_as_unknown_and_may_be_repeated() {
    let _log = Log::that(Behaviour::Blocks(REVOCATIONS_WRITER)).await;
    let place = Place::new();
    let server = place
        .start_with(|config| config.limits.request_timeout = Duration::from_millis(200))
        .await;
    // The log line blocks the writer, after its answer.
    server.revoke(raise("alice")).await;
    let late = server.try_revoke(raise("bob")).await;
    assert_eq!(late.status, 504, "{}", late.text);
    assert!(late.text.contains("the outcome is unknown"), "{}", late.text);
    Log::set(Behaviour::Silent);
    assert_eq!(server.revoke(raise("bob")).await["changed"], true);
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), future)
        .await
        .expect("nothing happened for 5 s")
}

/// The modules whose log lines come from the two writer threads.
const REVOCATIONS_WRITER: &str = "credence_revocation::writer";
const LEDGERS_WRITER: &str = "credence_evidence::writer";

/// How the log treats lines of this module.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Silent,
    Panics(&'static str),
    Blocks(&'static str),
}

static BEHAVIOUR: Mutex<Behaviour> = Mutex::new(Behaviour::Silent);
static CHANGED: Condvar = Condvar::new();
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Restores the log's behavior when dropped.
struct Log {
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Log {
    async fn that(behaviour: Behaviour) -> Self {
        static INSTALLED: Once = Once::new();
        let turn = ONE_AT_A_TIME.lock().await;
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Sink).unwrap());
        Self::set(behaviour);
        Self { _turn: turn }
    }

    fn set(behaviour: Behaviour) {
        *BEHAVIOUR.lock().unwrap() = behaviour;
        CHANGED.notify_all();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        Self::set(Behaviour::Silent);
    }
}

struct Sink;

impl Subscriber for Sink {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let is_meant = |module: &str| event.metadata().module_path() == Some(module);
        let mut behaviour = BEHAVIOUR.lock().unwrap();
        while matches!(*behaviour, Behaviour::Blocks(module) if is_meant(module)) {
            behaviour = CHANGED.wait(behaviour).unwrap();
        }
        let breaks = matches!(*behaviour, Behaviour::Panics(module) if is_meant(module));
        drop(behaviour);
        assert!(!breaks, "the log cannot be written");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
