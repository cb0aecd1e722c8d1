//! Requests that are held.
//!
//! | file | its one job |
//! |---|---|
//! | `awaiting_body` | requests that wait for their bodies |
//! | `awaiting_snapshot` | requests that wait for a new VM's first snapshot of the revocations |
//! | `places` | how many may be held, and for whom |

pub mod awaiting_body;
pub mod awaiting_snapshot;
pub mod places;

pub use awaiting_body::{AwaitingBody, Piece};
pub use awaiting_snapshot::AwaitingSnapshot;
pub use places::{Claim, NoPlace, Place, PlaceLimits, Places};
