//! The ledger through its public interface: what it keeps, erases and prunes, and what survives a crash.

mod crash;
mod erasure;
mod killed;
mod pruning;
mod shares;
mod sources;
mod support;
mod verify;
