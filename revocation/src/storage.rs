//! The revocation log on disk: one frame for each group of records that became durable together.
//!
//! ```text
//! file      = beginning? group*
//! beginning = head records* marks*      of a compacted file: the state at one position, and the marks of the positions
//!                                       before it (see `trail`)
//! group     = the number of its first record, encoded records, the digest after them, and where each comes from
//! ```

use std::cell::Cell;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;

use crate::data_folder::LogId;
use crate::digest::Digest;
use crate::provenance::Provenance;
use crate::state::FrozenState;
use crate::trail::Trail;
use credence_storage::durable;
use credence_storage::frames::{AppendError, FrameError, FrameFile, FrameKind, FrameReader, HEADER_LEN, TornTail};

/// The open log file. Its owner is the only one who appends.
#[derive(Debug)]
pub struct Storage {
    file: FrameFile,
    path: PathBuf,
    kind: FrameKind,
    /// Where the first group lies.
    groups_from: u64,
    last_seq: u64,
    digest: Digest,
}

/// What takes a log in that is being opened.
pub trait Replay {
    /// The state that the log begins with, one record after the other.
    fn state(&mut self, seq: u64, record: v1::Record) -> Result<(), &'static str>;
    /// That was all of it.
    fn begin(&mut self, trail: Trail);
    /// The next record, and the digest of the history up to it.
    fn record(&mut self, record: EncodedRecord, digest: Digest) -> Result<(), &'static str>;
    /// That was all.
    fn end(&mut self);
}

/// How far a log is known to have been acknowledged. What is missing below it is damage; only above it may a broken
/// end be a write that a crash interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub(crate) seq: u64,
    pub(crate) digest: Digest,
}

// === impl Head ===

impl Head {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (seq, digits) = text.strip_suffix('\n')?.split_once(' ')?;
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return None;
        }
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self {
            seq: seq.parse().ok()?,
            digest: Digest::from_bytes(digest),
        })
    }
}

impl fmt::Display for Head {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ", self.seq)?;
        for byte in self.digest.as_bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        writeln!(formatter)
    }
}

/// A record with the bytes that the digest chain runs over.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedRecord {
    pub(crate) record: v1::Record,
    pub(crate) bytes: Bytes,
}

/// A group of records as it was stored, for whoever reads along.
#[derive(Debug)]
pub(crate) struct StoredGroup {
    pub(crate) records: Vec<(u64, v1::Record, Option<Provenance>)>,
    pub(crate) digest: Vec<u8>,
}

/// Creates the file of a new log, with a first record that voids every root issued up to `floor` (seconds since the
/// Unix epoch), if there is one.
pub(crate) fn create(path: &Path, log_id: &LogId, floor: Option<i64>) -> io::Result<()> {
    let mut storage = Storage {
        file: FrameFile::create(path, FrameKind::Revocations)?,
        path: path.to_owned(),
        kind: FrameKind::Revocations,
        groups_from: HEADER_LEN,
        last_seq: 0,
        digest: Digest::start(log_id),
    };
    if let Some(issued_up_to) = floor {
        let floor = v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
        };
        storage.append(&[floor.into()], &[]).map_err(io::Error::other)?;
    }
    Ok(())
}

// === impl Storage ===

impl Storage {
    /// Opens the log and hands all it holds to `replay`. A log that does not continue the one that was `noted` is
    /// damaged, and left as it is.
    pub fn open(
        path: &Path,
        log_id: &LogId,
        noted: Option<&Head>,
        replay: &mut impl Replay,
    ) -> Result<(Self, Option<TornTail>), FrameError> {
        let kind = kind_of(path);
        let last_seq = Cell::new(0);
        let mut digest = Digest::start(log_id);
        let mut groups_from = HEADER_LEN;
        let beginning = Cell::new(match kind {
            FrameKind::CompactedRevocations => Beginning::Missing,
            FrameKind::Revocations | FrameKind::Ledger => Beginning::Over,
        });
        let mut missing = Missing::default();
        let is_complete = || match noted {
            _ if beginning.get() != Beginning::Over => Err("the compacted beginning of the log is not whole"),
            Some(noted) if last_seq.get() < noted.seq => Err("it ends before the last entry that was acknowledged"),
            _ => Ok(()),
        };
        let (file, torn) = FrameFile::open(path, kind, is_complete, |frame| {
            let end = frame.end();
            let payload = Bytes::from(frame.payload);
            if beginning.get() == Beginning::Over {
                let stored = ReplayedRecords::decode(payload).map_err(|_| "the frame does not hold records")?;
                if stored.first_seq != last_seq.get() + 1 {
                    return Err("the records do not follow the ones before them");
                }
                for bytes in stored.records {
                    let record =
                        v1::Record::decode(bytes.clone()).map_err(|_| "a record that this version can not read")?;
                    last_seq.set(last_seq.get() + 1);
                    digest = digest.after(&bytes);
                    if noted.is_some_and(|noted| noted.seq == last_seq.get() && noted.digest != digest) {
                        return Err("the history up to here is not the one that was acknowledged");
                    }
                    replay.record(EncodedRecord { record, bytes }, digest)?;
                }
                if stored.digest != digest.as_bytes() {
                    return Err("the records do not continue this log's history");
                }
                return Ok(());
            }
            let part = StoredBeginning::decode(payload)
                .ok()
                .and_then(|stored| stored.part)
                .ok_or("the frame does not hold a part of the log's beginning")?;
            match part {
                Part::Head(head) => {
                    if head.log_id != log_id.as_str() {
                        return Err("this is another log's file");
                    }
                    let bytes = head
                        .digest
                        .as_slice()
                        .try_into()
                        .map_err(|_| "a digest of impossible length")?;
                    digest = Digest::from_bytes(bytes);
                    last_seq.set(head.seq);
                    missing = Missing {
                        records: head.records,
                        marks: usize::try_from(head.marks).map_err(|_| "too many marks")?,
                        found: Vec::new(),
                    };
                    beginning.set(Beginning::Read);
                }
                Part::Records(stored) => {
                    if stored.records.len() != stored.seqs.len() {
                        return Err("records without their numbers");
                    }
                    missing.take_records(stored.records.len())?;
                    for (seq, bytes) in stored.seqs.into_iter().zip(stored.records) {
                        let record =
                            v1::Record::decode(bytes).map_err(|_| "a record that this version can not read")?;
                        replay.state(seq, record)?;
                    }
                }
                Part::Marks(marks) => missing.take_marks(&marks)?,
            }
            if beginning.get() == Beginning::Read && missing.is_all_there() {
                let trail = Trail::resume(last_seq.get(), digest, &missing.found)?;
                missing = Missing::default();
                if noted.is_some_and(|noted| is_foreign(&trail, noted)) {
                    return Err("the history up to here is not the one that was acknowledged");
                }
                replay.begin(trail);
                groups_from = end;
                beginning.set(Beginning::Over);
            }
            Ok(())
        })?;
        replay.end();
        let storage = Self {
            file,
            path: path.to_owned(),
            kind,
            groups_from,
            last_seq: last_seq.get(),
            digest,
        };
        Ok((storage, torn))
    }

    /// Appends records behind the last one, with what is known about where they come from: of all or of none. They are
    /// durable on return.
    pub(crate) fn append(&mut self, records: &[EncodedRecord], provenance: &[Provenance]) -> Result<(), AppendError> {
        let digest = records
            .iter()
            .fold(self.digest, |digest, record| digest.after(&record.bytes));
        let stored = StoredRecords {
            first_seq: self.last_seq + 1,
            records: records.iter().map(|record| record.bytes.clone()).collect(),
            digest: digest.as_bytes().to_vec(),
            provenance: provenance.to_vec(),
        };
        self.file.append(&stored.encode_to_vec())?;
        self.last_seq += records.len() as u64;
        self.digest = digest;
        Ok(())
    }

    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.end()
    }

    /// Where the groups of the file lie: from here up to its end.
    pub(crate) fn groups_from(&self) -> u64 {
        self.groups_from
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.file.is_broken()
    }

    /// Opens the present file for reading groups.
    pub(crate) fn reader(&self) -> Result<GroupReader, FrameError> {
        Ok(GroupReader(FrameReader::open(&self.path, self.kind)?))
    }

    /// Goes on in the compacted file that holds everything up to some byte of the `present` one: copies what has come
    /// since, and puts it into the present one's place. Returns what reads it. Whatever fails before that leaves the
    /// present file as it is; if it is not known afterwards which of the two is there, nothing more is written.
    pub(crate) fn switch(
        &mut self,
        mut compacted: Compacted,
        present: &GroupReader,
        observe: Observer<'_>,
    ) -> io::Result<GroupReader> {
        compacted.copy(present, self.bytes())?;
        compacted.file.sync()?;
        observe(Step::Synced)?;
        let reader = FrameReader::open(compacted.file.path(), FrameKind::CompactedRevocations)
            .map_err(io::Error::other)?
            .called(&self.path);
        compacted.file.rename(&self.path)?;
        self.file = compacted.file;
        self.kind = FrameKind::CompactedRevocations;
        self.groups_from = compacted.groups_from;
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let settled = observe(Step::Renamed).and_then(|()| durable::sync_folder(folder));
        settled.inspect_err(|_| self.file.give_up())?;
        Ok(GroupReader(reader))
    }
}

/// What a compacted file begins with: the log at one instant.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) log_id: LogId,
    pub(crate) state: FrozenState,
    pub(crate) trail: Trail,
    /// Up to where the present file holds nothing but what the cut has.
    pub(crate) offset: u64,
}

/// A file that will take the present one's place.
#[derive(Debug)]
pub(crate) struct Compacted {
    file: FrameFile,
    groups_from: u64,
    /// Up to which byte of the present file its groups have been copied.
    copied: u64,
}

/// Is told of each step of a compaction, and ends it with an error: because the process stops, or for tests that crash
/// after each step.
pub(crate) type Observer<'a> = &'a mut dyn FnMut(Step) -> io::Result<()>;

/// What has been done of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The new file is there, and empty.
    Created,
    /// A part of the state is written.
    StateWritten,
    /// All that the cut holds is written.
    BeginningWritten,
    /// The groups that have come meanwhile are copied, and the new file is durable.
    Synced,
    /// It has the old one's name, which a crash may still undo.
    Renamed,
}

// === impl Compacted ===

impl Compacted {
    /// Writes the beginning of a compacted file. `path` is its name until it is whole; a file that an interrupted
    /// compaction left there is removed.
    pub(crate) fn begin(path: &Path, cut: &Cut, observe: Observer<'_>) -> io::Result<Self> {
        remove_leftover(path)?;
        let mut file = FrameFile::create(path, FrameKind::CompactedRevocations)?;
        observe(Step::Created)?;
        let mut write = |part| file.write(&StoredBeginning { part: Some(part) }.encode_to_vec());
        write(Part::Head(BeginningHead {
            log_id: cut.log_id.to_string(),
            seq: cut.trail.head(),
            digest: cut.trail.digest().as_bytes().to_vec(),
            records: cut.state.len() as u64,
            marks: cut.trail.len() as u64,
        }))?;
        let mut part = BeginningRecords::default();
        let mut bytes = 0;
        for (seq, record) in cut.state.records() {
            let encoded = Bytes::from(record.encode_to_vec());
            bytes += encoded.len();
            part.seqs.push(seq);
            part.records.push(encoded);
            if bytes >= PART_BYTES {
                bytes = 0;
                write(Part::Records(std::mem::take(&mut part)))?;
                observe(Step::StateWritten)?;
            }
        }
        if !part.records.is_empty() {
            write(Part::Records(part))?;
        }
        let mut marks = Vec::with_capacity(PART_BYTES);
        for mark in cut.trail.marks() {
            marks.extend_from_slice(&mark.to_be_bytes());
            if marks.len() >= PART_BYTES {
                write(Part::Marks(std::mem::take(&mut marks).into()))?;
            }
        }
        if !marks.is_empty() {
            write(Part::Marks(marks.into()))?;
        }
        observe(Step::BeginningWritten)?;
        Ok(Self {
            groups_from: file.end(),
            file,
            copied: cut.offset,
        })
    }

    /// Copies the groups of the present file up to `until`.
    pub(crate) fn copy(&mut self, present: &GroupReader, until: u64) -> io::Result<()> {
        while self.copied < until {
            let frame = present.0.frame(self.copied, until).map_err(io::Error::other)?;
            self.file.write(&frame.payload)?;
            self.copied = frame.end();
        }
        Ok(())
    }

    /// Writes one more record behind a `trail`, of which nobody says where it comes from.
    pub(crate) fn append(&mut self, trail: &Trail, record: EncodedRecord) -> io::Result<()> {
        let stored = StoredRecords {
            first_seq: trail.head() + 1,
            digest: trail.digest().after(&record.bytes).as_bytes().to_vec(),
            records: vec![record.bytes],
            provenance: Vec::new(),
        };
        self.file.write(&stored.encode_to_vec())
    }

    /// How many bytes of the present file, which has so many, are not copied yet.
    pub(crate) fn missing(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.copied)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Whether a file of so many `bytes` is to be compacted that has to hold only the `needed` ones: never below a size,
/// and beyond it once a third of the file is superseded. A start reads the whole file, so that this bounds what it
/// reads; and it bounds what compacting writes to twice what made it necessary.
pub(crate) fn is_worth_compacting(bytes: u64, needed: u64, above: u64) -> bool {
    bytes > above && bytes - bytes / 3 > needed
}

/// Removes what an interrupted compaction left behind.
pub fn remove_leftover(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads the groups of a log file that is being appended to.
#[derive(Debug)]
pub(crate) struct GroupReader(FrameReader);

// === impl GroupReader ===

impl GroupReader {
    /// The group at `offset` of a file that is whole up to `until`, and the offset behind it.
    pub(crate) fn group(&self, offset: u64, until: u64) -> Result<(StoredGroup, u64), FrameError> {
        let frame = self.0.frame(offset, until)?;
        let end = frame.end();
        let decoded = StoredRecords::decode(Bytes::from(frame.payload)).and_then(|stored| {
            let provenance = stored.provenance.into_iter().map(Some).chain(std::iter::repeat(None));
            let records = stored.records.into_iter().zip(stored.first_seq..).zip(provenance);
            let records = records.map(|((bytes, seq), provenance)| Ok((seq, v1::Record::decode(bytes)?, provenance)));
            Ok(StoredGroup {
                records: records.collect::<Result<_, prost::DecodeError>>()?,
                digest: stored.digest,
            })
        });
        match decoded {
            Ok(group) => Ok((group, end)),
            Err(_) => Err(self.0.corrupt(offset, "the frame does not hold records")),
        }
    }
}

/// Whether a note tells of a history that is not this one. One from before the oldest mark proves nothing.
fn is_foreign(trail: &Trail, noted: &Head) -> bool {
    trail.standing(noted.seq, noted.digest.as_bytes()) == crate::trail::Standing::Diverged
}

/// Which of the two kinds of log a file is; one that is neither is refused when it is opened as the older.
fn kind_of(path: &Path) -> FrameKind {
    match FrameReader::open(path, FrameKind::CompactedRevocations) {
        Ok(_) => FrameKind::CompactedRevocations,
        Err(_) => FrameKind::Revocations,
    }
}

/// How far the beginning of a compacted file has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    Missing,
    Read,
    Over,
}

/// What is still to come of the beginning.
#[derive(Debug, Default)]
struct Missing {
    records: u64,
    marks: usize,
    found: Vec<u64>,
}

// === impl Missing ===

impl Missing {
    fn take_records(&mut self, count: usize) -> Result<(), &'static str> {
        self.records = self
            .records
            .checked_sub(count as u64)
            .ok_or("more records than the log's beginning has")?;
        Ok(())
    }

    fn take_marks(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let (marks, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || self.found.len() + marks.len() > self.marks {
            return Err("more marks than the log's beginning has");
        }
        self.found.extend(marks.iter().map(|mark| u64::from_be_bytes(*mark)));
        Ok(())
    }

    fn is_all_there(&self) -> bool {
        self.records == 0 && self.found.len() == self.marks
    }
}

impl From<v1::Record> for EncodedRecord {
    fn from(record: v1::Record) -> Self {
        Self {
            bytes: record.encode_to_vec().into(),
            record,
        }
    }
}

/// The payload of a group's frame.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredRecords {
    #[prost(uint64, tag = "1")]
    first_seq: u64,
    /// Encoded `credence.v1.Record`s: kept as bytes, for the digest runs over them.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    records: Vec<Bytes>,
    /// The chain's digest after the last of them.
    #[prost(bytes = "vec", tag = "3")]
    digest: Vec<u8>,
    /// One for each record; none in what versions before the histories wrote, and in a new log's own floor.
    #[prost(message, repeated, tag = "4")]
    provenance: Vec<Provenance>,
}

/// A group as it is read at the start: without where each record comes from, which is half of the work.
#[derive(Clone, PartialEq, prost::Message)]
struct ReplayedRecords {
    #[prost(uint64, tag = "1")]
    first_seq: u64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    records: Vec<Bytes>,
    #[prost(bytes = "vec", tag = "3")]
    digest: Vec<u8>,
}

/// The payload of a frame in a compacted file's beginning.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredBeginning {
    #[prost(oneof = "Part", tags = "1, 2, 3")]
    part: Option<Part>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Part {
    #[prost(message, tag = "1")]
    Head(BeginningHead),
    #[prost(message, tag = "2")]
    Records(BeginningRecords),
    /// Eight bytes each, big-endian, the oldest first.
    #[prost(bytes = "bytes", tag = "3")]
    Marks(Bytes),
}

#[derive(Clone, PartialEq, prost::Message)]
struct BeginningHead {
    #[prost(string, tag = "1")]
    log_id: String,
    /// The position that the log begins at.
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(bytes = "vec", tag = "3")]
    digest: Vec<u8>,
    /// How many records and marks follow.
    #[prost(uint64, tag = "4")]
    records: u64,
    #[prost(uint64, tag = "5")]
    marks: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BeginningRecords {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    records: Vec<Bytes>,
    /// The number that each once had.
    #[prost(uint64, repeated, tag = "2")]
    seqs: Vec<u64>,
}

/// What goes into one frame of a beginning, about.
const PART_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Operation, Order, Requester, Source, Thumbprint};
    use crate::trail::Standing;
    use crate::view::{HistoryBounds, View};

    fn key(letter: &str) -> EncodedRecord {
        v1::Record {
            subject: Some(Subject::Key(v1::RevokedKey {
                thumbprint: letter.repeat(43),
            })),
        }
        .into()
    }

    /// What a log was opened with: the state and the trail that it began with, if it was compacted, and its records.
    #[derive(Debug, Default)]
    struct Seen {
        state: Vec<(u64, v1::Record)>,
        trail: Option<Trail>,
        records: Vec<(u64, EncodedRecord)>,
    }

    impl Replay for Seen {
        fn state(&mut self, seq: u64, record: v1::Record) -> Result<(), &'static str> {
            self.state.push((seq, record));
            Ok(())
        }

        fn begin(&mut self, trail: Trail) {
            self.trail = Some(trail);
        }

        fn record(&mut self, record: EncodedRecord, _: Digest) -> Result<(), &'static str> {
            let before = self.trail.as_ref().map_or(0, Trail::head);
            self.records.push((before + self.records.len() as u64 + 1, record));
            Ok(())
        }

        fn end(&mut self) {}
    }

    fn open(
        path: &Path,
        log_id: &LogId,
        noted: Option<&Head>,
    ) -> Result<(Storage, Seen, Option<TornTail>), FrameError> {
        let mut seen = Seen::default();
        let (storage, torn) = Storage::open(path, log_id, noted, &mut seen)?;
        Ok((storage, seen, torn))
    }

    fn read(path: &Path, log_id: &LogId) -> Result<Vec<(u64, EncodedRecord)>, FrameError> {
        Ok(open(path, log_id, None)?.1.records)
    }

    #[test]
    fn a_new_log_begins_with_its_floor() {
        let folder = tempfile::tempdir().unwrap();
        let log_id = LogId::random().unwrap();
        create(&folder.path().join("with"), &log_id, Some(77)).unwrap();
        create(&folder.path().join("without"), &log_id, None).unwrap();
        let records = read(&folder.path().join("with"), &log_id).unwrap();
        let floor = v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to: 77 })),
        };
        assert_eq!(records, [(1, floor.into())]);
        assert_eq!(read(&folder.path().join("without"), &log_id).unwrap(), []);
    }

    #[test]
    fn records_keep_their_order_and_numbers_across_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log_id = LogId::random().unwrap();
        create(&path, &log_id, None).unwrap();
        let (mut storage, ..) = open(&path, &log_id, None).unwrap();
        storage.append(&[key("A"), key("E")], &[]).unwrap();
        storage.append(&[key("I")], &[]).unwrap();
        drop(storage);
        assert_eq!(
            read(&path, &log_id).unwrap(),
            [(1, key("A")), (2, key("E")), (3, key("I"))]
        );
    }

    /// A log of two groups, and the head that was noted after both.
    fn noted_log(folder: &Path) -> (LogId, Head) {
        let log_id = LogId::random().unwrap();
        create(&folder.join("log"), &log_id, None).unwrap();
        let (mut storage, ..) = open(&folder.join("log"), &log_id, None).unwrap();
        storage.append(&[key("A")], &[]).unwrap();
        storage.append(&[key("E")], &[]).unwrap();
        let head = Head {
            seq: storage.last_seq,
            digest: storage.digest,
        };
        (log_id, head)
    }

    #[test]
    fn a_flipped_bit_or_a_cut_in_the_last_acknowledged_group_is_damage_and_not_a_torn_tail() {
        for edit in [
            |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
            |bytes: &mut Vec<u8>| {
                bytes.truncate(bytes.len() - 70);
            },
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let (log_id, head) = noted_log(folder.path());
            let mut bytes = std::fs::read(&path).unwrap();
            edit(&mut bytes);
            std::fs::write(&path, &bytes).unwrap();
            let error = open(&path, &log_id, Some(&head)).unwrap_err();
            assert!(matches!(error, FrameError::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains("was acknowledged"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "it was changed");
        }
    }

    #[test]
    fn a_torn_tail_behind_the_noted_head_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log_id, head) = noted_log(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend([7; 20]);
        std::fs::write(&path, &bytes).unwrap();
        let (storage, _, torn) = open(&path, &log_id, Some(&head)).unwrap();
        assert_eq!((storage.last_seq, torn.map(|torn| torn.bytes)), (2, Some(20)));
    }

    #[test]
    fn a_log_with_another_history_than_the_noted_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (log_id, head) = noted_log(folder.path());
        let other = Head {
            digest: Digest::start(&log_id),
            ..head
        };
        let error = open(&folder.path().join("log"), &log_id, Some(&other)).unwrap_err();
        assert!(
            error.to_string().contains("not the one that was acknowledged"),
            "{error}"
        );
    }

    #[test]
    fn a_note_is_read_back_and_anything_else_is_not_one() {
        let head = Head {
            seq: 77,
            digest: Digest::start(&LogId::random().unwrap()),
        };
        assert_eq!(Head::parse(&head.to_string()), Some(head));
        for wrong in [
            "",
            "77",
            "77 abc\n",
            &head.to_string()[..60],
            head.to_string().trim_end(),
        ] {
            assert_eq!(Head::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn another_logs_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        create(&path, &LogId::random().unwrap(), Some(1)).unwrap();
        let error = read(&path, &LogId::random().unwrap()).unwrap_err().to_string();
        assert!(error.contains("do not continue this log's history"), "{error}");
    }

    /// The key that is revoked as record number `seq`: each is another.
    fn nth_key(seq: u64) -> EncodedRecord {
        use base64::Engine as _;
        let mut thumbprint = [0; 32];
        thumbprint[..8].copy_from_slice(&seq.to_be_bytes());
        let thumbprint = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(thumbprint);
        v1::Record {
            subject: Some(Subject::Key(v1::RevokedKey { thumbprint })),
        }
        .into()
    }

    /// A log in a folder of its own, with the view of all that was acknowledged.
    struct Log {
        folder: tempfile::TempDir,
        log_id: LogId,
        storage: Storage,
        view: View,
    }

    const ALL: HistoryBounds = HistoryBounds {
        entries: usize::MAX,
        bytes: usize::MAX,
    };

    impl Log {
        fn of(records: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let log_id = LogId::random().unwrap();
            create(&folder.path().join("revocations"), &log_id, None).unwrap();
            let mut view = View::new(&log_id, ALL);
            let (storage, _) = Storage::open(&folder.path().join("revocations"), &log_id, None, &mut view).unwrap();
            let mut log = Self {
                folder,
                log_id,
                storage,
                view,
            };
            log.raise(records);
            log
        }

        /// Appends so many records as one group, if there are any.
        fn raise(&mut self, count: u64) {
            let records: Vec<_> = (1..=count).map(|nth| nth_key(self.view.head() + nth)).collect();
            if !records.is_empty() {
                self.storage.append(&records, &[]).unwrap();
            }
            records.into_iter().for_each(|record| self.view.append(record).unwrap());
        }

        fn cut(&self) -> Cut {
            let frozen = self.view.freeze();
            Cut {
                log_id: self.log_id.clone(),
                state: frozen.state,
                trail: frozen.trail,
                offset: self.storage.bytes(),
            }
        }

        fn aside(&self) -> PathBuf {
            self.folder.path().join("revocations.compacting")
        }

        fn compact(&mut self, observe: Observer<'_>) -> io::Result<()> {
            let present = self.storage.reader().unwrap();
            let compacted = Compacted::begin(&self.aside(), &self.cut(), observe)?;
            self.storage.switch(compacted, &present, observe).map(drop)
        }

        /// What a process finds that starts on a copy of the folder.
        fn found_in(&self, folder: &Path) -> (u64, Digest, usize) {
            let mut view = View::new(&self.log_id, ALL);
            remove_leftover(&folder.join("revocations.compacting")).unwrap();
            Storage::open(&folder.join("revocations"), &self.log_id, None, &mut view).unwrap();
            (view.head(), view.digest(), view.state().subjects())
        }

        fn acknowledged(&self) -> (u64, Digest, usize) {
            (self.view.head(), self.view.digest(), self.view.state().subjects())
        }
    }

    fn copy_of(folder: &Path) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }

    #[test]
    fn a_crash_after_any_step_of_a_compaction_loses_nothing() {
        let mut log = Log::of(40_000);
        let folder = log.folder.path().to_owned();
        let mut crashes = Vec::new();
        let present = log.storage.reader().unwrap();
        let mut crash = |step| {
            crashes.push((step, copy_of(&folder)));
            Ok(())
        };
        let compacted = Compacted::begin(&log.aside(), &log.cut(), &mut crash).unwrap();
        // None of these is in the beginning.
        (0..3).for_each(|_| log.raise(1));
        log.storage.switch(compacted, &present, &mut crash).unwrap();
        let steps: Vec<_> = crashes.iter().map(|(step, _)| *step).collect();
        for step in [
            Step::Created,
            Step::StateWritten,
            Step::BeginningWritten,
            Step::Synced,
            Step::Renamed,
        ] {
            assert!(steps.contains(&step), "{step:?} was not reached");
        }
        for (step, copy) in &crashes {
            let found = log.found_in(copy.path());
            if matches!(step, Step::Synced | Step::Renamed) {
                assert_eq!(found, log.acknowledged(), "{step:?}");
            } else {
                assert_eq!(found.0, 40_000, "{step:?}");
            }
        }
        log.raise(1);
        assert_eq!(log.found_in(log.folder.path()), log.acknowledged());
    }

    #[test]
    fn a_compaction_that_fails_before_its_file_is_in_place_leaves_the_log_as_it_was() {
        for failing in [Step::Created, Step::StateWritten, Step::BeginningWritten, Step::Synced] {
            let mut log = Log::of(40_000);
            let mut fail = |step| match step == failing {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            };
            log.compact(&mut fail).unwrap_err();
            log.raise(1);
            assert_eq!(log.found_in(log.folder.path()), log.acknowledged(), "{failing:?}");
            log.compact(&mut |_| Ok(())).unwrap();
            log.raise(1);
            assert_eq!(log.found_in(log.folder.path()), log.acknowledged(), "{failing:?}");
        }
    }

    #[test]
    fn nothing_is_acknowledged_into_a_file_whose_name_may_be_forgotten() {
        let mut log = Log::of(10);
        let mut fail = |step| match step {
            Step::Renamed => Err(io::ErrorKind::Other.into()),
            _ => Ok(()),
        };
        log.compact(&mut fail).unwrap_err();
        let refused = log.storage.append(&[nth_key(11)], &[]);
        assert!(matches!(refused, Err(AppendError::Broken { .. })), "{refused:?}");
        assert_eq!(log.found_in(log.folder.path()), log.acknowledged());
    }

    #[test]
    fn a_log_that_was_compacted_twice_still_knows_every_position() {
        let mut log = Log::of(5_000);
        let at_5_000 = (log.view.head(), log.view.digest());
        log.compact(&mut |_| Ok(())).unwrap();
        log.raise(5_000);
        log.compact(&mut |_| Ok(())).unwrap();
        log.raise(1);
        let mut view = View::new(&log.log_id, ALL);
        Storage::open(&log.folder.path().join("revocations"), &log.log_id, None, &mut view).unwrap();
        let (seq, digest) = at_5_000;
        assert_eq!(view.trail().standing(seq, digest.as_bytes()), Standing::Ours);
        assert_eq!(view.trail().standing(seq + 1, digest.as_bytes()), Standing::Diverged);
        assert_eq!(view.head(), 10_001);
    }

    #[test]
    fn a_compacted_file_that_lacks_a_part_is_damage_and_is_not_cut() {
        let mut log = Log::of(40_000);
        log.compact(&mut |_| Ok(())).unwrap();
        let path = log.folder.path().join("revocations");
        let whole = std::fs::read(&path).unwrap();
        for length in [whole.len() - 1, whole.len() / 2, HEADER_LEN as usize] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = open(&path, &log.log_id, None).unwrap_err();
            assert!(error.to_string().contains("not whole"), "{length}: {error}");
            assert_eq!(std::fs::read(&path).unwrap().len(), length);
        }
    }

    #[test]
    fn a_note_of_another_history_is_noticed_behind_a_compacted_beginning() {
        let mut log = Log::of(100);
        let noted = Head {
            seq: 50,
            digest: Log::of(50).view.digest(),
        };
        log.compact(&mut |_| Ok(())).unwrap();
        let path = log.folder.path().join("revocations");
        let error = open(&path, &log.log_id, Some(&noted)).unwrap_err();
        assert!(
            error.to_string().contains("not the one that was acknowledged"),
            "{error}"
        );
    }

    #[test]
    fn what_stands_beside_a_record_is_read_with_it() {
        let mut log = Log::of(2);
        let order = Order {
            operation: Operation::RevokeKey(Thumbprint::parse("A".repeat(43)).unwrap()),
            by: Requester {
                source: Source::Operator,
                name: "ci".to_owned(),
            },
            reason: Some("lost".to_owned()),
        };
        let offset = log.storage.bytes();
        let provenance = Provenance::of(&order, 77);
        log.storage
            .append(&[nth_key(3)], std::slice::from_ref(&provenance))
            .unwrap();
        let (group, end) = log
            .storage
            .reader()
            .unwrap()
            .group(offset, log.storage.bytes())
            .unwrap();
        assert_eq!(group.records, [(3, nth_key(3).record, Some(provenance))]);
        assert_eq!(end, log.storage.bytes());
    }
}
