//! What was done to a principal, by whom and why: kept on disk, read when somebody asks.
//!
//! All of it is durable in the log first. This is an index behind it: a thread reads the log's groups as they become
//! durable and files each under its principal, so that a revocation never waits for it. After a crash it catches up
//! from the log; and the log is compacted only up to where the index is durable.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::Serialize;
use tokio::sync::watch;

use crate::data_folder::LogId;
use crate::groups::{Extent, Groups};
use crate::metrics::Metrics;
use crate::provenance::Provenance;
use crate::storage::{Head, StoredGroup};
use crate::subject::PrincipalName;
use crate::trail::Standing;
use credence_storage::database;
use credence_storage::frames::FrameError;

/// One thing that was done to a principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryEntry {
    /// The record's number in the log.
    pub(crate) seq: u64,
    /// Seconds since the Unix epoch.
    #[serde(rename = "at")]
    pub(crate) time: i64,
    /// `raise`, `disable` or `enable`; absent, as what follows, where a version wrote the log that did not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<&'static str>,
    /// What it came to.
    pub(crate) epoch: u64,
    pub(crate) disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<&'static str>,
    #[serde(rename = "by", skip_serializing_if = "Option::is_none")]
    pub(crate) requester: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// What is known of what was done to a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Newest first.
    pub entries: Vec<HistoryEntry>,
    /// What was recorded before this number is missing: the index was made anew when the log no longer had it.
    pub complete_from: Option<u64>,
}

/// Why a history can not be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("the index of histories is behind the log; ask again in a moment")]
    Behind,
    #[error("the index of histories can not be read: {0}")]
    Unreadable(String),
}

/// Reads histories. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Histories {
    database: Arc<RwLock<Option<Arc<Database>>>>,
    /// Up to which record the index goes; nothing while it can not be read.
    indexed: watch::Sender<Option<u64>>,
    durable: watch::Sender<u64>,
    /// Somebody waits for what is filed to be durable.
    sync_wanted: Arc<AtomicBool>,
}

/// What the index is kept by.
#[derive(Debug)]
pub(crate) struct Indexing {
    pub(crate) path: PathBuf,
    pub(crate) log_id: LogId,
    /// Entries kept for one principal.
    pub(crate) kept: usize,
    pub(crate) groups: Arc<Groups>,
    pub(crate) histories: Histories,
    pub(crate) metrics: Arc<Metrics>,
}

// === impl Histories ===

impl Histories {
    /// Of an index that nobody keeps yet.
    pub(crate) fn new() -> Self {
        Self {
            database: Arc::default(),
            indexed: watch::Sender::new(None),
            durable: watch::Sender::new(0),
            sync_wanted: Arc::default(),
        }
    }

    /// The last entries of a principal, newest first, everything up to the record `head` included.
    pub(crate) async fn of(&self, name: &PrincipalName, head: u64, limit: usize) -> Result<History, HistoryError> {
        let mut indexed = self.indexed.subscribe();
        let caught_up = indexed.wait_for(|indexed| indexed.is_some_and(|indexed| indexed >= head));
        match tokio::time::timeout(PATIENCE, caught_up).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Err(HistoryError::Behind),
        }
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner).clone();
        let database = database.ok_or(HistoryError::Behind)?;
        let key = key_of(name);
        tokio::task::spawn_blocking(move || read(&database, &key, limit))
            .await
            .map_err(|error| HistoryError::Unreadable(error.to_string()))?
            .map_err(|error| HistoryError::Unreadable(error.to_string()))
    }

    /// Waits until the index has everything up to this record on disk. Looks away now and then to ask `give_up`.
    pub(crate) fn wait_durable(&self, seq: u64, give_up: impl Fn() -> bool) -> bool {
        while *self.durable.borrow() < seq {
            if give_up() {
                return false;
            }
            self.sync_wanted.store(true, Ordering::Release);
            std::thread::sleep(LOOK_AGAIN);
        }
        true
    }

    fn set(&self, database: Option<Arc<Database>>) {
        if database.is_none() {
            self.indexed.send_replace(None);
        }
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = database;
    }
}

fn read(database: &Database, key: &[u8], limit: usize) -> Result<History, redb::Error> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(HISTORIES)?;
    let row = match table.get(key)? {
        Some(row) => row_of(row.value())?,
        None => Row::default(),
    };
    let complete_from = filed_up_to(database)?.map_or(0, |filed| filed.complete_from);
    Ok(History {
        entries: row
            .entries
            .into_iter()
            .rev()
            .take(limit)
            .map(HistoryEntry::from)
            .collect(),
        complete_from: Some(complete_from).filter(|seq| *seq != 0),
    })
}

fn row_of(bytes: &[u8]) -> Result<Row, redb::Error> {
    Row::decode(bytes).map_err(|error| redb::Error::Corrupted(error.to_string()))
}

// === impl Indexing ===

impl Indexing {
    /// Keeps the index until the log ends. `standing` says of a position whether it is one of the log's.
    pub(crate) fn run(self, standing: impl Fn(u64, &[u8]) -> Standing) {
        let mut pause = FIRST_PAUSE;
        loop {
            // A file that is damaged in its middle makes the database panic.
            let kept = catch_unwind(AssertUnwindSafe(|| self.keep(&standing, &mut pause))).unwrap_or_else(|_| {
                self.histories.set(None);
                self.histories.durable.send_replace(0);
                set_aside(&self.path, "reading it broke down").map_err(IndexError::Io)?;
                Err(IndexError::BrokeDown)
            });
            match kept {
                Ok(()) => return,
                Err(error) => {
                    self.histories.set(None);
                    self.metrics.history_failures.inc();
                    tracing::error!(
                        %error,
                        again_in = ?pause,
                        "the index of histories can not be kept; revocations go on, but the log is not compacted"
                    );
                }
            }
            let extent = self.groups.extent();
            let ended = self.groups.wait(extent.generation, extent.end, pause).ended;
            if ended {
                return;
            }
            std::thread::sleep(FIRST_PAUSE);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn keep(&self, standing: &impl Fn(u64, &[u8]) -> Standing, pause: &mut Duration) -> Result<(), IndexError> {
        let (database, mut indexed) = self.open(standing)?;
        let database = Arc::new(database);
        self.note_gap(&database, indexed)?;
        self.histories.set(Some(Arc::clone(&database)));
        self.histories.durable.send_replace(indexed);
        let mut extent = self.groups.extent();
        let mut offset = extent.from;
        let mut synced = Instant::now();
        let mut unsynced = false;
        loop {
            let through = if offset < extent.end {
                let batch = self.next_batch(&extent, &mut offset, indexed)?;
                let digest = batch.digest.clone();
                if let Some(last) = batch.last {
                    self.file(&database, batch, last, &digest, Durability::None)?;
                    unsynced = true;
                    indexed = last;
                }
                if offset == extent.end { extent.head } else { indexed }
            } else {
                extent.head
            };
            self.histories.indexed.send_replace(Some(through));
            self.metrics.history_indexed_seq.set(through as i64);
            *pause = FIRST_PAUSE;
            let due = synced.elapsed() >= SYNC_INTERVAL || extent.ended;
            let wanted = self.histories.sync_wanted.swap(false, Ordering::AcqRel);
            if unsynced && (due || wanted) {
                sync(&database)?;
                synced = Instant::now();
                unsynced = false;
                let bytes = std::fs::metadata(&self.path).map_or(0, |file| file.len());
                self.metrics.history_bytes.set(bytes as i64);
            }
            if !unsynced {
                self.histories.durable.send_replace(through);
            }
            if offset == extent.end {
                if extent.ended {
                    return Ok(());
                }
                let patience = if unsynced { SYNC_INTERVAL } else { LONGEST_PAUSE };
                // Groups that come soon after one another share a transaction.
                std::thread::sleep(GATHERING);
                extent = self.follow(extent.generation, &mut offset, patience);
            }
        }
    }

    /// Where the log begins behind what is filed, notes from where on the histories are complete: it is said with each.
    fn note_gap(&self, database: &Database, indexed: u64) -> Result<(), IndexError> {
        let extent = self.groups.extent();
        let first = match extent.from < extent.end {
            true => extent
                .file
                .group(extent.from, extent.end)?
                .0
                .records
                .first()
                .map(|(seq, ..)| *seq),
            false => None,
        };
        let complete_from = first.unwrap_or(extent.head + 1);
        if complete_from <= indexed + 1 {
            return Ok(());
        }
        let transaction = database.begin_write().map_err(redb::Error::from)?;
        let before = filed_up_to(database)?;
        {
            let mut table = transaction.open_table(FILED).map_err(redb::Error::from)?;
            let filed = Filed {
                log_id: self.log_id.to_string(),
                complete_from,
                ..before.unwrap_or_default()
            };
            let filed = filed.encode_to_vec();
            table.insert((), filed.as_slice()).map_err(redb::Error::from)?;
        }
        database::commit(database, transaction)?;
        Ok(())
    }

    /// What there is to read now, and from where.
    fn follow(&self, generation: u64, offset: &mut u64, patience: Duration) -> Extent {
        let extent = self.groups.wait(generation, *offset, patience);
        if extent.generation != generation {
            // Whatever the new file does not hold as groups has been indexed before it was made.
            *offset = extent.from;
        }
        extent
    }

    /// Opens the index, or begins one. Returns up to which record it goes.
    fn open(&self, standing: &impl Fn(u64, &[u8]) -> Standing) -> Result<(Database, u64), IndexError> {
        let opened = self.open_file().and_then(|database| {
            let filed = filed_up_to(&database)?;
            Ok((database, filed))
        });
        match opened {
            Ok((database, Some(filed)))
                if filed.log_id == self.log_id.as_str() && standing(filed.seq, &filed.digest) == Standing::Ours =>
            {
                Ok((database, filed.seq))
            }
            // A gap may have been noted before anything was filed.
            Ok((database, Some(filed))) if filed.log_id == self.log_id.as_str() && filed.seq == 0 => Ok((database, 0)),
            Ok((database, None)) => Ok((database, 0)),
            Ok((database, Some(_))) => {
                drop(database);
                self.begin_anew("it belongs to another copy of the log")
            }
            Err(IndexError::Database(redb::Error::Corrupted(found))) => self.begin_anew(&found),
            Err(IndexError::Database(redb::Error::Io(error))) if is_of_contents(&error) => {
                self.begin_anew(&error.to_string())
            }
            Err(error) => Err(error),
        }
    }

    fn open_file(&self) -> Result<Database, IndexError> {
        Ok(database::open(&self.path, CACHE_BYTES, prepare)?)
    }

    fn begin_anew(&self, why: &str) -> Result<(Database, u64), IndexError> {
        set_aside(&self.path, why)?;
        Ok((self.open_file()?, 0))
    }

    fn next_batch(&self, extent: &Extent, offset: &mut u64, indexed: u64) -> Result<Batch, FrameError> {
        let mut batch = Batch::default();
        while *offset < extent.end && batch.entries.len() < BATCH {
            let (group, next) = extent.file.group(*offset, extent.end)?;
            *offset = next;
            batch.take(group, indexed);
        }
        Ok(batch)
    }

    fn file(
        &self,
        database: &Database,
        mut batch: Batch,
        last: u64,
        digest: &[u8],
        durability: Durability,
    ) -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(HISTORIES)?;
            // In the order of the file: neighbours share pages.
            batch.entries.sort_by(|(one, _), (two, _)| one.cmp(two));
            let mut entries = batch.entries.into_iter().peekable();
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
            let mut table = transaction.open_table(FILED)?;
            let before = table.get(())?.map(|filed| filed_of(filed.value())).transpose()?;
            let filed = Filed {
                log_id: self.log_id.to_string(),
                seq: last,
                digest: digest.to_vec(),
                complete_from: before.map_or(0, |before| before.complete_from),
            };
            table.insert((), filed.encode_to_vec().as_slice())?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Makes every transaction so far durable.
fn sync(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // Costs a little here, and saves going through the whole file after a crash.
    transaction.set_quick_repair(true);
    transaction.commit()?;
    Ok(())
}

/// Has the index of a log go on with the one that the log has become, whose `head` is where the former ended.
pub(crate) fn adopt(path: &Path, old: &LogId, new: &LogId, head: &Head) -> Result<(), redb::Error> {
    if !path.exists() {
        return Ok(());
    }
    let database = database::open(path, CACHE_BYTES, prepare)?;
    let before = match filed_up_to(&database)? {
        Some(filed) if filed.log_id == old.as_str() => filed,
        _ => return Ok(()),
    };
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let filed = Filed {
            log_id: new.to_string(),
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec(),
            complete_from: before.complete_from,
        };
        let mut table = transaction.open_table(FILED)?;
        table.insert((), filed.encode_to_vec().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}

fn filed_up_to(database: &Database) -> Result<Option<Filed>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(FILED)?;
    let Some(filed) = table.get(())? else {
        return Ok(None);
    };
    Ok(Some(filed_of(filed.value())?))
}

fn filed_of(bytes: &[u8]) -> Result<Filed, redb::Error> {
    Filed::decode(bytes).map_err(|error| redb::Error::Corrupted(error.to_string()))
}

fn prepare(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(HISTORIES)?;
    transaction.open_table(FILED)?;
    Ok(())
}

/// What is filed with one transaction.
#[derive(Debug, Default)]
struct Batch {
    entries: Vec<(Vec<u8>, StoredEntry)>,
    /// The last record and the digest after it.
    last: Option<u64>,
    digest: Vec<u8>,
}

// === impl Batch ===

impl Batch {
    /// Takes in what of a group is not filed yet.
    fn take(&mut self, group: StoredGroup, indexed: u64) {
        for (seq, record, provenance) in group.records {
            if seq <= indexed {
                continue;
            }
            self.last = Some(seq);
            let Some(Subject::Principal(state)) = record.subject else {
                continue;
            };
            let Some(Ok(name)) = state.principal.map(PrincipalName::try_from) else {
                continue;
            };
            let entry = StoredEntry {
                seq,
                epoch: state.epoch,
                disabled: state.disabled,
                raised_at: state.raised_at,
                provenance,
            };
            self.entries.push((key_of(&name), entry));
        }
        self.digest = group.digest;
    }
}

/// The issuer behind its length, and the subject behind a byte that says whether there is one.
fn key_of(name: &PrincipalName) -> Vec<u8> {
    let v1::Principal { issuer, subject } = name.to_wire();
    let mut key = Vec::with_capacity(issuer.len() + 3 + subject.as_ref().map_or(0, String::len));
    // An issuer has at most 2,048 bytes.
    key.extend_from_slice(&(issuer.len() as u16).to_be_bytes());
    key.extend_from_slice(issuer.as_bytes());
    if let Some(subject) = subject {
        key.push(1);
        key.extend_from_slice(subject.as_bytes());
    } else {
        key.push(0);
    }
    key
}

/// Whether it is what the file holds, and not the disk, that is wrong.
fn is_of_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn set_aside(path: &Path, why: &str) -> io::Result<()> {
    let aside = path.with_extension("set-aside");
    std::fs::rename(path, &aside)?;
    tracing::warn!(
        why,
        kept_as = %aside.display(),
        "the index of histories is made anew from the log; what the log was compacted of is missing in it"
    );
    Ok(())
}

/// A principal's row: the oldest entry first.
#[derive(Clone, PartialEq, prost::Message)]
struct Row {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<StoredEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredEntry {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(bool, tag = "3")]
    disabled: bool,
    #[prost(int64, tag = "4")]
    raised_at: i64,
    #[prost(message, optional, tag = "5")]
    provenance: Option<Provenance>,
}

/// How far the index goes, and in which log.
#[derive(Clone, PartialEq, prost::Message)]
struct Filed {
    #[prost(string, tag = "1")]
    log_id: String,
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(bytes = "vec", tag = "3")]
    digest: Vec<u8>,
    /// From which record on the histories are complete; 0 if nothing is missing.
    #[prost(uint64, tag = "4")]
    complete_from: u64,
}

impl From<StoredEntry> for HistoryEntry {
    fn from(entry: StoredEntry) -> Self {
        let from = entry.provenance;
        Self {
            seq: entry.seq,
            epoch: entry.epoch,
            disabled: entry.disabled,
            time: from.as_ref().map_or(entry.raised_at, |from| from.time),
            operation: from.as_ref().and_then(Provenance::operation),
            source: from.as_ref().and_then(Provenance::source),
            requester: from.as_ref().map(|from| from.requester.clone()),
            reason: from.and_then(|from| from.reason),
        }
    }
}

/// Why the index can not be kept at the moment.
#[derive(Debug, thiserror::Error)]
enum IndexError {
    #[error(transparent)]
    Database(#[from] redb::Error),
    #[error(transparent)]
    Log(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is damaged, and has been set aside")]
    BrokeDown,
}

const HISTORIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("histories");
const FILED: TableDefinition<'_, (), &[u8]> = TableDefinition::new("filed");

/// How long whoever asks for a history waits for the index to catch up.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long records gather before they are filed together.
const GATHERING: Duration = Duration::from_millis(10);
/// How often what was filed is made durable. The log has it; a crash costs filing it again.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Entries filed in one transaction.
const BATCH: usize = 8_192;
const CACHE_BYTES: usize = 16 << 20;
