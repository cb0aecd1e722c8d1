//! The ledger's records as OpenTelemetry log records, sent to a collector.
//!
//! | file | its one job |
//! |---|---|
//! | `follower` | goes through the ledger in order and remembers, durably, how far it came |
//! | `mapping` | what a record says in OpenTelemetry's words |
//! | `sender` | one request, and what the answer means (OTLP 1.x, "Failures") |
//!
//! The ledger knows nothing of it: a slow, dead or wrong collector delays no request and loses nothing that retention
//! does not take away first. docs/reference/evidence.md has the table of attributes.

mod follower;
mod mapping;
mod metrics;
mod sender;

pub(crate) use self::follower::Follower;
pub use self::metrics::Metrics as OtlpMetrics;
pub(crate) use self::sender::Sender;
