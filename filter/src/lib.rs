//! Credence's Envoy filter: the shell between Envoy and `credence_decision`.
//!
//! | module | its one job |
//! |---|---|
//! | `host` | what the plugin needs of its host, and what its host tells it |
//! | `plugin` | what a callback of the host leads to |
//! | `dispatch` | the plugin of this VM, and whose turn it is when Envoy calls |
//! | `grpc_service` | what Envoy is told to open a gRPC stream by |
//! | `envoy` | the boundary to Envoy: the proxy-wasm SDK, and what it lacks |

// On this machine there is nothing to serve but the tests.
#![cfg(any(target_arch = "wasm32", test))]
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

mod dispatch;
#[cfg(target_arch = "wasm32")]
mod envoy;
mod grpc_service;
mod host;
mod plugin;
