//! Load on every worker that records when each request began, to find requests that were allowed too late.
//!
//! The promise: a request that begins after a revocation was confirmed is not allowed, under any failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::envoy::Envoy;
use crate::{Client, Failure, Request, waiting};

/// One request after the other, on a connection to each worker, until [`finish`](Self::finish).
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The answers.
#[derive(Debug)]
pub struct Seen {
    answers: Vec<Answer>,
    workers: usize,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request's name.
    pub name: String,
    /// The worker that answered.
    pub worker: usize,
    /// Just before the first byte was sent.
    pub began: Instant,
    /// The HTTP status.
    pub status: u16,
    /// Why it was denied.
    pub reason: Option<String>,
}

#[derive(Debug)]
struct Shared {
    requests: Vec<(String, Request)>,
    answers: Mutex<Vec<Answer>>,
    failure: Mutex<Option<Failure>>,
    done: AtomicBool,
}

// === impl Load ===

impl Load {
    /// Starts to send these requests, in turn, to every worker.
    ///
    /// # Errors
    /// If the workers cannot be told apart.
    pub fn start(envoy: &Envoy, requests: &[(&str, Request)]) -> Result<Self, Failure> {
        Ok(Self::over(envoy.connection_to_every_worker()?, requests))
    }

    fn over(connections: Vec<Client>, requests: &[(&str, Request)]) -> Self {
        let requests = requests
            .iter()
            .map(|(name, request)| ((*name).to_owned(), request.clone()));
        let shared = Arc::new(Shared {
            requests: requests.collect(),
            answers: Mutex::default(),
            failure: Mutex::default(),
            done: AtomicBool::new(false),
        });
        let begin = |(worker, mut client): (usize, Client)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if let Err(failure) = shared.send_until_done(worker, &mut client) {
                    *lock(&shared.failure) = Some(failure);
                }
            })
        };
        let workers = connections.into_iter().enumerate().map(begin).collect();
        Self { shared, workers }
    }

    /// Waits until every worker's last answer to this request is as wanted, and began after this call.
    ///
    /// # Errors
    /// If that takes too long, or a request got no answer.
    pub fn until(&self, what: &str, name: &str, is_as_wanted: impl Fn(&Answer) -> bool) -> Result<(), Failure> {
        let called = Instant::now();
        waiting::until(format_args!("{name} {what}, in every worker"), || {
            if let Some(failure) = &*lock(&self.shared.failure) {
                return Err(failure.clone());
            }
            let answers = lock(&self.shared.answers);
            let last = |worker| {
                let mut newest = answers.iter().rev().take_while(|answer| answer.began >= called);
                newest.find(|answer| answer.worker == worker && answer.name == name)
            };
            let all = (0..self.workers.len()).all(|worker| last(worker).is_some_and(&is_as_wanted));
            Ok(all.then_some(()))
        })
    }

    /// Waits until every worker allows the request.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub fn until_allowed(&self, name: &str) -> Result<(), Failure> {
        self.until("to be allowed", name, |answer| answer.status == 200)
    }

    /// Waits until every worker denies the request for this reason.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub fn until_denied(&self, name: &str, reason: &str) -> Result<(), Failure> {
        let denied = |answer: &Answer| answer.reason.as_deref() == Some(reason);
        self.until(&format!("to be denied for {reason}"), name, denied)
    }

    /// Continues for this time.
    pub fn go_on(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Continues until every worker has answered a request of this name that began after `instant`.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    pub fn go_on_beyond(&self, instant: Instant, name: &str) -> Result<(), Failure> {
        self.go_on(instant.saturating_duration_since(Instant::now()));
        self.until("to be answered", name, |_| true)
    }

    /// Ends the load and returns the answers.
    ///
    /// # Errors
    /// If a request got no answer.
    pub fn finish(mut self) -> Result<Seen, Failure> {
        let workers = self.workers.len();
        self.end();
        if let Some(failure) = lock(&self.shared.failure).take() {
            return Err(failure);
        }
        let answers = std::mem::take(&mut *lock(&self.shared.answers));
        Ok(Seen { answers, workers })
    }

    fn end(&mut self) {
        self.shared.done.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // `failure` has its error.
            let _ = worker.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl Seen ===

impl Seen {
    /// Asserts that every request of this name that began after `instant` was denied, and that every worker was asked.
    ///
    /// # Panics
    /// If one was allowed (the message says when it began), or if a worker was not asked.
    #[track_caller]
    pub fn assert_no_late_allows(&self, name: &str, instant: Instant) {
        let late = self.late_allows(name, instant);
        let first = late.first().map(|answer| (answer.worker, answer.began - instant));
        assert!(
            late.is_empty(),
            "{} requests of {name} were allowed that began too late; of the first, worker and delay: {first:?}",
            late.len()
        );
        for worker in 0..self.workers {
            let is_asked = self
                .of(name)
                .any(|answer| answer.worker == worker && answer.began > instant);
            assert!(
                is_asked,
                "worker {worker} was not asked about {name} after the revocation: the load ended too early"
            );
        }
    }

    /// Asserts that every request of this name was allowed.
    ///
    /// # Panics
    /// If one was not.
    #[track_caller]
    pub fn assert_always_allowed(&self, name: &str) {
        let count = self.of(name).count();
        let denied: Vec<&Answer> = self.of(name).filter(|answer| answer.status != 200).collect();
        assert!(count > 0, "{name} was never sent");
        assert!(
            denied.is_empty(),
            "{} of {count} denied; the first: {:?}",
            denied.len(),
            denied.first()
        );
    }

    /// Asserts that no request of this name that began between the two was allowed.
    ///
    /// # Panics
    /// If one was.
    #[track_caller]
    pub fn assert_none_allowed_between(&self, name: &str, from: Instant, to: Instant) {
        let allowed = self
            .of(name)
            .find(|answer| answer.status == 200 && answer.began > from && answer.began < to);
        let after = allowed.map(|answer| (answer.worker, answer.began - from));
        assert!(allowed.is_none(), "{name} was allowed; worker and delay: {after:?}");
    }

    /// The requests of this name that began after `instant` and were allowed.
    pub fn late_allows(&self, name: &str, instant: Instant) -> Vec<&Answer> {
        let is_late = |answer: &&Answer| answer.status == 200 && answer.began > instant;
        self.of(name).filter(is_late).collect()
    }

    /// All answers to this request, in each worker's order.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(move |answer| answer.name == name)
    }
}

// === impl Shared ===

impl Shared {
    fn send_until_done(&self, worker: usize, client: &mut Client) -> Result<(), Failure> {
        while !self.done.load(Ordering::Relaxed) {
            for (name, request) in &self.requests {
                let began = Instant::now();
                let reply = client.send(request)?;
                lock(&self.answers).push(Answer {
                    name: name.clone(),
                    worker,
                    began,
                    status: reply.status,
                    reason: reply.reason(),
                });
            }
            thread::sleep(BETWEEN_ROUNDS);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A few hundred requests per second for each worker: enough to notice an effect of a few milliseconds, and few enough
/// to run several such tests at the same time.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;

    /// A service without a filter, which allows every request after any revocation.
    fn load_without_a_filter() -> (Upstream, Load) {
        let service = Upstream::start().unwrap();
        let connections = [(); 2].map(|()| Client::connect(service.address()).unwrap());
        let load = Load::over(connections.into(), &[("bob", Request::get("/"))]);
        (service, load)
    }

    #[test]
    fn a_request_that_is_allowed_after_the_confirmation_is_found() {
        let (_service, load) = load_without_a_filter();
        load.until_allowed("bob").unwrap();
        let confirmed = Instant::now();
        load.until_allowed("bob").unwrap();
        let seen = load.finish().unwrap();
        let late = seen.late_allows("bob", confirmed);
        assert!(
            [0, 1]
                .iter()
                .all(|worker| late.iter().any(|answer| answer.worker == *worker))
        );
        assert!(late.len() < seen.of("bob").count(), "an earlier request is not late");
    }

    #[test]
    #[should_panic(expected = "were allowed that began too late")]
    fn a_late_allow_fails_the_test_that_asserts_there_is_none() {
        let (_service, load) = load_without_a_filter();
        let confirmed = Instant::now();
        load.until_allowed("bob").unwrap();
        load.finish().unwrap().assert_no_late_allows("bob", confirmed);
    }

    #[test]
    #[should_panic(expected = "the load ended too early")]
    fn a_load_that_sends_no_request_after_the_confirmation_is_an_error() {
        let (_service, load) = load_without_a_filter();
        load.until_allowed("bob").unwrap();
        load.finish().unwrap().assert_no_late_allows("bob", Instant::now());
    }
}
