//! Credence's Envoy filter.
//!
//! A host-neutral core decides; it knows no proxy, no clock and no randomness of its own. A thin shell of proxy-wasm
//! callbacks (`host` and `plugin`) feeds it.
//!
//! | module | its one job |
//! |---|---|
//! | [`config`] | the plugin configuration, parsed into a policy that can not be wrong |
//! | [`request`], [`target`], [`query`] | what a request says, read so that no service can read it differently |
//! | [`trailers`] | what a request may not say in its trailers |
//! | [`route`], [`arguments`], [`body`] | the rule a request falls under, and the tool's arguments in it |
//! | [`engine`] | the decision |
//! | [`cache`], [`refused`], [`replay`] | chains verified before, chains refused before, and proofs used before |
//! | [`shared_chains`] | chains that another worker has verified, or this one before it was restarted |
//! | [`nonce`] | nonces that proofs may have to carry |
//! | [`revocation`] | what has been revoked, and how fresh that knowledge is |
//! | [`decision`], [`answer`] | what came out, and what the client is told |
//! | [`grant`], [`identity`] | what an allowed request is granted, and what the service behind us is told |
//! | [`evidence`], [`audit`] | what is recorded of it, and its way to the ledger |
//! | [`holding`], [`awaiting`], [`places`] | requests that are held for their bodies, and for the first snapshot, and how many may be |
//! | [`usage_sketch`] | how much of something limited each principal, holder or connection has |
//! | [`metrics`], [`clock`], [`backoff`] | figures, instants, and patience |

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

pub mod answer;
pub mod arguments;
pub mod audit;
pub mod awaiting;
pub mod backoff;
pub mod body;
pub mod cache;
pub mod clock;
pub mod config;
pub mod decision;
pub mod engine;
pub mod evidence;
pub mod grant;
pub mod holding;
#[cfg(any(target_arch = "wasm32", test))]
mod host;
pub mod identity;
pub mod metrics;
mod names;
pub mod nonce;
pub mod places;
#[cfg(target_arch = "wasm32")]
mod plugin;
pub mod query;
pub mod refused;
pub mod repeats;
pub mod replay;
pub mod request;
pub mod revocation;
pub mod route;
pub mod shared_chains;
pub mod target;
pub mod trailers;
pub mod usage_sketch;

#[cfg(test)]
mod samples;
