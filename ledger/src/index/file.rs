//! The index of a segment that is full, on disk.

use std::path::{Path, PathBuf};

use super::builder::IndexBuilder;
use super::format::{Contents, Header, Parts, RUN_PLACES, damaged, hash_bits, place_of};
use super::key::{IndexKey, IndexSecret};
use crate::disk_error::DiskError;

/// Answers from the disk; what it has in memory is about a kilobyte. No file stays open, so that thousands of segments
/// need no thousands of descriptors.
#[derive(Debug, Clone)]
pub struct IndexFile {
    path: PathBuf,
    secret: IndexSecret,
    header: Header,
}

// === impl IndexFile ===

impl IndexFile {
    /// Writes the index of a full segment to `path`, durably. The builder can still be asked meanwhile.
    pub fn write(index: &IndexBuilder, path: &Path) -> Result<Self, DiskError> {
        let contents = Contents {
            check: index.secret().check,
            first: index.first(),
            hash_bits: hash_bits(index.rows()),
            rows: index.rows(),
            offsets: index.offsets(),
            times: index.run_times(),
        };
        contents.write(path, index.packed_rows(contents.hash_bits))?;
        Self::open(path, index.secret())
    }

    /// Opens the index at `path`, which was made with `secret`.
    pub fn open(path: &Path, secret: &IndexSecret) -> Result<Self, DiskError> {
        let header = Parts::open(path)?.header;
        if header.check != secret.check {
            return Err(damaged(path, "it was made with other keys (ledger/keys)"));
        }
        Ok(Self {
            path: path.to_owned(),
            secret: secret.clone(),
            header,
        })
    }

    /// Index of the segment's first record.
    pub fn first(&self) -> u64 {
        self.header.first
    }

    /// How many records there are.
    pub fn places(&self) -> u32 {
        self.header.places
    }

    /// The earliest and the latest instant that the segment is about; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        (self.header.places > 0).then_some((self.header.earliest, self.header.latest))
    }

    /// The file's size.
    pub fn bytes(&self) -> u64 {
        self.header.end()
    }

    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Result<Vec<u32>, DiskError> {
        let mut places = Parts::open(&self.path)?.places(self.secret.hash(key))?;
        places.reverse();
        Ok(places)
    }

    /// Where each leaf begins, of a run of [`RUN_PLACES`] places.
    pub fn offsets(&self, run: u32) -> Result<Vec<u32>, DiskError> {
        if run >= self.header.places.div_ceil(RUN_PLACES) {
            return Ok(Vec::new());
        }
        Parts::open(&self.path)?.offsets(run as usize)
    }

    /// The earliest and the latest instant of each run of places.
    pub fn run_times(&self) -> Result<Vec<(u64, u64)>, DiskError> {
        Parts::open(&self.path)?.run_times()
    }

    /// Reads the whole file: any bit that is not as it was written is found.
    pub fn check(&self) -> Result<(), DiskError> {
        let parts = Parts::open(&self.path)?;
        let rows = parts.rows()?.len() as u64;
        let places = parts.all_offsets()?.len() as u64;
        if rows == parts.header.rows && places == u64::from(parts.header.places) {
            return Ok(());
        }
        Err(damaged(
            &self.path,
            "it has another number of rows or of places than it says",
        ))
    }

    /// Whether the file has just the rows and the places that were made from the records.
    pub(crate) fn compare(&self, made: &IndexBuilder) -> Result<(), DiskError> {
        let parts = Parts::open(&self.path)?;
        if parts.header.first != made.first() || parts.header.places != made.places() {
            return Err(damaged(&self.path, "it is of other records than its segment has"));
        }
        if !parts.rows()?.into_iter().eq(made.packed_rows(parts.header.hash_bits)) {
            return Err(damaged(&self.path, "its rows are not those that the records give"));
        }
        if parts.all_offsets()? != made.offsets() {
            return Err(damaged(&self.path, "its places are not those of the records"));
        }
        Ok(())
    }

    /// Writes the file anew, durably, without what these records could be found by; places in order. Questions are
    /// answered from the old file or from the new one meanwhile.
    pub fn remove(&self, places: &[u32]) -> Result<Self, DiskError> {
        let parts = Parts::open(&self.path)?;
        let mut rows = parts.rows()?;
        rows.retain(|row| places.binary_search(&place_of(*row)).is_err());
        let contents = Contents {
            check: parts.header.check,
            first: parts.header.first,
            hash_bits: parts.header.hash_bits,
            rows: rows.len(),
            offsets: &parts.all_offsets()?,
            times: &parts.run_times()?,
        };
        contents.write(&self.path, rows.into_iter())?;
        Self::open(&self.path, &self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u32 = 5_000;

    fn secret() -> IndexSecret {
        IndexSecret::new(&[7; 32])
    }

    fn subject(place: u32) -> String {
        format!("user-{}@example.com", place % 97)
    }

    fn builder() -> IndexBuilder {
        builder_of(RECORDS)
    }

    fn builder_of(records: u32) -> IndexBuilder {
        let mut builder = IndexBuilder::new(&secret(), 1_000);
        for place in 0..records {
            let (subject, trace) = (subject(place), format!("{place:032x}"));
            let mut keys = vec![
                IndexKey::Issuer("https://id.example.com"),
                IndexKey::Subject(&subject),
                // A record may have a value twice.
                IndexKey::Delegation("root"),
                IndexKey::Delegation("root"),
                IndexKey::Decision(1 + i32::from(place % 1_000 == 7)),
            ];
            keys.extend((place % 2 == 0).then_some(IndexKey::Trace(&trace)));
            let time = u64::from(place) * 10;
            builder.add(40 + place * 300, (time, time + 5), &keys);
        }
        builder
    }

    fn written() -> (tempfile::TempDir, IndexBuilder, IndexFile) {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder();
        let file = IndexFile::write(&builder, &folder.path().join("index")).unwrap();
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
            let (run, of_run) = (place / RUN_PLACES, (place % RUN_PLACES) as usize);
            assert_eq!(builder.offsets().get(place as usize).copied(), expected);
            assert_eq!(file.offsets(run).unwrap().get(of_run).copied(), expected);
        }
        assert_eq!(file.times(), Some((0, 49_995)));
        assert_eq!(file.run_times().unwrap(), builder.run_times());
        assert_eq!((file.first(), file.places()), (1_000, RECORDS));
        file.check().unwrap();
    }

    #[test]
    fn an_empty_segment_has_an_index_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = IndexFile::write(&IndexBuilder::new(&secret(), 0), &folder.path().join("index")).unwrap();
        file.check().unwrap();
        assert_eq!(file.lookup(&IndexKey::Tool("pay")).unwrap(), [0_u32; 0]);
        assert_eq!((file.times(), file.offsets(0).unwrap()), (None, Vec::new()));
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
        assert_eq!(file.offsets(0).unwrap()[3], 940);
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let file = IndexFile::write(&builder_of(RUN_PLACES + 1), &path).unwrap();
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
            assert!(IndexFile::open(&path, &secret()).is_err(), "{cut}");
        }
    }

    #[test]
    fn another_secret_is_an_error_and_not_an_empty_answer() {
        let (folder, _builder, _file) = written();
        let error = IndexFile::open(&folder.path().join("index"), &IndexSecret::new(&[8; 32])).unwrap_err();
        assert!(error.to_string().contains("other keys"), "{error}");
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
}
