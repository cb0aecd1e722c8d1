//! Credence's Envoy filter: the shell between Envoy and `credence_decision`.
//!
//! | module | its one job |
//! |---|---|
//! | `host` | what the plugin needs of its host, and what its host tells it |
//! | `plugin` | what a callback of the host leads to |
//! | `envoy` | the boundary to Envoy |

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

#[cfg(any(target_arch = "wasm32", test))]
mod envoy;
#[cfg(any(target_arch = "wasm32", test))]
mod host;
#[cfg(any(target_arch = "wasm32", test))]
mod plugin;
