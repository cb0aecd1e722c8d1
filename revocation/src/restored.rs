//! Declares that the log was restored from a backup, and may have forgotten what came after it.
//!
//! A filter that saw more than the backup refuses it, but one that begins anew has nothing to compare with. So the log
//! gets another name, which no filter believes until it is configured, and a floor of now: every root that was issued
//! before is revoked, with every chain under it, so that nothing of what was forgotten can be presented.
//!
//! Name and floor are one group of the log, so that a declaration counts whole or not at all.

use credence_wire::v1;
use credence_wire::v1::record::Subject;

use crate::log_id::LogId;
use crate::log_view::{HistoryBounds, LogView};
use crate::store::group::Group;
use crate::store::{AppendError, LogStore, StoreError};

/// Why the log cannot be declared restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Another log than the one that is declared restored.
    #[error(
        "the data folder holds log {log_id}, and --restored names {named}. If that one was declared restored already, it \
         is called {log_id} since: start without --restored"
    )]
    OtherLog {
        /// Which log was named.
        named: String,
        /// The log that is there.
        log_id: LogId,
    },
    /// The floor of a restored log would come to lie too early, or far too late.
    #[error(
        "the wall clock is {behind} seconds behind what the log has seen, so that it is not known up to when roots are \
         revoked. Set the wall clock right. If it is, the log's times are from a clock that was ahead: begin a new log with \
         --init in an empty folder"
    )]
    ClockBehind {
        /// Seconds.
        behind: i64,
    },
    /// The log cannot be read or written.
    #[error("the revocation log: {0}")]
    Store(#[from] StoreError),
    /// The system refused.
    #[error("giving the restored log another name: {0}")]
    System(#[from] std::io::Error),
}

/// Gives the log, which is called `named`, another name and a floor of `now` (seconds since the Unix epoch).
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
        .map_err(|(AppendError::NotDone(error) | AppendError::Unknown(error))| error)?;
    tracing::warn!(
        old = named,
        %log_id,
        floor,
        "the log was declared restored: it has another log_id, and every root token issued before now is revoked. Set \
         control_plane.log_id of every filter to the new one, have delegations minted anew, revoke again what was revoked \
         since the backup, and start without --restored from now on"
    );
    Ok(())
}

/// By how many seconds the wall clock may be behind what the log has seen, for the floor to be put there.
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
    fn a_restored_log_has_another_name_a_floor_and_all_it_had() {
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
        assert_eq!(store.follow(before, 9).unwrap().len(), 1, "histories go on");
        assert!(matches!(
            declare(&store, old.as_str(), NOW),
            Err(RestoreError::OtherLog { .. })
        ));
    }

    #[test]
    fn the_floor_is_no_earlier_than_what_the_log_has_seen_and_a_clock_that_is_far_behind_is_refused() {
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
        assert!(refused.to_string().contains("Set the wall clock right"), "{refused}");
        declare(&store, &log_id, NOW - MAX_BEHIND).unwrap();
        assert_eq!(view(&store).state.log_floor, Some(NOW));
    }
}
