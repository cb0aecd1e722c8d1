//! The boundary to Envoy: proxy-wasm ABI 0.2.1, spoken directly.
//!
//! | file | its one job |
//! |---|---|
//! | `abi` | the imported functions, and the memory the host writes into; the only `unsafe` code |
//! | `calls` | the same functions as the plugin's host |
//! | `exports` | the functions Envoy calls |
//! | `dispatch` | whose turn it is when Envoy calls, even from within a call to Envoy |
//! | `format` | the byte formats that cross the boundary |

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(target_arch = "wasm32")]
mod calls;
mod dispatch;
#[cfg(target_arch = "wasm32")]
mod exports;
mod format;
