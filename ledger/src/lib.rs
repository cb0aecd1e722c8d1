//! Credence's ledger: the evidence of every decision.
//!
//! | file | its one job |
//! |---|---|
//! | `record` | what the ledger holds |
//! | `fields` | what a record says, field by field, under the names of the API, the exports and OpenTelemetry |
//! | `group` | how a group of records is written |
//! | `segment`, `reader` | reading what is durable |
//! | `recovery` | opening the files, after a crash too |
//! | `keys`, `seal` | the principals' keys, and leaves that are sealed with them |
//! | `hashes` | the tree's hashes on disk |
//! | `chains`, `sources` | what the one who appends knows of chains and sources |
//! | `principal_quota` | how much is held of each principal, and what of it is only counted |
//! | `finisher`, `rows` | writing the index |
//! | `leaf` | what is sealed in a leaf, and the record that it is read back as |
//! | `index` | where in a segment what is asked for can be found |
//! | `ledger` | appending, erasing and pruning |
//! | `query` | what to look for, newest first |
//! | `view` | an encoded entry, read where it lies |
//! | `note` | signed notes and the keys of those who sign them |
//! | `checkpoint` | what commits the log to its first leaves |
//! | `cosignature` | a witness's word for a checkpoint |
//! | `tlog_proof` | a proof in a file |
//! | `tiles` | where tiles and bundles are found |
//! | `identity` | the log's origin and key, and its latest checkpoint |
//! | `recorded` | the chains in a folder, to verify their signatures again |
//! | `verify` | checking the files, byte for byte |
//! | `accounts` | whether what is gone from them is accounted for |
//! | `published` | what others may see of the ledger |
//! | `tree` | the Merkle tree over the leaves |
//! | `proof` | that a leaf is in the tree, and that the tree only grew |

mod accounts;
mod chains;
pub mod checkpoint;
pub mod cosignature;
pub mod fields;
mod finisher;
mod group;
mod hashes;
pub mod identity;
pub mod index;
mod keys;
pub mod leaf;
pub mod ledger;
pub mod note;
mod principal_quota;
pub mod proof;
pub mod published;
pub mod query;
pub mod reader;
pub mod record;
pub mod recorded;
mod recovery;
mod reserve;
mod rows;
mod seal;
pub mod segment;
pub mod sources;
pub mod tiles;
pub mod tlog_proof;
pub mod tree;
pub mod verify;
pub mod view;

pub use leaf::SourceName;
pub use ledger::{
    Erased, Ledger, LedgerAppendError, LedgerBounds, LedgerError, LedgerOptions, NewItem, Opened, Pruned, Retention,
};
pub use query::{Evidence, Filter, Page, Query, RecordKind, Searchable};
pub use reader::{LedgerReader, ReadError};
pub use record::{LedgerRecord, Note, RecordBody, SourceChange, StoredNote, StoredSourceChange};
pub use reserve::Room;
