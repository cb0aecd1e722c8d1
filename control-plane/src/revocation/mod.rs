//! The revocation log: ordered, durable, streamed to every enforcement point.
//!
//! [`subject`] parses what can be revoked, [`state`] says what an operation changes, [`digest`] chains the history,
//! [`storage`] keeps it on disk, [`view`] is what streams read, [`log`] is the one writer, [`service`] the gRPC stream.
//! [`cache_keys`] is what the streams carry besides.

pub(crate) mod cache_keys;
mod dating;
pub(crate) mod digest;
pub(crate) mod log;
pub(crate) mod service;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod subject;
pub(crate) mod view;
