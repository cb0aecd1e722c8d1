//! The chains that a folder's ledger holds, read without its control plane or beside a running one.
//!
//! One thread reads blocks in order, others open them: that is where the time goes. Every leaf is opened to see whether
//! it is a chain, since a group's head, which says so too, is not in the tree.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::frames::{FrameError, FrameKind, FrameReader};

use crate::group::Group;
use crate::identity::{IdentityError, origins_of};
use crate::keys::{KeyError, KeyFile};
use crate::leaf::StoredBody;
use crate::seal::{OpenError, OpenedLeaf, Opener};
use crate::segment::{Paths, parse_segment_name};
use crate::view::{EntryKind, EntryView};

/// A folder whose recorded chains are read.
#[derive(Debug)]
pub struct RecordedChains {
    paths: Paths,
    origin: String,
    keys: Arc<KeyFile>,
}

/// Records that were written together, sealed.
#[derive(Debug)]
pub struct SealedBlock {
    path: PathBuf,
    offset: u64,
    payload: Vec<u8>,
}

/// Opens blocks; each thread has its own.
#[derive(Debug)]
pub struct ChainOpener(Opener);

/// The chains of a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenedChains {
    /// With the index of its record, the tokens joined by `~`.
    pub chains: Vec<(u64, String)>,
    /// Records that can not be read any more, as they were about principals whose evidence was erased.
    pub erased: u64,
}

/// Why chains can not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The system did not let us.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The ledger's name is not known.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no ledger.
    #[error("{path} holds no ledger", path = path.display())]
    NoLedger {
        /// The folder.
        path: PathBuf,
    },
    /// The keys can not be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A segment can not be read.
    #[error(transparent)]
    Frames(#[from] FrameError),
    /// A record does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A group is not what it should be.
    #[error("{path} at byte {offset}: {found}; restore the file from a backup", path = path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it the group begins.
        offset: u64,
        /// What was found.
        found: &'static str,
    },
}

// === impl RecordedChains ===

impl RecordedChains {
    /// Opens a ledger's folder to read it only.
    pub fn open(folder: &Path) -> Result<Self, RecordedError> {
        let no_ledger = || RecordedError::NoLedger {
            path: folder.to_owned(),
        };
        let origin = origins_of(folder)?.first().ok_or_else(no_ledger)?.to_string();
        let paths = Paths(folder.to_owned());
        let keys = Arc::new(KeyFile::open_to_read(&paths.keys())?);
        Ok(Self { paths, origin, keys })
    }

    /// What opens the blocks.
    pub fn opener(&self) -> ChainOpener {
        ChainOpener(Opener::new(&self.origin, Arc::clone(&self.keys)))
    }

    /// Hands out every block, oldest first. Returns what a write looks like that is not finished at the end of the last
    /// segment: a running control plane may be about to finish it, and the next start cuts it off.
    pub fn blocks(&self, mut visit: impl FnMut(SealedBlock)) -> Result<Option<FrameError>, RecordedError> {
        let mut segments = self.segments()?;
        let last = segments.pop();
        for first in segments {
            self.segment(first, &mut visit)?;
        }
        let Some(last) = last else { return Ok(None) };
        match self.segment(last, &mut visit) {
            Err(error @ FrameError::Corrupt { offset: 1.., .. }) => Ok(Some(error)),
            other => Ok(other.map(|()| None)?),
        }
    }

    fn segments(&self) -> Result<Vec<u64>, RecordedError> {
        let path = self.paths.segments();
        let io_error = |error| RecordedError::Io {
            path: path.clone(),
            error,
        };
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            segments.extend(entry.file_name().to_str().and_then(parse_segment_name));
        }
        segments.sort_unstable();
        Ok(segments)
    }

    fn segment(&self, first: u64, visit: &mut impl FnMut(SealedBlock)) -> Result<(), FrameError> {
        let path = self.paths.segment(first);
        let reader = FrameReader::open(&path, FrameKind::SealedLedger)?;
        let scanned = reader.scan(|frame| {
            visit(SealedBlock {
                path: path.clone(),
                offset: frame.offset,
                payload: frame.payload,
            });
            Ok(())
        });
        scanned.map(|_| ())
    }
}

// === impl SealedBlock ===

impl SealedBlock {
    /// Opens the block's records; those that are chains are in the answer.
    pub fn open(&self, opener: &mut ChainOpener) -> Result<OpenedChains, RecordedError> {
        let damaged = |found| RecordedError::Damaged {
            path: self.path.clone(),
            offset: self.offset,
            found,
        };
        let group = Group::parse(&self.payload).ok_or_else(|| damaged("the frame holds no group of records"))?;
        let mut opened = OpenedChains::default();
        for (index, (_, leaf)) in (group.head.first_index..).zip(group.leaves()) {
            let stored = match opener.0.open(index, leaf)? {
                OpenedLeaf::Erased => {
                    opened.erased += 1;
                    continue;
                }
                OpenedLeaf::Record(record) => match record.body {
                    Some(StoredBody::Entry(stored)) if stored.known_chain.is_empty() => stored,
                    _ => continue,
                },
            };
            let entry = EntryView::parse(&stored.entry).map_err(|_| damaged("an entry can not be read"))?;
            if let EntryKind::Chain(chain) = entry.kind {
                let joined = str::from_utf8(chain.chain).map_err(|_| damaged("a chain is not text"))?;
                opened.chains.push((index, joined.to_owned()));
            }
        }
        Ok(opened)
    }
}
