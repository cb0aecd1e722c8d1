//! The ledger's records as OpenTelemetry log records, sent to a collector.
//!
//! | file | its one job |
//! |---|---|
//! | `follower` | follows the ledger in order, and stores its progress durably |
//! | `mapping` | maps a record to OpenTelemetry's model |
//! | `sender` | sends one request, and interprets the answer (OTLP 1.x, "Failures") |
//!
//! The ledger does not depend on it: a slow, dead or wrong collector delays no request, and loses only records that
//! retention removes first. docs/reference/evidence.md has the table of attributes.

mod follower;
mod mapping;
mod metrics;
mod sender;

pub(crate) use self::follower::Follower;
pub use self::metrics::Metrics as OtlpMetrics;
pub(crate) use self::sender::Sender;
