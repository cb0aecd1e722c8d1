//! Figures: kept in the VM, and handed to the host at its ticks. docs/reference/metrics.md lists them.
//!
//! | file | its one job |
//! |---|---|
//! | `registry` | every metric of one VM, and its way to the host |
//! | `decisions` | what is counted and measured of each decision |
//! | `gauges` | what a tick reports of caches, ring and streams |

mod decisions;
mod gauges;
mod registry;

pub use decisions::DecisionFigures;
pub use gauges::{Gauges, Observed};
pub use registry::*;
