//! Parts of transactions.

use bytes::Bytes;

use crate::api::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::request_op::Request;
use crate::api::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp};

/// Holds if the key was last written at this revision of the store; 0 if it must not exist.
pub fn has_revision(key: impl Into<Bytes>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        range_end: Bytes::new(),
    }
}

/// Holds if there are no keys from `first` up to `end`.
pub fn is_empty(first: impl Into<Bytes>, end: impl Into<Bytes>) -> Compare {
    Compare {
        range_end: end.into(),
        ..has_revision(first, 0)
    }
}

pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> RequestOp {
    put_leased(key, value, 0)
}

/// Puts a pair that goes with the lease; with 0, it stays.
pub fn put_leased(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: i64) -> RequestOp {
    operation(Request::RequestPut(PutRequest {
        key: key.into(),
        value: value.into(),
        lease,
    }))
}

/// Deletes the keys from `first` up to `end`.
pub fn delete_range(first: impl Into<Bytes>, end: impl Into<Bytes>) -> RequestOp {
    operation(Request::RequestDeleteRange(DeleteRangeRequest {
        key: first.into(),
        range_end: end.into(),
    }))
}

pub fn read(key: impl Into<Bytes>) -> RequestOp {
    operation(Request::RequestRange(RangeRequest {
        key: key.into(),
        ..RangeRequest::default()
    }))
}

/// Reads the keys from `first` up to `end`, at most `limit` of them.
pub fn read_range(first: impl Into<Bytes>, end: impl Into<Bytes>, limit: i64) -> RequestOp {
    operation(Request::RequestRange(RangeRequest {
        key: first.into(),
        range_end: end.into(),
        limit,
        ..RangeRequest::default()
    }))
}

/// The first key after all that have this prefix, which ends with another byte than 255.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}

fn operation(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}
