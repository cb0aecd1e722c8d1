//! Declares that the log was restored from a backup, and may have forgotten what came after it.
//!
//! A filter that saw more than the backup refuses it, but one that begins anew has nothing to compare with. So the log
//! gets another name, which no filter believes until it is configured, and a floor of now: whatever root was issued before
//! is void, with every chain under it, so that nothing of what was forgotten can be presented.
//!
//! All or nothing: a file is made aside that holds the state under the new name, and the floor; the note that says so is
//! the moment from which the log has that name. Whatever a crash leaves to be done after it, the next start does.

use std::io;
use std::path::Path;
use std::sync::Arc;

use credence_wire::v1;
use credence_wire::v1::record::Subject;

use crate::data_folder::{DataFolder, DataFolderError, LogId, write_log_id};
use crate::digest::Digest;
use crate::groups::Groups;
use crate::history::{Histories, Indexing, adopt};
use crate::metrics::Metrics;
use crate::storage::{Compacted, Cut, Head, Storage, remove_leftover};
use crate::trail::Trail;
use crate::view::{HistoryBounds, View};
use credence_storage::small_file::{Contents, SmallFileError};
use credence_storage::{durable, small_file};
use prometheus_client::registry::Registry;

/// Why the log cannot be declared restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The data folder can not be used.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// The log can not be read.
    #[error("the revocation log: {0}")]
    Log(String),
    /// The system refused.
    #[error("giving the restored log another name: {0}")]
    System(io::Error),
}

/// Gives the log in `folder`, which is called `named`, another name and a floor of `now` (seconds since the Unix epoch).
/// Of each principal's history so many entries are `kept`.
pub fn declare(folder: &mut DataFolder, named: &str, now: i64, kept: usize) -> Result<(), RestoreError> {
    let floor = prepare(folder, named, now, kept)?;
    folder.finish_restoring()?;
    tracing::warn!(
        old = named,
        log_id = %folder.log_id(),
        floor,
        "the log was declared restored: it has another log_id, and every root token issued before now is void. Set \
         control_plane.log_id of every filter to the new one, have delegations minted anew, revoke again what was revoked \
         since the backup, and start without --restored from now on"
    );
    Ok(())
}

/// As far as the note that makes it count. Returns the floor.
fn prepare(folder: &DataFolder, named: &str, now: i64, kept: usize) -> Result<i64, RestoreError> {
    let refused = |error: &dyn std::fmt::Display| RestoreError::Log(error.to_string());
    let old = folder.log_id().clone();
    if named != old.as_str() {
        return Err(RestoreError::DataFolder(DataFolderError::OtherLog {
            path: folder.path().to_owned(),
            named: named.to_owned(),
            log_id: old,
        }));
    }
    let mut view = View::new(&old, HistoryBounds { entries: 1, bytes: 1 });
    let noted = folder.notes().head()?;
    let (storage, _) =
        Storage::open(&folder.revocations(), &old, noted.as_ref(), &mut view).map_err(|error| refused(&error))?;
    let shown = folder.notes().clock()?.map(|noted| noted.value);
    let seen = shown.max(view.state().last_seen()).unwrap_or(now);
    let behind = seen.saturating_sub(now);
    if behind > MAX_BEHIND {
        return Err(RestoreError::DataFolder(DataFolderError::ClockBehind {
            path: folder.path().to_owned(),
            behind,
        }));
    }
    file_histories(folder, &storage, &view, kept).map_err(|error| refused(&error))?;

    let new = LogId::random().map_err(RestoreError::System)?;
    let seq = view.head();
    let digest = Digest::start(&new).after(view.digest().as_bytes());
    let trail = Trail::resume(seq, digest, &[digest.mark()]).map_err(|error| refused(&error))?;
    let cut = Cut {
        log_id: new.clone(),
        state: view.freeze().state,
        trail,
        offset: 0,
    };
    let floor = now.max(seen);
    let record = v1::Record {
        subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to: floor })),
    };
    let log = folder.log();
    let mut file = Compacted::begin(&log.join(RESTORED_LOG), &cut, &mut |_| Ok(())).map_err(RestoreError::System)?;
    file.append(&cut.trail, record.into()).map_err(RestoreError::System)?;
    file.sync().map_err(RestoreError::System)?;
    let note = Note {
        old,
        new,
        head: Head { seq, digest },
    };
    small_file::write(&log, NOTE, note.text().as_bytes()).map_err(RestoreError::System)?;
    Ok(floor)
}

/// Does what is left to be done of a declaration that has come as far as its note.
pub(crate) fn finish(log: &Path) -> Result<(), DataFolderError> {
    let path = log.join(NOTE);
    let at = |error| DataFolderError::Io {
        path: path.clone(),
        error,
    };
    let note = match small_file::read(log, NOTE, 512) {
        Ok(Some(Contents::Checked(text) | Contents::Plain(text))) => {
            std::str::from_utf8(&text).ok().and_then(Note::parse)
        }
        Ok(None) => return remove_leftover(&log.join(RESTORED_LOG)).map_err(at),
        Err(SmallFileError::Damaged) => None,
        Err(SmallFileError::Io(error)) => return Err(at(error)),
    };
    let note = note.ok_or_else(|| DataFolderError::Damaged {
        path: path.clone(),
        found: "it does not say which log was declared restored",
        cure: "Restore the data folder from the same backup once more, and start again with --restored",
    })?;
    let made = log.join(RESTORED_LOG);
    if made.try_exists().map_err(at)? {
        std::fs::rename(&made, log.join("revocations")).map_err(at)?;
    }
    // Of the log under its former name.
    remove_leftover(&log.join("head")).map_err(at)?;
    durable::sync_folder(log).map_err(at)?;
    if let Err(error) = adopt(&log.join("history.redb"), &note.old, &note.new, &note.head) {
        tracing::warn!(%error, "the index of histories could not be taken over, and is made anew from the log");
    }
    write_log_id(log, &note.new).map_err(at)?;
    std::fs::remove_file(&path).map_err(at)?;
    durable::sync_folder(log).map_err(at)
}

/// Files what of the log is not in the index of histories yet: the new file will not have it.
fn file_histories(
    folder: &DataFolder,
    storage: &Storage,
    view: &View,
    kept: usize,
) -> Result<(), credence_storage::frames::FrameError> {
    let groups = Groups::new(storage.reader()?, storage.groups_from(), storage.bytes(), view.head());
    groups.finish();
    let indexing = Indexing {
        path: folder.history(),
        log_id: folder.log_id().clone(),
        kept,
        groups: Arc::new(groups),
        histories: Histories::new(),
        metrics: Arc::new(Metrics::new(&mut Registry::default())),
    };
    indexing.run(|seq, digest| view.trail().standing(seq, digest));
    Ok(())
}

/// What makes the declaration count.
struct Note {
    old: LogId,
    new: LogId,
    /// The last position before the floor, in the new log.
    head: Head,
}

// === impl Note ===

impl Note {
    fn text(&self) -> String {
        format!("{} {} {}", self.old, self.new, self.head)
    }

    fn parse(text: &str) -> Option<Self> {
        let (old, rest) = text.split_once(' ')?;
        let (new, head) = rest.split_once(' ')?;
        Some(Self {
            old: LogId::parse(old)?,
            new: LogId::parse(new)?,
            head: Head::parse(head)?,
        })
    }
}

/// By how many seconds the wall clock may be behind what the log has seen, for the floor to be put there.
const MAX_BEHIND: i64 = 3_600;
const NOTE: &str = "restored";
const RESTORED_LOG: &str = "revocations.restored";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_folder::take_lock;
    use crate::fill::fill_log;
    use crate::limits::InitOptions;

    const NOW: i64 = 4_000_000_000;

    /// What a crash leaves of a log folder that has its note.
    type Leave = fn(&Path);

    fn open(folder: &Path) -> DataFolder {
        let init = (!folder.join("log").exists()).then_some(InitOptions { floor: false });
        let lock = take_lock(folder, init.is_some(), None).unwrap();
        DataFolder::open(lock, init, NOW).unwrap()
    }

    /// What the log in a folder is called, how many subjects it holds, and its floor.
    fn read(folder: &DataFolder) -> (String, usize, Option<i64>) {
        let mut view = View::new(folder.log_id(), HistoryBounds { entries: 1, bytes: 1 });
        let noted = folder.notes().head().unwrap();
        Storage::open(&folder.revocations(), folder.log_id(), noted.as_ref(), &mut view).unwrap();
        (
            folder.log_id().to_string(),
            view.state().subjects(),
            view.state().floor_of_all(),
        )
    }

    #[test]
    fn a_declaration_counts_whole_or_not_at_all_wherever_a_crash_ends_it() {
        let crashes: [(&str, Leave); 5] = [
            ("before the note", |log| std::fs::remove_file(log.join(NOTE)).unwrap()),
            ("after the note", |_| {}),
            ("after the file's renaming", |log| {
                std::fs::rename(log.join(RESTORED_LOG), log.join("revocations")).unwrap();
            }),
            ("after the head's removal", |log| {
                std::fs::rename(log.join(RESTORED_LOG), log.join("revocations")).unwrap();
                remove_leftover(&log.join("head")).unwrap();
            }),
            ("before the note's removal", |log| {
                let note = std::fs::read(log.join(NOTE)).unwrap();
                finish(log).unwrap();
                std::fs::write(log.join(NOTE), note).unwrap();
            }),
        ];
        for (crash, leave) in crashes {
            let place = tempfile::tempdir().unwrap();
            fill_log(place.path(), "https://id.example.com", 100, 2).unwrap();
            let folder = open(place.path());
            let old = folder.log_id().to_string();
            let (_, subjects, none) = read(&folder);
            assert_eq!((subjects, none), (100, None));
            assert_eq!(prepare(&folder, &old, NOW, 32).unwrap(), NOW);
            leave(&folder.log());
            drop(folder);

            let folder = open(place.path());
            let (log_id, subjects, floor) = read(&folder);
            assert_eq!(subjects, 100, "{crash}");
            let counts = crash != "before the note";
            assert_eq!((log_id != old, floor), (counts, counts.then_some(NOW)), "{crash}");
            for leftover in [NOTE, RESTORED_LOG] {
                assert!(!folder.log().join(leftover).exists(), "{crash}: {leftover}");
            }
        }
    }

    #[test]
    fn the_floor_is_no_earlier_than_what_the_log_has_seen_and_a_clock_that_is_far_behind_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = open(place.path());
        folder.notes().write_clock(NOW).unwrap();
        let log_id = folder.log_id().to_string();
        let refused = prepare(&folder, &log_id, NOW - MAX_BEHIND - 1, 32).unwrap_err();
        assert!(refused.to_string().contains("Set the wall clock right"), "{refused}");
        assert_eq!(prepare(&folder, &log_id, NOW - MAX_BEHIND, 32).unwrap(), NOW);
    }
}
