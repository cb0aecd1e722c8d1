//! Finds the rule that a request matches.
//!
//! | file | task |
//! |---|---|
//! | `host`, `template` | host patterns and path templates of rules |
//! | `condition` | conditions on headers and query |
//! | `pattern` | all conditions of a rule |
//! | `reading` | answers that may differ between readings of a request |
//! | `index` | the look-up |
//! | `routes` | the rules in their order |

mod condition;
mod host;
mod index;
mod pattern;
mod reading;
mod routes;
mod template;

pub use condition::{Condition, HeaderTest, MAX_CONDITIONS, QueryTest};
pub use host::{HostPattern, HostPatternError, MAX_HOST_BYTES};
pub use index::Unusable;
pub use index::{MAX_ALIKE, MAX_NODES};
pub use pattern::{Pattern, Unclear};
pub use routes::{RouteMatch, Routes};
pub use template::{Captures, MAX_CAPTURES, MAX_SEGMENTS, MAX_TEMPLATE_BYTES, PathTemplate, TemplateError};
