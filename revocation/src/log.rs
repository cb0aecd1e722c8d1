//! The revocation log, for everything but its writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use credence_storage::folder_lock::FolderLost;
use credence_wire::v1;
use prost::Message as _;
use tokio::sync::{oneshot, watch};

use crate::clock::Forgetting;
use crate::digest::Head;
use crate::digest_history::ForeignPosition;
use crate::history::{Histories, History, HistoryError};
use crate::leases::Leases;
use crate::log_id::LogId;
use crate::log_view::{FellBehind, LogView, Start};
use crate::plan::PlanError;
use crate::quorum::{NoQuorum, Quorum};
use crate::snapshot::Snapshot;
use crate::state::SubjectState;
use crate::status::Knowledge;
use crate::store::StoreError;
use crate::subject::{Order, PrincipalName, SubjectName};

/// The log for the services. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RevocationLog {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: SyncSender<Request>,
}

/// The result of a durable, broadcast operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The record that put it in force.
    pub seq: u64,
    /// The principal's epoch, for operations on a principal.
    pub epoch: Option<u64>,
    /// Whether this operation added the record.
    pub changed: bool,
}

/// Why an operation was not acknowledged. Unless the message says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    #[error("the control plane is stopping; send the request again when it is back")]
    Stopping,
    #[error(
        "the outcome is unknown, because the writer of the revocation log has ended; send the request again \
         when the control plane is back (repeating is harmless)"
    )]
    Unknown,
    #[error("too many revocations are waiting for the disk; send the request again")]
    Busy,
    #[error(
        "the revocation could not be made durable and is not acknowledged; it may or may not be in force, so send it \
         again. {0}"
    )]
    Storage(Arc<StoreError>),
    #[error("the revocation is not acknowledged. {0}")]
    FolderLost(FolderLost),
    #[error("no randomness for the new epoch: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// What the handles and the writer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) log_id: LogId,
    pub(crate) view: RwLock<LogView>,
    pub(crate) head: watch::Sender<u64>,
    pub(crate) leases: Leases,
    pub(crate) quorum: Quorum,
    pub(crate) forgetting: Forgetting,
    pub(crate) histories: Histories,
    /// A recent snapshot, shared by every stream that starts from it, and when it was made.
    pub(crate) snapshot: tokio::sync::Mutex<Option<(Arc<Snapshot>, Instant)>>,
    /// Why nothing can be written, if so.
    pub(crate) fault: Mutex<Option<String>>,
    pub(crate) stopping: AtomicBool,
    /// Another replica may have appended to the log.
    pub(crate) has_news: AtomicBool,
}

#[derive(Debug)]
pub(crate) enum Request {
    Perform {
        order: Order,
        answer: oneshot::Sender<Result<Receipt, RevokeError>>,
    },
    /// Wakes the writer, so that it notices the stop, or what another replica has appended.
    Wake,
}

// === impl RevocationLog ===

impl RevocationLog {
    pub fn log_id(&self) -> &LogId {
        &self.shared.log_id
    }

    /// The leases of the filters, and what they have applied.
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

    /// Executes an order. It is durable and broadcast when this returns `Ok`. [`Leases::confirmed`] tells when every
    /// filter has applied it.
    pub async fn perform(&self, order: Order) -> Result<Receipt, RevokeError> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(RevokeError::Stopping);
        }
        let (answer, answered) = oneshot::channel();
        self.requests
            .try_send(Request::Perform { order, answer })
            .map_err(|error| match error {
                TrySendError::Full(_) => RevokeError::Busy,
                TrySendError::Disconnected(_) if self.shared.stopping.load(Ordering::Acquire) => RevokeError::Stopping,
                TrySendError::Disconnected(_) => RevokeError::Unknown,
            })?;
        // A writer that stops as planned answers the waiting requests. One that failed does not.
        answered.await.unwrap_or(Err(RevokeError::Unknown))
    }

    /// The last position.
    pub(crate) fn position(&self) -> Head {
        self.shared.read().digests.head
    }

    /// Checks that a position belongs to this log.
    pub(crate) fn check(&self, position: &Head) -> Result<(), ForeignPosition> {
        self.shared
            .read()
            .digests
            .check(position.seq, position.digest.as_bytes())
    }

    pub(crate) fn quorum(&self) -> &Quorum {
        &self.shared.quorum
    }

    /// Resolves once this replica has everything that was acknowledged before the call.
    pub async fn up_to_date(&self) -> Result<(), NoQuorum> {
        let quorum = &self.shared.quorum;
        let (ticket, mut reads, mut head) = (quorum.ask(), quorum.reads(), self.watch_head());
        loop {
            let read = *reads.borrow_and_update();
            if read.covers(ticket, *head.borrow_and_update()) {
                return Ok(());
            }
            if read.is_lost {
                return Err(NoQuorum);
            }
            tokio::select! {
                changed = reads.changed() => changed.map_err(|_| NoQuorum)?,
                changed = head.changed() => changed.map_err(|_| NoQuorum)?,
            }
        }
    }

    /// How a client continues that has applied the log up to `applied`.
    pub(crate) fn resume(&self, applied: Option<&v1::Position>) -> Result<Start, ForeignPosition> {
        self.shared.read().start(applied)
    }

    /// How a client continues that shows this proof of its position, or none.
    pub fn resume_at_proof(&self, seq: u64, proof: &[u8]) -> Result<Start, ForeignPosition> {
        self.shared.read().start_at_proof(seq, proof)
    }

    /// The proof of a position, if the position is still known.
    pub fn proof_of(&self, seq: u64) -> Option<Vec<u8>> {
        self.shared.read().proof_of(seq)
    }

    /// Whether this log gave out a position that it no longer has.
    pub(crate) fn gave_out(&self, position: &v1::Position) -> bool {
        self.shared.read().gave_out(position)
    }

    /// At most `limit` updates after `seq`, and the head at that moment.
    pub fn updates_after(&self, seq: u64, limit: usize) -> Result<(Vec<Arc<v1::Update>>, u64), FellBehind> {
        let (updates, head) = self.encoded_updates_after(seq, limit)?;
        // Updates encoded by this process can be decoded.
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

    /// Calls `ask` with the state at the head and the head's sequence number.
    pub fn read<R>(&self, ask: impl FnOnce(Knowledge<'_>, u64) -> R) -> R {
        let view = self.shared.read();
        let knowledge = Knowledge {
            state: &view.state,
            max_token_lifetime: self.max_token_lifetime(),
        };
        ask(knowledge, view.head())
    }

    /// A snapshot, such that the updates from it to the head are in memory. Thousands of clients that connect at once
    /// share one. Revocations continue while it is made. It cannot serve a client that has applied more than it holds,
    /// so one that is behind the head is used for a short time only.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, tokio::task::JoinError> {
        let mut cached = self.shared.snapshot.lock().await;
        if let Some((snapshot, made)) = cached.as_ref()
            && self.shared.read().is_recent(snapshot.seq)
            && (snapshot.seq == self.head() || made.elapsed() < SNAPSHOT_INTERVAL)
        {
            return Ok(Arc::clone(snapshot));
        }
        // Frees its memory for the next one, unless a stream still reads it.
        *cached = None;
        let (position, state) = {
            let view = self.shared.read();
            (view.position(), view.state.freeze())
        };
        let made = tokio::task::spawn_blocking(move || Snapshot::of(position, state));
        let snapshot = Arc::new(made.await?);
        *cached = Some((Arc::clone(&snapshot), Instant::now()));
        Ok(snapshot)
    }

    /// The state of a principal. A principal that was never named is at epoch 0.
    pub fn principal(&self, name: &PrincipalName) -> SubjectState {
        let state = self.shared.read().state.get(SubjectName::Principal(name));
        state.unwrap_or_default()
    }

    /// The keys that were fetched from an issuer.
    pub fn issuer_keys(&self, issuer: &str) -> Option<v1::IssuerKeys> {
        self.shared.read().state.issuer_keys(issuer).cloned()
    }

    /// The history of a principal, newest first.
    pub async fn history(&self, name: &PrincipalName, limit: usize) -> Result<History, HistoryError> {
        self.shared.histories.of(name, self.head(), limit).await
    }

    /// The longest lifetime of an accepted token now, in seconds.
    pub fn max_token_lifetime(&self) -> u64 {
        self.shared.forgetting.announced(Instant::now())
    }

    /// From now on nothing is acknowledged.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        // If the queue is full, the writer is awake, and checks the flag before each group.
        let _ = self.requests.try_send(Request::Wake);
    }

    /// Another replica may have appended to the log.
    pub(crate) fn follow(&self) {
        self.shared.has_news.store(true, Ordering::Release);
        // If the queue is full, the writer is awake, and looks after each group.
        let _ = self.requests.try_send(Request::Wake);
    }

    /// Why revocations are refused because of the disk, if they are.
    pub fn fault(&self) -> Option<String> {
        self.shared.fault().clone()
    }

    /// Whether no quorum of the store has answered for too long.
    pub fn has_no_quorum(&self) -> bool {
        self.quorum().state().1.is_lost
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, LogView> {
        // No code panics while it holds the write lock. Even if it did, the view is only appended to.
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, LogView> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every stream can read up to `head`, and is notified.
    pub(crate) fn announce(&self, head: u64) {
        // This comes before any stream sees the entries, so that no echo is granted without them.
        self.leases.publish(head, Instant::now());
        self.head.send_replace(head);
        self.histories.wake();
    }

    pub(crate) fn fault(&self) -> MutexGuard<'_, Option<String>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest time between two snapshots, unless one is too old for the updates in memory. A million subjects take a
/// second.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(5);
