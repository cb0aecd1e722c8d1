//! What has been revoked, and how sure this VM may be that it knows.
//!
//! | file | its one job |
//! |---|---|
//! | `watch` | the stream to the control plane: snapshot, updates, pings, and when to start over |
//! | `view` | the state of every revoked subject, as far as the stream has told it |
//! | `lease` | whether the view is recent enough to decide upon |
//! | `cache_keys` | the keys that come over the same stream, for what the filters of a node remember for each other |
//! | `notice` | what an operator should know about the stream, in words |

pub mod cache_keys;
pub mod lease;
pub mod notice;
pub mod view;
pub mod watch;

pub use cache_keys::{CacheKeys, SealedWith};
pub use lease::Freshness;
pub use notice::{Notice, Violation};
pub use view::{InvalidRecord, View, ViewError};
pub use watch::{Action, Counters, DEFAULT_MAX_SUBJECTS, Settings, Watch};
