//! The index of a segment, in memory or on disk.

use super::builder::IndexBuilder;
use super::file::IndexFile;
use super::key::{IndexKey, RUN_PLACES};
use crate::disk_error::DiskError;

/// The index of a segment.
#[derive(Debug)]
pub enum SegmentIndex {
    /// In memory, until the segment is full and its index file is written.
    Growing(IndexBuilder),
    /// On disk.
    File(IndexFile),
}

// === impl SegmentIndex ===

impl SegmentIndex {
    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Result<Vec<u32>, DiskError> {
        match self {
            Self::Growing(builder) => Ok(builder.lookup(key)),
            Self::File(file) => file.lookup(key),
        }
    }

    /// The earliest and the latest time in the segment; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        match self {
            Self::Growing(builder) => builder.times(),
            Self::File(file) => file.times(),
        }
    }

    /// As `times`, for each run of [`RUN_PLACES`] places.
    pub fn run_times(&self) -> Result<Vec<(u64, u64)>, DiskError> {
        match self {
            Self::Growing(builder) => Ok(builder.run_times().to_vec()),
            Self::File(file) => file.run_times(),
        }
    }

    /// The offset of each leaf of a run in the segment's file.
    pub fn offsets(&self, run: u32) -> Result<Vec<u32>, DiskError> {
        match self {
            Self::Growing(builder) => {
                let offsets = builder.offsets().chunks(RUN_PLACES as usize).nth(run as usize);
                Ok(offsets.unwrap_or_default().to_vec())
            }
            Self::File(file) => file.offsets(run),
        }
    }

    /// Size of its file.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Growing(_) => 0,
            Self::File(file) => file.bytes(),
        }
    }

    /// Whether the segment should end here.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Growing(builder) => builder.is_full(),
            Self::File(_) => true,
        }
    }
}
