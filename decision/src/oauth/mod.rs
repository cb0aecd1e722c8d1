//! What an OAuth client learns from the filter.
//!
//! | file | task |
//! |---|---|
//! | `challenge` | what a denied client needs (RFC 6750, RFC 9449) |
//! | `resource`, `resource_url` | where to get it (RFC 9728) |

mod challenge;
mod resource;
mod resource_url;

pub use challenge::{Challenge, Needed};
pub use resource::{Binding, Resource, ToolOfResource};
pub use resource_url::ResourceUrl;
