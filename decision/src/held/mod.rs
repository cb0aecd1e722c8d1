//! Requests that are held.
//!
//! | file | its one job |
//! |---|---|
//! | `awaiting_body` | requests that wait for their bodies |
//! | `awaiting_snapshot` | requests that wait for a new VM's first snapshot of the revocations |
//! | `places` | how many may be held, and for whom |
//! | `requests` | all of these together: what becomes of each further piece of a request |

pub mod awaiting_body;
pub mod awaiting_snapshot;
pub mod places;
mod requests;

pub use places::PlaceLimits;
pub use requests::{AwaitsBody, AwaitsSnapshot, HeldRequests, Piece};
