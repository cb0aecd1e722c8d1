//! Where in a segment what is asked for can be found.
//!
//! For every value that can be asked for there is a row: a keyed hash of the value and the record's place in its segment.
//! Rows are collected while the segment grows ([`IndexBuilder`]) and written sorted and packed when it is full
//! ([`IndexFile`]). What is found may be something else with the same hash, and has to be opened and compared; what is
//! there is always found. Without the secret the file does not tell whom it is about.

mod builder;
mod file;
mod key;
mod segment_index;

pub use self::builder::IndexBuilder;
pub use self::file::IndexFile;
pub use self::key::{IndexKey, IndexSecret, MAX_PLACES, RUN_PLACES};
pub use self::segment_index::SegmentIndex;
