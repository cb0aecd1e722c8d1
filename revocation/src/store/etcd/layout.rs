//! The keys and values of a log on etcd.

use bytes::Bytes;
use credence_etcd::Address;
use credence_etcd::api::response_op::Response;
use credence_etcd::api::{KeyValue, RequestOp, TxnRequest, TxnResponse};
use prost::Message as _;

use crate::digest::{Digest, Head};
use crate::log_id::LogId;
use crate::store::StoreError;
use crate::store::beginning::Beginning;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredHead {
    #[prost(uint64, tag = "1")]
    pub(super) seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) digest: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) log_id: String,
    /// The data folder in which the log goes on; empty if it has not left.
    #[prost(string, tag = "4")]
    pub(super) moved_to: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredBeginning {
    #[prost(message, required, tag = "1")]
    pub(super) beginning: Beginning,
    #[prost(string, tag = "2")]
    pub(super) generation: String,
    /// The size of its chunks.
    #[prost(uint64, tag = "3")]
    pub(super) bytes: u64,
}

/// What all replicas of a log must agree on.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Settings {
    #[prost(uint64, tag = "1")]
    pub(crate) max_staleness_ms: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) max_token_lifetime_s: u64,
}

// === impl StoredHead ===

impl StoredHead {
    pub(super) fn moved_away(self, address: &Address) -> StoreError {
        StoreError::MovedAway {
            store: address.to_string(),
            log_id: self.log_id,
            to: self.moved_to,
        }
    }

    pub(super) fn of(head: Head, log_id: &LogId) -> Self {
        Self {
            seq: head.seq,
            digest: head.digest.as_bytes().to_vec(),
            log_id: log_id.to_string(),
            moved_to: String::new(),
        }
    }

    /// None of a log that has left: nothing may be written to it.
    pub(super) fn read(bytes: &Bytes) -> Option<(Head, LogId)> {
        let stored = Self::decode(bytes.clone()).ok()?;
        stored.position().filter(|_| stored.moved_to.is_empty())
    }

    pub(super) fn position(&self) -> Option<(Head, LogId)> {
        let stored = self;
        let head = Head {
            seq: stored.seq,
            digest: Digest::parse(&stored.digest)?,
        };
        Some((head, LogId::parse(&stored.log_id)?))
    }
}

// === impl Settings ===

impl Settings {
    /// As options of `credence serve`.
    pub(super) fn options(self) -> String {
        let Self {
            max_staleness_ms,
            max_token_lifetime_s,
        } = self;
        format!("--max-staleness {max_staleness_ms}ms --max-token-lifetime {max_token_lifetime_s}s")
    }
}

pub(super) fn group_key(first_seq: u64) -> String {
    format!("{GROUPS}{first_seq:020}")
}

pub(super) fn seq_in(prefix: &str, key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(prefix.as_bytes())?.strip_prefix(GROUPS.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The first key after this pair's.
pub(super) fn after_key(pair: &KeyValue) -> String {
    format!("{}\0", String::from_utf8_lossy(&pair.key))
}

/// The pairs that a read of a transaction found.
pub(super) fn pairs(answer: &TxnResponse, read: usize) -> &[KeyValue] {
    match answer.responses.get(read).and_then(|read| read.response.as_ref()) {
        Some(Response::ResponseRange(range)) => &range.kvs,
        _ => &[],
    }
}

pub(super) fn pair(answer: &TxnResponse, read: usize) -> Option<&KeyValue> {
    pairs(answer, read).first()
}

/// A transaction that only reads.
pub(super) fn reads(reads: Vec<RequestOp>) -> TxnRequest {
    TxnRequest {
        success: reads,
        ..TxnRequest::default()
    }
}

pub(super) fn revision_of(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

pub(super) fn damaged(address: &Address, found: &str) -> StoreError {
    StoreError::Damaged {
        path: address.to_string().into(),
        found: found.to_owned(),
    }
}

pub(super) const LAYOUT_KEY: &str = "layout";
pub(super) const SETTINGS_KEY: &str = "settings";
pub(super) const HEAD_KEY: &str = "head";
pub(super) const BEGINNING_KEY: &str = "beginning";
pub(super) const NOTES_KEY: &str = "notes";
pub(super) const GROUPS: &str = "groups/";
pub(super) const CHUNKS: &str = "chunks/";
pub(super) const REPLICAS: &str = "replicas/";
pub(super) const SOURCES: &str = "sources/";
/// Changes with the meaning of any key. There is no conversion.
pub(super) const LAYOUT: u32 = 1;
pub(super) const NO_HEAD: &str = "its head cannot be read";
pub(super) const NO_BEGINNING: &str = "it does not record where the log begins";
