//! Credence's control plane: a durable revocation log streamed to every filter, and a ledger of their decisions.
//!
//! One process, one data folder, no other service. [`ControlPlane::start`] opens the folder, listens, and returns a
//! [`Running`]; [`Running::shutdown`] stops so that filters stay fresh until the successor is there.

mod access;
mod audit;
mod client_limits;
mod config;
mod connections;
mod control_plane;
mod data_folder;
mod database;
mod descriptors;
mod fill;
mod folder_lock;
mod grpc;
mod http;
mod identity;
mod identity_settings;
mod lifecycle;
mod metrics;
mod net;
mod otlp;
mod outbound;
mod outbox;
mod reload;
mod revocation;
mod scim;
mod security_events;
mod settings;
mod supervision;
mod text;
mod throttle;
mod tls;
mod turns;

pub use access::OperatorTokenError;
pub use config::{
    Config, ConfigError, InitOptions, Limits, MAX_CACHE_KEY_ROTATION, MAX_DRAIN_PROMISE, MAX_STALENESS,
    MAX_TOKEN_LIFETIME,
};
pub use control_plane::{ControlPlane, Running, StartError};
pub use data_folder::{DataFolderError, LogId};
pub use descriptors::DescriptorError;
#[doc(hidden)]
pub use fill::{fill_log, fill_log_to_the_brim};
pub use folder_lock::FolderLost;
pub use identity::IdentityError;
pub use identity_settings::{
    EventAlgorithm, EventSubject, JwksSettings, ScimSettings, ScimSubject, TransmitterSettings,
};
pub use otlp::OtlpError;
pub use reload::ReloadError;
pub use settings::{
    AccessSettings, AuditSettings, CertificateSettings, CertificateSubject, GrpcAccess, JsonText, LedgerSettings,
    OtlpHeaders, OtlpProtocol, OtlpSettings, PortTls, RateSettings, Role, Settings, SettingsError, StatusSettings,
    TileAccess, TlsSettings, TokenSettings, TrustAnchorSettings, WitnessSettings, settings_schema,
};
pub use supervision::Failure;
pub use tls::TlsError;
