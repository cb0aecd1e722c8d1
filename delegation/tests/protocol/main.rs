//! The protocol, step by step.

mod access_tokens;
mod chains;
mod common;
mod dpop;
mod forgeries;
mod holding;
mod invocations;
mod keys;
mod minting;
mod prefixes;
mod revocation;
mod statements;
mod vouching;
