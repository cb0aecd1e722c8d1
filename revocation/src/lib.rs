//! The revocation log: ordered, durable, streamed to every enforcement point.
//!
//! [`subject`] parses what can be revoked, [`state`] says what an operation changes and [`table`] holds it, [`digest`]
//! chains the history, [`trail`] knows its positions and [`position`] proves them, [`storage`] keeps it on disk, [`view`]
//! and [`snapshot`] are what streams read, [`log`] is the one writer and [`head_keeper`] notes how far it was
//! acknowledged, [`service`] the gRPC stream and [`answer`] what it is told. Behind the writer, [`upkeep`] compacts the file and forgets by the log's own [`clock`], and [`history`] files where each change comes
//! from ([`provenance`]), reading [`groups`]. [`restored`] is for backups. [`leases`] says when every filter has
//! applied what was revoked, and [`stalls`] who has held that up. [`cache_keys`] is what the streams carry besides.

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

mod answer;
mod cache_keys;
mod clock;
mod data_folder;
mod dating;
mod digest;
mod fill;
mod groups;
mod head_keeper;
mod history;
mod leases;
mod limits;
mod log;
mod metrics;
mod position;
mod provenance;
mod restored;
mod service;
mod snapshot;
mod stalls;
mod state;
mod status;
mod storage;
mod subject;
mod table;
mod trail;
mod upkeep;
mod view;

pub use limits::*;

pub use cache_keys::CacheKeys;
pub use clock::{Forgetting, LogClock, read_clock};
pub use data_folder::{DataFolder, DataFolderError, LogId, LogNotes, take_lock};
pub use fill::{fill_log, fill_log_to_the_brim};
pub use head_keeper::HeadKeeper;
pub use history::{History, HistoryEntry, HistoryError};
pub use leases::{Leases, Progress, with_allowance};
pub use log::{Receipt, RevocationLog, RevokeError, Writer, WriterOptions, start as start_log};
pub use metrics::Metrics;
pub use position::PositionKey;
pub use restored::{RestoreError, declare as declare_restored};
pub use service::{WatchOptions, WatchService};
pub use state::{PlanError, PrincipalState};
pub use status::Knowledge;
pub use storage::{Storage, remove_leftover};
pub use subject::{
    DelegationName, Issuer, Operation, Order, PrincipalName, Requester, Source, SubjectError, Thumbprint,
};
pub use view::{FellBehind, ForeignPosition, HistoryBounds, Start, View};
