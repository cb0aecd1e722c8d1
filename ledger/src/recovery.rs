//! Opens the ledger, after a crash too.
//!
//! Only the last segment is read. Everything before it, with its keys and hashes, was durable before the last segment
//! began. Hashes and index derive from the leaves, and are rebuilt if missing.

use std::path::Path;
use std::sync::Arc;

use credence_storage::{at, durable};

use crate::disk_error::DiskError;
use crate::entry::EntryKind;
use crate::frames::{FrameFile, HEADER_LEN};
use crate::group::{Beginning, Group, GroupHead, LEAF_LENGTH_BYTES, Leaf, groups_of};
use crate::hashes::{HashFiles, HashesAt, TreeWriter};
use crate::index::{IndexBuilder, IndexFile, IndexSecret, SegmentIndex};
use crate::index_rows::Row;
use crate::indexer::{ErasedRows, Indexer, MAX_UNFINISHED, finish};
use crate::keys::DataKeys;
use crate::known_chains::KnownChains;
use crate::ledger::{Ledger, Opened, create_segment};
use crate::ledger_error::LedgerError;
use crate::options::LedgerOptions;
use crate::principal_quota::Shares;
use crate::reader::Shared;
use crate::record::{LedgerRecord, Note, RecordBody};
use crate::seal::{Opener, Sealer, key_name};
use crate::segment::{Paths, Segment, names_in, parse_segment_name};
use crate::sources::KnownSources;
use crate::tree::{Frontier, Hash, Hashes as _, leaf_hash};

// === impl Ledger ===

impl Ledger {
    /// Opens the ledger in `folder`, which must exist. On an error, something is missing or damaged, and nothing that
    /// could be restored was changed.
    pub fn open(folder: &Path, options: LedgerOptions) -> Result<(Self, Opened), LedgerError> {
        let paths = Paths(folder.to_owned());
        for folder in [paths.segments(), paths.indexes(), paths.hashes()] {
            durable::create_folder(&folder).map_err(at(&folder))?;
        }
        let mut found = list_segments(&paths)?;
        remove_forsaken_indexes(&paths, &found)?;
        if found.is_empty() && !paths.keys().exists() {
            DataKeys::create(&paths.keys())?;
        }
        let keys = DataKeys::open(&paths.keys(), options.bounds.keys, |name| {
            found.iter().any(|first| seals_with(&paths.segment(*first), name))
        })?;
        let secret = keys.file().index_secret()?;
        let hashes = Arc::new(HashFiles::open(&paths.hashes())?);
        let last = match found.pop() {
            Some(last) => last,
            None => {
                begin(&paths, &options, &secret, &hashes)?;
                0
            }
        };
        let shared = Arc::new(Shared::new(options.origin.clone(), keys.file(), hashes));
        let mut replay = Replay::begin(&paths, keys, (&found, last), &secret, &shared)?;
        let current = replay.run()?;
        let size = replay.tree.size();
        if let Some(published) = options.published {
            expect_published(&paths, published, size, &shared.hashes)?;
        }
        let held_from = found.first().copied().unwrap_or(last);
        if held_from > replay.first_held {
            return Err(missing(&paths.segment(held_from), replay.first_held, held_from).into());
        }
        let segment = &replay.segment;
        segment.grown((size - last) as u32, current.end());
        shared.begin(Arc::clone(segment));
        shared.grown(size);
        let mut ledger = Self {
            sealer: Sealer::new(&options.origin).map_err(at(&paths.0))?,
            indexer: Indexer::start(replay.unfinished).map_err(at(&paths.0))?,
            paths,
            options,
            keys: replay.keys,
            current,
            segment: replay.segment,
            sources: replay.sources,
            chains: replay.chains,
            shares: replay.shares,
            tree: replay.tree,
            secret,
            shared,
            settled_bytes: 0,
            reserve: 0,
            counted: 0,
        };
        ledger.settle_bytes();
        ledger.complete_erasures(&replay.erased)?;
        if replay.first_held > held_from {
            // Completes a pruning that a crash interrupted after its note.
            ledger.remove_before(replay.first_held)?;
        } else {
            // The segments may already be removed, but not the keys.
            ledger.keys.destroy_unused(replay.first_held)?;
        }
        Ok((ledger, replay.opened))
    }

    /// Completes erasures that a crash interrupted after their notes.
    fn complete_erasures(&mut self, noted: &[u32]) -> Result<(), LedgerError> {
        let mut unfinished = self.paths.being_erased().map_err(at(&self.paths.0))?;
        for key in noted {
            if self.keys.erase(*key)? {
                unfinished.push(*key);
            }
            self.chains.forget_key(*key);
        }
        unfinished.sort_unstable();
        unfinished.dedup();
        for key in unfinished {
            let pending = self.paths.erasing(key);
            if self.keys.is_erased(key) {
                self.indexer.forget(ErasedRows {
                    segments: self.shared.segments().into_iter(),
                    failed: false,
                    principal: None,
                    key,
                    pending,
                });
            } else {
                // The erasure was requested, but its note was never written.
                std::fs::remove_file(&pending).map_err(at(&pending))?;
            }
        }
        Ok(())
    }
}

/// Creates the first segment of a ledger without segments, unless something shows that it had some.
fn begin(paths: &Paths, options: &LedgerOptions, secret: &IndexSecret, hashes: &HashFiles) -> Result<(), LedgerError> {
    if let Some((published, _)) = options.published.filter(|(size, _)| *size > 0) {
        return Err(gone(paths, published, 0).into());
    }
    // Hashes are written for records only.
    let found = hashes.size()?;
    if found > 0 {
        return Err(missing(&paths.segments(), 0, found).into());
    }
    let beginning = Beginning {
        root: Frontier::new().root().0.to_vec(),
        ..Beginning::default()
    };
    create_segment(paths, beginning, IndexBuilder::new(secret, 0))?;
    Ok(())
}

/// Reads all segments; the last one frame by frame.
struct Replay {
    opener: Opener,
    keys: DataKeys,
    /// The last segment, which is read.
    segment: Arc<Segment>,
    sources: KnownSources,
    chains: KnownChains,
    shares: Shares,
    tree: TreeWriter,
    first_held: u64,
    /// Keys with an erasure note.
    erased: Vec<u32>,
    /// Segments before the last one whose index could not be written.
    unfinished: Vec<Arc<Segment>>,
    opened: Opened,
}

// === impl Replay ===

impl Replay {
    /// The state before the last segment. The segments before it begin with the found indexes.
    fn begin(
        paths: &Paths,
        keys: DataKeys,
        (found, last): (&[u64], u64),
        secret: &IndexSecret,
        shared: &Shared,
    ) -> Result<Self, LedgerError> {
        let (mut shares, mut unfinished, mut opened) = (Shares::default(), Vec::new(), Opened::default());
        let followers = found.iter().skip(1).chain([&last]);
        for (first, next) in found.iter().zip(followers) {
            let (segment, made) = open_full(paths, *first, *next, secret, shared)?;
            let behind = first_frame(&paths.segment(*next), *next)?;
            shares.remember(*first, behind.beginning.map(|behind| behind.shares).unwrap_or_default());
            let segment = Arc::new(segment);
            // A full disk must not prevent the start: the index is written later.
            match finish(&segment) {
                Err(error) if unfinished.len() >= MAX_UNFINISHED => return Err(error.into()),
                Err(_) => unfinished.push(Arc::clone(&segment)),
                Ok(()) => {}
            }
            opened.reindexed += usize::from(made);
            shared.begin(segment);
        }
        let head = first_frame(&paths.segment(last), last)?;
        let tree;
        (tree, opened.rehashed) = restore_tree(paths, shared, last, &head)?;
        let index = SegmentIndex::Growing(IndexBuilder::new(secret, last));
        Ok(Self {
            opener: shared.opener(),
            keys,
            segment: Arc::new(Segment::new(last, paths, head.received_unix_nano, index)),
            sources: KnownSources::default(),
            chains: KnownChains::default(),
            shares,
            tree,
            first_held: 0,
            erased: Vec::new(),
            unfinished,
            opened,
        })
    }

    /// Reads the last segment, and cuts off an interrupted write.
    fn run(&mut self) -> Result<FrameFile, LedgerError> {
        let segment = Arc::clone(&self.segment);
        let (file, torn) = FrameFile::open(&segment.path, |frame| {
            let group = Group::read(&segment.path, frame)?;
            if group.head.first_index != self.tree.size() {
                let found = "its records do not continue the previous ones";
                return Err(DiskError::damaged(&segment.path, found).at_byte(group.offset).into());
            }
            self.take(&group)
        })?;
        self.opened.torn = torn;
        self.tree.flush()?;
        Ok(file)
    }

    fn take(&mut self, group: &Group) -> Result<(), LedgerError> {
        if let Some(beginning) = &group.head.beginning {
            self.first_held = self.first_held.max(beginning.first_held);
            beginning.sources.iter().for_each(|mark| self.sources.apply(mark));
        }
        for leaf in group.leaves() {
            self.leaf(leaf, group.head.received_unix_nano)?;
        }
        group.head.sources.iter().for_each(|mark| self.sources.apply(mark));
        Ok(())
    }

    fn leaf(&mut self, leaf: Leaf<'_>, received: u64) -> Result<(), LedgerError> {
        let key = key_name(leaf.sealed);
        if let Some(key) = key {
            self.keys.was_used(key, self.segment.first())?;
            self.shares.add(key, (LEAF_LENGTH_BYTES + leaf.sealed.len()) as u64);
        }
        let record = record_of(&mut self.opener, leaf);
        let row = Row::of(&record.body);
        self.segment
            .with_growing(|index| index.add(leaf.offset, row.span(received), &row.keys()));
        if let Row::Entry(entry) = row
            && let EntryKind::Chain(chain) = entry.kind
            && let Some(key) = key
        {
            self.chains.add(chain.digest(), leaf.index, key);
        }
        if let RecordBody::Note(note) = &record.body {
            match &note.note {
                Some(Note::Erasure(erasure)) => self.erased.extend(u32::try_from(erasure.key)),
                Some(Note::Pruning(pruning)) => self.first_held = self.first_held.max(pruning.first),
                Some(Note::Mismatch(_)) | None => {}
            }
        }
        self.tree.push(leaf_hash(leaf.sealed));
        if self.tree.pending() >= PENDING_HASHES {
            self.tree.flush()?;
        }
        Ok(())
    }
}

/// The record in a leaf. A leaf that does not open is an error only for a reader that asks for it: the tree shows
/// whether it was changed.
fn record_of(opener: &mut Opener, leaf: Leaf<'_>) -> LedgerRecord {
    let record = opener.open(leaf.index, leaf.sealed);
    record.unwrap_or_else(|_| LedgerRecord::lost(leaf.index, RecordBody::Unreadable))
}

/// Whether a segment may have a leaf sealed with this key. An unreadable part may have one, but a torn end does not.
fn seals_with(segment: &Path, name: u32) -> bool {
    let has_leaf = |group: Group| group.leaves().any(|leaf| key_name(leaf.sealed) == Some(name));
    match groups_of(segment) {
        Ok(mut groups) => groups.any(|group| group.map_or(true, has_leaf)),
        Err(_) => true,
    }
}

/// Opens a full segment, and rebuilds its index if necessary.
fn open_full(
    paths: &Paths,
    first: u64,
    next: u64,
    secret: &IndexSecret,
    shared: &Shared,
) -> Result<(Segment, bool), LedgerError> {
    let path = paths.segment(first);
    let head = first_frame(&path, first)?;
    let bytes = path.metadata().map_err(at(&path))?.len();
    let known = IndexFile::open(&paths.index(first), secret).ok();
    let known = known.filter(|file| file.first() == first && first + u64::from(file.places()) == next);
    let made = known.is_none();
    let index = match known {
        Some(file) => SegmentIndex::File(file),
        None => SegmentIndex::Growing(index_again(&path, first, next, secret, shared.opener())?),
    };
    let segment = Segment::new(first, paths, head.received_unix_nano, index);
    segment.grown((next - first) as u32, bytes);
    Ok((segment, made))
}

/// Rebuilds the index of a full segment from its records.
pub(crate) fn index_again(
    path: &Path,
    first: u64,
    next: u64,
    secret: &IndexSecret,
    mut opener: Opener,
) -> Result<IndexBuilder, DiskError> {
    let mut index = IndexBuilder::new(secret, first);
    for group in groups_of(path)? {
        let group = group?;
        for leaf in group.leaves() {
            let record = record_of(&mut opener, leaf);
            let row = Row::of(&record.body);
            index.add(leaf.offset, row.span(group.head.received_unix_nano), &row.keys());
        }
    }
    let found = first + u64::from(index.places());
    if found != next {
        return Err(missing(path, found, next));
    }
    Ok(index)
}

/// The tree of everything before the last segment, which contains the expected root; and whether its hashes were
/// rebuilt.
fn restore_tree(
    paths: &Paths,
    shared: &Shared,
    last: u64,
    head: &GroupHead,
) -> Result<(TreeWriter, bool), LedgerError> {
    let files = &shared.hashes;
    let root = head.beginning.as_ref().map(|beginning| beginning.root.as_slice());
    let is_right = |found: Hash| Some(&found.0[..]) == root;
    if files.size()? >= last {
        let restored = Frontier::restore(last, &HashesAt { files, size: last })?;
        if is_right(restored.root()) {
            return Ok((files.writer(restored), false));
        }
    }
    // From the hashes of pruned leaves, and from held leaves.
    let lost = || {
        let found = "the hashes are damaged, and their records are pruned";
        DiskError::damaged(&paths.hashes(), found)
    };
    let segments = shared.segments();
    let held_from = segments.first().map_or(last, |segment| segment.first());
    let level_0 = HashesAt { files, size: held_from };
    let mut tree = files.writer(Frontier::new());
    // The hashes of pruned leaves are overwritten with the same bytes, because they exist nowhere else.
    for first in (0..held_from).step_by(PENDING_HASHES as usize) {
        let count = PENDING_HASHES.min(held_from - first) as usize;
        for leaf in level_0.read(0, first, count).map_err(|_| lost())? {
            tree.push(leaf);
        }
        tree.flush()?;
    }
    for segment in segments {
        for group in groups_of(&segment.path)? {
            for leaf in group?.leaves() {
                tree.push(leaf_hash(leaf.sealed));
            }
            tree.flush()?;
        }
    }
    if tree.size() != last || !is_right(tree.root()) {
        return Err(lost().into());
    }
    tree.sync()?;
    Ok((tree, true))
}

/// Checks that the tree begins with the last published one.
fn expect_published(
    paths: &Paths,
    (published, expected): (u64, Hash),
    size: u64,
    files: &HashFiles,
) -> Result<(), DiskError> {
    if published > size {
        return Err(gone(paths, published, size));
    }
    let found = Frontier::restore(published, &HashesAt { files, size })?.root();
    if found == expected {
        return Ok(());
    }
    let found = format!(
        "the first {published} records have the root {found}, but a published checkpoint has {expected}: they \
         were changed"
    );
    Err(DiskError::damaged(&paths.segments(), found))
}

fn missing(path: &Path, expected: u64, found: u64) -> DiskError {
    let found = format!(
        "the ledger has no records {expected} to {found}: the segment before this one is missing or incomplete"
    );
    DiskError::damaged(path, found)
}

fn gone(paths: &Paths, published: u64, size: u64) -> DiskError {
    let found = format!(
        "a checkpoint of {published} records was published, but there are {size}: records that others rely on are gone"
    );
    DiskError::damaged(&paths.segments(), found)
}

/// The first frame of a segment.
fn first_frame(path: &Path, first: u64) -> Result<GroupHead, DiskError> {
    let head = groups_of(path)?.next().transpose()?.map(|group| group.head);
    let head = head.filter(|head| head.first_index == first && head.beginning.is_some());
    let other = || DiskError::damaged(path, "its first frame does not match its name").at_byte(HEADER_LEN);
    head.ok_or_else(other)
}

fn unexpected_file(path: &Path) -> DiskError {
    DiskError::damaged(path, "it does not belong in the ledger's folder").with_cure("Move it away")
}

/// The existing segments, oldest first.
fn list_segments(paths: &Paths) -> Result<Vec<u64>, LedgerError> {
    let folder = paths.segments();
    let mut found = Vec::new();
    for name in names_in(&folder).map_err(at(&folder))? {
        // The creation of a segment was interrupted. Its name will be used again.
        if !name.ends_with(".new") {
            found.push(parse_segment_name(&name).ok_or_else(|| unexpected_file(&folder.join(&name)))?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes indexes without a segment: the segment was pruned while its index was being written.
fn remove_forsaken_indexes(paths: &Paths, segments: &[u64]) -> Result<(), LedgerError> {
    let folder = paths.indexes();
    for name in names_in(&folder).map_err(at(&folder))? {
        let path = folder.join(&name);
        let first = parse_segment_name(name.strip_suffix(".new").unwrap_or(&name));
        if first.is_some_and(|first| segments.binary_search(&first).is_err()) {
            std::fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// The number of hashes kept in memory while the last segment is read.
const PENDING_HASHES: u64 = 1 << 15;
