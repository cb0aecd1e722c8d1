//! The tokens that were applied, so that none is applied twice. Also the latest time at which each account was
//! disabled, so that a delayed older event does not enable it.
//!
//! Tokens that would be refused for their age are forgotten.

use std::path::Path;

use redb::{Error, ReadableTable as _, ReadableTableMetadata as _, TableDefinition, WriteTransaction};

use credence_storage::database::DatabaseFile;
use credence_storage::folder_lock::FolderWatch;

/// The remembered tokens.
#[derive(Debug)]
pub(crate) struct Seen {
    file: DatabaseFile,
    limit: u64,
}

/// A token that was applied, and the facts to remember.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) transmitter: String,
    pub(crate) id: String,
    /// The SHA-256 of the whole token.
    pub(crate) digest: [u8; 32],
    pub(crate) issued_at: i64,
    /// When it may be forgotten, in seconds since the Unix epoch.
    pub(crate) until: i64,
    /// The subjects that it disabled.
    pub(crate) disabled: Vec<String>,
}

// === impl Seen ===

impl Seen {
    /// Opens the file, or creates it, in the watched folder.
    pub(crate) fn open(path: &Path, folder: FolderWatch, limit: u64) -> Result<Self, Error> {
        Ok(Self {
            file: DatabaseFile::open(path, CACHE_BYTES, folder, prepare)?,
            limit,
        })
    }

    /// The digest of the transmitter's token with this id, if it was applied.
    pub(crate) fn digest(&self, transmitter: &str, id: &str) -> Result<Option<[u8; 32]>, Error> {
        self.file.read(|transaction| {
            let found = transaction.open_table(IDS)?.get((transmitter, id))?;
            Ok(found.map(|entry| entry.value()))
        })
    }

    /// When the transmitter last reported this subject as disabled.
    pub(crate) fn disabled_at(&self, transmitter: &str, subject: &str) -> Result<Option<i64>, Error> {
        self.file.read(|transaction| {
            let found = transaction.open_table(DISABLES)?.get((transmitter, subject))?;
            Ok(found.map(|entry| entry.value().0))
        })
    }

    /// The number of remembered tokens.
    pub(crate) fn len(&self) -> Result<u64, Error> {
        self.file.read(|transaction| Ok(transaction.open_table(IDS)?.len()?))
    }

    /// Whether there is room for another one.
    pub(crate) fn has_room(&self) -> Result<bool, Error> {
        Ok(self.len()? < self.limit)
    }

    /// Durable on return.
    pub(crate) fn remember(&self, memory: &Memory) -> Result<(), Error> {
        self.file.write(|transaction| {
            let transmitter = memory.transmitter.as_str();
            let mut ids = transaction.open_table(IDS)?;
            let mut disables = transaction.open_table(DISABLES)?;
            let mut ends = transaction.open_table(ENDS)?;
            ids.insert((transmitter, memory.id.as_str()), memory.digest)?;
            ends.insert((memory.until, ID, transmitter, memory.id.as_str()), ())?;
            for subject in &memory.disabled {
                let key = (transmitter, subject.as_str());
                let before = disables.get(key)?.map(|entry| entry.value());
                if before.is_some_and(|(issued_at, _)| issued_at >= memory.issued_at) {
                    continue;
                }
                if let Some((_, until)) = before {
                    ends.remove((until, DISABLE, transmitter, subject.as_str()))?;
                }
                disables.insert(key, (memory.issued_at, memory.until))?;
                ends.insert((memory.until, DISABLE, transmitter, subject.as_str()), ())?;
            }
            Ok(())
        })
    }

    /// Forgets everything that is old enough at `now`, seconds since the Unix epoch. It works in portions, so that no
    /// caller waits long.
    pub(crate) fn forget(&self, now: i64) -> Result<(), Error> {
        while self.file.write(|transaction| {
            let mut ended = Vec::new();
            {
                let mut ids = transaction.open_table(IDS)?;
                let mut disables = transaction.open_table(DISABLES)?;
                let mut ends = transaction.open_table(ENDS)?;
                for entry in ends.range(..(now, "", "", ""))?.take(PORTION) {
                    let (key, _) = entry?;
                    let (until, kind, transmitter, name) = key.value();
                    ended.push((until, kind == ID, transmitter.to_owned(), name.to_owned()));
                }
                for (until, is_id, transmitter, name) in &ended {
                    let key = (transmitter.as_str(), name.as_str());
                    match is_id {
                        true => ids.remove(key).map(drop)?,
                        false => disables.remove(key).map(drop)?,
                    }
                    let kind = if *is_id { ID } else { DISABLE };
                    ends.remove((*until, kind, key.0, key.1))?;
                }
            }
            Ok(ended.len() == PORTION)
        })? {}
        Ok(())
    }
}

fn prepare(transaction: &WriteTransaction) -> Result<(), Error> {
    transaction.open_table(IDS)?;
    transaction.open_table(DISABLES)?;
    transaction.open_table(ENDS)?;
    Ok(())
}

/// By transmitter and `jti`.
const IDS: TableDefinition<'_, (&str, &str), [u8; 32]> = TableDefinition::new("ids");
/// By transmitter and subject: `iat` of the latest token that disabled it, and when this may be forgotten.
const DISABLES: TableDefinition<'_, (&str, &str), (i64, i64)> = TableDefinition::new("disables");
/// What may be forgotten when: the time, the kind, and the key.
const ENDS: TableDefinition<'_, (i64, &str, &str, &str), ()> = TableDefinition::new("ends");
const ID: &str = "id";
const DISABLE: &str = "disable";
const PORTION: usize = 10_000;
const CACHE_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn open(path: &Path, limit: u64) -> Seen {
        Seen::open(path, FolderWatch::of_nothing(), limit).unwrap()
    }

    fn memory(id: &str, issued_at: i64, disabled: &[&str]) -> Memory {
        Memory {
            transmitter: "t".to_owned(),
            id: id.to_owned(),
            digest: [7; 32],
            issued_at,
            until: issued_at + 100,
            disabled: disabled.iter().map(|&subject| subject.to_owned()).collect(),
        }
    }

    #[test]
    fn a_token_is_remembered_until_its_end_across_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        open(&path, 9).remember(&memory("a", 1000, &[])).unwrap();
        let seen = open(&path, 9);
        seen.forget(1100).unwrap();
        assert_eq!(seen.digest("t", "a").unwrap(), Some([7; 32]));
        assert_eq!(seen.digest("u", "a").unwrap(), None);
        seen.forget(1101).unwrap();
        assert_eq!((seen.digest("t", "a").unwrap(), seen.len().unwrap()), (None, 0));
    }

    #[test]
    fn the_latest_disable_counts_whatever_the_order() {
        let folder = tempfile::tempdir().unwrap();
        let seen = open(&folder.path().join("events"), 9);
        seen.remember(&memory("b", 1050, &["alice"])).unwrap();
        seen.remember(&memory("a", 1000, &["alice"])).unwrap();
        assert_eq!(seen.disabled_at("t", "alice").unwrap(), Some(1050));
        seen.forget(1101).unwrap();
        assert_eq!(seen.disabled_at("t", "alice").unwrap(), Some(1050));
        seen.remember(&memory("c", 1060, &["alice"])).unwrap();
        seen.forget(1151).unwrap();
        assert_eq!(seen.disabled_at("t", "alice").unwrap(), Some(1060));
        seen.forget(1161).unwrap();
        assert_eq!(seen.disabled_at("t", "alice").unwrap(), None);
    }

    #[test]
    fn tokens_are_remembered_again_after_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let seen = open(&folder.path().join("events"), 9);
        seen.remember(&memory("a", 1000, &[])).unwrap();
        let fail = || seen.file.write(|_| Err::<(), _>(Error::PreviousIo));
        fail().unwrap_err();
        assert_eq!(seen.digest("t", "a").unwrap(), Some([7; 32]));
        fail().unwrap_err();
        seen.remember(&memory("b", 1000, &[])).unwrap_err();
        seen.digest("t", "a").unwrap_err();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(seen.digest("t", "b").unwrap(), None);
        seen.remember(&memory("b", 1000, &[])).unwrap();
        assert_eq!(seen.len().unwrap(), 2);
    }

    #[test]
    fn the_number_of_tokens_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let seen = open(&folder.path().join("events"), 1);
        assert!(seen.has_room().unwrap());
        seen.remember(&memory("a", 1000, &[])).unwrap();
        assert!(!seen.has_room().unwrap());
    }
}
