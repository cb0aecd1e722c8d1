//! Held requests.
//!
//! | file | task |
//! |---|---|
//! | `places` | how many may be held, and for which users |
//! | `requests` | the held requests, and the handling of their further pieces |

pub mod places;
mod requests;

pub use requests::{Awaited, Client, HeldRequest, HeldRequests, Piece};
