//! The index of a segment that is full, on disk.

use std::path::{Path, PathBuf};

use super::format::{Contents, Parts, PlaceRun, RUN_PLACES};
use super::key::KeyHasher;
use super::{IndexBuilder, IndexError, IndexKey, IndexSecret};

/// Answers from the disk; what it has in memory is a few hundred bytes. No file stays open, so that thousands of segments
/// need no thousands of descriptors.
#[derive(Debug, Clone)]
pub struct IndexFile {
    path: PathBuf,
    hasher: KeyHasher,
    first: u64,
    places: u32,
    times: (u64, u64),
    bytes: u64,
}

// === impl IndexFile ===

impl IndexFile {
    /// Opens the index at `path`, which was made with `secret`.
    pub fn open(path: &Path, secret: &IndexSecret) -> Result<Self, IndexError> {
        Self::open_with(path, &KeyHasher::new(secret))
    }

    pub(super) fn open_with(path: &Path, hasher: &KeyHasher) -> Result<Self, IndexError> {
        let parts = Parts::open(path)?;
        if parts.header.check != hasher.check {
            return Err(IndexError::OtherSecret { path: path.to_owned() });
        }
        Ok(Self {
            path: path.to_owned(),
            hasher: hasher.clone(),
            first: parts.header.first,
            places: parts.header.places,
            times: parts.header.times,
            bytes: parts.header.end,
        })
    }

    /// Index of the segment's first record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many records there are.
    pub fn places(&self) -> u32 {
        self.places
    }

    /// The earliest and the latest instant that the segment is about; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        (self.places > 0).then_some(self.times)
    }

    /// The file's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Result<Vec<u32>, IndexError> {
        let parts = Parts::open(&self.path)?;
        let mut places = parts.places(self.hasher.hash(key))?;
        places.reverse();
        Ok(places)
    }

    /// Where the leaf of that place begins in the segment's file.
    pub fn offset(&self, place: u32) -> Result<Option<u32>, IndexError> {
        if place >= self.places {
            return Ok(None);
        }
        let offsets = Parts::open(&self.path)?.offsets((place / RUN_PLACES) as usize)?;
        Ok(offsets.get((place % RUN_PLACES) as usize).copied())
    }

    /// Where each leaf begins, of the places from a multiple of [`RUN_PLACES`](super::RUN_PLACES) on.
    pub fn offsets(&self, run: u32) -> Result<Vec<u32>, IndexError> {
        if run >= self.places.div_ceil(RUN_PLACES) {
            return Ok(Vec::new());
        }
        Parts::open(&self.path)?.offsets(run as usize)
    }

    /// The earliest and the latest instant of each run of places.
    pub fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError> {
        Parts::open(&self.path)?.run_times()
    }

    /// Reads the whole file: any bit that is not as it was written is found.
    pub fn check(&self) -> Result<(), IndexError> {
        let parts = Parts::open(&self.path)?;
        let rows = parts.rows()?.len() as u64;
        for run in 0..parts.header.runs() {
            parts.offsets(run)?;
        }
        if rows == parts.header.rows {
            return Ok(());
        }
        Err(IndexError::Damaged {
            path: self.path.clone(),
            what: "it has another number of rows than it says",
        })
    }

    /// Whether the file has just the rows and the places that were made from the records.
    pub(crate) fn compare(&self, made: &IndexBuilder) -> Result<(), IndexError> {
        let damaged = |what| IndexError::Damaged {
            path: self.path.clone(),
            what,
        };
        let parts = Parts::open(&self.path)?;
        if parts.header.first != made.first() || parts.header.places != made.places() {
            return Err(damaged("it is of other records than its segment has"));
        }
        let mut rows = parts.rows()?;
        rows.sort_unstable();
        if rows != made.sorted_rows(parts.header.hash_bits) {
            return Err(damaged("its rows are not those that the records give"));
        }
        for (run, offsets) in made.offsets().chunks(RUN_PLACES as usize).enumerate() {
            if parts.offsets(run)? != offsets {
                return Err(damaged("its places are not those of the records"));
            }
        }
        Ok(())
    }

    /// Writes the file anew, durably, without what these records could be found by; places in order. Whoever asks
    /// meanwhile is answered from the old file or from the new one.
    pub fn remove(&self, places: &[u32]) -> Result<Self, IndexError> {
        let parts = Parts::open(&self.path)?;
        let mut rows = parts.rows()?;
        rows.retain(|row| places.binary_search(&(*row as u32 & PLACE_MASK)).is_err());
        let times = parts.run_times()?;
        let mut offsets = Vec::with_capacity(times.len());
        for run in 0..times.len() {
            offsets.push(parts.offsets(run)?);
        }
        let contents = Contents {
            check: parts.header.check,
            first: parts.header.first,
            places: parts.header.places,
            hash_bits: parts.header.hash_bits,
            rows: rows.len(),
        };
        let runs = offsets.iter().zip(times);
        let runs = runs.map(|(offsets, times)| PlaceRun { offsets, times });
        let groups = |write: &mut dyn FnMut(u64, &[u32])| {
            for group in rows.chunk_by(|one, other| (one ^ other) & !u64::from(PLACE_MASK) == 0) {
                let places: Vec<u32> = group.iter().map(|row| *row as u32 & PLACE_MASK).collect();
                write(group[0] & !u64::from(PLACE_MASK), &places);
            }
        };
        contents.write(&self.path, groups, runs)?;
        Self::open_with(&self.path, &self.hasher)
    }
}

const PLACE_MASK: u32 = super::MAX_PLACES - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: IndexSecret = IndexSecret([7; 32]);
    const RECORDS: u32 = 5_000;

    fn subject(place: u32) -> String {
        format!("user-{}@example.com", place % 97)
    }

    fn builder() -> IndexBuilder {
        builder_of(RECORDS)
    }

    fn builder_of(records: u32) -> IndexBuilder {
        let mut builder = IndexBuilder::new(&SECRET, 1_000);
        for place in 0..records {
            let (subject, trace) = (subject(place), format!("{place:032x}"));
            let keys = [
                IndexKey::Issuer("https://id.example.com"),
                IndexKey::Subject(&subject),
                // A record may have a value twice.
                IndexKey::Delegation("root"),
                IndexKey::Delegation("root"),
                IndexKey::Trace(if place % 2 == 0 { &trace } else { "" }),
                IndexKey::Decision(1 + i32::from(place % 1_000 == 7)),
            ];
            let time = u64::from(place) * 10;
            builder.add(place, 40 + place * 300, (time, time + 5), &keys).unwrap();
        }
        builder
    }

    fn written() -> (tempfile::TempDir, IndexBuilder, IndexFile) {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder();
        let file = builder.finish(&folder.path().join("index")).unwrap();
        (folder, builder, file)
    }

    #[test]
    fn a_file_finds_what_the_builder_found_newest_first() {
        let (_folder, builder, file) = written();
        let of_user = (0..RECORDS).rev().filter(|place| place % 97 == 3).collect::<Vec<_>>();
        let everything = (0..RECORDS).rev().collect::<Vec<_>>();
        let (trace, name) = (format!("{:032x}", 4_998), subject(3));
        for (key, expected) in [
            (IndexKey::principal("https://id.example.com", Some(&name)), &of_user),
            (IndexKey::principal("https://id.example.com", None), &everything),
            (IndexKey::Delegation("root"), &everything),
            (IndexKey::Trace(&trace), &vec![4_998]),
            (IndexKey::Decision(2), &vec![4_007, 3_007, 2_007, 1_007, 7]),
            (IndexKey::Tool("root"), &vec![]),
        ] {
            assert_eq!(&builder.lookup(&key), expected, "{key:?}");
            assert_eq!(&file.lookup(&key).unwrap(), expected, "{key:?}");
        }
        for place in [0, 255, 256, 257, 4_999, 5_000] {
            let expected = (place < RECORDS).then_some(40 + place * 300);
            assert_eq!(builder.offset(place), expected);
            assert_eq!(file.offset(place).unwrap(), expected);
        }
        assert_eq!(file.times(), Some((0, 49_995)));
        assert_eq!(file.run_times().unwrap(), builder.run_times());
        assert_eq!((file.first(), file.places()), (1_000, RECORDS));
        file.check().unwrap();
    }

    #[test]
    fn an_empty_segment_has_an_index_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = IndexBuilder::new(&SECRET, 0)
            .finish(&folder.path().join("index"))
            .unwrap();
        file.check().unwrap();
        assert_eq!(file.lookup(&IndexKey::Tool("pay")).unwrap(), [0_u32; 0]);
        assert_eq!((file.times(), file.offset(0).unwrap()), (None, None));
    }

    #[test]
    fn what_was_removed_is_found_by_nothing_and_the_rest_is_as_it_was() {
        let (_folder, mut builder, file) = written();
        let name = subject(3);
        let key = IndexKey::Subject(&name);
        let mut places = file.lookup(&key).unwrap();
        places.reverse();
        builder.remove(&places);
        let file = file.remove(&places).unwrap();
        file.check().unwrap();
        let rest: Vec<u32> = (0..RECORDS).rev().filter(|place| place % 97 != 3).collect();
        for (key, expected) in [(key, &vec![]), (IndexKey::Delegation("root"), &rest)] {
            assert_eq!(&builder.lookup(&key), expected);
            assert_eq!(&file.lookup(&key).unwrap(), expected);
        }
        // The leaves are still there: the tree needs them.
        assert_eq!(file.offset(3).unwrap(), Some(940));
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let file = builder_of(RUN_PLACES + 1).finish(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // Every part has bytes that are hit; to hit all of them takes a quarter of a minute.
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            assert!(file.check().is_err(), "byte {at} of {}", whole.len());
        }
        for cut in [0, 100, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(IndexFile::open(&path, &SECRET).is_err(), "{cut}");
        }
    }

    #[test]
    fn another_secret_is_an_error_and_not_an_empty_answer() {
        let (folder, _builder, _file) = written();
        let error = IndexFile::open(&folder.path().join("index"), &IndexSecret([8; 32])).unwrap_err();
        assert!(matches!(error, IndexError::OtherSecret { .. }), "{error}");
    }

    #[test]
    fn the_file_names_nobody() {
        let (folder, ..) = written();
        let bytes = std::fs::read(folder.path().join("index")).unwrap();
        for text in ["user-3@", "example.com", "root"] {
            assert!(
                !bytes.windows(text.len()).any(|window| window == text.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn places_come_one_after_the_other() {
        let mut builder = builder();
        assert!(builder.add(RECORDS + 1, 0, (0, 0), &[]).is_err());
        assert!(builder.add(RECORDS - 1, 0, (0, 0), &[]).is_err());
        builder.add(RECORDS, 0, (0, 0), &[]).unwrap();
    }
}
