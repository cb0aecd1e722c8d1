//! The log itself: groups, their compacted beginning, and notes.

use bytes::Bytes;
use credence_etcd::api::TxnRequest;
use credence_etcd::{EtcdError, delete_range, has_revision, prefix_end, put, read, read_range};
use credence_runtime::text::random_hex;
use prost::Message as _;

use super::known::PAIR_BYTES;
use super::layout::{
    BEGINNING_KEY, CHUNKS, GROUPS, HEAD_KEY, NO_BEGINNING, NO_HEAD, NOTES_KEY, StoredBeginning, StoredHead, after_key,
    damaged, group_key, pair, pairs, reads, revision_of, seq_in,
};
use super::timeouts::{HEAD_TIMEOUT, READ_TIMEOUT};
use super::{EtcdStore, PAGE};
use crate::clock::Forgotten;
use crate::digest::Head;
use crate::log_id::LogId;
use crate::log_view::LogView;
use crate::store::beginning::{Cut, Restoring};
use crate::store::group::Group;
use crate::store::{AppendError, FollowError, LogStore, Notes, StoreError};

// === impl EtcdStore ===

impl EtcdStore {
    /// Groups that follow a position, from those that arrived last.
    pub(super) fn latest_after(&self, after: Head, limit: usize) -> Vec<Group> {
        let known = self.known();
        let (mut groups, mut head, mut records) = (Vec::new(), after, 0);
        while records < limit
            && let Some(bytes) = known.latest.get(&(head.seq + 1))
            && let Ok(group) = Group::decode(head.seq + 1, bytes, head)
        {
            head = group.head().unwrap_or(head);
            records += group.records.len();
            groups.push(group);
        }
        groups
    }

    /// Removes some of what the beginning replaced. Returns whether there is more.
    fn clear(&self) -> Result<bool, StoreError> {
        let (first, cut, generation, ours) = {
            let known = self.known();
            let generation = known.generation.clone();
            (known.first_group, known.beginning.seq, generation, known.replaces)
        };
        let until = (first + CLEARED_GROUPS).min(cut + 1);
        let mut success = vec![delete_range(self.key(&group_key(first)), self.key(&group_key(until)))];
        if until > cut {
            let ours = self.key(&format!("{CHUNKS}{generation}/"));
            success.push(delete_range(self.key(CHUNKS), ours.clone()));
            success.push(delete_range(
                prefix_end(ours.as_bytes()),
                prefix_end(self.key(CHUNKS).as_bytes()),
            ));
        }
        // A replica that has compacted since then clears by itself: its chunks count now.
        let answer = self.transact(TxnRequest {
            compare: vec![has_revision(self.key(BEGINNING_KEY), ours)],
            success,
            failure: Vec::new(),
        })?;
        self.known().first_group = until;
        Ok(answer.succeeded && until <= cut)
    }
    /// The number in a group's key.
    fn seq_of(&self, key: &[u8]) -> Option<u64> {
        seq_in(&self.address.prefix, key)
    }
}

impl LogStore for EtcdStore {
    fn replay(&self, view: &mut LogView) -> Result<(), StoreError> {
        let damaged = |found: &str| damaged(&self.address, found);
        // Everything is read as it is at one revision: another replica may remove what a compaction has replaced.
        let answer = self.wait(
            self.client
                .transact(reads(vec![read(self.key(BEGINNING_KEY))]), READ_TIMEOUT),
        )?;
        let revision = revision_of(&answer);
        let stored = pair(&answer, 0);
        let stored = stored.and_then(|pair| StoredBeginning::decode(pair.value.clone()).ok());
        let stored = stored.ok_or_else(|| damaged(NO_BEGINNING))?;
        let mut restoring = Restoring::new(stored.beginning);
        let mut bytes = 0;
        let chunks = self.key(&format!("{CHUNKS}{}/", stored.generation));
        let mut next = chunks.clone();
        loop {
            let page = self.range(next, prefix_end(chunks.as_bytes()), CHUNK_PAGE, revision)?;
            for pair in &page {
                bytes += pair.value.len() as u64;
                restoring.chunk(&pair.value, view).map_err(damaged)?;
            }
            match page.last() {
                Some(last) if page.len() as i64 == CHUNK_PAGE => next = after_key(last),
                _ => break,
            }
        }
        let mut head = restoring.begin(view).map_err(damaged)?;
        let end = prefix_end(self.key(GROUPS).as_bytes());
        let mut first_group = None;
        loop {
            let page = self.range(self.key(&group_key(head.seq + 1)), end.clone(), PAGE, revision)?;
            for pair in &page {
                let first_seq = self
                    .seq_of(&pair.key)
                    .ok_or_else(|| damaged("a key that names no group"))?;
                first_group.get_or_insert(first_seq);
                bytes += pair.value.len() as u64 + PAIR_BYTES;
                let group = Group::decode(first_seq, &pair.value, head).map_err(damaged)?;
                head = view.replay_group(group, head).map_err(damaged)?;
            }
            if (page.len() as i64) < PAGE {
                break;
            }
        }
        view.end_replay();
        let mut known = self.known();
        known.first_group = first_group.unwrap_or(head.seq + 1);
        known.bytes = bytes;
        Ok(())
    }

    fn append(&self, after: Head, group: &Group) -> Result<(), AppendError> {
        let (revision, log_id) = {
            let known = self.known();
            if known.head != after {
                return Err(AppendError::Moved);
            }
            (
                known.head_revision,
                group.renamed.clone().unwrap_or_else(|| known.log_id.clone()),
            )
        };
        let Some(head) = group.head() else { return Ok(()) };
        let encoded = Bytes::from(group.encode());
        let place = self.key(&group_key(group.first_seq));
        let request = TxnRequest {
            compare: vec![has_revision(self.key(HEAD_KEY), revision)],
            success: vec![
                put(self.key(HEAD_KEY), StoredHead::of(head, &log_id).encode_to_vec()),
                put(place.clone(), encoded.clone()),
            ],
            failure: vec![read(place)],
        };
        let answer = match self.transact(request) {
            Ok(answer) => answer,
            Err(error @ EtcdError::Unreachable { .. }) => return Err(AppendError::Unknown(error.into())),
            Err(error) => return Err(AppendError::NotDone(error.into())),
        };
        let mut known = self.known();
        if answer.succeeded {
            known.note_head(head, log_id, revision_of(&answer));
            known.remember(group.first_seq, encoded);
            return Ok(());
        }
        // An earlier attempt of this one may have done it.
        let found = pair(&answer, 0);
        match found {
            Some(found) if found.value == encoded => {
                known.note_head(head, log_id, found.mod_revision);
                known.remember(group.first_seq, encoded);
                Ok(())
            }
            _ => Err(AppendError::Moved),
        }
    }

    fn follow(&self, after: Head, limit: usize) -> Result<Vec<Group>, FollowError> {
        if after.seq < self.known().beginning.seq {
            return Err(FollowError::Outrun);
        }
        let groups = self.latest_after(after, limit);
        if !groups.is_empty() {
            return Ok(groups);
        }
        let groups = self.key(GROUPS);
        let request = reads(vec![
            read(self.key(HEAD_KEY)),
            read_range(self.key(&group_key(after.seq + 1)), prefix_end(groups.as_bytes()), PAGE),
        ]);
        let answer = self.transact(request).map_err(StoreError::from)?;
        let head = pair(&answer, 0);
        let (head, log_id, revision) = head
            .and_then(|pair| StoredHead::read(&pair.value).map(|(head, log_id)| (head, log_id, pair.mod_revision)))
            .ok_or_else(|| damaged(&self.address, NO_HEAD))?;
        let (mut groups, mut position) = (Vec::new(), after);
        for pair in pairs(&answer, 1) {
            let first_seq = self.seq_of(&pair.key).ok_or(FollowError::NotContinued)?;
            let Ok(group) = Group::decode(first_seq, &pair.value, position) else {
                return Err(FollowError::NotContinued);
            };
            position = group.head().unwrap_or(position);
            groups.push(group);
        }
        if groups.is_empty() && head != after {
            return Err(FollowError::NotContinued);
        }
        self.known().note_head(head, log_id, revision);
        Ok(groups)
    }

    fn beginning(&self) -> Head {
        self.known().beginning
    }

    fn compact(&self, cut: &mut Cut) -> Result<bool, StoreError> {
        if !cut.is_moved && cut.head.seq <= self.known().beginning.seq {
            return Ok(false);
        }
        if let Some((index, chunk)) = cut.next_chunk() {
            if index == 0 {
                let generation = random_hex().map_err(|error| damaged(&self.address, &error.to_string()))?;
                self.known().generation = generation;
            }
            let generation = self.known().generation.clone();
            let answer = self.transact(TxnRequest {
                success: vec![put(self.key(&format!("{CHUNKS}{generation}/{index:08}")), chunk)],
                ..TxnRequest::default()
            })?;
            if index == 0 {
                let mut known = self.known();
                known.first_chunk = revision_of(&answer);
                known.replaces = known.beginning_revision;
            }
            return Ok(true);
        }
        if cut.is_moved {
            return self.clear();
        }
        let (revision, generation, first_chunk) = {
            let known = self.known();
            (known.replaces, known.generation.clone(), known.first_chunk)
        };
        let beginning = StoredBeginning {
            beginning: cut.beginning(),
            generation: generation.clone(),
            bytes: cut.bytes,
        };
        let encoded = Bytes::from(beginning.encode_to_vec());
        let answer = self.transact(TxnRequest {
            // Another replica that has compacted meanwhile has also removed the chunks so far.
            compare: vec![
                has_revision(self.key(BEGINNING_KEY), revision),
                has_revision(self.key(&format!("{CHUNKS}{generation}/{:08}", 0)), first_chunk),
            ],
            success: vec![put(self.key(BEGINNING_KEY), encoded.clone())],
            failure: vec![read(self.key(BEGINNING_KEY))],
        })?;
        let found = pair(&answer, 0);
        if !answer.succeeded && found.is_none_or(|found| found.value != encoded) {
            // Another replica was faster.
            self.transact(TxnRequest {
                success: vec![delete_range(
                    self.key(&format!("{CHUNKS}{generation}/")),
                    prefix_end(self.key(&format!("{CHUNKS}{generation}/")).as_bytes()),
                )],
                ..TxnRequest::default()
            })?;
            return Ok(false);
        }
        cut.is_moved = true;
        let mut known = self.known();
        known.replaces = found.map_or_else(|| revision_of(&answer), |found| found.mod_revision);
        if known.replaces > known.beginning_revision {
            (known.beginning, known.beginning_revision) = (cut.head, known.replaces);
        }
        known.bytes = known.bytes.saturating_sub(cut.replaced_bytes) + cut.bytes;
        Ok(true)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn log_id(&self) -> LogId {
        self.known().log_id.clone()
    }

    fn notes(&self) -> Notes {
        self.known().notes
    }

    /// Merges them with those of the other replicas: no clock goes back, and what may be forgotten stays so.
    fn write_notes(&self, notes: Notes) -> Result<(), StoreError> {
        loop {
            let (revision, merged) = {
                let known = self.known();
                (known.notes_revision, known.notes.merged(notes))
            };
            let answer = self.transact(TxnRequest {
                compare: vec![has_revision(self.key(NOTES_KEY), revision)],
                success: vec![put(self.key(NOTES_KEY), merged.encode_to_vec())],
                failure: vec![read(self.key(NOTES_KEY))],
            })?;
            let mut known = self.known();
            if answer.succeeded {
                (known.notes, known.notes_revision) = (merged, revision_of(&answer));
                return Ok(());
            }
            let found = pair(&answer, 0);
            let found = found.ok_or_else(|| damaged(&self.address, "its notes are missing"))?;
            known.notes =
                Notes::decode(found.value.clone()).map_err(|_| damaged(&self.address, "its notes cannot be read"))?;
            known.notes_revision = found.mod_revision;
        }
    }

    /// Nothing to do: a quorum has each group.
    fn seal(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.known().bytes
    }

    /// The others need not wait for this replica any more, once its filters are stale.
    fn leave(&self) {
        let lease = {
            let mut known = self.known();
            known.has_left = true;
            std::mem::take(&mut known.lease)
        };
        if lease != 0
            && let Err(error) = self.wait(self.client.revoke(lease, HEAD_TIMEOUT))
        {
            tracing::info!(%error, "the other replicas learn later that this one has ended");
        }
    }
}

// === impl Notes ===

impl Notes {
    /// With those of another replica.
    fn merged(self, other: Self) -> Self {
        let later = |a: Option<Forgotten>, b: Option<Forgotten>| match (a, b) {
            (Some(a), Some(b)) if a.before >= b.before => Some(a),
            (a, None) => a,
            (_, b) => b,
        };
        Self {
            clock: self.clock.max(other.clock),
            forgotten: later(self.forgotten, other.forgotten),
            leases_ms: self.leases_ms.max(other.leases_ms),
        }
    }
}

/// Chunks of one read, 250 KiB each: one member has half a second for it.
pub(super) const CHUNK_PAGE: i64 = 16;
/// Groups that one transaction removes.
const CLEARED_GROUPS: u64 = 2_000;
