//! Real services behind the real filter, as oracles: what a service says that it received must be what the filter decided
//! on.
//!
//! The services are in interop/oracles: each answers with the handler that ran and with what an application reads there, as
//! JSON. [`generator`] makes requests from ordinary ones and known tricks, [`judge`] compares what the service read with
//! what was allowed, and [`run`] sends them, looks for the shortest form of each disagreement, and reports.
//!
//! The judge does not repeat what the filter does: it applies the policy of [`policy`] to what the service read. A service
//! that ran a protected handler without a delegation, or read another argument than the filter recorded, was reached by a
//! request that the filter read in another way.

pub mod generator;
pub mod judge;
pub mod policy;
mod random;
pub mod reading;
pub mod run;
pub mod services;
