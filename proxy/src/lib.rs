//! Credence's proxy for agents. It runs beside an agent, holds its keys and delegations, and proves each of its requests to
//! the services that it may call. The agent itself has nothing to lose.
//!
//! | module | its one job |
//! |---|---|
//! | `settings` | the configuration file |
//! | `clock` | the wall clock |
//! | `signer` | the keys that sign |
//! | `rules` | the rules that services publish |
//! | `outbound` | connections to services and issuers |
//! | `issuer`, `consent` | the issuer, and the person who grants |
//! | `peer` | which user's program has the other end of a connection |
//! | `upstream` | a service: its connections, its rules, its latest nonce |
//! | `credential`, `kept` | a delegation or access token that is held, also across restarts |
//! | `derived` | the narrower delegations of clients |
//! | `clients` | who may use the proxy, and for what |
//! | `refusal` | the proxy's own answers |
//! | `request` | a client's request, checked and cleaned |
//! | `rpc_error` | JSON-RPC errors with the ids of their requests |
//! | `exchange` | one request: from the client to the service, with its proof |
//! | `stream`, `activity` | an answer, for a limited time; whether a connection is used |
//! | `front` | listens for clients |
//! | `stdio`, `mcp_message`, `sse` | MCP over standard input and output |
//! | `metrics`, `proxy` | metrics; start and stop |

#![allow(
    missing_docs,
    reason = "internal to the proxy: a name that explains itself needs no comment"
)]

mod activity;
mod clients;
mod clock;
mod consent;
mod credential;
mod derived;
mod exchange;
mod front;
mod issuer;
mod kept;
mod mcp_message;
mod metrics;
mod outbound;
mod peer;
mod proxy;
mod refusal;
mod request;
mod rpc_error;
mod rules;
mod settings;
mod signer;
mod sse;
mod stdio;
mod stream;
mod upstream;

pub use proxy::{Proxy, StartError, serve_stdio};
pub use settings::{Settings, settings_schema};
pub use signer::encrypt;
