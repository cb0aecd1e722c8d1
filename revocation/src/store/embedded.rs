//! The log in one redb file.
//!
//! ```text
//! groups     number of the first record -> the group
//! beginning  position of the cut, number -> a chunk of the compacted beginning
//! notes      layout, log_id, beginning (which chunks count), notes (see `Notes`)
//! ```
//!
//! A group is one transaction with one sync. redb keeps two roots in its header. After a flipped bit there, it may use
//! the older one. So the root is written once more ([`LogStore::seal`]) when there is time. Until then, damage to the
//! header can remove the last group, but no other.
//!
//! After an error redb writes nothing more, and it is unknown whether the group is in the file. The file is then opened
//! again, at most once a second, and read.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use credence_storage::database;
use credence_storage::folder_lock::FolderWatch;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;
use redb::{
    Database, Error, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};

use super::beginning::{Beginning, Cut, Restoring};
use super::group::{Group, stored_head};
use super::reserve_file::ReserveFile;
use super::{AppendError, FollowError, LogStore, Notes, StoreError};
use crate::digest::{Digest, Head};
use crate::log_id::LogId;
use crate::log_view::LogView;

/// A log in one redb file.
#[derive(Debug)]
pub(crate) struct EmbeddedStore {
    path: PathBuf,
    folder: FolderWatch,
    reserve: ReserveFile,
    file: RwLock<File>,
    known: Mutex<Known>,
    /// How the next transaction fails.
    #[cfg(test)]
    failing: Mutex<Option<tests::Failing>>,
}

#[derive(Debug)]
struct File {
    /// None after an error.
    database: Option<Database>,
    /// The error.
    why_closed: String,
    /// Whether the error was a full disk.
    is_full: bool,
    /// When the file was last reopened after an error.
    reopened: Option<Instant>,
}

/// Facts about the file, in memory.
#[derive(Debug, Clone)]
struct Known {
    log_id: LogId,
    notes: Notes,
    beginning: Head,
    head: Head,
    bytes: u64,
}

/// Creates the file of a new log. A `floor`, in seconds since the Unix epoch, becomes its first record, which revokes
/// every root issued up to then.
pub(crate) fn create(path: &Path, log_id: &LogId, floor: Option<i64>) -> Result<(), StoreError> {
    let failed = |error| failure(path, error);
    let start = Head {
        seq: 0,
        digest: Digest::start(log_id),
    };
    let database = database::open(path, CACHE_BYTES, prepare).map_err(failed)?;
    let write = || {
        let transaction = database.begin_write()?;
        {
            let mut rows = transaction.open_table(NOTES)?;
            rows.insert(LAYOUT_ROW, LAYOUT.to_be_bytes().as_slice())?;
            rows.insert(BEGINNING_ROW, Beginning::at(start).encode_to_vec().as_slice())?;
            rows.insert(LOG_ID_ROW, log_id.as_str().as_bytes())?;
            rows.insert(NOTES_ROW, Notes::default().encode_to_vec().as_slice())?;
            if let Some(issued_up_to) = floor {
                let floor = v1::Record {
                    subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
                };
                let group = Group::following(start, vec![floor.into()], Vec::new());
                let mut groups = transaction.open_table(GROUPS)?;
                groups.insert(group.first_seq, group.encode().as_slice())?;
            }
        }
        database::commit(&database, transaction)
    };
    write().map_err(failed)
}

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// Opens a file made by [`create`]. It is reopened only while `folder` is in its place.
    pub(crate) fn open(path: &Path, folder: FolderWatch) -> Result<Self, StoreError> {
        let failed = |error| failure(path, error);
        let database = database::open_existing(path, CACHE_BYTES).map_err(failed)?;
        check_layout(path, &database)?;
        let known = read_known(&database).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            folder,
            reserve: ReserveFile::new(path.with_file_name(RESERVE)),
            file: RwLock::new(File {
                database: Some(database),
                why_closed: String::new(),
                is_full: false,
                reopened: None,
            }),
            known: Mutex::new(known),
            #[cfg(test)]
            failing: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is one assignment, so a panic leaves nothing inconsistent.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, StoreError> {
        self.with_database(|database| work(&database.begin_read()?))
    }

    /// Runs one transaction, durable on return. An error closes the file.
    fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T, Error>) -> Result<T, StoreError> {
        let written = self.with_database(|database| {
            let transaction = database.begin_write()?;
            let result = work(&transaction)?;
            #[cfg(test)]
            let transaction = self.fail(transaction)?;
            transaction.commit()?;
            Ok(result)
        });
        self.close_after(&written);
        written
    }

    /// After an error redb writes nothing more.
    fn close_after<T>(&self, written: &Result<T, StoreError>) {
        if let Err(error @ (StoreError::Database { .. } | StoreError::Damaged { .. })) = written {
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            file.database = None;
            file.why_closed = error.to_string();
            file.is_full = error.is_full();
        }
    }

    /// If a full disk closed the file, frees the reserve, and allows reopening at once.
    fn release_reserve(&self) -> bool {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let is_released = file.is_full && self.reserve.release();
        if is_released {
            file.reopened = None;
        }
        is_released
    }

    fn with_database<T>(&self, work: impl FnOnce(&Database) -> Result<T, Error>) -> Result<T, StoreError> {
        self.reopen()?;
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let database = file.database.as_ref().ok_or_else(|| file.closed())?;
        database::guarded(|| work(database)).map_err(|error| failure(&self.path, error))
    }

    /// Opens the file again if an error closed it.
    fn reopen(&self) -> Result<(), StoreError> {
        if self
            .file
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .database
            .is_some()
        {
            return Ok(());
        }
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        if file.database.is_some() {
            return Ok(());
        }
        if file
            .reopened
            .is_some_and(|reopened| reopened.elapsed() < REOPEN_INTERVAL)
        {
            return Err(file.closed());
        }
        file.reopened = Some(Instant::now());
        let failed = |error: Error| failure(&self.path, error);
        let database = database::reopen(&self.path, CACHE_BYTES, &self.folder).map_err(failed)?;
        check_layout(&self.path, &database)?;
        let found = read_known(&database).map_err(failed)?;
        let mut known = self.known();
        tracing::warn!(path = %self.path.display(), seq = found.head.seq, "reopened the revocation log after an error");
        *known = Known {
            bytes: known.bytes,
            ..found
        };
        file.database = Some(database);
        Ok(())
    }

    fn append_once(&self, group: &Group) -> Result<(), StoreError> {
        let encoded = group.encode();
        self.write(|transaction| {
            let mut groups = transaction.open_table(GROUPS)?;
            groups.insert(group.first_seq, encoded.as_slice())?;
            match &group.renamed {
                Some(log_id) => insert_row(transaction, LOG_ID_ROW, log_id.as_str().as_bytes()),
                None => Ok(()),
            }
        })?;
        let mut known = self.known();
        known.bytes += encoded.len() as u64 + ROW_BYTES;
        known.head = group.head().unwrap_or(known.head);
        if let Some(log_id) = &group.renamed {
            known.log_id = log_id.clone();
        }
        Ok(())
    }

    /// Removes some of the data that the beginning replaced. Returns whether there is more.
    fn clear(&self) -> Result<bool, StoreError> {
        let cut = self.known().beginning.seq;
        self.write(|transaction| {
            let mut left = CLEARED_BYTES;
            let mut groups = transaction.open_table(GROUPS)?;
            let mut gone = groups.extract_from_if(..=cut, |_, _| true)?;
            while left > 0
                && let Some(row) = gone.next()
            {
                left = left.saturating_sub(row?.1.value().len() + CLEARED_ROW_BYTES);
            }
            let mut chunks = transaction.open_table(BEGINNING)?;
            let mut gone = chunks.extract_from_if(..(cut, 0), |_, _| true)?;
            while left > 0
                && let Some(row) = gone.next()
            {
                left = left.saturating_sub(row?.1.value().len());
            }
            Ok(left == 0)
        })
    }
}

impl LogStore for EmbeddedStore {
    fn replay(&self, view: &mut LogView) -> Result<(), StoreError> {
        let (head, bytes) = self.read(|transaction| replay_all(transaction, view))?;
        let mut known = self.known();
        known.head = head;
        known.bytes = bytes;
        Ok(())
    }

    fn append(&self, after: Head, group: &Group) -> Result<(), AppendError> {
        if let Err(failed) = self.reopen()
            && !(self.release_reserve() && self.reopen().is_ok())
        {
            return Err(AppendError::NotDone(failed));
        }
        let head = self.known().head;
        if head != after {
            return Err(AppendError::Unknown(
                self.file.read().unwrap_or_else(PoisonError::into_inner).closed(),
            ));
        }
        let Err(failed) = self.append_once(group) else {
            return Ok(());
        };
        let has_more_room = self.release_reserve();
        if self.reopen().is_err() {
            return Err(AppendError::Unknown(failed));
        }
        let head = self.known().head;
        if Some(head) == group.head() {
            return Ok(());
        }
        match head == after && has_more_room {
            true => self.append_once(group).map_err(AppendError::Unknown),
            false => Err(AppendError::NotDone(failed)),
        }
    }

    fn follow(&self, after: Head, limit: usize) -> Result<Vec<Group>, FollowError> {
        let beginning = self.beginning();
        if after.seq < beginning.seq {
            return Err(FollowError::NotContinued);
        }
        let groups = self.read(|transaction| {
            let mut groups = Vec::new();
            let (mut head, mut records) = (after, 0);
            for row in transaction.open_table(GROUPS)?.range(after.seq + 1..)? {
                let (first_seq, group) = row?;
                let Ok(group) = Group::decode(first_seq.value(), group.value(), head) else {
                    // The first group shows whether the position belongs to the log.
                    return match groups.is_empty() {
                        true => Ok(None),
                        false => Err(damaged("the records do not continue this log's history")),
                    };
                };
                head = group.head().unwrap_or(head);
                records += group.records.len();
                groups.push(group);
                if records >= limit {
                    break;
                }
            }
            // From the same transaction, because the facts in memory may lack the last group.
            let is_position = !groups.is_empty() || last_head(transaction, beginning)? == after;
            Ok(is_position.then_some(groups))
        })?;
        groups.ok_or(FollowError::NotContinued)
    }

    fn beginning(&self) -> Head {
        self.known().beginning
    }

    fn compact(&self, cut: &mut Cut) -> Result<bool, StoreError> {
        let seq = cut.head.seq;
        // The position is the key of the chunks: these would replace the ones in force.
        if !cut.is_moved && seq <= self.known().beginning.seq {
            return Ok(false);
        }
        if let Some((index, chunk)) = cut.next_chunk() {
            self.write(|transaction| {
                let mut chunks = transaction.open_table(BEGINNING)?;
                chunks.insert((seq, index), chunk.as_slice())?;
                Ok(())
            })?;
            return Ok(true);
        }
        if cut.is_moved {
            return self.clear();
        }
        self.write(|transaction| insert_row(transaction, BEGINNING_ROW, &cut.beginning().encode_to_vec()))?;
        cut.is_moved = true;
        let mut known = self.known();
        known.beginning = cut.head;
        known.bytes = known.bytes.saturating_sub(cut.replaced_bytes) + cut.bytes;
        Ok(true)
    }

    fn log_id(&self) -> LogId {
        self.known().log_id.clone()
    }

    fn notes(&self) -> Notes {
        self.known().notes
    }

    fn write_notes(&self, notes: Notes) -> Result<(), StoreError> {
        self.write(|transaction| insert_row(transaction, NOTES_ROW, &notes.encode_to_vec()))?;
        self.known().notes = notes;
        Ok(())
    }

    fn seal(&self) -> Result<(), StoreError> {
        let sealed = self.with_database(|database| Ok(database.begin_write()?.commit()?));
        self.close_after(&sealed);
        sealed?;
        if self.folder.check().is_ok() {
            self.reserve.keep();
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.known().bytes
    }
}

// === impl File ===

impl File {
    fn closed(&self) -> StoreError {
        StoreError::Closed {
            why: self.why_closed.clone(),
        }
    }
}

fn check_layout(path: &Path, database: &Database) -> Result<(), StoreError> {
    let layout = database::guarded(|| {
        let layout = database.begin_read()?.open_table(NOTES)?.get(LAYOUT_ROW)?;
        Ok(layout.map(|layout| layout.value().to_vec()))
    });
    match layout.map_err(|error| failure(path, error))? {
        Some(layout) if layout == LAYOUT.to_be_bytes() => Ok(()),
        other => Err(StoreError::OtherLayout {
            path: path.to_owned(),
            found: match other.as_deref().and_then(|layout| layout.try_into().ok()) {
                Some(layout) => u32::from_be_bytes(layout).to_string(),
                None => "of another kind".to_owned(),
            },
            expected: LAYOUT,
        }),
    }
}

fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(GROUPS)?;
    transaction.open_table(BEGINNING)?;
    transaction.open_table(NOTES)?;
    Ok(())
}

fn read_known(database: &Database) -> Result<Known, Error> {
    database::guarded(|| {
        let transaction = database.begin_read()?;
        let log_id = String::from_utf8(required_row(&transaction, LOG_ID_ROW)?).ok();
        let notes = Notes::decode(required_row(&transaction, NOTES_ROW)?.as_slice());
        let beginning = read_beginning(&transaction)?.head().map_err(damaged)?;
        let head = last_head(&transaction, beginning)?;
        Ok(Known {
            log_id: log_id
                .and_then(|log_id| LogId::parse(&log_id))
                .ok_or_else(|| damaged("it has no log_id"))?,
            notes: notes.map_err(|_| damaged("its notes cannot be read"))?,
            beginning,
            head,
            bytes: 0,
        })
    })
}

/// The position after the last group of a log that begins there.
fn last_head(transaction: &ReadTransaction, beginning: Head) -> Result<Head, Error> {
    match transaction.open_table(GROUPS)?.last()? {
        Some((first_seq, group)) if first_seq.value() > beginning.seq => {
            stored_head(first_seq.value(), group.value()).map_err(damaged)
        }
        _ => Ok(beginning),
    }
}

fn read_beginning(transaction: &ReadTransaction) -> Result<Beginning, Error> {
    let row = required_row(transaction, BEGINNING_ROW)?;
    Beginning::decode(row.as_slice()).map_err(|_| damaged("it does not record where the log begins"))
}

fn required_row(transaction: &ReadTransaction, name: &str) -> Result<Vec<u8>, Error> {
    let row = transaction.open_table(NOTES)?.get(name)?;
    row.map(|row| row.value().to_vec())
        .ok_or_else(|| damaged("a note is missing"))
}

/// Returns the last position, and the approximate size of the log.
fn replay_all(transaction: &ReadTransaction, view: &mut LogView) -> Result<(Head, u64), Error> {
    let mut bytes = 0;
    let beginning = read_beginning(transaction)?;
    let cut = beginning.head().map_err(damaged)?.seq;
    let rows = (cut, 0)..(cut, beginning.chunks);
    let mut restoring = Restoring::new(beginning);
    for row in transaction.open_table(BEGINNING)?.range(rows)? {
        let chunk = row?.1;
        bytes += chunk.value().len() as u64;
        restoring.chunk(chunk.value(), view).map_err(damaged)?;
    }
    let mut head = restoring.begin(view).map_err(damaged)?;
    for row in transaction.open_table(GROUPS)?.range(head.seq + 1..)? {
        let (first_seq, group) = row?;
        bytes += group.value().len() as u64 + ROW_BYTES;
        let group = Group::decode(first_seq.value(), group.value(), head).map_err(damaged)?;
        head = view.replay_group(group, head).map_err(damaged)?;
    }
    view.end_replay();
    Ok((head, bytes))
}

fn insert_row(transaction: &WriteTransaction, name: &str, value: &[u8]) -> Result<(), Error> {
    transaction.open_table(NOTES)?.insert(name, value)?;
    Ok(())
}

fn damaged(found: &str) -> Error {
    Error::Corrupted(found.to_owned())
}

fn failure(path: &Path, error: Error) -> StoreError {
    let path = path.to_owned();
    match error {
        Error::Corrupted(found) => StoreError::Damaged { path, found },
        error => StoreError::Database { path, error },
    }
}

const GROUPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("groups");
const BEGINNING: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("beginning");
const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");
const LAYOUT_ROW: &str = "layout";
const BEGINNING_ROW: &str = "beginning";
const LOG_ID_ROW: &str = "log_id";
const NOTES_ROW: &str = "notes";
/// Changes with the meaning of any table or row. There is no conversion.
const LAYOUT: u32 = 1;
const RESERVE: &str = "reserve";
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
const CACHE_BYTES: usize = 8 << 20;
/// The approximate size of a row beside its value.
const ROW_BYTES: u64 = 24;
/// The size of what one transaction removes. Each row counts for more, because it may change pages of its own.
const CLEARED_BYTES: usize = 4 << 20;
const CLEARED_ROW_BYTES: usize = 8 << 10;

#[cfg(test)]
#[path = "embedded_tests.rs"]
pub(crate) mod tests;
