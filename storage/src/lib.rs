//! What the revocation log and the ledger are kept in: files that are on disk when a function returns ([`durable`]),
//! small ones with a checksum ([`small_file`]), and append-only files of checksummed frames ([`frames`]).

pub mod durable;
pub mod frames;
pub mod small_file;
