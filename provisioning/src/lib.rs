//! What identity providers tell: who their users are ([`scim`]), and what has happened to them ([`security_events`]).
//!
//! Both end in the revocation log: a user who loses access there loses authority everywhere.

#![allow(
    missing_docs,
    reason = "internal to the control plane: names that say all have no comment"
)]

mod identity_providers;
mod metrics;
pub mod scim;
pub mod security_events;
mod settings;

pub use identity_providers::{Identity, IdentityError, IdentityLimits};
pub use metrics::Metrics;
pub use settings::{EventAlgorithm, EventSubject, JwksSettings, ScimSettings, ScimSubject, TransmitterSettings, check};
