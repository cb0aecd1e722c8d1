//! The revocation log: ordered, durable, streamed to every enforcement point.
//!
//! | module | its one job |
//! |---|---|
//! | `subject` | parses what can be revoked |
//! | `state`, `plan` | the state of every subject, and what an operation changes |
//! | `digest`, `digest_history`, `position` | the digest chain, its known positions, and proofs of positions |
//! | `store` | the log on disk |
//! | `log_view`, `snapshot` | what streams read |
//! | `log`, `writer` | the handle for all others, and the one thread that writes |
//! | `compaction`, `clock` | work of the writer: compaction, and forgetting by the log's own clock |
//! | `history`, `provenance` | the history of each principal, and where each change comes from |
//! | `service`, `answer` | the gRPC stream, and its messages |
//! | `leases`, `stalls` | which filters have applied a revocation, and which clients delayed it |
//! | `quorum`, `replica` | reads of what a quorum has, and the work of a replica among others |
//! | `cache_keys` | keys of the filters' shared caches |
//! | `restored` | backups |
//! | `data_dir`, `parts` | the files, and how the parts start together |

#![allow(
    missing_docs,
    reason = "internal to the control plane: a name that explains itself needs no comment"
)]

mod answer;
mod cache_keys;
mod clock;
mod compaction;
mod data_dir;
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
mod moves;
mod parts;
mod plan;
mod position;
mod provenance;
mod quorum;
mod replica;
mod restored;
mod service;
mod snapshot;
mod stalls;
mod state;
mod status;
mod store;
mod subject;
mod transfer;
mod writer;

pub use limits::*;

pub use credence_delegation::Thumbprint;
pub use credence_etcd::{Address as StoreAddress, Security as StoreSecurity};
pub use data_dir::{DataDir, DataDirError, take_lock};
pub use digest_history::ForeignPosition;
pub use fill::{fill_log, fill_log_to_the_brim};
pub use history::{History, HistoryEntry, HistoryError};
pub use leases::{Leases, Progress};
pub use log::{Receipt, RevocationLog, RevokeError};
pub use log_id::LogId;
pub use log_view::{FellBehind, HistoryBounds, Start};
pub use metrics::Metrics;
pub use moves::Moves;
pub use parts::{LogOptions, OpenLogError, OpenedLog, StartedLog, StoreOptions};
pub use plan::PlanError;
pub use quorum::NoQuorum;
pub use restored::RestoreError;
pub use service::WatchService;
pub use state::SubjectState;
pub use status::Knowledge;
pub use store::StoreError;
pub use subject::{
    DelegationName, FetchedKeys, Issuer, MAX_ISSUER_KEYS, Operation, Order, PrincipalName, Requester, Source,
    SubjectError,
};
pub use transfer::{ClusterStatus, MemberState, MemberStatus, TransferError, Transferred, export, import, status};
