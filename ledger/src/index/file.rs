//! The index of a full segment, on disk.
//!
//! ```text
//! file    = header (128 bytes) | part* | entry*
//! header  = magic "CRDIDX04" | its length and fields as protobuf has them | zeros | crc
//! part    = varint (the distance of a number from the one before, modulo 2^64; of the first one, from 0)* | crc
//! entry   = where the part begins (u64 LE) | crc
//! ```
//!
//! The first `2^bucket bits` parts are buckets. Their numbers are rows: a hash of 32 bits, then a place of 24 bits. A
//! bucket has the rows whose hashes begin with its number.
//!
//! After them comes a part for each run of 256 places, with the offsets of its leaves in the segment's file. The
//! numbers of the last part are the earliest and the latest time of each run. One more entry says where that part ends.
//! A crc is a CRC-32C of the position in the file (u64 LE) at which the checked bytes begin, and of those bytes. So a
//! part in the wrong position is detected.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use credence_storage::{at, durable};
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

use super::builder::IndexBuilder;
use super::key::{HASH_BITS, IndexKey, IndexSecret, PLACE_BITS, ROW_BITS, RUN_PLACES, place_of};
use crate::disk_error::DiskError;

/// Answers lookups from the disk, with about a kilobyte in memory. No file stays open, so that thousands of segments do
/// not need thousands of descriptors.
#[derive(Debug, Clone)]
pub struct IndexFile {
    path: PathBuf,
    secret: IndexSecret,
    header: Header,
}

/// The fields of the header.
#[derive(Clone, PartialEq, Eq, Message)]
struct Header {
    /// Identifies the secret.
    #[prost(fixed64, tag = "1")]
    check: u64,
    /// Index of the segment's first record.
    #[prost(uint64, tag = "2")]
    first: u64,
    #[prost(uint32, tag = "3")]
    places: u32,
    #[prost(uint64, tag = "4")]
    rows: u64,
    #[prost(uint32, tag = "5")]
    bucket_bits: u32,
    #[prost(fixed64, tag = "6")]
    earliest: u64,
    #[prost(fixed64, tag = "7")]
    latest: u64,
    #[prost(uint64, tag = "8")]
    entries_at: u64,
}

/// The file at this moment, read part by part. Another file may replace it.
struct Parts<'a> {
    path: &'a Path,
    file: File,
    header: Header,
}

// === impl IndexFile ===

impl IndexFile {
    /// Writes the index of a full segment to `path`, durably. The builder can be queried meanwhile.
    pub fn write(index: &IndexBuilder, path: &Path) -> Result<Self, DiskError> {
        let header = Header {
            check: index.secret.check,
            first: index.first(),
            bucket_bits: (index.rows / ROWS_A_BUCKET).max(1).ilog2(),
            ..Header::default()
        };
        let file = encode(header, index.sorted_rows(), index.offsets(), index.run_times());
        durable::write_path(path, &file).map_err(at(path))?;
        Self::open(path, &index.secret)
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

    /// The number of records.
    pub fn places(&self) -> u32 {
        self.header.places
    }

    /// The earliest and the latest time in the segment; none if it is empty.
    pub fn times(&self) -> Option<(u64, u64)> {
        (self.header.places > 0).then_some((self.header.earliest, self.header.latest))
    }

    /// The file's size.
    pub fn bytes(&self) -> u64 {
        self.header.end()
    }

    /// The places of all records that may have the key, newest first.
    pub fn lookup(&self, key: &IndexKey<'_>) -> Result<Vec<u32>, DiskError> {
        let hash = self.secret.hash(key);
        let parts = Parts::open(&self.path)?;
        let rows = parts.part(bucket_of(hash, parts.header.bucket_bits) as usize)?;
        let found = rows.into_iter().rev().filter(|row| (row ^ hash) >> PLACE_BITS == 0);
        Ok(found.map(place_of).collect())
    }

    /// The offset of each leaf in a run of [`RUN_PLACES`] places.
    pub fn offsets(&self, run: u32) -> Result<Vec<u32>, DiskError> {
        if run >= self.header.runs() as u32 {
            return Ok(Vec::new());
        }
        Parts::open(&self.path)?.offsets(run as usize)
    }

    /// The earliest and the latest time of each run of places.
    pub fn run_times(&self) -> Result<Vec<(u64, u64)>, DiskError> {
        Parts::open(&self.path)?.run_times()
    }

    /// Reads the whole file, and so finds any changed bit.
    pub fn check(&self) -> Result<(), DiskError> {
        let parts = Parts::open(&self.path)?;
        let rows = parts.rows()?.len() as u64;
        let places = parts.all_offsets()?.len() as u64;
        let runs = parts.run_times()?.len();
        if rows == parts.header.rows && places == u64::from(parts.header.places) && runs == parts.header.runs() {
            return Ok(());
        }
        Err(damaged(
            &self.path,
            "its number of rows or of places is not the one in its header",
        ))
    }

    /// Checks that the file has exactly the rows and places built from the records. Times are not compared, because
    /// those of erased records are no longer known.
    pub(crate) fn compare(&self, made: &IndexBuilder) -> Result<(), DiskError> {
        let parts = Parts::open(&self.path)?;
        if (parts.header.first, parts.header.places) == (made.first(), made.places())
            && parts.rows()?.into_iter().eq(made.sorted_rows())
            && parts.all_offsets()? == made.offsets()
        {
            return Ok(());
        }
        Err(damaged(&self.path, "it does not match the records"))
    }

    /// Writes the file again, durably, without the rows of these records. Places are in order. Meanwhile, lookups use
    /// the old or the new file.
    pub fn remove(&self, places: &[u32]) -> Result<Self, DiskError> {
        let parts = Parts::open(&self.path)?;
        let mut rows = parts.rows()?;
        rows.retain(|row| places.binary_search(&place_of(*row)).is_err());
        let file = encode(
            parts.header.clone(),
            rows.into_iter(),
            &parts.all_offsets()?,
            &parts.run_times()?,
        );
        durable::write_path(&self.path, &file).map_err(at(&self.path))?;
        Self::open(&self.path, &self.secret)
    }
}

/// The records from which the index is made are intact.
fn damaged(path: &Path, found: &'static str) -> DiskError {
    DiskError::damaged(path, found).with_cure("Remove the file and start again: the index is then rebuilt")
}

/// Encodes a file from sorted and unique rows, the offset of each leaf, and each run's times. The rest of the header
/// derives from them.
fn encode(mut header: Header, rows: impl Iterator<Item = u64>, offsets: &[u32], times: &[(u64, u64)]) -> Vec<u8> {
    header.rows = 0;
    let bucket_bits = header.bucket_bits;
    let mut bytes = vec![0; HEADER_BYTES];
    let mut entries = Vec::new();
    let mut rows = rows.inspect(|_| header.rows += 1).peekable();
    for bucket in 0..1_u64 << bucket_bits {
        let is_of_bucket = |row: &u64| bucket_of(*row, bucket_bits) == bucket;
        let of_bucket = std::iter::from_fn(|| rows.next_if(is_of_bucket));
        entries.push(write_part(&mut bytes, of_bucket));
    }
    drop(rows);
    for offsets in offsets.chunks(RUN_PLACES as usize) {
        let offsets = offsets.iter().map(|offset| u64::from(*offset));
        entries.push(write_part(&mut bytes, offsets));
    }
    let instants = times.iter().flat_map(|(earliest, latest)| [*earliest, *latest]);
    entries.push(write_part(&mut bytes, instants));
    header.places = offsets.len() as u32;
    header.earliest = times.iter().map(|(earliest, _)| *earliest).min().unwrap_or(0);
    header.latest = times.iter().map(|(_, latest)| *latest).max().unwrap_or(0);
    header.entries_at = bytes.len() as u64;
    entries.push(header.entries_at);
    for begin in entries {
        let entry = bytes.len();
        bytes.extend(begin.to_le_bytes());
        seal(&mut bytes, entry);
    }
    let mut sealed = [MAGIC, &header.encode_length_delimited_to_vec()].concat();
    sealed.resize(HEADER_BYTES - CRC_BYTES, 0);
    seal(&mut sealed, 0);
    bytes[..HEADER_BYTES].copy_from_slice(&sealed);
    bytes
}

fn write_part(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) -> u64 {
    let begin = bytes.len();
    let mut before = 0;
    for number in numbers {
        encode_varint(number.wrapping_sub(before), bytes);
        before = number;
    }
    seal(bytes, begin);
    begin as u64
}

fn bucket_of(row: u64, bucket_bits: u32) -> u64 {
    row >> (ROW_BITS - bucket_bits)
}

// === impl Header ===

impl Header {
    fn unsealed(bytes: &[u8]) -> Option<Self> {
        let fields = unseal(bytes, 0)?.strip_prefix(MAGIC)?;
        let header = Self::decode_length_delimited(fields).ok()?;
        (header.bucket_bits <= HASH_BITS).then_some(header)
    }

    fn buckets(&self) -> usize {
        1 << self.bucket_bits
    }

    fn runs(&self) -> usize {
        self.places.div_ceil(RUN_PLACES) as usize
    }

    /// The file's size.
    fn end(&self) -> u64 {
        self.entries_at + ((self.buckets() + self.runs() + 2) * ENTRY_BYTES) as u64
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    fn open(path: &'a Path) -> Result<Self, DiskError> {
        let damaged = |what| Err(damaged(path, what));
        let file = File::open(path).map_err(at(path))?;
        let length = file.metadata().map_err(at(path))?.len();
        if length < HEADER_BYTES as u64 {
            return damaged("it is shorter than an index");
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(at(path))?;
        let Some(header) = Header::unsealed(&bytes) else {
            return damaged("its header does not match its checksum");
        };
        if length != header.end() {
            return damaged("it was cut short, or something was added to it");
        }
        Ok(Self { path, file, header })
    }

    /// All rows, in order.
    fn rows(&self) -> Result<Vec<u64>, DiskError> {
        let entries = self.entries(0, self.header.buckets() + 1)?;
        let mut rows = Vec::new();
        for pair in entries.windows(2) {
            rows.extend(self.numbers(pair)?);
        }
        Ok(rows)
    }

    /// The offset of each leaf in a run.
    fn offsets(&self, run: usize) -> Result<Vec<u32>, DiskError> {
        let offsets = self.part(self.header.buckets() + run)?;
        Ok(offsets.into_iter().map(|offset| offset as u32).collect())
    }

    /// The offset of each leaf.
    fn all_offsets(&self) -> Result<Vec<u32>, DiskError> {
        let mut offsets = Vec::with_capacity(self.header.places as usize);
        for run in 0..self.header.runs() {
            offsets.extend(self.offsets(run)?);
        }
        Ok(offsets)
    }

    /// The earliest and the latest time of each run.
    fn run_times(&self) -> Result<Vec<(u64, u64)>, DiskError> {
        let instants = self.part(self.header.buckets() + self.header.runs())?;
        let (times, _) = instants.as_chunks();
        Ok(times.iter().map(|[earliest, latest]| (*earliest, *latest)).collect())
    }

    fn part(&self, number: usize) -> Result<Vec<u64>, DiskError> {
        self.numbers(&self.entries(number, 2)?)
    }

    fn entries(&self, first: usize, count: usize) -> Result<Vec<u64>, DiskError> {
        let from = self.header.entries_at + (first * ENTRY_BYTES) as u64;
        let bytes = self.read(from, count * ENTRY_BYTES)?;
        let places = (from..).step_by(ENTRY_BYTES);
        let entries = bytes.chunks(ENTRY_BYTES).zip(places);
        let entries = entries.map(|(bytes, at)| Some(u64::from_le_bytes(unseal(bytes, at)?.try_into().ok()?)));
        entries.collect::<Option<_>>().ok_or_else(|| self.damaged())
    }

    /// The numbers of the part between two entries.
    fn numbers(&self, entries: &[u64]) -> Result<Vec<u64>, DiskError> {
        let [begin, next] = entries else {
            return Err(self.damaged());
        };
        let length = next.checked_sub(*begin);
        let length = length.filter(|_| *next <= self.header.entries_at);
        let bytes = self.read(*begin, length.ok_or_else(|| self.damaged())? as usize)?;
        let mut rest = unseal(&bytes, *begin).ok_or_else(|| self.damaged())?;
        let mut numbers = Vec::new();
        let mut number = 0_u64;
        while !rest.is_empty() {
            let distance = decode_varint(&mut rest).map_err(|_| self.damaged())?;
            number = number.wrapping_add(distance);
            numbers.push(number);
        }
        Ok(numbers)
    }

    fn read(&self, from: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, from).map_err(at(self.path))?;
        Ok(bytes)
    }

    fn damaged(&self) -> DiskError {
        damaged(self.path, "a part of it does not match its checksum")
    }
}

/// Appends the checksum of everything from `begin` on.
fn seal(bytes: &mut Vec<u8>, begin: usize) {
    let crc = crc_of(&bytes[begin..], begin as u64);
    bytes.extend(crc.to_le_bytes());
}

fn unseal(bytes: &[u8], begin: u64) -> Option<&[u8]> {
    let (bytes, crc) = bytes.split_last_chunk()?;
    (crc_of(bytes, begin) == u32::from_le_bytes(*crc)).then_some(bytes)
}

fn crc_of(bytes: &[u8], begin: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&begin.to_le_bytes()), bytes)
}

const MAGIC: &[u8] = b"CRDIDX04";
const HEADER_BYTES: usize = 128;
const CRC_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8 + CRC_BYTES;
/// A bucket is then about half a disk page.
const ROWS_A_BUCKET: usize = 512;

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
    fn removed_records_are_not_found_and_the_others_are() {
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
        // The leaves are still there, because the tree needs them.
        assert_eq!(file.offsets(0).unwrap()[3], 940);
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let file = IndexFile::write(&builder_of(RUN_PLACES + 1), &path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // Hits some bytes of every part. Hitting all of them takes a quarter of a minute.
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
    fn the_file_holds_no_names() {
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
