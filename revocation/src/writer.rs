//! The only thread that writes the revocation log.
//!
//! Requests queue for it. It plans a group of them, stores the group in one transaction, publishes it to the
//! [`LogView`] that streams read, wakes the streams, and only then answers. So an answer means: durable, and sent to
//! every live subscriber before any later pong. [`Leases`](crate::leases::Leases) tells when all have applied it.
//!
//! Between groups it does other writes: it seals the last group, compacts the log, saves the log's clock, and forgets
//! expired delegations.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use credence_runtime::metrics::labels;
use credence_runtime::supervision::{Alarm, Failure, unplanned_end};
use credence_runtime::threads::Threads;
use credence_runtime::time::unix_seconds;
use credence_storage::folder_lock::{FolderLost, FolderWatch};
use prost::Message as _;
use tokio::sync::{oneshot, watch};

use crate::clock::{Forgetting, Forgotten, LogClock};
use crate::compaction::Compactor;
use crate::history::HistoryIndexer;
use crate::leases::Leases;
use crate::log::{Receipt, Request, RevocationLog, RevokeError, Shared};
use crate::log_view::LogView;
use crate::metrics::Metrics;
use crate::plan::{Plan, Room};
use crate::provenance::Provenance;
use crate::quorum::Quorum;
use crate::state::State;
use crate::store::group::{EncodedRecord, Group};
use crate::store::{AppendError, FollowError, LogStore, Notes, StoreError};
use crate::subject::{Operation, Order};

/// The options of the writer.
#[derive(Debug)]
pub(crate) struct WriterOptions {
    pub(crate) max_subjects: usize,
    /// Nothing is acknowledged once this is another folder.
    pub(crate) folder: FolderWatch,
    pub(crate) leases: Leases,
    pub(crate) quorum: Quorum,
    /// The time from which filters may be fresh for at most this long after the process has ended.
    pub(crate) leases_from: (Instant, Duration),
    pub(crate) forgetting: Forgetting,
    /// A log of at most this size, in bytes, is not compacted.
    pub(crate) compact_above: u64,
    pub(crate) history_path: PathBuf,
    /// The number of entries kept of each principal's history.
    pub(crate) history_kept: usize,
}

/// Starts the writer for an opened log, and the thread that keeps the histories.
pub(crate) fn start(
    store: Arc<dyn LogStore>,
    mut view: LogView,
    options: WriterOptions,
    metrics: Arc<Metrics>,
    alarm: &Alarm,
) -> std::io::Result<(RevocationLog, Threads)> {
    let began = Instant::now();
    let mut forgetting = options.forgetting;
    if let Some(due) = note_time(&*store, &mut forgetting, None) {
        let forgotten = view.state.forget(0..State::SHARDS, |revoked_at| due.covers(revoked_at));
        metrics.log_forgotten.inc_by(forgotten as u64);
    }
    let announced = forgetting.announced(began);
    if announced < forgetting.max_token_lifetime {
        tracing::warn!(
            configured_s = forgetting.max_token_lifetime,
            announced_s = announced,
            "--max-token-lifetime was raised; filters are told a shorter one until no token can carry a delegation \
             that was forgotten before. Clients learn the present one when they reconnect"
        );
    }
    let (indexer, histories) = HistoryIndexer::new(
        options.history_path,
        options.folder.clone(),
        options.history_kept,
        Arc::clone(&store),
        Arc::clone(&metrics),
    );
    let shared = Arc::new(Shared {
        log_id: store.log_id(),
        head: watch::Sender::new(view.head()),
        view: RwLock::new(view),
        leases: options.leases,
        quorum: options.quorum,
        forgetting,
        histories: histories.clone(),
        snapshot: tokio::sync::Mutex::default(),
        fault: Mutex::default(),
        stopping: AtomicBool::new(false),
        has_news: AtomicBool::new(false),
    });
    let (requests, queue) = sync_channel(QUEUE);
    let log = RevocationLog {
        shared: Arc::clone(&shared),
        requests,
    };
    let mut writing = Writing {
        compactor: Compactor::new(
            Arc::clone(&store),
            histories.clone(),
            Arc::clone(&metrics),
            options.compact_above,
        ),
        store,
        shared,
        metrics,
        max_subjects: options.max_subjects,
        folder: options.folder,
        alarm: alarm.clone(),
        dates: forgetting.clock.timestamps(unix_seconds(), began),
        forgetting,
        leases_from: Some(options.leases_from),
        is_behind: false,
        seal_at: Some(began),
        round_at: began + ROUND.min(options.leases_from.0.saturating_duration_since(began)),
        forget_next: 0,
    };
    writing.report();
    writing.metrics.log_writable.set(1);
    let spawn =
        |name: &str, work: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.to_owned()).spawn(work);
    let write = move || {
        if let Some(failure) = unplanned_end("the revocation log's writer", || writing.run(&queue).is_ok()) {
            writing.shared.fault().get_or_insert_with(|| failure.to_string());
            writing.metrics.log_writable.set(0);
            writing.alarm.raise(failure);
        }
        histories.end();
    };
    let alarm = alarm.clone();
    let index = move || {
        let run = || {
            indexer.run();
            true
        };
        if let Some(failure) = unplanned_end("the histories' indexer", run) {
            alarm.raise(failure);
        }
    };
    // The writer's thread, then the one that keeps the histories.
    let threads = vec![
        spawn("revocation-log", Box::new(write))?,
        spawn("log-history", Box::new(index))?,
    ];
    let told = log.clone();
    Ok((log, Threads::new(threads, move || told.stop())))
}

/// Notes the log's clock, what is due to be forgotten, and `leases` if present. Returns what may be forgotten. That is
/// nothing if the note failed, because after a restart a longer lifetime would be accepted too early.
fn note_time(store: &dyn LogStore, forgetting: &mut Forgetting, leases: Option<Duration>) -> Option<Forgotten> {
    let due = forgetting.due(Instant::now());
    let forgotten = match forgetting.forgotten {
        Some(noted) if noted.before >= due.before => noted,
        _ => due,
    };
    let leases_ms = leases.map_or_else(|| store.notes().leases_ms, milliseconds);
    let written = store.write_notes(Notes {
        clock: Some(due.clock),
        forgotten: Some(forgotten),
        leases_ms,
    });
    match written {
        Ok(()) => {
            forgetting.forgotten = Some(forgotten);
            Some(due)
        }
        Err(error) => {
            tracing::warn!(
                %error,
                "the log's clock could not be saved; nothing is forgotten until it is, and after a restart ids are \
                 kept longer"
            );
            None
        }
    }
}

/// The form in which it is noted.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The writer cannot continue: its own plan was refused, its folder is lost, or its store lacks acknowledged records.
#[derive(Debug)]
struct CannotGoOn;

/// The state of the thread.
struct Writing {
    store: Arc<dyn LogStore>,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    max_subjects: usize,
    folder: FolderWatch,
    alarm: Alarm,
    /// The clock that dates revocations.
    dates: LogClock,
    forgetting: Forgetting,
    /// The note about leases that is still to be written, and when.
    leases_from: Option<(Instant, Duration)>,
    /// The store may have a group that the view lacks.
    is_behind: bool,
    compactor: Compactor,
    seal_at: Option<Instant>,
    /// When the clock is saved next.
    round_at: Instant,
    /// The first of the shards to be searched next for delegations to forget.
    forget_next: usize,
}

type Waiting = (Order, Answer);
type Answer = oneshot::Sender<Result<Receipt, RevokeError>>;

// === impl Writing ===

impl Writing {
    /// Returns when it is told to stop.
    fn run(&mut self, queue: &Receiver<Request>) -> Result<(), CannotGoOn> {
        let mut next = None;
        loop {
            if self.shared.has_news.swap(false, Ordering::AcqRel) {
                // If it fails, it is tried again.
                self.is_behind |= self.catch_up()?.is_err();
            }
            let request = next.take().or_else(|| self.wait(queue));
            if self.shared.stopping.load(Ordering::Acquire) {
                turn_away(request, queue);
                self.finish();
                return Ok(());
            }
            match request {
                Some(Request::Perform { order, answer }) => {
                    // The operations of a group touch different subjects, so that each can be planned against the
                    // durable state.
                    let touches = |group: &[Waiting], operation: &Operation| {
                        group
                            .iter()
                            .any(|(other, _)| other.operation.subject() == operation.subject())
                    };
                    let mut group = vec![(order, answer)];
                    while group.len() < MAX_GROUP {
                        match queue.try_recv() {
                            Ok(Request::Perform { order, answer }) if !touches(&group, &order.operation) => {
                                group.push((order, answer));
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    self.perform(group)?;
                    self.do_what_is_due(LONGEST_DELAY)?;
                }
                Some(Request::Wake) => {}
                None => self.do_what_is_due(Duration::ZERO)?,
            }
        }
    }

    /// The next request, unless other work is due first.
    fn wait(&self, queue: &Receiver<Request>) -> Option<Request> {
        let due = [self.seal_at, self.compactor.next_step(), Some(self.round_at)];
        let due = due.into_iter().flatten().min().unwrap_or(self.round_at);
        match queue.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.shared.stopping.store(true, Ordering::Release);
                None
            }
        }
    }

    /// Does work that may wait for this long because of requests.
    fn do_what_is_due(&mut self, delay: Duration) -> Result<(), CannotGoOn> {
        let now = Instant::now();
        if self.seal_at.is_some_and(|seal_at| seal_at <= now) {
            self.seal_at = None;
            if self.is_behind {
                // If it fails, it is tried again.
                let _ = self.catch_up()?;
            } else {
                self.seal();
            }
        }
        self.compactor.consider(&self.shared.read());
        if self.compactor.next_step().is_some_and(|next| next + delay <= now) {
            self.compactor.step();
            self.report();
        }
        if self.round_at <= now {
            self.round_at = now + ROUND;
            let leases = self
                .leases_from
                .take_if(|(from, _)| *from <= now)
                .map(|(_, leases)| leases);
            if let Some(due) = note_time(&*self.store, &mut self.forgetting, leases) {
                // However many requests there are.
                self.seal();
                self.forget(due);
            }
        }
        Ok(())
    }

    /// The last writes of a planned stop.
    fn finish(&mut self) {
        note_time(&*self.store, &mut self.forgetting, None);
        self.seal();
        self.store.leave();
    }

    fn seal(&self) {
        if let Err(error) = self.store.seal() {
            tracing::warn!(%error, "the revocation log could not be sealed");
        }
    }

    /// Other replicas may append first. Then everything is planned again after what they did.
    fn perform(&mut self, mut group: Vec<Waiting>) -> Result<(), CannotGoOn> {
        for _ in 0..ATTEMPTS {
            group = self.attempt(group)?;
            if group.is_empty() {
                return Ok(());
            }
            self.is_behind = true;
        }
        for (order, answer) in group {
            self.answer(&order, answer, Err(RevokeError::Busy));
        }
        Ok(())
    }

    /// Returns what must be planned again.
    fn attempt(&mut self, group: Vec<Waiting>) -> Result<Vec<Waiting>, CannotGoOn> {
        // State that is already in force is acknowledged without a write.
        if let Err(lost) = self.folder.check() {
            return Err(self.lose_folder(&lost, group));
        }
        // What this process knows may be old. An answer without a write must not rest on it.
        let says_nothing = |(order, _): &Waiting| matches!(self.plan(order, 0), Ok(Plan::Nothing { .. }));
        let must_look = self.store.is_shared() && group.iter().any(says_nothing);
        if (self.is_behind || must_look)
            && let Err(error) = self.catch_up()?
        {
            self.refuse(group, error);
            return Ok(Vec::new());
        }
        let mut records = Vec::new();
        let mut provenance = Vec::new();
        let mut waiting = Vec::new();
        let mut epochs = Vec::new();
        for (order, answer) in group {
            match self.plan(&order, records.len()) {
                Ok(Plan::Nothing { seq, epoch }) => {
                    let receipt = Receipt {
                        seq,
                        epoch,
                        changed: false,
                    };
                    self.answer(&order, answer, Ok(receipt));
                }
                Ok(Plan::Change { record, epoch }) => {
                    records.push(EncodedRecord::from(record));
                    provenance.push(Provenance::of(&order, unix_seconds()).encode_to_vec().into());
                    waiting.push((order, answer));
                    epochs.push(epoch);
                }
                Err(error) => self.answer(&order, answer, Err(error)),
            }
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let after = self.shared.read().digests.head;
        let group = Group::following(after, records, provenance);
        let begun = Instant::now();
        let appended = self.store.append(after, &group);
        self.metrics.log_sync_seconds.observe(begun.elapsed().as_secs_f64());
        if let (Ok(()), Err(lost)) = (&appended, self.folder.check()) {
            return Err(self.lose_folder(&lost, waiting));
        }
        self.seal_at = Some(Instant::now() + SEAL_AFTER);
        match appended {
            Ok(()) => {
                self.publish(group.records)?;
                for (((order, answer), epoch), seq) in waiting.into_iter().zip(epochs).zip(group.first_seq..) {
                    let receipt = Receipt {
                        seq,
                        epoch,
                        changed: true,
                    };
                    self.answer(&order, answer, Ok(receipt));
                }
            }
            Err(AppendError::Moved) => return Ok(waiting),
            Err(AppendError::NotDone(error)) => self.refuse(waiting, error),
            Err(AppendError::Unknown(error)) => {
                self.is_behind = true;
                self.refuse(waiting, error);
            }
        }
        Ok(Vec::new())
    }

    /// Adds groups that the store has and the view lacks, because their outcome was unknown.
    fn catch_up(&mut self) -> Result<Result<(), StoreError>, CannotGoOn> {
        loop {
            let after = self.shared.read().digests.head;
            match self.store.follow(after, MAX_GROUP) {
                Ok(groups) if groups.is_empty() => {
                    self.is_behind = false;
                    self.seal_at = Some(Instant::now() + SEAL_AFTER);
                    return Ok(Ok(()));
                }
                Ok(groups) => {
                    for group in groups {
                        self.publish(group.records)?;
                    }
                }
                Err(FollowError::Store(error)) => {
                    self.seal_at = Some(Instant::now() + TRY_AGAIN_AFTER);
                    return Ok(Err(error));
                }
                Err(FollowError::Outrun) => {
                    return Err(self.give_up(
                        "it stood still or was cut off for so long that other replicas have compacted the log beyond what \
                         it has. Start it again"
                            .to_owned(),
                    ));
                }
                Err(FollowError::NotContinued) => {
                    return Err(self.give_up(format!(
                        "its store lacks acknowledged records, because it was replaced by an older copy. Serve the \
                         newest one; or, if it is lost, stop every control plane and start one with --restored {} \
                         (docs/operate/backup.md#restore)",
                        self.shared.log_id
                    )));
                }
            }
        }
    }

    /// Refuses requests that the store has not taken.
    fn refuse(&self, waiting: Vec<Waiting>, error: StoreError) {
        *self.shared.fault() = Some(error.to_string());
        self.metrics.log_writable.set(0);
        tracing::error!(%error, "a revocation was NOT acknowledged because the log cannot be written");
        let error = Arc::new(error);
        for (order, answer) in waiting {
            self.answer(&order, answer, Err(RevokeError::Storage(Arc::clone(&error))));
        }
    }

    /// Acknowledges nothing, and ends the process: only the operator knows which folder is the right one.
    fn lose_folder(&self, lost: &FolderLost, waiting: Vec<Waiting>) -> CannotGoOn {
        *self.shared.fault() = Some(lost.to_string());
        self.metrics.log_writable.set(0);
        tracing::error!(%lost, "a revocation was NOT acknowledged");
        self.alarm.raise(Failure::FolderLost(lost.clone()));
        for (order, answer) in waiting {
            self.answer(&order, answer, Err(RevokeError::FolderLost(lost.clone())));
        }
        CannotGoOn
    }

    fn give_up(&self, reason: String) -> CannotGoOn {
        tracing::error!(
            reason,
            "the revocation log cannot continue; no revocation is accepted until a restart"
        );
        *self.shared.fault() = Some(format!("the revocation log cannot continue: {reason}"));
        CannotGoOn
    }

    fn plan(&self, order: &Order, planned: usize) -> Result<Plan, RevokeError> {
        let random = getrandom::u32().map_err(RevokeError::Random)?;
        let room = Room {
            max_subjects: self.max_subjects,
            planned,
        };
        let now = self.dates.stamp(unix_seconds(), Instant::now());
        let view = self.shared.read();
        Ok(view.state.plan(&order.operation, order.by.source, now, random, room)?)
    }

    /// Makes durable records readable, and wakes the streams.
    fn publish(&mut self, records: Vec<EncodedRecord>) -> Result<(), CannotGoOn> {
        let mut view = self.shared.write();
        let appended = records.into_iter().try_for_each(|record| view.append(record));
        let head = view.head();
        drop(view);
        self.shared.announce(head);
        // Our own plan was just stored. If the state refuses it, that is a bug, and the writer must stop.
        appended.map_err(|reason| self.give_up(format!("it refused its own record: {reason}")))?;
        *self.shared.fault() = None;
        self.metrics.log_writable.set(1);
        self.report();
        Ok(())
    }

    fn answer(&self, order: &Order, answer: Answer, result: Result<Receipt, RevokeError>) {
        let operation = order.operation.name();
        let source = order.by.source.name();
        let outcome = match &result {
            Ok(receipt) if receipt.changed => "changed",
            Ok(_) => "unchanged",
            Err(_) => "refused",
        };
        self.metrics
            .revocations
            .get_or_create(&labels([
                ("operation", operation),
                ("source", source),
                ("outcome", outcome),
            ]))
            .inc();
        let (subject, reason, by) = (
            order.operation.subject().to_string(),
            order.reason.as_deref(),
            order.by.name.as_str(),
        );
        let said = result.as_ref().map(|receipt| receipt.seq).map_err(ToString::to_string);
        // This comes before the log line, which must not delay the acknowledgement of a durable revocation. The caller
        // may have gone; the revocation stays durable.
        let _ = answer.send(result);
        match said {
            Ok(seq) => tracing::info!(
                operation,
                subject,
                reason,
                source,
                by,
                outcome,
                seq,
                "revocation acknowledged"
            ),
            Err(error) => tracing::warn!(operation, subject, reason, source, by, error, "revocation refused"),
        }
    }

    /// Searches a part of the subjects for delegations whose tokens have all expired. Every subject has its turn within
    /// an hour.
    fn forget(&mut self, due: Forgotten) {
        let clock = self.forgetting.clock;
        let shards = self.forget_next..self.forget_next + SHARDS_AT_A_TIME;
        self.forget_next = if shards.end < State::SHARDS { shards.end } else { 0 };
        let forgotten = self
            .shared
            .write()
            .state
            .forget(shards, |revoked_at| due.covers(revoked_at));
        self.metrics.log_forgotten.inc_by(forgotten as u64);
        let lag = unix_seconds().saturating_sub(clock.at(Instant::now()));
        self.metrics.log_clock_lag_seconds.set(lag);
        self.report();
    }

    fn report(&self) {
        let view = self.shared.read();
        self.metrics.log_seq.set(view.head() as i64);
        self.metrics.log_subjects.set(view.state.subjects as i64);
        self.metrics.log_bytes.set(self.store.bytes() as i64);
    }
}

/// Answers the waiting requests, of which none was executed.
fn turn_away(first: Option<Request>, queue: &Receiver<Request>) {
    for request in first.into_iter().chain(queue.try_iter()) {
        if let Request::Perform { answer, .. } = request {
            // The caller may have gone.
            let _ = answer.send(Err(RevokeError::Stopping));
        }
    }
}

/// How often a group is planned while other replicas append.
const ATTEMPTS: u32 = 64;
/// Requests that may wait for the disk. The next one is refused as busy.
const QUEUE: usize = 4096;
/// Operations that become durable with one sync.
const MAX_GROUP: usize = 256;
/// How long after the last group it is sealed. Until then, damage to the file's header can remove that group.
const SEAL_AFTER: Duration = Duration::from_millis(100);
/// How often the writer tries to read the store again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long steps of a compaction wait while requests are there.
const LONGEST_DELAY: Duration = Duration::from_millis(50);
/// How often the clock is saved and some delegations are forgotten.
const ROUND: Duration = Duration::from_secs(60);
/// Shards searched each minute: all of them within an hour.
const SHARDS_AT_A_TIME: usize = State::SHARDS / 60 + 1;

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
