//! Real services behind the real filter, as oracles: the request that a service received must be the request that the
//! filter decided on.
//!
//! The services are in interop/oracles. Each answers, as JSON, with the handler that ran and the values that an
//! application reads. [`generator`] makes requests from ordinary ones and known tricks. [`judge`] compares what the
//! service read with what the filter allowed. [`run`] sends the requests, finds the shortest form of each disagreement,
//! and reports.
//!
//! The judge does not repeat the filter's work: it applies the policy of [`policy`] to what the service read. If a
//! service ran a protected handler without a delegation, or read another argument than the filter recorded, the filter
//! read that request differently.

pub mod generator;
pub mod judge;
pub mod policy;
pub mod reading;
pub mod run;
pub mod services;
