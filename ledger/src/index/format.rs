//! An index file, byte by byte. All numbers are little-endian; a varint is as in protobuf.
//!
//! ```text
//! file      = header (128 bytes) | buckets | directory | leaves | runs
//! header    = magic "CRDIDX01" | check (u64) | first index (u64) | places (u32) | hash bits (u8) | bucket bits (u8) | 0 (u16)
//!           | rows (u64) | earliest (u64) | latest (u64) | where the directory, the leaves and the runs begin, and where
//!             the file ends (u64 each) | zeros | crc
//! buckets   = of each value of the first `bucket bits` of a hash: groups | crc, or nothing at all if there are none
//! group     = varint (skipped hashes * 4 + form) | by form:
//!             0 varint (the only place)
//!             1 varint (places - 2) | varint (first place) | varint (skipped places)*
//!             2 varint (first place) | varint (bytes) | a bit for each place from the first one on, lowest bit first
//! directory = of each 64 buckets: where each begins, and where the last ends, behind the header (u32 * 65) | crc
//! leaves    = of each run of 256 places: varint (distance of the leaf from the one before in the segment's file)* | crc
//! runs      = of each run, and once more behind the last: place of the first leaf in the segment's file (u32) | where the
//!             run's leaves begin, behind those of the first run (u32) | earliest (u64) | latest (u64) | 0 (u32) | crc
//! ```
//!
//! A hash has `hash bits` bits; the rest of the 40 is not kept, for the fewer rows there are, the fewer bits tell them
//! apart. A crc is a CRC-32C, of what kind of part it ends, which of them it is, and its bytes: so a part that lies in
//! another's place is found out.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use credence_storage::durable;

use super::IndexError;
use super::key::{HASH_BITS, PLACE_BITS};

/// What is to be written.
pub(super) struct Contents {
    pub(super) check: u64,
    pub(super) first: u64,
    pub(super) places: u32,
    pub(super) hash_bits: u32,
    pub(super) rows: usize,
}

/// Leaves that follow one another.
pub(super) struct PlaceRun<'a> {
    /// Where each begins.
    pub(super) offsets: &'a [u32],
    /// The earliest and the latest instant.
    pub(super) times: (u64, u64),
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) check: u64,
    pub(super) first: u64,
    pub(super) places: u32,
    pub(super) hash_bits: u32,
    bucket_bits: u32,
    pub(super) rows: u64,
    pub(super) times: (u64, u64),
    directory_at: u64,
    leaves_at: u64,
    runs_at: u64,
    pub(super) end: u64,
}

/// An open index file, to be read part by part.
pub(super) struct Parts<'a> {
    path: &'a Path,
    file: File,
    pub(super) header: Header,
}

/// A run, as the file has it.
#[derive(Debug, Clone, Copy)]
struct Run {
    first_offset: u32,
    leaves_at: u32,
    times: (u64, u64),
}

/// How many bits of a hash tell `rows` rows apart well enough: a value that is not there finds something once in hundreds
/// of times.
pub(super) fn hash_bits(rows: usize) -> u32 {
    (rows.max(1).ilog2() + SPARE_HASH_BITS).clamp(LEAST_HASH_BITS, HASH_BITS)
}

// === impl Contents ===

impl Contents {
    /// Writes what `groups` hands over (a hash that is cut to `hash_bits`, and its places; both in order, and none twice)
    /// and leaves.
    pub(super) fn write<'a>(
        &self,
        path: &Path,
        groups: impl FnOnce(&mut dyn FnMut(u64, &[u32])),
        runs: impl Iterator<Item = PlaceRun<'a>>,
    ) -> Result<(), IndexError> {
        let bucket_bits = (self.rows / ROWS_A_BUCKET)
            .max(1)
            .ilog2()
            .clamp(PAGE_BITS, self.hash_bits);
        let mut bytes = vec![0; HEADER_BYTES];
        let mut buckets = BucketWriter::new(&mut bytes, self.hash_bits, bucket_bits);
        let mut written = 0;
        groups(&mut |hash, places| {
            written += places.len() as u64;
            buckets.write(hash, places);
        });
        let starts = buckets.finish();
        let directory_at = bytes.len() as u64;
        for (page, starts) in starts.windows(PAGE_BUCKETS + 1).step_by(PAGE_BUCKETS).enumerate() {
            let begin = bytes.len();
            bytes.extend(starts.iter().flat_map(|start| start.to_le_bytes()));
            seal(&mut bytes, begin, Part::Directory, page);
        }
        let leaves_at = bytes.len() as u64;
        let mut entries = Vec::new();
        let mut times = (u64::MAX, 0);
        for run in runs {
            let begin = bytes.len();
            entries.push(Run {
                first_offset: run.offsets.first().copied().unwrap_or_default(),
                leaves_at: (begin as u64 - leaves_at) as u32,
                times: run.times,
            });
            times = (run.times.0.min(times.0), run.times.1.max(times.1));
            for pair in run.offsets.windows(2) {
                write_varint(&mut bytes, u64::from(pair[1].wrapping_sub(pair[0])));
            }
            seal(&mut bytes, begin, Part::Leaves, entries.len() - 1);
        }
        let runs_at = bytes.len() as u64;
        entries.push(Run {
            first_offset: 0,
            leaves_at: (runs_at - leaves_at) as u32,
            times: (0, 0),
        });
        for (number, run) in entries.iter().enumerate() {
            let begin = bytes.len();
            bytes.extend(run.first_offset.to_le_bytes());
            bytes.extend(run.leaves_at.to_le_bytes());
            bytes.extend(run.times.0.to_le_bytes());
            bytes.extend(run.times.1.to_le_bytes());
            bytes.extend([0; 4]);
            seal(&mut bytes, begin, Part::Run, number);
        }
        let header = Header {
            check: self.check,
            first: self.first,
            places: self.places,
            hash_bits: self.hash_bits,
            bucket_bits,
            rows: written,
            times,
            directory_at,
            leaves_at,
            runs_at,
            end: bytes.len() as u64,
        };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "this names no file");
            return Err(IndexError::io(path)(error));
        };
        durable::write_file(folder, name, &bytes).map_err(IndexError::io(path))
    }
}

/// Packs groups of rows into buckets.
struct BucketWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// Where each bucket that was begun begins, behind the header.
    starts: Vec<u32>,
    hash_bits: u32,
    bucket_bits: u32,
    /// The hash that would have nothing skipped before it.
    next_hash: u64,
}

impl<'a> BucketWriter<'a> {
    fn new(bytes: &'a mut Vec<u8>, hash_bits: u32, bucket_bits: u32) -> Self {
        Self {
            bytes,
            starts: vec![0],
            hash_bits,
            bucket_bits,
            next_hash: 0,
        }
    }

    fn write(&mut self, hash: u64, places: &[u32]) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return;
        };
        let bucket = (hash >> (64 - self.bucket_bits)) as usize;
        while self.starts.len() <= bucket {
            self.end_bucket();
        }
        let hash = hash_in_bucket(hash, self.hash_bits, self.bucket_bits);
        let bitmap_bytes = ((last - first) / 8 + 1) as usize;
        let form = match places.len() {
            1 => ONE,
            // A place that is listed takes at least a byte.
            listed if bitmap_bytes < listed => BITMAP,
            _ => LIST,
        };
        write_varint(self.bytes, (hash - self.next_hash) << FORM_BITS | form);
        self.next_hash = hash + 1;
        match form {
            ONE => write_varint(self.bytes, u64::from(*first)),
            BITMAP => {
                write_varint(self.bytes, u64::from(*first));
                write_varint(self.bytes, bitmap_bytes as u64);
                let begin = self.bytes.len();
                self.bytes.resize(begin + bitmap_bytes, 0);
                for place in places {
                    let bit = (place - first) as usize;
                    self.bytes[begin + bit / 8] |= 1 << (bit % 8);
                }
            }
            _ => {
                write_varint(self.bytes, places.len() as u64 - 2);
                let mut next_place = 0;
                for place in places {
                    write_varint(self.bytes, u64::from(place - next_place));
                    next_place = place + 1;
                }
            }
        }
    }

    fn end_bucket(&mut self) {
        let begin = self.starts.last().map_or(0, |start| *start as usize) + HEADER_BYTES;
        if self.bytes.len() > begin {
            seal(self.bytes, begin, Part::Bucket, self.starts.len() - 1);
        }
        self.starts.push((self.bytes.len() - HEADER_BYTES) as u32);
        self.next_hash = 0;
    }

    fn finish(mut self) -> Vec<u32> {
        while self.starts.len() <= 1 << self.bucket_bits {
            self.end_bucket();
        }
        self.starts
    }
}

// === impl Header ===

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.check.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.places.to_le_bytes());
        bytes.extend([self.hash_bits as u8, self.bucket_bits as u8, 0, 0]);
        for number in [
            self.rows,
            self.times.0,
            self.times.1,
            self.directory_at,
            self.leaves_at,
            self.runs_at,
            self.end,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES - CRC_BYTES, 0);
        seal(&mut bytes, 0, Part::Header, 0);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.strip_prefix(MAGIC)?);
        Some(Self {
            check: fields.u64()?,
            first: fields.u64()?,
            places: fields.u32()?,
            hash_bits: fields.u8()?,
            bucket_bits: fields.u8()?,
            rows: {
                let _zero = (fields.u8()?, fields.u8()?);
                fields.u64()?
            },
            times: (fields.u64()?, fields.u64()?),
            directory_at: fields.u64()?,
            leaves_at: fields.u64()?,
            runs_at: fields.u64()?,
            end: fields.u64()?,
        })
    }

    pub(super) fn runs(&self) -> usize {
        self.places.div_ceil(RUN_PLACES) as usize
    }

    fn is_possible(&self) -> bool {
        let bits = self.bucket_bits <= self.hash_bits && self.hash_bits <= HASH_BITS && self.bucket_bits >= PAGE_BITS;
        let pages = bits && self.leaves_at.checked_sub(self.directory_at) == Some(self.pages() * PAGE_BYTES as u64);
        let runs = (self.runs() as u64 + 1) * RUN_BYTES as u64;
        pages && self.leaves_at <= self.runs_at && self.end.checked_sub(self.runs_at) == Some(runs)
    }

    fn pages(&self) -> u64 {
        1 << (self.bucket_bits - PAGE_BITS)
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, IndexError> {
        let damaged = |what| IndexError::Damaged {
            path: path.to_owned(),
            what,
        };
        let file = File::open(path).map_err(IndexError::io(path))?;
        let length = file.metadata().map_err(IndexError::io(path))?.len();
        if length < HEADER_BYTES as u64 {
            return Err(damaged("it is shorter than an index"));
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(IndexError::io(path))?;
        let bytes = unseal(&bytes, Part::Header, 0).ok_or_else(|| damaged("its header is damaged"))?;
        let header = Header::decode(bytes)
            .filter(Header::is_possible)
            .ok_or_else(|| damaged("it is no index that this version can read"))?;
        if length != header.end {
            return Err(damaged("it was cut short, or something was added to it"));
        }
        Ok(Self { path, file, header })
    }

    /// The places of one hash (its bits at the top of the number), in order.
    pub(super) fn places(&self, hash: u64) -> Result<Vec<u32>, IndexError> {
        let Header {
            hash_bits, bucket_bits, ..
        } = self.header;
        let bucket = (hash >> (64 - bucket_bits)) as usize;
        let wanted = hash_in_bucket(hash, hash_bits, bucket_bits);
        let starts = self.page(bucket / PAGE_BUCKETS)?;
        let mut found = Vec::new();
        self.groups(bucket, &starts, |hash, places| {
            if hash == wanted {
                found.extend_from_slice(places);
            }
            hash < wanted
        })?;
        Ok(found)
    }

    /// Every row in order, its hash at the top of the number.
    pub(super) fn rows(&self) -> Result<Vec<u64>, IndexError> {
        let Header {
            hash_bits, bucket_bits, ..
        } = self.header;
        let mut rows = Vec::new();
        for page in 0..self.header.pages() as usize {
            let starts = self.page(page)?;
            for bucket in page * PAGE_BUCKETS..(page + 1) * PAGE_BUCKETS {
                self.groups(bucket, &starts, |hash, places| {
                    let hash = (bucket as u64) << (64 - bucket_bits) | hash << (64 - hash_bits);
                    rows.extend(places.iter().map(|place| hash | u64::from(*place)));
                    true
                })?;
            }
        }
        Ok(rows)
    }

    /// Where each leaf of a run begins.
    pub(super) fn offsets(&self, run: usize) -> Result<Vec<u32>, IndexError> {
        let [entry, next] = self.run_entries(run, 2)?[..] else {
            return Err(self.damaged(UNREADABLE));
        };
        let from = self.header.leaves_at + u64::from(entry.leaves_at);
        let bytes = self.part(
            from,
            self.header.leaves_at + u64::from(next.leaves_at),
            Part::Leaves,
            run,
        )?;
        let count = (self.header.places as usize - run * RUN_PLACES as usize).min(RUN_PLACES as usize);
        let mut offsets = Vec::with_capacity(count);
        let mut offset = entry.first_offset;
        let mut fields = Fields(&bytes);
        offsets.push(offset);
        while offsets.len() < count {
            let distance = fields.varint().ok_or_else(|| self.damaged(UNREADABLE))?;
            offset = offset.wrapping_add(distance as u32);
            offsets.push(offset);
        }
        Ok(offsets)
    }

    /// The earliest and the latest instant of each run.
    pub(super) fn run_times(&self) -> Result<Vec<(u64, u64)>, IndexError> {
        let runs = self.run_entries(0, self.header.runs())?;
        Ok(runs.into_iter().map(|run| run.times).collect())
    }

    fn run_entries(&self, first: usize, count: usize) -> Result<Vec<Run>, IndexError> {
        let mut bytes = vec![0; count * RUN_BYTES];
        let from = self.header.runs_at + (first * RUN_BYTES) as u64;
        self.file
            .read_exact_at(&mut bytes, from)
            .map_err(IndexError::io(self.path))?;
        bytes
            .chunks(RUN_BYTES)
            .enumerate()
            .map(|(number, bytes)| {
                let bytes = unseal(bytes, Part::Run, first + number).ok_or_else(|| self.damaged(WRONG_CRC))?;
                Run::decode(bytes).ok_or_else(|| self.damaged(UNREADABLE))
            })
            .collect()
    }

    /// Where each bucket of a page begins, and where the last one ends.
    fn page(&self, page: usize) -> Result<Vec<u32>, IndexError> {
        let from = self.header.directory_at + (page * PAGE_BYTES) as u64;
        let bytes = self.part(from, from + PAGE_BYTES as u64, Part::Directory, page)?;
        let mut fields = Fields(&bytes);
        (0..=PAGE_BUCKETS)
            .map(|_| fields.u32().ok_or_else(|| self.damaged(UNREADABLE)))
            .collect()
    }

    /// Calls `visit` with each hash of a bucket and its places, until it says no.
    fn groups(
        &self,
        bucket: usize,
        page: &[u32],
        mut visit: impl FnMut(u64, &[u32]) -> bool,
    ) -> Result<(), IndexError> {
        let slot = bucket % PAGE_BUCKETS;
        let (Some(from), Some(until)) = (page.get(slot), page.get(slot + 1)) else {
            return Err(self.damaged(UNREADABLE));
        };
        if from == until {
            return Ok(());
        }
        let header = HEADER_BYTES as u64;
        let bytes = self.part(
            header + u64::from(*from),
            header + u64::from(*until),
            Part::Bucket,
            bucket,
        )?;
        let mut fields = Fields(&bytes);
        let mut next_hash = 0;
        let mut places = Vec::new();
        while !fields.0.is_empty() {
            let hash = fields
                .group(&mut next_hash, &mut places)
                .ok_or_else(|| self.damaged(UNREADABLE))?;
            if !visit(hash, &places) {
                break;
            }
        }
        Ok(())
    }

    /// Reads what ends with a checksum.
    fn part(&self, from: u64, until: u64, part: Part, number: usize) -> Result<Vec<u8>, IndexError> {
        let length = until
            .checked_sub(from)
            .filter(|_| until <= self.header.end)
            .ok_or_else(|| self.damaged(UNREADABLE))?;
        let mut bytes = vec![0; length as usize];
        self.file
            .read_exact_at(&mut bytes, from)
            .map_err(IndexError::io(self.path))?;
        let kept = unseal(&bytes, part, number)
            .ok_or_else(|| self.damaged(WRONG_CRC))?
            .len();
        bytes.truncate(kept);
        Ok(bytes)
    }

    fn damaged(&self, what: &'static str) -> IndexError {
        IndexError::Damaged {
            path: self.path.to_owned(),
            what,
        }
    }
}

// === impl Run ===

impl Run {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            first_offset: fields.u32()?,
            leaves_at: fields.u32()?,
            times: (fields.u64()?, fields.u64()?),
        })
    }
}

/// Takes numbers off the front of bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u8(&mut self) -> Option<u32> {
        self.take().map(|[byte]| u32::from(byte))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn place(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok().filter(|place| *place <= PLACE_MASK)
    }

    fn group(&mut self, next_hash: &mut u64, places: &mut Vec<u32>) -> Option<u64> {
        let head = self.varint()?;
        let hash = next_hash.checked_add(head >> FORM_BITS)?;
        *next_hash = hash.checked_add(1)?;
        places.clear();
        match head & FORM_MASK {
            ONE => places.push(self.place()?),
            LIST => {
                let count = self.varint()?.checked_add(2)?;
                let mut next_place = 0_u32;
                for _ in 0..count {
                    let place = next_place.checked_add(self.place()?)?;
                    places.push(place);
                    next_place = place.checked_add(1)?;
                }
            }
            BITMAP => {
                let first = self.place()?;
                let length = usize::try_from(self.varint()?).ok()?;
                let (bitmap, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                for (place, byte) in (first..).step_by(8).zip(bitmap) {
                    let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
                    places.extend(set.map(|bit| place + bit));
                }
            }
            _ => return None,
        }
        Some(hash)
    }
}

fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn hash_in_bucket(row: u64, hash_bits: u32, bucket_bits: u32) -> u64 {
    row << bucket_bits >> bucket_bits >> (64 - hash_bits)
}

/// What kinds of parts a file has.
#[derive(Debug, Clone, Copy)]
enum Part {
    Header = 1,
    Bucket = 2,
    Directory = 3,
    Leaves = 4,
    Run = 5,
}

/// Ends the part that begins at `begin` with its checksum.
fn seal(bytes: &mut Vec<u8>, begin: usize, part: Part, number: usize) {
    let crc = crc_of(&bytes[begin..], part, number);
    bytes.extend(crc.to_le_bytes());
}

fn unseal(bytes: &[u8], part: Part, number: usize) -> Option<&[u8]> {
    let (bytes, crc) = bytes.split_last_chunk()?;
    (crc_of(bytes, part, number) == u32::from_le_bytes(*crc)).then_some(bytes)
}

fn crc_of(bytes: &[u8], part: Part, number: usize) -> u32 {
    let seed = crc32c::crc32c(&[part as u8]);
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &(number as u64).to_le_bytes()), bytes)
}

const MAGIC: &[u8] = b"CRDIDX01";
const HEADER_BYTES: usize = 128;
const CRC_BYTES: usize = 4;
/// Places whose leaves and times are kept together.
pub const RUN_PLACES: u32 = 256;
const RUN_BYTES: usize = 32;
const PAGE_BITS: u32 = 6;
const PAGE_BUCKETS: usize = 1 << PAGE_BITS;
const PAGE_BYTES: usize = (PAGE_BUCKETS + 1) * 4 + CRC_BYTES;
/// So that a bucket is about half a page of the disk.
const ROWS_A_BUCKET: usize = 256;
const SPARE_HASH_BITS: u32 = 8;
const FORM_BITS: u32 = 2;
const FORM_MASK: u64 = (1 << FORM_BITS) - 1;
const ONE: u64 = 0;
const LIST: u64 = 1;
const BITMAP: u64 = 2;
const LEAST_HASH_BITS: u32 = 16;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const WRONG_CRC: &str = "a part of it is damaged";
const UNREADABLE: &str = "a part of it can not be read";
