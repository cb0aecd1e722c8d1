//! What has been revoked, and how sure this VM may be that it knows.
//!
//! | file | its one job |
//! |---|---|
//! | `watch` | the stream to the control plane: snapshot, updates, pings, and when to start over |
//! | `local_view` | the state of every revoked subject, as far as the stream has told it |
//! | `subject_hash` | what subjects are called in it |
//! | `subject_table` | where they are kept, up to millions of them, without a pause |
//! | `forgetting` | when a revoked delegation has lost its meaning |
//! | `lease` | whether the view is recent enough to decide upon |
//! | `cache_keys` | the keys that come over the same stream, for what the filters of a node remember for each other |

pub mod cache_keys;
mod forgetting;
pub mod lease;
pub mod local_view;
mod subject_hash;
mod subject_table;
pub mod watch;

pub use cache_keys::{CacheKeys, SealedWith};
pub use lease::Freshness;
pub use local_view::View;
pub use watch::{Action, Counters, Watch};
