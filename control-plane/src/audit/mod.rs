//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! The ledger itself is the crate `credence_ledger`. Here [`writer`] is the one thread that appends to it and knows every
//! source's last sequence number, [`ticket`] and [`sources`] say who the sources are, [`server`] and [`service`] are the
//! gRPC stream, [`ingest`] its bounds, [`seen`] what principals' agents were seen to use, and
//! [`reverification`] whether what filters allowed is what the delegations say.

pub(crate) mod ingest;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "nothing follows the ledger until it can be read from an index on")
)]
pub(crate) mod reverification;
pub(crate) mod seen;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod sources;
pub(crate) mod ticket;
pub(crate) mod writer;
