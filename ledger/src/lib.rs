//! Credence's ledger: the evidence of every decision.
//!
//! | file | its one job |
//! |---|---|
//! | `record` | what the ledger holds |
//! | `group` | how records are encoded on disk |
//! | `leaf` | what is sealed in a leaf, and the record that it is read back as |
//! | `ledger` | the files: appending to them, and reading what is durable |
//! | `query` | what to look for, newest first |
//! | `view` | an encoded entry, read where it lies |
//! | `note` | signed notes and the keys of those who sign them |
//! | `checkpoint` | what commits the log to its first leaves |
//! | `cosignature` | a witness's word for a checkpoint |
//! | `tree` | the Merkle tree over the leaves |
//! | `proof` | that a leaf is in the tree, and that the tree only grew |

pub mod checkpoint;
pub mod cosignature;
pub mod group;
pub mod leaf;
pub mod ledger;
pub mod note;
pub mod proof;
pub mod query;
pub mod record;
pub mod tree;
pub mod view;

pub use ledger::{Ledger, LedgerAppendError, LedgerBounds, LedgerError, LedgerReader};
pub use query::{Filter, Page, Query};
pub use record::{LedgerRecord, Note, RecordBody, SourceChange, StoredNote, StoredSourceChange};
