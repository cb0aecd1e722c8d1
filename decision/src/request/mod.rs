//! Reads a request in a way that no service can read differently.
//!
//! | file | task |
//! |---|---|
//! | `headers` | a request's headers, and which of them only this filter may set |
//! | `target`, `query` | host and path, and the query |
//! | `names` | names in the configuration, found in any spelling |
//! | `trailers` | trailers to remove from a request |

mod headers;
pub(crate) mod names;
pub mod query;
pub mod target;
mod trailers;

pub use headers::*;
pub use trailers::RemovedTrailers;

#[cfg(test)]
pub(crate) use headers::tests;
