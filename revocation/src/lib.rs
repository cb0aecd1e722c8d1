//! The revocation log: ordered, durable, streamed to every enforcement point.
//!
//! [`subject`] parses what can be revoked, [`state`] holds what is and [`plan`] says what an operation changes,
//! [`digest`] chains the history, [`digest_history`] knows its positions and [`position`] proves them. [`store`] keeps the
//! log on disk, [`log_view`] and [`snapshot`] are what streams read. [`log`] is the handle that the others have, and
//! [`writer`] the one thread that writes; [`compaction`] and forgetting, by the log's own [`clock`], are done by it too.
//! [`history`] files where each change comes from ([`provenance`]). [`service`] is the gRPC stream and [`answer`] what it is
//! told. [`leases`] says when every filter has applied what was revoked, and [`stalls`] who has held that up. [`cache_keys`] is
//! what the streams carry besides. [`restored`] is for backups. [`data_folder`] is where everything lies, and [`parts`] puts it
//! all together.

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

mod answer;
mod cache_keys;
mod clock;
mod compaction;
mod data_folder;
mod digest;
mod digest_history;
mod fill;
mod history;
mod leases;
mod limits;
mod log;
mod log_id;
mod log_view;
mod metrics;
mod parts;
mod plan;
mod position;
mod provenance;
mod restored;
mod service;
mod snapshot;
mod stalls;
mod state;
mod status;
mod store;
mod subject;
mod writer;

pub use limits::*;

pub use credence_delegation::Thumbprint;
pub use data_folder::{DataFolder, DataFolderError, take_lock};
pub use digest_history::ForeignPosition;
pub use fill::{fill_log, fill_log_to_the_brim};
pub use history::{History, HistoryEntry, HistoryError};
pub use leases::{Leases, Progress};
pub use log::{Receipt, RevocationLog, RevokeError};
pub use log_id::LogId;
pub use log_view::{FellBehind, HistoryBounds, Start};
pub use metrics::Metrics;
pub use parts::{LogOptions, OpenLogError, OpenedLog, StartedLog};
pub use plan::PlanError;
pub use restored::RestoreError;
pub use service::WatchService;
pub use state::SubjectState;
pub use status::Knowledge;
pub use store::StoreError;
pub use subject::{DelegationName, Issuer, Operation, Order, PrincipalName, Requester, Source, SubjectError};
