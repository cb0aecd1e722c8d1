//! Figures: kept in the VM, and handed to the host at its ticks. docs/metrics.md lists them.

mod registry;

pub use registry::*;
