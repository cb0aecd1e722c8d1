//! The protocol, step by step.

mod chains;
mod common;
mod forgeries;
mod invocations;
mod keys;
mod minting;
mod prefixes;
mod revocation;
mod statements;
mod vouching;
