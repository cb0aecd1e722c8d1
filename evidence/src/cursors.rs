//! The progress of the ledger's followers: one redb file in the ledger's folder.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use credence_storage::database::DatabaseFile;
use credence_storage::folder_lock::FolderWatch;
use redb::{Error, ReadTransaction, ReadableTable as _, TableDefinition, WriteTransaction};

/// The file.
#[derive(Debug)]
pub(crate) struct Cursors {
    file: DatabaseFile,
}

/// Where reverification continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) next: u64,
    /// The trust anchors of each source; `None` if a source did not send them.
    pub(crate) anchors_of: HashMap<String, Option<[u8; 32]>>,
}

// === impl Cursors ===

impl Cursors {
    /// Opens the file in the ledger's folder, or creates it. Waits if a control plane that has just ended in this
    /// process still holds its lock.
    pub(crate) fn open(ledger_folder: &Path, folder: FolderWatch) -> Result<Self, Error> {
        let path = ledger_folder.join(FILE);
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match DatabaseFile::open(&path, CACHE_BYTES, folder.clone(), prepare) {
                Err(Error::DatabaseAlreadyOpen) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                opened => return Ok(Self { file: opened? }),
            }
        }
    }

    /// The index of the next record for the OpenTelemetry collector.
    pub(crate) fn otlp(&self) -> Result<u64, Error> {
        self.file.read(|transaction| next(transaction, OTLP))
    }

    /// Durable on return.
    pub(crate) fn set_otlp(&self, next: u64) -> Result<(), Error> {
        self.file.write(|transaction| {
            transaction.open_table(NEXT)?.insert(OTLP, next)?;
            Ok(())
        })
    }

    pub(crate) fn progress(&self) -> Result<Progress, Error> {
        self.file.read(|transaction| {
            let mut progress = Progress {
                next: next(transaction, REVERIFICATION)?,
                anchors_of: HashMap::new(),
            };
            for source in transaction.open_table(SOURCES)?.iter()? {
                let (source, anchors) = source?;
                let anchors = anchors.value().try_into().ok();
                progress.anchors_of.insert(source.value().to_owned(), anchors);
            }
            Ok(progress)
        })
    }

    /// Durable on return.
    pub(crate) fn set_progress(&self, progress: &Progress) -> Result<(), Error> {
        self.file.write(|transaction| {
            transaction.open_table(NEXT)?.insert(REVERIFICATION, progress.next)?;
            let mut sources = transaction.open_table(SOURCES)?;
            sources.retain(|source, _| progress.anchors_of.contains_key(source))?;
            for (source, anchors) in &progress.anchors_of {
                let anchors = anchors.as_ref().map_or(&[][..], |digest| &digest[..]);
                let known = sources.get(source.as_str())?.map(|known| known.value() == anchors);
                if known != Some(true) {
                    sources.insert(source.as_str(), anchors)?;
                }
            }
            Ok(())
        })
    }
}

fn next(transaction: &ReadTransaction, follower: &str) -> Result<u64, Error> {
    let next = transaction.open_table(NEXT)?.get(follower)?;
    Ok(next.map_or(0, |next| next.value()))
}

fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(NEXT)?;
    transaction.open_table(SOURCES)?;
    Ok(())
}

/// In the ledger's folder.
pub(crate) const FILE: &str = "followers.redb";
/// The index of the next record, by follower.
const NEXT: TableDefinition<'_, &str, u64> = TableDefinition::new("next");
/// The digest of the trust anchors, by source; empty if the source did not send it.
const SOURCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sources");
const OTLP: &str = "otlp";
const REVERIFICATION: &str = "reverification";
const CACHE_BYTES: usize = 8 << 20;
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_continue_where_they_were_and_know_which_sources_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cursors::open(folder.path(), FolderWatch::of_nothing()).unwrap();
        let read = || {
            let cursors = open();
            (cursors.otlp().unwrap(), cursors.progress().unwrap())
        };
        assert_eq!(read(), (0, Progress::default()));
        let mut progress = Progress {
            next: 17,
            anchors_of: HashMap::from([("a".to_owned(), Some([0xcd; 32])), ("b".to_owned(), None)]),
        };
        open().set_progress(&progress).unwrap();
        open().set_otlp(3).unwrap();
        assert_eq!(read(), (3, progress.clone()));
        progress.anchors_of = HashMap::from([("b".to_owned(), Some([1; 32]))]);
        open().set_progress(&progress).unwrap();
        assert_eq!(read(), (3, progress));
    }

    #[test]
    fn progress_is_saved_again_after_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cursors = Cursors::open(folder.path(), FolderWatch::of_nothing()).unwrap();
        cursors.set_otlp(3).unwrap();
        let fail = || cursors.file.write(|_| Err::<(), _>(Error::PreviousIo));
        fail().unwrap_err();
        assert_eq!(cursors.otlp().unwrap(), 3);
        fail().unwrap_err();
        cursors.set_otlp(4).unwrap_err();
        cursors.progress().unwrap_err();
        std::thread::sleep(Duration::from_secs(1));
        cursors.set_otlp(5).unwrap();
        assert_eq!(cursors.otlp().unwrap(), 5);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cursors::open(folder.path(), FolderWatch::of_nothing());
        open().unwrap().set_otlp(3).unwrap();
        std::fs::write(folder.path().join(FILE), "12 records").unwrap();
        open().unwrap_err();
    }
}
