//! The data folder: created once and explicitly, used by one process at a time.
//!
//! ```text
//! lock                     held while a control plane runs; names it
//! log/state.redb           the revocation log and its notes (redb)
//! log/reserve              disk space that is reserved for the log
//! log/histories.redb       each principal's history, made from the log (redb)
//! log/audit-source-key     proves that this control plane named an audit source
//! log/filter-cache-secret  the secret of the keys of the filters' shared caches
//! log/replica              names the last replica that used this folder, if its log is on etcd
//! log/moved                names the store in which the log goes on, if it has left
//! ledger/                  segments of evidence (frames)
//! identity/                users, and security events that were received (redb)
//! ```
//!
//! `log/` is created under another name and renamed, so that it is either complete or missing. Small files begin with a
//! line that has a checksum ([`small_file`]). A damaged file is refused with the fix, and never read as another value.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use credence_storage::folder_lock::{FolderLock, FolderLockError, FolderWatch, LOCK};
use credence_storage::small_file::SmallFileError;
use credence_storage::{FileError, at, durable, small_file};

use crate::limits::InitOptions;
use crate::log_id::LogId;
use crate::store::embedded;
use crate::store::embedded::EmbeddedStore;
use crate::store::{LogStore as _, StoreError};

/// A locked, initialised data folder. Dropping it releases the lock.
pub struct DataDir {
    path: PathBuf,
    source_key: [u8; 32],
    pub(crate) cache_secret: [u8; 32],
    watch: FolderWatch,
    _lock: FolderLock,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// No log, and --init was not given.
    #[error(
        "{path} holds no log. If this is a new installation, start once with --init. If a log was here, restore it \
         from a backup: starting an empty one would forget every revocation", path = path.display()
    )]
    NotInitialised {
        /// The data folder.
        path: PathBuf,
    },
    /// A log, and --init was given.
    #[error("{path} is already initialised (log {log_id}); start without --init", path = path.display())]
    AlreadyInitialised {
        /// The data folder.
        path: PathBuf,
        /// The log it holds.
        log_id: LogId,
    },
    /// The folder holds other data.
    #[error(
        "{path} holds {found:?} but no log, so it is not initialised. Choose an empty folder, or restore the missing \
         `log` folder from a backup", path = path.display()
    )]
    NotEmpty {
        /// The data folder.
        path: PathBuf,
        /// One of the names in it.
        found: String,
    },
    /// A log of its own, and --store was given.
    #[error(
        "{path} has a log of its own, and --store names another one. Choose an empty folder for the replica",
        path = path.display()
    )]
    OwnLog {
        /// The data folder.
        path: PathBuf,
    },
    /// The log has left the folder.
    #[error(
        "the log of {path} goes on in {store} (credence cluster import): start with --store. If the import was never \
         completed, repeat it, or remove {path}/log/moved", path = path.display()
    )]
    Moved {
        /// The data folder.
        path: PathBuf,
        /// The store's address.
        store: String,
    },
    /// Another process holds it, or the system refused to lock it.
    #[error(transparent)]
    Lock(#[from] FolderLockError),
    /// The log was written by another version.
    #[error(
        "{path} holds {found}, which this version does not read. Use the version that wrote it, or start with --init in an \
         empty folder", path = path.display()
    )]
    OtherLayout {
        /// The data folder.
        path: PathBuf,
        /// The layout that was found.
        found: String,
    },
    /// The log's file cannot be used.
    #[error("the revocation log: {0}")]
    Store(#[from] StoreError),
    /// A file of the folder is missing or damaged.
    #[error("{path} is {found}. {cure}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        found: &'static str,
        /// The fix.
        cure: &'static str,
    },
    /// An error of the system.
    #[error(transparent)]
    Io(#[from] FileError),
}

// === impl DataDir ===

impl DataDir {
    /// Creates the log in a locked folder if `init` is present, and reads the folder's secrets. `now` is in seconds
    /// since the Unix epoch.
    pub(crate) fn open(lock: FolderLock, init: Option<InitOptions>, now: i64) -> Result<Self, DataDirError> {
        let path = lock.path();
        let log = path.join(LOG);
        if let Some(options) = init {
            if log.is_dir() {
                refuse_other_layout(path)?;
                let store = EmbeddedStore::open(&log.join(STATE), lock.watch(&[LOG]).map_err(at(path))?)?;
                return Err(DataDirError::AlreadyInitialised {
                    path: path.to_owned(),
                    log_id: store.log_id(),
                });
            }
            if let Some(found) = unexpected_name(path).map_err(at(path))? {
                return Err(DataDirError::NotEmpty {
                    path: path.to_owned(),
                    found,
                });
            }
            initialise(path, options, now)?;
        }
        refuse_other_layout(path)?;
        for needed in [path.join(LEDGER), path.join(IDENTITY), log.join(STATE)] {
            if !needed.try_exists().map_err(at(&needed))? {
                return Err(DataDirError::Unusable {
                    path: needed,
                    found: MISSING,
                    cure: RESTORE_FOLDER,
                });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            source_key: read_secret(&log, SOURCE_KEY, RESTORE_SOURCE_KEY)?,
            cache_secret: read_or_make_cache_secret(&log)?,
            watch: lock.watch(&[LOG, LEDGER, IDENTITY]).map_err(at(path))?,
            _lock: lock,
        })
    }

    /// Opens the folder of a replica, whose log is on etcd: makes what is missing in a locked folder, and reads the
    /// secrets that all replicas have.
    pub(crate) fn open_of_replica(lock: FolderLock, secrets: &Path) -> Result<Self, DataDirError> {
        let path = lock.path();
        refuse_other_layout(path)?;
        let state = path.join(LOG).join(STATE);
        if state.try_exists().map_err(at(&state))? && moved_to(path)?.is_none() {
            return Err(DataDirError::OwnLog { path: path.to_owned() });
        }
        for name in [LOG, LEDGER, IDENTITY] {
            durable::create_folder(&path.join(name)).map_err(at(path))?;
        }
        let secret = |name| read_secret(secrets, name, MAKE_SECRET);
        Ok(Self {
            path: path.to_owned(),
            source_key: secret(SOURCE_KEY)?,
            cache_secret: secret(CACHE_SECRET)?,
            watch: lock.watch(&[LOG, LEDGER, IDENTITY]).map_err(at(path))?,
            _lock: lock,
        })
    }

    /// The secrets, by the names of their files.
    pub(crate) fn secrets(&self) -> [(&'static str, &[u8; 32]); 2] {
        [(SOURCE_KEY, &self.source_key), (CACHE_SECRET, &self.cache_secret)]
    }

    /// Refuses a folder whose log goes on elsewhere.
    pub(crate) fn check_not_moved(&self) -> Result<(), DataDirError> {
        match moved_to(&self.path)? {
            None => Ok(()),
            Some(store) => Err(DataDirError::Moved {
                path: self.path.clone(),
                store,
            }),
        }
    }

    /// Refuses a folder whose log goes on in another store than this one.
    pub(crate) fn check_not_moved_elsewhere(&self, store: &str) -> Result<(), DataDirError> {
        match moved_to(&self.path)? {
            Some(other) if other != store => Err(DataDirError::Moved {
                path: self.path.clone(),
                store: other,
            }),
            _ => Ok(()),
        }
    }

    /// From now on the log goes on in this store.
    pub(crate) fn mark_moved(&self, store: &str) -> Result<(), FileError> {
        let log = self.path.join(LOG);
        small_file::write(&log, MOVED, store.as_bytes()).map_err(at(&log.join(MOVED)))
    }

    /// The last replica that used this folder. If its name is lost, the others wait a little longer for it.
    pub(crate) fn replica(&self) -> Result<Option<String>, DataDirError> {
        let log = self.path.join(LOG);
        match small_file::read(&log, REPLICA, 64) {
            Ok(name) => Ok(name.and_then(|name| String::from_utf8(name).ok())),
            Err(SmallFileError::Damaged) => Ok(None),
            Err(SmallFileError::Io(error)) => Err(at(&log.join(REPLICA))(error).into()),
        }
    }

    pub(crate) fn note_replica(&self, name: &str) -> Result<(), DataDirError> {
        let log = self.path.join(LOG);
        Ok(small_file::write(&log, REPLICA, name.as_bytes()).map_err(at(&log.join(REPLICA)))?)
    }

    /// Opens the log.
    pub(crate) fn open_store(&self) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::open(&self.path.join(LOG).join(STATE), self.watch())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Watches that the path still leads to this folder and its contents.
    pub fn watch(&self) -> FolderWatch {
        self.watch.clone()
    }

    pub fn source_key(&self) -> [u8; 32] {
        self.source_key
    }

    pub fn ledger(&self) -> PathBuf {
        self.path.join(LEDGER)
    }

    pub fn identity(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    pub(crate) fn histories(&self) -> PathBuf {
        self.path.join(LOG).join(HISTORIES)
    }
}

/// Prints no secrets.
impl fmt::Debug for DataDir {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DataDir")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Locks the folder of a log. With `create`, the log may be missing. If another process holds the lock: with `standby`,
/// calls it with the holder's name and waits for the holder to end; without, returns an error.
pub fn take_lock(path: &Path, create: bool, standby: Option<&dyn Fn(&str)>) -> Result<FolderLock, DataDirError> {
    if create {
        durable::create_folder(path).map_err(at(path))?;
    } else if !path.join(LOG).is_dir() {
        return Err(match unexpected_name(path).map_err(at(path))? {
            Some(found) => DataDirError::NotEmpty {
                path: path.to_owned(),
                found,
            },
            None => DataDirError::NotInitialised { path: path.to_owned() },
        });
    }
    Ok(FolderLock::take(path, standby)?)
}

/// A name in the folder that an interrupted initialisation does not explain: it may be other data.
fn unexpected_name(path: &Path) -> io::Result<Option<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let expected = match name.as_str() {
            LOCK | LOG_ASIDE | "lost+found" => true,
            LEDGER | IDENTITY => std::fs::read_dir(entry.path())?.next().is_none(),
            _ => false,
        };
        if !expected {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Refuses the folder of an earlier version, which kept the log in other files.
fn refuse_other_layout(path: &Path) -> Result<(), DataDirError> {
    let log = path.join(LOG);
    for name in OTHER_LAYOUTS {
        let found = log.join(name);
        if found.try_exists().map_err(at(&found))? {
            return Err(DataDirError::OtherLayout {
                path: path.to_owned(),
                found: format!("{LOG}/{name}"),
            });
        }
    }
    Ok(())
}

fn initialise(path: &Path, options: InitOptions, now: i64) -> Result<(), DataDirError> {
    let log_id = LogId::random().map_err(at(path))?;
    let secrets = [random_secret().map_err(at(path))?, random_secret().map_err(at(path))?];
    create(path, secrets, |state| {
        embedded::create(state, &log_id, options.floor.then_some(now))
    })?;
    tracing::info!(%log_id, folder = %path.display(), floor = options.floor, "created a new revocation log");
    Ok(())
}

/// Makes an empty folder that of a log, which `fill` writes, with the secrets in this folder.
pub(crate) fn create_with(
    path: &Path,
    secrets: &Path,
    log_id: &LogId,
    fill: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), DataDirError> {
    let _lock = take_lock(path, true, None)?;
    if let Some(found) = unexpected_name(path).map_err(at(path))? {
        return Err(DataDirError::NotEmpty {
            path: path.to_owned(),
            found,
        });
    }
    let secret = |name| read_secret(secrets, name, MAKE_SECRET);
    create(path, [secret(SOURCE_KEY)?, secret(CACHE_SECRET)?], |state| {
        embedded::create(state, log_id, None)?;
        fill(state)
    })
}

fn create(
    path: &Path,
    [source_key, cache_secret]: [[u8; 32]; 2],
    fill: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), DataDirError> {
    let aside = path.join(LOG_ASIDE);
    let make_folders = || {
        if aside.exists() {
            std::fs::remove_dir_all(&aside)?;
        }
        durable::create_folder(&path.join(LEDGER))?;
        durable::create_folder(&path.join(IDENTITY))?;
        durable::create_folder(&aside)?;
        small_file::write(&aside, SOURCE_KEY, &source_key)?;
        small_file::write(&aside, CACHE_SECRET, &cache_secret)
    };
    make_folders().map_err(at(path))?;
    fill(&aside.join(STATE))?;
    let put_in_place = || {
        durable::sync_folder(&aside)?;
        std::fs::rename(&aside, path.join(LOG))?;
        durable::sync_folder(path)
    };
    Ok(put_in_place().map_err(at(path))?)
}

/// The store in which the log of this folder goes on, if it has left.
fn moved_to(path: &Path) -> Result<Option<String>, DataDirError> {
    let log = path.join(LOG);
    match small_file::read(&log, MOVED, 4096) {
        Ok(store) => Ok(store.map(|store| String::from_utf8_lossy(&store).into_owned())),
        Err(SmallFileError::Damaged) => Ok(Some("another store".to_owned())),
        Err(SmallFileError::Io(error)) => Err(at(&log.join(MOVED))(error).into()),
    }
}

/// Writes a secret, readable for its owner only, unless it is there. Returns whether it is there then.
pub(crate) fn give_secret(path: &Path, secret: &[u8; 32]) -> io::Result<bool> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(folder) = path.parent() {
        durable::create_folder(folder)?;
    }
    match std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(mut file) => {
            file.write_all(secret)?;
            file.sync_all()?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(std::fs::read(path)? == secret),
        Err(error) => Err(error),
    }
}

fn random_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

/// A new secret only makes filters verify chains once more.
fn read_or_make_cache_secret(log: &Path) -> Result<[u8; 32], DataDirError> {
    let path = log.join(CACHE_SECRET);
    if !path.try_exists().map_err(at(&path))? {
        let made = random_secret().and_then(|secret| small_file::write(log, CACHE_SECRET, &secret));
        made.map_err(at(&path))?;
    }
    read_secret(log, CACHE_SECRET, REMOVE_CACHE_SECRET)
}

/// Reads a secret. The error names the fix.
fn read_secret(log: &Path, name: &str, cure: &'static str) -> Result<[u8; 32], DataDirError> {
    let path = log.join(name);
    let found = match small_file::read(log, name, 64) {
        // A secret that an operator wrote has no first line.
        Ok(Some(secret)) => match secret.try_into() {
            Ok(secret) => return Ok(secret),
            Err(_) => "damaged: it does not hold 32 bytes",
        },
        Err(SmallFileError::Damaged) => "damaged: its first line does not match its contents",
        Ok(None) => MISSING,
        Err(SmallFileError::Io(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
            "damaged: it is larger than any valid one"
        }
        Err(SmallFileError::Io(error)) => return Err(at(&path)(error).into()),
    };
    Err(DataDirError::Unusable { path, found, cure })
}

const MISSING: &str = "missing";
const RESTORE_FOLDER: &str = "Restore the data folder from a backup, and start once with --restored \
                              (docs/operate/backup.md#restore)";
const RESTORE_SOURCE_KEY: &str = "Restore this file from a backup of this folder, or put 32 random bytes in its place: \
                                  then open audit sources cannot continue, and start again; followers of the event \
                                  stream get a snapshot, and earlier positions count as `claimed`";
const REMOVE_CACHE_SECRET: &str = "Remove this file: a new one is made, and filters verify chains once more";
const MAKE_SECRET: &str = "Put 32 random bytes there, the same for every replica: head -c 32 /dev/urandom";
const LOG: &str = "log";
const LOG_ASIDE: &str = "log.initialising";
const STATE: &str = "state.redb";
const HISTORIES: &str = "histories.redb";
const SOURCE_KEY: &str = "audit-source-key";
const CACHE_SECRET: &str = "filter-cache-secret";
const REPLICA: &str = "replica";
const MOVED: &str = "moved";
const LEDGER: &str = "ledger";
const IDENTITY: &str = "identity";
/// Files of earlier versions in the log's folder.
const OTHER_LAYOUTS: [&str; 2] = ["revocations", "id"];

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: Option<InitOptions> = Some(InitOptions { floor: true });

    fn open(folder: &Path, init: Option<InitOptions>) -> Result<DataDir, DataDirError> {
        DataDir::open(take_lock(folder, init.is_some(), None)?, init, 1_000)
    }

    fn log_id(folder: &DataDir) -> LogId {
        folder.open_store().unwrap().log_id()
    }

    #[test]
    fn an_empty_folder_is_refused_without_init_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataDirError::NotInitialised { .. })
        ));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_folder_is_refused_without_init_and_created_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        assert!(matches!(open(&path, None), Err(DataDirError::NotInitialised { .. })));
        open(&path, INIT).unwrap();
    }

    #[test]
    fn the_log_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let first = log_id(&open(folder.path(), INIT).unwrap());
        assert_eq!(log_id(&open(folder.path(), None).unwrap()), first);
    }

    #[test]
    fn only_the_owner_can_read_the_cache_secret_and_it_stays() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let secret = open(folder.path(), INIT).unwrap().cache_secret;
        let file = folder.path().join(LOG).join(CACHE_SECRET);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open(folder.path(), None).unwrap().cache_secret, secret);
    }

    #[test]
    fn no_secret_is_printed() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), INIT).unwrap();
        let printed = format!("{opened:?}");
        for secret in [opened.source_key(), opened.cache_secret] {
            assert!(!printed.contains(&format!("{secret:?}")), "{printed}");
        }
    }

    #[test]
    fn a_removed_cache_secret_is_replaced_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), INIT).unwrap().cache_secret;
        std::fs::remove_file(folder.path().join(LOG).join(CACHE_SECRET)).unwrap();
        let second = open(folder.path(), None).unwrap().cache_secret;
        assert_ne!(first, second);
        assert_eq!(open(folder.path(), None).unwrap().cache_secret, second);
    }

    #[test]
    fn a_cache_secret_of_another_length_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::write(folder.path().join(LOG).join(CACHE_SECRET), "short").unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataDirError::Unusable { found, .. }) if found.starts_with("damaged")
        ));
    }

    #[test]
    fn a_flipped_bit_of_a_secret_is_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        for name in [SOURCE_KEY, CACHE_SECRET] {
            let path = folder.path().join(LOG).join(name);
            let whole = std::fs::read(&path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, flipped).unwrap();
                let refused = open(folder.path(), None).unwrap_err();
                assert!(
                    matches!(&refused, DataDirError::Unusable { path: named, found, .. } if *named == path && found.starts_with("damaged")),
                    "{name}, bit {bit}"
                );
            }
            std::fs::write(&path, whole).unwrap();
        }
        open(folder.path(), None).unwrap();
    }

    #[test]
    fn a_source_key_of_32_plain_bytes_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::write(folder.path().join(LOG).join(SOURCE_KEY), [7; 32]).unwrap();
        assert_eq!(open(folder.path(), None).unwrap().source_key(), [7; 32]);
    }

    #[test]
    fn the_folder_of_another_layout_is_refused_with_the_fix_and_left_alone() {
        for name in OTHER_LAYOUTS {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join(LOG)).unwrap();
            std::fs::write(folder.path().join(LOG).join(name), "…").unwrap();
            for init in [None, INIT] {
                let refused = open(folder.path(), init).unwrap_err().to_string();
                assert!(refused.contains(&format!("log/{name}")), "{refused}");
                assert!(refused.contains("--init in an empty folder"), "{refused}");
            }
            assert_eq!(std::fs::read_dir(folder.path().join(LOG)).unwrap().count(), 1);
        }
    }

    #[test]
    fn initialising_twice_is_refused_and_names_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log_id = log_id(&open(folder.path(), INIT).unwrap());
        let error = open(folder.path(), INIT).unwrap_err().to_string();
        assert!(
            error.contains("start without --init") && error.contains(log_id.as_str()),
            "{error}"
        );
    }

    #[test]
    fn an_interrupted_initialisation_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(LOG_ASIDE)).unwrap();
        std::fs::create_dir(folder.path().join(LEDGER)).unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataDirError::NotInitialised { .. })
        ));
        open(folder.path(), INIT).unwrap();
    }

    #[test]
    fn a_folder_with_other_data_is_not_initialised() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.txt"), "…").unwrap();
        assert!(matches!(open(folder.path(), INIT), Err(DataDirError::NotEmpty { .. })));
    }

    #[test]
    fn evidence_without_a_log_is_not_initialised_over() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::write(folder.path().join(LEDGER).join("segment"), "…").unwrap();
        std::fs::remove_dir_all(folder.path().join(LOG)).unwrap();
        for init in [None, INIT] {
            assert!(matches!(open(folder.path(), init), Err(DataDirError::NotEmpty { .. })));
        }
    }

    #[test]
    fn a_missing_part_is_refused() {
        for part in ["ledger", "identity", "log/state.redb"] {
            let folder = tempfile::tempdir().unwrap();
            drop(open(folder.path(), INIT).unwrap());
            std::fs::rename(folder.path().join(part), folder.path().join("elsewhere")).unwrap();
            let refused = open(folder.path(), None).unwrap_err();
            assert!(
                matches!(refused, DataDirError::Unusable { found: MISSING, .. }),
                "{part}: {refused}"
            );
        }
    }

    #[test]
    fn a_second_process_is_told_who_holds_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let held = open(folder.path(), INIT).unwrap();
        let error = open(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        open(folder.path(), None).unwrap();
    }
}
