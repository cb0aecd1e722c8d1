//! The revocation log on disk: one frame for each group of records that became durable together.

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
    /// Opens the log and hands every record, with its sequence number, to `visit`.
    pub(crate) fn open(
        path: &Path,
        log_id: &LogId,
        mut visit: impl FnMut(u64, EncodedRecord) -> Result<(), &'static str>,
    ) -> Result<(Self, Option<TornTail>), FrameError> {
        let mut last_seq = 0;
        let mut digest = Digest::start(log_id);
        let (file, torn) = FrameFile::open(path, FrameKind::Revocations, |frame| {
            let stored =
                StoredRecords::decode(frame.payload.as_slice()).map_err(|_| "the frame does not hold records")?;
            if stored.first_seq != last_seq + 1 {
                return Err("the records do not follow the ones before them");
            }
            for bytes in stored.records {
                let record =
                    v1::Record::decode(bytes.as_slice()).map_err(|_| "a record that this version can not read")?;
                last_seq += 1;
                digest = digest.after(&bytes);
                visit(last_seq, EncodedRecord { record, bytes })?;
            }
            if stored.digest != digest.as_bytes() {
                return Err("the records do not continue this log's history");
            }
            Ok(())
        })?;
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
        Storage::open(path, log_id, |seq, record| {
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
        let (mut storage, _) = Storage::open(&path, &log_id, |_, _| Ok(())).unwrap();
        storage.append(&[key("A"), key("E")]).unwrap();
        storage.append(&[key("I")]).unwrap();
        drop(storage);
        assert_eq!(
            read(&path, &log_id).unwrap(),
            [(1, key("A")), (2, key("E")), (3, key("I"))]
        );
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
