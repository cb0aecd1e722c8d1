//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The ledger itself is the crate `credence_ledger`. Here [`writer`] is the one thread that appends to it and knows every
//! source's last sequence number, [`ticket`] and [`sources`] say who the sources are, [`server`] and [`service`] are the
//! gRPC stream, [`intake`] is the same for HTTP, [`ingest`] and [`budget`] are their bounds, [`seen`] is what principals'
//! agents were seen to use. [`publisher`] signs checkpoints, and [`witness`] has others cosign them. [`reverification`] says
//! whether what filters allowed is what the delegations say; [`handover`] is how it learns of what was written.

pub(crate) mod budget;
pub(crate) mod handover;
pub(crate) mod ingest;
pub(crate) mod intake;
#[cfg(test)]
pub(crate) mod memory_tree;
pub(crate) mod publisher;
pub(crate) mod reverification;
pub(crate) mod seen;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod sources;
pub(crate) mod ticket;
pub(crate) mod witness;
pub(crate) mod writer;
