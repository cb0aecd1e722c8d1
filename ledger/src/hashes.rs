//! The hashes of complete subtrees, in one file for each level. They derive from the leaves. They are written after the
//! leaves are durable, synced when a segment is full, and rebuilt from the last segment at every start.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::{FileError, at, durable};

use crate::disk_error::DiskError;
use crate::tree::{Frontier, Hash, Hashes};

/// The files. A reader must know the number of leaves.
#[derive(Debug)]
pub(crate) struct HashFiles {
    folder: PathBuf,
    levels: Vec<File>,
}

/// The tree of all records. It appends its hashes to the files.
#[derive(Debug)]
pub(crate) struct TreeWriter {
    files: Arc<HashFiles>,
    frontier: Frontier,
    /// The number of leaves whose hashes are in the files.
    written: u64,
    /// Hashes that are not written yet, for each level.
    pending: Vec<Vec<u8>>,
}

/// The hashes of the first `size` leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashesAt<'a> {
    pub(crate) files: &'a HashFiles,
    pub(crate) size: u64,
}

// === impl HashFiles ===

impl HashFiles {
    /// Opens the files, and creates missing ones. Their names are durable on return, because hashes of pruned leaves
    /// have no other copy.
    pub(crate) fn open(folder: &Path) -> Result<Self, DiskError> {
        let open = |level: u32| {
            let path = folder.join(level.to_string());
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            file.map_err(at(&path))
        };
        let levels = (0..LEVELS).map(open).collect::<Result<_, _>>()?;
        durable::sync_folder(folder).map_err(at(folder))?;
        Ok(Self {
            levels,
            folder: folder.to_owned(),
        })
    }

    /// The number of leaves whose hashes, and those of all subtrees that they complete, are in the files according to
    /// their lengths.
    pub(crate) fn size(&self) -> Result<u64, DiskError> {
        let mut size = u64::MAX;
        for (level, file) in (0..LEVELS).zip(&self.levels) {
            let length = file.metadata().map_err(|error| self.io_error(level, error))?.len();
            let complete = length / HASH_BYTES;
            // Leaves after the last subtree of this level may be incomplete.
            let leaves = match level {
                0 => complete,
                _ => ((complete + 1) << (8 * level)) - 1,
            };
            size = size.min(leaves);
        }
        Ok(size)
    }

    /// Continues this tree, and overwrites existing bytes: a full disk has room for that, and hashes of pruned leaves
    /// have no other copy.
    pub(crate) fn writer(self: &Arc<Self>, tree: Frontier) -> TreeWriter {
        TreeWriter {
            files: Arc::clone(self),
            written: tree.size(),
            frontier: tree,
            pending: vec![Vec::new(); LEVELS as usize],
        }
    }

    /// Bytes of all levels for a tree of `size` leaves.
    pub(crate) fn bytes(size: u64) -> u64 {
        (0..LEVELS).map(|level| (size >> (8 * level)) * HASH_BYTES).sum()
    }

    fn io_error(&self, level: u32, error: io::Error) -> FileError {
        at(&self.folder.join(level.to_string()))(error)
    }
}

// === impl TreeWriter ===

impl TreeWriter {
    /// Adds a leaf.
    pub(crate) fn push(&mut self, leaf: Hash) {
        let pending = &mut self.pending;
        self.frontier.push(leaf, &mut |level, hash| {
            if let Some(pending) = pending.get_mut(usize::from(level)) {
                pending.extend_from_slice(&hash.0);
            }
        });
    }

    /// The number of leaves.
    pub(crate) fn size(&self) -> u64 {
        self.frontier.size()
    }

    pub(crate) fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// The number of leaves whose hashes wait in memory.
    pub(crate) fn pending(&self) -> u64 {
        self.size() - self.written
    }

    /// Writes the pending hashes. Hashes that could not be written stay pending.
    pub(crate) fn flush(&mut self) -> Result<(), DiskError> {
        let files = Arc::clone(&self.files);
        for (level, (file, pending)) in (0..LEVELS).zip(files.levels.iter().zip(&self.pending)) {
            if !pending.is_empty() {
                let offset = (self.written >> (8 * level)) * HASH_BYTES;
                file.write_all_at(pending, offset)
                    .map_err(|error| files.io_error(level, error))?;
            }
        }
        self.pending.iter_mut().for_each(Vec::clear);
        self.written = self.size();
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        for (level, file) in (0..LEVELS).zip(&self.files.levels) {
            file.sync_data().map_err(|error| self.files.io_error(level, error))?;
        }
        Ok(())
    }
}

// === impl HashesAt ===

impl Hashes for HashesAt<'_> {
    type Error = DiskError;

    fn read(&self, level: u8, first: u64, count: usize) -> Result<Vec<Hash>, DiskError> {
        let end = first.saturating_add(count as u64);
        let complete = self.size.checked_shr(8 * u32::from(level)).unwrap_or(0);
        let file = self.files.levels.get(usize::from(level)).filter(|_| end <= complete);
        let Some(file) = file else {
            let size = self.size;
            let found =
                format!("a tree of {size} leaves has no complete subtrees {first} to {end} of 256^{level} leaves");
            return Err(DiskError::damaged(&self.files.folder, found));
        };
        let mut bytes = vec![0; count * HASH_BYTES as usize];
        file.read_exact_at(&mut bytes, first * HASH_BYTES)
            .map_err(|error| self.files.io_error(u32::from(level), error))?;
        let (hashes, _) = bytes.as_chunks();
        Ok(hashes.iter().copied().map(Hash).collect())
    }
}

const HASH_BYTES: u64 = 32;
/// The last level has subtrees of 2^48 leaves.
const LEVELS: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::leaf_hash;

    /// The root of this many leaves, each the hash of its number, with their hashes in files.
    fn grown(folder: &Path, size: u64) -> Frontier {
        let files = Arc::new(HashFiles::open(folder).unwrap());
        let mut writer = files.writer(Frontier::new());
        for index in 0..size {
            writer.push(leaf_hash(&index.to_be_bytes()));
            if index % 100 == 0 {
                writer.flush().unwrap();
            }
        }
        writer.flush().unwrap();
        writer.frontier
    }

    #[test]
    fn the_tree_is_restored_from_the_files_at_any_size() {
        let folder = tempfile::tempdir().unwrap();
        let whole = grown(folder.path(), 66_000);
        let files = HashFiles::open(folder.path()).unwrap();
        for size in [0, 1, 255, 256, 257, 65_535, 65_536, 65_999, 66_000] {
            let restored = Frontier::restore(size, &HashesAt { files: &files, size }).unwrap();
            let expected = tempfile::tempdir().unwrap();
            assert_eq!(restored, grown(expected.path(), size), "{size}");
        }
        assert_eq!(whole.size(), 66_000);
    }

    #[test]
    fn files_that_were_cut_short_say_how_far_they_go() {
        let folder = tempfile::tempdir().unwrap();
        grown(folder.path(), 1000);
        let files = HashFiles::open(folder.path()).unwrap();
        assert_eq!(files.size().unwrap(), 1000);
        files.levels[0].set_len(900 * HASH_BYTES - 1).unwrap();
        assert_eq!(files.size().unwrap(), 899);
        files.levels[1].set_len(HASH_BYTES).unwrap();
        assert_eq!(files.size().unwrap(), 511);
    }

    #[test]
    fn hashes_that_are_written_again_are_there_all_the_while() {
        let folder = tempfile::tempdir().unwrap();
        grown(folder.path(), 1000);
        let files = Arc::new(HashFiles::open(folder.path()).unwrap());
        let of_leaves = || {
            HashesAt {
                files: &files,
                size: 1000,
            }
            .read(0, 0, 1000)
            .unwrap()
        };
        let before = of_leaves();
        let mut writer = files.writer(Frontier::new());
        before[..300].iter().for_each(|hash| writer.push(*hash));
        writer.flush().unwrap();
        assert_eq!(of_leaves(), before);
    }

    #[test]
    fn incomplete_subtrees_have_no_hash() {
        let folder = tempfile::tempdir().unwrap();
        grown(folder.path(), 300);
        let files = HashFiles::open(folder.path()).unwrap();
        let hashes = HashesAt {
            files: &files,
            size: 299,
        };
        assert_eq!(hashes.read(0, 290, 9).unwrap().len(), 9);
        for (level, first, count) in [(0, 290, 10), (1, 0, 2), (2, 0, 1), (9, 0, 1)] {
            assert!(hashes.read(level, first, count).is_err());
        }
    }
}
