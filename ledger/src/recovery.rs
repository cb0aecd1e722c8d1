//! Opens the ledger, after a crash too.
//!
//! Only the last segment is read. What lies before it is taken for granted: it was durable, with its keys and hashes,
//! before the last segment began. What follows from the leaves (hashes, index) is made again where it is missing.

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
    /// Opens the ledger in `folder`, which exists. An error means that something is missing or damaged; nothing was changed
    /// that could be restored.
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
            // What a note says is pruned, and a crash kept from being removed.
            ledger.remove_before(replay.first_held)?;
        } else {
            // The segments may be gone, and the keys not yet.
            ledger.keys.destroy_unused(replay.first_held)?;
        }
        Ok((ledger, replay.opened))
    }

    /// Erases what a note says is erased, where a crash kept that from being done.
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
                // It was asked for and never noted.
                std::fs::remove_file(&pending).map_err(at(&pending))?;
            }
        }
        Ok(())
    }
}

/// Makes the first segment of a ledger that has none, if nothing says that it had one.
fn begin(paths: &Paths, options: &LedgerOptions, secret: &IndexSecret, hashes: &HashFiles) -> Result<(), LedgerError> {
    if let Some((published, _)) = options.published.filter(|(size, _)| *size > 0) {
        return Err(gone(paths, published, 0).into());
    }
    // Hashes are written of records only.
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

/// Takes in all segments: the last one frame by frame.
struct Replay {
    opener: Opener,
    keys: DataKeys,
    /// The last one, which is read.
    segment: Arc<Segment>,
    sources: KnownSources,
    chains: KnownChains,
    shares: Shares,
    tree: TreeWriter,
    first_held: u64,
    /// Keys that a note says are erased.
    erased: Vec<u32>,
    /// Segments before the last one whose index could not be written.
    unfinished: Vec<Arc<Segment>>,
    opened: Opened,
}

// === impl Replay ===

impl Replay {
    /// What is known before the last segment: those before it begin with the indexes that were found.
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
            // A disk that is full now is no reason to be without a ledger once it is not: it is tried again.
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

    /// Reads the last segment, and cuts off a write that a crash interrupted.
    fn run(&mut self) -> Result<FrameFile, LedgerError> {
        let segment = Arc::clone(&self.segment);
        let (file, torn) = FrameFile::open(&segment.path, |frame| {
            let group = Group::read(&segment.path, frame)?;
            if group.head.first_index != self.tree.size() {
                let found = "its records do not follow the ones before them";
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

/// What a leaf holds. One that does not open is an error only for the reader that asks for it: the tree shows whether it is
/// as it was.
fn record_of(opener: &mut Opener, leaf: Leaf<'_>) -> LedgerRecord {
    let record = opener.open(leaf.index, leaf.sealed);
    record.unwrap_or_else(|_| LedgerRecord::lost(leaf.index, RecordBody::Unreadable))
}

/// Whether a segment has a leaf that is sealed with the key of this name. What cannot be read may be such a leaf; but not
/// an end that a crash has cut short.
fn seals_with(segment: &Path, name: u32) -> bool {
    let has_leaf = |group: Group| group.leaves().any(|leaf| key_name(leaf.sealed) == Some(name));
    match groups_of(segment) {
        Ok(mut groups) => groups.any(|group| group.map_or(true, has_leaf)),
        Err(_) => true,
    }
}

/// Opens a segment that is full, and makes its index again if need be.
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

/// Makes the index of a full segment from its records.
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

/// The tree of what lies before the last segment, which says what its root is; and whether its hashes were made anew.
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
    // From the hashes of the pruned leaves, and from the leaves that are held.
    let lost = || {
        let found = "the hashes are damaged, and the records that they were made from are pruned";
        DiskError::damaged(&paths.hashes(), found)
    };
    let segments = shared.segments();
    let held_from = segments.first().map_or(last, |segment| segment.first());
    let level_0 = HashesAt { files, size: held_from };
    let mut tree = files.writer(Frontier::new());
    // Those of the leaves are written over by themselves: nowhere else are they.
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

/// Whether the tree begins with the one that was published last.
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
        "the first {published} records have the root {found}, but a checkpoint was published that says {expected}: they \
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

/// What a segment begins with.
fn first_frame(path: &Path, first: u64) -> Result<GroupHead, DiskError> {
    let head = groups_of(path)?.next().transpose()?.map(|group| group.head);
    let head = head.filter(|head| head.first_index == first && head.beginning.is_some());
    let other = || DiskError::damaged(path, "it is not what a segment of this name begins with").at_byte(HEADER_LEN);
    head.ok_or_else(other)
}

fn stranger(path: &Path) -> DiskError {
    DiskError::damaged(path, "it does not belong into the ledger's folder").with_cure("Move it away")
}

/// The segments that there are, oldest first.
fn list_segments(paths: &Paths) -> Result<Vec<u64>, LedgerError> {
    let folder = paths.segments();
    let mut found = Vec::new();
    for name in names_in(&folder).map_err(at(&folder))? {
        // A segment whose creation was interrupted; its name will be used again.
        if !name.ends_with(".new") {
            found.push(parse_segment_name(&name).ok_or_else(|| stranger(&folder.join(&name)))?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes indexes of segments that are not there: one was being written while its segment was pruned.
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

/// Hashes that wait in memory while the last segment is read.
const PENDING_HASHES: u64 = 1 << 15;
