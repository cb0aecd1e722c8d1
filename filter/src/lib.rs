//! Credence's Envoy filter: the shell between Envoy and `credence_decision`.
//!
//! | module | its one job |
//! |---|---|
//! | `host` | the boundary to Envoy |
//! | `plugin` | what a callback of Envoy leads to |

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
mod host;
#[cfg(target_arch = "wasm32")]
mod plugin;
