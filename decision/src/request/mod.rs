//! What a request says, read so that no service can read it differently.
//!
//! | file | its one job |
//! |---|---|
//! | `headers` | a request's headers, and which of them only this filter may set |
//! | `target`, `query` | host and path, and the query |
//! | `names` | names that the configuration asks about, in any spelling |
//! | `trailers` | what a request may not say in its trailers |

mod headers;
pub(crate) mod names;
pub mod query;
pub mod target;
mod trailers;

pub use headers::*;
pub use trailers::RemovedTrailers;

#[cfg(test)]
pub(crate) use headers::tests;
