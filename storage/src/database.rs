//! redb files whose pages are all checked when they are opened.
//!
//! redb keeps a checksum of each page in the page above it, up to the root, but verifies them only after a crash. Here
//! every opening verifies all of them. So no value, key or branch page with a flipped bit is used. What remains is the
//! header. It has two roots: the one of the last commit and the one of the commit before. If a flipped bit damages the
//! first, redb continues from the second, as it must after a torn commit. [`commit`] therefore commits twice, so that
//! both roots lead to the same state.
//!
//! A file is created under another name and renamed, so that a power cut leaves no partial file.
//!
//! After an error redb neither reads nor writes a file. [`DatabaseFile`] then opens it again.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use redb::{Database, Error, ReadTransaction, ReadableDatabase as _, WriteTransaction};
use rustix::fs::{Advice, fadvise};

use crate::durable;
use crate::folder_lock::FolderWatch;

/// A file that recovers after an error, such as a full disk, once the cause is gone. Until then every operation fails.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    cache_bytes: usize,
    folder: FolderWatch,
    opened: RwLock<Opened>,
}

#[derive(Debug)]
struct Opened {
    /// The database, or the error that closed it.
    database: Result<Database, String>,
    /// When the file was last reopened after an error.
    reopened: Option<Instant>,
}

// === impl DatabaseFile ===

impl DatabaseFile {
    /// As [`open`], in a folder that is watched.
    ///
    /// # Errors
    /// Those of [`open`].
    pub fn open(
        path: &Path,
        cache_bytes: usize,
        folder: FolderWatch,
        prepare: impl Fn(&WriteTransaction) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let opened = Opened {
            database: Ok(open(path, cache_bytes, prepare)?),
            reopened: None,
        };
        Ok(Self {
            path: path.to_owned(),
            cache_bytes,
            folder,
            opened: RwLock::new(opened),
        })
    }

    /// Runs one read transaction. `work` must not begin another one.
    ///
    /// # Errors
    /// Those of `work` and of the file. Each closes the file.
    pub fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, Error> {
        self.with_database(|database| work(&database.begin_read()?))
    }

    /// Runs one write transaction. On return it is durable, in the folder that is watched. `work` must not begin
    /// another one.
    ///
    /// # Errors
    /// Those of `work` and of the file, each of which closes it, and that the folder is lost.
    pub fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T, Error>) -> Result<T, Error> {
        let done = self.with_database(|database| {
            let transaction = database.begin_write()?;
            let done = work(&transaction)?;
            commit(database, transaction)?;
            Ok(done)
        })?;
        self.folder.check_before_writing()?;
        Ok(done)
    }

    fn with_database<T>(&self, work: impl FnOnce(&Database) -> Result<T, Error>) -> Result<T, Error> {
        self.reopen()?;
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let database = opened.database.as_ref().map_err(closed)?;
        let done = guarded(|| work(database));
        drop(opened);
        done.inspect_err(|error| {
            let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
            opened.database = Err(error.to_string());
        })
    }

    /// Opens the file again if an error closed it.
    fn reopen(&self) -> Result<(), Error> {
        if self
            .opened
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .database
            .is_ok()
        {
            return Ok(());
        }
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let Err(why) = &opened.database else {
            return Ok(());
        };
        if opened.reopened.is_some_and(|at| at.elapsed() < REOPEN_INTERVAL) {
            return Err(closed(why));
        }
        opened.reopened = Some(Instant::now());
        opened.database = Ok(reopen(&self.path, self.cache_bytes, &self.folder)?);
        tracing::warn!(path = %self.path.display(), "reopened a file after an error");
        Ok(())
    }
}

fn closed(why: &String) -> Error {
    io::Error::other(format!("{why} (the file is reopened within a second)")).into()
}

/// Opens a file, or creates it. `prepare` opens every table, so that readers find all of them. Reads the whole file.
///
/// # Errors
/// [`Error::Corrupted`] if the file is damaged.
pub fn open(
    path: &Path,
    cache_bytes: usize,
    prepare: impl Fn(&WriteTransaction) -> Result<(), Error>,
) -> Result<Database, Error> {
    if !path.try_exists()? {
        make(path, &prepare)?;
    }
    let database = open_existing(path, cache_bytes)?;
    guarded(|| {
        let transaction = database.begin_write()?;
        prepare(&transaction)?;
        commit(&database, transaction)
    })?;
    Ok(database)
}

/// As [`open`], for an existing file that has all its tables. Writes nothing, so it works on a full disk.
///
/// # Errors
/// Those of [`open`].
pub fn open_existing(path: &Path, cache_bytes: usize) -> Result<Database, Error> {
    guarded(|| {
        Ok(Database::builder()
            .set_cache_size(cache_bytes)
            .set_check_integrity_on_open(true)
            .open(path)?)
    })
}

/// Makes a transaction durable, with two commits; see the module.
pub fn commit(database: &Database, transaction: WriteTransaction) -> Result<(), Error> {
    transaction.commit()?;
    Ok(database.begin_write()?.commit()?)
}

/// Reopens a file after an error, in the folder that is watched.
///
/// # Errors
/// Those of [`open_existing`], and that the folder is lost.
pub fn reopen(path: &Path, cache_bytes: usize, folder: &FolderWatch) -> Result<Database, Error> {
    folder.check_before_writing()?;
    discard_cached(path)?;
    open_existing(path, cache_bytes)
}

/// Drops the file's cached pages, so that the next read comes from the disk: after a failed sync, memory and disk may
/// differ.
fn discard_cached(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn make(path: &Path, prepare: &impl Fn(&WriteTransaction) -> Result<(), Error>) -> Result<(), Error> {
    let Some(folder) = path.parent() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    };
    let aside = path.with_extension("new");
    // Truncated, because an interrupted start may have left a partial file.
    let file = durable::create(&aside)?;
    let database = Database::builder().create(&aside)?;
    let transaction = database.begin_write()?;
    prepare(&transaction)?;
    transaction.commit()?;
    database.close()?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    durable::sync_folder(folder)?;
    Ok(())
}

/// Runs work on a redb file. redb panics on some damage; a panic becomes [`Error::Corrupted`].
///
/// # Errors
/// Those of `work`.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Error::Corrupted("reading it failed".to_owned())))
}

const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use redb::{ReadableTableMetadata as _, TableDefinition};

    use super::*;

    const TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("table");
    const LIMITED: &str = "CREDENCE_TEST_LIMITED";

    fn opened(path: &Path) -> Result<Database, Error> {
        open(path, 1 << 20, |transaction| {
            Ok(transaction.open_table(TABLE).map(drop)?)
        })
    }

    fn put(database: &Database, key: &str, value: u64) {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(TABLE).unwrap().insert(key, value).unwrap();
        commit(database, transaction).unwrap();
    }

    fn get(database: &Database, key: &str) -> Option<u64> {
        let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
        table.get(key).unwrap().map(|value| value.value())
    }

    #[test]
    fn a_file_that_a_power_cut_left_half_made_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        drop(opened(&path).unwrap());
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 1, 320, whole.len() / 2] {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(folder.path().join("users.new"), &whole[..length]).unwrap();
            put(&opened(&path).unwrap(), "alice", 7);
            assert_eq!(get(&opened(&path).unwrap(), "alice"), Some(7), "{length} bytes");
            assert!(!folder.path().join("users.new").exists());
        }
    }

    /// The test below runs this in its own process, where a limit on file sizes acts as a full disk.
    #[test]
    fn in_a_process_whose_file_sizes_are_limited_for_a_while() {
        if std::env::var_os(LIMITED).is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let prepare = |transaction: &WriteTransaction| Ok(transaction.open_table(TABLE).map(drop)?);
        let file = DatabaseFile::open(&path, 1 << 20, FolderWatch::of_nothing(), prepare).unwrap();
        let put = |keys: std::ops::Range<u64>| {
            file.write(|transaction| {
                let mut table = transaction.open_table(TABLE)?;
                for key in keys.clone() {
                    table.insert(format!("{key:0200}").as_str(), key)?;
                }
                Ok(())
            })
        };
        let count = || file.read(|transaction| Ok(transaction.open_table(TABLE)?.len()?));
        let limit = |bytes: &str| {
            let process = std::process::id().to_string();
            let limited = Command::new("prlimit")
                .args(["--pid", &process, &format!("--fsize={bytes}:")])
                .status();
            assert!(limited.unwrap().success());
        };
        put(0..10).unwrap();
        limit(&path.metadata().unwrap().len().to_string());
        put(10..60_000).unwrap_err();
        put(10..60_000).unwrap_err();
        count().unwrap_err();
        limit("unlimited");
        put(10..60_000).unwrap_err();
        std::thread::sleep(REOPEN_INTERVAL);
        assert_eq!(count().unwrap(), 10, "nothing of what failed");
        put(10..60_000).unwrap();
        assert_eq!(count().unwrap(), 60_000);
    }

    #[test]
    fn a_file_works_again_after_the_disk_was_full() {
        let name = "database::tests::in_a_process_whose_file_sizes_are_limited_for_a_while";
        // Without this, the signal ends the process.
        let ran = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(LIMITED, "")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && told.contains("1 passed"), "{told}");
    }

    /// Flips every `of_header`th bit of the header, and every `of_rest`th bit of the rest. Returns how often the file
    /// was refused.
    fn flip(of_header: usize, of_rest: usize) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let copy = folder.path().join("copy");
        let database = opened(&path).unwrap();
        let users: Vec<_> = (0..40).map(|number| format!("user-{number}")).collect();
        users
            .iter()
            .zip(0..)
            .for_each(|(user, value)| put(&database, user, value));
        // A killed process leaves the file like this, ...
        let killed = std::fs::read(&path).unwrap();
        drop(database);
        // ... and a stopped process like this.
        let stopped = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for whole in [&killed, &stopped] {
            // The first bits select the root: all of them are tried.
            let bits = (0..FIRST).chain((FIRST..HEADER).step_by(of_header));
            let is_filled = |bit: &usize| whole[bit / 8 / 64 * 64..][..64].iter().any(|byte| *byte != 0);
            let rest = (HEADER..whole.len() * 8).filter(is_filled).step_by(of_rest);
            for bit in bits.chain(rest) {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&copy, &bytes).unwrap();
                match opened(&copy) {
                    Ok(database) => {
                        for (user, value) in users.iter().zip(0..) {
                            assert_eq!(get(&database, user), Some(value), "bit {bit}: {user}");
                        }
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        refused
    }

    /// Bits of redb's header, and the first of them.
    const HEADER: usize = 320 * 8;
    const FIRST: usize = 12 * 8;

    #[test]
    fn of_a_file_with_a_flipped_bit_nothing_else_is_read_than_what_was_written() {
        assert!(flip(29, 5_003) > 0);
    }

    #[test]
    #[ignore = "long: make soak runs it"]
    fn of_a_file_with_any_bit_of_its_header_flipped_nothing_else_is_read_than_what_was_written() {
        assert!(flip(1, 211) > 0);
    }
}
