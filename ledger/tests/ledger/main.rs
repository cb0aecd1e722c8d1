//! The ledger as its owner and its readers see it: what is kept, erased, pruned, and what survives a crash.

mod crash;
mod erasure;
mod killed;
mod pruning;
mod shares;
mod sources;
mod support;
mod verify;
