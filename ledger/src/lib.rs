//! Credence's ledger: the evidence of every decision.
//!
//! | file | its one job |
//! |---|---|
//! | `record` | what the ledger holds |
//! | `group` | how records are encoded on disk |
//! | `index` | where in a segment what is asked for can be found |
//! | `ledger` | the files: appending to them, and reading what is durable |
//! | `query` | what to look for, newest first |

pub mod group;
pub mod index;
pub mod ledger;
pub mod query;
pub mod record;

pub use ledger::{Ledger, LedgerAppendError, LedgerBounds, LedgerError, LedgerReader, ReadError};
pub use query::{Evidence, Filter, Page, Query, RecordKind, Searchable};
pub use record::{LedgerRecord, Note, RecordBody, SourceChange, StoredNote, StoredSourceChange};
