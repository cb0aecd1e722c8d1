//! Verifies again what filters allowed: every chain under the control plane's own trust anchors, and every allow
//! against its chain.
//!
//! It follows the ledger after the acknowledgements. [`checker`] goes through the durable records from its saved
//! position ([`cursors`](crate::cursors)), and skips nothing, however large the backlog. It takes a block of records at
//! a time, so that the chains in it make large batches. [`recorded`] reads the records: those that the writer has just
//! handed over, and the files for all others. [`verdicts`] remembers the result for each chain. [`comparison`] compares
//! an event with its chain. [`thread`] runs everything. docs/internals/ledger.md ("Verified again") has the rules.

pub(crate) mod checker;
pub(crate) mod comparison;
pub(crate) mod recorded;
pub(crate) mod thread;
pub(crate) mod verdicts;

pub use self::thread::CurrentAnchors;
pub(crate) use self::thread::Reverification;
