//! Finds the rule a request falls under.
//!
//! | file | its one job |
//! |---|---|
//! | `host`, `template` | hosts and paths as rules write them |
//! | `condition` | what a rule asks of headers and query |
//! | `pattern` | all that a rule asks of a request |
//! | `reading` | answers that hold for every reading of a request, or do not |
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
