//! The boundary to Envoy: the proxy-wasm SDK, and what it lacks.
//!
//! | file | its one job |
//! |---|---|
//! | `contexts` | the SDK's contexts: what Envoy calls |
//! | `dispatch` | the plugin of this VM, and whose turn it is when Envoy calls |
//! | `calls` | Envoy as the plugin's host |
//! | `format` | the byte formats that cross the boundary |
//! | `raw` | host functions that the SDK lacks, or offers only in a form that copies or panics; the only `unsafe` code |

#[cfg(target_arch = "wasm32")]
mod calls;
#[cfg(target_arch = "wasm32")]
mod contexts;
#[cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "its callers are built for Wasm only")
)]
mod dispatch;
#[cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "its callers are built for Wasm only")
)]
mod format;
#[cfg(target_arch = "wasm32")]
mod raw;
