//! Evidence: how it arrives, where it is kept, how it is read back.
//!
//! [`record`] is what the ledger holds, [`ledger`] the files, [`writer`] the one thread that appends to them and knows
//! every source's last sequence number, [`ticket`] and [`sources`] who the sources are, [`server`] and [`service`] the
//! gRPC stream, [`ingest`] its bounds,
//! [`query`] the reading.

pub(crate) mod ingest;
pub(crate) mod ledger;
pub(crate) mod query;
pub(crate) mod record;
pub(crate) mod seen;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod sources;
pub(crate) mod ticket;
pub(crate) mod writer;
