//! Declares that the log was restored from a backup, and may lack later revocations.
//!
//! A filter that saw more than the backup refuses the log, but a new filter has nothing to compare with. So the log
//! gets another name, which no filter accepts until it is configured. It also gets a not-before time of now: every root
//! issued earlier is revoked, with every chain under it. So the lost revocations cannot be evaded.
//!
//! Both are one group of the log, so that a declaration takes effect completely or not at all.

use credence_wire::v1;
use credence_wire::v1::record::Subject;

use crate::log_id::LogId;
use crate::log_view::{HistoryBounds, LogView};
use crate::store::group::Group;
use crate::store::{AppendError, LogStore, StoreError};

/// Why the log cannot be declared restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The declaration names another log.
    #[error(
        "the data folder holds log {log_id}, and --restored names {named}. If that one was declared restored already, \
         it is now called {log_id}: start without --restored"
    )]
    OtherLog {
        /// The named log.
        named: String,
        /// The log in the folder.
        log_id: LogId,
    },
    /// The not-before time would be too early, or far too late.
    #[error(
        "the wall clock is {behind} seconds behind the latest time in the log, so the time up to which roots must be \
         revoked is unknown. Set the wall clock. If it is right, the log's times are from a clock that was ahead: \
         create a new log with --init in an empty folder"
    )]
    ClockBehind {
        /// Seconds.
        behind: i64,
    },
    /// Another replica serves the log.
    #[error("another replica writes to this log; stop all of them, and declare the restore again")]
    InUse,
    /// The log cannot be read or written.
    #[error("the revocation log: {0}")]
    Store(#[from] StoreError),
    /// An error of the system.
    #[error("giving the restored log another name: {0}")]
    System(#[from] std::io::Error),
}

/// Gives the log, which must be called `named`, another name, and a not-before time of `now` (seconds since the Unix
/// epoch).
pub(crate) fn declare(store: &dyn LogStore, named: &str, now: i64) -> Result<(), RestoreError> {
    let old = store.log_id();
    if named != old.as_str() {
        return Err(RestoreError::OtherLog {
            named: named.to_owned(),
            log_id: old,
        });
    }
    let mut view = LogView::new(&old, HistoryBounds { entries: 1, bytes: 1 });
    store.replay(&mut view)?;
    let seen = store.notes().clock.max(view.state.last_seen()).unwrap_or(now);
    let behind = seen.saturating_sub(now);
    if behind > MAX_BEHIND {
        return Err(RestoreError::ClockBehind { behind });
    }
    let log_id = LogId::random()?;
    let floor = now.max(seen);
    let record = v1::Record {
        subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to: floor })),
    };
    let after = view.digests.head;
    store
        .append(after, &Group::renaming(after, log_id.clone(), record.into()))
        .map_err(|error| match error {
            AppendError::NotDone(error) | AppendError::Unknown(error) => RestoreError::Store(error),
            AppendError::Moved => RestoreError::InUse,
        })?;
    tracing::warn!(
        old = named,
        %log_id,
        floor,
        "the log was declared restored: it has another log_id, and every root token issued before now is revoked. Set \
         control_plane.log_id of every filter to the new one, have delegations minted anew, revoke again what was \
         revoked since the backup, and start without --restored from now on"
    );
    Ok(())
}

/// By how many seconds the wall clock may be behind the latest time in the log.
const MAX_BEHIND: i64 = 3_600;

#[cfg(test)]
mod tests {
    use credence_storage::folder_lock::FolderWatch;

    use super::*;
    use crate::digest_history::ForeignPosition;
    use crate::store::Notes;
    use crate::store::embedded::{EmbeddedStore, create};
    use crate::store::group::EncodedRecord;

    const NOW: i64 = 4_000_000_000;

    /// An opened log with one revoked key.
    fn log(folder: &std::path::Path) -> EmbeddedStore {
        let path = folder.join("state.redb");
        create(&path, &LogId::random().unwrap(), None).unwrap();
        let store = EmbeddedStore::open(&path, FolderWatch::of_nothing()).unwrap();
        let record = v1::Record {
            subject: Some(Subject::Key(v1::RevokedKey {
                thumbprint: "A".repeat(43),
            })),
        };
        let after = view(&store).digests.head;
        let group = Group::following(after, vec![EncodedRecord::from(record)], Vec::new());
        store.append(after, &group).unwrap();
        store
    }

    fn view(store: &dyn LogStore) -> LogView {
        let mut view = LogView::new(&store.log_id(), HistoryBounds { entries: 9, bytes: 999 });
        store.replay(&mut view).unwrap();
        view
    }

    #[test]
    fn a_restored_log_has_another_name_a_not_before_time_and_all_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let store = log(folder.path());
        let before = view(&store).digests.head;
        let old = store.log_id();
        declare(&store, old.as_str(), NOW).unwrap();
        drop(store);
        let store = EmbeddedStore::open(&folder.path().join("state.redb"), FolderWatch::of_nothing()).unwrap();
        assert_ne!(store.log_id(), old);
        let view = view(&store);
        assert_eq!((view.state.subjects, view.state.log_floor), (1, Some(NOW)));
        assert_eq!((before.seq, view.head()), (1, 2));
        assert_eq!(
            view.digests.check(before.seq, before.digest.as_bytes()),
            Err(ForeignPosition::Diverged { applied: before.seq })
        );
        assert!(view.updates_after(1, 9).is_ok_and(|updates| updates.len() == 1));
        assert!(
            view.updates_after(0, 9).is_err(),
            "an update with a position of the old name"
        );
        assert_eq!(store.follow(before, 9).unwrap().len(), 1, "histories continue");
        assert!(matches!(
            declare(&store, old.as_str(), NOW),
            Err(RestoreError::OtherLog { .. })
        ));
    }

    #[test]
    fn the_not_before_time_is_not_before_the_logs_times_and_a_clock_far_behind_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = log(folder.path());
        let log_id = store.log_id().to_string();
        store
            .write_notes(Notes {
                clock: Some(NOW),
                ..Notes::default()
            })
            .unwrap();
        let refused = declare(&store, &log_id, NOW - MAX_BEHIND - 1).unwrap_err();
        assert!(refused.to_string().contains("Set the wall clock"), "{refused}");
        declare(&store, &log_id, NOW - MAX_BEHIND).unwrap();
        assert_eq!(view(&store).state.log_floor, Some(NOW));
    }
}
