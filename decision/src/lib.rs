//! The filter's decisions. The crate knows no proxy, no clock and no randomness of its own: a host provides them.
//!
//! The modules, in dependency order:
//!
//! | module | task |
//! |---|---|
//! | [`clock`], [`backoff`] | times, and waits between retries |
//! | [`shared_store`], [`stream`] | data that the workers of a process share, and a stream to the control plane |
//! | [`usage_sketch`] | how much of a limited resource each principal, holder or connection uses |
//! | [`request`], [`route`], [`arguments`] | the request, the rule that it matches, and the tool's arguments in it |
//! | [`revocation`] | the revocations, and how fresh they are |
//! | [`decision`], [`answer`] | the outcome, and the answer to the client |
//! | [`agent`], [`identity_headers`], [`grant`] | the proven agent, the identity for the service, the grant of a request |
//! | [`held`] | requests that are held for their bodies or for the first snapshot, and how many may be |
//! | [`proofs`], [`chains`] | used proofs, and known chains |
//! | [`mcp`] | what a request to an MCP server calls, and its answer |
//! | [`credential`], [`oauth`] | what a request presents, and what an OAuth client learns |
//! | [`config`] | the plugin configuration, parsed into a policy that cannot be wrong |
//! | [`engine`], [`changes`] | the decision, and what it changes about the request |
//! | [`agents`] | what a request needs, as its agent finds out |
//! | [`exchanges`] | allowed requests to MCP servers that are not over |
//! | [`audit`] | the evidence of decisions, and its way to the ledger |
//! | [`metrics`] | metrics |

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
pub mod agents;
pub mod answer;
pub mod arguments;
pub mod audit;
pub mod backoff;
pub mod chains;
pub mod changes;
pub mod clock;
pub mod config;
pub mod credential;
pub mod decision;
pub mod engine;
pub mod exchanges;
pub mod grant;
pub mod held;
pub mod identity_headers;
pub mod mcp;
mod members;
pub mod metrics;
pub mod oauth;
pub mod proofs;
pub mod request;
pub mod revocation;
pub mod route;
pub mod shared_store;
pub mod stream;
pub mod usage_sketch;

#[cfg(test)]
mod samples;
