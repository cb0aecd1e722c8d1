//! The revocation log on disk: one frame for each group of records that became durable together.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::path::Path;

use credence_wire::v1;
use credence_wire::v1::record::Subject;
use prost::Message as _;

use super::digest::Digest;
use crate::data_folder::LogId;
use crate::frames::{AppendError, FrameError, FrameFile, FrameKind, TornTail};

/// The open log file. Its owner is the only one who appends.
#[derive(Debug)]
pub(crate) struct Storage {
    file: FrameFile,
    last_seq: u64,
    digest: Digest,
}

/// How far a log is known to have been acknowledged. What is missing below it is damage; only above it may a broken
/// end be a write that a crash interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
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
pub(crate) struct EncodedRecord {
    pub(crate) record: v1::Record,
    pub(crate) bytes: Vec<u8>,
}

/// Creates the file of a new log, with a first record that voids every root issued up to `floor` (seconds since the
/// Unix epoch), if there is one.
pub(crate) fn create(path: &Path, log_id: &LogId, floor: Option<i64>) -> io::Result<()> {
    let file = FrameFile::create(path, FrameKind::Revocations)?;
    if let Some(issued_up_to) = floor {
        let mut storage = Storage {
            file,
            last_seq: 0,
            digest: Digest::start(log_id),
        };
        let floor = v1::Record {
            subject: Some(Subject::LogFloor(v1::LogFloor { issued_up_to })),
        };
        storage.append(&[floor.into()]).map_err(io::Error::other)?;
    }
    Ok(())
}

// === impl Storage ===

impl Storage {
    /// Opens the log and hands every record, with its sequence number, to `visit`. A log that does not continue the
    /// one that was `noted` is damaged, and left as it is.
    pub(crate) fn open(
        path: &Path,
        log_id: &LogId,
        noted: Option<&Head>,
        mut visit: impl FnMut(u64, EncodedRecord) -> Result<(), &'static str>,
    ) -> Result<(Self, Option<TornTail>), FrameError> {
        let last_seq = Cell::new(0);
        let mut digest = Digest::start(log_id);
        let is_complete = || match noted {
            Some(noted) if last_seq.get() < noted.seq => Err("it ends before the last entry that was acknowledged"),
            _ => Ok(()),
        };
        let (file, torn) = FrameFile::open(path, FrameKind::Revocations, is_complete, |frame| {
            let stored =
                StoredRecords::decode(frame.payload.as_slice()).map_err(|_| "the frame does not hold records")?;
            if stored.first_seq != last_seq.get() + 1 {
                return Err("the records do not follow the ones before them");
            }
            for bytes in stored.records {
                let record =
                    v1::Record::decode(bytes.as_slice()).map_err(|_| "a record that this version can not read")?;
                last_seq.set(last_seq.get() + 1);
                digest = digest.after(&bytes);
                if noted.is_some_and(|noted| noted.seq == last_seq.get() && noted.digest != digest) {
                    return Err("the history up to here is not the one that was acknowledged");
                }
                visit(last_seq.get(), EncodedRecord { record, bytes })?;
            }
            if stored.digest != digest.as_bytes() {
                return Err("the records do not continue this log's history");
            }
            Ok(())
        })?;
        let last_seq = last_seq.get();
        Ok((Self { file, last_seq, digest }, torn))
    }

    /// Appends records behind the last one. They are durable on return.
    pub(crate) fn append(&mut self, records: &[EncodedRecord]) -> Result<(), AppendError> {
        let digest = records
            .iter()
            .fold(self.digest, |digest, record| digest.after(&record.bytes));
        let stored = StoredRecords {
            first_seq: self.last_seq + 1,
            records: records.iter().map(|record| record.bytes.clone()).collect(),
            digest: digest.as_bytes().to_vec(),
        };
        self.file.append(&stored.encode_to_vec())?;
        self.last_seq += records.len() as u64;
        self.digest = digest;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.end()
    }
}

impl From<v1::Record> for EncodedRecord {
    fn from(record: v1::Record) -> Self {
        Self {
            bytes: record.encode_to_vec(),
            record,
        }
    }
}

/// The payload of one frame.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredRecords {
    #[prost(uint64, tag = "1")]
    first_seq: u64,
    /// Encoded `credence.v1.Record`s: kept as bytes, for the digest runs over them.
    #[prost(bytes = "vec", repeated, tag = "2")]
    records: Vec<Vec<u8>>,
    /// The chain's digest after the last of them.
    #[prost(bytes = "vec", tag = "3")]
    digest: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(letter: &str) -> EncodedRecord {
        v1::Record {
            subject: Some(Subject::Key(v1::RevokedKey {
                thumbprint: letter.repeat(43),
            })),
        }
        .into()
    }

    fn read(path: &Path, log_id: &LogId) -> Result<Vec<(u64, EncodedRecord)>, FrameError> {
        let mut records = Vec::new();
        Storage::open(path, log_id, None, |seq, record| {
            records.push((seq, record));
            Ok(())
        })?;
        Ok(records)
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
        let (mut storage, _) = Storage::open(&path, &log_id, None, |_, _| Ok(())).unwrap();
        storage.append(&[key("A"), key("E")]).unwrap();
        storage.append(&[key("I")]).unwrap();
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
        let (mut storage, _) = Storage::open(&folder.join("log"), &log_id, None, |_, _| Ok(())).unwrap();
        storage.append(&[key("A")]).unwrap();
        storage.append(&[key("E")]).unwrap();
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
            let error = Storage::open(&path, &log_id, Some(&head), |_, _| Ok(())).unwrap_err();
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
        let (storage, torn) = Storage::open(&path, &log_id, Some(&head), |_, _| Ok(())).unwrap();
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
        let error = Storage::open(&folder.path().join("log"), &log_id, Some(&other), |_, _| Ok(())).unwrap_err();
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
}
