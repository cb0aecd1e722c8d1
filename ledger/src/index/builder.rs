//! The index of a segment that is still growing.

use std::path::Path;

use super::file::IndexFile;
use super::format::{self, PlaceRun, RUN_PLACES};
use super::key::{HASH_BITS, KeyHasher, PLACE_BITS};
use super::{IndexError, IndexKey, IndexSecret};

/// Collects the rows of one segment, in memory: 8 bytes a row and 4 a record. Can be asked at any time.
#[derive(Debug)]
pub struct IndexBuilder {
    hasher: KeyHasher,
    /// Index of the segment's first record.
    first: u64,
    /// Rows by the top byte of their hash, each in the order of places. To sort a shelf when the segment is full costs less
    /// than to keep all rows sorted, and to look through one of them is quick.
    shelves: Vec<Vec<u64>>,
    rows: usize,
    offsets: Vec<u32>,
    /// Of each run of places, the earliest and the latest time.
    times: Vec<(u64, u64)>,
}

// === impl IndexBuilder ===

impl IndexBuilder {
    /// Begins the index of the segment whose first record has index `first`.
    pub fn new(secret: &IndexSecret, first: u64) -> Self {
        Self {
            hasher: KeyHasher::new(secret),
            first,
            shelves: vec![Vec::new(); SHELVES],
            rows: 0,
            offsets: Vec::new(),
            times: Vec::new(),
        }
    }

    /// As [`new`](Self::new), with room for as much as another segment came to: rows that have to move when there is no more
    /// room for them cost time, and leave holes in memory.
    pub(crate) fn with_room_of(mut self, other: &Self) -> Self {
        for (shelf, other) in self.shelves.iter_mut().zip(&other.shelves) {
            shelf.reserve_exact(other.len() + other.len() / 16);
        }
        self.offsets
            .reserve_exact(other.offsets.len() + other.offsets.len() / 16);
        self.times.reserve_exact(other.times.len() + other.times.len() / 16);
        self
    }

    /// Index of the segment's first record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Adds a record: its place (they count from 0 without a gap), where its leaf begins in the segment's file, the
    /// earliest and the latest instant that it is about (nanoseconds since the Unix epoch), and what it can be found by.
    pub fn add(&mut self, place: u32, offset: u32, span: (u64, u64), keys: &[IndexKey<'_>]) -> Result<(), IndexError> {
        let places = self.places();
        if place != places || place >= MAX_PLACES {
            return Err(IndexError::Place { place, places });
        }
        for key in keys.iter().filter(|key| key.is_indexed()) {
            self.push(self.hasher.hash(key) | u64::from(place));
        }
        self.end_place(place, offset, span);
        Ok(())
    }

    /// As [`add`](Self::add), of the next place, and of keys that a [`KeyHasher`] with this secret has hashed.
    pub(crate) fn add_hashed(
        &mut self,
        offset: u32,
        span: (u64, u64),
        hashes: impl Iterator<Item = u64>,
    ) -> Result<(), IndexError> {
        let place = self.places();
        if place >= MAX_PLACES {
            return Err(IndexError::Place { place, places: place });
        }
        hashes.for_each(|hash| self.push(hash | u64::from(place)));
        self.end_place(place, offset, span);
        Ok(())
    }

    fn push(&mut self, row: u64) {
        self.shelves[shelf(row)].push(row);
        self.rows += 1;
    }

    fn end_place(&mut self, place: u32, offset: u32, span: (u64, u64)) {
        self.offsets.push(offset);
        match self.times.last_mut() {
            Some((earliest, latest)) if !place.is_multiple_of(RUN_PLACES) => {
                *earliest = span.0.min(*earliest);
                *latest = span.1.max(*latest);
            }
            _ => self.times.push(span),
        }
    }

    /// How many records there are.
    pub fn places(&self) -> u32 {
        self.offsets.len() as u32
    }

    /// Whether the segment should end here, so that the index stays within its memory.
    pub fn is_full(&self) -> bool {
        self.rows >= FULL_ROWS || self.places() >= MAX_PLACES
    }

    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Vec<u32> {
        let hash = self.hasher.hash(key);
        let mut places: Vec<u32> = self.shelves[shelf(hash)]
            .iter()
            .rev()
            .filter(|row| (*row ^ hash) >> PLACE_BITS == 0)
            .map(|row| place_of(*row))
            .collect();
        places.dedup();
        places
    }

    /// Where the leaf of that place begins in the segment's file.
    pub fn offset(&self, place: u32) -> Option<u32> {
        self.offsets.get(place as usize).copied()
    }

    /// The earliest and the latest instant that the segment is about; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        self.times
            .iter()
            .copied()
            .reduce(|known, run| (known.0.min(run.0), known.1.max(run.1)))
    }

    /// As [`times`](Self::times), of each run of [`RUN_PLACES`] places.
    pub fn run_times(&self) -> &[(u64, u64)] {
        &self.times
    }

    /// Its rows as a file has them that keeps so many bits of a hash: sorted, each once.
    pub(super) fn sorted_rows(&self, hash_bits: u32) -> Vec<u64> {
        let mut sorter = Sorter::default();
        let mut rows: Vec<_> = self
            .shelves
            .iter()
            .flat_map(|shelf| sorter.sort(shelf, hash_bits))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Where each leaf begins in the segment's file.
    pub(super) fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Forgets by what these records could be found; places in order.
    pub fn remove(&mut self, places: &[u32]) {
        for shelf in &mut self.shelves {
            shelf.retain(|row| places.binary_search(&place_of(*row)).is_err());
        }
        self.rows = self.shelves.iter().map(Vec::len).sum();
    }

    /// Writes the index to `path`, durably. The builder can still be asked meanwhile.
    pub fn finish(&self, path: &Path) -> Result<IndexFile, IndexError> {
        let hash_bits = format::hash_bits(self.rows);
        let runs = self.offsets.chunks(RUN_PLACES as usize).zip(&self.times);
        let runs = runs.map(|(offsets, times)| PlaceRun { offsets, times: *times });
        let contents = format::Contents {
            check: self.hasher.check,
            first: self.first,
            places: self.places(),
            hash_bits,
            rows: self.rows,
        };
        let groups = |write: &mut dyn FnMut(u64, &[u32])| {
            let mut sorter = Sorter::default();
            let mut places = Vec::new();
            for shelf in &self.shelves {
                let rows = sorter.sort(shelf, hash_bits);
                for group in rows.chunk_by(|one, other| (one ^ other) >> PLACE_BITS == 0) {
                    places.clear();
                    places.extend(group.iter().map(|row| place_of(*row)));
                    places.dedup();
                    write(group[0], &places);
                }
            }
        };
        contents.write(path, groups, runs)?;
        IndexFile::open_with(path, &self.hasher)
    }
}

/// Sorts rows by the first bits of their hashes. Rows that agree in these keep their order, which is that of places.
#[derive(Default)]
struct Sorter {
    rows: Vec<u64>,
    spare: Vec<u64>,
}

impl Sorter {
    fn sort(&mut self, shelf: &[u64], hash_bits: u32) -> Vec<u64> {
        let unused = 64 - hash_bits;
        let mask = !0 << unused | u64::from(MAX_PLACES - 1);
        self.rows.clear();
        self.rows.extend(shelf.iter().map(|row| row & mask));
        self.spare.resize(shelf.len(), 0);
        let mut shift = unused;
        while shift < 64 - SHELF_BITS {
            let digit = |row: u64| (row >> shift) as usize & (DIGITS - 1);
            let mut starts = [0_usize; DIGITS];
            for row in &self.rows {
                starts[digit(*row)] += 1;
            }
            let mut start = 0;
            for slot in &mut starts {
                start += std::mem::replace(slot, start);
            }
            for row in &self.rows {
                let slot = &mut starts[digit(*row)];
                self.spare[*slot] = *row;
                *slot += 1;
            }
            std::mem::swap(&mut self.rows, &mut self.spare);
            shift += DIGIT_BITS;
        }
        std::mem::take(&mut self.rows)
    }
}

fn shelf(row: u64) -> usize {
    (row >> (64 - SHELF_BITS)) as usize
}

fn place_of(row: u64) -> u32 {
    row as u32 & (MAX_PLACES - 1)
}

/// Records in a segment at most.
pub const MAX_PLACES: u32 = 1 << PLACE_BITS;
/// Rows after which a segment ends: 64 MiB of them.
const FULL_ROWS: usize = 8 << 20;
const SHELF_BITS: u32 = 8;
const SHELVES: usize = 1 << SHELF_BITS;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;
const _: () = assert!(HASH_BITS > SHELF_BITS);
