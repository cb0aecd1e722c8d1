//! The revocation log's one writer, and the handle that everybody else has.
//!
//! Requests queue to a thread that plans a group of them, writes the group as one frame, syncs it, publishes it to
//! the [`View`] that streams read, wakes the streams, and only then answers. An answer therefore means: durable, and
//! on its way to every live subscriber, ahead of any pong they will get. When all of them have applied it, [`Leases`] says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use credence_runtime::metrics::labels;
use credence_runtime::supervision::{Alarm, Failure, Guard};
use credence_runtime::time::unix_seconds;

use bytes::Bytes;
use credence_wire::v1;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Forgetting, Forgotten};
use crate::data_folder::{LogId, LogNotes};
use crate::dating::Dating;
use crate::digest::Digest;
use crate::groups::Groups;
use crate::history::{Histories, History, HistoryError, Indexing};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::provenance::Provenance;
use crate::snapshot::Snapshot;
use crate::state::{EpochStep, Now, Plan, PlanError, PrincipalState, Room};
use crate::status::Knowledge;
use crate::storage::{Compacted, Cut, EncodedRecord, Storage, is_worth_compacting};
use crate::subject::{Operation, Order, PrincipalName};
use crate::table::Table;
use crate::upkeep::Upkeep;
use crate::view::{FellBehind, ForeignPosition, Start, View};
use credence_storage::folder_lock::{FolderLost, FolderWatch};
use credence_storage::frames::{AppendError, FrameError};

/// The log as the services see it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RevocationLog {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// What a durable, broadcast operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The record that made it so.
    pub seq: u64,
    /// The principal's epoch, where the operation was about a principal.
    pub epoch: Option<u64>,
    /// Whether that record is new.
    pub changed: bool,
}

/// Why an operation was not acknowledged. Unless it says so, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    #[error("the control plane is stopping; send the request again once it is back")]
    Stopping,
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
    #[error("the revocation is not acknowledged. {0}")]
    FolderLost(FolderLost),
    #[error("no randomness for the new epoch: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// How the writer is started.
#[derive(Debug)]
pub struct WriterOptions {
    pub log_id: LogId,
    pub max_subjects: usize,
    /// Nothing is acknowledged once this is another folder.
    pub folder: FolderWatch,
    /// Who is told of what becomes durable.
    pub leases: Leases,
    pub forgetting: Forgetting,
    pub notes: LogNotes,
    /// The file is not compacted below this size, in bytes.
    pub compact_above: u64,
    /// Where a compacted file is made.
    pub compacting_path: PathBuf,
    pub history_path: PathBuf,
    /// Entries of each principal's history that are kept.
    pub history_kept: usize,
}

/// Why the log can not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartLogError {
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error(transparent)]
    File(#[from] FrameError),
}

/// Stops the writer when told to, or when dropped.
#[derive(Debug)]
pub struct Writer {
    log: RevocationLog,
    /// The writer's own, then those that work behind it.
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    log_id: LogId,
    view: RwLock<View>,
    head: watch::Sender<u64>,
    leases: Leases,
    forgetting: Forgetting,
    histories: Histories,
    /// A recent snapshot, shared by every stream that starts from it.
    /// And when it was made.
    snapshot: tokio::sync::Mutex<Option<(Arc<Snapshot>, Instant)>>,
    /// Why nothing can be written, if so.
    fault: Mutex<Option<String>>,
    stopping: AtomicBool,
}

#[derive(Debug)]
pub(super) enum Request {
    Perform {
        order: Order,
        answer: oneshot::Sender<Result<Receipt, RevokeError>>,
    },
    /// What came of the compaction that the writer has asked for: a file to go on in.
    Compacted(Option<Compacted>),
    /// Forget some of the delegations of which this has been noted.
    Forget(Forgotten),
    /// Wakes the writer up so that it sees that it is to stop.
    Stop,
}

/// Starts the writer thread over an opened log, and those that work behind it.
pub fn start(
    storage: Storage,
    mut view: View,
    options: WriterOptions,
    metrics: Arc<Metrics>,
    alarm: &Alarm,
) -> Result<(RevocationLog, Writer), StartLogError> {
    let (requests, queue) = mpsc::channel(QUEUE);
    let began = Instant::now();
    let mut forgetting = options.forgetting;
    let due = forgetting.due(began);
    if let Some(due) = note_forgotten(&mut forgetting.forgotten, due, &options.notes) {
        let forgotten = view.forget(0..Table::SHARDS, |revoked_at| due.covers(revoked_at));
        metrics.log_forgotten.inc_by(forgotten as u64);
    }
    let announced = forgetting.announced(began);
    if announced < forgetting.max_token_lifetime {
        tracing::warn!(
            configured_s = forgetting.max_token_lifetime,
            announced_s = announced,
            "--max-token-lifetime was raised; filters are told a shorter one until no token can carry a delegation that \
             was forgotten before. Clients learn of it as they reconnect"
        );
    }
    let groups = Arc::new(Groups::new(
        storage.reader()?,
        storage.groups_from(),
        storage.bytes(),
        view.head(),
    ));
    let histories = Histories::new();
    let shared = Arc::new(Shared {
        log_id: options.log_id.clone(),
        head: watch::Sender::new(view.head()),
        view: RwLock::new(view),
        leases: options.leases,
        forgetting,
        histories: histories.clone(),
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
        groups: Arc::clone(&groups),
        metrics: Arc::clone(&metrics),
        guard: alarm.guard("the revocation log's writer"),
    };
    let (to_upkeep, cuts) = std::sync::mpsc::sync_channel(1);
    let mut writing = Writing {
        storage,
        shared: Arc::clone(&shared),
        groups: Arc::clone(&groups),
        metrics: Arc::clone(&metrics),
        max_subjects: options.max_subjects,
        folder: options.folder,
        alarm: alarm.clone(),
        compact_above: options.compact_above,
        compaction: Compaction::Idle { not_before: began },
        upkeep: to_upkeep,
        forget_next: 0,
        dating: Dating::since_now(&forgetting.clock),
    };
    writing.report();
    writing.metrics.log_writable.set(1);
    let upkeep = Upkeep {
        path: options.compacting_path,
        groups: Arc::clone(&groups),
        histories: histories.clone(),
        notes: options.notes,
        forgetting,
        log: log.clone(),
        metrics: Arc::clone(&metrics),
    };
    let indexing = Indexing {
        path: options.history_path,
        log_id: options.log_id,
        kept: options.history_kept,
        groups,
        histories,
        metrics,
    };
    let spawn =
        |name: &str, work: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.to_owned()).spawn(work);
    let threads = vec![
        spawn(
            "revocation-log",
            Box::new(move || {
                if writing.run(queue).is_ok() {
                    ending.guard.planned();
                }
            }),
        )?,
        spawn("log-upkeep", Box::new(move || upkeep.run(&cuts)))?,
        spawn(
            "log-history",
            Box::new(move || indexing.run(|seq, digest| shared.read().trail().standing(seq, digest))),
        )?,
    ];
    Ok((log.clone(), Writer { log, threads }))
}

/// Notes what is due to be forgotten, unless the note goes as far already. Returns what may be forgotten; nothing where
/// it can not be noted, since a longer lifetime would then be believed too early after a restart.
pub(super) fn note_forgotten(noted: &mut Option<Forgotten>, due: Forgotten, notes: &LogNotes) -> Option<Forgotten> {
    if noted.is_some_and(|noted| noted.before >= due.before) {
        return Some(due);
    }
    match notes.note_forgotten(due) {
        Ok(()) => {
            *noted = Some(due);
            Some(due)
        }
        Err(error) => {
            tracing::warn!(%error, "what is to be forgotten could not be noted, and is kept until it can");
            None
        }
    }
}

// === impl RevocationLog ===

impl RevocationLog {
    pub fn log_id(&self) -> &LogId {
        &self.shared.log_id
    }

    /// Who may still be fresh, and what they have applied.
    pub fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    /// Sequence number of the last durable record.
    pub fn head(&self) -> u64 {
        *self.shared.head.borrow()
    }

    /// Changes whenever a record became durable and readable.
    pub fn watch_head(&self) -> watch::Receiver<u64> {
        self.shared.head.subscribe()
    }

    /// Carries an order out. It is durable and broadcast when this returns `Ok`; [`Leases::confirmed`] says when every filter
    /// has applied it.
    pub async fn perform(&self, order: Order) -> Result<Receipt, RevokeError> {
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

    /// Where a client goes on that shows this proof of its position, or none.
    pub fn resume_at_proof(&self, seq: u64, proof: &[u8]) -> Result<Start, ForeignPosition> {
        self.shared.read().start_at_proof(seq, proof)
    }

    /// What proves a position of this log, if it is still known.
    pub fn proof_of(&self, seq: u64) -> Option<Vec<u8>> {
        self.shared.read().proof_of(seq)
    }

    /// Whether this log gave out a position that it no longer has.
    pub(crate) fn gave_out(&self, position: &v1::Position) -> bool {
        self.shared.read().gave_out(position)
    }

    /// At most `limit` updates after `seq`, and the head that they were read under.
    pub fn updates_after(&self, seq: u64, limit: usize) -> Result<(Vec<Arc<v1::Update>>, u64), FellBehind> {
        let (updates, head) = self.encoded_updates_after(seq, limit)?;
        // What we have encoded ourselves is an update.
        let decoded = updates.into_iter().filter_map(|update| v1::Update::decode(update).ok());
        Ok((decoded.map(Arc::new).collect(), head))
    }

    /// As [`RevocationLog::updates_after`], each an encoded [`v1::Update`].
    pub(crate) fn encoded_updates_after(&self, seq: u64, limit: usize) -> Result<(Vec<Bytes>, u64), FellBehind> {
        let view = self.shared.read();
        Ok((view.updates_after(seq, limit)?, view.head()))
    }

    /// Whether the updates after `seq` are in memory.
    pub(crate) fn covers(&self, seq: u64) -> bool {
        self.shared.read().covers(seq)
    }

    /// What `ask` makes of what the log knows at its head, whose sequence number it is given.
    pub fn read<R>(&self, ask: impl FnOnce(Knowledge<'_>, u64) -> R) -> R {
        let view = self.shared.read();
        let knowledge = Knowledge {
            state: view.state(),
            max_token_lifetime: self.max_token_lifetime(),
        };
        ask(knowledge, view.head())
    }

    /// A snapshot from which the updates to the head are in memory. Thousands of clients that connect at once share
    /// one; while it is made, revocations go on. A client that has applied more than it holds takes none of it, so that one
    /// that is not of the head serves for a short time only.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, tokio::task::JoinError> {
        let mut cached = self.shared.snapshot.lock().await;
        if let Some((snapshot, made)) = cached.as_ref()
            && self.shared.read().is_recent(snapshot.seq)
            && (snapshot.seq == self.head() || made.elapsed() < SNAPSHOT_INTERVAL)
        {
            return Ok(Arc::clone(snapshot));
        }
        // Its memory is free for the next one, unless a stream still reads it.
        *cached = None;
        let frozen = self.shared.read().freeze();
        let snapshot = Arc::new(tokio::task::spawn_blocking(move || Snapshot::of(&frozen)).await?);
        *cached = Some((Arc::clone(&snapshot), Instant::now()));
        Ok(snapshot)
    }

    /// What is in force about a principal; nothing at all is as if he were at epoch 0.
    pub fn principal(&self, name: &PrincipalName) -> PrincipalState {
        self.shared.read().state().principal(name).unwrap_or_default()
    }

    /// What was done to a principal, newest first.
    pub async fn history(&self, name: &PrincipalName, limit: usize) -> Result<History, HistoryError> {
        self.shared.histories.of(name, self.head(), limit).await
    }

    /// The longest lifetime of a token that may be believed now, in seconds.
    pub fn max_token_lifetime(&self) -> u64 {
        self.shared.forgetting.announced(Instant::now())
    }

    /// For those who work behind the writer: waits where the queue is full. False if the writer has ended.
    pub(super) fn ask(&self, request: Request) -> bool {
        self.requests.blocking_send(request).is_ok()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire)
    }

    /// Why revocations are refused at the moment, if they are because of the disk.
    pub fn fault(&self) -> Option<String> {
        lock(&self.shared.fault).clone()
    }
}

// === impl Writer ===

impl Writer {
    /// From now on nothing is acknowledged. Returns when the last operation that still was is durable.
    pub async fn stop(mut self) {
        self.signal();
        let threads = std::mem::take(&mut self.threads);
        // The threads end by themselves; an error would be a panic, which has been reported.
        let _ = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join()))).await;
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
        for thread in std::mem::take(&mut self.threads) {
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
    groups: Arc<Groups>,
    metrics: Arc<Metrics>,
    guard: Guard,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.groups.finish();
        if let Some(failure) = self.guard.failure() {
            lock(&self.shared.fault).get_or_insert_with(|| failure.to_string());
            self.metrics.log_writable.set(0);
        }
    }
}

/// The writer cannot go on: its own plan was refused, or its folder is lost.
#[derive(Debug)]
struct Bewildered;

/// What the writer thread owns.
#[derive(Debug)]
struct Writing {
    storage: Storage,
    shared: Arc<Shared>,
    groups: Arc<Groups>,
    metrics: Arc<Metrics>,
    max_subjects: usize,
    folder: FolderWatch,
    alarm: Alarm,
    compact_above: u64,
    compaction: Compaction,
    upkeep: std::sync::mpsc::SyncSender<Box<Cut>>,
    /// The first of the table's shards that is looked through next for what may be forgotten.
    forget_next: usize,
    dating: Dating,
}

/// Whether a compacted file is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compaction {
    /// No; after a failure not again before some instant.
    Idle {
        not_before: Instant,
    },
    Running,
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
                last if self.shared.stopping.load(Ordering::Acquire) => {
                    turn_away(last, &mut queue);
                    return Ok(());
                }
                Some(Request::Perform { order, answer }) => (order, answer),
                Some(Request::Compacted(compacted)) => {
                    self.switch(compacted);
                    continue;
                }
                Some(Request::Forget(forgotten)) => {
                    self.forget(forgotten);
                    self.consider_compacting();
                    continue;
                }
                last @ (Some(Request::Stop) | None) => {
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
            self.consider_compacting();
        }
    }

    fn perform(&mut self, group: Group) -> Result<(), Bewildered> {
        // What is in force already is acknowledged without being written.
        if let Err(lost) = self.folder.check() {
            return Err(self.lose_folder(&lost, group.0));
        }
        let mut records = Vec::new();
        let mut provenance = Vec::new();
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
                    provenance.push(Provenance::of(&order, unix_seconds()));
                    waiting.push((order, answer, epoch));
                }
                Err(error) => self.answer(&order, answer, Err(error)),
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let appended = self.storage.append(&records, &provenance);
        self.metrics.log_sync_seconds.observe(begun.elapsed().as_secs_f64());
        if let (Ok(()), Err(lost)) = (&appended, self.folder.check()) {
            let waiting = waiting.into_iter().map(|(order, answer, _)| (order, answer));
            return Err(self.lose_folder(&lost, waiting));
        }
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

    /// Acknowledges nothing, and has the process end: only the operator knows which folder is the right one.
    fn lose_folder(
        &self,
        lost: &FolderLost,
        waiting: impl IntoIterator<Item = (Order, oneshot::Sender<Result<Receipt, RevokeError>>)>,
    ) -> Bewildered {
        *lock(&self.shared.fault) = Some(lost.to_string());
        self.metrics.log_writable.set(0);
        tracing::error!(%lost, "a revocation was NOT acknowledged");
        self.alarm.raise(Failure::FolderLost(lost.clone()));
        for (order, answer) in waiting {
            self.answer(&order, answer, Err(RevokeError::FolderLost(lost.clone())));
        }
        Bewildered
    }

    fn plan(&self, order: &Order, planned: usize) -> Result<Plan, RevokeError> {
        let step = EpochStep::from_random(getrandom::u32().map_err(RevokeError::Random)?);
        let room = Room {
            max_subjects: self.max_subjects,
            planned,
        };
        let wall = self.dating.now();
        let now = Now {
            wall,
            stamp: self.shared.forgetting.clock.stamp(wall, Instant::now()),
        };
        let view = self.shared.read();
        Ok(view.state().plan(&order.operation, order.by.source, now, step, room)?)
    }

    /// Makes durable records readable and wakes the streams. Returns the sequence number before the first.
    fn publish(&mut self, records: Vec<EncodedRecord>) -> Result<u64, &'static str> {
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let before = view.head();
        let appended = records.into_iter().try_for_each(|record| view.append(record));
        let head = view.head();
        drop(view);
        // Before anything shows the entries: an echo behind them must not be granted without them.
        self.shared.leases.publish(head, Instant::now());
        self.shared.head.send_replace(head);
        self.groups.reach(self.storage.bytes(), head);
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
            .get_or_create(&labels([
                ("operation", operation),
                ("source", source),
                ("outcome", outcome),
            ]))
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

    /// Has the file compacted in the background, once it has grown far beyond what it has to hold.
    fn consider_compacting(&mut self) {
        let Compaction::Idle { not_before } = self.compaction else {
            return;
        };
        if self.folder.check().is_err() {
            return;
        }
        let view = self.shared.read();
        let needed = view.state().stored_bytes() + view.trail().len() as u64 * 8;
        let bytes = self.storage.bytes();
        if !is_worth_compacting(bytes, needed, self.compact_above)
            || self.storage.is_broken()
            || Instant::now() < not_before
        {
            return;
        }
        let frozen = view.freeze();
        drop(view);
        let cut = Cut {
            log_id: self.shared.log_id.clone(),
            state: frozen.state,
            trail: frozen.trail,
            offset: bytes,
        };
        if self.upkeep.try_send(Box::new(cut)).is_ok() {
            self.compaction = Compaction::Running;
        }
    }

    /// Goes on in the compacted file, if there is one.
    fn switch(&mut self, compacted: Option<Compacted>) {
        let begun = Instant::now();
        let present = self.groups.extent().file;
        if let Err(lost) = self.folder.check() {
            tracing::error!(%lost, "the revocation log was not compacted");
            return;
        }
        let switched = match compacted {
            Some(compacted) => self.storage.switch(compacted, &present, &mut |_| Ok(())),
            None => Err(std::io::Error::other("no compacted file could be made")),
        };
        match switched {
            Ok(reader) => {
                self.groups
                    .switch(reader, self.storage.groups_from(), self.storage.bytes());
                self.metrics.log_compactions.inc();
                let paused = begun.elapsed();
                self.metrics.log_compaction_pause_seconds.observe(paused.as_secs_f64());
                tracing::info!(
                    bytes = self.storage.bytes(),
                    ?paused,
                    "the revocation log has been compacted"
                );
                self.compaction = Compaction::Idle { not_before: begun };
            }
            Err(error) => {
                self.metrics.log_compaction_failures.inc();
                self.compaction = Compaction::Idle {
                    not_before: begun + COMPACT_AGAIN,
                };
                if self.storage.is_broken() {
                    let fault = "the compacted revocation log could not be made durable; mend the volume, then restart";
                    *lock(&self.shared.fault) = Some(format!("{fault} ({error})"));
                    self.metrics.log_writable.set(0);
                    tracing::error!(%error, "{fault}");
                } else {
                    tracing::warn!(%error, again_in = ?COMPACT_AGAIN, "the revocation log was not compacted");
                }
            }
        }
        self.report();
    }

    /// Looks through a part of the subjects for delegations of which every token has expired. All have their turn
    /// within an hour.
    fn forget(&mut self, due: Forgotten) {
        let clock = self.shared.forgetting.clock;
        let shards = self.forget_next..self.forget_next + SHARDS_AT_A_TIME;
        self.forget_next = if shards.end < Table::SHARDS { shards.end } else { 0 };
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let forgotten = view.forget(shards, |revoked_at| due.covers(revoked_at));
        drop(view);
        self.metrics.log_forgotten.inc_by(forgotten as u64);
        let lag = unix_seconds().saturating_sub(clock.at(Instant::now()));
        self.metrics.log_clock_lag_seconds.set(lag);
        self.report();
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
            Some(Request::Stop | Request::Forget(_) | Request::Compacted(_)) => {}
            None => return,
        }
        next = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a snapshot is made at most, unless it is too old for the updates in memory. A million subjects take a second.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(5);
/// Requests that may wait for the disk; the next one is refused as busy.
const QUEUE: usize = 4096;
/// Operations that become durable with one sync.
const MAX_GROUP: usize = 256;
/// How long after a failure compaction is tried again.
const COMPACT_AGAIN: Duration = Duration::from_secs(600);
/// Shards of the table that are looked through each minute: all of them within the hour.
const SHARDS_AT_A_TIME: usize = Table::SHARDS / 60 + 1;
