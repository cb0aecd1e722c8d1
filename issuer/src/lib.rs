//! Credence's issuer: an OAuth authorization server (RFC 6749, RFC 9700) where people grant delegations to agents, and
//! take them back.
//!
//! | module | its one job |
//! |---|---|
//! | `settings` | the configuration file |
//! | `tools` | tools with constraints on their arguments |
//! | `policy` | the most that a person may grant to a client |
//! | `choice` | what the person leaves of that |
//! | `words`, `pages` | a grant in words, and the pages that people see |
//! | `clients` | clients, and the documents that describe them |
//! | `parameters`, `request`, `error` | OAuth's requests and errors |
//! | `sign_in` | a person at their identity provider |
//! | `store`, `grants`, `events` | the database, what was granted, and evidence for the ledger |
//! | `memory` | what is remembered for minutes |
//! | `keys`, `key_ring`, `codes` | the issuer's keys, those that count now, and what they make |
//! | `plane` | the control plane's API |
//! | `app`, `front` | what every request needs, and what happens to it first |
//! | `browser`, `backchannel`, `client_authentication` | answers to people, and to programs |
//! | `metrics` | metrics |
//! | `tasks` | what happens without a request |
//! | `issuer` | start and stop |

#![allow(
    missing_docs,
    reason = "internal to the issuer: a name that explains itself needs no comment"
)]

mod app;
mod backchannel;
#[cfg(test)]
mod bounds_tests;
mod browser;
mod choice;
mod client_authentication;
mod clients;
mod codes;
mod error;
mod events;
mod front;
mod grants;
mod issuer;
mod key_ring;
mod keys;
mod memory;
mod metrics;
mod pages;
mod parameters;
mod plane;
mod policy;
mod request;
mod settings;
mod sign_in;
mod store;
mod tasks;
mod tools;
mod words;

pub use clients::{ClientMetadataSettings, ClientSettings};
pub use issuer::{Issuer, Options, StartError, passphrase};
pub use keys::{Keys, KeysError};
pub use settings::{ControlPlaneSettings, LimitSettings, RuleSettings, Settings, settings_schema};
pub use sign_in::IdentityProviderSettings;
pub use words::Description;
