//! Input from identity providers: their users ([`scim`]), and events about them ([`security_events`]).
//!
//! Both change the revocation log: a user that loses access there loses authority everywhere.

#![allow(
    missing_docs,
    reason = "internal to the control plane: a name that explains itself needs no comment"
)]

mod identity_providers;
mod metrics;
pub mod scim;
pub mod security_events;
mod settings;

pub use identity_providers::{Identity, IdentityError, IdentityLimits};
pub use metrics::Metrics;
pub use settings::{EventAlgorithm, EventSubject, JwksSettings, ScimSettings, ScimSubject, TransmitterSettings, check};
