//! The revocations, and how fresh this VM's view of them is.
//!
//! | file | task |
//! |---|---|
//! | `watch` | the stream to the control plane: snapshot, updates, pings, and when to restart |
//! | `local_view` | the state of every revoked subject, as received from the stream |
//! | `subject_hash` | the hashes that stand for subjects in the view |
//! | `subject_table` | the table of up to millions of subjects, which grows without pauses |
//! | `forgetting` | when a revoked delegation can be forgotten |
//! | `lease` | whether the view is fresh enough for decisions |
//! | `seal_keys` | the keys for the shared cache and for MCP sessions, which come over the same stream |

mod forgetting;
pub mod lease;
pub mod local_view;
pub mod seal_keys;
mod subject_hash;
mod subject_table;
pub mod watch;

pub use lease::Freshness;
pub use local_view::View;
pub use seal_keys::{SealKeys, SealedWith};
pub use watch::{Action, Counters, Watch};
