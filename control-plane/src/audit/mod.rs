//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The ledger itself is the crate `credence_ledger`. Here [`writer`] is the one thread that appends to it and knows every
//! source's last sequence number, [`ticket`] and [`sources`] say who the sources are, [`server`] and [`service`] are the
//! gRPC stream, [`intake`] is the same for HTTP, [`ingest`] and [`budget`] their bounds, [`seen`] what principals' agents were seen to use.

pub(crate) mod budget;
pub(crate) mod ingest;
pub(crate) mod intake;
pub(crate) mod seen;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod sources;
pub(crate) mod ticket;
pub(crate) mod writer;
