//! Metrics, kept in the VM and reported to the host at ticks. docs/reference/metrics.md lists them.
//!
//! | file | task |
//! |---|---|
//! | `registry` | every metric of one VM, and its reporting to the host |
//! | `decisions` | metrics of decisions |
//! | `gauges` | metrics of caches, ring and streams, at each tick |

mod decisions;
mod gauges;
mod registry;

pub use decisions::DecisionFigures;
pub use gauges::{Gauges, Observed, WatchGauges};
pub use registry::*;
