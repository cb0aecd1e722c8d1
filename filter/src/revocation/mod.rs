//! What has been revoked, and how sure this VM may be that it knows.
//!
//! | file | its one job |
//! |---|---|
//! | `watch` | the stream to the control plane: snapshot, updates, pings, and when to start over |
//! | `view` | the state of every revoked subject, as far as the stream has told it |
//! | `lease` | whether the view is recent enough to decide upon |
//! | `notice` | what an operator should know about the stream, in words |

pub mod lease;
pub mod notice;
pub mod view;
pub mod watch;

pub use lease::Freshness;
pub use notice::{Notice, Violation};
pub use view::{InvalidRecord, View, ViewError};
pub use watch::{Action, Counters, DEFAULT_MAX_SUBJECTS, Settings, Watch};
