//! The protocol, step by step.

mod chains;
mod common;
mod invocations;
mod minting;
mod prefixes;
mod revocation;
