//! The log on etcd, for replicas that share it.
//!
//! ```text
//! PREFIX/layout                 number of this layout
//! PREFIX/max_staleness_ms       S, which all replicas must agree on
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

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use credence_etcd::api::response_op::Response;
use credence_etcd::api::{KeyValue, RangeRequest, ResponseOp, TxnRequest, TxnResponse};
use credence_etcd::{
    Address, Change, Client, EtcdError, delete_range, has_revision, is_empty, prefix_end, put, put_leased, read,
    read_range,
};
use credence_runtime::text::random_hex;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::beginning::{Beginning, Cut, Restoring};
use super::group::Group;
use super::{AppendError, FollowError, LogStore, Notes, StoreError};
use crate::clock::Forgotten;
use crate::digest::{Digest, Head};
use crate::log_id::LogId;
use crate::log_view::LogView;

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

/// What this replica knows of the store.
#[derive(Debug)]
struct Known {
    log_id: LogId,
    head: Head,
    head_revision: i64,
    notes: Notes,
    notes_revision: i64,
    beginning: Head,
    beginning_revision: i64,
    /// The groups from this number on may still be there.
    first_group: u64,
    bytes: u64,
    /// The latest groups, as they arrived.
    latest: BTreeMap<u64, Bytes>,
    latest_bytes: usize,
    /// The generation of the chunks that are being written, and the revisions of its first chunk and of the beginning that
    /// it will replace; then of its own beginning.
    generation: String,
    first_chunk: i64,
    replaces: i64,
    /// The revision up to which changes are known, and the head at that revision.
    revision: i64,
    observed: u64,
    /// What the filters of each replica have applied, at that revision.
    replicas: BTreeMap<String, u64>,
    /// The lease of this replica's key; 0 if there is none.
    lease: i64,
    /// This replica stops, so it registers no more.
    has_left: bool,
    /// The sources that have moved, and the origin of the ledger in which each goes on, until they are taken.
    moved: BTreeMap<String, String>,
    /// The lease of the sources that have moved to this replica, and when it began.
    sources_lease: Option<(i64, Instant)>,
    /// Where the log goes on, if it has left.
    moved_to: String,
}

/// What a replica finds that reads the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    /// The others knew of this replica when the head was read.
    Before(Head),
    /// They know of it from now on.
    Now,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredHead {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    digest: Vec<u8>,
    #[prost(string, tag = "3")]
    log_id: String,
    /// The data folder in which the log goes on; empty if it has not left.
    #[prost(string, tag = "4")]
    moved_to: String,
}

/// A look at a log, without opening it.
pub(crate) struct Look {
    pub(crate) head: Head,
    pub(crate) log_id: LogId,
    pub(crate) max_staleness: Duration,
    /// What the filters of each replica have applied.
    pub(crate) replicas: BTreeMap<String, u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredBeginning {
    #[prost(message, required, tag = "1")]
    beginning: Beginning,
    #[prost(string, tag = "2")]
    generation: String,
    /// The size of its chunks.
    #[prost(uint64, tag = "3")]
    bytes: u64,
}

/// Creates a log. A `floor`, in seconds since the Unix epoch, becomes its first record.
pub(crate) async fn create(
    client: &Client,
    address: &Address,
    log_id: &LogId,
    floor: Option<i64>,
    max_staleness: Duration,
) -> Result<(), StoreError> {
    let start = Head {
        seq: 0,
        digest: Digest::start(log_id),
    };
    let beginning = StoredBeginning {
        beginning: Beginning::at(start),
        generation: String::new(),
        bytes: 0,
    };
    let mut first = None;
    if let Some(issued_up_to) = floor {
        let floor = v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
        };
        first = Some(Group::following(start, vec![floor.into()], Vec::new()));
    }
    let head = first.as_ref().and_then(Group::head).unwrap_or(start);
    let log = NewLog {
        head: StoredHead::of(head, log_id),
        beginning,
        notes: Notes::default(),
        max_staleness,
        first,
    };
    log.create(client, address).await
}

/// Creates a log that goes on where another one ends. Repeating it does no harm.
pub(crate) async fn create_after(
    client: &Client,
    address: &Address,
    (log_id, notes): (&LogId, Notes),
    cut: &mut Cut,
    max_staleness: Duration,
) -> Result<(), StoreError> {
    let key = |name: &str| format!("{}{name}", address.prefix);
    let generation = random_hex().map_err(StoreError::Random)?;
    // Chunks of an attempt that was interrupted.
    let chunks = key(CHUNKS);
    let forget = TxnRequest {
        compare: vec![has_revision(key(HEAD_KEY), 0)],
        success: vec![delete_range(chunks.clone(), prefix_end(chunks.as_bytes()))],
        failure: Vec::new(),
    };
    let is_free = client.transact(forget, COMMIT_TIMEOUT).await?.succeeded;
    while is_free && let Some((index, chunk)) = cut.next_chunk() {
        let request = TxnRequest {
            success: vec![put(key(&format!("{CHUNKS}{generation}/{index:08}")), chunk)],
            ..TxnRequest::default()
        };
        client.transact(request, COMMIT_TIMEOUT).await?;
    }
    let log = NewLog {
        head: StoredHead::of(cut.head, log_id),
        beginning: StoredBeginning {
            beginning: cut.beginning(),
            generation,
            bytes: cut.bytes,
        },
        notes,
        max_staleness,
        first: None,
    };
    log.create(client, address).await
}

/// Looks at a log, as a quorum has it.
pub(crate) async fn look(client: &Client, address: &Address) -> Result<Look, StoreError> {
    let replicas = format!("{}{REPLICAS}", address.prefix);
    let request = TxnRequest {
        success: vec![
            read(format!("{}{HEAD_KEY}", address.prefix)),
            read(format!("{}{STALENESS_KEY}", address.prefix)),
            read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0),
        ],
        ..TxnRequest::default()
    };
    let answer = client.transact(request, READ_TIMEOUT).await?;
    let pairs = |index: usize| answer.responses.get(index).map(range_of).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(head) = pairs(0).first() else {
        return Err(StoreError::Missing {
            store: address.to_string(),
        });
    };
    let stored = StoredHead::decode(head.value.clone()).map_err(|_| damaged(address, NO_HEAD))?;
    if !stored.moved_to.is_empty() {
        return Err(stored.moved_away(address));
    }
    let (head, log_id) = stored.position().ok_or_else(|| damaged(address, NO_HEAD))?;
    let staleness = pairs(1).first().and_then(|pair| text(&pair.value).parse().ok());
    let name = |key: &[u8]| text(key.strip_prefix(replicas.as_bytes()).unwrap_or_default());
    let replicas = pairs(2).iter();
    let replicas = replicas.filter_map(|pair| Some((name(&pair.key), text(&pair.value).parse().ok()?)));
    Ok(Look {
        head,
        log_id,
        max_staleness: Duration::from_millis(staleness.unwrap_or_default()),
        replicas: replicas.collect(),
    })
}

/// What a log begins with.
struct NewLog {
    head: StoredHead,
    beginning: StoredBeginning,
    notes: Notes,
    max_staleness: Duration,
    first: Option<Group>,
}

impl NewLog {
    /// All at once, unless there is a log.
    async fn create(self, client: &Client, address: &Address) -> Result<(), StoreError> {
        let key = |name: &str| format!("{}{name}", address.prefix);
        let mut success = vec![
            put(key(LAYOUT_KEY), LAYOUT.to_string()),
            put(key(STALENESS_KEY), self.max_staleness.as_millis().to_string()),
            put(key(BEGINNING_KEY), self.beginning.encode_to_vec()),
            put(key(NOTES_KEY), self.notes.encode_to_vec()),
            put(key(HEAD_KEY), self.head.encode_to_vec()),
        ];
        if let Some(first) = &self.first {
            success.push(put(key(&group_key(first.first_seq)), first.encode()));
        }
        let request = TxnRequest {
            compare: vec![has_revision(key(HEAD_KEY), 0)],
            success,
            failure: vec![read(key(HEAD_KEY))],
        };
        let answer = client.transact(request, COMMIT_TIMEOUT).await?;
        if answer.succeeded {
            return Ok(());
        }
        // An earlier attempt of this one may have created it.
        let found = answer.responses.iter().find_map(|response| range_of(response).first());
        let found = found.and_then(|pair| StoredHead::decode(pair.value.clone()).ok());
        match found {
            Some(found) if found == self.head => Ok(()),
            found => Err(StoreError::Taken {
                store: address.to_string(),
                log_id: found.map_or_else(String::new, |found| found.log_id),
            }),
        }
    }
}

// === impl EtcdStore ===

impl EtcdStore {
    /// Opens a log made by [`create`].
    pub(crate) async fn open(client: Client, address: Address, max_staleness: Duration) -> Result<Self, StoreError> {
        let store = Self::open_to_move(client, address, max_staleness).await?;
        let (to, head, log_id) = {
            let known = store.known();
            (known.moved_to.clone(), known.head, known.log_id.clone())
        };
        match to.is_empty() {
            true => Ok(store),
            false => Err(StoredHead {
                moved_to: to,
                ..StoredHead::of(head, &log_id)
            }
            .moved_away(&store.address)),
        }
    }

    /// The same for a log that may have left already.
    pub(crate) async fn open_to_move(
        client: Client,
        address: Address,
        max_staleness: Duration,
    ) -> Result<Self, StoreError> {
        let names = [LAYOUT_KEY, HEAD_KEY, BEGINNING_KEY, NOTES_KEY, STALENESS_KEY];
        let mut success = names.map(|name| read(format!("{}{name}", address.prefix))).to_vec();
        let replicas = format!("{}{REPLICAS}", address.prefix);
        success.push(read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0));
        let request = TxnRequest {
            success,
            ..TxnRequest::default()
        };
        let answer = client.transact(request, READ_TIMEOUT).await?;
        let store = address.to_string();
        let name = random_hex().map_err(StoreError::Random)?;
        let damaged = |found: &str| damaged(&address, found);
        let pair = |index: usize| {
            answer
                .responses
                .get(index)
                .and_then(|response| range_of(response).first())
        };
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
        let theirs = pair(4).and_then(|pair| std::str::from_utf8(&pair.value).ok()?.parse().ok());
        let theirs: u64 = theirs.ok_or_else(|| damaged("its max_staleness cannot be read"))?;
        if u128::from(theirs) != max_staleness.as_millis() {
            return Err(StoreError::OtherStaleness {
                store,
                theirs,
                ours: max_staleness.as_millis().try_into().unwrap_or(u64::MAX),
            });
        }
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
        for pair in answer.responses.get(5).map(range_of).unwrap_or_default() {
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

    /// Reads the head, as a quorum has it, and sees to it that the other replicas know of this one.
    pub(crate) async fn register(&self, applied: u64) -> Result<Registered, StoreError> {
        let ours = self.key(&format!("{REPLICAS}{}", self.name));
        let known = self.known().revision;
        let request = TxnRequest {
            success: vec![read(self.key(HEAD_KEY)), read(ours)],
            ..TxnRequest::default()
        };
        let answer = self.client.transact(request, HEAD_TIMEOUT).await?;
        let pair = |index: usize| {
            answer
                .responses
                .get(index)
                .and_then(|response| range_of(response).first())
        };
        let stored = pair(0).and_then(|pair| Some((StoredHead::decode(pair.value.clone()).ok()?, pair.mod_revision)));
        let Some((stored, revision)) = stored else {
            return Err(damaged(&self.address, "its head is missing"));
        };
        if !stored.moved_to.is_empty() {
            return Err(stored.moved_away(&self.address));
        }
        let (head, log_id) = stored.position().ok_or_else(|| damaged(&self.address, NO_HEAD))?;
        self.check_not_before(known, revision_of(&answer))?;
        self.known().note_head(head, log_id, revision);
        if pair(1).is_some() {
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
        let lease = self.known().lease;
        if lease == 0 {
            return Err(StoreError::Left);
        }
        let ours = self.key(&format!("{REPLICAS}{}", self.name));
        let request = TxnRequest {
            success: vec![put_leased(ours, applied.to_string(), lease)],
            ..TxnRequest::default()
        };
        self.client.transact(request, HEAD_TIMEOUT).await?;
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
        let request = TxnRequest {
            success: vec![
                read(self.key(HEAD_KEY)),
                read(self.key(BEGINNING_KEY)),
                read(self.key(NOTES_KEY)),
                read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0),
            ],
            ..TxnRequest::default()
        };
        let answer = self.client.transact(request, READ_TIMEOUT).await?;
        let revision = revision_of(&answer);
        self.check_not_before(known, revision)?;
        let mut known = self.known();
        known.replicas.clear();
        known.latest.clear();
        known.latest_bytes = 0;
        for pair in answer.responses.iter().flat_map(range_of) {
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

    /// The pairs from one key up to another, at most `limit`.
    fn range(&self, first: String, end: Bytes, limit: i64) -> Result<Vec<KeyValue>, EtcdError> {
        let request = RangeRequest {
            key: first.into(),
            range_end: end,
            limit,
            ..RangeRequest::default()
        };
        let answer = self.wait(self.client.range(request, READ_TIMEOUT))?;
        Ok(answer.kvs)
    }

    /// Groups that follow a position, from those that arrived last.
    fn latest_after(&self, after: Head, limit: usize) -> Vec<Group> {
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
}

impl LogStore for EtcdStore {
    fn replay(&self, view: &mut LogView) -> Result<(), StoreError> {
        let damaged = |found: &str| damaged(&self.address, found);
        let stored = self.range(self.key(BEGINNING_KEY), Bytes::new(), 1)?;
        let stored = stored
            .first()
            .and_then(|pair| StoredBeginning::decode(pair.value.clone()).ok());
        let stored = stored.ok_or_else(|| damaged(NO_BEGINNING))?;
        let mut restoring = Restoring::new(stored.beginning);
        let mut bytes = 0;
        let chunks = self.key(&format!("{CHUNKS}{}/", stored.generation));
        let mut next = chunks.clone();
        loop {
            let page = self.range(next, prefix_end(chunks.as_bytes()), CHUNK_PAGE)?;
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
            let page = self.range(self.key(&group_key(head.seq + 1)), end.clone(), PAGE)?;
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
        let found = answer.responses.first().and_then(|response| range_of(response).first());
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
        let request = TxnRequest {
            success: vec![
                read(self.key(HEAD_KEY)),
                read_range(
                    self.key(&group_key(after.seq + 1)),
                    prefix_end(self.key(GROUPS).as_bytes()),
                    PAGE,
                ),
            ],
            ..TxnRequest::default()
        };
        let answer = self.transact(request).map_err(StoreError::from)?;
        let head = answer.responses.first().and_then(|response| range_of(response).first());
        let (head, log_id, revision) = head
            .and_then(|pair| StoredHead::read(&pair.value).map(|(head, log_id)| (head, log_id, pair.mod_revision)))
            .ok_or_else(|| damaged(&self.address, NO_HEAD))?;
        let (mut groups, mut position) = (Vec::new(), after);
        for pair in answer.responses.get(1).map(range_of).unwrap_or_default() {
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
        let found = answer.responses.first().and_then(|response| range_of(response).first());
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
            let found = answer.responses.first().and_then(|response| range_of(response).first());
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

impl EtcdStore {
    /// The number in a group's key.
    fn seq_of(&self, key: &[u8]) -> Option<u64> {
        seq_in(&self.address.prefix, key)
    }
}

// === impl Known ===

impl Known {
    fn note_head(&mut self, head: Head, log_id: LogId, revision: i64) {
        if revision > self.head_revision {
            (self.head, self.log_id, self.head_revision) = (head, log_id, revision);
        }
    }

    fn remember(&mut self, first_seq: u64, group: Bytes) {
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

    fn take(&mut self, prefix: &str, change: Change) {
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

    fn note_beginning(&mut self, value: Bytes, revision: i64) {
        let Ok(stored) = StoredBeginning::decode(value) else {
            return;
        };
        if let Ok(head) = stored.beginning.head() {
            (self.beginning, self.beginning_revision) = (head, revision);
            // Otherwise this replica would soon compact again.
            self.bytes = stored.bytes;
        }
    }

    fn note_source(&mut self, prefix: &str, key: &[u8], ledger: Option<&Bytes>) {
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

    fn note_replica(&mut self, prefix: &str, key: &[u8], value: Option<&Bytes>) {
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

// === impl StoredHead ===

impl StoredHead {
    fn moved_away(self, address: &Address) -> StoreError {
        StoreError::MovedAway {
            store: address.to_string(),
            log_id: self.log_id,
            to: self.moved_to,
        }
    }

    fn of(head: Head, log_id: &LogId) -> Self {
        Self {
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec(),
            log_id: log_id.to_string(),
            moved_to: String::new(),
        }
    }

    /// None of a log that has left: nothing may be written to it.
    fn read(bytes: &Bytes) -> Option<(Head, LogId)> {
        let stored = Self::decode(bytes.clone()).ok()?;
        stored.position().filter(|_| stored.moved_to.is_empty())
    }

    fn position(&self) -> Option<(Head, LogId)> {
        let stored = self;
        let head = Head {
            seq: stored.seq,
            digest: Digest::parse(&stored.digest)?,
        };
        Some((head, LogId::parse(&stored.log_id)?))
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

fn group_key(first_seq: u64) -> String {
    format!("{GROUPS}{first_seq:020}")
}

fn seq_in(prefix: &str, key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(prefix.as_bytes())?.strip_prefix(GROUPS.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The first key after this pair's.
fn after_key(pair: &KeyValue) -> String {
    format!("{}\0", String::from_utf8_lossy(&pair.key))
}

fn range_of(response: &ResponseOp) -> &[KeyValue] {
    match &response.response {
        Some(Response::ResponseRange(range)) => &range.kvs,
        _ => &[],
    }
}

fn revision_of(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

fn damaged(address: &Address, found: &str) -> StoreError {
    StoreError::Damaged {
        path: address.to_string().into(),
        found: found.to_owned(),
    }
}

const LAYOUT_KEY: &str = "layout";
const STALENESS_KEY: &str = "max_staleness_ms";
const HEAD_KEY: &str = "head";
const BEGINNING_KEY: &str = "beginning";
const NOTES_KEY: &str = "notes";
const GROUPS: &str = "groups/";
const CHUNKS: &str = "chunks/";
const REPLICAS: &str = "replicas/";
const SOURCES: &str = "sources/";
/// The largest number of audit sources that are claimed at once: etcd's limit for one transaction is 128.
pub(crate) const MOVES: usize = 100;
/// Moved sources that wait until this replica's ledger takes them: as many as it remembers.
const MAX_MOVED: usize = 200_000;
/// How long a replica may be down and still learn which of its sources have moved. At least half of it.
const SOURCES_LEASE: Duration = Duration::from_secs(2 * 60 * 60);
/// How long a replica that does not renew its lease is waited for, in seconds.
const REPLICA_SECONDS: i64 = 10;
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// Until another attempt to read the head, in which two members can be asked.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Changes with the meaning of any key. There is no conversion.
const LAYOUT: u32 = 1;
const NO_HEAD: &str = "its head cannot be read";
const NO_BEGINNING: &str = "it does not record where the log begins";
/// Until a commit's outcome is unknown: longer than an election.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const RELOAD_AGAIN: Duration = Duration::from_millis(500);
const WATCH_AGAIN: Duration = Duration::from_millis(20);
/// Pairs of one read. Each has at most 1.5 MiB, etcd's limit, and mostly far less.
const PAGE: i64 = 256;
/// Chunks of one read, 250 KiB each: one member has half a second for it.
const CHUNK_PAGE: i64 = 16;
/// Groups that one transaction removes.
const CLEARED_GROUPS: u64 = 2_000;
/// The latest groups in memory.
const LATEST_BYTES: usize = 8 << 20;
/// The approximate size of a pair beside its value.
const PAIR_BYTES: u64 = 96;

#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
