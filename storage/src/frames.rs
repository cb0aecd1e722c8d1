//! Append-only files of checksummed frames: what the ledger is stored in.
//!
//! ```text
//! file   = header frame*
//! header = magic "CREDFRM1" | kind (8 bytes, ASCII) | salt (16 random bytes) | crc32c of what precedes
//! frame  = payload length (u32 LE) | payload crc32c (u32 LE) | head crc32c (u32 LE) | payload
//! ```
//!
//! Both frame checksums also cover the file's salt and the frame's offset. A payload can therefore not be crafted to
//! look like a frame, and a frame that a disk put in the wrong place does not verify.
//!
//! **One frame at a time is not yet durable.** [`FrameFile::append`] returns only after `fdatasync`, so whatever
//! precedes the last frame was on disk before the last frame was begun. That is what lets [`FrameFile::open`] tell a
//! write that a crash interrupted (cut it) from damage to data that somebody was promised (refuse to start).

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::file_error::{FileError, at};

/// What a file of frames holds. Written into its header, so that one kind is never read as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The revocation log, from its first record on.
    Revocations,
    /// The revocation log, with its beginning compacted: a version that does not know of that can not read it.
    CompactedRevocations,
    /// One segment of the ledger.
    Ledger,
}

/// An append-only file of frames, open for writing.
#[derive(Debug)]
pub struct FrameFile {
    file: File,
    path: PathBuf,
    salt: Salt,
    /// Offset of the last durable frame.
    last: Option<u64>,
    /// Offset behind it.
    end: u64,
    /// Set once an `fdatasync` failed, until [`FrameFile::mend`]; see [`AppendError::SyncFailed`].
    broken: bool,
}

/// A whole, verified frame.
#[derive(Debug)]
pub struct Frame {
    /// Where in the file it begins.
    pub offset: u64,
    /// Never empty.
    pub payload: Vec<u8>,
}

/// What [`FrameFile::open`] cut off: a write that a crash interrupted and that nobody was told had succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Where it began.
    pub offset: u64,
    /// How much of it there was.
    pub bytes: u64,
}

/// Why a file of frames can not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The system did not let us.
    #[error(transparent)]
    Io(#[from] FileError),
    /// No file of ours, or not of this kind.
    #[error(
        "{path} is not a {expected} file of this version (bad header). Restore the data folder from a backup, or start \
         the version of credence that wrote it", path = path.display()
    )]
    Header {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        expected: &'static str,
    },
    /// What had been acknowledged is not there any more as it was.
    #[error(
        "{path} is damaged at byte {offset}: {found}. Acknowledged data is concerned, so this is no interrupted write. \
         Nothing was changed. Check the disk, keep a copy of the file, and restore the data folder from a backup",
        path = path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        found: &'static str,
    },
}

/// Why a frame was not appended. In every case nothing of it will be read back as if it had been acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The file is as it was before; a later append may succeed (somebody freed disk space).
    #[error(
        "writing {path} failed: {error}. Free disk space, raise a limit on file sizes (ulimit -f), or repair the volume; \
         writing will be tried again", path = path.display()
    )]
    WriteFailed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// After a failed `fdatasync` the kernel may have dropped the data and report success the next time, so nothing
    /// is ever written to this file again by this process.
    #[error("syncing {path} to disk failed: {error}. It is read-only until a restart; mend the volume, then restart", path = path.display())]
    SyncFailed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// An earlier append of this process ended in [`AppendError::SyncFailed`].
    #[error("{path} is read-only since an earlier failure to sync it to disk; mend the volume, then restart", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// More than a frame can hold.
    #[error("a frame of {bytes} bytes was to be written; the limit is {MAX_PAYLOAD}")]
    TooLarge {
        /// What it would have held.
        bytes: usize,
    },
}

/// Largest payload of one frame, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;

// === impl Frame ===

impl Frame {
    /// Offset behind the frame.
    pub fn end(&self) -> u64 {
        self.offset + HEAD_LEN + self.payload.len() as u64
    }
}

// === impl FrameError ===

impl FrameError {
    /// What is said of a frame whose payload makes no sense.
    pub fn corrupt(path: &Path, offset: u64, found: &'static str) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            offset,
            found,
        }
    }
}

// === impl FrameFile ===

impl FrameFile {
    /// Creates an empty file; it and its name are durable on return, and it has its name only once it is whole. An
    /// existing file is an error.
    pub fn create(path: &Path, kind: FrameKind) -> io::Result<Self> {
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut salt = [0; SALT_LEN];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let salt = Salt(salt);
        durable::write_path(path, &salt.header(kind))?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            salt,
            last: None,
            end: HEADER_LEN,
            broken: false,
        })
    }

    /// Opens a file, hands every whole frame to `visit` in order, and cuts a torn tail.
    ///
    /// `visit` may refuse a frame, and `is_complete` the file's end before anything is cut; the text becomes a
    /// [`FrameError::Corrupt`] at that place.
    pub fn open(
        path: &Path,
        kind: FrameKind,
        is_complete: impl FnOnce() -> Result<(), &'static str>,
        mut visit: impl FnMut(Frame) -> Result<(), &'static str>,
    ) -> Result<(Self, Option<TornTail>), FrameError> {
        let io_error = at(path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(&io_error)?;
        let reader = FrameReader::open(path, kind)?;
        let length = file.metadata().map_err(&io_error)?.len();
        let mut offset = HEADER_LEN;
        let mut last = None;
        let mut torn = None;
        let mut source = ReadAhead::new(&reader.file, length);
        while offset < length {
            match reader.read_from(&mut source, offset, length).map_err(&io_error)? {
                Read::Whole(payload) => {
                    let frame = Frame { offset, payload };
                    let begin = offset;
                    offset = frame.end();
                    last = Some(begin);
                    visit(frame).map_err(|found| reader.corrupt(begin, found))?;
                }
                Read::Broken { found, may_be_torn } => {
                    if !may_be_torn || reader.finds_frame_behind(offset, length).map_err(&io_error)? {
                        return Err(reader.corrupt(offset, found));
                    }
                    torn = Some(TornTail {
                        offset,
                        bytes: length - offset,
                    });
                    break;
                }
            }
        }
        is_complete().map_err(|found| reader.corrupt(offset, found))?;
        let last = last
            .map(|last| Ok::<_, FrameError>((last, reader.frame(last, offset)?.payload)))
            .transpose()?;
        let mut this = Self {
            file,
            path: path.to_owned(),
            salt: reader.salt,
            last: last.as_ref().map(|(last, _)| *last),
            end: offset,
            broken: false,
        };
        this.settle(last, torn.is_some()).map_err(&io_error)?;
        Ok((this, torn))
    }

    /// Appends one frame and returns its offset, after it is durable.
    pub fn append(&mut self, payload: &[u8]) -> Result<u64, AppendError> {
        self.append_parts([&[], payload])
    }

    /// As [`FrameFile::append`], of a payload in two parts: a large one need not be copied behind what precedes it.
    pub fn append_parts(&mut self, parts: [&[u8]; 2]) -> Result<u64, AppendError> {
        if self.broken {
            return Err(AppendError::Broken {
                path: self.path.clone(),
            });
        }
        let [first, second] = parts;
        let bytes = first.len() + second.len();
        if bytes == 0 || bytes > MAX_PAYLOAD {
            return Err(AppendError::TooLarge { bytes });
        }
        let offset = self.end;
        let mut begin = self.salt.head(offset, parts).to_vec();
        begin.extend_from_slice(first);
        let written = self.write_at(offset, &begin).and_then(|()| self.file.write_all(second));
        if let Err(error) = written {
            // What was written in part must not lie in front of the next attempt.
            if self.file.set_len(offset).is_err() {
                self.broken = true;
            }
            return Err(AppendError::WriteFailed {
                path: self.path.clone(),
                error,
            });
        }
        if let Err(error) = self.file.sync_data() {
            self.broken = true;
            return Err(AppendError::SyncFailed {
                path: self.path.clone(),
                error,
            });
        }
        self.last = Some(offset);
        self.end = offset + HEAD_LEN + bytes as u64;
        Ok(offset)
    }

    /// Writes one more frame of a file that nobody relies on yet: it is durable after [`FrameFile::sync`]. A file in
    /// which this failed is of no use.
    pub fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.is_empty() || payload.len() > MAX_PAYLOAD {
            return Err(io::Error::other(AppendError::TooLarge { bytes: payload.len() }));
        }
        let frame = self.salt.frame(self.end, payload);
        self.write_at(self.end, &frame)?;
        self.last = Some(self.end);
        self.end += frame.len() as u64;
        Ok(())
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file fit for appending again after an append has failed, if the disk lets us: what was written of it is cut
    /// off, as if it had never been tried.
    ///
    /// The page in which the last durable frame ends may be among those that the kernel has dropped, so that frame is
    /// written once more; see [`FrameFile::open`], which has the same doubt.
    pub fn mend(&mut self) -> Result<(), AppendError> {
        if !self.broken {
            return Ok(());
        }
        self.settle_anew().map_err(|error| AppendError::WriteFailed {
            path: self.path.clone(),
            error,
        })?;
        self.broken = false;
        Ok(())
    }

    fn settle_anew(&mut self) -> io::Result<()> {
        let last = match self.last {
            Some(offset) => {
                let reader = FrameReader {
                    file: self.file.try_clone()?,
                    path: self.path.clone(),
                    salt: self.salt,
                };
                // What a failing disk reads back in its place must not become durable under a checksum that fits.
                let frame = reader.frame(offset, self.end).map_err(io::Error::other)?;
                Some((offset, frame.payload))
            }
            None => None,
        };
        self.settle(last, true)
    }

    /// Nothing more is written, since what the disk holds is no longer known.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// Offset behind the last durable frame: the file's size in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether every later append will fail until the file is mended, or the process restarts.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Makes what `open` read durable before anybody relies on it.
    ///
    /// If the previous process failed to sync its last frame, that frame may sit in the page cache, clean, and never
    /// reach the disk. Writing it again makes it dirty again, and only then does a sync mean anything.
    fn settle(&mut self, last: Option<(u64, Vec<u8>)>, torn: bool) -> io::Result<()> {
        if torn {
            self.file.set_len(self.end)?;
        }
        if let Some((offset, payload)) = last {
            let frame = self.salt.frame(offset, &payload);
            self.write_at(offset, &frame)?;
        }
        self.file.sync_all()
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }
}

/// Reads single frames of a file that a [`FrameFile`] may be appending to.
#[derive(Debug)]
pub struct FrameReader {
    file: File,
    path: PathBuf,
    salt: Salt,
}

impl FrameReader {
    /// Opens a file of this kind.
    pub fn open(path: &Path, kind: FrameKind) -> Result<Self, FrameError> {
        let bad_header = || FrameError::Header {
            path: path.to_owned(),
            expected: kind.name(),
        };
        let file = File::open(path).map_err(at(path))?;
        let mut header = [0; HEADER_LEN as usize];
        match file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(bad_header()),
            other => other.map_err(at(path))?,
        }
        let salt = Salt::from_header(&header, kind).ok_or_else(bad_header)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            salt,
        })
    }

    /// Every frame of a file that is no longer appended to, in order. Whatever is not a whole frame is damage, and ends it.
    pub fn into_frames(self) -> Result<impl Iterator<Item = Result<Frame, FrameError>>, FrameError> {
        let mut until = self.file.metadata().map_err(at(&self.path))?.len();
        let mut offset = HEADER_LEN;
        Ok(std::iter::from_fn(move || {
            if offset >= until {
                return None;
            }
            let frame = self.frame(offset, until);
            match &frame {
                Ok(frame) => offset = frame.end(),
                Err(_) => until = offset,
            }
            Some(frame)
        }))
    }

    /// What is said of a frame whose payload makes no sense.
    pub fn corrupt(&self, offset: u64, found: &'static str) -> FrameError {
        FrameError::corrupt(&self.path, offset, found)
    }

    /// The frame at `offset` of a file that is whole up to `until`, both of them frame boundaries.
    pub fn frame(&self, offset: u64, until: u64) -> Result<Frame, FrameError> {
        match self.read(offset, until).map_err(at(&self.path))? {
            Read::Whole(payload) => Ok(Frame { offset, payload }),
            Read::Broken { found, .. } => Err(self.corrupt(offset, found)),
        }
    }

    /// Every frame from `from` up to `until`, which must both be frame boundaries.
    pub fn frames(&self, from: u64, until: u64) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        let mut offset = from;
        while offset < until {
            let frame = self.frame(offset, until)?;
            offset = frame.end();
            frames.push(frame);
        }
        Ok(frames)
    }

    fn read(&self, offset: u64, length: u64) -> io::Result<Read> {
        self.read_from(&mut &self.file, offset, length)
    }

    fn read_from(&self, source: &mut impl Source, offset: u64, length: u64) -> io::Result<Read> {
        let remaining = length - offset;
        if remaining < HEAD_LEN {
            return Ok(Read::Broken {
                found: "the frame's head is cut short",
                may_be_torn: true,
            });
        }
        let mut head = [0; HEAD_LEN as usize];
        source.read_exact_at(&mut head, offset)?;
        let Some(head) = self.salt.parse_head(offset, head) else {
            return Ok(Read::Broken {
                found: "no frame begins here",
                may_be_torn: true,
            });
        };
        let end = HEAD_LEN + u64::from(head.length);
        if end > remaining {
            return Ok(Read::Broken {
                found: "the frame's payload is cut short",
                may_be_torn: true,
            });
        }
        let mut payload = vec![0; head.length as usize];
        source.read_exact_at(&mut payload, offset + HEAD_LEN)?;
        if self.salt.checksum(offset, &payload) != head.payload_checksum {
            // Bytes behind this frame were written after it had been synced.
            return Ok(Read::Broken {
                found: "the payload does not match its checksum",
                may_be_torn: end == remaining,
            });
        }
        Ok(Read::Whole(payload))
    }

    /// Whether the head of a frame lies behind the broken one at `offset`, which proves that it once was durable.
    fn finds_frame_behind(&self, offset: u64, length: u64) -> io::Result<bool> {
        let remaining = length - offset;
        if remaining > HEAD_LEN + MAX_PAYLOAD as u64 {
            return Ok(true);
        }
        let mut bytes = vec![0; remaining as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes
            .windows(HEAD_LEN as usize)
            .enumerate()
            .skip(1)
            .any(|(distance, window)| {
                <[u8; HEAD_LEN as usize]>::try_from(window)
                    .is_ok_and(|head| self.salt.parse_head(offset + distance as u64, head).is_some())
            }))
    }
}

/// Where frames are read from.
trait Source {
    fn read_exact_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for &File {
    fn read_exact_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(*self, bytes, offset)
    }
}

/// Reads a file from its beginning to its end: small frames cost no system call each.
struct ReadAhead<'a> {
    file: &'a File,
    length: u64,
    /// Where in the file `bytes` begin.
    offset: u64,
    bytes: Vec<u8>,
}

// === impl ReadAhead ===

impl<'a> ReadAhead<'a> {
    fn new(file: &'a File, length: u64) -> Self {
        Self {
            file,
            length,
            offset: 0,
            bytes: Vec::new(),
        }
    }

    fn held(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let begin = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(begin..begin.checked_add(length)?)
    }
}

impl Source for ReadAhead<'_> {
    fn read_exact_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.held(offset, bytes.len()).is_none() {
            if bytes.len() >= READ_AHEAD {
                return self.file.read_exact_at(bytes, offset);
            }
            let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.bytes.resize(left.min(READ_AHEAD), 0);
            self.offset = offset;
            self.file.read_exact_at(&mut self.bytes, offset)?;
        }
        let held = self.held(offset, bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(held);
        Ok(())
    }
}

enum Read {
    Whole(Vec<u8>),
    Broken { found: &'static str, may_be_torn: bool },
}

#[derive(Debug, Clone, Copy)]
struct Salt([u8; SALT_LEN]);

struct Head {
    length: u32,
    payload_checksum: u32,
}

// === impl Salt ===

impl Salt {
    fn header(self, kind: FrameKind) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_LEN as usize);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(kind.tag());
        header.extend_from_slice(&self.0);
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        header
    }

    fn from_header(header: &[u8; HEADER_LEN as usize], kind: FrameKind) -> Option<Self> {
        let salt = Self(header.get(16..16 + SALT_LEN)?.try_into().ok()?);
        (salt.header(kind) == header).then_some(salt)
    }

    fn frame(self, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEAD_LEN as usize + payload.len());
        frame.extend_from_slice(&self.head(offset, [&[], payload]));
        frame.extend_from_slice(payload);
        frame
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

// === impl FrameKind ===

impl FrameKind {
    fn tag(self) -> &'static [u8; 8] {
        match self {
            Self::Revocations => b"REVOKED1",
            Self::CompactedRevocations => b"REVOKED2",
            Self::Ledger => b"LEDGER_2",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Revocations | Self::CompactedRevocations => "revocation log",
            Self::Ledger => "ledger segment",
        }
    }
}

/// How much of a file is read at once that is read from its beginning to its end.
const READ_AHEAD: usize = 1 << 20;
const MAGIC: &[u8; 8] = b"CREDFRM1";
const SALT_LEN: usize = 16;
/// Offset of the first frame.
pub const HEADER_LEN: u64 = 8 + 8 + SALT_LEN as u64 + 4;
/// Bytes of a frame in front of its payload.
pub const HEAD_LEN: u64 = 12;

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
        let mut file = FrameFile::create(&path, FrameKind::Ledger).unwrap();
        for payload in payloads {
            file.append(payload).unwrap();
        }
        Scratch { _folder: folder, path }
    }

    impl Scratch {
        fn reopen(&self) -> Result<Reopened, FrameError> {
            let mut payloads = Vec::new();
            let (file, torn) = FrameFile::open(
                &self.path,
                FrameKind::Ledger,
                || Ok(()),
                |frame| {
                    payloads.push(frame.payload);
                    Ok(())
                },
            )?;
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
        file.append(b"three").unwrap();
        drop(file);
        assert_eq!(scratch.reopen().unwrap().0.len(), 3);
    }

    #[test]
    fn a_payload_in_two_parts_is_read_back_as_one() {
        let scratch = file_with(&[b"onetwo"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.append_parts([b"one", b"two"]).unwrap();
        file.append_parts([b"onetwo", b""]).unwrap();
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
            file.append(b"again").unwrap();
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
                matches!(error, FrameError::Corrupt { offset: HEADER_LEN, .. }),
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
        let scan = || {
            FrameReader::open(&scratch.path, FrameKind::Ledger)
                .unwrap()
                .into_frames()
                .and_then(|frames| frames.collect::<Result<Vec<_>, _>>())
        };
        scan().unwrap();
        scratch.edit(|bytes| bytes.truncate(bytes.len() - 1));
        assert!(matches!(scan(), Err(FrameError::Corrupt { .. })));
    }

    #[test]
    fn one_kind_of_file_is_not_read_as_another() {
        let scratch = file_with(&[b"one"]);
        let error = FrameFile::open(&scratch.path, FrameKind::Revocations, || Ok(()), |_| Ok(())).unwrap_err();
        assert!(matches!(error, FrameError::Header { .. }), "{error}");
    }

    #[test]
    fn an_oversized_frame_is_refused_and_harms_nothing() {
        let scratch = file_with(&[]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        assert!(matches!(
            file.append(&vec![0; MAX_PAYLOAD + 1]),
            Err(AppendError::TooLarge { .. })
        ));
        file.append(b"fine").unwrap();
    }

    #[test]
    fn after_a_failed_sync_nothing_is_ever_written_again() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        let real = std::mem::replace(&mut file.file, device("/dev/null"));
        assert!(matches!(file.append(b"two"), Err(AppendError::SyncFailed { .. })));
        file.file = real;
        assert!(matches!(file.append(b"three"), Err(AppendError::Broken { .. })));
        assert!(file.is_broken());
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec()]);
    }

    #[test]
    fn a_failed_write_that_can_not_be_taken_back_ends_writing_too() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.file = device("/dev/full");
        assert!(matches!(file.append(b"two"), Err(AppendError::WriteFailed { .. })));
        assert!(file.is_broken());
    }

    #[test]
    fn a_file_that_was_mended_is_as_if_what_failed_had_never_been_tried() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        // Written, and then not synced.
        let mut elsewhere = FrameFile {
            file: file.file.try_clone().unwrap(),
            path: file.path.clone(),
            ..file
        };
        elsewhere.append(b"two").unwrap();
        file.give_up();
        file.mend().unwrap();
        assert_eq!(file.append(b"three").unwrap(), elsewhere.last.unwrap());
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn a_file_that_still_can_not_be_written_is_not_mended() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        let real = std::mem::replace(&mut file.file, device("/dev/full"));
        assert!(file.append(b"two").is_err());
        assert!(matches!(file.mend(), Err(AppendError::WriteFailed { .. })));
        assert!(matches!(file.append(b"two"), Err(AppendError::Broken { .. })));
        file.file = real;
        file.mend().unwrap();
        file.append(b"two").unwrap();
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn a_file_whose_last_frame_is_read_back_wrongly_is_not_mended() {
        let scratch = file_with(&[b"one"]);
        let (_, mut file, _) = scratch.reopen().unwrap();
        file.give_up();
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        assert!(matches!(file.mend(), Err(AppendError::WriteFailed { .. })));
        assert!(matches!(file.append(b"two"), Err(AppendError::Broken { .. })));
        scratch.edit(|bytes| bytes[HEADER_LEN as usize + 13] ^= 1);
        file.mend().unwrap();
        assert_eq!(scratch.reopen().unwrap().0, [b"one".to_vec()]);
    }

    /// /dev/null can not be synced and /dev/full can not be written.
    fn device(path: &str) -> File {
        OpenOptions::new().write(true).open(path).unwrap()
    }
}
