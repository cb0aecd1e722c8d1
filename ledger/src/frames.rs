//! Append-only files of checksummed frames, in which segments are stored.
//!
//! ```text
//! file   = header frame frame*
//! header = "CREDFRM1LEDGER_3" | salt (16 random bytes) | crc32c of what precedes
//! frame  = payload length (u32 LE) | payload crc32c (u32 LE) | head crc32c (u32 LE) | payload
//! ```
//!
//! Both frame checksums also cover the file's salt and the frame's offset. So a payload cannot be crafted to look like
//! a frame, and a frame that a disk wrote to the wrong place does not verify.
//!
//! **A file gets its name only with its first frame in it**, and then **only the last frame may not be durable**:
//! [`FrameFile::append`] returns after `fdatasync`, so everything before the last frame was on disk before the last
//! frame was begun. This lets [`FrameFile::open`] distinguish a write that a crash interrupted (cut off) from damage to
//! acknowledged data (the start is refused).

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use credence_storage::{at, durable};

use crate::disk_error::DiskError;

/// An append-only file of frames, open for writing.
#[derive(Debug)]
pub(crate) struct FrameFile {
    file: File,
    path: PathBuf,
    salt: Salt,
    /// Offset of the last durable frame.
    last: u64,
    /// Offset after it.
    end: u64,
    /// Set if an append failed and left bytes behind, until [`FrameFile::recover`].
    broken: bool,
}

/// Reads the frames that a file had when it was opened, in order. A [`FrameFile`] may append to it meanwhile. Anything
/// but a whole frame is damage, and ends the reading.
#[derive(Debug)]
pub(crate) struct Frames {
    file: BufReader<File>,
    path: PathBuf,
    salt: Salt,
    offset: u64,
    length: u64,
    has_failed: bool,
}

/// A whole, verified frame.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The offset at which it begins.
    pub(crate) offset: u64,
    /// Never empty.
    pub(crate) payload: Vec<u8>,
}

/// What `FrameFile::open` cut off: a write that a crash interrupted before it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// The offset at which it began.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Why a frame was not appended. No part of it will be read as acknowledged.
#[derive(Debug, thiserror::Error)]
#[error(
    "{doing} {path} failed: {error}. The partial write is removed, and the next report is tried again. Free disk \
     space, raise a limit on file sizes (ulimit -f), or repair the volume", path = path.display()
)]
pub struct AppendError {
    path: PathBuf,
    doing: &'static str,
    error: io::Error,
}

/// Largest payload of one frame, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;

// === impl FrameFile ===

impl FrameFile {
    /// Creates a file with its first frame and replaces an earlier file. Durable on return.
    pub(crate) fn create(path: &Path, payload: &[u8]) -> Result<Self, DiskError> {
        let io_error = at(path);
        let mut salt = [0; SALT_LEN];
        getrandom::fill(&mut salt).map_err(|error| io_error(io::Error::other(error)))?;
        let salt = Salt(salt);
        let mut contents = salt.header();
        contents.extend_from_slice(&salt.frame(HEADER_LEN, payload));
        durable::write_path(path, &contents).map_err(&io_error)?;
        Ok(Self {
            file: open_to_write(path)?,
            path: path.to_owned(),
            salt,
            last: HEADER_LEN,
            end: contents.len() as u64,
            broken: false,
        })
    }

    /// Opens a file, passes every whole frame to `visit` in order, and cuts off a torn tail. Changes nothing if `visit`
    /// refuses a frame.
    pub(crate) fn open<E: From<DiskError>>(
        path: &Path,
        mut visit: impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<(Self, Option<TornTail>), E> {
        let mut frames = Frames::open(path)?;
        let mut last = None;
        let mut torn = None;
        while let Some(frame) = frames.next() {
            match frame {
                Ok(frame) => {
                    last = Some(frame.offset);
                    visit(frame)?;
                }
                Err(error) => torn = Some(frames.torn_tail(error)?),
            }
        }
        let mut this = Self {
            file: open_to_write(path)?,
            path: path.to_owned(),
            salt: frames.salt,
            last: last.ok_or_else(|| DiskError::damaged(path, "it has no whole frame").at_byte(HEADER_LEN))?,
            end: frames.offset,
            broken: false,
        };
        this.settle()?;
        Ok((this, torn))
    }

    /// Appends one frame, and returns its offset once it is durable. The payload is in two parts, so that a large one
    /// need not be copied. After an error, nothing can be appended before [`FrameFile::recover`].
    pub(crate) fn append(&mut self, parts: [&[u8]; 2]) -> Result<u64, AppendError> {
        debug_assert!(!self.broken, "it was recovered before");
        let offset = self.end;
        let bytes = parts[0].len() + parts[1].len();
        if let Err(error) = self.write(offset, parts) {
            // A partial write must be removed before the next attempt.
            self.broken = self.file.set_len(offset).is_err();
            return Err(self.failed("writing", error));
        }
        if let Err(error) = self.file.sync_data() {
            // The kernel may have dropped the data, and could report success next time.
            self.broken = true;
            return Err(self.failed("syncing", error));
        }
        self.last = offset;
        self.end = offset + HEAD_LEN + bytes as u64;
        Ok(offset)
    }

    /// Prepares a file for appending again after a failed append, if the disk allows it. It cuts off the partial write.
    pub(crate) fn recover(&mut self) -> Result<(), DiskError> {
        if self.broken {
            self.settle()?;
            self.broken = false;
        }
        Ok(())
    }

    /// Offset after the last durable frame: the file's size in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Makes the file's contents durable before they are used, and cuts off everything after the last whole frame.
    ///
    /// If a sync of this or the previous process failed, the last frame may be in the page cache, marked clean, and
    /// never reach the disk. Writing it again makes it dirty, so that a sync has an effect. A failing disk may return
    /// other bytes. They must not become durable with a matching checksum, so they are verified as a frame first.
    fn settle(&mut self) -> Result<(), DiskError> {
        let io_error = at(&self.path);
        let mut frames = Frames::open(&self.path)?;
        frames.file.seek(SeekFrom::Start(self.last)).map_err(&io_error)?;
        (frames.offset, frames.length) = (self.last, self.end);
        let last = frames.read()?;
        self.file.set_len(self.end).map_err(&io_error)?;
        self.write(last.offset, [&last.payload, &[]]).map_err(&io_error)?;
        Ok(self.file.sync_all().map_err(&io_error)?)
    }

    fn write(&self, offset: u64, [first, second]: [&[u8]; 2]) -> io::Result<()> {
        let bytes = first.len() + second.len();
        if bytes == 0 || bytes > MAX_PAYLOAD {
            return Err(io::Error::other(format!(
                "a frame of {bytes} bytes; the limit is {MAX_PAYLOAD}"
            )));
        }
        let mut begin = self.salt.head(offset, [first, second]).to_vec();
        begin.extend_from_slice(first);
        self.file.write_all_at(&begin, offset)?;
        self.file.write_all_at(second, offset + begin.len() as u64)
    }

    fn failed(&self, doing: &'static str, error: io::Error) -> AppendError {
        AppendError {
            path: self.path.clone(),
            doing,
            error,
        }
    }
}

fn open_to_write(path: &Path) -> Result<File, DiskError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    Ok(file.map_err(at(path))?)
}

// === impl Frames ===

impl Frames {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self, DiskError> {
        let io_error = at(path);
        let file = File::open(path).map_err(&io_error)?;
        let length = file.metadata().map_err(&io_error)?.len();
        let mut file = BufReader::new(file);
        let mut header = Vec::new();
        let read = file.by_ref().take(HEADER_LEN).read_to_end(&mut header);
        read.map_err(&io_error)?;
        let salt = Salt::from_header(&header).ok_or_else(|| {
            let cure = "Restore the data folder from a backup, or start the version of credence that wrote it";
            DiskError::damaged(path, "this is not a ledger segment of this version (bad header)")
                .at_byte(0)
                .with_cure(cure)
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            salt,
            offset: HEADER_LEN,
            length,
            has_failed: false,
        })
    }

    fn read(&mut self) -> Result<Frame, DiskError> {
        let offset = self.offset;
        let damaged = |found| Err(DiskError::damaged(&self.path, found).at_byte(offset));
        let left = self.length - offset;
        if left < HEAD_LEN {
            return damaged("the frame's head is cut short");
        }
        let mut head = [0; HEAD_LEN as usize];
        self.file.read_exact(&mut head).map_err(at(&self.path))?;
        let Some(head) = self.salt.parse_head(offset, head) else {
            return damaged("no frame begins here");
        };
        if head.frame_length() > left {
            return damaged("the frame's payload is cut short");
        }
        let mut payload = vec![0; head.length as usize];
        self.file.read_exact(&mut payload).map_err(at(&self.path))?;
        if self.salt.checksum(offset, &payload) != head.payload_checksum {
            return damaged("the payload does not match its checksum");
        }
        self.offset += head.frame_length();
        Ok(Frame { offset, payload })
    }

    /// The bytes after the last whole frame, if a crash may have interrupted their write. Otherwise, the error from
    /// reading them. Data after a frame is written only once that frame is durable.
    fn torn_tail(&self, error: DiskError) -> Result<TornTail, DiskError> {
        let left = self.length - self.offset;
        if matches!(error, DiskError::Io(_)) || left > HEAD_LEN + MAX_PAYLOAD as u64 {
            return Err(error);
        }
        let mut bytes = vec![0; left as usize];
        let file = self.file.get_ref();
        file.read_exact_at(&mut bytes, self.offset).map_err(at(&self.path))?;
        for (offset, window) in (self.offset..).zip(bytes.windows(HEAD_LEN as usize)) {
            let head = window
                .try_into()
                .ok()
                .and_then(|head| self.salt.parse_head(offset, head));
            if head.is_some_and(|head| offset > self.offset || head.frame_length() < left) {
                return Err(error);
            }
        }
        Ok(TornTail {
            offset: self.offset,
            bytes: left,
        })
    }
}

impl Iterator for Frames {
    type Item = Result<Frame, DiskError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.offset >= self.length {
            return None;
        }
        let frame = self.read();
        self.has_failed = frame.is_err();
        Some(frame)
    }
}

#[derive(Debug, Clone, Copy)]
struct Salt([u8; SALT_LEN]);

struct Head {
    length: u32,
    payload_checksum: u32,
}

// === impl Head ===

impl Head {
    fn frame_length(&self) -> u64 {
        HEAD_LEN + u64::from(self.length)
    }
}

// === impl Salt ===

impl Salt {
    fn header(self) -> Vec<u8> {
        let mut header = [MAGIC, &self.0].concat();
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        header
    }

    fn from_header(header: &[u8]) -> Option<Self> {
        let salt = Self(header.get(MAGIC.len()..MAGIC.len() + SALT_LEN)?.try_into().ok()?);
        (salt.header() == header).then_some(salt)
    }

    fn frame(self, offset: u64, payload: &[u8]) -> Vec<u8> {
        [&self.head(offset, [payload, &[]]), payload].concat()
    }

    fn head(self, offset: u64, [first, second]: [&[u8]; 2]) -> [u8; HEAD_LEN as usize] {
        let mut head = [0; HEAD_LEN as usize];
        head[..4].copy_from_slice(&((first.len() + second.len()) as u32).to_le_bytes());
        let checksum = crc32c::crc32c_append(self.checksum(offset, first), second);
        head[4..8].copy_from_slice(&checksum.to_le_bytes());
        let checksum = self.checksum(offset, &head[..8]);
        head[8..].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    fn parse_head(self, offset: u64, head: [u8; HEAD_LEN as usize]) -> Option<Head> {
        let [l0, l1, l2, l3, p0, p1, p2, p3, h0, h1, h2, h3] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let checked = self.checksum(offset, &[l0, l1, l2, l3, p0, p1, p2, p3]);
        let plausible = length > 0 && length as usize <= MAX_PAYLOAD;
        (plausible && checked == u32::from_le_bytes([h0, h1, h2, h3])).then_some(Head {
            length,
            payload_checksum: u32::from_le_bytes([p0, p1, p2, p3]),
        })
    }

    fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(crc32c::crc32c(&self.0), &offset.to_le_bytes());
        crc32c::crc32c_append(seed, bytes)
    }
}

const MAGIC: &[u8] = b"CREDFRM1LEDGER_3";
const SALT_LEN: usize = 16;
pub(crate) const HEADER_LEN: u64 = 36;
/// Bytes of a frame before its payload.
pub(crate) const HEAD_LEN: u64 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    type Reopened = (Vec<Vec<u8>>, FrameFile, Option<TornTail>);

    fn file_with(payloads: &[&[u8]]) -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (first, later) = payloads.split_first().unwrap();
        let mut file = FrameFile::create(&path, first).unwrap();
        for payload in later {
            file.append([payload, b""]).unwrap();
        }
        Scratch { _folder: folder, path }
    }

    impl Scratch {
        fn reopen(&self) -> Result<Reopened, DiskError> {
            let mut payloads = Vec::new();
            let (file, torn) = FrameFile::open(&self.path, |frame| {
                payloads.push(frame.payload);
                Ok::<_, DiskError>(())
            })?;
            Ok((payloads, file, torn))
        }

        fn edit(&self, change: impl FnOnce(&mut Vec<u8>)) {
            let mut bytes = std::fs::read(&self.path).unwrap();
            change(&mut bytes);
            std::fs::write(&self.path, bytes).unwrap();
        }
    }

    #[test]
    fn what_was_appended_is_read_back_in_order() {
        let scratch = file_with(&[b"one", b"two"]);
        let (payloads, mut file, torn) = scratch.reopen().unwrap();
        assert_eq!(payloads, [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(torn, None);
        file.append([b"three", b""]).unwrap();
        drop(file);
        assert_eq!(scratch.reopen().unwrap().0.len(), 3);
    }

    #[test]
    fn a_payload_in_two_parts_is_read_back_as_one() {
        let scratch = file_with(&[b"onetwo"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.append([b"one", b"two"]).unwrap();
        file.append([b"onetwo", b""]).unwrap();
        drop(file);
        assert_eq!(scratch.reopen().unwrap().0, [b"onetwo"; 3]);
    }

    #[test]
    fn every_way_to_interrupt_the_last_write_is_cut_at_the_last_whole_frame() {
        let whole = std::fs::read(&file_with(&[b"one", b"two"]).path).unwrap().len();
        let last = HEAD_LEN as usize + 3;
        for cut in 1..last {
            let scratch = file_with(&[b"one", b"two"]);
            scratch.edit(|bytes| bytes.truncate(whole - cut));
            let (payloads, mut file, torn) = scratch.reopen().unwrap();
            assert_eq!(payloads, [b"one".to_vec()], "cut {cut}");
            let expected = TornTail {
                offset: (whole - last) as u64,
                bytes: (last - cut) as u64,
            };
            assert_eq!(torn, Some(expected), "cut {cut}");
            file.append([b"again", b""]).unwrap();
            drop(file);
            assert_eq!(
                scratch.reopen().unwrap().0,
                [b"one".to_vec(), b"again".to_vec()],
                "cut {cut}"
            );
        }
    }

    #[test]
    fn zeros_that_a_crash_left_behind_are_a_torn_tail() {
        let scratch = file_with(&[b"one"]);
        scratch.edit(|bytes| bytes.extend([0; 5000]));
        let (payloads, _, torn) = scratch.reopen().unwrap();
        assert_eq!(payloads.len(), 1);
        assert_eq!(torn.map(|torn| torn.bytes), Some(5000));
    }

    #[test]
    fn a_flipped_bit_anywhere_before_the_last_frame_is_refused() {
        let first = HEADER_LEN as usize;
        for position in first..first + HEAD_LEN as usize + 3 {
            let scratch = file_with(&[b"one", b"two"]);
            scratch.edit(|bytes| bytes[position] ^= 0x10);
            let error = scratch.reopen().unwrap_err();
            assert!(
                matches!(
                    error,
                    DiskError::Damaged {
                        offset: Some(HEADER_LEN),
                        ..
                    }
                ),
                "byte {position}: {error}"
            );
        }
    }

    #[test]
    fn a_damaged_file_is_left_as_it_was() {
        let scratch = file_with(&[b"one", b"two"]);
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        let before = std::fs::read(&scratch.path).unwrap();
        scratch.reopen().unwrap_err();
        assert_eq!(std::fs::read(&scratch.path).unwrap(), before);
    }

    #[test]
    fn the_error_names_file_and_offset() {
        let scratch = file_with(&[b"one", b"two"]);
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        let text = scratch.reopen().unwrap_err().to_string();
        assert!(
            text.contains(&scratch.path.display().to_string()) && text.contains("byte 36"),
            "{text}"
        );
    }

    #[test]
    fn a_payload_that_imitates_a_frame_does_not_hide_a_torn_tail() {
        let other = file_with(&[b"innocent"]);
        let imitation = std::fs::read(&other.path).unwrap().split_off(HEADER_LEN as usize);
        let scratch = file_with(&[b"one", &[imitation.as_slice(), b"tail"].concat()]);
        scratch.edit(|bytes| bytes.truncate(bytes.len() - 1));
        let (payloads, _, torn) = scratch.reopen().unwrap();
        assert_eq!(payloads.len(), 1);
        assert!(torn.is_some());
    }

    #[test]
    fn a_file_that_is_no_longer_appended_to_has_no_torn_tail_only_damage() {
        let scratch = file_with(&[b"one", b"two"]);
        let scan = || Frames::open(&scratch.path).unwrap().collect::<Result<Vec<_>, _>>();
        scan().unwrap();
        scratch.edit(|bytes| bytes.truncate(bytes.len() - 1));
        assert!(matches!(scan(), Err(DiskError::Damaged { .. })));
    }

    #[test]
    fn a_flipped_bit_in_the_header_is_refused() {
        for position in 0..HEADER_LEN as usize {
            let scratch = file_with(&[b"one"]);
            scratch.edit(|bytes| bytes[position] ^= 0x10);
            let error = scratch.reopen().unwrap_err();
            assert!(error.to_string().contains("bad header"), "byte {position}: {error}");
        }
    }

    #[test]
    fn a_file_without_a_whole_frame_is_refused_and_left_as_it_was() {
        let whole = std::fs::read(&file_with(&[b"one"]).path).unwrap().len();
        for length in HEADER_LEN as usize..whole {
            let scratch = file_with(&[b"one"]);
            scratch.edit(|bytes| bytes.truncate(length));
            scratch.reopen().unwrap_err();
            assert_eq!(std::fs::read(&scratch.path).unwrap().len(), length);
        }
    }

    #[test]
    fn a_frame_with_something_behind_it_is_not_a_torn_write() {
        let scratch = file_with(&[b"one", b"two"]);
        scratch.edit(|bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            bytes.push(0);
        });
        scratch.reopen().unwrap_err();
    }

    #[test]
    fn an_oversized_frame_is_refused_and_harms_nothing() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.append([&vec![0; MAX_PAYLOAD], b"1"]).unwrap_err();
        file.append([b"fine", b""]).unwrap();
    }

    #[test]
    fn bytes_that_a_failed_sync_left_behind_are_removed() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        let real = std::mem::replace(&mut file.file, device("/dev/null"));
        assert_eq!(file.append([b"two", b""]).unwrap_err().doing, "syncing");
        assert!(file.broken);
        file.file = real;
        file.recover().unwrap();
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec()]);
    }

    #[test]
    fn a_failed_write_that_cannot_be_removed_is_recovered_first() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.file = device("/dev/full");
        assert_eq!(file.append([b"two", b""]).unwrap_err().doing, "writing");
        assert!(file.broken);
    }

    #[test]
    fn a_recovered_file_has_no_trace_of_the_failed_write() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        // Written, but not synced.
        let mut elsewhere = FrameFile {
            file: file.file.try_clone().unwrap(),
            path: file.path.clone(),
            ..file
        };
        elsewhere.append([b"two", b""]).unwrap();
        file.broken = true;
        file.recover().unwrap();
        assert_eq!(file.append([b"three", b""]).unwrap(), elsewhere.last);
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn a_file_that_still_cannot_be_written_is_not_recovered() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        let real = std::mem::replace(&mut file.file, device("/dev/full"));
        assert!(file.append([b"two", b""]).is_err());
        file.recover().unwrap_err();
        assert!(file.broken);
        file.file = real;
        file.recover().unwrap();
        file.append([b"two", b""]).unwrap();
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn a_file_whose_last_frame_is_read_back_wrongly_is_not_recovered() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.broken = true;
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        file.recover().unwrap_err();
        assert!(file.broken);
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        file.recover().unwrap();
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec()]);
    }

    /// /dev/null cannot be synced and /dev/full cannot be written.
    fn device(path: &str) -> File {
        OpenOptions::new().write(true).open(path).unwrap()
    }
}
