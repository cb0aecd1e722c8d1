//! Requests that are held.
//!
//! | file | its one job |
//! |---|---|
//! | `places` | how many may be held, and for whom |
//! | `requests` | those that are held, and what becomes of each further piece of a request |

pub mod places;
mod requests;

pub use requests::{Awaited, HeldRequest, HeldRequests, Piece};
