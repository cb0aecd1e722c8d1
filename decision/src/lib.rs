//! What a filter decides with. It knows no proxy, no clock and no randomness of its own: a host feeds it.
//!
//! From the ground up:
//!
//! | module | its one job |
//! |---|---|
//! | [`clock`], [`backoff`] | instants, waiting times between retries |
//! | [`shared_store`], [`stream`] | what the workers of a process share, and a stream to the control plane |
//! | [`usage_sketch`] | how much of something limited each principal, holder or connection has |
//! | [`request`], [`route`], [`arguments`] | what a request says, the rule it falls under, and the tool's arguments in it |
//! | [`revocation`] | what has been revoked, and how fresh that knowledge is |
//! | [`decision`], [`answer`] | what came out, and what the client is told |
//! | [`agent`], [`identity_headers`], [`grant`] | who was proven to ask, what the service is told, what a request is granted |
//! | [`held`] | requests that are held for their bodies or for the first snapshot, and how many may be |
//! | [`proofs`], [`chains`] | proofs and chains that were seen before |
//! | [`config`] | the plugin configuration, parsed into a policy that cannot be wrong |
//! | [`engine`], [`changes`] | the decision, and what it changes about the request |
//! | [`audit`] | what is recorded of decisions, and its way to the ledger |
//! | [`metrics`] | figures |

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod agent;
pub mod answer;
pub mod arguments;
pub mod audit;
pub mod backoff;
pub mod chains;
pub mod changes;
pub mod clock;
pub mod config;
pub mod decision;
pub mod engine;
pub mod grant;
pub mod held;
pub mod identity_headers;
pub mod metrics;
pub mod proofs;
pub mod request;
pub mod revocation;
pub mod route;
pub mod shared_store;
pub mod stream;
pub mod usage_sketch;

#[cfg(test)]
mod samples;
