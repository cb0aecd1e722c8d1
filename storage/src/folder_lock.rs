//! One process at a time writes to a data folder, and only to the folder that it has locked.
//!
//! The folder itself is locked, so that removing a file in it does not let a second process in. The file `lock` is
//! locked too: a file system without locks on folders (NFS) has only that.
//!
//! A lock says nothing about a path. A folder that was moved away stays locked, and the next start does not find what was
//! written to it. Its path may by then name a folder that another process has locked. So [`FolderWatch`] is asked before
//! each acknowledgement, and before each write by path.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::file_error::{FileError, at};

/// The right to use a data folder; held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    folder: File,
    file: File,
}

/// Why a folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum FolderLockError {
    /// Another process has it.
    #[error("{path} is in use by another control plane ({holder}). Stop that one, or choose another data folder", path = path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// The system refused the folder's lock.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Whether the path still leads to the folder that was locked. Cheap to clone, and holds no lock.
#[derive(Debug, Clone)]
pub struct FolderWatch {
    path: Arc<Path>,
    /// What lies where, by its path below the folder: the folder itself by none.
    expected: Arc<[(&'static str, Inode)]>,
}

/// The path leads to another folder than the one that was locked, or its lock is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} {found} while this control plane was using it. What it has written since may be lost, so it acknowledges \
     nothing more, and ends. If the folder was moved or replaced, put the one that it used back. If only `lock` is \
     missing, start again", path = path.display()
)]
pub struct FolderLost {
    path: PathBuf,
    /// What has become of it.
    found: String,
}

/// A file's device and number: no other file has both for as long as one of them is open.
type Inode = (u64, u64);

// === impl FolderLock ===

impl FolderLock {
    /// Locks a folder. Where another process holds the lock, `standby` waits for it to end and receives the
    /// holder's name; without, that is an error.
    pub fn take(path: &Path, standby: Option<&dyn Fn(&str)>) -> Result<Self, FolderLockError> {
        let io_error = at(&path.join(LOCK));
        loop {
            let folder = File::open(path).map_err(&io_error)?;
            if let Err(error) = acquire(&folder, path, standby) {
                match error {
                    FolderLockError::Io(refused) if has_no_folder_locks(&refused.error) => {}
                    error => return Err(error),
                }
            }
            let file = open_lock_file(path).map_err(&io_error)?;
            acquire(&file, path, standby)?;
            let mut lock = Self {
                path: path.to_owned(),
                folder,
                file,
            };
            // The one that held it may have taken the folder away and put another in its place meanwhile.
            if lock.watch(&[]).map_err(&io_error)?.check().is_ok() {
                lock.leave_note().map_err(&io_error)?;
                return Ok(lock);
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells whether the path still leads to what is locked, and to these folders in it.
    pub fn watch(&self, folders: &[&'static str]) -> io::Result<FolderWatch> {
        let mut expected = vec![
            ("", inode(&self.folder.metadata()?)),
            (LOCK, inode(&self.file.metadata()?)),
        ];
        for &folder in folders {
            expected.push((folder, inode(&std::fs::metadata(self.path.join(folder))?)));
        }
        Ok(FolderWatch {
            path: self.path.as_path().into(),
            expected: expected.into(),
        })
    }

    /// Says who holds the lock, for the one who finds it held.
    fn leave_note(&mut self) -> io::Result<()> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let note = format!(
            "process {} on {}\n",
            std::process::id(),
            Some(host.trim()).filter(|h| !h.is_empty()).unwrap_or("this machine")
        );
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(note.as_bytes())
    }
}

// === impl FolderWatch ===

impl FolderWatch {
    /// To be asked after something became durable and before it is acknowledged: a few calls of `stat`.
    pub fn check(&self) -> Result<(), FolderLost> {
        self.expected
            .iter()
            .try_for_each(|(below, expected)| self.compare(below, *expected))
    }

    /// To be asked before a file is written by its path: it would be another folder's.
    pub fn check_before_writing(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }

    /// A watch that expects nothing, for tests of what is in a folder.
    pub fn of_nothing() -> Self {
        Self {
            path: Path::new("").into(),
            expected: [].into(),
        }
    }

    fn compare(&self, below: &str, expected: Inode) -> Result<(), FolderLost> {
        // Joined with nothing, a path ends in a slash.
        let path = match below {
            "" => self.path.to_path_buf(),
            below => self.path.join(below),
        };
        let found = match std::fs::metadata(&path) {
            Ok(metadata) if inode(&metadata) == expected => return Ok(()),
            Ok(_) => "was replaced by another one".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "was removed".to_owned(),
            Err(error) => unknown(error),
        };
        Err(FolderLost { path, found })
    }
}

// === impl FolderLost ===

impl FolderLost {
    /// The file system has not answered for so long that the folder counts as lost.
    pub fn unanswered(watch: &FolderWatch, waited: Duration) -> Self {
        Self {
            path: watch.path.to_path_buf(),
            found: unknown(format_args!("no answer within {} s", waited.as_secs())),
        }
    }
}

fn inode(metadata: &Metadata) -> Inode {
    (metadata.dev(), metadata.ino())
}

fn unknown(why: impl fmt::Display) -> String {
    format!("could not be looked at ({why})")
}

fn acquire(file: &File, path: &Path, standby: Option<&dyn Fn(&str)>) -> Result<(), FolderLockError> {
    let io_error = at(&path.join(LOCK));
    match file.try_lock() {
        Ok(()) => return Ok(()),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(io_error(error).into()),
    }
    let holder = holder_of(path);
    match standby {
        None => Err(FolderLockError::Locked {
            path: path.to_owned(),
            holder,
        }),
        Some(waiting) => {
            waiting(&holder);
            Ok(file.lock().map_err(io_error)?)
        }
    }
}

/// What the holder of the lock wrote about itself.
fn holder_of(path: &Path) -> String {
    let mut note = String::new();
    let read = File::open(path.join(LOCK)).and_then(|file| file.take(200).read_to_string(&mut note));
    match read {
        Ok(_) if !note.trim().is_empty() => note.trim().to_owned(),
        _ => "it left no note".to_owned(),
    }
}

/// NFS locks a file that is open for writing, which no folder is: `EBADF`. Others know no such locks at all.
fn has_no_folder_locks(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(
        code,
        Some(rustix::io::Errno::BADF | rustix::io::Errno::NOTSUP | rustix::io::Errno::NOLCK | rustix::io::Errno::INVAL)
    )
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join(LOCK))
}

/// The name of the file that is locked too.
pub const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_locked_with_and_without_its_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let held = FolderLock::take(folder.path(), None).unwrap();
        for remove in [false, true] {
            if remove {
                std::fs::remove_file(folder.path().join(LOCK)).unwrap();
            }
            let second = FolderLock::take(folder.path(), None);
            assert!(matches!(second, Err(FolderLockError::Locked { .. })), "{second:?}");
        }
        drop(held);
        FolderLock::take(folder.path(), None).unwrap();
    }

    #[test]
    fn a_lock_on_the_file_alone_is_respected() {
        let folder = tempfile::tempdir().unwrap();
        let held = open_lock_file(folder.path()).unwrap();
        held.try_lock().unwrap();
        let refused = FolderLock::take(folder.path(), None);
        assert!(matches!(refused, Err(FolderLockError::Locked { .. })), "{refused:?}");
    }

    #[test]
    fn a_replaced_folder_or_lock_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        let fresh = || {
            std::fs::create_dir_all(path.join("log")).unwrap();
            let lock = FolderLock::take(&path, None).unwrap();
            let watch = lock.watch(&["log"]).unwrap();
            watch.check().unwrap();
            (lock, watch)
        };
        let copy_of_lock = || {
            std::fs::copy(path.join(LOCK), path.join("copy")).unwrap();
            std::fs::rename(path.join("copy"), path.join(LOCK)).unwrap();
        };
        let move_away = |from: &Path, to: &str| std::fs::rename(from, place.path().join(to)).unwrap();
        let replace = |folder: &Path, aside: &str| {
            move_away(folder, aside);
            std::fs::create_dir(folder).unwrap();
        };
        let cases: [(&dyn Fn(), &str); 5] = [
            (
                &|| std::fs::remove_file(path.join(LOCK)).unwrap(),
                "data/lock was removed",
            ),
            (&copy_of_lock, "data/lock was replaced"),
            (&|| move_away(&path, "first"), "data was removed"),
            (&|| replace(&path, "second"), "data was replaced"),
            (&|| replace(&path.join("log"), "third"), "data/log was replaced"),
        ];
        for (meddle, words) in cases {
            let (_lock, watch) = fresh();
            meddle();
            let lost = watch.check().unwrap_err().to_string();
            assert!(lost.contains(words), "{lost}");
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}
