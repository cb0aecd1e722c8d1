//! Creates a log on etcd, and looks at one without opening it.

use std::collections::BTreeMap;

use credence_etcd::api::TxnRequest;
use credence_etcd::{Address, Client, delete_range, has_revision, prefix_end, put, read, read_range};
use credence_runtime::text::random_hex;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;

use super::layout::{
    BEGINNING_KEY, CHUNKS, HEAD_KEY, LAYOUT, LAYOUT_KEY, NO_HEAD, NOTES_KEY, REPLICAS, SETTINGS_KEY, Settings,
    StoredBeginning, StoredHead, damaged, group_key, pair, pairs, reads,
};
use super::timeouts::{COMMIT_TIMEOUT, READ_TIMEOUT};
use crate::digest::{Digest, Head};
use crate::limits::InitOptions;
use crate::log_id::LogId;
use crate::store::beginning::{Beginning, Cut};
use crate::store::group::Group;
use crate::store::{Notes, StoreError};

/// A look at a log, without opening it.
pub(crate) struct Look {
    pub(crate) head: Head,
    pub(crate) log_id: LogId,
    /// None until a replica has started.
    pub(crate) settings: Option<Settings>,
    /// What the filters of each replica have applied.
    pub(crate) replicas: BTreeMap<String, u64>,
}

/// Creates a log, whose clock begins at `now`, in seconds since the Unix epoch: the replicas' own clocks may differ.
pub(crate) async fn create(
    client: &Client,
    address: &Address,
    log_id: &LogId,
    init: InitOptions,
    now: i64,
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
    if init.floor {
        let floor = v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to: now })),
        };
        first = Some(Group::following(start, vec![floor.into()], Vec::new()));
    }
    let head = first.as_ref().and_then(Group::head).unwrap_or(start);
    let log = NewLog {
        head: StoredHead::of(head, log_id),
        beginning,
        notes: Notes {
            clock: Some(now),
            ..Notes::default()
        },
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
        first: None,
    };
    log.create(client, address).await
}

/// Looks at a log, as a quorum has it.
pub(crate) async fn look(client: &Client, address: &Address) -> Result<Look, StoreError> {
    let replicas = format!("{}{REPLICAS}", address.prefix);
    let request = reads(vec![
        read(format!("{}{HEAD_KEY}", address.prefix)),
        read(format!("{}{SETTINGS_KEY}", address.prefix)),
        read_range(replicas.clone(), prefix_end(replicas.as_bytes()), 0),
    ]);
    let answer = client.transact(request, READ_TIMEOUT).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(head) = pair(&answer, 0) else {
        return Err(StoreError::Missing {
            store: address.to_string(),
        });
    };
    let stored = StoredHead::decode(head.value.clone()).map_err(|_| damaged(address, NO_HEAD))?;
    if !stored.moved_to.is_empty() {
        return Err(stored.moved_away(address));
    }
    let (head, log_id) = stored.position().ok_or_else(|| damaged(address, NO_HEAD))?;
    let name = |key: &[u8]| text(key.strip_prefix(replicas.as_bytes()).unwrap_or_default());
    let replicas = pairs(&answer, 2).iter();
    let replicas = replicas.filter_map(|pair| Some((name(&pair.key), text(&pair.value).parse().ok()?)));
    Ok(Look {
        head,
        log_id,
        settings: pair(&answer, 1).and_then(|pair| Settings::decode(pair.value.clone()).ok()),
        replicas: replicas.collect(),
    })
}

/// What a log begins with.
struct NewLog {
    head: StoredHead,
    beginning: StoredBeginning,
    notes: Notes,
    first: Option<Group>,
}

impl NewLog {
    /// All at once, unless there is a log.
    async fn create(self, client: &Client, address: &Address) -> Result<(), StoreError> {
        let key = |name: &str| format!("{}{name}", address.prefix);
        let mut success = vec![
            put(key(LAYOUT_KEY), LAYOUT.to_string()),
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
        let found = pair(&answer, 0);
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
