//! What a replica knows of the store.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use credence_etcd::Change;
use prost::Message as _;

use super::layout::{BEGINNING_KEY, HEAD_KEY, NOTES_KEY, REPLICAS, SOURCES, StoredBeginning, StoredHead, seq_in};
use crate::digest::Head;
use crate::log_id::LogId;
use crate::store::Notes;

/// What this replica knows of the store.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) log_id: LogId,
    pub(super) head: Head,
    pub(super) head_revision: i64,
    pub(super) notes: Notes,
    pub(super) notes_revision: i64,
    /// When the settings that this replica has were written.
    pub(super) settings_revision: i64,
    pub(super) beginning: Head,
    pub(super) beginning_revision: i64,
    /// The groups from this number on may still be there.
    pub(super) first_group: u64,
    pub(super) bytes: u64,
    /// The latest groups, as they arrived.
    pub(super) latest: BTreeMap<u64, Bytes>,
    pub(super) latest_bytes: usize,
    /// The generation of the chunks that are being written, and the revisions of its first chunk and of the beginning that
    /// it will replace; then of its own beginning.
    pub(super) generation: String,
    pub(super) first_chunk: i64,
    pub(super) replaces: i64,
    /// The revision up to which changes are known, and the head at that revision.
    pub(super) revision: i64,
    pub(super) observed: u64,
    /// What the filters of each replica have applied, at that revision.
    pub(super) replicas: BTreeMap<String, u64>,
    /// The lease of this replica's key; 0 if there is none.
    pub(super) lease: i64,
    /// This replica stops, so it registers no more.
    pub(super) has_left: bool,
    /// The sources that have moved, and the origin of the ledger in which each goes on, until they are taken.
    pub(super) moved: BTreeMap<String, String>,
    /// The lease of the sources that have moved to this replica, and when it began.
    pub(super) sources_lease: Option<(i64, Instant)>,
    /// Where the log goes on, if it has left.
    pub(super) moved_to: String,
}

// === impl Known ===

impl Known {
    pub(super) fn note_head(&mut self, head: Head, log_id: LogId, revision: i64) {
        if revision > self.head_revision {
            (self.head, self.log_id, self.head_revision) = (head, log_id, revision);
        }
    }

    pub(super) fn remember(&mut self, first_seq: u64, group: Bytes) {
        let size = group.len();
        if self.latest.insert(first_seq, group).is_none() {
            self.latest_bytes += size;
            self.bytes += size as u64 + PAIR_BYTES;
        }
        while self.latest_bytes > LATEST_BYTES
            && let Some((_, oldest)) = self.latest.pop_first()
        {
            self.latest_bytes -= oldest.len();
        }
    }

    pub(super) fn take(&mut self, prefix: &str, change: Change) {
        self.revision = self.revision.max(change.revision);
        self.note_replica(prefix, &change.key, change.value.as_ref());
        self.note_source(prefix, &change.key, change.value.as_ref());
        let Some(value) = change.value else { return };
        if let Some(first_seq) = seq_in(prefix, &change.key) {
            self.remember(first_seq, value);
            return;
        }
        let name = change.key.strip_prefix(prefix.as_bytes()).unwrap_or_default();
        if name == HEAD_KEY.as_bytes() {
            if let Some((head, log_id)) = StoredHead::read(&value) {
                self.observed = head.seq;
                self.note_head(head, log_id, change.revision);
            }
        } else if name == BEGINNING_KEY.as_bytes() && change.revision > self.beginning_revision {
            self.note_beginning(value, change.revision);
        } else if name == NOTES_KEY.as_bytes()
            && change.revision > self.notes_revision
            && let Ok(notes) = Notes::decode(value)
        {
            (self.notes, self.notes_revision) = (notes, change.revision);
        }
    }

    pub(super) fn note_beginning(&mut self, value: Bytes, revision: i64) {
        let Ok(stored) = StoredBeginning::decode(value) else {
            return;
        };
        if let Ok(head) = stored.beginning.head() {
            (self.beginning, self.beginning_revision) = (head, revision);
            // Otherwise this replica would soon compact again.
            self.bytes = stored.bytes;
        }
    }

    pub(super) fn note_source(&mut self, prefix: &str, key: &[u8], ledger: Option<&Bytes>) {
        let source = key
            .strip_prefix(prefix.as_bytes())
            .and_then(|key| key.strip_prefix(SOURCES.as_bytes()));
        if let (Some(source), Some(ledger)) = (source, ledger) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if self.moved.len() < MAX_MOVED {
                self.moved.insert(text(source), text(ledger));
            }
        }
    }

    pub(super) fn note_replica(&mut self, prefix: &str, key: &[u8], value: Option<&Bytes>) {
        let name = key
            .strip_prefix(prefix.as_bytes())
            .and_then(|key| key.strip_prefix(REPLICAS.as_bytes()));
        let Some(name) = name.and_then(|name| String::from_utf8(name.to_vec()).ok()) else {
            return;
        };
        let applied = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        match applied {
            Some(applied) => drop(self.replicas.insert(name, applied)),
            None => drop(self.replicas.remove(&name)),
        }
    }
}

/// Moved sources that wait until this replica's ledger takes them: as many as it remembers.
const MAX_MOVED: usize = 200_000;
/// The latest groups in memory.
const LATEST_BYTES: usize = 8 << 20;
/// The approximate size of a pair beside its value.
pub(super) const PAIR_BYTES: u64 = 96;
