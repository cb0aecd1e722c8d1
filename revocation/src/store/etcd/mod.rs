//! The log on etcd, for replicas that share it.
//!
//! ```text
//! PREFIX/layout                 number of this layout
//! PREFIX/settings               see `Settings`
//! PREFIX/head                   the last position and the log's name; each commit compares its revision
//! PREFIX/groups/SEQ             number of the first record -> the group
//! PREFIX/beginning              position of the cut, and the generation of chunks that counts
//! PREFIX/chunks/GENERATION/N    a chunk of the compacted beginning
//! PREFIX/notes                  see `Notes`
//! PREFIX/replicas/NAME          what the replica's filters have applied; goes with the replica's lease of etcd
//! PREFIX/sources/NAME           the ledger in which an audit source goes on that has moved; goes after an hour or two
//! ```
//!
//! A group is one transaction, which compares the revision of `head`: it is carried out at most once, and only where its
//! writer knows the whole log. If its outcome is unknown, the same transaction is sent again; then the group at its place
//! tells whose it is.
//!
//! Nothing of etcd's identifies a log, because a restored snapshot has the same ids, members and keys. Positions do, as
//! in the filters' protocol.

mod create;
mod known;
mod layout;
mod log_store;
mod replicas;
mod timeouts;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use credence_etcd::api::{KeyValue, RangeRequest, TxnRequest, TxnResponse};
use credence_etcd::{Address, Change, Client, EtcdError, prefix_end, read, read_range};
use credence_runtime::text::random_hex;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::known::Known;
use self::layout::{
    BEGINNING_KEY, HEAD_KEY, LAYOUT, LAYOUT_KEY, NO_BEGINNING, NO_HEAD, NOTES_KEY, REPLICAS, SOURCES, StoredBeginning,
    StoredHead, after_key, damaged, pair, pairs, reads, revision_of,
};
use self::timeouts::{COMMIT_TIMEOUT, READ_TIMEOUT};
use super::{Notes, StoreError};
use crate::log_id::LogId;

pub(crate) use self::create::{create, create_after, look};
pub(crate) use self::layout::Settings;
pub(crate) use self::replicas::{MOVES, Registered};

/// A log on etcd.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    client: Client,
    runtime: Handle,
    address: Address,
    /// The name of this replica.
    name: String,
    known: Mutex<Known>,
    has_moved: Notify,
}

// === impl EtcdStore ===

impl EtcdStore {
    /// Opens a log made by [`create`], for a replica with these settings.
    pub(crate) async fn open(client: Client, address: Address, settings: Settings) -> Result<Self, StoreError> {
        let store = Self::open_to_move(client, address).await?;
        let (to, head, log_id) = {
            let known = store.known();
            (known.moved_to.clone(), known.head, known.log_id.clone())
        };
        if !to.is_empty() {
            let left = StoredHead::of(head, &log_id);
            return Err(StoredHead { moved_to: to, ..left }.moved_away(&store.address));
        }
        store.agree(settings).await?;
        Ok(store)
    }

    /// The same for a log that may have left already.
    pub(crate) async fn open_to_move(client: Client, address: Address) -> Result<Self, StoreError> {
        let names = [LAYOUT_KEY, HEAD_KEY, BEGINNING_KEY, NOTES_KEY];
        let mut success = names.map(|name| read(format!("{}{name}", address.prefix))).to_vec();
        let replicas = format!("{}{REPLICAS}", address.prefix);
        success.push(read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0));
        let answer = client.transact(reads(success), READ_TIMEOUT).await?;
        let store = address.to_string();
        let name = random_hex().map_err(StoreError::Random)?;
        let damaged = |found: &str| damaged(&address, found);
        let pair = |read: usize| pair(&answer, read);
        let Some(layout) = pair(0) else {
            return Err(StoreError::Missing { store });
        };
        if layout.value != LAYOUT.to_string().as_bytes() {
            return Err(StoreError::OtherLayout {
                path: store.into(),
                found: String::from_utf8_lossy(&layout.value).into_owned(),
                expected: LAYOUT,
            });
        }
        let (Some(head), Some(beginning), Some(notes)) = (pair(1), pair(2), pair(3)) else {
            return Err(damaged("a key is missing"));
        };
        let stored = StoredHead::decode(head.value.clone()).map_err(|_| damaged(NO_HEAD))?;
        let (position, log_id) = stored.position().ok_or_else(|| damaged(NO_HEAD))?;
        let moved_to = stored.moved_to;
        let begins = StoredBeginning::decode(beginning.value.clone()).map_err(|_| damaged(NO_BEGINNING))?;
        let begins = begins.beginning.head().map_err(damaged)?;
        let mut known = Known {
            log_id,
            head: position,
            head_revision: head.mod_revision,
            notes: Notes::decode(notes.value.clone()).map_err(|_| damaged("its notes cannot be read"))?,
            notes_revision: notes.mod_revision,
            settings_revision: 0,
            beginning: begins,
            beginning_revision: beginning.mod_revision,
            first_group: 0,
            bytes: 0,
            latest: BTreeMap::new(),
            latest_bytes: 0,
            generation: String::new(),
            first_chunk: 0,
            replaces: 0,
            revision: revision_of(&answer),
            observed: position.seq,
            replicas: BTreeMap::new(),
            lease: 0,
            has_left: false,
            moved: BTreeMap::new(),
            sources_lease: None,
            moved_to,
        };
        for pair in pairs(&answer, 4) {
            known.note_replica(&address.prefix, &pair.key, Some(&pair.value));
        }
        let sources = format!("{}{SOURCES}", address.prefix);
        let mut first = sources.clone();
        loop {
            let request = RangeRequest {
                key: first.into(),
                range_end: prefix_end(sources.as_bytes()),
                limit: PAGE,
                ..RangeRequest::default()
            };
            let page = client.range(request, READ_TIMEOUT).await?.kvs;
            for pair in &page {
                known.note_source(&address.prefix, &pair.key, Some(&pair.value));
            }
            match page.last() {
                Some(last) if page.len() as i64 == PAGE => first = after_key(last),
                _ => break,
            }
        }
        Ok(Self {
            client,
            runtime: Handle::current(),
            address,
            name,
            known: Mutex::new(known),
            has_moved: Notify::new(),
        })
    }

    /// Takes changes as they are made, and calls `wake` after each that concerns the log.
    pub(crate) async fn feed(&self, wake: impl Fn()) -> std::convert::Infallible {
        let mut is_compacted = false;
        loop {
            let from = self.known().revision + 1;
            if is_compacted {
                match self.reload().await {
                    Ok(()) => {
                        is_compacted = false;
                        wake();
                    }
                    Err(error) => {
                        tracing::warn!(%error, "etcd has compacted what this replica has missed, and is not read yet");
                        tokio::time::sleep(RELOAD_AGAIN).await;
                    }
                }
                continue;
            }
            let mut watching = match self.client.watch(self.address.prefix.clone(), from).await {
                Ok(watching) => watching,
                Err(error) => {
                    tracing::debug!(%error, "etcd is not followed; trying again");
                    tokio::time::sleep(WATCH_AGAIN).await;
                    continue;
                }
            };
            loop {
                match watching.changes().await {
                    Ok(changes) => {
                        let mut known = self.known();
                        for change in changes {
                            known.take(&self.address.prefix, change);
                        }
                        drop(known);
                        self.has_moved.notify_one();
                        wake();
                    }
                    Err(error) => {
                        is_compacted = matches!(error, EtcdError::Compacted { .. });
                        tracing::info!(%error, "etcd is followed at another member");
                        // What was missed meanwhile is read from the log itself.
                        wake();
                        break;
                    }
                }
            }
        }
    }
    /// etcd never goes back by itself: a quorum's answer is at least as new as what was `known` before the question.
    fn check_not_before(&self, known: i64, found: i64) -> Result<(), StoreError> {
        match found >= known {
            true => Ok(()),
            false => Err(StoreError::WentBack {
                store: self.address.to_string(),
                found,
                known,
                log_id: self.known().log_id.to_string(),
            }),
        }
    }

    /// Reads what a watch would have told, after etcd has compacted it.
    async fn reload(&self) -> Result<(), StoreError> {
        let replicas = self.key(REPLICAS);
        let known = self.known().revision;
        let request = reads(vec![
            read(self.key(HEAD_KEY)),
            read(self.key(BEGINNING_KEY)),
            read(self.key(NOTES_KEY)),
            read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0),
        ]);
        let answer = self.client.transact(request, READ_TIMEOUT).await?;
        let revision = revision_of(&answer);
        self.check_not_before(known, revision)?;
        let mut known = self.known();
        known.replicas.clear();
        known.latest.clear();
        known.latest_bytes = 0;
        for pair in (0..answer.responses.len()).flat_map(|read| pairs(&answer, read)) {
            known.take(
                &self.address.prefix,
                Change {
                    key: pair.key.clone(),
                    value: Some(pair.value.clone()),
                    revision: pair.mod_revision,
                },
            );
        }
        known.revision = revision;
        Ok(())
    }

    /// Whether the log continues under another name.
    pub(crate) fn is_renamed(&self, log_id: &LogId) -> bool {
        self.known().log_id != *log_id
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is complete before the next statement that could panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also on a thread of the runtime, whose other tasks move to another thread.
    fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| self.runtime.block_on(answer))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.address.prefix)
    }

    fn transact(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.wait(self.client.transact(request, COMMIT_TIMEOUT))
    }

    /// The pairs from one key up to another, at most `limit`, as they are at a revision of the store; 0 for now.
    fn range(&self, first: String, end: Bytes, limit: i64, revision: i64) -> Result<Vec<KeyValue>, EtcdError> {
        let request = RangeRequest {
            key: first.into(),
            range_end: end,
            limit,
            revision,
            ..RangeRequest::default()
        };
        let answer = self.wait(self.client.range(request, READ_TIMEOUT))?;
        Ok(answer.kvs)
    }
}

const RELOAD_AGAIN: Duration = Duration::from_millis(500);
const WATCH_AGAIN: Duration = Duration::from_millis(20);
/// Pairs of one read. Each has at most 1.5 MiB, etcd's limit, and mostly far less.
const PAGE: i64 = 256;

#[cfg(test)]
mod tests;
