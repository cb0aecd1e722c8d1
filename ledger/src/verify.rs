//! Checks a ledger's folder byte by byte, without a control plane or beside a running one.
//!
//! The check trusts no file. It hashes the leaves, and compares their tree with the signed one. It reports each problem
//! with its file and offset, and continues with everything else.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use credence_storage::{FileError, durable};

use crate::checkpoint::{Checkpoint, SignedCheckpoint};
use crate::disk_error::DiskError;
use crate::group::groups_of;
use crate::index::{IndexFile, IndexSecret};
use crate::keys::{self, KeyFile};
use crate::log_identity::{origins_of, verifier_key_of};
use crate::losses::LossCheck;
use crate::note::{KeyName, VerifierKey};
use crate::recovery::index_again;
use crate::seal::Opener;
use crate::segment::Paths;
use crate::tree::{Frontier, Hash, leaf_hash};

/// The expectations for a folder.
#[derive(Debug, Clone, Default)]
pub struct Against {
    /// The log's key, from a place that the folder's writer could not change. Without it, the folder's own key is used.
    pub key: Option<VerifierKey>,
    /// Checkpoints that the log has published earlier.
    pub since: Vec<SignedCheckpoint>,
}

/// The results.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The checkpoint with which the leaves were compared.
    pub checkpoint: Option<Checkpoint>,
    /// The lowest index whose leaf is held.
    pub first: u64,
    /// The number of leaves, with pruned ones.
    pub size: u64,
    /// All problems.
    pub problems: Vec<Problem>,
    /// Parts that could not be checked, and why.
    pub unchecked: Vec<String>,
    /// An interrupted write after the published part. The next start cuts it off.
    pub torn: Option<Problem>,
    /// An incomplete erasure: the control plane, or its next start, still has to drop rows from the index.
    pub erasing: Option<Problem>,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The first wrong byte, if there is one place.
    pub offset: Option<u64>,
    /// The damage.
    pub found: String,
}

/// Checks a ledger's folder.
///
/// # Errors
/// The folder cannot be read at all.
pub fn verify(folder: &Path, against: &Against) -> io::Result<Findings> {
    std::fs::read_dir(folder)?;
    let mut checking = Checking {
        paths: Paths(folder.to_owned()),
        findings: Findings::default(),
    };
    let origins = origins_of(folder).unwrap_or_default();
    let key = checking.key(against, origins.last());
    // Read before the leaves, because a running control plane only adds leaves.
    checking.findings.checkpoint = key.and_then(|key| checking.checkpoint(&key, against.key.is_some()));
    let keys = checking.key_file();
    let sealed_with = keys.as_ref().zip(origins.first());
    let mut losses = sealed_with.and_then(|(keys, origin)| LossCheck::new(keys, origin.as_str()).ok());
    let known = checking.findings.problems.len();
    checking.tree(against, &mut losses);
    // Unreadable leaves may hold the notes.
    if let Some(losses) = losses.filter(|_| checking.findings.problems.len() == known) {
        checking.report_losses(&losses);
    }
    if let Some(keys) = &keys {
        checking.keys(keys);
    }
    if let Some((keys, origin)) = sealed_with {
        checking.indexes(keys, origin);
    }
    Ok(checking.findings)
}

struct Checking {
    paths: Paths,
    findings: Findings,
}

/// The tree as it grows, and the expected roots.
struct Growing {
    frontier: Frontier,
    levels: Vec<LevelFile>,
    /// Roots that the tree must have had, by size.
    commitments: Vec<Commitment>,
}

struct Commitment {
    size: u64,
    root: Hash,
    file: PathBuf,
    what: String,
}

/// A file of hashes, read in order.
struct LevelFile {
    path: PathBuf,
    file: Option<BufReader<File>>,
    read: u64,
    /// Whether the first wrong hash was already reported.
    is_bad: bool,
}

// === impl Checking ===

impl Checking {
    fn path(&self, name: &str) -> PathBuf {
        self.paths.0.join(name)
    }

    fn problem(&mut self, file: PathBuf, offset: Option<u64>, found: impl fmt::Display) {
        self.findings.problems.push(Problem::new(file, offset, found));
    }

    /// How many records the published checkpoint commits to.
    fn published(&self) -> u64 {
        let checkpoint = self.findings.checkpoint.as_ref();
        checkpoint.map_or(0, |checkpoint| checkpoint.size)
    }

    fn unchecked(&mut self, file: &Path, why: &io::Error) {
        self.findings.unchecked.push(format!("{}: {why}", file.display()));
    }

    /// The log's key, and whether the folder has the same one.
    fn key(&mut self, against: &Against, origin: Option<&KeyName>) -> Option<VerifierKey> {
        let own = match verifier_key_of(&self.paths.0) {
            Ok(own) => Some(own),
            // An auditor need not be able to sign evidence.
            Err(DiskError::Io(FileError { path, error })) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unchecked(&path, &error);
                None
            }
            Err(error) => {
                let problem = Problem::from(error);
                self.problem(problem.file, Some(0), problem.found);
                None
            }
        };
        let Some(key) = &against.key else { return own };
        if let Some(own) = own.filter(|own| own != key) {
            let path = match origin == Some(key.name()) {
                true => self.path("log-key"),
                false => self.path("origin"),
            };
            let found = format!("the folder's key is {own}, and {key} was expected");
            self.problem(path, Some(0), found);
        }
        Some(key.clone())
    }

    fn checkpoint(&mut self, key: &VerifierKey, is_trusted: bool) -> Option<Checkpoint> {
        let path = self.path("checkpoint");
        let opened = durable::read_small_file(&path, MAX_CHECKPOINT_LEN)
            .map_err(|error| error.to_string())
            .and_then(|note| SignedCheckpoint::open(&note, key).map_err(|error| error.to_string()));
        match opened {
            Ok(signed) => Some(signed.checkpoint().clone()),
            Err(error) => {
                self.problem(path, Some(0), error);
                if !is_trusted {
                    let found = "or this is not the key that signed the checkpoint: name the right one to find out";
                    self.problem(self.path("log-key"), Some(0), found);
                }
                None
            }
        }
    }

    /// Checks every leaf, every hash, and every signed root.
    fn tree(&mut self, against: &Against, losses: &mut Option<LossCheck>) {
        let mut growing = self.growing(against);
        let segments = match self.paths.held_segments() {
            Ok(segments) => segments,
            Err(error) => return self.problem(self.path("segments"), None, error),
        };
        if !self.leaves(segments.into(), &mut growing, losses) {
            return;
        }
        let size = growing.frontier.size();
        self.findings.size = size;
        for missing in growing.commitments.iter().filter(|commitment| commitment.size > size) {
            let found = format!(
                "{} commits to {} records, but there are {size}",
                missing.what, missing.size
            );
            self.problem(missing.file.clone(), None, found);
        }
        let published = self.published();
        for (level, short) in (0..).zip(growing.levels) {
            if short.read < published.min(size) >> (8 * level) {
                let found = "it ends before the published records do";
                self.problem(short.path, Some(short.read * HASH_BYTES), found);
            }
        }
    }

    /// Checks every leaf of these segments. Returns whether the segments are consecutive.
    fn leaves(&mut self, mut segments: VecDeque<u64>, growing: &mut Growing, losses: &mut Option<LossCheck>) -> bool {
        self.begin(&segments, growing);
        while let Some(first) = segments.pop_front() {
            let path = self.paths.segment(first);
            let size = growing.frontier.size();
            if first != size {
                let found = format!("it begins with record {first}, but the one before it ends with {size}");
                self.problem(path, None, found);
                return false;
            }
            let whole = self.segment(&path, growing, losses);
            if let Err(DiskError::Io(_)) = whole
                && let Some(held) = self.held_instead_of(first)
            {
                segments = held;
                self.begin(&segments, growing);
                continue;
            }
            if !self.ends_well(whole, segments.is_empty(), growing.frontier.size()) {
                break;
            }
        }
        true
    }

    fn growing(&self, against: &Against) -> Growing {
        let level = |level: u32| {
            let path = self.paths.hashes().join(level.to_string());
            LevelFile {
                file: File::open(&path)
                    .ok()
                    .map(|file| BufReader::with_capacity(1 << 20, file)),
                path,
                read: 0,
                is_bad: false,
            }
        };
        let published = self.findings.checkpoint.as_ref().map(|checkpoint| Commitment {
            size: checkpoint.size,
            root: checkpoint.root,
            file: self.path("checkpoint"),
            what: "the published checkpoint".to_owned(),
        });
        let since = against.since.iter().map(|signed| Commitment {
            size: signed.checkpoint().size,
            root: signed.checkpoint().root,
            file: self.path("segments"),
            what: format!("an earlier checkpoint of {}", signed.checkpoint().origin),
        });
        Growing {
            frontier: Frontier::new(),
            levels: (0..u64::BITS / 8).map(level).collect(),
            commitments: published.into_iter().chain(since).collect(),
        }
    }

    /// The held segments, if a running control plane has pruned the one that begins with `first`.
    fn held_instead_of(&self, first: u64) -> Option<VecDeque<u64>> {
        let segments = self.paths.held_segments().ok()?;
        (*segments.first()? > first).then(|| segments.into())
    }

    /// Pruned leaves are known by their hashes only.
    fn begin(&mut self, segments: &VecDeque<u64>, growing: &mut Growing) {
        let first = segments.front().copied().unwrap_or(0);
        self.findings.first = first;
        while growing.frontier.size() < first {
            let Some(level) = growing.levels.first_mut() else {
                return;
            };
            match level.next() {
                Ok(Some(hash)) => self.push(hash, growing, true),
                Ok(None) => {
                    let (path, read) = (level.path.clone(), level.read * HASH_BYTES);
                    return self.problem(path, Some(read), "it ends here, before the first held record");
                }
                Err(error) => return self.problem(level.path.clone(), None, error),
            }
        }
    }

    fn segment(&mut self, path: &Path, growing: &mut Growing, losses: &mut Option<LossCheck>) -> Result<(), DiskError> {
        for group in groups_of(path)? {
            let group = group?;
            let damaged = |found| Err(DiskError::damaged(path, found).at_byte(group.offset));
            if group.head.first_index != growing.frontier.size() {
                return damaged("the group does not begin with the next record");
            }
            if let Some(beginning) = &group.head.beginning
                && beginning.root != growing.frontier.root().0
            {
                return damaged("it was written after other records than the present ones");
            }
            for leaf in group.leaves() {
                if let Some(losses) = losses.as_mut() {
                    losses.take(leaf);
                }
                self.push(leaf_hash(leaf.sealed), growing, false);
            }
        }
        Ok(())
    }

    /// Adds a leaf. Compares every hash that it completes with the files, and the root with the signed ones.
    fn push(&mut self, leaf: Hash, growing: &mut Growing, is_pruned: bool) {
        let problems = &mut self.findings.problems;
        growing.frontier.push(leaf, &mut |level, hash| {
            // The hash of a pruned leaf was just read from that file.
            if level == 0 && is_pruned {
                return;
            }
            if let Some(level) = growing.levels.get_mut(usize::from(level)) {
                level.compare(&hash, problems);
            }
        });
        let size = growing.frontier.size();
        if growing.commitments.iter().all(|commitment| commitment.size != size) {
            return;
        }
        let root = growing.frontier.root();
        for wrong in growing
            .commitments
            .iter()
            .filter(|commitment| commitment.size == size && commitment.root != root)
        {
            let found = format!(
                "the first {size} records have the root {root}, but {} commits to {}: they are not the ones that were \
                 recorded",
                wrong.what, wrong.root
            );
            problems.push(Problem::new(wrong.file.clone(), None, found));
        }
    }

    /// Handles the result of reading a segment. Returns whether the next one can be read.
    fn ends_well(&mut self, whole: Result<(), DiskError>, is_last: bool, size: u64) -> bool {
        let problem = match whole {
            Ok(()) => return true,
            Err(error) => Problem::from(error),
        };
        let published = self.published();
        // A running control plane may be about to write it, or a crash interrupted it.
        if is_last && size >= published && problem.offset.is_some_and(|offset| offset > 0) {
            self.findings.torn = Some(problem);
        } else {
            self.findings.problems.push(problem);
        }
        false
    }
}

// === impl Checking: what is made to read the leaves ===

impl Checking {
    /// The data keys, if they can be read.
    fn key_file(&mut self) -> Option<Arc<KeyFile>> {
        let error = match KeyFile::open_to_read(&self.path("keys")) {
            Ok(keys) => return Some(Arc::new(keys)),
            Err(error) => error,
        };
        // An auditor need not be able to read the keys.
        match error.error.kind() {
            io::ErrorKind::PermissionDenied => self.unchecked(&error.path, &error.error),
            _ => self.findings.problems.push(DiskError::from(error).into()),
        }
        None
    }

    /// Every loss must be accounted for.
    fn report_losses(&mut self, losses: &LossCheck) {
        let first = self.findings.first;
        if !losses.excuses(first) {
            let path = self.paths.segment(first);
            let found = format!(
                "it is the oldest, but no note in the ledger says that the records before {first} were removed; restore \
                 them from a backup"
            );
            self.problem(path, None, found);
        }
        let unaccounted = losses.unaccounted();
        // Read last: pruning removes segments before it destroys their keys.
        let held = match self.paths.held_segments() {
            Ok(segments) => segments.first().copied().unwrap_or(0),
            Err(error) => return self.problem(self.path("segments"), None, error),
        };
        for (name, _, wrong) in unaccounted.into_iter().filter(|(_, last, _)| *last >= held) {
            let found = format!("key {name}: {wrong}");
            self.problem(self.path("keys"), Some(keys::slot_offset(name)), found);
        }
    }

    fn keys(&mut self, keys: &KeyFile) {
        // A running control plane may be overwriting a slot.
        let checked = keys.damaged_slots().and_then(|damaged| match damaged.is_empty() {
            true => Ok(damaged),
            false => keys.damaged_slots(),
        });
        match checked {
            Ok(damaged) => {
                for (offset, found) in damaged {
                    self.problem(self.path("keys"), Some(offset), found);
                }
            }
            Err(error) => self.findings.problems.push(error.into()),
        }
    }

    fn indexes(&mut self, keys: &Arc<KeyFile>, origin: &KeyName) {
        let secret = match keys.index_secret() {
            Ok(secret) => secret,
            Err(error) => return self.findings.problems.push(error.into()),
        };
        let Ok(segments) = self.paths.held_segments() else {
            return;
        };
        // The last segment has no index yet.
        for pair in segments.windows(2) {
            let [first, next] = pair else { continue };
            let segment = self.paths.segment(*first);
            let check = || {
                let opener = Opener::new(origin.as_str(), Arc::clone(keys));
                self.index(*first, *next, &segment, &secret, opener)
            };
            let mut checked = check();
            let mut erasing = None;
            if checked != Ok(Ok(())) {
                // A running control plane may be about to drop rows from it, or to prune it.
                erasing = self.erasing();
                checked = check();
                erasing = erasing.or_else(|| self.erasing());
            }
            match (checked, erasing) {
                (Ok(Ok(())), _) => {}
                _ if !segment.exists() => {}
                (Ok(Err(_)), Some(file)) => {
                    let found = "the index still has rows of erased records";
                    self.findings.erasing.get_or_insert(Problem::new(file, None, found));
                }
                (Ok(Err(problem)) | Err(problem), _) => self.findings.problems.push(problem),
            }
        }
    }

    /// A file that exists while rows of erased records may still be in the index.
    fn erasing(&self) -> Option<PathBuf> {
        let key = self.paths.being_erased().ok()?.into_iter().next()?;
        Some(self.paths.erasing(key))
    }

    /// Whether the index is complete, and matches the records.
    fn index(
        &self,
        first: u64,
        next: u64,
        segment: &Path,
        secret: &IndexSecret,
        opener: Opener,
    ) -> Result<Result<(), Problem>, Problem> {
        let path = self.paths.index(first);
        let file = match IndexFile::open(&path, secret) {
            // The index of a segment that just became full is being written.
            Err(_) if !path.exists() => return Ok(Ok(())),
            file => file?,
        };
        file.check()?;
        match index_again(segment, first, next, secret, opener) {
            Ok(made) => Ok(file.compare(&made).map_err(Problem::from)),
            // This was reported when the leaves were read.
            Err(_) => Ok(Ok(())),
        }
    }
}

// === impl LevelFile ===

impl LevelFile {
    fn next(&mut self) -> io::Result<Option<Hash>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let mut hash = [0; HASH_BYTES as usize];
        match file.read_exact(&mut hash) {
            Ok(()) => {
                self.read += 1;
                Ok(Some(Hash(hash)))
            }
            // Hashes derived from the leaves may not be written yet.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.file = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn compare(&mut self, expected: &Hash, problems: &mut Vec<Problem>) {
        let offset = self.read * HASH_BYTES;
        let found = match self.next() {
            Ok(None) => return,
            Ok(Some(found)) if found == *expected || self.is_bad => return,
            Ok(Some(found)) => format!("it has the hash {found}, but the records have {expected}"),
            Err(error) => error.to_string(),
        };
        self.is_bad = true;
        problems.push(Problem::new(self.path.clone(), Some(offset), found));
    }
}

impl Problem {
    fn new(file: PathBuf, offset: Option<u64>, found: impl fmt::Display) -> Self {
        Self {
            file,
            offset,
            found: found.to_string(),
        }
    }
}

impl From<DiskError> for Problem {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Io(FileError { path, error }) => Self::new(path, None, error),
            DiskError::Damaged {
                path, offset, found, ..
            } => Self::new(path, offset, found),
        }
    }
}

/// With file and offset.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.found)
    }
}

const HASH_BYTES: u64 = 32;
const MAX_CHECKPOINT_LEN: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, LedgerBounds, LedgerOptions, NewItem, Retention, StoredNote};

    #[test]
    fn a_segment_pruned_during_the_check_is_not_damage() {
        let folder = tempfile::tempdir().unwrap();
        let options = LedgerOptions {
            origin: "log.example".to_owned(),
            bounds: LedgerBounds {
                total: 1 << 30,
                segment: 1,
                keys: 10,
            },
            retention: Retention::default(),
            published: None,
        };
        let (mut ledger, _) = Ledger::open(folder.path(), options).unwrap();
        ledger
            .append(&vec![NewItem::Note(StoredNote::default()); 1000])
            .unwrap();
        let mut checking = Checking {
            paths: Paths(folder.path().to_owned()),
            findings: Findings::default(),
        };
        let segments = checking.paths.held_segments().unwrap();
        let pruned = ledger.prune(600, None).unwrap();
        assert_eq!((pruned.first, pruned.segments), (512, 2));
        let mut growing = checking.growing(&Against::default());
        assert!(checking.leaves(segments.into(), &mut growing, &mut None));
        assert_eq!(checking.findings.problems, []);
        assert_eq!(
            (checking.findings.first, growing.frontier.size()),
            (512, ledger.reader().size())
        );
    }
}
