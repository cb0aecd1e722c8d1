//! The index: finds records in a segment by value.
//!
//! Each indexed value of a record has a row: a keyed hash of the value and the record's place in its segment. Rows are
//! collected while the segment grows ([`IndexBuilder`]), and written sorted and packed when it is full ([`IndexFile`]).
//! A lookup finds every matching record, and may find others with the same hash. So each hit must be opened and
//! compared. Without the secret, the file does not reveal any names.

mod builder;
mod file;
mod key;
mod segment_index;

pub use self::builder::IndexBuilder;
pub use self::file::IndexFile;
pub use self::key::{IndexKey, IndexSecret, MAX_PLACES, RUN_PLACES};
pub use self::segment_index::SegmentIndex;
