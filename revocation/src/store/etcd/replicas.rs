//! The replicas of a log, as they know of each other through etcd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use credence_etcd::api::TxnRequest;
use credence_etcd::{delete_range, has_revision, is_empty, prefix_end, put, put_leased, read};
use prost::Message as _;

use super::EtcdStore;
use super::layout::{
    HEAD_KEY, NO_HEAD, NOTES_KEY, REPLICAS, SETTINGS_KEY, SOURCES, Settings, StoredHead, damaged, pair, reads,
    revision_of,
};
use super::timeouts::{COMMIT_TIMEOUT, HEAD_TIMEOUT};
use crate::digest::Head;
use crate::store::{Notes, StoreError};

/// What a replica finds that reads the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    /// The others knew of this replica when the head was read.
    Before(Head),
    /// They know of it from now on.
    Now,
}

// === impl EtcdStore ===

impl EtcdStore {
    /// The name of this replica, which no other has, not even the next one in its data folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sees to it that all replicas have these settings. They change only while none is registered.
    pub(super) async fn agree(&self, ours: Settings) -> Result<(), StoreError> {
        let (key, replicas) = (self.key(SETTINGS_KEY), self.key(REPLICAS));
        let found = self
            .client
            .transact(reads(vec![read(key.clone())]), HEAD_TIMEOUT)
            .await?;
        let found = pair(&found, 0);
        let revision = found.map_or(0, |pair| pair.mod_revision);
        let encoded = Bytes::from(ours.encode_to_vec());
        if found.is_some_and(|pair| pair.value == encoded) {
            self.known().settings_revision = revision;
            return Ok(());
        }
        let request = TxnRequest {
            compare: vec![
                has_revision(key.clone(), revision),
                is_empty(replicas.clone(), prefix_end(replicas.as_bytes())),
            ],
            success: vec![put(key.clone(), encoded.clone())],
            failure: vec![read(key)],
        };
        let answer = self.client.transact(request, COMMIT_TIMEOUT).await?;
        let found = pair(&answer, 0);
        let revision = match found {
            _ if answer.succeeded => revision_of(&answer),
            // Another replica with the same settings was faster, or an earlier attempt of this one.
            Some(pair) if pair.value == encoded => pair.mod_revision,
            found => return Err(self.other_settings(found.map(|pair| &pair.value), &ours.options())),
        };
        self.known().settings_revision = revision;
        Ok(())
    }

    fn other_settings(&self, theirs: Option<&Bytes>, ours: &str) -> StoreError {
        let theirs = theirs.and_then(|theirs| Settings::decode(theirs.clone()).ok());
        StoreError::OtherSettings {
            store: self.address.to_string(),
            theirs: theirs.unwrap_or_default().options(),
            ours: ours.to_owned(),
        }
    }

    /// An earlier replica of the same data folder has certainly ended. So the others wait for its filters only as long as
    /// these may be fresh.
    pub(crate) async fn forget(&self, earlier: &str) -> Result<(), StoreError> {
        let key = self.key(&format!("{REPLICAS}{earlier}"));
        let request = TxnRequest {
            success: vec![delete_range(key, Bytes::new())],
            ..TxnRequest::default()
        };
        self.client.transact(request, COMMIT_TIMEOUT).await?;
        Ok(())
    }

    /// Replaces the notes, while no replica is registered.
    pub(crate) fn replace_notes(&self, notes: Notes) -> Result<(), StoreError> {
        let replicas = self.key(REPLICAS);
        let answer = self.transact(TxnRequest {
            compare: vec![is_empty(replicas.clone(), prefix_end(replicas.as_bytes()))],
            success: vec![put(self.key(NOTES_KEY), notes.encode_to_vec())],
            failure: Vec::new(),
        })?;
        if !answer.succeeded {
            return Err(StoreError::InUse {
                store: self.address.to_string(),
            });
        }
        let mut known = self.known();
        (known.notes, known.notes_revision) = (notes, revision_of(&answer));
        Ok(())
    }

    /// Reads the head, as a quorum has it, and sees to it that the other replicas know of this one.
    pub(crate) async fn register(&self, applied: u64) -> Result<Registered, StoreError> {
        let ours = self.key(&format!("{REPLICAS}{}", self.name));
        let known = self.known().revision;
        let request = reads(vec![read(self.key(HEAD_KEY)), read(ours)]);
        let answer = self.client.transact(request, HEAD_TIMEOUT).await?;
        let stored =
            pair(&answer, 0).and_then(|pair| Some((StoredHead::decode(pair.value.clone()).ok()?, pair.mod_revision)));
        let Some((stored, revision)) = stored else {
            return Err(damaged(&self.address, "its head is missing"));
        };
        if !stored.moved_to.is_empty() {
            return Err(stored.moved_away(&self.address));
        }
        let (head, log_id) = stored.position().ok_or_else(|| damaged(&self.address, NO_HEAD))?;
        self.check_not_before(known, revision_of(&answer))?;
        self.known().note_head(head, log_id, revision);
        if pair(&answer, 1).is_some() {
            return Ok(Registered::Before(head));
        }
        if self.known().has_left {
            return Err(StoreError::Left);
        }
        let lease = self.client.grant(REPLICA_SECONDS, HEAD_TIMEOUT).await?;
        self.known().lease = lease;
        self.confirm(applied).await?;
        Ok(Registered::Now)
    }

    /// Tells the other replicas what the filters of this one have applied.
    pub(crate) async fn confirm(&self, applied: u64) -> Result<(), StoreError> {
        let (lease, agreed) = {
            let known = self.known();
            (known.lease, known.settings_revision)
        };
        if lease == 0 {
            return Err(StoreError::Left);
        }
        let ours = self.key(&format!("{REPLICAS}{}", self.name));
        let request = TxnRequest {
            // While this replica was not registered, the others may have agreed on something else.
            compare: vec![has_revision(self.key(SETTINGS_KEY), agreed)],
            success: vec![put_leased(ours, applied.to_string(), lease)],
            failure: vec![read(self.key(SETTINGS_KEY))],
        };
        let answer = self.client.transact(request, HEAD_TIMEOUT).await?;
        if !answer.succeeded {
            let theirs = pair(&answer, 0);
            return Err(self.other_settings(theirs.map(|pair| &pair.value), "others"));
        }
        Ok(())
    }

    /// Keeps the others aware of this replica. One that is gone registers again with its next read.
    pub(crate) async fn renew(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            let lease = self.known().lease;
            if lease != 0
                && let Err(error) = self.client.renew(lease, HEAD_TIMEOUT).await
            {
                tracing::debug!(%error, "the lease of etcd was not renewed");
            }
        }
    }

    /// The other replicas, and what their filters have applied, as of an entry.
    pub(crate) fn others(&self) -> (u64, BTreeMap<String, u64>) {
        let known = self.known();
        let mut others = known.replicas.clone();
        others.remove(&self.name);
        (known.observed, others)
    }

    /// Tells the other replicas that these audit sources go on in the ledger of this origin. At most [`MOVES`].
    pub(crate) async fn claim(&self, sources: &[String], ledger: &str) -> Result<(), StoreError> {
        let present = self.known().sources_lease;
        let lease = match present.filter(|(_, begun)| begun.elapsed() < SOURCES_LEASE / 2) {
            Some((lease, _)) => lease,
            None => {
                let seconds = i64::try_from(SOURCES_LEASE.as_secs()).unwrap_or(i64::MAX);
                let lease = self.client.grant(seconds, HEAD_TIMEOUT).await?;
                self.known().sources_lease = Some((lease, Instant::now()));
                lease
            }
        };
        let claims = sources.iter();
        let claims = claims.map(|source| put_leased(self.key(&format!("{SOURCES}{source}")), ledger.to_owned(), lease));
        let request = TxnRequest {
            success: claims.collect(),
            ..TxnRequest::default()
        };
        let claimed = self.client.transact(request, HEAD_TIMEOUT).await;
        if claimed.is_err() {
            // The lease may be gone.
            self.known().sources_lease = None;
        }
        Ok(claimed.map(|_| ())?)
    }

    /// Audit sources that were claimed since the last call, and the origin of the ledger in which each goes on. Waits for
    /// the first. Those of the hour before the start of this replica are among them.
    pub(crate) async fn claimed(&self) -> BTreeMap<String, String> {
        loop {
            let moved = std::mem::take(&mut self.known().moved);
            if !moved.is_empty() {
                return moved;
            }
            self.has_moved.notified().await;
        }
    }

    /// Marks the log as one that goes on in this data folder: no replica opens it any more.
    pub(crate) fn mark_moved(&self, to: &str) -> Result<(), StoreError> {
        let (head, log_id, revision, moved_to) = {
            let known = self.known();
            (
                known.head,
                known.log_id.clone(),
                known.head_revision,
                known.moved_to.clone(),
            )
        };
        let head = StoredHead::of(head, &log_id);
        if moved_to == to {
            return Ok(());
        }
        if !moved_to.is_empty() {
            return Err(StoredHead { moved_to, ..head }.moved_away(&self.address));
        }
        let marked = StoredHead {
            moved_to: to.to_owned(),
            ..head
        };
        let replicas = self.key(REPLICAS);
        let answer = self.transact(TxnRequest {
            compare: vec![
                has_revision(self.key(HEAD_KEY), revision),
                is_empty(replicas.clone(), prefix_end(replicas.as_bytes())),
            ],
            success: vec![put(self.key(HEAD_KEY), marked.encode_to_vec())],
            failure: Vec::new(),
        })?;
        match answer.succeeded {
            true => Ok(()),
            false => Err(StoreError::InUse {
                store: self.address.to_string(),
            }),
        }
    }
}

/// The largest number of audit sources that are claimed at once: etcd's limit for one transaction is 128.
pub(crate) const MOVES: usize = 100;
/// How long a replica may be down and still learn which of its sources have moved. At least half of it.
const SOURCES_LEASE: Duration = Duration::from_secs(2 * 60 * 60);
/// How long a replica that does not renew its lease is waited for, in seconds.
const REPLICA_SECONDS: i64 = 10;
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
