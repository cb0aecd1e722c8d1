//! Locks a data folder, so that one process at a time writes to it.
//!
//! The lock is on the folder itself, so that removing a file in it does not let a second process in. The file `lock` is
//! locked too, for file systems that cannot lock folders (NFS).
//!
//! A lock does not protect the path. A folder that was moved stays locked, but the next start does not find what was
//! written to it. The path may then name a folder that another process has locked. So [`FolderWatch`] is checked before
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

/// Why a folder was not locked.
#[derive(Debug, thiserror::Error)]
pub enum FolderLockError {
    /// Another process holds it.
    #[error("{path} is in use by another process ({holder}). Stop that one, or choose another data folder", path = path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The holder's description of itself.
        holder: String,
    },
    /// The system refused to lock the folder.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Checks that the path still leads to the locked folder. Cheap to clone; holds no lock.
#[derive(Debug, Clone)]
pub struct FolderWatch {
    path: Arc<Path>,
    /// The expected device and inode of each path below the folder; the empty path is the folder itself.
    expected: Arc<[(&'static str, Inode)]>,
}

/// The path leads to another folder than the locked one, or its lock is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} {found} while this process was using it. What it has written since may be lost, so it acknowledges \
     nothing more and ends. If the folder was moved or replaced, put the one that it used back. If only `lock` is \
     missing, start again", path = path.display()
)]
pub struct FolderLost {
    path: PathBuf,
    /// What was found instead.
    found: String,
}

/// A file's device and inode number, which are unique while the file is open.
type Inode = (u64, u64);

// === impl FolderLock ===

impl FolderLock {
    /// Locks a folder. If another process holds it: with `standby`, calls it with the holder's name and waits for the
    /// holder to end; without, returns an error.
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
            // Meanwhile, the previous holder may have replaced the folder.
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

    /// Returns a watch that checks that the path still leads to the locked folder, and to these folders in it.
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

    /// Writes who holds the lock, for other processes that find it locked.
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
    /// Call this after data became durable and before it is acknowledged. It costs a few calls of `stat`.
    pub fn check(&self) -> Result<(), FolderLost> {
        self.expected
            .iter()
            .try_for_each(|(below, expected)| self.compare(below, *expected))
    }

    /// Call this before a file is written by its path: it could be in another folder.
    pub fn check_before_writing(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)
    }

    /// A watch without expectations, for tests.
    pub fn of_nothing() -> Self {
        Self {
            path: Path::new("").into(),
            expected: [].into(),
        }
    }

    fn compare(&self, below: &str, expected: Inode) -> Result<(), FolderLost> {
        // Joined with an empty path, a path would end in a slash.
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
    format!("could not be checked ({why})")
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

/// The holder's note about itself.
fn holder_of(path: &Path) -> String {
    let mut note = String::new();
    let read = File::open(path.join(LOCK)).and_then(|file| file.take(200).read_to_string(&mut note));
    match read {
        Ok(_) if !note.trim().is_empty() => note.trim().to_owned(),
        _ => "it left no note".to_owned(),
    }
}

/// NFS locks only files that are open for writing, and a folder cannot be: `EBADF`. Other file systems have no such
/// locks at all.
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

/// The name of the lock file.
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
