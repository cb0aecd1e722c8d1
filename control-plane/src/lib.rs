//! Credence's control plane: a durable revocation log streamed to every filter, and a ledger of their decisions.
//!
//! One process, one data folder, no other service. [`ControlPlane::start`] opens the folder, listens, and returns a
//! [`Running`]; [`Running::shutdown`] stops so that filters stay fresh until the successor is there.

mod access;
mod audit;
mod config;
mod control_plane;
mod data_folder;
mod descriptors;
mod durable;
mod frames;
mod http;
mod lifecycle;
mod metrics;
mod net;
mod outbox;
mod revocation;
mod settings;
mod supervision;
mod text;
mod throttle;

pub use access::OperatorTokenError;
pub use config::{Config, ConfigError, InitOptions, Limits, MAX_CACHE_KEY_ROTATION, MAX_DRAIN_PROMISE};
pub use control_plane::{ControlPlane, Running, StartError};
pub use data_folder::{DataFolderError, LogId};
pub use descriptors::DescriptorError;
pub use settings::{
    AccessSettings, CertificateSettings, CertificateSubject, JsonText, PortTls, RateSettings, Role, Settings,
    SettingsError, StatusSettings, TlsSettings, TokenSettings, TrustAnchorSettings,
};
pub use supervision::Failure;
