//! The control plane's own look at what filters say: every chain that they allowed something under is verified again,
//! under our own trust anchors, and every allow is compared with its chain.
//!
//! It follows the ledger, behind the acknowledgements: [`checker`] walks over the records that are durable, from where
//! it stopped ([`cursors`](crate::cursors)), and nothing is left out however far it falls behind. It takes a block of
//! records at a time, so that the chains in it make true batches. [`recorded`] has the records: those that the writer has
//! just handed over, and the files for all others. [`verdicts`] remembers what came of each chain, and [`comparison`]
//! says how an event and its chain differ. [`thread`] is what runs it. docs/internals/ledger.md ("Verified again") has the rules.

pub(crate) mod checker;
pub(crate) mod comparison;
pub(crate) mod recorded;
pub(crate) mod thread;
pub(crate) mod verdicts;

pub(crate) use self::thread::Reverification;
