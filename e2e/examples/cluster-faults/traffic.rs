//! Requests to every worker of every Envoy, all the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use credence_e2e::envoy::Envoy;
use credence_e2e::{Client, Failure, Request};

use crate::history::History;

/// The requests, and what was wrong with the answers.
#[derive(Debug)]
pub(crate) struct Traffic {
    history: Arc<History>,
    /// Of a subject that is never revoked.
    steady: Request,
    watched: RwLock<Vec<Arc<Watched>>>,
    requests: AtomicU64,
    denials: Mutex<Vec<Denial>>,
    /// Requests that were allowed although they began after the revocation was acknowledged.
    late: AtomicU64,
    /// Of the subjects that were revoked, how many had been allowed before.
    were_allowed: AtomicU64,
    revoked: AtomicU64,
}

/// A subject that will be revoked.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) subject: String,
    pub(crate) request: Request,
    /// How often it was allowed.
    pub(crate) allowed: AtomicU64,
    /// When the revocation's answer came.
    pub(crate) returned: OnceLock<Instant>,
}

/// Of the subject that is never revoked.
#[derive(Debug, Clone)]
pub(crate) struct Denial {
    pub(crate) began: Instant,
    pub(crate) envoy: usize,
    pub(crate) worker: usize,
    pub(crate) answer: String,
}

impl Traffic {
    pub(crate) fn new(history: Arc<History>, steady: Request) -> Self {
        Self {
            history,
            steady,
            watched: RwLock::default(),
            requests: AtomicU64::new(0),
            denials: Mutex::default(),
            late: AtomicU64::new(0),
            were_allowed: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
        }
    }

    /// Begins to send, until `done`.
    pub(crate) fn start(
        self: &Arc<Self>,
        number: usize,
        envoy: &Envoy,
        done: &Arc<AtomicBool>,
    ) -> Result<Vec<JoinHandle<Result<(), Failure>>>, Failure> {
        let connections = envoy.connection_to_every_worker()?.into_iter().enumerate();
        let begin = |(worker, client): (usize, Client)| {
            let (traffic, done) = (Arc::clone(self), Arc::clone(done));
            thread::spawn(move || traffic.send(number, worker, client, &done))
        };
        Ok(connections.map(begin).collect())
    }

    pub(crate) fn watch(&self, watched: &Arc<Watched>) {
        let mut all = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(watched));
        // The oldest that were revoked long ago.
        if all.len() > WATCHED {
            all.remove(0);
        }
    }

    /// The revocation of this one has returned.
    pub(crate) fn returned(&self, watched: &Watched, at: Instant) {
        // Never set before.
        let _ = watched.returned.set(at);
        self.revoked.fetch_add(1, Ordering::Relaxed);
        let was_allowed = watched.allowed.load(Ordering::Relaxed) > 0;
        self.were_allowed.fetch_add(was_allowed.into(), Ordering::Relaxed);
    }

    /// A denial after a revocation shows something only of a subject that was allowed before it.
    pub(crate) fn check_not_in_vain(&self) {
        let (allowed, revoked) = (
            self.were_allowed.load(Ordering::Relaxed),
            self.revoked.load(Ordering::Relaxed),
        );
        if allowed * 10 < revoked * 9 {
            self.history.violation(format!(
                "of {revoked} who were revoked, only {allowed} had been allowed before"
            ));
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn allowed_after_ack(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    pub(crate) fn denials(&self) -> Vec<Denial> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send(&self, envoy: usize, worker: usize, mut client: Client, done: &AtomicBool) -> Result<(), Failure> {
        while !done.load(Ordering::Relaxed) {
            let began = Instant::now();
            let reply = client.send(&self.steady)?;
            if reply.status != 200 {
                let answer = format!("{} {:?}", reply.status, reply.reason());
                let denial = Denial {
                    began,
                    envoy,
                    worker,
                    answer,
                };
                self.denials.lock().unwrap_or_else(PoisonError::into_inner).push(denial);
            }
            let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner).clone();
            for one in &watched {
                let began = Instant::now();
                let reply = client.send(&one.request)?;
                if reply.status == 200 {
                    one.allowed.fetch_add(1, Ordering::Relaxed);
                    if let Some(returned) = one.returned.get()
                        && *returned < began
                    {
                        self.late.fetch_add(1, Ordering::Relaxed);
                        self.history.violation(format!(
                            "{} was allowed by worker {worker} of Envoy {envoy} {:?} after the revocation had returned",
                            one.subject,
                            began - *returned
                        ));
                    }
                }
            }
            self.requests.fetch_add(1 + watched.len() as u64, Ordering::Relaxed);
            thread::sleep(BETWEEN_ROUNDS);
        }
        Ok(())
    }
}

/// Enough that each is asked about for some seconds after its revocation.
const WATCHED: usize = 24;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(2);
