//! An index file, byte by byte.
//!
//! ```text
//! file    = header (128 bytes) | part* | entry*
//! header  = magic "CRDIDX02" | its length and fields as protobuf has them | zeros | crc
//! part    = varint (the distance of a number from the one before; of the first one, from 0)* | crc
//! entry   = where the part begins | earliest | latest (u64 LE each) | crc
//! ```
//!
//! The first `2^bucket bits` parts are buckets. Their numbers are rows: a hash of `hash bits` bits, and below it a place of
//! 24. A bucket has the rows whose hashes begin with its number. The fewer rows there are, the fewer bits of the 40 tell
//! them apart, and the rest is not kept.
//!
//! Behind them is a part for each run of 256 places, whose numbers say where its leaves begin in the segment's file, and
//! whose entry says the earliest and the latest instant that its records are about. One more entry says where the last part
//! ends. A crc is a CRC-32C, of what it ends (a header, a part, an entry), the number of it, and its bytes: so a part that
//! lies in another's place is found out.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use credence_storage::{at, durable};
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

use crate::disk_error::DiskError;

use super::key::{HASH_BITS, PLACE_BITS};

/// What is to be written.
pub(super) struct Contents<'a> {
    pub(super) check: u64,
    pub(super) first: u64,
    pub(super) hash_bits: u32,
    /// How many rows there are, about.
    pub(super) rows: usize,
    /// Where each leaf begins.
    pub(super) offsets: &'a [u32],
    /// Of each run of places, the earliest and the latest instant.
    pub(super) times: &'a [(u64, u64)],
}

/// What the header says.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Header {
    #[prost(fixed64, tag = "1")]
    pub(super) check: u64,
    #[prost(uint64, tag = "2")]
    pub(super) first: u64,
    #[prost(uint32, tag = "3")]
    pub(super) places: u32,
    #[prost(uint64, tag = "4")]
    pub(super) rows: u64,
    #[prost(uint32, tag = "5")]
    pub(super) hash_bits: u32,
    #[prost(uint32, tag = "6")]
    bucket_bits: u32,
    #[prost(fixed64, tag = "7")]
    pub(super) earliest: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) latest: u64,
    #[prost(uint64, tag = "9")]
    entries_at: u64,
}

/// An open index file, to be read part by part.
pub(super) struct Parts<'a> {
    path: &'a Path,
    file: File,
    pub(super) header: Header,
}

/// Where a part begins, and the earliest and the latest instant that it is about.
#[derive(Debug, Clone, Copy)]
struct Entry {
    begin: u64,
    times: (u64, u64),
}

/// How many bits of a hash tell `rows` rows apart well enough: a value that is not there finds something once in hundreds
/// of times.
pub(super) fn hash_bits(rows: usize) -> u32 {
    (rows.max(1).ilog2() + SPARE_HASH_BITS).clamp(LEAST_HASH_BITS, HASH_BITS)
}

/// A row as a file has it that keeps so many bits of a hash.
pub(super) fn packed(row: u64, hash_bits: u32) -> u64 {
    let hash = row >> (64 - hash_bits);
    hash << PLACE_BITS | u64::from(place_of(row))
}

pub(super) fn place_of(row: u64) -> u32 {
    row as u32 & (MAX_PLACES - 1)
}

// === impl Contents ===

impl Contents<'_> {
    /// Writes these rows, in order and none twice, and the leaves. Durable on return.
    pub(super) fn write(&self, path: &Path, rows: impl Iterator<Item = u64>) -> Result<(), DiskError> {
        let bucket_bits = (self.rows / ROWS_A_BUCKET).max(1).ilog2().min(self.hash_bits);
        let mut header = Header {
            check: self.check,
            first: self.first,
            places: self.offsets.len() as u32,
            hash_bits: self.hash_bits,
            bucket_bits,
            earliest: self.times.iter().map(|(earliest, _)| *earliest).min().unwrap_or(0),
            latest: self.times.iter().map(|(_, latest)| *latest).max().unwrap_or(0),
            ..Header::default()
        };
        let mut bytes = vec![0; HEADER_BYTES];
        let mut entries = Vec::new();
        let mut rows = rows.inspect(|_| header.rows += 1).peekable();
        for bucket in 0..1_u64 << bucket_bits {
            let is_of_bucket = |row: &u64| row >> (self.hash_bits + PLACE_BITS - bucket_bits) == bucket;
            let of_bucket = std::iter::from_fn(|| rows.next_if(is_of_bucket));
            write_part(&mut bytes, &mut entries, of_bucket, (0, 0));
        }
        drop(rows);
        for (offsets, times) in self.offsets.chunks(RUN_PLACES as usize).zip(self.times) {
            write_part(
                &mut bytes,
                &mut entries,
                offsets.iter().map(|offset| u64::from(*offset)),
                *times,
            );
        }
        header.entries_at = bytes.len() as u64;
        entries.push(Entry {
            begin: header.entries_at,
            times: (0, 0),
        });
        for (number, entry) in entries.iter().enumerate() {
            let begin = bytes.len();
            for value in [entry.begin, entry.times.0, entry.times.1] {
                bytes.extend(value.to_le_bytes());
            }
            seal(&mut bytes, begin, Sealed::Entry, number);
        }
        bytes[..HEADER_BYTES].copy_from_slice(&header.sealed());
        Ok(durable::write_path(path, &bytes).map_err(at(path))?)
    }
}

fn write_part(bytes: &mut Vec<u8>, entries: &mut Vec<Entry>, numbers: impl Iterator<Item = u64>, times: (u64, u64)) {
    let begin = bytes.len();
    let mut before = 0;
    for number in numbers {
        encode_varint(number - before, bytes);
        before = number;
    }
    seal(bytes, begin, Sealed::Part, entries.len());
    entries.push(Entry {
        begin: begin as u64,
        times,
    });
}

// === impl Header ===

impl Header {
    fn sealed(&self) -> Vec<u8> {
        let mut bytes = [MAGIC, &self.encode_length_delimited_to_vec()].concat();
        bytes.resize(HEADER_BYTES - CRC_BYTES, 0);
        seal(&mut bytes, 0, Sealed::Header, 0);
        bytes
    }

    fn unsealed(bytes: &[u8]) -> Option<Self> {
        let fields = unseal(bytes, Sealed::Header, 0)?.strip_prefix(MAGIC)?;
        let header = Self::decode_length_delimited(fields).ok()?;
        let is_possible = header.bucket_bits <= header.hash_bits && header.hash_bits <= HASH_BITS;
        is_possible.then_some(header)
    }

    fn buckets(&self) -> usize {
        1 << self.bucket_bits
    }

    fn runs(&self) -> usize {
        self.places.div_ceil(RUN_PLACES) as usize
    }

    /// The file's size.
    pub(super) fn end(&self) -> u64 {
        self.entries_at + ((self.buckets() + self.runs() + 1) * ENTRY_BYTES) as u64
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, DiskError> {
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

    /// The places of one hash (its bits at the top of the number), in order.
    pub(super) fn places(&self, hash: u64) -> Result<Vec<u32>, DiskError> {
        let wanted = hash >> (64 - self.header.hash_bits);
        let bucket = wanted >> (self.header.hash_bits - self.header.bucket_bits);
        let mut rows = self.part(bucket as usize)?;
        rows.retain(|row| row >> PLACE_BITS == wanted);
        Ok(rows.into_iter().map(place_of).collect())
    }

    /// Every row, in order.
    pub(super) fn rows(&self) -> Result<Vec<u64>, DiskError> {
        let entries = self.entries(0, self.header.buckets() + 1)?;
        let mut rows = Vec::new();
        for (bucket, pair) in entries.windows(2).enumerate() {
            rows.extend(self.numbers(bucket, pair)?);
        }
        Ok(rows)
    }

    /// Where each leaf of a run begins.
    pub(super) fn offsets(&self, run: usize) -> Result<Vec<u32>, DiskError> {
        let offsets = self.part(self.header.buckets() + run)?;
        Ok(offsets.into_iter().map(|offset| offset as u32).collect())
    }

    /// Where every leaf begins.
    pub(super) fn all_offsets(&self) -> Result<Vec<u32>, DiskError> {
        let mut offsets = Vec::with_capacity(self.header.places as usize);
        for run in 0..self.header.runs() {
            offsets.extend(self.offsets(run)?);
        }
        Ok(offsets)
    }

    /// The earliest and the latest instant of each run.
    pub(super) fn run_times(&self) -> Result<Vec<(u64, u64)>, DiskError> {
        let entries = self.entries(self.header.buckets(), self.header.runs())?;
        Ok(entries.into_iter().map(|entry| entry.times).collect())
    }

    fn part(&self, number: usize) -> Result<Vec<u64>, DiskError> {
        self.numbers(number, &self.entries(number, 2)?)
    }

    fn entries(&self, first: usize, count: usize) -> Result<Vec<Entry>, DiskError> {
        let from = self.header.entries_at + (first * ENTRY_BYTES) as u64;
        let bytes = self.read(from, count * ENTRY_BYTES)?;
        let entries = bytes.chunks(ENTRY_BYTES).enumerate().map(|(number, bytes)| {
            let bytes = unseal(bytes, Sealed::Entry, first + number)?;
            let (values, _) = bytes.as_chunks();
            let [begin, earliest, latest] = values else { return None };
            Some(Entry {
                begin: u64::from_le_bytes(*begin),
                times: (u64::from_le_bytes(*earliest), u64::from_le_bytes(*latest)),
            })
        });
        entries.collect::<Option<_>>().ok_or_else(|| self.damaged())
    }

    /// The numbers of the part between two entries.
    fn numbers(&self, part: usize, entries: &[Entry]) -> Result<Vec<u64>, DiskError> {
        let [entry, next] = entries else {
            return Err(self.damaged());
        };
        let length = next
            .begin
            .checked_sub(entry.begin)
            .filter(|_| next.begin <= self.header.entries_at);
        let bytes = self.read(entry.begin, length.ok_or_else(|| self.damaged())? as usize)?;
        let mut rest = unseal(&bytes, Sealed::Part, part).ok_or_else(|| self.damaged())?;
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

/// What it is made from is untouched.
pub(super) fn damaged(path: &Path, found: &'static str) -> DiskError {
    DiskError::damaged(path, found).with_cure("Remove the file and start again: the index is made anew")
}

/// What ends with a checksum.
#[derive(Debug, Clone, Copy)]
enum Sealed {
    Header = 1,
    Part = 2,
    Entry = 3,
}

/// Ends what begins at `begin` with its checksum.
fn seal(bytes: &mut Vec<u8>, begin: usize, what: Sealed, number: usize) {
    let crc = crc_of(&bytes[begin..], what, number);
    bytes.extend(crc.to_le_bytes());
}

fn unseal(bytes: &[u8], what: Sealed, number: usize) -> Option<&[u8]> {
    let (bytes, crc) = bytes.split_last_chunk()?;
    (crc_of(bytes, what, number) == u32::from_le_bytes(*crc)).then_some(bytes)
}

fn crc_of(bytes: &[u8], what: Sealed, number: usize) -> u32 {
    let seed = crc32c::crc32c(&[what as u8]);
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &(number as u64).to_le_bytes()), bytes)
}

const MAGIC: &[u8] = b"CRDIDX02";
const HEADER_BYTES: usize = 128;
const CRC_BYTES: usize = 4;
const ENTRY_BYTES: usize = 3 * 8 + CRC_BYTES;
/// Records in a segment at most.
pub const MAX_PLACES: u32 = 1 << PLACE_BITS;
/// Places whose leaves and times are kept together.
pub const RUN_PLACES: u32 = 256;
/// So that a bucket is about half a page of the disk.
const ROWS_A_BUCKET: usize = 512;
const SPARE_HASH_BITS: u32 = 8;
const LEAST_HASH_BITS: u32 = 16;
