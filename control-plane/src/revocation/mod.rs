//! The revocation log: ordered, durable, streamed to every enforcement point.
//!
//! [`subject`] parses what can be revoked, [`state`] says what an operation changes and [`table`] holds it, [`digest`]
//! chains the history, [`trail`] knows its positions and [`position`] proves them, [`storage`] keeps it on disk, [`view`]
//! and [`snapshot`] are what streams read, [`log`] is the one writer and [`head_keeper`] notes how far it was
//! acknowledged, [`service`] the gRPC stream and [`server`] its wire format. Behind the writer, [`upkeep`] compacts the file and forgets by the log's own [`clock`], and [`history`] files where each change comes
//! from ([`provenance`]), reading [`groups`]. [`restored`] is for backups. [`leases`] says when every filter has
//! applied what was revoked, and [`stalls`] who has held that up. [`cache_keys`] is what the streams carry besides.

pub(crate) mod cache_keys;
pub(crate) mod clock;
pub(crate) mod dating;
pub(crate) mod digest;
pub(crate) mod groups;
pub(crate) mod head_keeper;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod position;
pub(crate) mod provenance;
pub(crate) mod restored;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod snapshot;
mod stalls;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod subject;
pub(crate) mod table;
pub(crate) mod trail;
pub(crate) mod upkeep;
pub(crate) mod view;
