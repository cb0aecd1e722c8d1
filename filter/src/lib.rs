//! Credence's Envoy filter: the shell between Envoy and `credence_decision`.
//!
//! | module | task |
//! |---|---|
//! | `host` | what the plugin needs from its host, and the events that the host reports |
//! | `plugin` | handles the host's callbacks |
//! | `contexts` | the requests of this VM |
//! | `dispatch` | the plugin of this VM, and the order of Envoy's calls |
//! | `grpc_service` | how Envoy opens a gRPC stream |
//! | `envoy` | the boundary to Envoy |

// Outside of Wasm, only the tests use this code.
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

mod contexts;
mod dispatch;
#[cfg(target_arch = "wasm32")]
mod envoy;
mod grpc_service;
mod host;
mod plugin;
