//! The index of a segment that is still growing.

use super::key::{HASH_BITS, IndexKey, IndexSecret, MAX_PLACES, PLACE_BITS, ROW_BITS, RUN_PLACES, place_of};

/// Collects the rows of one segment in memory: 8 bytes a row and 4 a record. It can be queried at any time.
#[derive(Debug)]
pub struct IndexBuilder {
    pub(super) secret: IndexSecret,
    /// Index of the segment's first record.
    first: u64,
    /// Rows by the top byte of their hash, each in the order of places. Sorting a shelf once the segment is full costs
    /// less than keeping all rows sorted, and searching one shelf is quick.
    shelves: Vec<Vec<u64>>,
    /// The number of rows, with duplicates.
    pub(super) rows: usize,
    offsets: Vec<u32>,
    /// The earliest and the latest time of each run of places.
    times: Vec<(u64, u64)>,
}

// === impl IndexBuilder ===

impl IndexBuilder {
    /// Begins the index of the segment whose first record has index `first`.
    pub fn new(secret: &IndexSecret, first: u64) -> Self {
        Self {
            secret: secret.clone(),
            first,
            shelves: vec![Vec::new(); SHELVES],
            rows: 0,
            offsets: Vec::new(),
            times: Vec::new(),
        }
    }

    /// As [`new`](Self::new), for the segment after another one, with the same capacity: moving rows to larger memory
    /// costs time and leaves holes in memory.
    pub(crate) fn following(other: &Self) -> Self {
        let room = |length: usize| length + length / 16;
        Self {
            shelves: other
                .shelves
                .iter()
                .map(|shelf| Vec::with_capacity(room(shelf.len())))
                .collect(),
            offsets: Vec::with_capacity(room(other.offsets.len())),
            times: Vec::with_capacity(room(other.times.len())),
            ..Self::new(&other.secret, other.first + u64::from(other.places()))
        }
    }

    /// Index of the segment's first record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Adds the next record: the offset of its leaf in the segment's file, its earliest and latest time (nanoseconds
    /// since the Unix epoch), and its keys.
    pub fn add(&mut self, offset: u32, span: (u64, u64), keys: &[IndexKey<'_>]) {
        let indexed = keys.iter().filter(|key| key.is_indexed());
        let hashes: Vec<u64> = indexed.map(|key| self.secret.hash(key)).collect();
        self.add_hashed(offset, span, hashes.into_iter());
    }

    /// As [`add`](Self::add), for keys that this secret has hashed.
    pub(crate) fn add_hashed(
        &mut self,
        offset: u32,
        (earliest, latest): (u64, u64),
        hashes: impl Iterator<Item = u64>,
    ) {
        let place = self.places();
        debug_assert!(place < MAX_PLACES, "the segment ends before places are used up");
        for hash in hashes {
            self.shelves[shelf_of(hash)].push(hash | u64::from(place));
            self.rows += 1;
        }
        self.offsets.push(offset);
        match self.times.last_mut() {
            Some(times) if !place.is_multiple_of(RUN_PLACES) => {
                *times = (earliest.min(times.0), latest.max(times.1));
            }
            _ => self.times.push((earliest, latest)),
        }
    }

    /// The number of records.
    pub fn places(&self) -> u32 {
        self.offsets.len() as u32
    }

    /// Whether the segment should end here, so that the index stays within its memory limit.
    pub fn is_full(&self) -> bool {
        self.rows >= FULL_ROWS || self.places() >= MAX_PLACES
    }

    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Vec<u32> {
        let hash = self.secret.hash(key);
        let mut places: Vec<u32> = self.shelves[shelf_of(hash)]
            .iter()
            .rev()
            .filter(|row| (*row ^ hash) >> PLACE_BITS == 0)
            .map(|row| place_of(*row))
            .collect();
        places.dedup();
        places
    }

    /// The offset of each leaf in the segment's file.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// The earliest and the latest time in the segment; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        let runs = self.times.iter().copied();
        runs.reduce(|known, run| (known.0.min(run.0), known.1.max(run.1)))
    }

    /// As [`times`](Self::times), for each run of [`RUN_PLACES`] places.
    pub fn run_times(&self) -> &[(u64, u64)] {
        &self.times
    }

    /// The rows in file order: sorted and unique.
    pub(super) fn sorted_rows(&self) -> impl Iterator<Item = u64> {
        self.shelves.iter().flat_map(|shelf| {
            let mut rows = shelf.clone();
            rows.sort_unstable();
            rows.dedup();
            rows
        })
    }

    /// Removes the rows of these records. Places are in order.
    pub fn remove(&mut self, places: &[u32]) {
        for shelf in &mut self.shelves {
            shelf.retain(|row| places.binary_search(&place_of(*row)).is_err());
        }
        self.rows = self.shelves.iter().map(Vec::len).sum();
    }
}

fn shelf_of(row: u64) -> usize {
    (row >> (ROW_BITS - SHELF_BITS)) as usize
}

/// The number of rows at which a segment ends: 64 MiB of them.
const FULL_ROWS: usize = 8 << 20;
const SHELF_BITS: u32 = 8;
const SHELVES: usize = 1 << SHELF_BITS;
const _: () = assert!(HASH_BITS > SHELF_BITS);
