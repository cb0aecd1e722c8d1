//! The boundary to Envoy: the proxy-wasm ABI.
//!
//! | file | task |
//! |---|---|
//! | `callbacks` | what Envoy calls |
//! | `calls` | Envoy as the plugin's host |
//! | `raw` | the host's functions; the only `unsafe` calls |

mod callbacks;
mod calls;
mod raw;
