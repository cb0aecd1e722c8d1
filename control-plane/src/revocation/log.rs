//! The revocation log's one writer, and the handle that everybody else has.
//!
//! Requests queue to a thread that plans a group of them, writes the group as one frame, syncs it, publishes it to
//! the [`View`] that streams read, wakes the streams, and only then answers. An answer therefore means: durable, and
//! on its way to every live subscriber, ahead of any pong they will get.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use credence_wire::v1;
use tokio::sync::{mpsc, oneshot, watch};

use super::dating::Dating;
use super::digest::Digest;
use super::state::{EpochStep, Plan, PlanError, Room};
use super::storage::{EncodedRecord, Storage};
use super::subject::{Operation, Order};
use super::view::{FellBehind, ForeignPosition, Snapshot, Start, View};
use crate::data_folder::LogId;
use crate::frames::AppendError;
use crate::metrics::{Metrics, Revocation};
use crate::supervision::{Alarm, Guard};

/// The log as the services see it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RevocationLog {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// What a durable, broadcast operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The record that made it so.
    pub(crate) seq: u64,
    /// The principal's epoch, where the operation was about a principal.
    pub(crate) epoch: Option<u64>,
    /// Whether that record is new.
    pub(crate) changed: bool,
}

/// Why an operation was not acknowledged. Unless it says so, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RevokeError {
    #[error("the control plane is stopping; send the request again once it is back")]
    Stopping,
    #[error(
        "before it stopped, the control plane promised the filters that nothing would be revoked for a while, so that \
         they need not refuse traffic during the restart; send the request again in {}s", retry_after.as_secs().max(1)
    )]
    Promised { retry_after: Duration },
    #[error(
        "the outcome is unknown, because the part that writes the revocation log has ended; send the request again \
         once the control plane is back (repeating is harmless)"
    )]
    Unknown,
    #[error("too many revocations are waiting for the disk; send the request again")]
    Busy,
    #[error(
        "the revocation could not be made durable, and is not acknowledged; it may or may not be in force after a \
         restart, so send it again then. {0}"
    )]
    Storage(Arc<AppendError>),
    #[error("no randomness for the new epoch: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// How the writer is started.
#[derive(Debug)]
pub(crate) struct WriterOptions {
    pub(crate) log_id: LogId,
    pub(crate) max_subjects: usize,
    /// Nothing is acknowledged before this instant.
    pub(crate) opens_at: Instant,
}

/// Stops the writer when told to, or when dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    log: RevocationLog,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    log_id: LogId,
    view: RwLock<View>,
    head: watch::Sender<u64>,
    /// A recent snapshot, shared by every stream that starts from it.
    snapshot: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
    /// Why nothing can be written, if so.
    fault: Mutex<Option<String>>,
    stopping: AtomicBool,
}

#[derive(Debug)]
enum Request {
    Perform {
        order: Order,
        answer: oneshot::Sender<Result<Receipt, RevokeError>>,
    },
    /// Wakes the writer up so that it sees that it is to stop.
    Stop,
}

/// Starts the writer thread over an opened log.
pub(crate) fn start(
    storage: Storage,
    view: View,
    options: WriterOptions,
    metrics: Arc<Metrics>,
    alarm: &Alarm,
) -> std::io::Result<(RevocationLog, Writer)> {
    let (requests, queue) = mpsc::channel(QUEUE);
    let shared = Arc::new(Shared {
        log_id: options.log_id,
        head: watch::Sender::new(view.head()),
        view: RwLock::new(view),
        snapshot: tokio::sync::Mutex::new(None),
        fault: Mutex::new(None),
        stopping: AtomicBool::new(false),
    });
    let log = RevocationLog {
        shared: Arc::clone(&shared),
        requests,
    };
    let mut ending = Ending {
        shared: Arc::clone(&shared),
        metrics: Arc::clone(&metrics),
        guard: alarm.guard("the revocation log's writer"),
    };
    let mut writing = Writing {
        storage,
        shared,
        metrics,
        max_subjects: options.max_subjects,
        opens_at: options.opens_at,
        clock: Dating::since_now(),
    };
    writing.report();
    writing.metrics.log_writable.set(1);
    let thread = std::thread::Builder::new()
        .name("revocation-log".to_owned())
        .spawn(move || {
            if writing.run(queue).is_ok() {
                ending.guard.planned();
            }
        })?;
    Ok((
        log.clone(),
        Writer {
            log,
            thread: Some(thread),
        },
    ))
}

// === impl RevocationLog ===

impl RevocationLog {
    pub(crate) fn log_id(&self) -> &LogId {
        &self.shared.log_id
    }

    /// Sequence number of the last durable record.
    pub(crate) fn head(&self) -> u64 {
        *self.shared.head.borrow()
    }

    /// Changes whenever a record became durable and readable.
    pub(crate) fn watch_head(&self) -> watch::Receiver<u64> {
        self.shared.head.subscribe()
    }

    /// Carries an order out. It is durable and broadcast when this returns `Ok`.
    pub(crate) async fn perform(&self, order: Order) -> Result<Receipt, RevokeError> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(RevokeError::Stopping);
        }
        let (answer, answered) = oneshot::channel();
        self.requests
            .try_send(Request::Perform { order, answer })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => RevokeError::Busy,
                mpsc::error::TrySendError::Closed(_) if self.shared.stopping.load(Ordering::Acquire) => {
                    RevokeError::Stopping
                }
                mpsc::error::TrySendError::Closed(_) => RevokeError::Unknown,
            })?;
        // A writer that stops as planned answers whatever still waits; only one that broke down says nothing.
        answered.await.unwrap_or(Err(RevokeError::Unknown))
    }

    /// The last durable record's sequence number, and the digest of the history up to it.
    pub(crate) fn position(&self) -> (u64, Digest) {
        let view = self.shared.read();
        (view.head(), view.digest())
    }

    /// Where a client goes on that has applied the log up to `applied`.
    pub(crate) fn resume(&self, applied: Option<&v1::Position>) -> Result<Start, ForeignPosition> {
        self.shared.read().start(applied)
    }

    /// At most `limit` updates after `seq`, and the head that they were read under.
    pub(crate) fn updates_after(&self, seq: u64, limit: usize) -> Result<(Vec<Arc<v1::Update>>, u64), FellBehind> {
        let view = self.shared.read();
        Ok((view.updates_after(seq, limit)?, view.head()))
    }

    /// A snapshot from which the updates to the head are in memory. Thousands of clients that connect at once share
    /// one.
    pub(crate) async fn snapshot(&self) -> Result<Arc<Snapshot>, tokio::task::JoinError> {
        let mut cached = self.shared.snapshot.lock().await;
        if let Some(snapshot) = cached
            .as_ref()
            .filter(|snapshot| self.shared.read().is_recent(snapshot.seq))
        {
            return Ok(Arc::clone(snapshot));
        }
        let shared = Arc::clone(&self.shared);
        let snapshot = Arc::new(tokio::task::spawn_blocking(move || shared.read().snapshot()).await?);
        *cached = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// Why revocations are refused at the moment, if they are because of the disk.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.shared.fault).clone()
    }
}

// === impl Writer ===

impl Writer {
    /// From now on nothing is acknowledged. Returns when the last operation that still was is durable.
    pub(crate) async fn stop(mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself; an error would be its panic, which it has reported.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn signal(&self) {
        self.log.shared.stopping.store(true, Ordering::Release);
        // A full queue keeps the writer awake, and it looks at the flag before each group.
        let _ = self.log.requests.try_send(Request::Stop);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, View> {
        // Nothing panics while it holds the lock for writing; and if it did, the view is only ever appended to.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says so, loudly, when the thread ends without having been told to.
#[derive(Debug)]
struct Ending {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    guard: Guard,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(failure) = self.guard.failure() {
            lock(&self.shared.fault).get_or_insert_with(|| failure.to_string());
            self.metrics.log_writable.set(0);
        }
    }
}

/// The writer can not go on: its own plan was refused.
#[derive(Debug)]
struct Bewildered;

/// What the writer thread owns.
#[derive(Debug)]
struct Writing {
    storage: Storage,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    max_subjects: usize,
    opens_at: Instant,
    clock: Dating,
}

/// Operations that will become durable together. They touch different subjects, so that each can be planned against
/// the durable state.
#[derive(Debug, Default)]
struct Group(Vec<(Order, oneshot::Sender<Result<Receipt, RevokeError>>)>);

// === impl Writing ===

impl Writing {
    /// Returns when it is told to stop.
    fn run(&mut self, mut queue: mpsc::Receiver<Request>) -> Result<(), Bewildered> {
        let mut next = None;
        loop {
            let request = match next.take() {
                Some(request) => Some(request),
                None => queue.blocking_recv(),
            };
            let (order, answer) = match request {
                Some(Request::Perform { order, answer }) if !self.shared.stopping.load(Ordering::Acquire) => {
                    (order, answer)
                }
                last => {
                    turn_away(last, &mut queue);
                    return Ok(());
                }
            };
            let mut group = Group::default();
            group.0.push((order, answer));
            while group.0.len() < MAX_GROUP {
                match queue.try_recv() {
                    Ok(Request::Perform { order, answer }) if !group.touches(&order.operation) => {
                        group.0.push((order, answer));
                    }
                    Ok(other) => {
                        next = Some(other);
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.perform(group)?;
        }
    }

    fn perform(&mut self, group: Group) -> Result<(), Bewildered> {
        let mut records = Vec::new();
        let mut waiting = Vec::new();
        for (order, answer) in group.0 {
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
                    waiting.push((order, answer, epoch));
                }
                Err(error) => self.answer(&order, answer, Err(error)),
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let appended = self.storage.append(&records);
        self.metrics.log_sync_seconds.observe(begun.elapsed().as_secs_f64());
        match appended {
            Ok(()) => match self.publish(records) {
                Ok(before) => {
                    for ((order, answer, epoch), seq) in waiting.into_iter().zip(before + 1..) {
                        self.answer(
                            &order,
                            answer,
                            Ok(Receipt {
                                seq,
                                epoch,
                                changed: true,
                            }),
                        );
                    }
                }
                Err(reason) => {
                    // Our own plan was just written. A state that refuses it is a bug; go no further on it.
                    *lock(&self.shared.fault) = Some(format!("the log refused its own record: {reason}"));
                    tracing::error!(
                        reason,
                        "the log refused its own record; no revocation is accepted until a restart"
                    );
                    return Err(Bewildered);
                }
            },
            Err(error) => {
                *lock(&self.shared.fault) = Some(error.to_string());
                self.metrics.log_writable.set(0);
                let error = Arc::new(error);
                for (order, answer, _) in waiting {
                    self.answer(&order, answer, Err(RevokeError::Storage(Arc::clone(&error))));
                }
                tracing::error!(%error, "a revocation was NOT acknowledged because the log can not be written");
            }
        }
        Ok(())
    }

    fn plan(&self, order: &Order, planned: usize) -> Result<Plan, RevokeError> {
        let retry_after = self.opens_at.saturating_duration_since(Instant::now());
        if !retry_after.is_zero() {
            return Err(RevokeError::Promised { retry_after });
        }
        let step = EpochStep::from_random(getrandom::u32().map_err(RevokeError::Random)?);
        let room = Room {
            max_subjects: self.max_subjects,
            planned,
        };
        let view = self.shared.read();
        Ok(view
            .state()
            .plan(&order.operation, order.by.source, self.clock.now(), step, room)?)
    }

    /// Makes durable records readable and wakes the streams. Returns the sequence number before the first.
    fn publish(&mut self, records: Vec<EncodedRecord>) -> Result<u64, &'static str> {
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let before = view.head();
        let appended = records.into_iter().try_for_each(|record| view.append(record));
        let head = view.head();
        drop(view);
        self.shared.head.send_replace(head);
        appended?;
        *lock(&self.shared.fault) = None;
        self.metrics.log_writable.set(1);
        self.report();
        Ok(before)
    }

    fn answer(
        &self,
        order: &Order,
        answer: oneshot::Sender<Result<Receipt, RevokeError>>,
        result: Result<Receipt, RevokeError>,
    ) {
        let operation = order.operation.name();
        let source = order.by.source.name();
        let outcome = match &result {
            Ok(receipt) if receipt.changed => "changed",
            Ok(_) => "unchanged",
            Err(_) => "refused",
        };
        self.metrics
            .revocations
            .get_or_create(&Revocation {
                operation,
                source,
                outcome,
            })
            .inc();
        let said = result.as_ref().map(|receipt| receipt.seq).map_err(ToString::to_string);
        // Before the log line, which must not come between a durable revocation and its acknowledgement. Whoever
        // asked may have gone; what is durable stays so.
        let _ = answer.send(result);
        match said {
            Ok(seq) => tracing::info!(
                operation,
                source,
                by = order.by.name,
                outcome,
                seq,
                "revocation acknowledged"
            ),
            Err(error) => tracing::warn!(operation, source, by = order.by.name, error, "revocation refused"),
        }
    }

    fn report(&self) {
        let view = self.shared.read();
        self.metrics.log_seq.set(view.head() as i64);
        self.metrics.log_subjects.set(view.state().subjects() as i64);
        self.metrics.log_bytes.set(self.storage.bytes() as i64);
    }
}

// === impl Group ===

impl Group {
    fn touches(&self, operation: &Operation) -> bool {
        self.0.iter().any(|(other, _)| other.operation.same_subject(operation))
    }
}

/// Answers whatever still waits: nothing of it was done.
fn turn_away(first: Option<Request>, queue: &mut mpsc::Receiver<Request>) {
    queue.close();
    let mut next = first;
    loop {
        match next.or_else(|| queue.try_recv().ok()) {
            Some(Request::Perform { answer, .. }) => {
                // Whoever asked may have gone.
                let _ = answer.send(Err(RevokeError::Stopping));
            }
            Some(Request::Stop) => {}
            None => return,
        }
        next = None;
    }
}

/// Seconds since the Unix epoch; 0 before it.
pub(crate) fn unix_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests that may wait for the disk; the next one is refused as busy.
const QUEUE: usize = 4096;
/// Operations that become durable with one sync.
const MAX_GROUP: usize = 256;
