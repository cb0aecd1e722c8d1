//! The keys of issuers, fetched from them and kept in the revocation log.
//!
//! A filter whose trust anchor says `keys: control_plane` verifies tokens with these keys. So a control plane that someone
//! else has taken over can vouch for keys of these issuers, and of no others.
//!
//! | module | its one job |
//! |---|---|
//! | `settings` | the issuers, in the configuration file |
//! | `fetch` | reads an issuer's metadata and keys |
//! | `keeper` | fetches in time, and hands the keys to the log |

mod fetch;
mod keeper;
mod metrics;
mod settings;

pub use keeper::tasks;
pub use metrics::Metrics;
pub use settings::{IssuerKeysSettings, check};
