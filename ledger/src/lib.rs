//! Credence's ledger: the evidence of every decision.
//!
//! | file | contents |
//! |---|---|
//! | `record` | the records of the ledger |
//! | `fields` | a record's fields, under the names of the API, the exports and OpenTelemetry |
//! | `entry` | an encoded entry, read in place |
//! | `leaf`, `seal`, `keys` | a leaf's plaintext, its encryption, and the principals' keys |
//! | `disk_error`, `ledger_error` | why a file of the ledger cannot be used, and why something was not recorded |
//! | `frames`, `group`, `segment` | how records are written, and their files |
//! | `tree`, `hashes` | the Merkle tree over the leaves, and its hashes on disk |
//! | `index`, `index_rows`, `indexer` | finds records in a segment by value |
//! | `known_chains`, `sources` | the chains and sources that the writer remembers |
//! | `options`, `reserve`, `principal_quota` | limits, in total and for each principal |
//! | `ledger` | appending, erasing and pruning |
//! | `recovery` | opening the files, after a crash too |
//! | `reader`, `query` | reading records, and finding them, newest first |
//! | `proof` | proofs that a leaf is in the tree, and that the tree only grew |
//! | `note`, `checkpoint`, `cosignature`, `tlog_proof`, `tiles` | the formats of C2SP |
//! | `log_identity` | the log's origin and key, and its latest checkpoint |
//! | `continuation` | checks that a tree continues the last published one |
//! | `verify`, `losses`, `stored_chains` | checking a folder: its files, what is missing, and the chains in it |

pub mod checkpoint;
pub mod continuation;
pub mod cosignature;
mod disk_error;
pub mod entry;
pub mod fields;
mod frames;
mod group;
mod hashes;
pub mod index;
mod index_rows;
mod indexer;
mod keys;
mod known_chains;
pub mod leaf;
mod ledger;
mod ledger_error;
pub mod log_identity;
mod losses;
pub mod note;
mod options;
mod principal_quota;
pub mod proof;
pub mod query;
pub mod reader;
pub mod record;
mod recovery;
mod reserve;
mod seal;
pub mod segment;
pub mod sources;
pub mod stored_chains;
pub mod tiles;
pub mod tlog_proof;
pub mod tree;
pub mod verify;

pub use disk_error::DiskError;
pub use frames::{AppendError, MAX_PAYLOAD, TornTail};
pub use leaf::SourceName;
pub use ledger::{Erased, Ledger, NewItem, Opened, Pruned};
pub use ledger_error::LedgerError;
pub use options::{LedgerBounds, LedgerOptions, MAX_SEGMENT_BYTES, Retention};
pub use query::{Filter, Page, Query};
pub use reader::{LedgerReader, ReadError};
pub use record::{
    LedgerRecord, Note, RecordBody, RecordKind, SourceChange, StoredEntry, StoredNote, StoredSourceChange,
};
pub use reserve::Room;
