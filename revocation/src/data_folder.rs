//! The data folder: created once and explicitly, used by one process at a time.
//!
//! ```text
//! lock                     held while a control plane runs; says which
//! log/id                   the log's name
//! log/revocations          the revocation log (frames)
//! log/revocations.compacting   only while it is compacted: what will take its place
//! log/history.redb         what was done to each principal and why, made from the revocation log
//! log/clock                the log's own clock, by which delegations are forgotten
//! log/forgotten            up to which stamp delegations may have been forgotten
//! log/head                 how far the log had been acknowledged, at most about a second ago
//! log/restored             only while the log gets another name: which it has had, and has
//! log/revocations.restored only then: what will take the place of log/revocations
//! log/leases               how many milliseconds filters may be fresh for after this process has ended
//! log/audit-source-key     proves that an audit source was named by us
//! log/filter-cache-secret  the keys of the filters' shared caches are derived from it
//! ledger/                  segments of evidence (frames)
//! identity/                users, and security events that have been seen (redb)
//! otlp/cursor              the index of the next record for the OpenTelemetry collector
//! ```
//!
//! `log/` is built aside and renamed into place, so that it is either whole or not there. Small files begin with a line
//! that has a checksum ([`small_file`]): what is damaged is refused with the cure, and never read as another value.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Forgotten;
use crate::leases::with_allowance;
use crate::limits::{InitOptions, MAX_STALENESS};
use crate::restored;
use crate::storage::{self, Head};
use credence_runtime::text::hex;
use credence_storage::folder_lock::{FolderLock, FolderLockError, FolderWatch, LOCK};
use credence_storage::small_file::{Contents, SmallFileError};
use credence_storage::{durable, small_file};

/// A locked, initialised data folder. Dropping it releases the lock.
pub struct DataFolder {
    path: PathBuf,
    log_id: LogId,
    source_key: [u8; 32],
    cache_secret: [u8; 32],
    watch: FolderWatch,
    _lock: FolderLock,
}

/// The name of a log: 128 random bits as 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogId(String);

/// Why a data folder can not be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// No log, and nobody asked for one.
    #[error(
        "{path} holds no log. If this is a new installation, start once with --init. If a log was here, restore it \
         from a backup: starting an empty one would forget every revocation", path = path.display()
    )]
    NotInitialised {
        /// The data folder.
        path: PathBuf,
    },
    /// A log, and somebody asked for a new one.
    #[error("{path} is already initialised (log {log_id}); start without --init", path = path.display())]
    AlreadyInitialised {
        /// The data folder.
        path: PathBuf,
        /// The log it holds.
        log_id: LogId,
    },
    /// Something else lives here.
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
    /// Another process has it, or the system refused to lock it.
    #[error(transparent)]
    Lock(#[from] FolderLockError),
    /// Another log than the one that is declared restored.
    #[error(
        "{path} holds log {log_id}, and --restored names {named}. If that one was declared restored already, it is called \
         {log_id} since: start without --restored", path = path.display()
    )]
    OtherLog {
        /// The data folder.
        path: PathBuf,
        /// Which log was named.
        named: String,
        /// The log it holds.
        log_id: LogId,
    },
    /// The floor of a restored log would come to lie too early, or far too late.
    #[error(
        "the wall clock is {behind} seconds behind what the log in {path} has seen, so that it is not known up to when \
         roots are void. Set the wall clock right. If it is, the log's times are from a clock that was ahead: begin a new \
         log with --init in an empty folder", path = path.display()
    )]
    ClockBehind {
        /// The data folder.
        path: PathBuf,
        /// Seconds.
        behind: i64,
    },
    /// A file of ours does not hold what we wrote.
    #[error("{path} is damaged: {found}. {cure}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A file of ours is not there.
    #[error("{path} is missing. {cure}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What to do.
        cure: &'static str,
    },
    /// The system refused.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

// === impl DataFolder ===

impl DataFolder {
    /// Creates the log in a locked folder if `init` says so, and reads what identifies it. `now` is seconds since the
    /// Unix epoch.
    pub fn open(lock: FolderLock, init: Option<InitOptions>, now: i64) -> Result<Self, DataFolderError> {
        let path = lock.path();
        let log = path.join(LOG);
        if let Some(options) = init {
            if log.is_dir() {
                let log_id = read_log_id(&log)?;
                return Err(DataFolderError::AlreadyInitialised {
                    path: path.to_owned(),
                    log_id,
                });
            }
            if let Some(found) = stranger(path).map_err(at(path))? {
                return Err(DataFolderError::NotEmpty {
                    path: path.to_owned(),
                    found,
                });
            }
            initialise(path, options, now).map_err(at(path))?;
        }
        if !path.join(LEDGER).is_dir() {
            return Err(DataFolderError::Missing {
                path: path.join(LEDGER),
                cure: RESTORE_FOLDER,
            });
        }
        // Folders from before there were identity providers lack it.
        let identity = path.join(IDENTITY);
        durable::create_folder(&identity).map_err(at(&identity))?;
        restored::finish(&log)?;
        let log_id = read_log_id(&log)?;
        let source_key = read_secret(&log, SOURCE_KEY, RESTORE_SOURCE_KEY)?;
        let cache_secret = read_or_make_cache_secret(&log)?;
        let revocations = log.join(REVOCATIONS);
        if !revocations.try_exists().map_err(at(&revocations))? {
            return Err(DataFolderError::Missing {
                path: revocations,
                cure: RESTORE_FOLDER,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            log_id,
            source_key,
            cache_secret,
            watch: lock.watch(&[LOG, LEDGER, IDENTITY]).map_err(at(path))?,
            _lock: lock,
        })
    }

    pub fn log_id(&self) -> &LogId {
        &self.log_id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// What tells whether the path still leads to this folder, and to what is in it.
    pub fn watch(&self) -> FolderWatch {
        self.watch.clone()
    }

    /// Takes up the name that a declaration has given the log.
    pub(crate) fn finish_restoring(&mut self) -> Result<(), DataFolderError> {
        restored::finish(&self.log())?;
        self.log_id = read_log_id(&self.log())?;
        Ok(())
    }

    pub fn source_key(&self) -> [u8; 32] {
        self.source_key
    }

    pub fn cache_secret(&self) -> [u8; 32] {
        self.cache_secret
    }

    pub fn revocations(&self) -> PathBuf {
        self.path.join(LOG).join(REVOCATIONS)
    }

    pub fn ledger(&self) -> PathBuf {
        self.path.join(LEDGER)
    }

    pub fn identity(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    pub fn otlp(&self) -> PathBuf {
        self.path.join(OTLP)
    }

    pub fn notes(&self) -> LogNotes {
        LogNotes {
            log: self.path.join(LOG),
            folder: self.watch(),
        }
    }

    /// Where a compacted file is made.
    pub fn compacting(&self) -> PathBuf {
        self.path.join(LOG).join(COMPACTING)
    }

    pub fn history(&self) -> PathBuf {
        self.path.join(LOG).join(HISTORY)
    }
}

/// Without its secrets.
impl fmt::Debug for DataFolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DataFolder")
            .field("path", &self.path)
            .field("log_id", &self.log_id)
            .finish_non_exhaustive()
    }
}

/// The small files of the log that are written while it is in use.
#[derive(Debug, Clone)]
pub struct LogNotes {
    log: PathBuf,
    folder: FolderWatch,
}

/// What a small file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted<T> {
    pub(crate) value: T,
    /// Whether a checksum covers it. Versions before the checksums wrote it without one.
    pub(crate) is_checked: bool,
}

/// What the system said of this path.
fn at(path: &Path) -> impl FnOnce(io::Error) -> DataFolderError + use<> {
    let path = path.to_owned();
    move |error| DataFolderError::Io { path, error }
}

/// Locks the folder of a log. With `create` there need not be one yet. Where another process holds the lock, `standby`
/// waits for it to end and receives the holder's name; without, that is an error.
pub fn take_lock(path: &Path, create: bool, standby: Option<&dyn Fn(&str)>) -> Result<FolderLock, DataFolderError> {
    if create {
        durable::create_folder(path).map_err(at(path))?;
    } else if !path.join(LOG).is_dir() {
        return Err(match stranger(path).map_err(at(path))? {
            Some(found) => DataFolderError::NotEmpty {
                path: path.to_owned(),
                found,
            },
            None => DataFolderError::NotInitialised { path: path.to_owned() },
        });
    }
    Ok(FolderLock::take(path, standby)?)
}

// === impl LogNotes ===

impl LogNotes {
    /// Notes the log's clock, in seconds since the Unix epoch. Durable on return.
    pub(crate) fn write_clock(&self, seconds: i64) -> io::Result<()> {
        self.write(CLOCK, &format!("{seconds}\n"))
    }

    /// What was noted last; nothing in a log that never had a clock.
    pub(crate) fn clock(&self) -> Result<Option<Noted<i64>>, DataFolderError> {
        read_text(&self.log, CLOCK, 64, REMOVE_CLOCK, |text| text.trim_end().parse().ok())
    }

    /// Durable on return.
    pub(crate) fn note_forgotten(&self, forgotten: Forgotten) -> io::Result<()> {
        self.write(FORGOTTEN, &format!("{} {}\n", forgotten.before, forgotten.clock))
    }

    /// What was noted last; nothing in a log that has forgotten nothing.
    pub(crate) fn forgotten(&self) -> Result<Option<Noted<Forgotten>>, DataFolderError> {
        read_text(&self.log, FORGOTTEN, 64, REMOVE_FORGOTTEN, |text| {
            let (before, clock) = text.trim_end().split_once(' ')?;
            Some(Forgotten {
                before: before.parse().ok()?,
                clock: clock.parse().ok()?,
            })
        })
    }

    /// Of what an older version wrote without one.
    pub(crate) fn give_forgotten_a_checksum(&self, forgotten: Forgotten) -> Result<(), DataFolderError> {
        self.note_forgotten(forgotten).map_err(at(&self.log.join(FORGOTTEN)))
    }

    /// What is said of a clock that cannot be right.
    pub(crate) fn implausible_clock(&self) -> DataFolderError {
        DataFolderError::Damaged {
            path: self.log.join(CLOCK),
            found: "it is far ahead of the wall clock and of every entry of the log, and has no checksum",
            cure: REMOVE_CLOCK,
        }
    }

    /// What is said of a note that no control plane has written.
    pub(crate) fn implausible_forgotten(&self) -> DataFolderError {
        DataFolderError::Damaged {
            path: self.log.join(FORGOTTEN),
            found: "its two times do not fit together, or the log's clock does not go as far",
            cure: REMOVE_FORGOTTEN,
        }
    }

    /// Notes how far the log has been acknowledged. Durable on return.
    pub(crate) fn write_head(&self, head: &Head) -> io::Result<()> {
        self.write(HEAD, &head.to_string())
    }

    /// What was noted last; nothing in a new log.
    pub fn head(&self) -> Result<Option<Head>, DataFolderError> {
        let noted = read_text(&self.log, HEAD, 256, REMOVE_HEAD, Head::parse)?;
        Ok(noted.map(|noted| noted.value))
    }

    /// Filters may be fresh for `lasts` after this process has ended, and no longer. Durable on return.
    pub fn write_leases(&self, lasts: Duration) -> io::Result<()> {
        self.write(LEASES, &lasts.as_millis().to_string())?;
        for name in OLDER {
            match std::fs::remove_file(self.log.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// For how long filters of earlier processes may be fresh. What cannot be read counts as the longest there is, and so
    /// does what an older version may have promised.
    ///
    /// It is counted from the successor's start, not by the wall clock: the end was earlier than the start whatever any
    /// clock says.
    pub fn leases(&self) -> io::Result<Duration> {
        let longest = with_allowance(MAX_STALENESS);
        for name in OLDER {
            if self.log.join(name).try_exists()? {
                return Ok(longest);
            }
        }
        let text = match small_file::read(&self.log, LEASES, 32) {
            Ok(Some(Contents::Checked(text))) => text,
            Ok(_) | Err(SmallFileError::Damaged) => return Ok(longest),
            Err(SmallFileError::Io(error)) => return Err(error),
        };
        let milliseconds = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        Ok(milliseconds.map_or(longest, Duration::from_millis).min(longest))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.folder.check_before_writing()?;
        small_file::write(&self.log, name, text.as_bytes())
    }
}

// === impl LogId ===

impl LogId {
    /// The name as it stands in configurations and on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name nobody has used.
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Self(random_hex()?))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// 128 random bits as 32 lower-case hexadecimal digits.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}

/// A name in the folder that initialising would not expect: it may be somebody's data.
fn stranger(path: &Path) -> io::Result<Option<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let expected = match name.as_str() {
            LOCK | LOG_ASIDE | "lost+found" => true,
            LEDGER | IDENTITY | OTLP => std::fs::read_dir(entry.path())?.next().is_none(),
            _ => false,
        };
        if !expected {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn initialise(path: &Path, options: InitOptions, now: i64) -> io::Result<()> {
    let aside = path.join(LOG_ASIDE);
    if aside.exists() {
        std::fs::remove_dir_all(&aside)?;
    }
    durable::create_folder(&path.join(LEDGER))?;
    durable::create_folder(&aside)?;
    let log_id = LogId::random()?;
    small_file::write(&aside, SOURCE_KEY, &random_secret()?)?;
    small_file::write(&aside, CACHE_SECRET, &random_secret()?)?;
    small_file::write(&aside, LEASES, b"0")?;
    write_log_id(&aside, &log_id)?;
    storage::create(&aside.join(REVOCATIONS), &log_id, options.floor.then_some(now))?;
    durable::sync_folder(&aside)?;
    std::fs::rename(&aside, path.join(LOG))?;
    durable::sync_folder(path)?;
    tracing::info!(%log_id, folder = %path.display(), floor = options.floor, "created a new revocation log");
    Ok(())
}

/// Reads a small file of text, and says what to do where that cannot be.
fn read_text<T>(
    folder: &Path,
    name: &str,
    limit: u64,
    cure: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<Noted<T>>, DataFolderError> {
    read_bytes(folder, name, limit, cure, |bytes| {
        std::str::from_utf8(bytes).ok().and_then(&parse)
    })
}

fn read_bytes<T>(
    folder: &Path,
    name: &str,
    limit: u64,
    cure: &'static str,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<Noted<T>>, DataFolderError> {
    let path = || folder.join(name);
    let damaged = |found| DataFolderError::Damaged {
        path: path(),
        found,
        cure,
    };
    let contents = match small_file::read(folder, name, limit) {
        Ok(Some(contents)) => contents,
        Ok(None) => return Ok(None),
        Err(SmallFileError::Damaged) => return Err(damaged("its first line does not match its contents")),
        Err(SmallFileError::Io(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(damaged("it is larger than any that was ever written"));
        }
        Err(SmallFileError::Io(error)) => return Err(at(&path())(error)),
    };
    let (bytes, is_checked) = contents.into_parts();
    let value = parse(&bytes).ok_or_else(|| damaged("it is not what a control plane writes there"))?;
    Ok(Some(Noted { value, is_checked }))
}

/// As [`read_bytes`], of a file that has to be there, and that is given a checksum if it has none yet.
fn read_and_keep<T>(
    folder: &Path,
    name: &str,
    cure: &'static str,
    parse: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Result<T, DataFolderError> {
    let missing = || DataFolderError::Missing {
        path: folder.join(name),
        cure,
    };
    let noted = read_bytes(folder, name, 64, cure, parse)?.ok_or_else(missing)?;
    if !noted.is_checked {
        small_file::write(folder, name, &encode(&noted.value)).map_err(at(&folder.join(name)))?;
    }
    Ok(noted.value)
}

fn read_log_id(log: &Path) -> Result<LogId, DataFolderError> {
    let parse = |bytes: &[u8]| LogId::parse(std::str::from_utf8(bytes).ok()?.trim_end_matches('\n'));
    read_and_keep(log, ID, RESTORE_ID, parse, |log_id| format!("{log_id}\n").into_bytes())
}

/// Durable on return.
pub(crate) fn write_log_id(log: &Path, log_id: &LogId) -> io::Result<()> {
    small_file::write(log, ID, format!("{log_id}\n").as_bytes())
}

fn random_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

/// A folder that knows no such secret yet gets one: all that a new one costs is that filters verify chains anew.
fn read_or_make_cache_secret(log: &Path) -> Result<[u8; 32], DataFolderError> {
    let path = log.join(CACHE_SECRET);
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => random_secret().and_then(|secret| small_file::write(log, CACHE_SECRET, &secret)),
        Err(error) => Err(error),
    }
    .map_err(at(&path))?;
    read_secret(log, CACHE_SECRET, REMOVE_CACHE_SECRET)
}

fn read_secret(log: &Path, name: &str, cure: &'static str) -> Result<[u8; 32], DataFolderError> {
    read_and_keep(
        log,
        name,
        cure,
        |bytes| bytes.try_into().ok(),
        |secret: &[u8; 32]| secret.to_vec(),
    )
}

const RESTORE_FOLDER: &str = "Restore the data folder from a backup, and start once with --restored \
                              (docs/revocation.md#backups)";
const RESTORE_ID: &str = "Restore this file from a backup of this folder, or write the log_id that the filters are \
                          configured with to it, as one line: the log is checked against it";
const RESTORE_SOURCE_KEY: &str = "Restore this file from a backup of this folder, or put 32 random bytes in its place: \
                                  then audit sources that are open cannot go on, and begin anew; followers of the event \
                                  stream get a snapshot, and positions given out before count as `claimed`";
const REMOVE_CACHE_SECRET: &str = "Remove this file: a new one is made, and filters verify chains anew";
const REMOVE_CLOCK: &str = "While no control plane runs, set the wall clock right and remove this file: the log's clock \
                            begins anew, and ids of revoked delegations are kept longer. Do not edit it: a clock that is \
                            ahead has revoked ids forgotten";
const REMOVE_FORGOTTEN: &str = "Restore this file from a backup of this folder, or remove it and keep \
                                --max-token-lifetime as it was: without it, a longer one counts at once";
const REMOVE_HEAD: &str = "Restore this file from a backup of this folder, or remove it: then a write that a crash \
                           interrupted cannot be told from damage at the very end of the log";
const LOG: &str = "log";
const LOG_ASIDE: &str = "log.initialising";
const ID: &str = "id";
const REVOCATIONS: &str = "revocations";
const COMPACTING: &str = "revocations.compacting";
const HISTORY: &str = "history.redb";
const CLOCK: &str = "clock";
const FORGOTTEN: &str = "forgotten";
const HEAD: &str = "head";
const LEASES: &str = "leases";
/// Of versions before the leases: their promises, which may last for a minute.
const OLDER: [&str; 5] = ["promise", "promised", "promise.next", "promise.new", "promised.new"];
const SOURCE_KEY: &str = "audit-source-key";
const CACHE_SECRET: &str = "filter-cache-secret";
const LEDGER: &str = "ledger";
const IDENTITY: &str = "identity";
const OTLP: &str = "otlp";

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: Option<InitOptions> = Some(InitOptions { floor: true });

    fn open(folder: &Path, init: Option<InitOptions>) -> Result<DataFolder, DataFolderError> {
        DataFolder::open(take_lock(folder, init.is_some(), None)?, init, 1_000)
    }

    #[test]
    fn an_empty_folder_is_refused_without_init_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataFolderError::NotInitialised { .. })
        ));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_folder_is_refused_without_init_and_created_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        assert!(matches!(open(&path, None), Err(DataFolderError::NotInitialised { .. })));
        open(&path, INIT).unwrap();
    }

    #[test]
    fn the_log_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), INIT).unwrap().log_id().clone();
        assert_eq!(open(folder.path(), None).unwrap().log_id(), &first);
    }

    #[test]
    fn the_cache_secret_is_its_owners_and_stays() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let secret = open(folder.path(), INIT).unwrap().cache_secret();
        let file = folder.path().join(LOG).join(CACHE_SECRET);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open(folder.path(), None).unwrap().cache_secret(), secret);
    }

    #[test]
    fn no_secret_is_printed() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), INIT).unwrap();
        let printed = format!("{opened:?}");
        for secret in [opened.source_key(), opened.cache_secret()] {
            assert!(!printed.contains(&format!("{secret:?}")), "{printed}");
        }
    }

    #[test]
    fn a_folder_from_before_the_cache_secret_gets_one_that_stays() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), INIT).unwrap().cache_secret();
        std::fs::remove_file(folder.path().join(LOG).join(CACHE_SECRET)).unwrap();
        let second = open(folder.path(), None).unwrap().cache_secret();
        assert_ne!(first, second);
        assert_eq!(open(folder.path(), None).unwrap().cache_secret(), second);
    }

    #[test]
    fn a_cache_secret_of_another_length_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::write(folder.path().join(LOG).join(CACHE_SECRET), "short").unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataFolderError::Damaged { .. })
        ));
    }

    #[test]
    fn a_flipped_bit_of_a_small_file_is_refused_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), INIT).unwrap();
        let notes = opened.notes();
        notes.write_clock(1_800_000_000).unwrap();
        notes.note_forgotten(FORGOTTEN_SO_FAR).unwrap();
        let head = Head {
            seq: 7,
            digest: crate::digest::Digest::start(opened.log_id()),
        };
        notes.write_head(&head).unwrap();
        drop(opened);
        let read_all = || -> Result<(), DataFolderError> {
            open(folder.path(), None)?;
            notes.clock()?;
            notes.forgotten()?;
            notes.head().map(drop)
        };
        read_all().unwrap();
        for name in [ID, SOURCE_KEY, CACHE_SECRET, CLOCK, FORGOTTEN, HEAD] {
            let path = folder.path().join(LOG).join(name);
            let whole = std::fs::read(&path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, flipped).unwrap();
                let refused = read_all().unwrap_err();
                assert!(
                    matches!(&refused, DataFolderError::Damaged { path: named, .. } if *named == path),
                    "{name}, bit {bit}"
                );
            }
            std::fs::write(&path, whole).unwrap();
        }
        read_all().unwrap();
    }

    const FORGOTTEN_SO_FAR: Forgotten = Forgotten {
        before: 1_792_223_700,
        clock: 1_800_000_000,
    };

    #[test]
    fn files_of_an_older_version_are_read_and_get_their_checksums() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path(), INIT).unwrap();
        let before = (opened.log_id().clone(), opened.source_key(), opened.cache_secret());
        drop(opened);
        let log = folder.path().join(LOG);
        let plain = [
            (ID, format!("{}\n", before.0).into_bytes()),
            (SOURCE_KEY, before.1.to_vec()),
            (CACHE_SECRET, before.2.to_vec()),
        ];
        for (name, bytes) in &plain {
            std::fs::write(log.join(name), bytes).unwrap();
        }
        let opened = open(folder.path(), None).unwrap();
        assert_eq!(
            (opened.log_id().clone(), opened.source_key(), opened.cache_secret()),
            before
        );
        for (name, bytes) in &plain {
            assert_eq!(std::fs::read(log.join(name)).unwrap(), small_file::encode(name, bytes));
        }
    }

    #[test]
    fn initialising_twice_is_refused_and_names_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log_id = open(folder.path(), INIT).unwrap().log_id().clone();
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
            Err(DataFolderError::NotInitialised { .. })
        ));
        open(folder.path(), INIT).unwrap();
    }

    #[test]
    fn somebody_elses_folder_is_not_initialised() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.txt"), "…").unwrap();
        assert!(matches!(
            open(folder.path(), INIT),
            Err(DataFolderError::NotEmpty { .. })
        ));
    }

    #[test]
    fn evidence_without_a_log_is_not_initialised_over() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::write(folder.path().join(LEDGER).join("segment"), "…").unwrap();
        std::fs::remove_dir_all(folder.path().join(LOG)).unwrap();
        for init in [None, INIT] {
            assert!(matches!(
                open(folder.path(), init),
                Err(DataFolderError::NotEmpty { .. })
            ));
        }
    }

    #[test]
    fn a_missing_ledger_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), INIT).unwrap());
        std::fs::remove_dir(folder.path().join(LEDGER)).unwrap();
        assert!(matches!(
            open(folder.path(), None),
            Err(DataFolderError::Missing { .. })
        ));
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

    #[test]
    fn filters_may_be_fresh_for_as_long_as_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(folder.path(), INIT).unwrap().notes();
        assert_eq!(file.leases().unwrap(), Duration::ZERO, "a new log has none");
        let lasts = Duration::from_millis(5_050);
        file.write_leases(lasts).unwrap();
        assert_eq!(open(folder.path(), None).unwrap().notes().leases().unwrap(), lasts);
    }

    #[test]
    fn a_flipped_bit_makes_no_lease_shorter() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(folder.path(), INIT).unwrap().notes();
        file.write_leases(Duration::from_millis(5_050)).unwrap();
        let path = folder.path().join(LOG).join(LEASES);
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            assert_eq!(file.leases().unwrap(), with_allowance(MAX_STALENESS), "bit {bit}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.leases().unwrap(), with_allowance(MAX_STALENESS), "missing");
    }

    #[test]
    fn what_an_older_version_may_have_promised_is_waited_for_until_we_have_said_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(folder.path(), INIT).unwrap().notes();
        for name in OLDER {
            std::fs::write(folder.path().join(LOG).join(name), "").unwrap();
            assert_eq!(file.leases().unwrap(), with_allowance(MAX_STALENESS), "{name}");
            file.write_leases(Duration::from_secs(1)).unwrap();
            assert_eq!(file.leases().unwrap(), Duration::from_secs(1), "{name}");
        }
    }
}
