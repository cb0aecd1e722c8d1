//! The chains in a folder's ledger, read without its control plane or beside a running one.
//!
//! One thread reads blocks in order. Others open them, which takes most of the time. Every leaf is opened to see
//! whether it is a chain: a group's head lists the chains too, but is not in the tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::at;

use crate::disk_error::DiskError;
use crate::entry::EntryKind;
use crate::group::{Group, groups_of};
use crate::keys::KeyFile;
use crate::log_identity::origins_of;
use crate::record::RecordBody;
use crate::seal::{OpenError, Opener};
use crate::segment::Paths;

/// A folder whose stored chains are read.
#[derive(Debug)]
pub struct StoredChains {
    paths: Paths,
    origin: String,
    keys: Arc<KeyFile>,
}

/// Sealed records that were written together.
#[derive(Debug)]
pub struct SealedBlock {
    path: PathBuf,
    group: Group,
}

/// The chains of a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenedChains {
    /// The index of each record, and the tokens joined by `~`.
    pub chains: Vec<(u64, String)>,
    /// The number of records that were erased with their principal.
    pub erased: u64,
}

// === impl StoredChains ===

impl StoredChains {
    /// Opens a ledger's folder to read it only.
    pub fn open(folder: &Path) -> Result<Self, DiskError> {
        let no_ledger = || DiskError::damaged(folder, "it holds no ledger").with_cure("Name the folder of a ledger");
        let origin = origins_of(folder)?.first().ok_or_else(no_ledger)?.to_string();
        let paths = Paths(folder.to_owned());
        let keys = Arc::new(KeyFile::open_to_read(&paths.keys())?);
        Ok(Self { paths, origin, keys })
    }

    /// An opener of blocks; each thread has its own.
    pub fn opener(&self) -> Opener {
        Opener::new(&self.origin, Arc::clone(&self.keys))
    }

    /// Passes every block to `visit`, oldest first. Returns an unfinished write at the end of the last segment, if any:
    /// a running control plane may be about to finish it, and the next start cuts it off.
    pub fn blocks(&self, mut visit: impl FnMut(SealedBlock)) -> Result<Option<DiskError>, DiskError> {
        let segments = self.paths.held_segments();
        let mut segments = segments.map_err(at(&self.paths.segments()))?;
        let last = segments.pop();
        for first in segments {
            self.segment(first, &mut visit)?;
        }
        let Some(last) = last else { return Ok(None) };
        match self.segment(last, &mut visit) {
            Err(error @ DiskError::Damaged { offset: Some(1..), .. }) => Ok(Some(error)),
            other => other.map(|()| None),
        }
    }

    fn segment(&self, first: u64, visit: &mut impl FnMut(SealedBlock)) -> Result<(), DiskError> {
        let path = self.paths.segment(first);
        for group in groups_of(&path)? {
            visit(SealedBlock {
                path: path.clone(),
                group: group?,
            });
        }
        Ok(())
    }
}

// === impl SealedBlock ===

impl SealedBlock {
    /// Opens the block's records, and returns those that are chains.
    pub fn open(self, opener: &mut Opener) -> Result<OpenedChains, OpenError> {
        let Self { path, group } = self;
        let damaged = |found| DiskError::damaged(&path, found).at_byte(group.offset);
        let mut opened = OpenedChains::default();
        for leaf in group.leaves() {
            let stored = match opener.open(leaf.index, leaf.sealed)?.body {
                RecordBody::Erased => {
                    opened.erased += 1;
                    continue;
                }
                RecordBody::Entry(stored) if stored.known_chain.is_empty() => stored,
                _ => continue,
            };
            let entry = stored.view().ok_or_else(|| damaged("an entry cannot be read"))?;
            if let EntryKind::Chain(chain) = entry.kind {
                let joined = str::from_utf8(chain.chain).map_err(|_| damaged("a chain is not text"))?;
                opened.chains.push((leaf.index, joined.to_owned()));
            }
        }
        Ok(opened)
    }
}
