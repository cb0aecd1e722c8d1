//! Credence's control plane: a durable revocation log that is streamed to every filter, and a ledger of their
//! decisions.
//!
//! One process, one data folder, no other service. [`ControlPlane::start`] opens the folder, listens, and returns a
//! [`Running`]. [`Running::shutdown`] stops it so that filters stay fresh until the successor runs.

mod access;
pub mod cluster;
mod config;
mod control_plane;
mod descriptors;
mod fetched_anchors;
mod grpc;
mod http;
#[cfg(test)]
#[path = "../../evidence/src/memory_tree.rs"]
mod memory_tree;
mod metrics;
mod moves;
mod settings;

pub use config::{Config, Limits};
pub use control_plane::{ControlPlane, Running, StartError};
pub use credence_evidence::{
    AuditSettings, EvidenceLimits, LedgerSettings, OtlpHeaders, OtlpProtocol, OtlpSettings, TileAccess, WitnessSettings,
};
pub use credence_provisioning::{
    EventAlgorithm, EventSubject, IdentityError, IdentityLimits, JwksSettings, ScimSettings, ScimSubject,
    TransmitterSettings,
};
pub use credence_revocation::{
    DataDirError, InitOptions, LogId, LogOptions, MAX_CACHE_KEY_ROTATION, MAX_DRAIN_PROMISE, MAX_STALENESS,
    MAX_TOKEN_LIFETIME, StoreAddress, StoreOptions, StoreSecurity, TransferError, Transferred,
};
#[doc(hidden)]
pub use credence_revocation::{fill_log, fill_log_to_the_brim};
pub use credence_runtime::settings::{SettingsError, Timeouts};
pub use credence_runtime::supervision::Failure;
pub use credence_server::{PortTls, TlsSettings, Unusable};
pub use credence_storage::folder_lock::{FolderLock, FolderLost};
pub use settings::{
    AccessSettings, CertificateSettings, CertificateSubject, GrpcAccess, RateSettings, Role, Settings, StatusSettings,
    TokenSettings, TrustAnchorSettings, settings_schema,
};
