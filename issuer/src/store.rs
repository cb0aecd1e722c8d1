//! The issuer's database. One thread writes: it commits many changes at once, and answers when they are on disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use credence_storage::database::{self, DatabaseFile};
use credence_storage::folder_lock::FolderWatch;
use redb::{Error, ReadTransaction, WriteTransaction};
use tokio::sync::oneshot;

/// The database. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    database: Arc<DatabaseFile>,
    changes: SyncSender<Change>,
    /// Why the last changes were not stored.
    fault: Arc<Mutex<Option<StoreError>>>,
}

/// Why something was not stored or read. A change may still have happened if the process ends.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("too many changes wait for the disk")]
    Full,
    #[error("the database failed: {0}")]
    Failed(Arc<str>),
}

/// Makes a change, and returns what answers its caller once it is on disk.
type Change = Box<dyn FnOnce(&WriteTransaction) -> Result<Answer, Error> + Send>;
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

// === impl Store ===

impl Store {
    /// Opens or creates the database in a folder that is locked to this process.
    pub(crate) fn open(
        folder: &Path,
        watch: FolderWatch,
        prepare: impl Fn(&WriteTransaction) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let database = DatabaseFile::open(&folder.join(FILE), CACHE_BYTES, watch, prepare)?;
        let database = Arc::new(database);
        let (changes, waiting) = sync_channel(MAX_WAITING);
        let fault = Arc::new(Mutex::new(None));
        let (written, noted) = (Arc::clone(&database), Arc::clone(&fault));
        // It ends with the last sender.
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || write(&written, &waiting, &noted))
            .map_err(Error::Io)?;
        Ok(Self {
            database,
            changes,
            fault,
        })
    }

    /// Makes a change, which is on disk when this returns. If `work` refuses, it must not have changed anything.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let change = move |transaction: &WriteTransaction| {
            let made = work(transaction)?;
            let answer = move |stored: Result<(), StoreError>| drop(sender.send(stored.map(|()| made)));
            Ok(Box::new(answer) as Answer)
        };
        self.changes.try_send(Box::new(change)).map_err(|_| StoreError::Full)?;
        receiver.await.unwrap_or_else(|_| Err(failed("a change was given up")))
    }

    /// Why the last changes were not stored, if they were not.
    pub(crate) fn fault(&self) -> Option<StoreError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads one state. Blocks for the time of a few disk reads.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, StoreError> {
        self.database.read(work).map_err(failed)
    }
}

/// The writing thread.
fn write(database: &DatabaseFile, waiting: &Receiver<Change>, fault: &Mutex<Option<StoreError>>) {
    while let Ok(first) = waiting.recv() {
        let changes: Vec<Change> = std::iter::once(first)
            .chain(waiting.try_iter().take(MAX_TOGETHER))
            .collect();
        let mut answers = Vec::with_capacity(changes.len());
        let written = database::guarded(|| {
            database.write(|transaction| {
                for change in changes {
                    answers.push(change(transaction)?);
                }
                Ok(())
            })
        });
        let stored = written.map_err(failed);
        if let Err(error) = &stored {
            tracing::error!(%error, "nothing was stored");
        }
        *fault.lock().unwrap_or_else(PoisonError::into_inner) = stored.clone().err();
        for answer in answers {
            answer(stored.clone());
        }
    }
}

fn failed(error: impl ToString) -> StoreError {
    StoreError::Failed(error.to_string().into())
}

const FILE: &str = "issuer.redb";
const CACHE_BYTES: usize = 64 << 20;
/// Changes that may wait for the disk; more are refused.
const MAX_WAITING: usize = 1_024;
const MAX_TOGETHER: usize = 256;
