//! The boundary to Envoy: the proxy-wasm SDK, and its missing parts.
//!
//! | file | task |
//! |---|---|
//! | `contexts` | the SDK's contexts, which Envoy calls |
//! | `calls` | Envoy as the plugin's host |
//! | `raw` | host functions that the SDK lacks, or offers only in a form that copies or panics; the only `unsafe` code |

mod calls;
mod contexts;
mod raw;
