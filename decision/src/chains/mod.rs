//! Caches of chains.
//!
//! | file | task |
//! |---|---|
//! | `cache` | chains that this worker has verified |
//! | `shared` | chains that any worker of the process has verified |
//! | `refused` | chains that this worker has refused |

pub mod cache;
pub mod refused;
pub mod shared;

pub use cache::{CacheKey, CachedChain, ChainCache, Reported};
pub use refused::RefusedChains;
pub use shared::{SealContext, SharedChains};
