//! The history of each principal: which changes were made, by whom and why. Kept on disk, read on request.
//!
//! The log makes everything durable first. The histories are an index of it: a thread follows the log and files each
//! group under its principals, so that no revocation waits for the index. After a crash, the thread catches up from the
//! log, which is compacted only as far as the index is durable. A file that does not continue the log is rebuilt.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use credence_storage::database;
use credence_storage::folder_lock::FolderWatch;
use credence_wire::v1::record::Subject;
use prost::Message as _;
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::Serialize;
use tokio::sync::watch;

use crate::digest::{Digest, Head};
use crate::log_id::LogId;
use crate::metrics::Metrics;
use crate::provenance::Provenance;
use crate::store::group::Group;
use crate::store::{FollowError, LogStore};
use crate::subject::PrincipalName;

/// A change of a principal, as stored and shown.
#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub struct HistoryEntry {
    /// The record's number in the log.
    #[prost(uint64, tag = "1")]
    pub(crate) seq: u64,
    /// The resulting epoch.
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(bool, tag = "3")]
    disabled: bool,
    #[prost(message, required, tag = "4")]
    #[serde(flatten)]
    provenance: Provenance,
}

/// The known history of a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Newest first.
    pub entries: Vec<HistoryEntry>,
    /// Entries before this number are missing: the index was rebuilt after the log had compacted them away.
    pub complete_from: Option<u64>,
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("the index of histories is behind the log; try again in a moment")]
    Behind,
    #[error("the index of histories cannot be read: {0}")]
    Unreadable(String),
}

/// Reads histories. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Histories {
    /// The index, and the last record in it; none while it cannot be read.
    index: watch::Sender<Option<(Arc<Database>, u64)>>,
    orders: Arc<(Mutex<Orders>, Condvar)>,
}

/// Orders for the indexer, and its progress.
#[derive(Debug, Default)]
struct Orders {
    /// The log has grown.
    file: bool,
    /// The log no longer grows.
    end: bool,
    /// The last record that is durable in the index.
    durable: u64,
}

/// The thread that keeps the index.
#[derive(Debug)]
pub(crate) struct HistoryIndexer {
    path: PathBuf,
    folder: FolderWatch,
    /// The number of entries kept for one principal.
    kept: usize,
    store: Arc<dyn LogStore>,
    histories: Histories,
    metrics: Arc<Metrics>,
}

// === impl Histories ===

impl Histories {
    /// The latest entries of a principal, newest first, with all records up to `head`.
    pub(crate) async fn of(&self, name: &PrincipalName, head: u64, limit: usize) -> Result<History, HistoryError> {
        let mut index = self.index.subscribe();
        let caught_up = index.wait_for(|index| index.as_ref().is_some_and(|(_, indexed)| *indexed >= head));
        let database = match tokio::time::timeout(READ_TIMEOUT, caught_up).await {
            Ok(Ok(index)) => index.as_ref().map(|(database, _)| Arc::clone(database)),
            Ok(Err(_)) | Err(_) => None,
        };
        let database = database.ok_or(HistoryError::Behind)?;
        let key = name.to_wire().encode_to_vec();
        tokio::task::spawn_blocking(move || database::guarded(|| read(&database, &key, limit)))
            .await
            .map_err(|error| HistoryError::Unreadable(error.to_string()))?
            .map_err(|error| HistoryError::Unreadable(error.to_string()))
    }

    /// The log has grown.
    pub(crate) fn wake(&self) {
        self.order(|orders| orders.file = true);
    }

    /// Whether the index has everything up to this record on disk. If not, it will within [`SYNC_INTERVAL`].
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        self.order(|orders| orders.durable >= seq)
    }

    /// The log no longer grows.
    pub(crate) fn end(&self) {
        self.order(|orders| orders.end = true);
    }

    fn order<T>(&self, change: impl FnOnce(&mut Orders) -> T) -> T {
        let (orders, changed) = &*self.orders;
        let done = change(&mut orders.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        done
    }

    /// Waits for such an order, at most this long.
    fn wait(&self, at_most: Duration, is_one: impl Fn(&Orders) -> bool) {
        let (orders, changed) = &*self.orders;
        let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_timeout_while(orders, at_most, |orders| !is_one(orders)));
    }
}

fn read(database: &Database, key: &[u8], limit: usize) -> Result<History, redb::Error> {
    let transaction = database.begin_read()?;
    let row = match transaction.open_table(HISTORIES)?.get(key)? {
        Some(row) => row_of(row.value())?,
        None => Row::default(),
    };
    let complete_from = read_filed(database)?.map_or(0, |filed| filed.complete_from);
    Ok(History {
        entries: row.entries.into_iter().rev().take(limit).collect(),
        complete_from: Some(complete_from).filter(|seq| *seq != 0),
    })
}

fn row_of(bytes: &[u8]) -> Result<Row, redb::Error> {
    Row::decode(bytes).map_err(|error| redb::Error::Corrupted(error.to_string()))
}

// === impl HistoryIndexer ===

impl HistoryIndexer {
    /// An indexer of the log in `store`. The file is at `path`, in the watched folder.
    pub(crate) fn new(
        path: PathBuf,
        folder: FolderWatch,
        kept: usize,
        store: Arc<dyn LogStore>,
        metrics: Arc<Metrics>,
    ) -> (Self, Histories) {
        let histories = Histories {
            index: watch::Sender::new(None),
            orders: Arc::default(),
        };
        let indexer = Self {
            path,
            folder,
            kept,
            store,
            histories: histories.clone(),
            metrics,
        };
        (indexer, histories)
    }

    /// Runs until the log has ended.
    pub(crate) fn run(self) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.follow(&mut pause) {
            self.histories.index.send_replace(None);
            self.histories.order(|orders| orders.durable = 0);
            self.metrics.history_failures.inc();
            tracing::error!(
                %error,
                again_in = ?pause,
                "the index of histories cannot be kept; revocations continue, but the log is not compacted"
            );
            self.histories.wait(pause, |orders| orders.end);
            if self.histories.order(|orders| orders.end) {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn follow(&self, pause: &mut Duration) -> Result<(), IndexError> {
        let (database, mut filed) = self.open()?;
        let database = Arc::new(database);
        self.histories.order(|orders| orders.durable = filed.seq);
        let mut synced = Instant::now();
        let mut unsynced = false;
        loop {
            let has_ended = self.histories.order(|orders| {
                orders.file = false;
                orders.end
            });
            let groups = self.store.follow(filed.head()?, BATCH)?;
            let is_caught_up = groups.is_empty();
            if !is_caught_up {
                filed = database::guarded(|| self.file(&database, groups, filed))?;
                unsynced = true;
            }
            let index = Some((Arc::clone(&database), filed.seq));
            self.histories.index.send_replace(index);
            self.metrics.history_indexed_seq.set(filed.seq as i64);
            *pause = FIRST_PAUSE;
            let due = synced.elapsed() >= SYNC_INTERVAL || (has_ended && is_caught_up);
            if unsynced && due {
                database::guarded(|| sync(&database))?;
                synced = Instant::now();
                unsynced = false;
                let bytes = std::fs::metadata(&self.path).map_or(0, |file| file.len());
                self.metrics.history_bytes.set(bytes as i64);
            }
            if !unsynced {
                self.histories.order(|orders| orders.durable = filed.seq);
            }
            if is_caught_up {
                if has_ended {
                    return Ok(());
                }
                let at_most = if unsynced { SYNC_INTERVAL } else { LONGEST_PAUSE };
                self.histories.wait(at_most, |orders| orders.file || orders.end);
                // Groups that arrive close together share a transaction.
                std::thread::sleep(GATHERING);
            }
        }
    }

    /// Opens the index, or creates one.
    fn open(&self) -> Result<(Database, Filed), IndexError> {
        match self.open_file() {
            Ok((database, filed)) => match self.store.follow(filed.head()?, 1) {
                Ok(_) => return Ok((database, filed)),
                Err(FollowError::NotContinued | FollowError::Outrun) => {
                    self.warn_of_gap("it does not continue this log")
                }
                Err(error) => return Err(error.into()),
            },
            Err(redb::Error::Corrupted(found)) => self.warn_of_gap(&found),
            Err(redb::Error::Io(error)) if is_of_contents(&error) => self.warn_of_gap(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        std::fs::rename(&self.path, self.path.with_extension("set-aside"))?;
        Ok(self.open_file()?)
    }

    fn open_file(&self) -> Result<(Database, Filed), redb::Error> {
        let database = match self.path.try_exists()? {
            true => database::reopen(&self.path, CACHE_BYTES, &self.folder)?,
            false => {
                self.folder.check_before_writing()?;
                database::open(&self.path, CACHE_BYTES, prepare)?
            }
        };
        let filed = match database::guarded(|| read_filed(&database))? {
            Some(filed) => filed,
            None => self.begin(&database)?,
        };
        Ok((database, filed))
    }

    /// Notes from which record on the histories are complete. Each history includes this.
    fn begin(&self, database: &Database) -> Result<Filed, redb::Error> {
        let Head { seq, digest } = self.store.beginning();
        let filed = Filed {
            seq,
            digest: digest.as_bytes().to_vec(),
            complete_from: if seq == 0 { 0 } else { seq + 1 },
            log_id: self.store.log_id().to_string(),
        };
        let transaction = database.begin_write()?;
        insert_filed(&transaction, &filed)?;
        database::commit(database, transaction)?;
        Ok(filed)
    }

    fn warn_of_gap(&self, why: &str) {
        tracing::warn!(
            why,
            path = %self.path.display(),
            "the index of histories is rebuilt from the log; entries that the log was compacted of are missing in it"
        );
    }

    fn file(&self, database: &Database, groups: Vec<Group>, filed: Filed) -> Result<Filed, redb::Error> {
        let last = groups.last().and_then(Group::head);
        let mut entries: Vec<_> = groups.into_iter().flat_map(entries_of).collect();
        // In the order of the file, because neighbours share pages.
        entries.sort_by(|(one, _), (two, _)| one.cmp(two));
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        {
            let mut table = transaction.open_table(HISTORIES)?;
            let mut entries = entries.into_iter().peekable();
            while let Some((key, entry)) = entries.next() {
                let mut row = match table.get(key.as_slice())? {
                    Some(row) => row_of(row.value())?,
                    None => Row::default(),
                };
                row.entries.push(entry);
                while let Some((_, entry)) = entries.next_if(|(other, _)| *other == key) {
                    row.entries.push(entry);
                }
                let surplus = row.entries.len().saturating_sub(self.kept);
                row.entries.drain(..surplus);
                self.metrics.history_dropped.inc_by(surplus as u64);
                table.insert(key.as_slice(), row.encode_to_vec().as_slice())?;
            }
        }
        let filed = match last {
            Some(Head { seq, digest }) => Filed {
                seq,
                digest: digest.as_bytes().to_vec(),
                log_id: self.store.log_id().to_string(),
                ..filed
            },
            None => filed,
        };
        insert_filed(&transaction, &filed)?;
        transaction.commit()?;
        Ok(filed)
    }
}

/// Makes every transaction so far durable.
fn sync(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // Costs a little here, and saves a scan of the whole file after a crash.
    transaction.set_quick_repair(true);
    transaction.commit()?;
    Ok(())
}

/// The last record in the index at `path`, if there is an index of this log that can be read.
pub(crate) fn filed_at(path: &Path, log_id: &LogId) -> Option<Head> {
    let database = database::open_existing(path, CACHE_BYTES).ok()?;
    let filed = database::guarded(|| read_filed(&database)).ok()??;
    filed.head().ok().filter(|_| filed.log_id == log_id.as_str())
}

fn read_filed(database: &Database) -> Result<Option<Filed>, redb::Error> {
    let filed = database.begin_read()?.open_table(FILED)?.get(())?;
    let filed = filed.map(|filed| Filed::decode(filed.value()));
    filed
        .transpose()
        .map_err(|error| redb::Error::Corrupted(error.to_string()))
}

fn insert_filed(transaction: &WriteTransaction, filed: &Filed) -> Result<(), redb::Error> {
    transaction
        .open_table(FILED)?
        .insert((), filed.encode_to_vec().as_slice())?;
    Ok(())
}

fn prepare(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(HISTORIES)?;
    transaction.open_table(FILED)?;
    Ok(())
}

/// The entries of a group about principals, each with the key of its row.
fn entries_of(group: Group) -> impl Iterator<Item = (Vec<u8>, HistoryEntry)> {
    let records = (group.first_seq..).zip(group.records).zip(group.provenance);
    records.filter_map(|((seq, encoded), provenance)| {
        let Some(Subject::Principal(state)) = encoded.record.subject else {
            return None;
        };
        let entry = HistoryEntry {
            seq,
            epoch: state.epoch,
            disabled: state.disabled,
            provenance: Provenance::decode(provenance).ok()?,
        };
        Some((state.principal?.encode_to_vec(), entry))
    })
}

/// Whether the contents of the file are wrong, and not the disk.
fn is_of_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// A principal's row, the oldest entry first.
#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<HistoryEntry>,
}

/// The progress of the index.
#[derive(Clone, PartialEq, prost::Message)]
struct Filed {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    /// From which record on the histories are complete; 0 if nothing is missing.
    #[prost(uint64, tag = "3")]
    complete_from: u64,
    /// The log's name at that record.
    #[prost(string, tag = "4")]
    log_id: String,
}

// === impl Filed ===

impl Filed {
    fn head(&self) -> Result<Head, redb::Error> {
        let digest = Digest::parse(&self.digest)
            .ok_or_else(|| redb::Error::Corrupted("a digest of impossible length".to_owned()))?;
        Ok(Head { seq: self.seq, digest })
    }
}

/// Why the index cannot be kept now.
#[derive(Debug, thiserror::Error)]
enum IndexError {
    #[error(transparent)]
    Database(#[from] redb::Error),
    #[error(transparent)]
    Log(#[from] FollowError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

const HISTORIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("histories");
const FILED: TableDefinition<'_, (), &[u8]> = TableDefinition::new("filed");

/// How long a request for a history waits for the index to catch up.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// How long records gather before they are filed together.
const GATHERING: Duration = Duration::from_millis(10);
/// How often filed entries become durable. After a crash they are filed again from the log.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Entries filed in one transaction.
const BATCH: usize = 8_192;
const CACHE_BYTES: usize = 16 << 20;
